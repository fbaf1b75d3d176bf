// Package scrub makes what a provider said fit to be kept and shown: it answers
// "what of this text may an operator read?".
//
// Providers quote what they were given: the address, the text with its variables,
// a token. So known values are replaced in every form in which they come back,
// and beside them whatever looks like somebody's data. It is made for short
// answers and errors, not for whole pages; what it cannot know it cannot find
// (a name that nobody declared, in plain letters).
package scrub

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Mask stands for whatever was taken out.
const Mask = "•••"

const (
	// maxText is how long a Text gets, in bytes.
	maxText = 512
	// maxInput is how much of a text is looked at, in bytes.
	maxInput = 64 << 10
	// word is the length below which a known value is replaced as a whole word
	// only: a variable that is "a" must not make every text unreadable.
	word = 4
	// beginning is how much of a long known value gives it away, in runes:
	// providers cut what they quote.
	beginning = 16
)

// Scrubber takes known values out of texts. The zero value knows none, and takes
// out only what looks like somebody's data. It may be used at the same time.
type Scrubber struct {
	forms [][]rune // folded
}

// New returns a scrubber of the given values: addresses, credentials, values of
// variables.
func New(hidden ...string) Scrubber {
	seen := map[string]bool{}
	var s Scrubber
	add := func(form string) {
		if form = string(fold(clean(form))); form != "" && !seen[form] {
			seen[form] = true
			s.forms = append(s.forms, []rune(form))
		}
	}
	for _, value := range hidden {
		if value = strings.TrimSpace(value); value == "" {
			continue
		}
		if len(value) > maxInput {
			value = value[:maxInput]
		}
		for _, form := range []string{value, strings.ToValidUTF8(value, "")} {
			add(form)
			add(url.QueryEscape(form))
			add(url.PathEscape(form))
			add(html.EscapeString(form))
			add(strings.NewReplacer("&#39;", "&apos;", "&#34;", "&quot;").Replace(html.EscapeString(form)))
			for _, quoted := range jsonForms(form) {
				add(quoted)
				add(html.EscapeString(quoted))
			}
		}
		if utf8.RuneCountInString(value) >= word {
			add(base64.RawStdEncoding.EncodeToString([]byte(value)))
			add(base64.RawURLEncoding.EncodeToString([]byte(value)))
			for _, form := range base64Forms(value) {
				add(form)
			}
			add(hex.EncodeToString([]byte(value)))
		}
	}
	return s
}

// base64Forms are what base64 writes of a value wherever it stands in a longer
// text: the letters that its own bytes alone decide, at each of the three places
// in a group.
func base64Forms(value string) []string {
	var forms []string
	for shift := range 3 {
		padded := append(make([]byte, shift), value...)
		from, to := (8*shift+5)/6, 8*len(padded)/6
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			forms = append(forms, encoding.EncodeToString(padded)[from:to])
		}
	}
	return forms
}

// jsonForms are the ways in which JSON writes a text: with and without its
// escapes of HTML, and all that is not ASCII escaped.
func jsonForms(s string) []string {
	var plain strings.Builder
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(s)
	escaped, escapedErr := json.Marshal(s)
	if err != nil || escapedErr != nil {
		return nil
	}
	var ascii strings.Builder
	for _, r := range strings.TrimSpace(plain.String()) {
		if r < utf8.RuneSelf {
			ascii.WriteRune(r)
			continue
		}
		for _, unit := range utf16(r) {
			ascii.WriteString(`\u` + hex.EncodeToString([]byte{byte(unit >> 8), byte(unit)}))
		}
	}
	forms := []string{plain.String(), string(escaped), ascii.String()}
	for i, form := range forms {
		form = strings.TrimSpace(form)
		forms[i] = form[1 : len(form)-1]
	}
	return forms
}

func utf16(r rune) []rune {
	if r < 0x10000 {
		return []rune{r}
	}
	r -= 0x10000
	return []rune{0xd800 + r>>10, 0xdc00 + r&0x3ff}
}

// What looks like somebody's data, whoever's it is.
var suspects = []*regexp.Regexp{
	regexp.MustCompile(`[\p{L}][\p{L}\p{N}+.-]*://[^\s"'<>]*[?@][^\s"'<>]*`),                                     // an address of a page that says more than where it is
	regexp.MustCompile(`("(?:[^"\\]|\\.)*"|[^\s<>()\[\]:;,"']+)(?:@|＠|%40|&#64;|=40|\\u0040)[^\s<>()\[\];,"']+`), // e-mail
	regexp.MustCompile(`\+?\p{Nd}(?:[ ()./-]{0,2}\p{Nd}){6,}`),                                                   // a phone number
	regexp.MustCompile(`\p{Nd}{4,}`),
}

