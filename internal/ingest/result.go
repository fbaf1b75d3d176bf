package ingest

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// result is how the door ended with one push: the label of the metric, and what
// is answered.
type result uint8

const (
	resultKept          result = iota
	resultKeptUnchecked        // kept, though an expression could not be evaluated
	resultNotKept              // accept said false
	resultDuplicate            // the same was kept before
	resultEmpty

	resultMethod
	resultUnknownSource
	resultTooLarge
	resultSignature
	resultSlow       // the body was not in by the deadline
	resultIncomplete // the body broke off, or was not well-formed

	resultBusyConcurrency
	resultBusyMemory
	resultBusyQueue
	resultLate        // the deadline came before the Writer took it
	resultUnknown     // the deadline came while the store was at work
	resultUnavailable // the store is not available
	resultRefused     // the store refuses this message
	resultHungUp      // the client went away before the Writer took it
	resultStopping
	resultFault // a panic, or an error of our own

	results
)

// answerKind is everything about a result but the source's own acknowledgement.
type answerKind struct {
	label  string
	status int    // 0: the source's acknowledgement
	detail string // for the client
	cause  string // for the operator, in the ring; empty: not kept there
	close  bool   // the rest of the body is not waited for, so the connection ends here
	linger bool   // the client may still be sending

	body   []byte   // problem details
	length []string // Content-Length
}

// answers is the closed table of results.
var answers = [results]answerKind{
	resultKept:          {label: "kept"},
	resultKeptUnchecked: {label: "kept_unchecked"},
	resultNotKept:       {label: "not_kept", cause: "accept is false"},
	resultDuplicate:     {label: "duplicate", cause: "duplicate"},
	resultEmpty:         {label: "empty", cause: "the body is empty"},

	resultMethod:        {label: "refused_method", status: http.StatusMethodNotAllowed, detail: "Only POST is taken here.", cause: "the method is not POST"},
	resultUnknownSource: {label: "refused_unknown_source", status: http.StatusNotFound, detail: "There is no such source.", cause: "there is no such source"},
	resultTooLarge:      {label: "refused_size", status: http.StatusRequestEntityTooLarge, detail: "The body is larger than this source takes.", cause: "the body is larger than the limit", close: true, linger: true},
	resultSignature:     {label: "refused_signature", status: http.StatusUnauthorized, detail: "The request is not authentic.", cause: "the request is not authentic"},
	resultSlow:          {label: "refused_slow_body", status: http.StatusRequestTimeout, detail: "The body did not arrive in time.", cause: "the body did not arrive in time", close: true, linger: true},
	resultIncomplete:    {label: "refused_incomplete_body", status: http.StatusBadRequest, detail: "The body is incomplete or malformed.", cause: "the body is incomplete or malformed", close: true},

	resultBusyConcurrency: unavailable("busy_concurrency", "Too many requests at once for this source."),
	resultBusyMemory:      unavailable("busy_memory", "Too much is being received at once."),
	resultBusyQueue:       unavailable("busy_queue", "Too much waits to be kept."),
	resultLate:            unavailable("late", "The message could not be kept in time."),
	resultUnknown:         unavailable("unknown", "The message could not be kept in time."),
	resultUnavailable:     unavailable("store_unavailable", "The message could not be kept in time."),
	resultRefused:         unavailable("store_refused", "The message could not be kept."),
	resultHungUp:          unavailable("hung_up", "The message could not be kept."),
	resultStopping:        unavailable("stopping", "The server is stopping."),
	resultFault:           unavailable("fault", "The message could not be received."),
}

func unavailable(label, detail string) answerKind {
	return answerKind{label: label, status: http.StatusServiceUnavailable, detail: detail}
}

// Shared between all answers; nobody changes them.
var (
	problemType = []string{"application/problem+json"}
	retryAfter  = []string{"1"} // seconds
	allowPost   = []string{http.MethodPost}
	closing     = []string{"close"}
)

func init() {
	for i := range answers {
		a := &answers[i]
		if a.status == 0 {
			continue
		}
		body, err := json.Marshal(struct {
			Type   string `json:"type"`
			Title  string `json:"title"`
			Status int    `json:"status"`
			Detail string `json:"detail"`
		}{"about:blank", http.StatusText(a.status), a.status, a.detail})
		if err != nil {
			panic(err) // a struct of strings and a number
		}
		a.body = body
		a.length = []string{strconv.Itoa(len(body))}
	}
}

// write answers with the problem of r.
func (r result) write(w http.ResponseWriter) {
	a := &answers[r]
	h := w.Header()
	h["Content-Type"] = problemType
	h["Content-Length"] = a.length
	switch a.status {
	case http.StatusMethodNotAllowed:
		h["Allow"] = allowPost
	case http.StatusServiceUnavailable:
		h["Retry-After"] = retryAfter
	}
	if a.close {
		h["Connection"] = closing
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client may be gone; nothing is to be done about it
}

// resultOf maps what the Writer said.
func resultOf(err error) result {
	switch {
	case errors.Is(err, ErrDuplicate):
		return resultDuplicate
	case errors.Is(err, ErrBusy):
		return resultBusyQueue
	case errors.Is(err, ErrStopped):
		return resultStopping
	case errors.Is(err, ErrLate):
		return resultLate
	case errors.Is(err, ErrHungUp):
		return resultHungUp
	case errors.Is(err, ErrUnknown):
		return resultUnknown
	case errors.Is(err, ErrUnavailable):
		return resultUnavailable
	}
	return resultRefused
}
