package model

import (
	"time"

	"github.com/google/uuid"
)

// MessageView is one message with its state, as it is shown.
type MessageView struct {
	Seq         Seq
	ID          uuid.UUID
	Source      string
	State       State
	RetryCount  int
	NextRetryAt Micros // when pending with RetryCount > 0, otherwise 0
	ReceivedAt  Micros
	FinishedAt  Micros // success: when the outcome was written; failed: when the last attempt ended; otherwise 0
	Error       string // of the last attempt since the last replay that did not succeed, while pending, processing or failed
	ContentType string
	Size        int64  // of the body, in bytes
	Check       string // see NewMessage.Check
	Replay      int
}

// AttemptView is one attempt, as it is shown. Successful ones are synthesised
// from the outcome.
type AttemptView struct {
	Replay     int
	N          int // 1 for the first since the replay
	StartedAt  Micros
	EndedAt    Micros
	Outcome    string // "success", "failed", "lost" or "uncertain"
	Reason     Reason
	Error      string
	HTTPStatus int
	Code       string // deliveries: the provider's
}

// The words of AttemptView.Outcome.
const (
	OutcomeSuccess = "success"
	OutcomeFailed  = "failed"
	OutcomeLost    = "lost"
	// OutcomeUncertain: nobody knows how it ended.
	OutcomeUncertain = "uncertain"
)

// Filter narrows a list by state.
type Filter int8

const (
	AnyState     Filter = iota
	OnlyPending         // never failed so far
	OnlyRetrying        // pending with a retry count above zero
	OnlyProcessing
	OnlySuccess
	OnlyFailed
)

// ListParams asks for one page of messages, newest first: by (seq) for
// AnyState and OnlySuccess, by (due_at, seq) for the others.
type ListParams struct {
	Source SourceID // 0: all sources
	Filter Filter
	After  Cursor // zero: the first page
	Limit  int
}

// Cursor is a place in a list: the last row that was seen. DueAt is 0 in lists
// that are ordered by seq alone.
type Cursor struct {
	DueAt Micros
	Seq   Seq
}

// MessagePage is one page. Next is nil where nothing follows.
type MessagePage struct {
	Items []MessageView
	Next  *Cursor
}

// SourceStats counts the messages of one source.
type SourceStats struct {
	Source       Source
	Pending      int64 // without Retrying
	Retrying     int64
	Due          int64 // pending or retrying, and due now
	Processing   int64
	Success      int64
	Failed       int64
	Dead         int64 // this one and the next two: deliveries
	Uncertain    int64
	Cancelled    int64
	OldestDueAge time.Duration // since the oldest due work fell due; 0 where nothing is due
}

// SchemaVersion is one numbered step of the schema.
type SchemaVersion struct {
	Version   int
	Name      string
	AppliedAt Micros // 0: not applied
	Unknown   bool   // applied by another binary: this one does not have it
}
