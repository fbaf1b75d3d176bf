package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthouse/posthouse/internal/model"
)

// Problem is how the API says no: a problem document (RFC 9457) with our code.
type Problem struct {
	Title  string `json:"title" doc:"The status in words."`
	Status int    `json:"status" minimum:"400" maximum:"599"`
	// Code classes the problem for programs.
	Code   model.Code     `json:"code" enum:"unavailable,rejected,not_found,invalid,conflict,unsafe,schema,busy,internal"`
	Detail string         `json:"detail,omitempty" doc:"What is wrong with this very request, for people."`
	Errors []ProblemError `json:"errors,omitempty" nullable:"false" doc:"Each fault by itself, where there may be several."`

	retryAfter time.Duration // of a 503; 0: retryAfter
}

// CodeConflict: what is there does not allow it: an idempotency key with other
// content, a delivery in another status.
const CodeConflict model.Code = "conflict"

// retryAfter is when to ask again where nothing better is known.
const retryAfter = 2 * time.Second

// ProblemError is one fault of a request. It never holds the value.
type ProblemError struct {
	Location string `json:"location,omitempty" doc:"Where the fault is, such as query.limit or path.id."`
	Message  string `json:"message" doc:"What was expected."`
}

var (
	_ huma.StatusError       = (*Problem)(nil)
	_ huma.HeadersError      = (*Problem)(nil)
	_ huma.ContentTypeFilter = (*Problem)(nil)
)

func (p *Problem) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header {
	if p.Status != http.StatusServiceUnavailable {
		return nil
	}
	wait := retryAfter
	if p.retryAfter > 0 {
		wait = p.retryAfter
	}
	seconds := (wait + time.Second - 1) / time.Second
	return http.Header{"Retry-After": {strconv.FormatInt(int64(seconds), 10)}}
}

// ContentType implements huma.ContentTypeFilter.
func (*Problem) ContentType(string) string { return "application/problem+json" }

// codes is the one table between our codes and HTTP's statuses. A status
// stands for the first code that has it, so a problem that says nothing but its
// status is still understood.
var codes = []struct {
	code   model.Code
	status int
	detail string // what may be told of such an error
}{
	{model.CodeInvalid, http.StatusUnprocessableEntity, "The request is wrong."},
	{model.CodeNotFound, http.StatusNotFound, "There is no such thing."},
	{CodeConflict, http.StatusConflict, "What is there does not allow it."},
	{model.CodeBusy, http.StatusConflict, "Another process holds what only one may hold."},
	{model.CodeRejected, http.StatusUnprocessableEntity, "The store refuses this data."},
	{model.CodeUnavailable, http.StatusServiceUnavailable, "The store cannot be reached, or is too slow, at the moment."},
	{model.CodeInternal, http.StatusInternalServerError, "Something went wrong inside; the log tells more."},
	{model.CodeUnsafe, http.StatusInternalServerError, "The store's settings would lose what was acknowledged."},
	{model.CodeSchema, http.StatusInternalServerError, "The store's schema is not the one that this version needs."},
}

// StatusOf returns the HTTP status that tells of code.
func StatusOf(code model.Code) int {
	for _, c := range codes {
		if c.code == code {
			return c.status
		}
	}
	return http.StatusInternalServerError
}

// CodeOf returns the code that an answer's status and the code in its problem
// document stand for; "" for a status below 400. A document's code counts
// where it is one of ours and fits the status.
func CodeOf(status int, told model.Code) model.Code {
	if status < 400 {
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
		return model.CodeUnavailable
	case status < 500:
		return model.CodeInvalid
	}
	return model.CodeInternal
}

func newProblem(status int, detail string, faults ...ProblemError) *Problem {
	p := &Problem{Title: http.StatusText(status), Status: status, Code: CodeOf(status, ""), Detail: detail}
	p.add(faults)
	return p
}

// An answer must not be many times as long as what it answers.
const (
	// maxFaults is how many faults of a request are told.
	maxFaults = 50
	// Bounds of one, in bytes: names in it may be of the request.
	maxLocation = 256
	maxMessage  = 512
)

// moreFaults comes after maxFaults.
var moreFaults = ProblemError{Message: "there are more faults than are told here"}

// add adds faults, until there are maxFaults.
func (p *Problem) add(faults []ProblemError) {
	for _, f := range faults {
		switch told := len(p.Errors); {
		case told < maxFaults:
			p.Errors = append(p.Errors, ProblemError{cut(f.Location, maxLocation), cut(f.Message, maxMessage)})
		case told == maxFaults:
			p.Errors = append(p.Errors, moreFaults)
		default:
			return
		}
	}
}

// cut shortens a text to size bytes and a mark that it was.
func cut(text string, size int) string {
	if len(text) <= size {
		return text
	}
	return strings.ToValidUTF8(text[:size], "") + "…"
}

// invalid says what is wrong with a request.
func invalid(faults ...ProblemError) *Problem {
	return newProblem(http.StatusUnprocessableEntity, "The request is wrong; errors says where.", faults...)
}

func notFound(detail string) *Problem { return newProblem(http.StatusNotFound, detail) }

// The library makes its own errors through a variable. Ours differ in that
// they repeat no value and carry our code.
func init() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		p := newProblem(status, message)
		if status >= 500 {
			// An error that nobody has put into words for the outside.
			p.Detail = textOf(model.CodeInternal)
			return p
		}
		switch status {
		case http.StatusUnprocessableEntity:
			p = invalid()
		case http.StatusRequestEntityTooLarge:
			p.Detail = "The request is too long: 1 MiB at most, 8 MiB for a batch."
		}
		for _, err := range errs {
			if d, ok := err.(huma.ErrorDetailer); ok {
				detail := d.ErrorDetail()
				p.add([]ProblemError{{detail.Location, detail.Message}})
			}
		}
		return p
	}
}

func textOf(code model.Code) string {
	for _, c := range codes {
		if c.code == code {
			return c.detail
		}
	}
	return textOf(model.CodeInternal)
}

// problemOf turns an error from below into what may be told of it, and writes
// the rest to the log. A missing thing is no news for the log, nor is a client
// that has gone.
func problemOf(ctx context.Context, log *slog.Logger, doing string, err error) *Problem {
	code := model.CodeOf(err)
	gone := errors.Is(ctx.Err(), context.Canceled)
	if code != model.CodeNotFound && !gone {
		log.Error("an admin request failed", "doing", doing, "code", string(code), "error", err)
	}
	p := newProblem(StatusOf(code), textOf(code))
	p.Code = code
	return p
}

// writeProblem answers where no operation does.
func writeProblem(w http.ResponseWriter, p *Problem) {
	maps.Copy(w.Header(), p.GetHeaders())
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	body, err := json.Marshal(p)
	if err != nil {
		return // texts and numbers can always be written
	}
	_, _ = w.Write(append(body, '\n')) // the client has gone; nothing to be done
}
