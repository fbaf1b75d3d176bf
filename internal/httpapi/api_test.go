package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func TestPagesHoldEachMessageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		sources, err := s.Register(t.Context(), []model.SourceSpec{{Name: "a"}, {Name: "b"}})
		must(t, err)
		const count = 23
		for n := range count {
			_, err := s.PutMessages(t.Context(), model.PutPending, []model.NewMessage{{ID: testID(n), Source: sources[n%2].ID, Body: []byte("{}")}})
			must(t, err)
		}
		c, _ := testConfig(s)
		h := New(c)
		for _, query := range []string{"", "state=pending&", "source=a&", "source=b&state=pending&"} {
			for _, limit := range []int{1, 7, 23, 500} {
				var ids []string
				for cursor, pages := "", 0; ; pages++ {
					var page MessageList
					rec := request(t, h, "GET", fmt.Sprintf("/v1/inbox/messages?%slimit=%d&cursor=%s", query, limit, url.QueryEscape(cursor)), nil)
					must(t, json.Unmarshal(rec.Body.Bytes(), &page))
					if rec.Code != 200 || len(page.Items) > limit || pages > count {
						t.Fatalf("%q limit %d page %d: status %d, %d items", query, limit, pages, rec.Code, len(page.Items))
					}
					for _, item := range page.Items {
						ids = append(ids, item.ID)
					}
					if page.NextCursor == nil {
						break
					}
					cursor = *page.NextCursor
				}
				var want []string
				for n := count - 1; n >= 0; n-- {
					if name := sources[n%2].Name; !strings.Contains(query, "source=") || strings.Contains(query, "source="+name) {
						want = append(want, testID(n).String())
					}
				}
				if diff := cmp.Diff(want, ids); diff != "" {
					t.Errorf("%q limit %d: -want +got\n%s", query, limit, diff)
				}
			}
		}
	})
}

func TestCursor(t *testing.T) {
	p := model.ListParams{Source: 3, Filter: model.OnlyFailed, Limit: 10}
	c := model.Cursor{DueAt: 1<<62 + 5, Seq: 1<<61 + 7}
	text := EncodeCursor(p, c)
	t.Run("comes back", func(t *testing.T) {
		if got, err := DecodeCursor(p, text); err != nil || got != c {
			t.Errorf("%+v, %v", got, err)
		}
		if got, err := DecodeCursor(p, ""); err != nil || got != (model.Cursor{}) {
			t.Errorf("empty: %+v, %v", got, err)
		}
		p.Limit = 20
		if _, err := DecodeCursor(p, text); err != nil {
			t.Errorf("with another limit: %v", err)
		}
	})
	t.Run("belongs to one list", func(t *testing.T) {
		for _, other := range []model.ListParams{{Source: 4, Filter: model.OnlyFailed}, {Source: 3, Filter: model.OnlyPending}, {}} {
			if _, err := DecodeCursor(other, text); !errors.Is(err, errOtherCursor) {
				t.Errorf("%+v: %v", other, err)
			}
		}
	})
	t.Run("is nothing else", func(t *testing.T) {
		raw, err := cursorEncoding.DecodeString(text)
		must(t, err)
		newer := slices.Clone(raw)
		newer[0]++
		for _, bad := range []string{"x", text + "A", text[1:], text + "=", strings.ToUpper(text), cursorEncoding.EncodeToString(newer),
			cursorEncoding.EncodeToString(raw[:21]), EncodeCursor(p, model.Cursor{DueAt: -1, Seq: 1}), EncodeCursor(p, model.Cursor{Seq: -1}), EncodeCursor(p, model.Cursor{})} {
			if got, err := DecodeCursor(p, bad); err == nil {
				t.Errorf("%q gave %+v", bad, got)
			}
		}
	})
}

func FuzzDecodeCursor(f *testing.F) {
	p := model.ListParams{Source: 1, Filter: model.OnlySuccess}
	f.Add(EncodeCursor(p, model.Cursor{Seq: 12}))
	f.Add("not a cursor")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := DecodeCursor(p, text)
		if err == nil && text != "" && EncodeCursor(p, c) != text {
			t.Errorf("%q is read as %+v, which is %q", text, c, EncodeCursor(p, c))
		}
	})
}

