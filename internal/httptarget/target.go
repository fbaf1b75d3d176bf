package httptarget

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

const (
	// drainBytes and drainFor bound how much of an answer's body is read so
	// that its connection can be used again; beyond, the connection is closed.
	drainBytes = 64 << 10
	drainFor   = time.Second
	// maxAnswerHeader bounds an answer's header, in bytes.
	maxAnswerHeader = 64 << 10
	// idleFor is how long a connection is kept without use. It stays below
	// what targets commonly allow (Node.js closes after 5 s): a request that
	// meets the target's own close is a failed attempt.
	idleFor = 4 * time.Second
)

// Config says where a target is and how it may be reached.
type Config struct {
	// URL is http or https, with a host. User and password in it are sent as
	// Basic authorization.
	URL string
	// AllowPrivate allows addresses that are not of the public internet:
	// loopback, private, link-local and so on.
	AllowPrivate bool
	// ConnectTimeout bounds the name's lookup and the connection together, and
	// the TLS handshake once more. Default 5 s.
	ConnectTimeout time.Duration
	// Connections is how many idle connections are kept. Default 64.
	Connections int
	// Version is told in User-Agent, as Posthouse/Version.
	Version string
	// TLS, where set, says whom to trust; nil: the system's authorities.
	TLS *tls.Config
	// Resolver looks names up; nil: the system's.
	Resolver *net.Resolver
}

// Target is one HTTP target. It may be used by many goroutines at once.
type Target struct {
	url       *url.URL
	place     string // scheme://host:port, all of the URL that a text may hold
	basicAuth string // the Authorization header; empty: none
	agent     string
	transport *http.Transport
	now       func() time.Time
}

// New checks c and makes a Target. It connects to nothing. Its errors hold
// nothing of the URL but its scheme.
func New(c Config) (*Target, error) {
	// A parse error quotes what it failed on, which may be a password.
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, errors.New("url is not a valid URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("url must begin with http:// or https://")
	case u.Opaque != "" || u.Hostname() == "":
		return nil, errors.New("url has no host")
	case u.Fragment != "":
		return nil, errors.New("url has a fragment (#…), which is never sent")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("url has a port that is not between 1 and 65535")
		}
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = 5 * time.Second
	}
	if c.Connections <= 0 {
		c.Connections = 64
	}
	if c.Version == "" {
		c.Version = "devel"
	}
	t := &Target{url: u, place: u.Scheme + "://" + u.Host, agent: "Posthouse/" + c.Version, now: time.Now}
	if u.User != nil {
		password, _ := u.User.Password()
		t.basicAuth = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
		u.User = nil
	}
	dialer := &net.Dialer{Timeout: c.ConnectTimeout, Resolver: c.Resolver}
	if !c.AllowPrivate {
		dialer.Control = refusePrivate
	}
	http1 := new(http.Protocols)
	http1.SetHTTP1(true)
	t.transport = &http.Transport{
		Proxy:                  nil, // see the package's comment
		DialContext:            dialer.DialContext,
		TLSClientConfig:        c.TLS,
		TLSHandshakeTimeout:    c.ConnectTimeout,
		Protocols:              http1,
		DisableCompression:     true, // an answer is only glanced at; nothing to unpack, nothing that can explode
		MaxIdleConns:           c.Connections,
		MaxIdleConnsPerHost:    c.Connections,
		IdleConnTimeout:        idleFor,
		MaxResponseHeaderBytes: maxAnswerHeader,
	}
	return t, nil
}

// Close closes idle connections.
func (t *Target) Close() { t.transport.CloseIdleConnections() }

// Delivery is one message on its way to a target.
type Delivery struct {
	Message *model.Message
	Source  string // the name of its source
	Attempt int    // 1 for the first since the last replay
}

// Result is what came of a delivery.
type Result struct {
	// Err is nil where the target answered 2xx. Its text may be kept and shown.
	// errors.Is finds the cause, such as context.Canceled.
	Err    error
	Reason model.Reason // ReasonNone where Err is nil
	// HTTPStatus is what the target answered; 0 where it did not.
	HTTPStatus int
	// RetryAfter is how long the target asks to be left alone, at most an
	// hour; 0 where it did not say.
	RetryAfter time.Duration
	// Permanent says that no retry can help. No answer of an HTTP target means
	// that today: what is refused now may be accepted once somebody has mended
	// the target, so every failure keeps its tries.
	Permanent bool
}

// Handle posts a message and waits for the answer, as long as ctx allows. The
// request is sent at most once.
//
// What the target has answered counts, also where its body then breaks off or
// ctx ends while it is read.
func (t *Target) Handle(ctx context.Context, d Delivery) Result {
	requestCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	response, err := t.transport.RoundTrip(t.request(requestCtx, d))
	if err != nil {
		return t.unanswered(ctx, err)
	}
	// From here on time is bounded apart from ctx: an answer whose body hangs
	// must not hold its place until the message's timeout.
	defer time.AfterFunc(drainFor, cancel).Stop()
	defer func() { _ = response.Body.Close() }()

	status := response.StatusCode
	if status >= 200 && status <= 299 {
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, drainBytes))
		return Result{HTTPStatus: status}
	}
	head, _ := io.ReadAll(io.LimitReader(response.Body, maxExcerpt*4))
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, drainBytes-maxExcerpt*4))
	r := Result{Reason: model.ReasonHTTPStatus, HTTPStatus: status, Err: errors.New(answerText(status, head))}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		r.RetryAfter = retryAfter(response.Header.Get("Retry-After"), t.now())
	}
	return r
}

func (t *Target) request(ctx context.Context, d Delivery) *http.Request {
	header := http.Header{
		"User-Agent":           {t.agent},
		"Posthouse-Message-Id": {d.Message.ID.String()},
		"Posthouse-Attempt":    {strconv.Itoa(d.Attempt)},
		"Posthouse-Source":     {d.Source},
	}
	if ct, ok := contentType(d.Message); ok {
		header["Content-Type"] = []string{ct}
	}
	if t.basicAuth != "" {
		header["Authorization"] = []string{t.basicAuth}
	}
	body := d.Message.Body
	r := &http.Request{
		Method:        http.MethodPost,
		URL:           t.url,
		Host:          t.url.Host,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		ContentLength: int64(len(body)),
		Body:          http.NoBody,
	}
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
		// Asked for only where nothing of the request has been written: the
		// transport does not repeat a POST otherwise.
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return r.WithContext(ctx)
}

// unanswered says what an error of the transport means.
func (t *Target) unanswered(ctx context.Context, err error) Result {
	fail := func(reason model.Reason, text string) Result {
		return Result{Reason: reason, Err: &failure{text: text, cause: err}}
	}
	if ended := ctx.Err(); ended != nil {
		err = ended
		if errors.Is(ended, context.DeadlineExceeded) {
			return fail(model.ReasonTimeout, t.place+" did not answer in time")
		}
		return fail(model.ReasonError, "the request to "+t.place+" was given up")
	}
	if forbidden, ok := errors.AsType[*ForbiddenError](err); ok {
		return fail(model.ReasonForbidden, fmt.Sprintf("%s may not be connected to: %v", t.place, forbidden))
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fail(model.ReasonConnect, fmt.Sprintf("%s cannot be reached: %s", t.place, describe(err)))
	}
	return fail(model.ReasonConnect, fmt.Sprintf("%s did not answer: %s", t.place, describe(err)))
}

// failure is an error whose text is ours and whose cause can still be found.
type failure struct {
	text  string
	cause error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.cause }
