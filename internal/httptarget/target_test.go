package httptarget

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/posthouse/posthouse/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// discardLog keeps handshakes that fail on purpose out of the output.
var discardLog = log.New(io.Discard, "", 0)

var testID = uuid.MustParse("01936f00-0000-7000-8000-000000000001")

func delivery(body string) Delivery {
	return Delivery{
		Message: &model.Message{NewMessage: model.NewMessage{
			ID:      testID,
			Headers: []byte("Content-Type: application/json; charset=\"\xe9\"\r\nX-Other: not passed on\r\n"),
			Body:    []byte(body),
		}},
		Source:  "erp",
		Attempt: 3,
	}
}

func newTarget(t *testing.T, c Config) *Target {
	t.Helper()
	target, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.Close)
	return target
}

// serve starts an HTTP server on loopback that goes with the test. A handler
// that leaves the body to it has it read: before that a server does not notice
// that its client has gone.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// serveRaw starts a server that handles each connection by hand, after it has
// read one request.
func serveRaw(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				handle(conn)
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String()
}

func TestSendsExactlyWhatCame(t *testing.T) {
	type seen struct {
		Method, URI, Host string
		Header            http.Header
		Length            int64
		Encoding          []string
		BodyIsExact       bool
	}
	var sent string
	got := make(chan seen, 1)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Method, r.RequestURI, r.Host, r.Header, r.ContentLength, r.TransferEncoding, string(body) == sent}
	})
	host := strings.TrimPrefix(s.URL, "http://")
	target := newTarget(t, Config{URL: "http://user:pa%20ss@" + host + "/push/%2Fa?x=1;2", AllowPrivate: true, Version: "v1.2.3"})

	for name, body := range map[string]string{
		"NUL and invalid UTF-8": "\x00\xff{\"n\":9007199254740993}\r\n",
		"an empty object":       "{}",
		"nothing":               "",
		"1 MiB":                 strings.Repeat("0123456789abcdef", 1<<16),
	} {
		t.Run("IN-25 "+name, func(t *testing.T) {
			sent = body
			r := target.Handle(t.Context(), delivery(body))
			if diff := cmp.Diff(Result{HTTPStatus: 200}, r); diff != "" {
				t.Errorf("result: -want +got\n%s", diff)
			}
			want := seen{
				Method: "POST", URI: "/push/%2Fa?x=1;2", Host: host, Length: int64(len(body)), BodyIsExact: true,
				Header: http.Header{
					"Content-Type":         {"application/json; charset=\"\xe9\""},
					"Posthouse-Message-Id": {testID.String()},
					"Posthouse-Attempt":    {"3"},
					"Posthouse-Source":     {"erp"},
					"User-Agent":           {"Posthouse/v1.2.3"},
					"Authorization":        {"Basic dXNlcjpwYSBzcw=="},
					"Content-Length":       {fmt.Sprint(len(body))},
				},
			}
			if diff := cmp.Diff(want, <-got); diff != "" {
				t.Errorf("request: -want +got\n%s", diff)
			}
		})
	}
	t.Run("no content type where none came", func(t *testing.T) {
		d := delivery("{}")
		d.Message.Headers = nil
		target.Handle(t.Context(), d)
		if ct, ok := (<-got).Header["Content-Type"]; ok {
			t.Errorf("sent %q", ct)
		}
	})
}

func TestStatusToResult(t *testing.T) {
	for _, c := range []struct {
		status  int
		header  map[string]string
		body    string
		want    Result
		wantErr string
	}{
		{200, nil, "ok", Result{}, ""},
		{201, nil, "", Result{}, ""},
		{204, nil, "", Result{}, ""},
		{299, nil, "", Result{}, ""},
		{301, map[string]string{"Location": "http://other.example/secret"}, "", Result{}, "target answered 301 (redirects are not followed)"},
		{304, nil, "", Result{}, "target answered 304 (redirects are not followed)"},
		{307, map[string]string{"Location": "/again"}, "moved", Result{}, "target answered 307 (redirects are not followed): moved"},
		{400, nil, "no\x00pe\n\xff", Result{}, "target answered 400: no\ufffdpe \ufffd"},
		{404, map[string]string{"Retry-After": "5"}, "", Result{}, "target answered 404"},
		{410, nil, "", Result{}, "target answered 410"},
		{429, map[string]string{"Retry-After": "5"}, "", Result{RetryAfter: 5 * time.Second}, "target answered 429"},
		{500, nil, "<html>\n<h1>oops</h1>", Result{}, "target answered 500: <html> <h1>oops</h1>"},
		{503, nil, "busy", Result{}, "target answered 503: busy"},
		{503, map[string]string{"Retry-After": "Mon, 30 Nov 2026 12:01:00 GMT"}, "", Result{RetryAfter: time.Minute}, "target answered 503"},
		{503, map[string]string{"Retry-After": "in a while"}, "", Result{}, "target answered 503"},
		{503, map[string]string{"Retry-After": "9999999"}, "", Result{RetryAfter: time.Hour}, "target answered 503"},
		{599, nil, "", Result{}, "target answered 599"},
	} {
		t.Run(fmt.Sprintf("%d %v", c.status, c.header), func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				for k, v := range c.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			target := newTarget(t, Config{URL: s.URL, AllowPrivate: true})
			target.now = func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }
			got := target.Handle(t.Context(), delivery("{}"))
			c.want.HTTPStatus = c.status
			if c.wantErr != "" {
				c.want.Reason = model.ReasonHTTPStatus
			}
			checkResult(t, got, c.want, c.wantErr)
		})
	}
}

