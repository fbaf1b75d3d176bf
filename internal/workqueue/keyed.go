package workqueue

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/posthouse/posthouse/internal/model"
)

// shares are the partitions of one keyed queue that this process holds, under
// one agreement. The balancer gives and takes them.
type shares struct {
	q      *queue
	agreed model.Agreed

	mu     sync.Mutex
	closed bool
	held   map[int]*share
}

// share is one partition that is held. Its lane goes round until it is ended: by
// the balancer, or with the agreement.
type share struct {
	lane *lane
	wake chan struct{}
	idle atomic.Bool // waits for a wake-up alone
	lock Held        // nil where there is none
	end  func()      // lets the lane claim no more
	over <-chan struct{}
	done chan struct{} // closed when nothing of it executes any more
}

// consumeKeyed lets the balancer hand partitions to this process, and wakes
// those that have due work.
func (q *queue) consumeKeyed(agreed model.Agreed, over <-chan struct{}) {
	s := &shares{q: q, agreed: agreed, held: map[int]*share{}}
	q.setShares(s)
	signal(q.e.balancer.wake)
	q.look(s, over)
	ended := s.close()
	for _, h := range ended {
		h.end()
	}
	for _, h := range ended {
		<-h.done
	}
	q.e.balancer.release(s)
}

func (q *queue) setShares(s *shares) {
	q.mu.Lock()
	q.shares = s
	q.mu.Unlock()
}

// look waits for wake-ups, and at most for the interval, and wakes the
// partitions that have due work. It asks the store once for all of them. A lane
// for that alone, which claims nothing, makes the calls.
func (q *queue) look(s *shares, over <-chan struct{}) {
	l := q.lane(s.agreed, 0, over)
	l.run(func(bool) verdict {
		idle := s.signalBusy()
		if len(idle) == 0 {
			return rest
		}
		p := model.DueParams{Queue: q.id(), KeyID: s.agreed.KeyID}
		last := model.Micros(idle[0].lane.floor.last.Load())
		for _, h := range idle {
			p.Slots = append(p.Slots, h.lane.slots...)
			last = min(last, model.Micros(h.lane.floor.last.Load()))
		}
		floor, done := l.floor.beginAbove(last)
		p.Floor = floor
		var due model.Due
		err := l.call("look", func(ctx context.Context) (err error) {
			due, err = q.e.store.DueWork(ctx, p)
			return err
		})
		done()
		if err != nil {
			return restFull
		}
		if due.Misplaced {
			signal(idle[0].wake) // its claim places what is misplaced
		}
		for _, slot := range due.Slots {
			if h := s.get(s.agreed.Partition(slot)); h != nil {
				signal(h.wake)
			}
		}
		return rest
	})
}

// signalBusy lets those that are at work look once more by themselves, and
// returns the others.
func (s *shares) signalBusy() (idle []*share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		if h.idle.Load() {
			idle = append(idle, h)
		} else {
			signal(h.wake)
		}
	}
	return idle
}

func (s *shares) get(part int) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[part]
}

// parts lists the partitions that are held, in order.
func (s *shares) parts() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := make([]int, 0, len(s.held))
	for part := range s.held {
		parts = append(parts, part)
	}
	slices.Sort(parts)
	return parts
}

// close takes no more partitions and returns those that there are.
func (s *shares) close() []*share {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	all := make([]*share, 0, len(s.held))
	for _, h := range s.held {
		all = append(all, h)
	}
	return all
}

// take begins to work on a partition that is held; false: it is too late.
func (s *shares) take(held model.Holding, lock Held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	over := make(chan struct{})
	h := &share{wake: make(chan struct{}, 1), lock: lock, over: over, end: sync.OnceFunc(func() { close(over) }), done: make(chan struct{})}
	h.lane = s.q.lane(s.agreed, held.Number, over)
	h.lane.wake, h.lane.owner, h.lane.since = h.wake, held.Holder, held.Since
	if lock != nil {
		h.lane.lost = lock.Lost()
	}
	s.held[held.Number] = h
	s.q.e.metrics.partitions.WithLabelValues(s.q.name()).Inc()
	go func() {
		defer signal(s.q.e.balancer.wake)
		defer close(h.done)
		defer s.q.e.metrics.partitions.WithLabelValues(s.q.name()).Dec()
		h.lane.run(h.round)
		h.lane.settleOwed(held.Holder)
		if lock != nil {
			lock.Release()
		}
	}()
	return true
}

// forget takes a partition off whose lane has ended.
func (s *shares) forget(part int) {
	s.mu.Lock()
	delete(s.held, part)
	s.mu.Unlock()
}

// round executes one batch, when it is the partition's turn. While nothing is
// due it waits for a wake-up alone: the queue looks for all of them.
func (h *share) round(bool) verdict {
	l := h.lane
	select {
	case l.q.slots <- struct{}{}:
	case <-l.over:
		return rest
	}
	v := h.batch()
	if v == rest {
		h.idle.Store(true)
		select {
		case <-h.wake:
		case <-l.over:
		}
		h.idle.Store(false)
		return again
	}
	return v
}

// batch executes one batch, and gives the turn back.
func (h *share) batch() verdict {
	l := h.lane
	defer func() { <-l.q.slots }()
	id, ok := l.mayClaim()
	if !ok {
		signal(l.e.balancer.wake) // it may be another's by now
		return restFull
	}
	return l.inOrder(id)
}
