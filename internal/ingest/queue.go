package ingest

import (
	"context"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// rowState says to whom a row belongs; see the package comment.
type rowState uint8

const (
	rowIdle rowState = iota
	rowWaiting
	rowTaken
	rowAbandoned
	rowAnswered
)

// row is one push on its way into the store. It is used again after free.
type row struct {
	msg      model.NewMessage
	ctx      context.Context // ends when the client hangs up
	deadline time.Time       // nobody waits any longer
	size     int             // payload bytes
	lane     *lane

	// Guarded by the Writer's lock.
	state      rowState
	tried      bool // the store was asked before, and may have kept it
	next, prev *row

	duplicate bool // by the last call of the Keeper; the loop's own

	done  chan error  // capacity 1: answering never blocks
	timer *time.Timer // stopped between two uses

	// What the door lends to msg; it gives all of it back in free.
	body *buffer
	head []byte // msg.Headers and msg.Query stand in it
	free func(*row)
}

// rowOverhead is what a row costs in a statement beside its payload, roughly.
const rowOverhead = 128

func payloadSize(m *model.NewMessage) int {
	return len(m.Body) + len(m.Headers) + len(m.Query) + len(m.ContentType) + len(m.Check) + rowOverhead
}

// lane holds the waiting rows of one source, oldest first.
type lane struct {
	source     model.SourceID
	head, tail *row
	rows       int
	active     bool  // is in queue.active
	next       *lane // in queue.active
	kept       int   // scratch of one flush: rows that are new
}

func (l *lane) push(r *row) {
	r.next, r.prev = nil, l.tail
	if l.tail == nil {
		l.head = r
	} else {
		l.tail.next = r
	}
	l.tail = r
	l.rows++
}

func (l *lane) remove(r *row) {
	if r.prev == nil {
		l.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.next, r.prev = nil, nil
	l.rows--
}

// laneList is a queue of lanes.
type laneList struct{ first, last *lane }

func (q *laneList) push(l *lane) {
	l.next = nil
	if q.last == nil {
		q.first = l
	} else {
		q.last.next = l
	}
	q.last = l
}

func (q *laneList) pop() *lane {
	l := q.first
	if l != nil {
		q.first, l.next = l.next, nil
		if q.first == nil {
			q.last = nil
		}
	}
	return l
}

// queue is what waits, by source. Its user locks.
type queue struct {
	bound  int // rows
	rows   int
	lanes  map[model.SourceID]*lane
	active laneList // every lane with rows, and some that have become empty; the first is next
}

func newQueue(bound int) queue {
	return queue{bound: bound, lanes: make(map[model.SourceID]*lane)}
}

func (q *queue) lane(source model.SourceID) *lane {
	l := q.lanes[source]
	if l == nil {
		l = &lane{source: source}
		q.lanes[source] = l
	}
	return l
}

// add lets r wait; false: there is no room for this source.
func (q *queue) add(r *row) bool {
	if !fairShare(int64(r.lane.rows), int64(q.rows), 1, int64(q.bound)) {
		return false
	}
	q.put(r)
	return true
}

// put lets r wait, whatever the bound says.
func (q *queue) put(r *row) {
	r.state = rowWaiting
	r.lane.push(r)
	q.rows++
	if !r.lane.active {
		r.lane.active = true
		q.active.push(r.lane)
	}
}

func (q *queue) remove(r *row) {
	r.lane.remove(r)
	q.rows--
}

// takeParams bounds one batch.
type takeParams struct {
	rows, bytes int
	now         time.Time
}

// take moves rows from the queue to batch: one of each source in turn, until
// there are enough or the next would make them too large. A row that is too
// large by itself goes alone. A source whose row did not fit is the first of
// the next batch. Rows for which nobody waits go to gone instead.
func (q *queue) take(batch, gone []*row, p takeParams) (taken, skipped []*row) {
	var passed laneList
	size := 0
	for len(batch) < p.rows {
		l := q.active.pop()
		if l == nil {
			break
		}
		r := l.head
		for r != nil && (r.ctx.Err() != nil || !p.now.Before(r.deadline)) {
			q.remove(r)
			gone = append(gone, r)
			r = l.head
		}
		switch {
		case r == nil:
			l.active = false
		case len(batch) > 0 && size+r.size > p.bytes:
			passed.push(l)
		default:
			q.remove(r)
			r.state = rowTaken
			batch = append(batch, r)
			size += r.size
			q.active.push(l)
		}
	}
	if passed.last != nil {
		passed.last.next = q.active.first
		q.active.first = passed.first
		if q.active.last == nil {
			q.active.last = passed.last
		}
	}
	return batch, gone
}

// fairShare is the one rule by which sources share what is bounded: a source may
// hold no more than what is left free. One flooding source gets half, k of them
// get 1/(k+1) each, and the same is always left for those who come.
func fairShare(mine, all, more, bound int64) bool {
	return mine+more <= bound-all
}
