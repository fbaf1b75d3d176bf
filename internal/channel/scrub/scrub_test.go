package scrub

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestTextTakesOutKnownValuesInEveryForm(t *testing.T) {
	for _, value := range []string{"Tom & Jerry's \"party\"", "pässword<1>", "用户的订单", "line one\nline two", "a+b c/d", "Straße 12"} {
		s := New(value)
		marshalled, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		for form, text := range map[string]string{
			"raw": value, "upper": strings.ToUpper(strings.ReplaceAll(value, "ß", "ẞ")), "query": url.QueryEscape(value), "path": url.PathEscape(value),
			"json": string(marshalled), "html": html.EscapeString(value), "base64": base64.StdEncoding.EncodeToString([]byte(value)),
			"base64url": base64.RawURLEncoding.EncodeToString([]byte(value)), "lower query": strings.ToLower(url.QueryEscape(value)),
		} {
			got := s.Text("refused: " + text + " end")
			if trimmed := strings.NewReplacer(`"`, "", "=", "").Replace(got); trimmed != "refused: ••• end" {
				t.Errorf("%q, %s: got %q", value, form, got)
			}
		}
	}
}

func TestTextTakesOutWhatLooksLikeSomebodysData(t *testing.T) {
	for text, want := range map[string]string{
		"550 5.1.1 <bounce@example.com>: Recipient address rejected: User unknown": "550 5.1.1 <•••>: Recipient address rejected: User unknown",
		`550 "john doe"@example.com unknown`:                                       "550 ••• unknown",
		"user%40example.com is not known":                                          "••• is not known",
		"code 493817 is wrong":                                                     "code ••• is wrong",
		"code ٤٩٣٨١٧ is wrong":                                                     "code ••• is wrong",
		"call +49 (30) 123-45-67 now":                                              "call ••• now",
		"see https://u:p@example.com/x":                                            "see •••",
		"see https://example.com/x?token=abc for more":                             "see ••• for more",
		"see https://example.com/errors for more":                                  "see https://example.com/errors for more",
		"key sk_live_abcDEF123456789xyz refused":                                   "key ••• refused",
		"Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.abc1":                      "Authorization: Bearer •••.e30.abc1",
		"452 4.2.2 The account is over quota":                                      "452 4.2.2 The account is over quota",
		"two\r\nlines\x00 and\u202e more":                                          "two lines and more",
		"49\u200b3817":                                                             "•••",
		"":                                                                         "",
	} {
		if got := New().Text(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestTextReplacesAShortValueAsAWordOnly(t *testing.T) {
	if got, want := New("a", "no").Text("a mailbox says No, and nothing"), "••• mailbox says •••, and nothing"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTextFindsAValueThatTheProviderCut(t *testing.T) {
	if got, want := New("the quick brown fox jumps over the lazy dog").Text("refused: The quick brown fox jum..."), "refused: •••..."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTextIsShort(t *testing.T) {
	for _, text := range []string{strings.Repeat("é ", 5000), strings.Repeat("wörd ", 100), strings.Repeat("x y", 60000), strings.Repeat("a ", 255) + "ab"} {
		got := New("secret").Text(text)
		if len(got) > maxText || !utf8.ValidString(got) {
			t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
	}
}

func TestCode(t *testing.T) {
	s := New("493817", "5")
	for text, want := range map[string]string{
		"550 5.1.1": "550 5.1.1", "ILLEGAL_NUMBER": "ILLEGAL_NUMBER", "isv.BUSINESS_LIMIT": "isv.BUSINESS_LIMIT", "": "", "x493817": "",
		"bad code!": "bad code!"[:0], strings.Repeat("a", 65): "", "a\nb": "", "Überlast": "", " 20003 ": "20003",
	} {
		if got := s.Code(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

var longDigits = regexp.MustCompile(`\p{Nd}{4}`)

func FuzzText(f *testing.F) {
	f.Add("550 <user@example.com> 493817", "493817")
	f.Add("\xff\x00\u202eabc", "abc")
	f.Add("İstanbul K", "i̇stanbul")
	f.Fuzz(func(t *testing.T, text, hidden string) {
		s := New(hidden)
		got := s.Text(text)
		if len(got) > maxText || !utf8.ValidString(got) {
			t.Fatalf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
		if i := strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Fatalf("not printable: %q", got)
		}
		if longDigits.MatchString(got) {
			t.Fatalf("digits: %q", got)
		}
		if !strings.Contains(hidden, "•") && s.Contains(got) {
			t.Fatalf("%q holds %q", got, hidden)
		}
		if code := s.Code(text); code != "" && s.Contains(code) {
			t.Fatalf("code %q holds %q", code, hidden)
		}
	})
}

func TestBase64WhereverAValueStands(t *testing.T) {
	for _, value := range []string{"493817", "secret", "Käse12"} {
		s := New(value)
		for _, before := range []string{"", "P", "PI", "PIN", "Code: "} {
			for _, after := range []string{"", ".", "..", "and so on"} {
				encoded := base64.StdEncoding.EncodeToString([]byte(before + value + after))
				got := s.Text("554 rejected: " + encoded)
				if strings.Contains(got, encoded) {
					t.Errorf("AC-7: %q, %q: %q is repeated", before, after, encoded)
				}
				// What is left of it must not decode to the value.
				for _, word := range strings.FieldsFunc(got, func(r rune) bool { return r > 127 || r == ' ' }) {
					for len(word) > 0 {
						if plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(word, "=")); err == nil && strings.Contains(string(plain), value) {
							t.Errorf("AC-7: %q gives %q away", got, value)
						}
						word = word[1:]
					}
				}
			}
		}
	}
}
