package inbox

import (
	"time"

	"github.com/posthouse/posthouse/internal/ingest"
)

// The words of Reject.Kind.
const (
	// RejectRefused: answered 4xx.
	RejectRefused = ingest.RejectRefused
	// RejectNotKept: acknowledged, and not kept, since Source.Accept says so, or
	// since Source.Dedup knows its key: the cause is then "duplicate".
	RejectNotKept = ingest.RejectNotKept
)

// Reject is one push that was turned away. What was answered 503 is none: that
// is no fault of its sender.
type Reject struct {
	Time        time.Time `json:"time"`                   // when it arrived
	Kind        string    `json:"kind"`                   // RejectRefused or RejectNotKept
	Cause       string    `json:"cause"`                  // a word such as bad_signature; a colon and more may follow
	Status      int       `json:"status"`                 // what was answered
	Size        int64     `json:"size"`                   // bytes of the body that were read, or declared if none were; -1: unknown
	ContentType string    `json:"content_type,omitempty"` // as it was sent, made printable
	Name        string    `json:"name,omitempty"`         // the source that was asked for, where there is no such source
	Sample      string    `json:"sample,omitempty"`       // the beginning of a body that was not kept, as text
}

// Rejects lists what a source turned away lately, newest first: at most 100 of
// each kind, and none from before this process started. The empty name stands
// for all names that are no source. Nil: there is no such source.
func (b *Inbox) Rejects(source string) []Reject {
	list := b.door.Rejects(source)
	if list == nil {
		return nil
	}
	rejects := make([]Reject, len(list))
	for i, r := range list {
		rejects[i] = Reject(r)
	}
	return rejects
}