func checkResult(t *testing.T, got, want Result, wantErr string) {
	t.Helper()
	text := ""
	if got.Err != nil {
		text = got.Err.Error()
	}
	if text != wantErr {
		t.Errorf("error %q, want %q", text, wantErr)
	}
	got.Err = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestFollowsNoRedirect(t *testing.T) {
	var reached atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/in?token=hunter2", status)
		})
		r := newTarget(t, Config{URL: s.URL, AllowPrivate: true}).Handle(t.Context(), delivery("{}"))
		if r.Reason != model.ReasonHTTPStatus || r.HTTPStatus != status || !strings.Contains(r.Err.Error(), "redirects are not followed") || strings.Contains(r.Err.Error(), "hunter2") {
			t.Errorf("%d: %+v", status, r)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the other host was reached %d times", n)
	}
}

// TestTargetsThatMisbehave runs against servers that break the rules. No text
// may hold the URL's secrets.
func TestTargetsThatMisbehave(t *testing.T) {
	const secrets = "/secret-path?secret=query"
	handle := func(t *testing.T, ctx context.Context, base string) (Result, string) {
		t.Helper()
		scheme, host, _ := strings.Cut(base, "://")
		target := newTarget(t, Config{URL: scheme + "://secret-user:secret-pass@" + host + secrets, AllowPrivate: true})
		r := target.Handle(ctx, delivery("{}"))
		text := ""
		if r.Err != nil {
			text = r.Err.Error()
		}
		if strings.Contains(text, "secret") || strings.Contains(text, "charset") {
			t.Errorf("the text tells a secret: %q", text)
		}
		return r, strings.ReplaceAll(text, base, "TARGET")
	}
	expect := func(t *testing.T, r Result, text string, reason model.Reason, want string) {
		t.Helper()
		if r.Reason != reason || text != want || r.HTTPStatus != 0 || r.Permanent || r.RetryAfter != 0 {
			t.Errorf("got %q (%s) %+v, want %q (%s)", text, r.Reason, r, want, reason)
		}
	}

	t.Run("IN-15 hangs before it answers", func(t *testing.T) {
		release := make(chan struct{})
		s := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
		defer close(release)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		r, text := handle(t, ctx, s.URL)
		expect(t, r, text, model.ReasonTimeout, "TARGET did not answer in time")
		if !errors.Is(r.Err, context.DeadlineExceeded) {
			t.Error("the cause is lost")
		}
	})
	t.Run("is given up because the process stops", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := serve(t, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
		r, text := handle(t, ctx, s.URL)
		expect(t, r, text, model.ReasonError, "the request to TARGET was given up")
		if !errors.Is(r.Err, context.Canceled) {
			t.Error("the cause is lost")
		}
	})
	t.Run("answers 200 and then hangs in the body", func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		start := time.Now()
		r, _ := handle(t, t.Context(), s.URL)
		if took := time.Since(start); r.Err != nil || r.HTTPStatus != 200 || took > 5*drainFor {
			t.Errorf("%+v after %v", r, took)
		}
	})
	t.Run("answers 500 and then hangs in the body", func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, "half a rea")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		r, text := handle(t, t.Context(), s.URL)
		if text != "target answered 500: half a rea" || r.Reason != model.ReasonHTTPStatus {
			t.Errorf("%q %+v", text, r)
		}
	})
	t.Run("drops the connection in the middle of its header", func(t *testing.T) {
		base := serveRaw(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le") })
		r, text := handle(t, t.Context(), base)
		expect(t, r, text, model.ReasonConnect, "TARGET did not answer: the connection broke, or what came was not HTTP")
	})
	t.Run("drops the connection in the middle of a 200's body", func(t *testing.T) {
		base := serveRaw(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf") })
		if r, text := handle(t, t.Context(), base); r.Err != nil || r.HTTPStatus != 200 {
			t.Errorf("%q %+v", text, r)
		}
	})
	t.Run("drops the connection in the middle of a 502's body", func(t *testing.T) {
		base := serveRaw(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 502 X\r\nContent-Length: 100\r\n\r\nhalf") })
		if r, text := handle(t, t.Context(), base); text != "target answered 502: half" || r.HTTPStatus != 502 {
			t.Errorf("%q %+v", text, r)
		}
	})
	t.Run("closes at once, and is asked only once", func(t *testing.T) {
		var asked atomic.Int32
		base := serveRaw(t, func(net.Conn) { asked.Add(1) })
		r, text := handle(t, t.Context(), base)
		expect(t, r, text, model.ReasonConnect, "TARGET did not answer: it closed the connection")
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
	t.Run("closes a connection that was used before, and is asked only once", func(t *testing.T) {
		var asked atomic.Int32
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) > 1 {
				panic(http.ErrAbortHandler)
			}
		})
		target := newTarget(t, Config{URL: s.URL, AllowPrivate: true})
		if r := target.Handle(t.Context(), delivery("{}")); r.Err != nil {
			t.Fatal(r.Err)
		}
		if r := target.Handle(t.Context(), delivery("{}")); r.Reason != model.ReasonConnect || asked.Load() != 2 {
			t.Errorf("asked %d times: %+v", asked.Load(), r)
		}
	})
	t.Run("does not speak HTTP", func(t *testing.T) {
		base := serveRaw(t, func(c net.Conn) { _, _ = io.WriteString(c, "220 secret-mail ready\r\n") })
		r, text := handle(t, t.Context(), base)
		expect(t, r, text, model.ReasonConnect, "TARGET did not answer: the connection broke, or what came was not HTTP")
	})
	t.Run("sends a broken header", func(t *testing.T) {
		base := serveRaw(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX secret-value\r\n\r\n") })
		r, text := handle(t, t.Context(), base)
		expect(t, r, text, model.ReasonConnect, "TARGET did not answer: the connection broke, or what came was not HTTP")
	})
	t.Run("sends a header without end", func(t *testing.T) {
		base := serveRaw(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for range 100 {
				if _, err := io.WriteString(c, "X: "+strings.Repeat("y", 1<<20)+"\r\n"); err != nil {
					return
				}
			}
		})
		r, text := handle(t, t.Context(), base)
		expect(t, r, text, model.ReasonConnect, "TARGET did not answer: the connection broke, or what came was not HTTP")
	})
	t.Run("sends 1 MB with NULs", func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			_, _ = w.Write(bytes.Repeat([]byte("\x00a"), 500_000))
		})
		r, text := handle(t, t.Context(), s.URL)
		want := "target answered 500: " + strings.Repeat("\ufffda", maxExcerpt/2) + "…"
		if text != want || r.HTTPStatus != 500 || model.CleanError(text) != text {
			t.Errorf("%q %+v", text, r)
		}
	})
	t.Run("refuses the connection", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		r, text := handle(t, t.Context(), "http://"+l.Addr().String())
		expect(t, r, text, model.ReasonConnect, "TARGET cannot be reached: connection refused")
	})
	t.Run("has no address", func(t *testing.T) {
		target := newTarget(t, Config{URL: "http://nowhere.example/secret", Resolver: dnsThatAnswers(t)})
		r := target.Handle(t.Context(), delivery("{}"))
		expect(t, r, r.Err.Error(), model.ReasonConnect, "http://nowhere.example cannot be reached: no such host")
	})
	t.Run("has a certificate that nobody vouches for", func(t *testing.T) {
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.Config.ErrorLog = discardLog
		s.StartTLS()
		t.Cleanup(s.Close)
		r, text := handle(t, t.Context(), s.URL)
		expect(t, r, text, model.ReasonConnect, "TARGET did not answer: x509: certificate signed by unknown authority")
		if _, ok := errors.AsType[x509.UnknownAuthorityError](r.Err); !ok {
			t.Error("the cause is lost")
		}
	})
	t.Run("is trusted when told to", func(t *testing.T) {
		s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		t.Cleanup(s.Close)
		target := newTarget(t, Config{URL: s.URL, AllowPrivate: true, TLS: s.Client().Transport.(*http.Transport).TLSClientConfig})
		if r := target.Handle(t.Context(), delivery("{}")); r.Err != nil {
			t.Error(r.Err)
		}
	})
	t.Run("speaks HTTP where HTTPS is expected", func(t *testing.T) {
		s := serve(t, func(http.ResponseWriter, *http.Request) {})
		s.Config.ErrorLog = discardLog
		base := "https" + strings.TrimPrefix(s.URL, "http")
		r, text := handle(t, t.Context(), base)
		expect(t, r, text, model.ReasonConnect, "TARGET did not answer: the connection broke, or what came was not HTTP")
	})
}