func TestCodesAndStatuses(t *testing.T) {
	all := []model.Code{model.CodeUnavailable, model.CodeRejected, model.CodeNotFound, model.CodeInvalid, CodeConflict, model.CodeUnsafe, model.CodeSchema, model.CodeBusy, model.CodeInternal}
	want := map[model.Code]int{model.CodeUnavailable: 503, model.CodeRejected: 422, model.CodeNotFound: 404, model.CodeInvalid: 422,
		CodeConflict: 409, model.CodeUnsafe: 500, model.CodeSchema: 500, model.CodeBusy: 409, model.CodeInternal: 500}
	t.Run("every code has a status, and is told by its problem document", func(t *testing.T) {
		for _, code := range all {
			if got := StatusOf(code); got != want[code] {
				t.Errorf("%s: %d, want %d", code, got, want[code])
			}
			if got := CodeOf(StatusOf(code), code); got != code {
				t.Errorf("%s comes back as %s", code, got)
			}
		}
		if len(codes) != len(all) {
			t.Errorf("the table has %d codes, want %d", len(codes), len(all))
		}
	})
	t.Run("a status alone stands for a code", func(t *testing.T) {
		for status, code := range map[int]model.Code{200: "", 302: "", 400: model.CodeInvalid, 401: model.CodeInvalid, 403: model.CodeInvalid, 404: model.CodeNotFound,
			405: model.CodeInvalid, 409: CodeConflict, 413: model.CodeInvalid, 421: model.CodeInvalid, 422: model.CodeInvalid, 429: model.CodeUnavailable,
			500: model.CodeInternal, 501: model.CodeInternal, 502: model.CodeUnavailable, 503: model.CodeUnavailable, 504: model.CodeUnavailable} {
			if got := CodeOf(status, ""); got != code {
				t.Errorf("%d: %q, want %q", status, got, code)
			}
		}
	})
	t.Run("a document whose code does not fit is not believed", func(t *testing.T) {
		for _, told := range []model.Code{"of the future", model.CodeBusy} {
			if got := CodeOf(503, told); got != model.CodeUnavailable {
				t.Errorf("%s: %s", told, got)
			}
		}
	})
	t.Run("an unknown code is internal", func(t *testing.T) {
		if got := StatusOf("of the future"); got != 500 {
			t.Error(got)
		}
	})
}

var operations = []struct{ method, path string }{
	{"GET", "/v1/inbox/messages"},
	{"GET", "/v1/inbox/messages?source=erp"},
	{"GET", "/v1/inbox/messages/" + testID(1).String()},
	{"GET", "/v1/inbox/messages/" + testID(1).String() + "/body"},
	{"GET", "/v1/inbox/messages/" + testID(1).String() + "/headers"},
	{"GET", "/v1/inbox/stats"},
	{"GET", "/v1/inbox/sources"},
	{"GET", "/v1/inbox/sources/former/rejects"},
	{"POST", "/v1/inbox/sources/erp/pause"},
	{"POST", "/v1/inbox/sources/erp/resume"},
}

func TestInternalErrorsStayInTheLog(t *testing.T) {
	for _, code := range []model.Code{model.CodeUnavailable, model.CodeSchema, model.CodeInternal, model.CodeRejected} {
		c, log := testConfig(brokenStore{storeError(code)})
		// This log repeats itself: what is looked for must not be held back.
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
		h := New(c)
		for _, op := range operations {
			t.Run(fmt.Sprintf("%s %s %s", code, op.method, op.path), func(t *testing.T) {
				log.Reset()
				rec := request(t, h, op.method, op.path, nil)
				var p Problem
				must(t, json.Unmarshal(rec.Body.Bytes(), &p))
				if rec.Code != StatusOf(code) || p.Status != rec.Code || p.Code != code || p.Detail == "" ||
					rec.Header().Get("Content-Type") != "application/problem+json" {
					t.Errorf("%d %v: %s", rec.Code, rec.Header(), rec.Body)
				}
				if (rec.Header().Get("Retry-After") != "") != (rec.Code == 503) {
					t.Errorf("%d with Retry-After %q", rec.Code, rec.Header().Get("Retry-After"))
				}
				if strings.Contains(rec.Body.String(), "internal detail") || !strings.Contains(log.String(), "internal detail") {
					t.Errorf("answer %s\nlog %s", rec.Body, log)
				}
			})
		}
	}
	t.Run("a missing message and a client that has gone are no news", func(t *testing.T) {
		c, log := testConfig(brokenStore{storeError(model.CodeNotFound)})
		request(t, New(c), "GET", operations[2].path, nil)
		c.Store = brokenStore{storeError(model.CodeUnavailable)}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		New(c).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "http://localhost/v1/inbox/stats", nil))
		if log.Len() > 0 {
			t.Errorf("log %s", log)
		}
	})
}