// token is a long word; whether it is one of those that machines make is for
// tokenLike to say.
var token = regexp.MustCompile(`[A-Za-z0-9_+/=~%-]{16,}`)

func tokenLike(s string) bool {
	if len(s) >= 40 {
		return true
	}
	digits, upper, lower := 0, 0, 0
	for _, r := range s {
		switch {
		case '0' <= r && r <= '9':
			digits++
		case 'A' <= r && r <= 'Z':
			upper++
		case 'a' <= r && r <= 'z':
			lower++
		}
	}
	return digits > 0 && upper+lower > 0 || upper > 2 && lower > 2
}

// Text returns s as an operator may read it: known values and what looks like
// somebody's data replaced by "•••", printable, on one line, at most 512 bytes.
func (s Scrubber) Text(text string) string {
	cut := len(text) > maxInput
	if cut {
		text = text[:maxInput]
	}
	runes := []rune(clean(text))
	masked := s.known(runes)
	plain := string(runes)
	for _, suspect := range suspects {
		for _, at := range suspect.FindAllStringIndex(plain, -1) {
			mark(masked, plain, at)
		}
	}
	for _, at := range token.FindAllStringIndex(plain, -1) {
		if tokenLike(plain[at[0]:at[1]]) {
			mark(masked, plain, at)
		}
	}
	if cut {
		// The end may be the beginning of a known value: nobody can tell.
		for i := range s.forms {
			from := max(0, len(runes)-len(s.forms[i]))
			runes, masked = runes[:from], masked[:from]
		}
	}
	var b strings.Builder
	for i, r := range runes {
		piece := string(r)
		if masked[i] {
			if piece = Mask; i > 0 && masked[i-1] {
				continue
			}
		}
		if b.Len()+len(piece) > maxText-len("…") {
			if i < len(runes)-1 || b.Len()+len(piece) > maxText {
				b.WriteString("…")
				break
			}
		}
		b.WriteString(piece)
	}
	return strings.TrimSpace(b.String())
}

var code = regexp.MustCompile(`^[A-Za-z0-9 _.:-]{1,64}$`)

// Code returns s if it can be a provider's code, and "" otherwise: too long,
// characters that codes do not have, or a known value in it. Values below four
// characters are not looked for: they are in every second code by chance.
func (s Scrubber) Code(text string) string {
	if text = strings.TrimSpace(text); !code.MatchString(text) {
		return ""
	}
	folded := string(fold(text))
	for _, form := range s.forms {
		if len(form) >= word && strings.Contains(folded, string(form)) {
			return ""
		}
	}
	return text
}

// known marks the known values in the runes.
func (s Scrubber) known(runes []rune) []bool {
	masked := make([]bool, len(runes))
	folded := fold(string(runes))
	text := string(folded)
	for _, form := range s.forms {
		needle := form
		if len(needle) > beginning {
			needle = needle[:beginning]
		}
		find := string(needle)
		for from, at := 0, 0; ; {
			found := strings.Index(text[from:], find)
			if found < 0 {
				break
			}
			at += utf8.RuneCountInString(text[from : from+found])
			from += found
			end := at + len(needle)
			for end < len(folded) && end-at < len(form) && folded[end] == form[end-at] {
				end++
			}
			if len(form) >= word || alone(folded, at, end) {
				for i := at; i < end; i++ {
					masked[i] = true
				}
			}
			_, size := utf8.DecodeRuneInString(text[from:])
			from, at = from+size, at+1
		}
	}
	return masked
}

// alone says whether a word begins and ends there.
func alone(runes []rune, from, to int) bool {
	inner := func(i int) bool {
		return i >= 0 && i < len(runes) && (unicode.IsLetter(runes[i]) || unicode.IsDigit(runes[i]))
	}
	return !inner(from-1) && !inner(to)
}

func mark(masked []bool, text string, at []int) {
	from := utf8.RuneCountInString(text[:at[0]])
	to := from + utf8.RuneCountInString(text[at[0]:at[1]])
	for i := from; i < to; i++ {
		masked[i] = true
	}
}

// fold makes upper and lower case the same, rune by rune: places stay.
func fold(s string) []rune {
	runes := []rune(s)
	for i, r := range runes {
		// Runes that differ in case only are a ring; its least stands for all.
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		runes[i] = least
	}
	return runes
}

// clean makes a text printable, on one line. What is not seen is dropped, since
// it would hide a value in it from being found.
func clean(s string) string {
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			space = b.Len() > 0
			continue
		case r == utf8.RuneError:
			r = '\ufffd'
		case !unicode.IsPrint(r):
			continue
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Contains says whether a known value of four characters or more stands in text
// in some form.
func (s Scrubber) Contains(text string) bool {
	folded := string(fold(clean(text)))
	return slices.ContainsFunc(s.forms, func(form []rune) bool {
		return len(form) >= word && strings.Contains(folded, string(form))
	})
}
