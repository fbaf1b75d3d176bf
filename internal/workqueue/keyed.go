package workqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

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

// share is one partition that is held. Its lane goes round until it is ended.
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
	for _, h := range s.close() {
		h.end()
		<-h.done
	}
	q.setShares(nil)
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

// take begins to work on a partition that owner holds; false: it is too late.
func (s *shares) take(part int, owner model.InstanceID, lock Held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	over := make(chan struct{})
	h := &share{wake: make(chan struct{}, 1), lock: lock, over: over, end: sync.OnceFunc(func() { close(over) }), done: make(chan struct{})}
	h.lane = s.q.lane(s.agreed, part, over)
	h.lane.wake, h.lane.owner = h.wake, owner
	if lock != nil {
		h.lane.lost = lock.Lost()
	}
	s.held[part] = h
	s.q.e.metrics.partitions.WithLabelValues(s.q.name()).Inc()
	go func() {
		defer close(h.done)
		defer s.q.e.metrics.partitions.WithLabelValues(s.q.name()).Dec()
		h.lane.run(h.round)
		h.lane.settleOwed(owner)
		if lock != nil {
			lock.Release()
		}
		signal(s.q.e.balancer.wake)
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
	v := restFull
	if id, ok := l.mayClaim(); ok {
		v = l.inOrder(id)
	} else {
		signal(l.e.balancer.wake) // it may be another's by now
	}
	<-l.q.slots
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

// lockName names the partition for the lock beside the store's lease.
func (l *lane) lockName() string { return l.q.name() + "/" + strconv.Itoa(l.part.Number) }

// balancer shares the partitions of keyed queues out among the living: each
// instance holds at most its part, and lets go of the rest.
type balancer struct {
	e       *Engine
	wake    chan struct{}
	failing trouble
}

// unbalancedPause is how long the balancer waits while partitions are free, or
// on their way to another instance.
const unbalancedPause = time.Second

// unheardPause is how often the balancer looks where no signals are heard.
const unheardPause = 2 * time.Second

func (b *balancer) run(ctx context.Context) {
	for {
		settled := true
		if queues := b.queues(); len(queues) > 0 || b.e.notifier.signals != nil {
			var err error
			settled, err = b.balance(ctx, queues)
			if ctx.Err() != nil {
				return
			}
			b.failing.tell(err)
			if err != nil {
				settled = false
				b.e.metrics.storeErrors.WithLabelValues("balance").Inc()
				b.e.log.Warn("partitions could not be shared out; it is tried again", "err", err)
			}
		}
		var pause <-chan time.Time
		switch {
		case !settled:
			pause = time.After(min(unbalancedPause, b.e.cfg.Lease/3))
		case b.e.notifier.company.Load() && !b.e.notifier.listening.Load():
			pause = time.After(unheardPause) // nobody tells when others let go
		}
		select {
		case <-b.wake:
		case <-pause:
		case <-ctx.Done():
			return
		}
	}
}

func (b *balancer) queues() (keyed []*shares) {
	for _, q := range b.e.queues {
		q.mu.Lock()
		if q.shares != nil {
			keyed = append(keyed, q.shares)
		}
		q.mu.Unlock()
	}
	return keyed
}

// balance brings what this process holds nearer to its part. It says whether
// all is shared out as it should be.
func (b *balancer) balance(ctx context.Context, queues []*shares) (settled bool, err error) {
	id, ok := b.e.member.current()
	if !ok {
		return false, nil
	}
	dropped, err := b.dropEnded(ctx, id, queues)
	if err != nil {
		return false, err
	}
	occupancy, err := b.e.store.Occupancy(ctx)
	if err != nil {
		return false, err
	}
	b.e.notifier.company.Store(b.e.company(occupancy))
	settled = dropped == 0
	var want []model.Partition
	of := map[model.SourceID]*shares{}
	for _, s := range queues {
		of[s.q.id()] = s
		free, even := s.compare(id, occupancy)
		settled = settled && even
		for _, part := range free {
			want = append(want, model.Partition{Queue: s.q.id(), Number: part})
		}
	}
	if len(want) == 0 {
		return settled, nil
	}
	leases, err := b.e.store.TakeLeases(ctx, id, want)
	if err != nil {
		return false, err
	}
	var taken []model.Partition
	takenOver := false
	for i, lease := range leases {
		if lease.Held {
			taken = append(taken, want[i])
			takenOver = takenOver || lease.TakenOver
		}
	}
	return false, b.begin(ctx, id, of, taken, takenOver)
}

// dropEnded lets go of the partitions whose lanes have ended.
func (b *balancer) dropEnded(ctx context.Context, id model.InstanceID, queues []*shares) (int, error) {
	var drop []model.Partition
	var of []*shares
	for _, s := range queues {
		for _, part := range s.parts() {
			h := s.get(part)
			if !closed(h.done) {
				continue
			}
			if h.lane.owner != id { // it was a former self's
				s.forget(part)
				continue
			}
			drop = append(drop, h.lane.part)
			of = append(of, s)
		}
	}
	if len(drop) == 0 {
		return 0, nil
	}
	if _, err := b.e.store.DropLeases(ctx, id, drop); err != nil {
		return 0, err
	}
	for i, s := range of {
		s.forget(drop[i].Number)
		b.e.notifier.add(drop[i].Queue) // others may take it
	}
	return len(drop), nil
}

// compare ends what this process holds beyond its part, or does not hold any
// more, and returns what it should take.
func (s *shares) compare(id model.InstanceID, o model.Occupancy) (take []int, even bool) {
	holder := map[int]model.InstanceID{}
	for _, h := range o.Holdings {
		if h.Queue == s.q.id() && h.Alive {
			holder[h.Number] = h.Holder
		}
	}
	consumers := max(o.Consumers[s.q.id()], 1)
	part := (s.agreed.Partitions + consumers - 1) / consumers
	mine, leaving := 0, 0
	for _, p := range s.parts() {
		h := s.get(p)
		switch {
		case closed(h.over):
			leaving++
		case h.lane.owner != id || holder[p] != id:
			s.q.e.metrics.leasesLost.WithLabelValues(s.q.name()).Inc()
			s.q.e.log.Warn("a partition is not this instance's any more", "source", s.q.name(), "partition", p)
			h.end()
			leaving++
		case h.lane.lost != nil && closed(h.lane.lost):
			h.end()
			leaving++
		case mine == part: // it is one too many
			h.end()
			leaving++
		default:
			mine++
		}
	}
	// Each instance begins somewhere else, so that two seldom want the same.
	first := int(uint64(id) % uint64(s.agreed.Partitions))
	free := 0
	for i := range s.agreed.Partitions {
		p := (first + i) % s.agreed.Partitions
		if by, held := holder[p]; held && by != id || s.get(p) != nil {
			continue
		}
		free++
		if mine+len(take) < part {
			take = append(take, p)
		}
	}
	return take, leaving == 0 && free == 0
}

// begin works on what was taken. What the former holders left is recovered
// first, so that nothing overtakes it.
func (b *balancer) begin(ctx context.Context, id model.InstanceID, of map[model.SourceID]*shares, taken []model.Partition, takenOver bool) error {
	var err error
	if takenOver {
		err = b.e.recoverOrphans(ctx)
	}
	var back []model.Partition
	for _, p := range taken {
		s := of[p.Queue]
		var lock Held
		ok := err == nil
		if ok && b.e.cfg.Locker != nil {
			name := (&lane{q: s.q, part: p}).lockName()
			if lock, ok, err = b.e.cfg.Locker.TryLock(ctx, name); err != nil {
				err = fmt.Errorf("lock a partition: %w", err) // nor the others: the backend is away
			}
			ok = ok && err == nil
		}
		if ok && s.take(p.Number, id, lock) {
			continue
		}
		if ok && lock != nil {
			lock.Release()
		}
		back = append(back, p)
	}
	if len(back) > 0 {
		if _, e := b.e.store.DropLeases(ctx, id, back); e != nil && err == nil {
			err = e
		}
	}
	return err
}