func TestAnswersRepeatNoValue(t *testing.T) {
	const value = "hunter2"
	c, log := testConfig(brokenStore{storeError(model.CodeNotFound)})
	h := New(c)
	for _, target := range []string{
		"/v1/inbox/messages?source=" + value, "/v1/inbox/messages?state=" + value, "/v1/inbox/messages?limit=" + value,
		"/v1/inbox/messages?cursor=" + value, "/v1/inbox/messages?other=" + value, "/v1/inbox/messages?source=a&source=" + value,
		"/v1/inbox/messages?limit=1;" + value, "/v1/inbox/messages/" + value, "/v1/inbox/messages/urn:uuid:" + value,
		"/v1/inbox/sources/" + value + "/rejects", "/" + value, "/v1/inbox/stats?x=" + value,
	} {
		for _, method := range []string{"GET", "POST", "PUT"} {
			rec := request(t, h, method, target, http.Header{"X": {value}, "Accept": {value}})
			if rec.Code < 400 || strings.Contains(rec.Body.String(), value) || strings.Contains(log.String(), value) {
				t.Errorf("%s %s: %d %s\nlog %s", method, target, rec.Code, rec.Body, log)
			}
		}
	}
}

func TestGuard(t *testing.T) {
	t.Run("answers to its own names only", func(t *testing.T) {
		for _, c := range []struct {
			listen, host string
			want         int
		}{
			{"127.0.0.1:8081", "127.0.0.1:8081", 200},
			{"127.0.0.1:8081", "127.0.0.1", 200},
			{"127.0.0.1:8081", "localhost:9999", 200},
			{"127.0.0.1:8081", "LocalHost.", 200},
			{"127.0.0.1:8081", "[::1]:8081", 200},
			{"127.0.0.1:8081", "127.8.8.8", 200},
			{"admin.internal:8081", "admin.internal:8081", 200},
			{"Admin.internal:8081", "admin.INTERNAL", 200},
			{"[::]:8081", "127.0.0.1", 200},
			{"127.0.0.1:8081", "", 421},
			{"", "", 421},
			{":8081", ":8081", 421},
			{"127.0.0.1:8081", "evil.example", 421},
			{"127.0.0.1:8081", "evil.example:8081", 421},
			{"127.0.0.1:8081", "localhost.evil.example", 421},
			{"127.0.0.1:8081", "127.0.0.1.evil.example", 421},
			{"127.0.0.1:8081", "127.0.0.1@evil.example", 421},
			{"127.0.0.1:8081", "10.0.0.1", 421},
			{"127.0.0.1:8081", "0.0.0.0", 421},
			{"127.0.0.1:8081", "[fe80::1]", 421},
		} {
			config, _ := testConfig(brokenStore{})
			config.Listen = c.listen
			h := New(config)
			for _, path := range []string{"/healthz", "/metrics", "/openapi.json"} {
				if rec := request(t, h, "GET", path, http.Header{"Host": {c.host}}); rec.Code != c.want {
					t.Errorf("listening on %q, %s of %q: %d, want %d", c.listen, path, c.host, rec.Code, c.want)
				}
			}
		}
	})
	t.Run("answers to the address that was reached", func(t *testing.T) {
		config, _ := testConfig(brokenStore{})
		config.Listen = "0.0.0.0:8081"
		r := httptest.NewRequest("GET", "http://192.0.2.7:8081/healthz", nil)
		for local, want := range map[string]int{"192.0.2.7:8081": 200, "192.0.2.8:8081": 421} {
			addr, err := net.ResolveTCPAddr("tcp", local)
			must(t, err)
			rec := httptest.NewRecorder()
			ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(addr)) //nolint:forbidigo // it is how net/http hands it over
			New(config).ServeHTTP(rec, r.WithContext(ctx))
			if rec.Code != want {
				t.Errorf("reached at %s: %d, want %d", local, rec.Code, want)
			}
		}
	})
	t.Run("takes writes from no other origin", func(t *testing.T) {
		config, _ := testConfig(brokenStore{})
		h := New(config)
		for _, c := range []struct {
			header http.Header
			want   int
		}{
			{nil, 200}, // not a browser
			{http.Header{"Origin": {"http://127.0.0.1:8081"}}, 200},
			{http.Header{"Sec-Fetch-Site": {"same-origin"}}, 200},
			{http.Header{"Sec-Fetch-Site": {"none"}}, 200},
			{http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
			{http.Header{"Sec-Fetch-Site": {"same-site"}}, 403},
			{http.Header{"Origin": {"http://127.0.0.1:9999"}}, 403},
			{http.Header{"Origin": {"https://evil.example"}}, 403},
			{http.Header{"Origin": {"null"}}, 403},
		} {
			if rec := request(t, h, "POST", "/v1/inbox/sources/erp/pause", c.header); rec.Code != c.want {
				t.Errorf("%v: %d, want %d", c.header, rec.Code, c.want)
			}
		}
	})
	t.Run("every answer tells browsers to keep their hands off", func(t *testing.T) {
		config, _ := testConfig(brokenStore{storeError(model.CodeUnavailable)})
		h := New(config)
		for _, path := range []string{"/healthz", "/metrics", "/openapi.json", "/v1/inbox/stats", "/nowhere"} {
			header := request(t, h, "GET", path, nil).Header()
			for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
				"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox", "Cross-Origin-Resource-Policy": "same-origin"} {
				if got := header.Get(name); got != want {
					t.Errorf("%s: %s is %q", path, name, got)
				}
			}
			if header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s is open to other origins", path)
			}
		}
	})
	t.Run("a panic is answered, and its kind and place are logged, but not its text", func(t *testing.T) {
		const value = "hunter2"
		for kind, cause := range map[string]any{"string": value, "*errors.errorString": errors.New(value), "[]string": []string{value}} {
			config, log := testConfig(panickingStore{cause: cause})
			rec := request(t, New(config), "GET", "/v1/inbox/stats", nil)
			var p Problem
			must(t, json.Unmarshal(rec.Body.Bytes(), &p))
			if rec.Code != 500 || p.Code != model.CodeInternal || strings.Contains(rec.Body.String()+log.String(), value) {
				t.Errorf("%d %s\nlog %s", rec.Code, rec.Body, log)
			}
			for _, want := range []string{kind, "GET /v1/inbox/stats", "panickingStore"} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log lacks %s: %s", want, log)
				}
			}
		}
	})
	t.Run("a store that hangs is not waited for without end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			config, _ := testConfig(hangingStore{})
			start := time.Now()
			rec := request(t, New(config), "GET", "/v1/inbox/stats", nil)
			if rec.Code != 503 || time.Since(start) != requestTimeout {
				t.Errorf("%d after %v", rec.Code, time.Since(start))
			}
		})
	})
}

