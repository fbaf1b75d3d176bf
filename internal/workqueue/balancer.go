package workqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// balancer shares the partitions of keyed queues out among the living: each
// instance holds at most its part, and lets go of the rest.
type balancer struct {
	e       *Engine
	wake    chan struct{}
	failing trouble
	turn    chan struct{} // taken by a look, and by whoever must not meet one
	// owesRecovery: partitions were taken from one who died, or may have been,
	// and what he left has not been recovered yet. Guarded by turn.
	owesRecovery bool
}

// unbalancedPause is how long the balancer waits while partitions are free, or
// on their way to another instance.
const unbalancedPause = time.Second

// unheardPause is how often the balancer looks where no signals are heard.
const unheardPause = 2 * time.Second

func (b *balancer) run(ctx context.Context) {
	for {
		settled, err := b.balance(ctx)
		if ctx.Err() != nil {
			return
		}
		b.failing.tell(err)
		if err != nil {
			settled = false
			b.e.metrics.storeErrors.WithLabelValues("balance").Inc()
			b.e.log.Warn("partitions could not be shared out; it is tried again", "err", err)
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

// count tells the consumers of queues where nothing is to be shared out.
func (b *balancer) count(ctx context.Context) error {
	if !b.e.countsConsumers() {
		return nil
	}
	occupancy, err := b.e.store.Occupancy(ctx)
	if err == nil {
		b.e.tellConsumers(occupancy)
	}
	return err
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
func (b *balancer) balance(ctx context.Context) (settled bool, err error) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	queues := b.queues()
	if len(queues) == 0 && b.e.notifier.signals == nil {
		return true, b.count(ctx)
	}
	id, ok := b.e.member.current()
	if !ok {
		return false, nil
	}
	if err := b.recover(ctx); err != nil {
		return false, err
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
	b.e.tellConsumers(occupancy)
	settled = dropped == 0
	var want []model.Partition
	var stray []model.Holding
	of := map[model.SourceID]*shares{}
	for _, s := range queues {
		of[s.q.id()] = s
		take, leave, even := s.compare(id, occupancy)
		settled = settled && even
		want = append(want, take...)
		stray = append(stray, leave...)
	}
	if len(stray) > 0 {
		if err := b.drop(ctx, id, stray); err != nil {
			return false, err
		}
	}
	if len(want) == 0 {
		return settled, nil
	}
	b.owesRecovery = true // until it is known that nobody dead held them
	leases, err := b.e.store.TakeLeases(ctx, id, want)
	if err != nil {
		return false, err
	}
	var taken []model.Holding
	b.owesRecovery = false
	for i, lease := range leases {
		if lease.Held {
			taken = append(taken, model.Holding{Partition: want[i], Holder: id, Since: lease.Since, Alive: true})
			b.owesRecovery = b.owesRecovery || lease.TakenOver
		}
	}
	if err := b.recover(ctx); err != nil {
		return false, err // what was taken is kept, and worked on when this has gone well
	}
	return false, b.begin(ctx, id, of, taken)
}

// release lets go of all that is held of a queue, whose lanes have ended. When it
// has returned nothing is on its way any more that takes or drops a lease of
// this queue: the next agreement may use the same ones.
func (b *balancer) release(s *shares) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	s.q.setShares(nil)
	for !closed(b.e.stopping) { // then leaving frees them
		id, ok := b.e.member.current()
		var held []model.Holding
		for _, part := range s.parts() {
			if l := s.get(part).lane; l.owner == id {
				held = append(held, model.Holding{Partition: l.part, Since: l.since})
			}
		}
		if ok && (len(held) == 0 || b.drop(context.Background(), id, held) == nil) {
			return
		}
		select {
		case <-time.After(settleRetryPause):
		case <-b.e.stopping:
		}
	}
}

// recover brings back what former holders left, where partitions were taken
// from them, or may have been. Until then nothing is claimed of them, nor are
// they let go: whoever takes them next would not be told.
func (b *balancer) recover(ctx context.Context) error {
	if !b.owesRecovery {
		return nil
	}
	if err := b.e.recoverOrphans(ctx); err != nil {
		return err
	}
	b.owesRecovery = false
	return nil
}

// drop lets go of partitions, and tells others.
func (b *balancer) drop(ctx context.Context, id model.InstanceID, held []model.Holding) error {
	if _, err := b.e.store.DropLeases(ctx, id, held); err != nil {
		return err
	}
	for _, h := range held {
		b.e.notifier.addFree(h.Queue)
	}
	return nil
}

// dropEnded lets go of the partitions whose lanes have ended.
func (b *balancer) dropEnded(ctx context.Context, id model.InstanceID, queues []*shares) (int, error) {
	var drop []model.Holding
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
			drop = append(drop, model.Holding{Partition: h.lane.part, Since: h.lane.since})
			of = append(of, s)
		}
	}
	if len(drop) == 0 {
		return 0, nil
	}
	if err := b.drop(ctx, id, drop); err != nil {
		return 0, err
	}
	for i, s := range of {
		s.forget(drop[i].Number)
	}
	return len(drop), nil
}

// compare ends what this process holds beyond its part, or does not hold any
// more, and returns what it should take, and what it should leave: partitions
// that it holds by what the store says and that no lane works on. It may not
// have heard that it took them, or have taken them for another agreement.
func (s *shares) compare(id model.InstanceID, o model.Occupancy) (take []model.Partition, leave []model.Holding, even bool) {
	holder := map[int]model.InstanceID{}
	since := map[int]model.Micros{}
	for _, h := range o.Holdings {
		if h.Queue == s.q.id() && h.Alive {
			holder[h.Number], since[h.Number] = h.Holder, h.Since
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
		by, held := holder[p]
		if held && by != id || s.get(p) != nil {
			continue
		}
		free++
		switch partition := (model.Partition{Queue: s.q.id(), Number: p}); {
		case mine+len(take) < part:
			take = append(take, partition)
		case held:
			leave = append(leave, model.Holding{Partition: partition, Since: since[p]})
		}
	}
	return take, leave, leaving == 0 && free == 0
}

// begin works on what was taken.
func (b *balancer) begin(ctx context.Context, id model.InstanceID, of map[model.SourceID]*shares, taken []model.Holding) (err error) {
	var back []model.Holding
	for _, p := range taken {
		s := of[p.Queue]
		var lock Held
		ok := err == nil
		if ok && b.e.cfg.Locker != nil {
			if lock, ok, err = b.e.cfg.Locker.TryLock(ctx, s.q.lockName(p.Number)); err != nil {
				err = fmt.Errorf("lock a partition: %w", err) // nor the others: the backend is away
			}
			ok = ok && err == nil
		}
		if ok && s.take(p, lock) {
			continue
		}
		if ok && lock != nil {
			lock.Release()
		}
		back = append(back, p)
	}
	if len(back) == 0 {
		return err
	}
	return errors.Join(err, b.drop(ctx, id, back))
}
