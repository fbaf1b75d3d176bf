package workqueue

import (
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
	last model.Micros // due_at of the last claimed work
	next time.Time    // when a claim goes without a floor
}

// begin returns the floor of a claim, and what to call with what it took.
func (f *floor) begin() (model.Micros, func([]model.Work)) {
	begun := time.Now()
	lifted := !begun.Before(f.next) || f.last == 0
	value := f.last.Add(-floorMargin)
	if lifted {
		value = 0
	}
	return value, func(works []model.Work) {
		if lifted {
			f.next = time.Now().Add(max(floorLifted, floorShare*time.Since(begun)))
		}
		if n := len(works); n > 0 {
			f.last = works[n-1].DueAt
		}
	}
}

// lift lets the next claim go without: earlier work may have come back.
func (f *floor) lift() { f.next = time.Time{} }
