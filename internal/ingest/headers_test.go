package ingest

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func testHash(b []byte) string { return fmt.Sprintf("h1:%08x", crc32.ChecksumIEEE(b)) }

func TestHeadersAreKept(t *testing.T) {
	keeper := &fakeKeeper{}
	k := openDoor(t, keeper, DoorConfig{Hash: testHash}, Source{Name: "erp"})

	t.Run("IN-25 headers are kept as they came, without those of the connection and without credentials", func(t *testing.T) {
		l := k.dial()
		l.sendf("%s", strings.Join([]string{
			"POST /in/erp?a=1&token=s3cret&b=%2F+x&a=&x;y HTTP/1.1",
			"Host: posthouse.test:80",
			"x-lower: one",
			"X-Lower:   two  ",
			"Content-Type: application/json; charset=\"utf-8\"",
			"X-Empty:",
			"X-Latin: caf\xe9 \xff",
			"Connection: keep-alive, X-Nominated",
			"X-Nominated: away",
			"Keep-Alive: timeout=5",
			"TE: trailers",
			"Authorization: Bearer abc",
			"Proxy-Authorization: Basic abc",
			"Cookie: a=b; c=d",
			"x-api-key: s3cret",
			"X-Gitlab-Token: s3cret",
			"X-Shop-Secret: s3cret",
			"X-Hub-Signature-256: sha256=00",
			"Content-Length: 4",
			"", "body",
		}, "\r\n"))
		l.read().want(t, 200)
		secret := testHash([]byte("s3cret"))
		want := strings.Join([]string{
			"Authorization: " + testHash([]byte("Bearer abc")),
			"Content-Length: 4",
			"Content-Type: application/json; charset=\"utf-8\"",
			"Cookie: " + testHash([]byte("a=b; c=d")),
			"Host: posthouse.test:80",
			"Proxy-Authorization: " + testHash([]byte("Basic abc")),
			"X-Api-Key: " + secret,
			"X-Empty: ",
			"X-Gitlab-Token: " + secret,
			"X-Hub-Signature-256: sha256=00",
			"X-Latin: caf\xe9 \xff",
			"X-Lower: one",
			"X-Lower: two",
			"X-Shop-Secret: " + secret,
			"",
		}, "\r\n")
		m := keeper.all()[0]
		if diff := cmp.Diff(want, string(m.Headers)); diff != "" {
			t.Errorf("headers (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff("a=1&token="+url.QueryEscape(secret)+"&b=%2F+x&a=&x;y", string(m.Query)); diff != "" {
			t.Errorf("query (-want +got)\n%s", diff)
		}
		if m.ContentType != `application/json; charset="utf-8"` {
			t.Errorf("the content type is %q", m.ContentType)
		}
	})
	t.Run("a push without any header or query of its own", func(t *testing.T) {
		l := k.dial()
		l.sendf("POST /in/erp HTTP/1.0\r\nContent-Length: 4\r\n\r\nbody")
		l.read().want(t, 200)
		kept := keeper.all()
		if m := kept[len(kept)-1]; string(m.Headers) != "Content-Length: 4\r\n" || len(m.Query) != 0 || m.ContentType != "" {
			t.Errorf("kept %q %q %q", m.Headers, m.Query, m.ContentType)
		}
	})
}

func TestSanitizer(t *testing.T) {
	t.Run("IN-25 which headers are credentials", func(t *testing.T) {
		for name, want := range map[string]bool{
			"Authorization": true, "Cookie": true, "X-Api-Key": true, "Apikey": true, "X-Goog-Channel-Token": true, "X-Telegram-Bot-Api-Secret-Token": true,
			"X-Amz-Security-Token": true, "X-Original-Authorization": true, "X-Db-Password": true, "Token": true,
			"X-Hub-Signature": false, "X-Shopify-Hmac-Sha256": false, "Stripe-Signature": false, "Webhook-Id": false, "X-Token-Type": true, "X-Github-Delivery": false,
			"Content-Type": false, "Idempotency-Key": false, "X-Idempotency-Key": false, "Idempotency_key": false, "Cookie-Policy": false,
			"X-Passwd": true, "X-Password-Hash": true, "X_password": true, "X-Aws-Credentials": true, "Client_secret": true, "X-Secret-Id": true, "Api_key": true,
			"X-Api_key": true, "X-Signing-Key": true, "Ocp-Apim-Subscription-Key": true, "Cookie2": true, "X-Auth": true, "Php-Auth-Pw": true, "X-Jwt": true,
			"X-Myapikey": true, "Keyword": false, "Monkey": false, "User-Agent": false, "Host": false, "X-Correlation-Id": false, "Authentication-Results": false, "": false,
		} {
			if got := credentialHeader(name); got != want {
				t.Errorf("%s: %v", name, got)
			}
		}
	})
	t.Run("IN-25 which query parameters are credentials", func(t *testing.T) {
		for name, want := range map[string]bool{
			"token": true, "TOKEN": true, "access_token": true, "accessToken": true, "hub.verify_token": true, "key": true, "api_key": true, "apikey": true, "api-key": true,
			"client_secret": true, "password": true, "auth%5Btoken%5D": true, "auth[password]": true, "%74oken": true, "to%6ben": true,
			"msg_signature": false, "sig": false, "code": false, "auth-key": true, "accessKey": true, "signing_key": true, "idempotency_key": false, "idempotencyKey": false,
			"db_passwd": true, "aws-credentials": true, "token_type": true, "secretId": true, "myApiKey": true, "jwt": true, "signature": false, "timestamp": false, "nonce": false, "echostr": false, "keyword": false, "monkey": false, "": false,
			"tokens_used": true, "hub.challenge": false,
		} {
			if got := credentialParameter(name, "x"); got != want {
				t.Errorf("%s: %v", name, got)
			}
		}
	})
	t.Run("IN-25 a query is kept byte for byte but for credentials", func(t *testing.T) {
		s := sanitizer{hash: func(b []byte) string { return "<" + string(b) + ">" }}
		for query, want := range map[string]string{
			"":                               "",
			"&&a&=b&c=&%zz=%zz&":             "&&a&=b&c=&%zz=%zz&",
			"token":                          "token",
			"token=":                         "token=",
			"a=1;token=x;b":                  "a=1;token=%3Cx%3E;b",
			"token=a%2Bb&token=a+b":          "token=%3Ca%2Bb%3E&token=%3Ca+b%3E",
			"key=%zz":                        "key=%3C%25zz%3E",
			"code=1234567890123456789&sig=1": "code=1234567890123456789&sig=1",
			"code=12345678901234567890":      "code=%3C12345678901234567890%3E",
			"SIG=12345678901234567890&sigs=12345678901234567890": "SIG=%3C12345678901234567890%3E&sigs=12345678901234567890",
			"access_token=a=b&x=1":                               "access_token=%3Ca%3Db%3E&x=1",
			"\xff\x00=1&secret=\xff\x00\r\n":                     "\xff\x00=1&secret=%3C%FF%00%0D%0A%3E",
		} {
			if got := string(s.appendQuery(nil, query)); got != want {
				t.Errorf("%q became %q, want %q", query, got, want)
			}
		}
	})
	t.Run("without a key nothing of a credential is kept", func(t *testing.T) {
		var s sanitizer
		got := string(s.appendQuery(s.appendHeaders(nil, http.Header{"Authorization": {"abc"}}, ""), "token=abc"))
		if got != "Authorization: [removed]\r\ntoken=%5Bremoved%5D" {
			t.Errorf("kept %q", got)
		}
	})
	t.Run("printable", func(t *testing.T) {
		for value, want := range map[string]string{
			"text/plain":             "text/plain",
			"caf\xe9 \x00\x1b[1m":    "caf\ufffd \ufffd\ufffd[1m",
			"a\u0085b":               "a\ufffdb",
			"中文":                     "中文",
			strings.Repeat("x", 300): strings.Repeat("x", 255),
			strings.Repeat("中", 100): strings.Repeat("中", 85),
		} {
			if got := printable(value, 255); got != want {
				t.Errorf("%q became %q", value, got)
			}
		}
	})
}

// FuzzSanitizer: what is kept reads back as what came, and never holds a
// credential.
func FuzzSanitizer(f *testing.F) {
	f.Add("X-A", "value", "Authorization", "Bearer s3cret", "a=1&token=s3cret&b")
	f.Add("Connection", "x-b", "X-B", "\r\nX-C: injected", "a;b;key=%zz&&=")
	f.Add("Content-Type", "text/\xff\x00", "Cookie", "", "%74oken=a+b%20c")
	f.Add("no token", "x", "X-Api-Key", strings.Repeat("k", 100), "hub.verify_token=")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2, query string) {
		header := http.Header{}
		header.Add(name1, value1)
		header.Add(name2, value2)
		header.Add(name1, value2)
		const hashed = "hashed"
		s := sanitizer{hash: func([]byte) string { return hashed }}
		kept := s.appendHeaders(nil, header, "")

		read, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(slices.Clone(kept), "\r\n"...)))).ReadMIMEHeader()
		if err != nil {
			t.Fatalf("%q does not read as a header: %v", kept, err)
		}
		for name, values := range read {
			was, known := header[name]
			if !known {
				t.Fatalf("%q has the header %q, which did not come", kept, name)
			}
			if len(values) != len(was) {
				t.Fatalf("%s has %d values, came with %d", name, len(values), len(was))
			}
			for i, v := range values {
				want := strings.Trim(withoutControls(was[i]), " \t")
				if credentialHeader(name) {
					want = hashed
				}
				if strings.Trim(v, " \t") != want {
					t.Fatalf("%s: %q was kept as %q", name, was[i], v)
				}
			}
		}
		for name := range header {
			if _, there := read[name]; !there && fieldName(name) && !hopByHop(name) && name != "Host" && !nominated(header["Connection"])[name] {
				t.Fatalf("the header %q is lost in %q", name, kept)
			}
		}

		was, is := splitQuery(query), splitQuery(string(s.appendQuery(nil, query)))
		if len(was) != len(is) {
			t.Fatalf("%q has another number of parts than %q", is, was)
		}
		for i := range was {
			name, value, _ := strings.Cut(was[i], "=")
			want := was[i]
			plain := value
			if decoded, err := url.QueryUnescape(value); err == nil {
				plain = decoded
			}
			if plain != "" && credentialParameter(name, plain) {
				want = name + "=" + hashed
			}
			if is[i] != want {
				t.Fatalf("%q was kept as %q", was[i], is[i])
			}
		}

		if p := printable(value1, 20); !utf8.ValidString(p) || len(p) > 20 || strings.ContainsAny(p, "\x00\r\n\x1b") {
			t.Fatalf("%q became %q", value1, p)
		}
	})
}

func withoutControls(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			b[i] = ' '
		}
	}
	return string(b)
}

func splitQuery(query string) []string {
	return strings.FieldsFunc(strings.NewReplacer("&", "&\x01", ";", ";\x01").Replace("\x01"+query), func(r rune) bool { return r == '&' || r == ';' })
}
