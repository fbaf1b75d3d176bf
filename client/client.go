package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Options say how a Client calls. The zero value works.
type Options struct {
	// HTTPClient makes the calls. Where the server answers a redirect, only what is
	// read (GET) follows it. Default: one of its own, that waits 30 s for an answer.
	HTTPClient *http.Client
	UserAgent  string // default: "posthouse-client"
	// Actor is who the audit log names for what an operator does; at most 64
	// printable characters. Default: the server says "api".
	Actor string
	// Attempts is how often a call that may be tried again is made at most; 1
	// tries nothing again. Default: 4.
	Attempts int
	// MaxWait bounds each wait between two attempts. Where the server asks for
	// more, the call ends with its error instead. Default: 30 s.
	MaxWait time.Duration
}

// Client calls the API of one Posthouse.
type Client struct {
	base *url.URL
	o    Options
}

const (
	defaultAttempts = 4
	defaultTimeout  = 30 * time.Second
	firstWait       = 200 * time.Millisecond
	maxAnswer       = 32 << 20 // bytes
	maxRedirects    = 10
)

// New makes a client of the API at baseURL, the server's admin address:
// "http://127.0.0.1:8081". Nothing is called yet.
func New(baseURL string, o Options) (*Client, error) {
	base, err := url.Parse(strings.TrimRight(baseURL, "/"))
	if err != nil {
		return nil, errors.New("client: the base URL is not well formed; it looks like http://127.0.0.1:8081")
	}
	if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("client: the base URL must be http:// or https:// with a host, and without query; it looks like http://127.0.0.1:8081")
	}
	if o.HTTPClient == nil {
		o.HTTPClient = &http.Client{Timeout: defaultTimeout}
	}
	o.HTTPClient = stayingHere(o.HTTPClient)
	if o.UserAgent == "" {
		o.UserAgent = "posthouse-client"
	}
	if o.Attempts <= 0 {
		o.Attempts = defaultAttempts
	}
	if o.MaxWait <= 0 {
		o.MaxWait = defaultTimeout
	}
	return &Client{base: base, o: o}, nil
}

// stayingHere is c, but that what is written is sent nowhere else: a redirect
// would carry addresses and variables to another server, or turn the request
// into one that only reads.
func stayingHere(c *http.Client) *http.Client {
	own := *c
	own.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if via[0].Method != http.MethodGet {
			return http.ErrUseLastResponse
		}
		if c.CheckRedirect != nil {
			return c.CheckRedirect(next, via)
		}
		if len(via) >= maxRedirects {
			return errTooManyRedirects
		}
		return nil
	}
	return &own
}

var errTooManyRedirects = errors.New("redirected too often")

// call is one request and where its answer goes.
type call struct {
	method, path string
	query        url.Values
	body, answer any
	again        bool // it may be made again whatever the first came to
}

func (c *Client) do(ctx context.Context, r call) error {
	body, err := encode(r.body)
	if err != nil {
		return &Error{Code: Invalid, Detail: "the request cannot be written as JSON", cause: err}
	}
	for attempt := 1; ; attempt++ {
		e := c.once(ctx, r, body)
		if e == nil {
			return nil
		}
		if !r.again || e.Code != Unavailable || attempt >= c.o.Attempts || ctx.Err() != nil {
			return e
		}
		wait := max(backoff(attempt), e.RetryAfter)
		if wait > c.o.MaxWait {
			return e
		}
		if !sleep(ctx, wait) {
			return e
		}
	}
}

func encode(body any) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// once makes one attempt.
func (c *Client) once(ctx context.Context, r call, body []byte) *Error {
	request, err := c.request(ctx, r, body)
	if err != nil {
		return &Error{Code: Invalid, Detail: "the request cannot be made", cause: err}
	}
	response, err := c.o.HTTPClient.Do(request)
	if err != nil {
		return c.broken(r, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return c.broken(r, err)
	}
	if len(text) > maxAnswer {
		return &Error{Code: Internal, Status: response.StatusCode, Detail: "the answer is too long"}
	}
	if response.StatusCode >= 300 && response.StatusCode <= 399 {
		return redirected(response)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		e := errorOf(response.StatusCode, response.Header, text)
		e.Unknown = r.method != http.MethodGet && !r.again && response.StatusCode >= http.StatusInternalServerError
		return e
	}
	if r.answer == nil {
		return nil
	}
	if err := json.Unmarshal(text, r.answer); err != nil {
		return &Error{Code: Internal, Status: response.StatusCode, Detail: "the answer is not the JSON that was expected", cause: err}
	}
	return nil
}

// redirected is the error of a call that the server sent elsewhere. Of where it
// names the scheme and the host alone.
func redirected(response *http.Response) *Error {
	where := "another address"
	if to, err := response.Location(); err == nil && to.Host != "" {
		where = to.Scheme + "://" + to.Host
	}
	return &Error{
		Code: Invalid, Status: response.StatusCode,
		Detail: fmt.Sprintf("the server answered %d and points to %s; nothing was done: give the client the address of the API itself", response.StatusCode, where),
	}
}

func (c *Client) request(ctx context.Context, r call, body []byte) (*http.Request, error) {
	target := c.base.JoinPath("v1").String() + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", c.o.UserAgent)
	request.Header.Set("Accept", "application/json, application/problem+json")
	if r.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.o.Actor != "" {
		request.Header.Set("Posthouse-Actor", c.o.Actor)
	}
	return request, nil
}

// broken is the error of a call that got no answer.
func (c *Client) broken(r call, err error) *Error {
	cause := err
	if u, ok := errors.AsType[*url.Error](err); ok {
		cause = u.Err // without the URL, which names things
	}
	return &Error{
		Code: Unavailable, Detail: fmt.Sprintf("no answer from %s: %v", c.base.Host, cause),
		Unknown: r.method != http.MethodGet && !r.again, cause: cause,
	}
}

// backoff is how long to wait after the nth attempt: 200 ms, doubled each time,
// and up to half of it at random on top.
func backoff(attempt int) time.Duration {
	wait := firstWait << min(attempt-1, 6)
	return wait + rand.N(wait/2)
}

// retryAfter reads how long an answer asks to wait: seconds or a date.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, 24*60*60)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// sleep waits, and says whether it was left to.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
