package verify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
)

// reasonOf turns the outcome into a word: "ok", a reason, or the text of any other error.
func reasonOf(err error) string {
	if err == nil {
		return "ok"
	}
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return string(refusal.Reason)
	}
	return err.Error()
}

func mustNew(t testing.TB, kind string, c Config) Verifier {
	t.Helper()
	v, err := New(kind, c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func sign(secret, body string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return mac.Sum(nil)
}

// Known answers: signatures that senders and their libraries made.
func TestHMACKnownAnswers(t *testing.T) {
	data, err := os.ReadFile("testdata/hmac.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name     string            `json:"name"`
		Header   string            `json:"header"`
		Prefix   string            `json:"prefix"`
		Encoding Encoding          `json:"encoding"`
		Secret   string            `json:"secret"`
		Headers  map[string]string `json:"headers"`
		Body     []byte            `json:"body"` // base64 of the exact bytes
		Want     string            `json:"want"` // "ok", a reason, or no_secret_configured
		Source   string            `json:"source"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 30 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			v, err := New("hmac", Config{Header: c.Header, Prefix: c.Prefix, Encoding: c.Encoding, Secrets: [][]byte{[]byte(c.Secret)}})
			if c.Want == "no_secret_configured" {
				if err == nil || !strings.Contains(err.Error(), "secrets: number 1 is empty") {
					t.Fatalf("New: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			header := http.Header{}
			for name, value := range c.Headers {
				header.Set(name, value)
			}
			for range 2 { // the second time with a hash that was used before
				if got := reasonOf(v.Verify(Request{Method: "POST", Header: header, Body: c.Body})); got != c.Want {
					t.Errorf("got %s, want %s", got, c.Want)
				}
			}
		})
	}
}

func TestHMACSpelling(t *testing.T) {
	const secret, body = "It's a Secret to Everybody", "Hello, World!"
	digest := sign(secret, body)
	inHex, in64 := hex.EncodeToString(digest), base64.StdEncoding.EncodeToString(digest)
	// The last character but the padding holds two bits that mean nothing; a lenient decoder ignores them.
	stray := in64[:42] + string(in64[42]+1) + "="
	if lenient, err := base64.StdEncoding.DecodeString(stray); err != nil || !bytes.Equal(lenient, digest) {
		t.Fatalf("%s does not decode to the same bytes", stray)
	}
	for _, c := range []struct {
		name   string
		config Config
		values []string
		want   string
	}{
		{"hex", Config{}, []string{inHex}, "ok"},
		{"hex with a prefix", Config{Prefix: "sha256="}, []string{"sha256=" + inHex}, "ok"},
		{"base64", Config{Encoding: Base64}, []string{in64}, "ok"},
		{"base64 with a prefix", Config{Encoding: Base64, Prefix: "v1,"}, []string{"v1," + in64}, "ok"},

		{"no header", Config{}, nil, "missing_signature"},
		{"an empty header", Config{}, []string{""}, "missing_signature"},
		{"two headers, both right", Config{}, []string{inHex, inHex}, "malformed_signature"},
		{"two headers, one right", Config{}, []string{strings.Repeat("0", 64), inHex}, "malformed_signature"},
		{"two headers, one empty", Config{}, []string{"", inHex}, "malformed_signature"},
		{"two signatures in one header", Config{}, []string{inHex + "," + inHex}, "malformed_signature"},

		{"the prefix is missing", Config{Prefix: "sha256="}, []string{inHex}, "malformed_signature"},
		{"the prefix in upper case", Config{Prefix: "sha256="}, []string{"SHA256=" + inHex}, "malformed_signature"},
		{"the prefix twice", Config{Prefix: "sha256="}, []string{"sha256=sha256=" + inHex}, "malformed_signature"},
		{"only the prefix", Config{Prefix: "sha256="}, []string{"sha256="}, "malformed_signature"},
		{"a prefix that is not expected", Config{}, []string{"sha256=" + inHex}, "malformed_signature"},
		{"a space behind the prefix", Config{Prefix: "sha256="}, []string{"sha256= " + inHex}, "malformed_signature"},

		{"hex in upper case", Config{}, []string{strings.ToUpper(inHex)}, "non_canonical"},
		{"hex, one digit short", Config{}, []string{inHex[:63]}, "malformed_signature"},
		{"hex, one byte more", Config{}, []string{inHex + "00"}, "malformed_signature"},
		{"hex with a letter that is none", Config{}, []string{inHex[:63] + "g"}, "malformed_signature"},
		{"hex of nothing but zeros", Config{}, []string{strings.Repeat("0", 64)}, "bad_signature"},
		{"hex with a letter of two bytes", Config{}, []string{inHex[:62] + "é"}, "malformed_signature"},
		{"base64 where hex is wanted", Config{}, []string{in64}, "malformed_signature"},

		{"hex where base64 is wanted", Config{Encoding: Base64}, []string{inHex}, "malformed_signature"},
		{"base64 without padding", Config{Encoding: Base64}, []string{strings.TrimRight(in64, "=")}, "malformed_signature"},
		{"base64 with stray bits", Config{Encoding: Base64}, []string{stray}, "non_canonical"},
		{"base64 with a line break", Config{Encoding: Base64}, []string{in64[:20] + "\n" + in64[20:]}, "malformed_signature"},
		{"base64 with a line break in place of a character", Config{Encoding: Base64}, []string{in64[:20] + "\r" + in64[21:]}, "malformed_signature"},
		{"base64 of 33 bytes", Config{Encoding: Base64}, []string{base64.StdEncoding.EncodeToString(append(digest[:32:32], 1))}, "malformed_signature"},
		{"base64 of 31 bytes", Config{Encoding: Base64}, []string{base64.StdEncoding.EncodeToString(digest[:31])}, "malformed_signature"},
		{"base64 in the alphabet for URLs", Config{Encoding: Base64}, []string{strings.Repeat("-", 43) + "="}, "malformed_signature"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.Header, c.config.Secrets = "x-signature", [][]byte{[]byte(secret)}
			v := mustNew(t, "hmac", c.config)
			request := Request{Method: "POST", Header: http.Header{"X-Signature": c.values}, Body: []byte(body)}
			if got := reasonOf(v.Verify(request)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestHMACTakesAnyOfItsSecrets(t *testing.T) {
	secrets := [][]byte{[]byte("old"), []byte("current"), []byte("next")}
	v := mustNew(t, "hmac", Config{Header: "X-Signature", Secrets: secrets})
	clear(secrets[1]) // the verifier has its own copy
	var wg sync.WaitGroup
	for _, secret := range []string{"old", "current", "next", "other", "old"} {
		wg.Go(func() {
			want := "ok"
			if secret == "other" {
				want = "bad_signature"
			}
			for range 100 {
				request := Request{Header: http.Header{"X-Signature": {hex.EncodeToString(sign(secret, "body"))}}, Body: []byte("body")}
				if got := reasonOf(v.Verify(request)); got != want {
					t.Errorf("%s: got %s", secret, got)
				}
			}
		})
	}
	wg.Wait()
}

func TestHMACRefusesAConfigThatProvesNothing(t *testing.T) {
	secret := [][]byte{[]byte("s3cr3t")}
	for _, c := range []struct {
		name   string
		config Config
		want   string
	}{
		{"no header", Config{Secrets: secret}, "verify: kind hmac: header: the name of the request header that carries the signature is needed"},
		{"a header that cannot be", Config{Header: "X Signature", Secrets: secret}, "verify: kind hmac: header: the name of the request header that carries the signature is needed"},
		{"no secrets", Config{Header: "X"}, "verify: kind hmac: secrets: at least one is needed"},
		{"an empty secret", Config{Header: "X", Secrets: [][]byte{[]byte("s3cr3t"), {}}}, "verify: kind hmac: secrets: number 2 is empty: anyone could sign with it"},
		{"an unknown encoding", Config{Header: "X", Encoding: "base32", Secrets: secret}, `verify: kind hmac: encoding: "base32" is neither hex nor base64`},
		{"a prefix of two lines", Config{Header: "X", Prefix: "a\n", Secrets: secret}, "verify: kind hmac: prefix: a line break cannot stand in a header"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := New("hmac", c.config); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// FuzzHMAC: never a panic, and exactly one spelling of the right signature passes.
func FuzzHMAC(f *testing.F) {
	right := sign("secret", "body")
	f.Add("sha256="+hex.EncodeToString(right), "sha256=", "body", false)
	f.Add(base64.StdEncoding.EncodeToString(right), "", "body", true)
	f.Add(strings.ToUpper(hex.EncodeToString(right)), "", "body", false)
	f.Add("sha256=", "sha256=", "", false)
	f.Fuzz(func(t *testing.T, header, prefix, body string, in64 bool) {
		c := Config{Header: "X", Prefix: prefix, Secrets: [][]byte{[]byte("first"), []byte("secret")}}
		encode := hex.EncodeToString
		if in64 {
			c.Encoding, encode = Base64, base64.StdEncoding.EncodeToString
		}
		v, err := New("hmac", c)
		if err != nil {
			return
		}
		verify := func(value string) error {
			return v.Verify(Request{Header: http.Header{"X": {value}}, Body: []byte(body)})
		}
		expected := map[string]bool{prefix + encode(sign("secret", body)): true, prefix + encode(sign("first", body)): true}
		for value := range expected {
			if err := verify(value); err != nil {
				t.Fatalf("the right signature: %v", err)
			}
		}
		if err := verify(header); (err == nil) != expected[header] {
			t.Fatalf("%q: %v", header, err)
		}
	})
}

func BenchmarkHMAC(b *testing.B) {
	body := bytes.Repeat([]byte("x"), 1024)
	for _, secrets := range []int{1, 2} {
		b.Run(map[int]string{1: "one secret", 2: "two secrets"}[secrets], func(b *testing.B) {
			all := [][]byte{[]byte("a secret"), []byte("another")}[:secrets]
			v := mustNew(b, "hmac", Config{Header: "X-Hub-Signature-256", Prefix: "sha256=", Secrets: all})
			header := http.Header{"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(sign("a secret", string(body)))}}
			b.ReportAllocs()
			for b.Loop() {
				if err := v.Verify(Request{Header: header, Body: body}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
