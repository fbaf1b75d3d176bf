package ingest

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// The bounds of what is remembered of pushes that were turned away.
const (
	rejectsKept  = 100 // of each kind, per source
	rejectSample = 512 // bytes of a body
	rejectName   = 64  // bytes of a name that is no source
)

// The words of Reject.Kind.
const (
	RejectRefused = "refused"  // answered 4xx
	RejectNotKept = "not_kept" // acknowledged, and not kept: unwanted, or a duplicate
)

// Reject is one push that was turned away, as an operator sees it. What was
// answered 503 is none: those are the store's or the load's fault, and there is
// nothing to learn from each.
type Reject struct {
	Time        time.Time
	Kind        string // RejectRefused or RejectNotKept
	Cause       string
	Status      int   // what was answered
	Size        int64 // bytes of the body that were read, or declared if none were; -1: unknown
	ContentType string
	// Name is the source that was asked for, where there is no such source.
	Name string
	// Sample is the beginning of a body that was not kept, as text.
	Sample string
}

// rejectEntry is a Reject before it is made readable, which is left to the reader.
type rejectEntry struct {
	Reject
	sample []byte
}

// rejectRing holds the last few of one kind. A slot's memory is used again, so
// that a flood allocates nothing.
type rejectRing struct {
	entries []rejectEntry
	next    int
}

func (r *rejectRing) add(reject Reject, sample []byte) {
	if len(r.entries) < rejectsKept {
		r.entries = append(r.entries, rejectEntry{})
		r.next = len(r.entries) - 1
	}
	e := &r.entries[r.next]
	e.Reject = reject
	e.sample = append(e.sample[:0], sample[:min(len(sample), rejectSample)]...)
	r.next = (r.next + 1) % rejectsKept
}

// rejects is what one source turned away lately.
type rejects struct {
	mu               sync.Mutex
	refused, notKept rejectRing
}

func (r *rejects) add(reject Reject, sample []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reject.Kind == RejectNotKept {
		r.notKept.add(reject, sample)
	} else {
		r.refused.add(reject, nil)
	}
}

// list returns all, newest first.
func (r *rejects) list() []Reject {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Reject, 0, len(r.refused.entries)+len(r.notKept.entries))
	for _, ring := range []*rejectRing{&r.refused, &r.notKept} {
		for _, e := range ring.entries {
			e.Sample = sampleText(e.sample)
			list = append(list, e.Reject)
		}
	}
	slices.SortStableFunc(list, func(a, b Reject) int { return b.Time.Compare(a.Time) })
	return list
}

// sampleText makes the beginning of a body readable: valid UTF-8, no control
// characters but tab and newline, and no half character at the cut.
func sampleText(sample []byte) string {
	if len(sample) == rejectSample {
		for cut := 1; cut < utf8.UTFMax; cut++ {
			if last := len(sample) - cut; utf8.RuneStart(sample[last]) {
				if !utf8.FullRune(sample[last:]) {
					sample = sample[:last]
				}
				break
			}
		}
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' || r == 0x7f || 0x80 <= r && r < 0xa0 {
			return utf8.RuneError
		}
		return r
	}, string(sample))
}

// rejectedType is printable, and refers to no longer string.
func rejectedType(header http.Header) string { return strings.Clone(contentType(header)) }
