// Package gateway sends through a provider that takes HTTP requests: an SMS or
// chat gateway, or anything else that a configuration can describe.
//
// One delivery is one request, whether it has a body or not. It is rendered whole
// before its first byte leaves, follows no redirect, and is never repeated here: what its answer means is told
// by the configured rules, and by a default table where none applies.
//
//	no connection, TLS, not all of the request written   transient
//	written, and no readable answer                      uncertain
//	2xx                                                  success
//	401, 407                                             auth
//	408, 425, 5xx                                        transient
//	429                                                  rate_limited
//	everything else                                      permanent
//
// Nothing that a provider writes in words is kept, since it may repeat what it
// was sent: only its status and a short code.
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/model"
)

const (
	// maxAnswer bounds how much of an answer is read. Rules do not see more.
	maxAnswer = 256 << 10
	// maxAnswerHeader bounds an answer's header, in bytes.
	maxAnswerHeader = 64 << 10
	// idleFor is how long a connection is kept without use: below what servers
	// commonly allow, so that a request seldom meets the server's own close.
	idleFor = 4 * time.Second
	// maxRetryAfter bounds what a provider may ask for.
	maxRetryAfter = time.Hour
)

// Config describes a provider.
type Config struct {
	Method  string            // default POST
	URL     string            // template; http or https, with a fixed host
	Headers map[string]string // templates
	Body    string            // template; blank: no body
	// Classify is asked in this order; the first rule that holds decides. Where
	// none does, the default table.
	Classify []Rule
	// ProviderID reads the provider's id of a message off the answer; nil: none.
	ProviderID func(Answer) (string, error)
	// UsesBody: ProviderID looks at the body.
	UsesBody bool

	ConnectTimeout time.Duration // default 3 s, for the connection and once more for TLS
	ReadTimeout    time.Duration // from the connection to the end of the answer, writing included; default 5 s
	Connections    int           // idle ones that are kept; default 8
	Version        string        // told in User-Agent, as Posthouse/Version
	TLS            *tls.Config   // nil: the system's authorities
}

// Rule classes the answers for which When holds. An error of When says that it
// cannot be evaluated on this answer: the rule does not hold.
type Rule struct {
	When     func(Answer) (bool, error)
	UsesBody bool // When looks at the body
	Class    model.Class
}

// Answer is what rules see.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // at most maxAnswer bytes
}

// Sender is one provider's account.
type Sender struct {
	cfg       Config
	request   request
	transport *http.Transport
	now       func() time.Time
	readsBody bool // a rule, or ProviderID, looks at the body
	secrets   []string
}

var _ channel.Sender = (*Sender)(nil)

// New checks c. It connects to nothing. Its errors name the setting, and repeat
// no value.
func New(c Config) (*Sender, error) {
	orDefault(&c.Method, http.MethodPost)
	orDefault(&c.ConnectTimeout, 3*time.Second)
	orDefault(&c.ReadTimeout, 5*time.Second)
	orDefault(&c.Connections, 8)
	orDefault(&c.Version, "devel")
	r, faults := compile(c)
	if len(faults) > 0 {
		texts := make([]string, len(faults))
		for i, f := range faults {
			texts[i] = f.Key + ": " + f.Problem
		}
		return nil, errors.New(strings.Join(texts, "; "))
	}
	s := &Sender{cfg: c, request: r, now: time.Now, readsBody: c.UsesBody, secrets: credentials(c)}
	for _, rule := range c.Classify {
		s.readsBody = s.readsBody || rule.UsesBody
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	s.transport = &http.Transport{
		DialContext:            (&net.Dialer{Timeout: c.ConnectTimeout}).DialContext,
		TLSHandshakeTimeout:    c.ConnectTimeout,
		TLSClientConfig:        c.TLS,
		Protocols:              protocols,
		DisableCompression:     true, // nothing to unpack, nothing that can explode
		MaxIdleConns:           c.Connections,
		MaxIdleConnsPerHost:    c.Connections,
		IdleConnTimeout:        idleFor,
		MaxResponseHeaderBytes: maxAnswerHeader,
	}
	return s, nil
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Close closes idle connections.
func (s *Sender) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// Send makes one request.
func (s *Sender) Send(ctx context.Context, m channel.Message) channel.Result {
	whole := 2*s.cfg.ConnectTimeout + s.cfg.ReadTimeout
	ctx, cancel := context.WithTimeout(ctx, whole)
	defer cancel()
	t := &progress{}
	req, err := s.request.build(httptrace.WithClientTrace(ctx, t.trace()), m, s.now())
	if err != nil {
		return channel.Result{Class: model.ClassPermanent, Code: "request", Text: err.Error()}
	}
	req.Header.Set("User-Agent", "Posthouse/"+s.cfg.Version)
	// The time of the answer counts from the connection, not from the wait for it.
	answer := time.AfterFunc(whole, cancel)
	defer answer.Stop()
	t.connected = func() { answer.Reset(s.cfg.ReadTimeout) }
	response, err := s.transport.RoundTrip(req)
	if err != nil {
		return t.unanswered(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, readErr := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	a := Answer{Status: response.StatusCode, Header: response.Header, Body: body}
	return s.classify(a, m, readErr != nil || len(body) > maxAnswer)
}

// progress is how far one request came.
type progress struct {
	dialed    atomic.Bool // there was a connection
	written   atomic.Bool // all of the request was written
	connected func()
}

func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			p.dialed.Store(true)
			p.connected()
		},
		WroteRequest: func(i httptrace.WroteRequestInfo) { p.written.Store(i.Err == nil) },
	}
}

// unanswered says what an error of the transport means. Its text may hold the
// URL, and is not kept.
func (p *progress) unanswered(err error) channel.Result {
	timedOut := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
		timedOut = true
	}
	switch {
	case p.written.Load():
		r := channel.Result{Class: model.ClassUncertain, Code: "no_answer", Text: "the request was written, and no readable answer came"}
		if timedOut {
			r.Code, r.Text = "timeout", "the request was written, and no answer came in time"
		}
		return r
	case p.dialed.Load():
		return channel.Result{Class: model.ClassTransient, Code: "write", Text: "the connection broke before all of the request was written"}
	case timedOut:
		return channel.Result{Class: model.ClassTransient, Code: "connect_timeout", Text: "the provider could not be reached in time"}
	}
	if isTLS(err) {
		return channel.Result{Class: model.ClassTransient, Code: "tls", Text: "no trusted TLS connection to the provider could be made"}
	}
	return channel.Result{Class: model.ClassTransient, Code: "connect", Text: "the provider could not be reached"}
}

func isTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	_, ok := errors.AsType[tls.AlertError](err)
	return ok
}