func TestForbiddenAddresses(t *testing.T) {
	var reached atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			reached.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.URL, "http://"))

	refuse := func(host string, c Config) {
		t.Run("refuses "+host, func(t *testing.T) {
			c.URL = "http://" + host + ":" + port + "/push"
			r := newTarget(t, c).Handle(t.Context(), delivery("{}"))
			if r.Reason != model.ReasonForbidden || r.Permanent || !strings.Contains(fmt.Sprint(r.Err), "allow_private") {
				t.Errorf("%+v", r)
			}
			if _, ok := errors.AsType[*ForbiddenError](r.Err); !ok {
				t.Error("the cause is lost")
			}
		})
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "10.1.2.3", "169.254.169.254", "[fe80::1]", "[64:ff9b::7f00:1]", "100.64.1.1"} {
		refuse(host, Config{})
	}
	// A name under somebody else's control, whatever it resolves to.
	refuse("rebound.example", Config{Resolver: dnsThatAnswers(t, [4]byte{127, 0, 0, 1})})
	refuse("metadata.example", Config{Resolver: dnsThatAnswers(t, [4]byte{169, 254, 169, 254})})
	refuse("several.example", Config{Resolver: dnsThatAnswers(t, [4]byte{10, 0, 0, 1}, [4]byte{127, 0, 0, 1})})

	t.Run("a proxy from the environment changes nothing", func(t *testing.T) {
		t.Setenv("HTTP_PROXY", s.URL)
		t.Setenv("http_proxy", s.URL)
		target := newTarget(t, Config{URL: "http://10.1.2.3/push"})
		if r := target.Handle(t.Context(), delivery("{}")); r.Reason != model.ReasonForbidden {
			t.Errorf("%+v", r)
		}
	})
	if n := reached.Load(); n != 0 {
		t.Fatalf("the server was reached %d times", n)
	}
	t.Run("allowed when told so, by name too", func(t *testing.T) {
		target := newTarget(t, Config{URL: "http://inside.example:" + port, AllowPrivate: true, Resolver: dnsThatAnswers(t, [4]byte{127, 0, 0, 1})})
		if r := target.Handle(t.Context(), delivery("{}")); r.Err != nil {
			t.Error(r.Err)
		}
	})
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	var connections atomic.Int32
	status := http.StatusOK
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write(make([]byte, drainBytes/2))
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	target := newTarget(t, Config{URL: s.URL, AllowPrivate: true})
	for _, status = range []int{200, 500, 200, 302, 503} {
		if r := target.Handle(t.Context(), delivery("{}")); r.HTTPStatus != status {
			t.Fatalf("%+v", r)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("made %d connections for 5 messages", n)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"", "url must begin with http:// or https://"},
		{"example.com/push", "url must begin with http:// or https://"},
		{"ftp://secret@example.com", "url must begin with http:// or https://"},
		{"http://", "url has no host"},
		{"http:secret", "url has no host"},
		{"http:///secret", "url has no host"},
		{"http://:80/secret", "url has no host"},
		{"http://u:sec/ret@example.com", "url is not a valid URL"},
		{"http://example.com/%zz-secret", "url is not a valid URL"},
		{"http://example.com:0/secret", "url has a port that is not between 1 and 65535"},
		{"http://example.com:70000/secret", "url has a port that is not between 1 and 65535"},
		{"http://example.com/#secret", "url has a fragment (#…), which is never sent"},
	} {
		t.Run(c.url, func(t *testing.T) {
			if _, err := New(Config{URL: c.url}); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// dnsThatAnswers is a resolver that knows these addresses for every name, and
// no name where there are none.
func dnsThatAnswers(t *testing.T, addrs ...[4]byte) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer func() { _ = server.Close() }()
			for {
				// Over a stream each message is preceded by its length.
				var length [2]byte
				if _, err := io.ReadFull(server, length[:]); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(length[:]))
				if _, err := io.ReadFull(server, query); err != nil {
					return
				}
				answer := dnsAnswer(query, addrs)
				if _, err := server.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
					return
				}
			}
		}()
		return client, nil
	}}
}

func dnsAnswer(query []byte, addrs [][4]byte) []byte {
	end := 12 // of the question: a name, then type and class
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	kind := binary.BigEndian.Uint16(query[end+1:])
	end += 5
	flags, count := uint16(0x8180), uint16(0)
	if len(addrs) == 0 {
		flags |= 3 // no such name
	}
	const typeA = 1
	if kind == typeA {
		count = uint16(len(addrs))
	}
	answer := append([]byte{}, query[:2]...)
	for _, n := range []uint16{flags, 1, count, 0, 0} {
		answer = binary.BigEndian.AppendUint16(answer, n)
	}
	answer = append(answer, query[12:end]...)
	for i := range count {
		answer = append(answer, 0xc0, 12, 0, typeA, 0, 1, 0, 0, 0, 60, 0, 4)
		answer = append(answer, addrs[i][:]...)
	}
	return answer
}
