package running

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Call is one request that reached the provider whole.
type Call struct {
	Key      string // the delivery's id, as the idempotency key
	N        int    // 1 for the first call with this key
	Instance string // the server that called
	To, Text string
	At       time.Time
	Ended    time.Time // zero while it runs
	Accepted bool
}

// Reply is what the provider does with a call. The zero value accepts it.
type Reply struct {
	Status int    // 0: 200
	Body   string // empty: a document with an id
	Drop   bool   // the connection is cut in place of an answer
	// Accepted says so of one whose connection is cut.
	Accepted bool
}

// Provider is an HTTP API of somebody who sends, that remembers every call.
type Provider struct {
	URL string

	mu       sync.Mutex
	respond  func(ctx context.Context, c Call) Reply
	calls    []Call
	byKey    map[string]int // calls
	accepted map[string]int // and those that were accepted
	running  map[string]int // calls at once
	cutOff   map[string]bool
	problems []string
}

// NewProvider starts a provider that answers as respond says; nil: it accepts all.
func NewProvider(t *testing.T, respond func(ctx context.Context, c Call) Reply) *Provider {
	t.Helper()
	return NewProviderAt(t, "127.0.0.1:0", respond)
}

// NewProviderAt does so at an address.
func NewProviderAt(t *testing.T, address string, respond func(ctx context.Context, c Call) Reply) *Provider {
	t.Helper()
	p := &Provider{byKey: map[string]int{}, accepted: map[string]int{}, running: map[string]int{}, cutOff: map[string]bool{}}
	p.Respond(respond)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}}
	s.Start()
	p.URL = s.URL
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return p
}

// Respond changes what it answers.
func (p *Provider) Respond(respond func(ctx context.Context, c Call) Reply) {
	if respond == nil {
		respond = func(context.Context, Call) Reply { return Reply{} }
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.respond = respond
}

func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller has gone
	}
	var said struct {
		To   string `json:"to"`
		Text string `json:"text"`
	}
	c := Call{Key: r.Header.Get("Idempotency-Key"), Instance: strings.TrimPrefix(r.URL.Path, "/"), At: time.Now()}
	if err := json.Unmarshal(body, &said); err != nil || c.Key == "" || r.Header.Get("Authorization") != "Bearer "+Token || r.URL.Query().Get("token") != Token {
		p.problem(fmt.Sprintf("a call without key or token, or whose body is no document: %v", err))
	}
	c.To, c.Text = said.To, said.Text
	c, respond, end := p.begin(c)
	reply := respond(r.Context(), c)
	if reply.Status == 0 {
		reply.Status = http.StatusOK
	}
	end(reply.Accepted || !reply.Drop && reply.Status < 300)
	if reply.Drop {
		panic(http.ErrAbortHandler)
	}
	if reply.Body == "" {
		reply.Body = fmt.Sprintf(`{"sid":"SM-%s"}`, c.Key)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(reply.Status)
	_, _ = io.WriteString(w, reply.Body)
}

func (p *Provider) begin(c Call) (_ Call, respond func(context.Context, Call) Reply, end func(accepted bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byKey[c.Key]++
	c.N = p.byKey[c.Key]
	i := len(p.calls)
	p.calls = append(p.calls, c)
	counts := !p.cutOff[c.Instance]
	if counts {
		if p.running[c.Key]++; p.running[c.Key] > 1 {
			p.problems = append(p.problems, fmt.Sprintf("delivery %s was being sent twice at once, the second time by %s", c.Key, c.Instance))
		}
	}
	return c, p.respond, func(accepted bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		one := &p.calls[i]
		if one.Ended.IsZero() {
			one.Ended = time.Now()
			if counts {
				p.running[c.Key]--
			}
		}
		if one.Accepted = accepted; accepted {
			p.accepted[c.Key]++
		}
	}
}

// CutOff tells that an instance is frozen: what it sends now is over for
// everybody else.
func (p *Provider) CutOff(instance string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutOff[instance] = true
	for i := range p.calls {
		if c := &p.calls[i]; c.Instance == instance && c.Ended.IsZero() {
			c.Ended = time.Now()
			p.running[c.Key]--
		}
	}
}

// Rejoin tells that it is alive again.
func (p *Provider) Rejoin(instance string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.cutOff, instance)
}

func (p *Provider) problem(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, text)
}

// Calls returns every call so far, in their order.
func (p *Provider) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Call(nil), p.calls...)
}

// Accepted returns how many keys have a call that was accepted.
func (p *Provider) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.accepted)
}

// Of returns the calls with one key.
func (p *Provider) Of(key string) (calls []Call) {
	for _, c := range p.Calls() {
		if c.Key == key {
			calls = append(calls, c)
		}
	}
	return calls
}

// Faults returns what was wrong with the calls.
func (p *Provider) Faults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.problems...)
}
