package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/model"
)

var delivery = channel.Message{
	ID: uuid.MustParse("0198c0de-0000-7000-8000-000000000001"), RequestID: uuid.MustParse("0198c0de-0000-7000-8000-000000000002"),
	BizType: "account.security", Recipient: "u1008", Locale: "zh-CN", Address: "+8613800138000",
	Text: "Your code is \"493817\" & no other", Hidden: []string{"493817"},
}

func newSender(t *testing.T, c Config) *Sender {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func sms(url string) Config {
	return Config{
		URL:     url,
		Headers: map[string]string{"Authorization": "Bearer t0k3n-of-the-gateway", "Idempotency-Key": "{{.delivery.id}}"},
		Body:    `{"to": {{json .address}}, "text": {{json .body}}}`,
	}
}

func TestOneRequestForOneDelivery(t *testing.T) {
	t.Run("NC-10 the delivery's id is the key of every attempt", func(t *testing.T) {
		var keys, bodies []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(body))
			if r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "Bearer t0k3n-of-the-gateway" {
				t.Errorf("headers are %v", r.Header)
			}
			w.WriteHeader(http.StatusCreated)
		}))
		defer server.Close()
		s := newSender(t, sms(server.URL))
		for range 2 {
			if r := s.Send(t.Context(), delivery); r.Class != model.ClassSuccess || r.HTTPStatus != 201 {
				t.Fatalf("got %+v", r)
			}
		}
		if keys[0] != delivery.ID.String() || keys[1] != keys[0] {
			t.Errorf("keys are %v", keys)
		}
		var sent struct{ To, Text string }
		if err := json.Unmarshal([]byte(bodies[0]), &sent); err != nil || sent.To != delivery.Address || sent.Text != delivery.Text {
			t.Errorf("body is %s: %v", bodies[0], err)
		}
	})
	t.Run("values are escaped wherever they stand in the URL", func(t *testing.T) {
		var path, query string
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			path, query = r.URL.EscapedPath(), r.URL.RawQuery
		}))
		defer server.Close()
		m := delivery
		m.Address, m.Text = "a/b?x=1#f", "1 & 2=3 + {{.address}}"
		s := newSender(t, Config{Method: http.MethodGet, URL: server.URL + "/to/{{.address}}?text={{.body}}&id={{.delivery.id}}"})
		if r := s.Send(t.Context(), m); r.Class != model.ClassSuccess {
			t.Fatalf("got %+v", r)
		}
		if path != "/to/a%2Fb%3Fx%3D1%23f" || query != "text=1%20%26%202%3D3%20%2B%20%7B%7B.address%7D%7D&id="+m.ID.String() {
			t.Errorf("path %s, query %s", path, query)
		}
	})
	t.Run("no redirect is followed", func(t *testing.T) {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests++
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}))
		defer server.Close()
		if r := newSender(t, sms(server.URL)).Send(t.Context(), delivery); r.Class != model.ClassPermanent || r.HTTPStatus != 307 || requests != 1 {
			t.Errorf("got %+v after %d requests", r, requests)
		}
	})
	t.Run("NC-14 a line break in a header is refused before anything leaves", func(t *testing.T) {
		m := delivery
		m.Subject = "a\r\nX-Injected: 1"
		c := sms("http://127.0.0.1:1/")
		c.Headers["X-Subject"] = "{{.subject}}"
		if r := newSender(t, c).Send(t.Context(), m); r.Class != model.ClassPermanent || r.Code != "request" {
			t.Errorf("got %+v", r)
		}
	})
}

func TestConfigurationThatCannotWork(t *testing.T) {
	for name, c := range map[string]Config{
		"no host":                      {URL: "https:///x"},
		"another scheme":               {URL: "ftp://example.com"},
		"a host out of a value":        {URL: "https://{{.address}}/x"},
		"a credential in the URL":      {URL: "https://user:pass@example.com/"},
		"a fragment":                   {URL: "https://example.com/#x"},
		"a misspelt value":             {URL: "https://example.com/", Body: `{"to": {{json .addresss}}}`},
		"an unescaped value in JSON":   {URL: "https://example.com/", Body: `{"to": "{{.address}}"}`},
		"one in a condition":           {URL: "https://example.com/", Body: `{"a": 1{{if .subject}}, "s": "{{.subject}}"{{end}}}`},
		"an unescaped value in a form": {URL: "https://example.com/", Headers: map[string]string{"content-type": "application/x-www-form-urlencoded"}, Body: `To={{.address}}`},
		"not a template":               {URL: "https://example.com/", Body: `{{`},
		"a header's name":              {URL: "https://example.com/", Headers: map[string]string{"a b": "c"}},
		"a method":                     {URL: "https://example.com/", Method: "PO ST"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(c); err == nil {
				t.Error("was taken")
			} else if strings.Contains(err.Error(), "pass") || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %q", err)
			}
		})
	}
	if _, err := New(Config{URL: "https://example.com/", Headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
		Body: `To={{urlquery .address}}&Body={{.body | urlquery}}&Id={{.delivery.id}}`}); err != nil {
		t.Error(err)
	}
}

