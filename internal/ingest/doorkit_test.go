package ingest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/ingest/verify"
	"github.com/posthouse/posthouse/internal/model"
)

// verifierFunc is a verifier that a test makes up.
type verifierFunc func(verify.Request) error

func (f verifierFunc) Verify(r verify.Request) error { return f(r) }

func verifier(t testing.TB, kind string, config verify.Config) verify.Verifier {
	t.Helper()
	v, err := verify.New(kind, config)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// doorKit is a door that listens.
type doorKit struct {
	t        *testing.T
	door     *Door
	writer   *Writer
	registry *prometheus.Registry
	log      *lines
	addr     string
	closed   chan struct{} // one for each connection that the server has closed; its handlers have returned
}

// grace is what a client gives beyond answer_within.
const grace = 500 * time.Millisecond

// openDoor serves the sources over loopback, keeping with keeper. A source
// without a verifier has one that lets all pass; without an id it gets its
// place, from 1.
func openDoor(t *testing.T, keeper Keeper, config DoorConfig, sources ...Source) *doorKit {
	t.Helper()
	k := &doorKit{t: t, registry: prometheus.NewRegistry(), log: &lines{}, closed: make(chan struct{}, 1000)}
	k.writer = startWriter(t, WriterConfig{Keeper: keeper, Registerer: k.registry, Log: k.log.logger()})
	for i := range sources {
		if sources[i].Verifier == nil {
			sources[i].Verifier = verifier(t, "none", verify.Config{})
		}
		if sources[i].ID == 0 {
			sources[i].ID = model.SourceID(i + 1)
		}
	}
	config.Writer, config.Sources, config.Registerer, config.Log = k.writer, sources, k.registry, k.log.logger()
	var err error
	if k.door, err = NewDoor(config); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k.addr = listener.Addr().String()
	server := NewServer(k.door)
	var running sync.WaitGroup
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			running.Add(1)
		case http.StateClosed:
			running.Done()
			k.closed <- struct{}{}
		}
	}
	running.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		_ = server.Close()
		running.Wait()
	})
	return k
}

// answer is what came back.
type answer struct {
	*http.Response
	body string
	took time.Duration
}

// line is a connection, used by hand.
type line struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (k *doorKit) dial() *line {
	k.t.Helper()
	conn, err := net.Dial("tcp", k.addr)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second)) // a test that hangs fails
	return &line{t: k.t, Conn: conn, r: bufio.NewReader(conn)}
}

func (l *line) sendf(format string, args ...any) {
	l.t.Helper()
	if _, err := fmt.Fprintf(l.Conn, format, args...); err != nil {
		l.t.Error(err)
	}
}

// read reads one answer, whole.
func (l *line) read() answer {
	l.t.Helper()
	begin := time.Now()
	response, err := http.ReadResponse(l.r, nil)
	if err != nil {
		l.t.Errorf("no answer: %v", err)
		return answer{Response: &http.Response{}}
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		l.t.Errorf("no whole answer: %v", err)
	}
	return answer{Response: response, body: string(body), took: time.Since(begin)}
}

// ended says whether the server has closed the connection.
func (l *line) ended() bool {
	_, err := l.r.ReadByte()
	return err != nil
}

// push sends one push over a connection of its own.
func (k *doorKit) push(path, body string, headers ...string) answer {
	k.t.Helper()
	l := k.dial()
	defer func() { _ = l.Close() }()
	return l.push(path, body, headers...)
}

func (l *line) push(path, body string, headers ...string) answer {
	l.t.Helper()
	var more strings.Builder
	for _, h := range headers {
		more.WriteString(h + "\r\n")
	}
	l.sendf("POST %s HTTP/1.1\r\nHost: posthouse.test\r\n%sContent-Length: %d\r\n\r\n%s", path, &more, len(body), body)
	return l.read()
}

// wantProblem checks that a is a problem of this status, and says nothing of
// what was sent.
func (a answer) wantProblem(t *testing.T, status int) {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("answered %d %s, want %d", a.StatusCode, a.body, status)
		return
	}
	if got := a.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("the content type is %q", got)
	}
	var problem struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}
	d := json.NewDecoder(strings.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&problem); err != nil || problem.Status != status || problem.Type != "about:blank" || problem.Title == "" || problem.Detail == "" {
		t.Errorf("no problem of status %d: %s %v", status, a.body, err)
	}
	if retry := a.Header.Get("Retry-After"); (retry == "1") != (status == http.StatusServiceUnavailable) {
		t.Errorf("Retry-After is %q with %d", retry, status)
	}
}

func (a answer) want(t *testing.T, status int) {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("answered %d %s, want %d", a.StatusCode, a.body, status)
	}
}

// count returns a counter, or what a histogram has counted.
func (k *doorKit) count(name string, labels ...string) float64 {
	k.t.Helper()
	families, err := k.registry.Gather()
	if err != nil {
		k.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != metricsPrefix+name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !found {
					continue metrics
				}
			}
			switch {
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			default:
				return float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	k.t.Errorf("there is no metric %s %v", name, labels)
	return 0
}

func (k *doorKit) wantCount(want float64, name string, labels ...string) {
	k.t.Helper()
	if got := k.count(name, labels...); got != want {
		k.t.Errorf("%s %v is %v, want %v", name, labels, got, want)
	}
}

func compile(t *testing.T, source string) *expression.Program {
	t.Helper()
	p, err := expression.Compile(source)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// chunked writes body as chunks of n bytes.
func chunked(body string, n int) string {
	var b bytes.Buffer
	for len(body) > 0 {
		part := body[:min(n, len(body))]
		body = body[len(part):]
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(part), part)
	}
	return b.String() + "0\r\n\r\n"
}