// panickingStore panics with its cause.
type panickingStore struct {
	brokenStore
	cause any
}

func (p panickingStore) Stats(context.Context) ([]model.SourceStats, error) { panic(p.cause) }

// hangingStore answers nothing until its caller gives up.
type hangingStore struct{ brokenStore }

func (hangingStore) Stats(ctx context.Context) ([]model.SourceStats, error) {
	<-ctx.Done()
	return nil, &model.Error{Code: model.CodeUnavailable, Op: "stats", Err: ctx.Err()}
}

func (hangingStore) Ping(ctx context.Context) error {
	<-ctx.Done()
	return &model.Error{Code: model.CodeUnavailable, Op: "ping", Err: ctx.Err()}
}

func TestReadiness(t *testing.T) {
	ask := func(t *testing.T, c Config) (int, Readiness) {
		t.Helper()
		rec := request(t, New(c), "GET", "/readyz", nil)
		var got Readiness
		must(t, json.Unmarshal(rec.Body.Bytes(), &got))
		return rec.Code, got
	}
	t.Run("says what is not", func(t *testing.T) {
		c, log := testConfig(brokenStore{storeError(model.CodeUnavailable)})
		c.Checks = []Check{
			{"consumers", func(context.Context) error { return errors.New("source erp: no round for 3m") }},
			{"backlog", func(context.Context) error { return nil }},
		}
		status, got := ask(t, c)
		want := Readiness{Checks: []CheckResult{
			{"store", false, textOf(model.CodeUnavailable)},
			{"consumers", false, "source erp: no round for 3m"},
			{"backlog", true, ""},
		}}
		if diff := cmp.Diff(want, got); diff != "" || status != 503 {
			t.Errorf("%d: -want +got\n%s", status, diff)
		}
		if !strings.Contains(log.String(), "internal detail") {
			t.Errorf("log %s", log)
		}
	})
	t.Run("one check that fails is enough", func(t *testing.T) {
		c, _ := testConfig(brokenStore{})
		c.Checks[0].Run = func(context.Context) error { return errors.New("no") }
		if status, got := ask(t, c); status != 503 || got.Ready {
			t.Errorf("%d %+v", status, got)
		}
	})
	t.Run("a store that hangs and a check that ignores its context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, _ := testConfig(hangingStore{})
			end := make(chan struct{})
			defer close(end)
			c.Checks = []Check{{"stuck", func(context.Context) error { <-end; return nil }}, {"quick", func(context.Context) error { return nil }}}
			start := time.Now()
			status, got := ask(t, c)
			if took := time.Since(start); status != 503 || took != checkTimeout {
				t.Errorf("%d after %v", status, took)
			}
			for i, ok := range []bool{false, false, true} {
				if got.Checks[i].OK != ok || (got.Checks[i].Detail == "") != ok {
					t.Errorf("%+v", got.Checks[i])
				}
			}
		})
	})
	t.Run("alive is something else", func(t *testing.T) {
		c, _ := testConfig(brokenStore{storeError(model.CodeUnavailable)})
		if rec := request(t, New(c), "GET", "/healthz", nil); rec.Code != 200 {
			t.Error(rec.Code)
		}
	})
}