// raw answers each connection as handle does, on a real socket.
func raw(t *testing.T, handle func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handle(c, bufio.NewReader(c))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String()
}

func readRequest(r *bufio.Reader) {
	if req, err := http.ReadRequest(r); err == nil {
		_, _ = io.Copy(io.Discard, req.Body)
	}
}

func TestHowFarTheRequestCameDecides(t *testing.T) {
	for name, c := range map[string]struct {
		handle      func(c net.Conn, r *bufio.Reader)
		class, code string
		usesBody    bool
	}{
		"AC-3 written, then cut":      {func(_ net.Conn, r *bufio.Reader) { readRequest(r) }, "uncertain", "no_answer", false},
		"NC-11 written, then garbage": {func(c net.Conn, r *bufio.Reader) { readRequest(r); _, _ = c.Write([]byte("hello\r\n\r\n")) }, "uncertain", "no_answer", false},
		"NC-11 written, and silence":  {func(_ net.Conn, r *bufio.Reader) { readRequest(r); _, _ = r.ReadByte() }, "uncertain", "timeout", false},
		"NC-11 a 200 whose body breaks": {func(c net.Conn, r *bufio.Reader) {
			readRequest(r)
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"errcode\":"))
		}, "uncertain", "unreadable", true},
		"NC-11 a 200 whose body says none": {func(c net.Conn, r *bufio.Reader) {
			readRequest(r)
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"errcode\":"))
		}, "success", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := sms(raw(t, c.handle))
			cfg.ReadTimeout, cfg.UsesBody = 300*time.Millisecond, c.usesBody
			began := time.Now()
			r := newSender(t, cfg).Send(t.Context(), delivery)
			if string(r.Class) != c.class || r.Code != c.code {
				t.Errorf("got %+v", r)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
	t.Run("AC-2 no connection", func(t *testing.T) {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if r := newSender(t, sms("http://"+l.Addr().String())).Send(t.Context(), delivery); r.Class != model.ClassTransient || r.Code != "connect" {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("AC-2 no connection in time", func(t *testing.T) {
		s := newSender(t, sms("http://192.0.2.1/"))
		s.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if r := s.Send(ctx, delivery); r.Class != model.ClassTransient || r.Code != "connect_timeout" {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("NC-11 a certificate that nobody trusts", func(t *testing.T) {
		server := httptest.NewTLSServer(http.NotFoundHandler())
		defer server.Close()
		server.Config.ErrorLog = nil
		if r := newSender(t, sms(server.URL)).Send(t.Context(), delivery); r.Class != model.ClassTransient || r.Code != "tls" {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("NC-11 a body that the provider does not take to its end", func(t *testing.T) {
		address := raw(t, func(c net.Conn, r *bufio.Reader) {
			_, _ = r.ReadString('\n')
			_ = c.(*net.TCPConn).SetLinger(0)
		})
		m := delivery
		m.Text = strings.Repeat("x", 900<<10)
		s := newSender(t, sms(address))
		s.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil { // what lies in the system's buffer counts as written
				err = c.(*net.TCPConn).SetWriteBuffer(4096)
			}
			return c, err
		}
		if r := s.Send(t.Context(), m); r.Class != model.ClassTransient {
			t.Errorf("got %+v", r)
		}
	})
}

func answering(t *testing.T, status int, headers map[string]string, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestDefaultTable(t *testing.T) {
	for status, class := range map[int]model.Class{
		200: model.ClassSuccess, 202: model.ClassSuccess, 204: model.ClassSuccess, 301: model.ClassPermanent,
		400: model.ClassPermanent, 401: model.ClassAuth, 403: model.ClassPermanent, 404: model.ClassPermanent, 407: model.ClassAuth,
		408: model.ClassTransient, 410: model.ClassPermanent, 413: model.ClassPermanent, 422: model.ClassPermanent, 425: model.ClassTransient,
		429: model.ClassRateLimited, 500: model.ClassTransient, 502: model.ClassTransient, 503: model.ClassTransient, 504: model.ClassTransient, 599: model.ClassTransient,
	} {
		t.Run(fmt.Sprintf("NC-11 %d is %s", status, class), func(t *testing.T) {
			if r := newSender(t, sms(answering(t, status, nil, ""))).Send(t.Context(), delivery); r.Class != class || r.HTTPStatus != status {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestRulesComeFirst(t *testing.T) {
	holds := func(h bool, err error) func(Answer) (bool, error) {
		return func(Answer) (bool, error) { return h, err }
	}
	c := sms(answering(t, 200, nil, `{"ok":false,"error":"invalid_auth"}`))
	c.Classify = []Rule{
		{When: holds(true, errors.New("cannot be evaluated")), Class: model.ClassPermanent},
		{When: holds(false, nil), Class: model.ClassTransient},
		{When: holds(true, nil), Class: model.ClassAuth, UsesBody: true},
		{When: holds(true, nil), Class: model.ClassSuccess},
	}
	if r := newSender(t, c).Send(t.Context(), delivery); r.Class != model.ClassAuth || r.Code != "invalid_auth" {
		t.Errorf("NC-11: got %+v", r)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 10, 21, 7, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		header, date, body string
		want               time.Duration
	}{
		{header: "120", want: 2 * time.Minute},
		{header: " 0 ", want: 0},
		{header: "1.5", want: 2 * time.Second},
		{header: "Wed, 21 Oct 2026 07:28:00 GMT", want: 28 * time.Minute},
		{header: "Wed, 21 Oct 2026 07:28:00 GMT", date: "Wed, 21 Oct 2026 07:27:00 GMT", want: time.Minute},
		{header: "Wed, 21 Oct 2020 07:28:00 GMT", want: 0},
		{header: "abc", want: 0},
		{header: "-5", want: 0},
		{header: "120, 60", want: 0},
		{header: "86400", want: time.Hour},
		{header: "999999999999999999999", want: time.Hour},
		{header: "99999999999", want: time.Hour},
		{body: `{"retry_after": 64.57}`, want: 65 * time.Second},
		{body: `{"parameters": {"retry_after": 30}}`, want: 30 * time.Second},
		{body: `{"retry_after": "soon"}`, want: 0},
		{body: `{"retry_after": 1e30}`, want: 0},
		{body: `[]`, want: 0},
	} {
		h := http.Header{}
		if c.header != "" {
			h.Set("Retry-After", c.header)
		}
		if c.date != "" {
			h.Set("Date", c.date)
		}
		if got := retryAfter(Answer{Header: h, Body: []byte(c.body)}, now); got != c.want {
			t.Errorf("NC-11: %+v: got %v", c, got)
		}
	}
}

// A provider may send back all that it was sent, and be none the wiser.
func TestNothingOfAnAnswerIsRepeated(t *testing.T) {
	for name, body := range map[string]string{
		"as a text":       `{"code": 21211, "message": "+8613800138000 cannot get \"493817\" (Bearer t0k3n-of-the-gateway)"}`,
		"as the code":     `{"code": "493817"}`,
		"as a number":     `{"code": 493817}`,
		"as the error":    `{"error": "8613800138000"}`,
		"in no JSON":      `<html>493817 +8613800138000 t0k3n-of-the-gateway</html>`,
		"in the error id": `{"error": {"code": "to:+8613800138000:493817"}}`,
	} {
		for _, status := range []int{200, 400, 401, 429, 500} {
			c := sms(answering(t, status, map[string]string{"X-Echo": "493817"}, body))
			c.ProviderID = func(a Answer) (string, error) { return codeOf(a.Body), nil }
			r := newSender(t, c).Send(t.Context(), delivery)
			for _, secret := range []string{"493817", "13800138000", "t0k3n"} {
				if strings.Contains(fmt.Sprintf("%+v", r), secret) {
					t.Errorf("AC-7: %s, %d: %q is in %+v", name, status, secret, r)
				}
			}
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(200, "1", `{"code":1}`)
	f.Add(429, "Wed, 21 Oct 2026 07:28:00 GMT", "[")
	f.Fuzz(func(t *testing.T, status int, after, body string) {
		s, err := New(sms("http://127.0.0.1:1/"))
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{"Retry-After": {after}}
		r := s.classify(Answer{Status: status, Header: h, Body: []byte(body)}, delivery, false)
		if len(r.Code) > model.MaxErrorCode || r.RetryAfter < 0 || r.RetryAfter > maxRetryAfter || strings.Contains(fmt.Sprint(r), "493817") {
			t.Errorf("got %+v", r)
		}
	})
}
