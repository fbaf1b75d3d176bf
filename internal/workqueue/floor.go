package workqueue

import (
	"sync/atomic"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

const (
	// floorMargin is how much earlier than the last claimed work others may be
	// due that come to light later: a slow commit, clocks of two servers.
	floorMargin = 10 * time.Second
	// Claims without a floor are made at least so far apart,
	floorLifted = time.Second
	// and so many times as far apart as the last one took.
	floorShare = 20
)

// floor keeps claims from walking, each time anew, over what was due before
// and is gone. A database that must keep dead rows for somebody's old snapshot
// makes that walk longer with every message. Now and then a claim goes without.
type floor struct {
	last atomic.Int64 // due_at of the last claimed work
	next time.Time    // when a claim goes without a floor; only the loop touches it
}

// begin returns the floor of a call that looks for due work, and what to call
// when it has ended.
func (f *floor) begin() (value model.Micros, done func()) {
	return f.beginAbove(model.Micros(f.last.Load()))
}

// beginAbove is begin where others have claimed: last is the least of what was
// last for each.
func (f *floor) beginAbove(last model.Micros) (value model.Micros, done func()) {
	begun := time.Now()
	if last != 0 && begun.Before(f.next) {
		return last.Add(-floorMargin), func() {}
	}
	return 0, func() { f.next = time.Now().Add(max(floorLifted, floorShare*time.Since(begun))) }
}

// claimed moves the floor to what was claimed.
func (f *floor) claimed(works []model.Work) {
	if n := len(works); n > 0 {
		f.last.Store(int64(works[n-1].DueAt))
	}
}

// lift lets the next claim go without: earlier work may have come back.
func (f *floor) lift() { f.next = time.Time{} }