func TestMetricsPage(t *testing.T) {
	c, _ := testConfig(brokenStore{})
	rec := request(t, New(c), "GET", "/metrics", nil)
	if rec.Code != 200 || !strings.Contains(rec.Body.String(), "posthouse_build_info{") {
		t.Errorf("%d %.200s", rec.Code, rec.Body)
	}
}

// TestBodiesComeOutAsTheyWentIn goes over a real connection.
func TestBodiesComeOutAsTheyWentIn(t *testing.T) {
	s := openStore(t)
	sources, err := s.Register(t.Context(), []model.SourceSpec{{Name: "erp"}})
	must(t, err)
	c, _ := testConfig(s)
	server := httptest.NewServer(New(c))
	t.Cleanup(server.Close)
	n := 0
	for name, body := range map[string][]byte{
		"NUL":                  []byte("a\x00b"),
		"invalid UTF-8":        []byte("\xff\xfe\xc3"),
		"a lone surrogate":     []byte(`{"s":"\ud800"}`),
		"a number above 2^53":  []byte(`{"n":9007199254740993}`),
		"an empty object":      []byte(`{}`),
		"no final line feed":   []byte("a\r\nb"),
		"1 MiB of every byte":  bytes.Repeat([]byte(allBytes()), 1<<12),
		"what looks like HTML": []byte("<html><script>alert(1)</script>"),
	} {
		n++
		id := testID(n)
		t.Run("IN-25 "+name, func(t *testing.T) {
			_, err := s.PutMessages(t.Context(), model.PutPending, []model.NewMessage{{ID: id, Source: sources[0].ID, ContentType: "text/html; charset=utf-8", Body: body}})
			must(t, err)
			for _, method := range []string{"GET", "HEAD"} {
				r, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/v1/inbox/messages/"+id.String()+"/body", nil)
				must(t, err)
				response, err := server.Client().Do(r)
				must(t, err)
				got, err := io.ReadAll(response.Body)
				must(t, err)
				must(t, response.Body.Close())
				if response.StatusCode != 200 || response.ContentLength != int64(len(body)) || method == "GET" && !bytes.Equal(got, body) {
					t.Errorf("%s: %d, %d bytes, %d told, of %d", method, response.StatusCode, len(got), response.ContentLength, len(body))
				}
				if ct := response.Header.Get("Content-Type"); ct != "application/octet-stream" {
					t.Errorf("served as %s", ct)
				}
			}
		})
	}
}

