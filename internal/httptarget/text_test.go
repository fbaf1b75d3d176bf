package httptarget

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/posthouse/posthouse/internal/model"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                               0,
		"0":                              0,
		"7":                              7 * time.Second,
		" 7 ":                            7 * time.Second,
		"007":                            7 * time.Second,
		"3599":                           3599 * time.Second,
		"3600":                           time.Hour,
		"86400":                          time.Hour,
		"9223372036854775807":            time.Hour,
		strings.Repeat("9", 1000):        time.Hour,
		"-1":                             0,
		"1.5":                            0,
		"1e3":                            0,
		"soon":                           0,
		"٣":                              0,
		"Mon, 30 Nov 2026 12:00:30 GMT":  30 * time.Second,
		"Mon, 30 Nov 2026 11:59:00 GMT":  0,
		"Tue, 01 Dec 2026 12:00:00 GMT":  time.Hour,
		"Monday, 30-Nov-26 12:00:30 GMT": 30 * time.Second,
		"2026-11-30T12:00:30Z":           0,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%.40q: got %v, want %v", value, got, want)
		}
	}
}

func TestExcerpt(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		" \r\n ":                          "",
		"<p>\n\t no  \r\n</p>\n":          "<p> no </p>",
		"a\x00b\xff\x1b[1m":               "a\ufffdb\ufffd\ufffd[1m",
		"数据库":                             "数据库",
		strings.Repeat("x", maxExcerpt):   strings.Repeat("x", maxExcerpt),
		strings.Repeat("x", maxExcerpt+1): strings.Repeat("x", maxExcerpt) + "…",
		strings.Repeat("漢", 1000):         strings.Repeat("漢", maxExcerpt) + "…",
	} {
		got := excerpt([]byte(in))
		if got != want {
			t.Errorf("%.40q: got %q, want %q", in, got, want)
		}
		if model.CleanError(got) != got || !utf8.ValidString(got) {
			t.Errorf("%.40q: %q would be changed when kept", in, got)
		}
	}
}

func TestContentType(t *testing.T) {
	message := func(headers, contentType string) *model.Message {
		return &model.Message{NewMessage: model.NewMessage{Headers: []byte(headers), ContentType: contentType}}
	}
	for _, c := range []struct {
		name string
		m    *model.Message
		want string
		ok   bool
	}{
		{"the exact value, not the printable one", message("Host: a\r\ncontent-type: text/plain; x=\"\xe9\"\r\nX: y\r\n", "text/plain; x=\"\ufffd\""), "text/plain; x=\"\xe9\"", true},
		{"longer than what is kept as printable", message("Content-Type: a/"+strings.Repeat("b", 400)+"\r\n", "a/bb"), "a/" + strings.Repeat("b", 400), true},
		{"without a space", message("Content-Type:a/b\r\n", ""), "a/b", true},
		{"no header lines", message("", "a/b"), "a/b", true},
		{"another header that ends alike", message("X-Content-Type: a/b\r\n", ""), "", false},
		{"none", message("Host: a\r\n", ""), "", false},
		{"an empty one", message("Content-Type: \r\n", ""), "", true},
		{"one that cannot be sent", message("Content-Type: a\nb\r\n", "a/b"), "a/b", true},
		{"neither can be sent", message("Content-Type: a\nb\r\n", "a\x01b"), "a\x01b", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, ok := contentType(c.m); ok != c.ok || ok && got != c.want {
				t.Errorf("got %q, %v; want %q, %v", got, ok, c.want, c.ok)
			}
		})
	}
}
