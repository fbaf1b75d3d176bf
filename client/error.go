package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Code classes an error for whoever must act on it.
type Code string

// The values of Code.
const (
	// Invalid: the request is wrong, now and later; Fields says where.
	Invalid Code = "invalid"
	// NotFound: there is no such thing, or what was asked for is not configured.
	NotFound Code = "not_found"
	// Conflict: the idempotency key is taken by other content, and Fields names
	// what differs; or the state of a delivery does not allow what was asked for.
	Conflict Code = "conflict"
	// Busy: another process holds what only one may hold.
	Busy Code = "busy"
	// Rejected: the store refuses this very data, now and later.
	Rejected Code = "rejected"
	// Unavailable: the server cannot be reached, or cannot reach its store. The
	// same call may succeed later.
	Unavailable Code = "unavailable"
	// Internal: something went wrong in the server; its log tells more.
	Internal Code = "internal"
	// Unsafe: the settings of the server's store would lose what was acknowledged.
	Unsafe Code = "unsafe"
	// Schema: the tables of the server's store are not those that it needs.
	Schema Code = "schema"
)

// codes is the table between codes and HTTP's statuses, the same as the
// server's. A status stands for the first code that has it.
var codes = []struct {
	code   Code
	status int
}{
	{Invalid, http.StatusUnprocessableEntity},
	{NotFound, http.StatusNotFound},
	{Conflict, http.StatusConflict},
	{Busy, http.StatusConflict},
	{Rejected, http.StatusUnprocessableEntity},
	{Unavailable, http.StatusServiceUnavailable},
	{Internal, http.StatusInternalServerError},
	{Unsafe, http.StatusInternalServerError},
	{Schema, http.StatusInternalServerError},
}

// StatusOf returns the HTTP status that tells of a code.
func StatusOf(code Code) int {
	for _, c := range codes {
		if c.code == code {
			return c.status
		}
	}
	return http.StatusInternalServerError
}

// CodeOf returns the code that an answer's status and the code in its body stand
// for; "" for a status below 400. The body's counts where it fits the status.
func CodeOf(status int, told Code) Code {
	if status < http.StatusBadRequest {
		return ""
	}
	for _, c := range codes {
		if c.code == told && c.status == status {
			return told
		}
	}
	for _, c := range codes {
		if c.status == status {
			return c.code
		}
	}
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		return Unavailable
	case status < http.StatusInternalServerError:
		return Invalid
	}
	return Internal
}

// Error is why a call did not do what it was asked for.
type Error struct {
	Code   Code
	Status int    // HTTP's; 0 where there was no answer
	Detail string // for people
	Fields []FieldError
	// RetryAfter is how long the server asks to wait; 0 where it does not.
	RetryAfter time.Duration
	// Unknown: the request may have been carried out, and its answer is lost.
	Unknown bool

	cause error
}

// FieldError is one fault of a request. It never holds the value.
type FieldError struct {
	Field   string // such as "recipient.email" or "variables.title"; "query.limit" in a query; "" of the request as a whole
	Problem string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(strings.TrimSuffix(e.Detail, "."), "; errors says where"))
	for i, f := range e.Fields {
		separator := "; "
		if i == 0 {
			separator = ": "
		}
		b.WriteString(separator)
		if f.Field != "" {
			b.WriteString(f.Field + ": ")
		}
		b.WriteString(f.Problem)
	}
	if e.Unknown {
		b.WriteString(" (whether it was done is not known; look before you ask again)")
	}
	return b.String()
}

// Unwrap returns what broke the connection; nil where the server answered.
func (e *Error) Unwrap() error { return e.cause }

// problem is a problem document (RFC 9457) as the server writes it.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
	Errors []struct {
		Location string `json:"location"`
		Message  string `json:"message"`
	} `json:"errors"`
}

// errorOf reads the answer to a request that was refused.
func errorOf(status int, header http.Header, body []byte) *Error {
	var p problem
	if strings.HasSuffix(strings.TrimSpace(mediaType(header)), "json") {
		_ = json.Unmarshal(body, &p) // what is no document leaves the status alone to tell
	}
	e := p.error(status)
	e.RetryAfter = retryAfter(header, time.Now())
	return e
}

func (p problem) error(status int) *Error {
	e := &Error{Code: CodeOf(status, p.Code), Status: status, Detail: p.Detail}
	if e.Detail == "" {
		e.Detail = fmt.Sprintf("the server answered %d %s", status, http.StatusText(status))
	}
	for _, f := range p.Errors {
		e.Fields = append(e.Fields, FieldError{strings.TrimPrefix(f.Location, "body."), f.Message})
	}
	return e
}

func mediaType(header http.Header) string {
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	return media
}