func allBytes() string {
	var b strings.Builder
	for i := range 256 {
		b.WriteByte(byte(i))
	}
	return b.String()
}

func TestHarmlessType(t *testing.T) {
	for in, want := range map[string]string{
		"application/json":                            "application/json",
		"Application/JSON; charset=UTF-8":             "application/json; charset=utf-8",
		"application/cloudevents+json":                "application/cloudevents+json",
		"application/x-www-form-urlencoded":           "application/x-www-form-urlencoded",
		"text/plain; charset=utf-7":                   "text/plain",
		"text/plain; charset=iso-8859-1; format=flow": "text/plain; charset=iso-8859-1",
		"text/html":                     unknownType,
		"application/xhtml+xml":         unknownType,
		"image/svg+xml":                 unknownType,
		"application/xml":               unknownType,
		"text/xml":                      unknownType,
		"text/javascript":               unknownType,
		"text/css":                      unknownType,
		"application/pdf":               unknownType,
		"image/png":                     unknownType,
		"image/svg+json":                unknownType,
		"multipart/form-data; boundary": unknownType,
		"text/plain, text/html":         unknownType,
		"text/plain\r\nX: y":            unknownType,
		"":                              unknownType,
		"\ufffd":                        unknownType,
	} {
		if got := harmlessType(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestTime(t *testing.T) {
	at := model.MicrosOf(time.Date(2026, 11, 30, 12, 0, 0, 120_000, time.FixedZone("", 3600)))
	for in, want := range map[Time]string{
		0:              `null`,
		Time(at):       `"2026-11-30T11:00:00.000120Z"`,
		1:              `"1970-01-01T00:00:00.000001Z"`,
		1<<63 - 1:      `"9999-12-31T23:59:59.999999Z"`,
		Time(lastTime): `"9999-12-31T23:59:59.999999Z"`,
	} {
		got, err := json.Marshal(in)
		must(t, err)
		if string(got) != want {
			t.Errorf("%d: %s, want %s", in, got, want)
		}
		var back Time
		must(t, json.Unmarshal(got, &back))
		if back != min(in, Time(lastTime)) {
			t.Errorf("%s is read as %d", got, back)
		}
	}
	for _, bad := range []string{`"soon"`, `12`, `{}`} {
		if err := json.Unmarshal([]byte(bad), new(Time)); err == nil {
			t.Errorf("%s is taken for a time", bad)
		}
	}
}

// TestEnumerationsAreComplete compares what the document says with the model.
func TestEnumerationsAreComplete(t *testing.T) {
	words := func(of any, field, tag string) []string {
		f, _ := reflect.TypeOf(of).FieldByName(field)
		return slices.Sorted(strings.SplitSeq(f.Tag.Get(tag), ","))
	}
	var reasons, states []string
	classes := map[string]bool{string(model.ClassSuccess): true}
	for _, c := range model.Classes() {
		classes[string(c)] = true
	}
	for _, r := range model.Reasons() {
		// The inbox classes nothing, but a handler may say that no retry can help.
		if !classes[string(r)] || r == model.ReasonPermanent {
			reasons = append(reasons, string(r))
		}
		classes[string(r)] = true
	}
	slices.Sort(reasons)
	for _, s := range []model.State{model.Pending, model.Processing, model.Failed, model.Success} {
		states = append(states, s.String())
	}
	slices.Sort(states)
	var told []string
	for _, c := range codes {
		told = append(told, string(c.code))
	}
	slices.Sort(told)
	for name, c := range map[string]struct{ want, got []string }{
		"reasons":  {reasons, words(Attempt{}, "Reason", "enum")},
		"states":   {states, words(MessageItem{}, "State", "enum")},
		"filters":  {slices.Sorted(maps.Keys(Filters)), words(listInput{}, "State", "enum")},
		"classes":  {slices.Sorted(maps.Keys(classes)), words(DeliveryAttempt{}, "Class", "enum")},
		"codes":    {told, words(Problem{}, "Code", "enum")},
		"outcomes": {[]string{model.OutcomeFailed, model.OutcomeLost, model.OutcomeSuccess}, words(Attempt{}, "Outcome", "enum")},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: -model +document\n%s", name, diff)
		}
	}
}
