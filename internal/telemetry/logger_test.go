package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// logged writes one line and returns its members.
func logged(t *testing.T, write func(*slog.Logger)) map[string]any {
	t.Helper()
	var out bytes.Buffer
	write(NewLogger(Config{Writer: &out, Format: FormatJSON}))
	if n := bytes.Count(out.Bytes(), []byte("\n")); n != 1 {
		t.Fatalf("wrote %d lines: %s", n, out.Bytes())
	}
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("the line is not JSON: %v: %s", err, out.Bytes())
	}
	return line
}

func TestRedactsByKey(t *testing.T) {
	const secret = "s3cr3t-value"
	cases := []struct {
		attr slog.Attr
		want any
	}{
		{slog.String("password", secret), redacted},
		{slog.String("db_password", secret), redacted},
		{slog.String("dbPassword", secret), redacted},
		{slog.String("PGPASSWORD", secret), redacted},
		{slog.String("Authorization", secret), redacted},
		{slog.String("set-cookie", secret), redacted},
		{slog.String("api_key", secret), redacted},
		{slog.String("key", secret), redacted},
		{slog.String("monkey", secret), secret},
		{slog.String("dsn", secret), redacted},
		{slog.Int("token", 4711), redacted},
		{slog.Any("secrets", []string{secret}), redacted},
		{slog.String("body", secret), redacted},
		{slog.Int("body_size", 12), 12.0},
		{slog.Any("headers", http.Header{"X": {secret}}), "[1 header fields]"},
		{slog.String("query", "a="+secret), redacted},
		{slog.String("url", "https://u:"+secret+"@h.example/p?x="+secret), "https://[redacted]@h.example/p"},
		{slog.String("target_url", "/p?x="+secret), "/p"},
		{slog.Any("endpoint", &url.URL{Scheme: "https", Host: "h.example", RawQuery: "x=" + secret}), "https://h.example"},
		{slog.Any("raw", []byte(secret)), "[12 bytes]"},
		{slog.Group("cookie", slog.String("a", secret)), map[string]any{"a": redacted}},
		{slog.Any("config", map[string]any{"user": "u", "password": secret, "nested": []any{map[string]string{"apiKey": secret}}}),
			map[string]any{"user": "u", "password": redacted, "nested": []any{map[string]any{"apiKey": redacted}}}},
		{slog.Any("config", struct{ Password string }{secret}), map[string]any{"Password": redacted}},
		{slog.Any("big", map[string]uint64{"n": 1 << 60}), map[string]any{"n": 1.152921504606847e+18}},
		{slog.String("source", "erp"), "erp"},
		{slog.Any("id", uuid.Max), uuid.Max.String()},
		{slog.Duration("took", time.Second), 1e9},
		{slog.Any("error", nil), nil},
		{slog.Any("error", (*nilError)(nil)), "[unprintable]"},
	}
	for _, c := range cases {
		t.Run(c.attr.String(), func(t *testing.T) {
			line := logged(t, func(l *slog.Logger) { l.LogAttrs(t.Context(), slog.LevelInfo, "m", c.attr) })
			if diff := cmp.Diff(c.want, line[c.attr.Key]); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			// The same holds for attributes that a logger carries.
			line = logged(t, func(l *slog.Logger) { l.With(c.attr).Info("m") })
			if diff := cmp.Diff(c.want, line[c.attr.Key]); diff != "" {
				t.Errorf("With: -want +got\n%s", diff)
			}
		})
	}
	t.Run("a group that a logger opens", func(t *testing.T) {
		line := logged(t, func(l *slog.Logger) { l.WithGroup("credentials").Info("m", "a", secret) })
		if diff := cmp.Diff(map[string]any{"a": redacted}, line["credentials"]); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestScrubsCredentialsByForm(t *testing.T) {
	cases := []struct{ in, want string }{
		{"open postgres://bob:hunter2@db/x?sslmode=off: refused", "open postgres://[redacted]@db/x refused"},
		{"open postgres://bob:hu@nt/er2@db/x", "open postgres://[redacted]@db/x"},
		{`parse "mysql://bob:hunter2@db": bad`, `parse "mysql://[redacted]@db": bad`},
		{"open root:hunter2@tcp(127.0.0.1:3306)/x", "open [redacted]@tcp(127.0.0.1:3306)/x"},
		{"open root:hunter2@/x", "open [redacted]@/x"},
		{"host=db password=hunter2 user=bob", "host=db password=[redacted] user=bob"},
		{"host=db password='hunter2 x' user=bob", "host=db password=[redacted] user=bob"},
		{`{"password":"hunter2","user":"bob"}`, `{"password":[redacted],"user":"bob"}`},
		{`{"access_token": "hunter2"}`, `{"access_token": [redacted]}`},
		{"PGPASSWORD=hunter2 is set", "PGPASSWORD=[redacted] is set"},
		{`Post "https://h.example/in?token=hunter2": EOF`, `Post "https://h.example/in": EOF`},
		{"Cookie: a=1; session=hunter2\nnext", "Cookie: [redacted]\nnext"},
		{"Authorization: Digest user=bob, response=hunter2", "Authorization: [redacted]"},
		{"sent Bearer hunter2hunter2", "sent Bearer [redacted]"},
		{"unexpected token: '}' at 12:30", "unexpected token: '}' at 12:30"},
		{"mail to bob@example.com at 12:30", "mail to bob@example.com at 12:30"},
		{"dial tcp [::1]:5432: connection refused", "dial tcp [::1]:5432: connection refused"},
	}
	for _, c := range cases {
		t.Run(c.in, func(t *testing.T) {
			line := logged(t, func(l *slog.Logger) {
				l.Info(c.in, "text", c.in, "error", fmt.Errorf("start: %w", errors.New(c.in)))
			})
			for key, want := range map[string]string{"msg": c.want, "text": c.want, "error": "start: " + c.want} {
				if got := line[key]; got != want {
					t.Errorf("%s: got %q, want %q", key, got, want)
				}
			}
		})
	}
}

func TestCutsAndCleansValues(t *testing.T) {
	t.Run("an error of 1 MB with NULs is cut and printable", func(t *testing.T) {
		line := logged(t, func(l *slog.Logger) {
			l.Info("m", "error", errors.New(strings.Repeat("a\x00b ", 1<<18)))
		})
		got := line["error"].(string)
		if len(got) > maxValue+64 || strings.Contains(got, "\x00") || !strings.HasPrefix(got, `a\x00b a\x00b`) ||
			!strings.HasSuffix(got, "bytes more]") {
			t.Errorf("%d bytes: %q …", len(got), got[:min(len(got), 80)])
		}
	})
	t.Run("never inside a character", func(t *testing.T) {
		for pad := range 4 {
			got := redactText(openKey, strings.Repeat("x", pad)+strings.Repeat("漢", 2000))
			if !utf8.ValidString(got) || strings.Contains(got, `\x`) {
				t.Errorf("pad %d: %q", pad, got[maxValue-10:])
			}
		}
	})
	t.Run("a connection string at the cut is not half shown", func(t *testing.T) {
		for _, at := range []int{maxValue - 20, maxValue, maxScanned - 30, maxScanned - 20, maxScanned - 10} {
			for _, filler := range []string{"x ", "x"} {
				text := strings.Repeat(filler, at)[:at] + "postgres://bob:" + strings.Repeat("hunter2", 20) + "@db/x"
				if got := redactText(openKey, text); strings.Contains(got, "hunter2") {
					t.Errorf("at %d: …%q", at, got[max(0, len(got)-80):])
				}
			}
		}
	})
	t.Run("odd bytes", func(t *testing.T) {
		for in, want := range map[string]string{
			"a\xffb":          `a\xffb`,
			"\x1b[31mred":     `\x1b[31mred`,
			"a\u202eb":        `a\u202eb`,
			"line\nnext\ttab": "line\nnext\ttab",
			"中文 ç — 漢\u3000字": "中文 ç — 漢\u3000字",
			"\u0085":          `\x85`,
		} {
			if got := printable(in); got != want {
				t.Errorf("%q: got %q, want %q", in, got, want)
			}
		}
	})
	t.Run("one record is one line of text", func(t *testing.T) {
		var out bytes.Buffer
		NewLogger(Config{Writer: &out}).Info("a\nb", "k\n", "v\r\nlevel=ERROR\x00")
		if got := out.String(); strings.Count(got, "\n") != 1 || strings.ContainsAny(got, "\x00\r") {
			t.Errorf("%q", got)
		}
	})
	t.Run("a value too large to show says so", func(t *testing.T) {
		line := logged(t, func(l *slog.Logger) { l.Info("m", "list", make([]int, 10_000)) })
		if got := line["list"]; got != "[a value of 20001 bytes]" {
			t.Errorf("%v", got)
		}
	})
}

func TestLimitsRepeats(t *testing.T) {
	t.Run("AC-9 an outage that every request tells of writes fewer than 10 lines a second", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var out countingWriter
			reg := prometheus.NewRegistry()
			log := NewLogger(Config{Writer: &out, Metrics: reg})
			const seconds = 30
			for i := range seconds * 1000 {
				log.Error("the store cannot be reached", "error", errors.New("refused"))
				log.Warn(fmt.Sprintf("request %d failed", i)) // a text that never repeats
				time.Sleep(time.Millisecond)
			}
			for i, from := range out.times {
				n := 0
				for _, at := range out.times[i:] {
					if at.Sub(from) < time.Second {
						n++
					}
				}
				if n > linesASecond {
					t.Fatalf("%d lines within a second", n)
				}
			}
			if got := strings.Count(out.text.String(), "level=ERROR"); got != seconds/5 {
				t.Errorf("the error was written %d times in %d s, want every 5 s", got, seconds)
			}
			suppressed := testutil.ToFloat64(suppressedCounter(reg))
			if want := float64(2*seconds*1000 - len(out.times)); suppressed != want {
				t.Errorf("counted %v suppressed lines, want %v", suppressed, want)
			}
		})
	})
	t.Run("the next line tells how many were held back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var out countingWriter
			log := NewLogger(Config{Writer: &out})
			for range 10 {
				log.Warn("full", "n", 1)
			}
			log.With("source", "erp").Warn("full") // shares the limit
			log.Error("full")                      // another level is another line
			time.Sleep(repeatAfter)
			log.Warn("full")
			time.Sleep(repeatAfter)
			log.Warn("full")
			var got []string
			for line := range strings.Lines(out.text.String()) {
				_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
				got = append(got, line)
			}
			want := []string{
				"level=WARN msg=full n=1",
				"level=ERROR msg=full",
				"level=WARN msg=full suppressed=10",
				"level=WARN msg=full",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	})
	t.Run("a flood of warnings hides no error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var out countingWriter
			log := NewLogger(Config{Writer: &out})
			for i := range 100 {
				log.Warn(fmt.Sprint("warning ", i))
			}
			log.Error("the one that matters")
			if !strings.Contains(out.text.String(), "the one that matters") {
				t.Error("the error was not written")
			}
		})
	})
	t.Run("texts are forgotten, their count is not, and memory is bounded", func(t *testing.T) {
		l := newLimiter(suppressedCounter(nil))
		now := time.Unix(0, 0)
		written, told := 0, 0
		for i := range 10_000 {
			v := l.judge(slog.LevelWarn, fmt.Sprint(i), now)
			if v.write {
				written++
				told += v.suppressed + v.others
			}
			now = now.Add(time.Millisecond)
		}
		for _, s := range l.texts {
			told += s.suppressed
		}
		if written+told+l.others != 10_000 || len(l.texts) != rememberTexts {
			t.Errorf("written %d, told %d, still to tell %d, of 10000; %d texts kept", written, told, l.others, len(l.texts))
		}
	})
	t.Run("lines below Warn are not limited", func(t *testing.T) {
		var out countingWriter
		log := NewLogger(Config{Writer: &out, Level: slog.LevelDebug})
		for range 100 {
			log.Info("message")
			log.Debug("message")
		}
		if len(out.times) != 200 {
			t.Errorf("wrote %d lines", len(out.times))
		}
	})
	t.Run("lines below the level are not written", func(t *testing.T) {
		var out countingWriter
		NewLogger(Config{Writer: &out}).Debug("message")
		if len(out.times) != 0 {
			t.Error("wrote a debug line")
		}
	})
}

// countingWriter notes when each line was written.
type countingWriter struct {
	times []time.Time
	text  strings.Builder
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.times = append(w.times, time.Now())
	return w.text.Write(p)
}
