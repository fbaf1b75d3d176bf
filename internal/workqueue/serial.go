package workqueue

import (
	"context"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// serialHold is how long a serial queue's lease is kept over rounds that follow
// each other at once. Each taking and letting go is a commit.
const serialHold = time.Second

// serialRound takes the queue's lease, executes one batch in order, or several
// while they are full, and lets go.
func (l *lane) serialRound(woken bool) (v verdict) {
	if !woken {
		due, err := l.anyDue()
		if err != nil {
			return l.round("error", restFull)
		}
		if !due {
			return l.round("idle", rest)
		}
	}
	id, ok := l.mayClaim()
	if !ok {
		return l.round("error", restFull)
	}
	unlock, v, ok := l.lock()
	if !ok {
		return v
	}
	defer unlock()
	var lease model.Lease
	err := l.call("take_lease", func(ctx context.Context) error {
		leases, err := l.e.store.TakeLeases(ctx, id, []model.Partition{l.part})
		if err == nil {
			lease = leases[0]
		}
		return err
	})
	if err != nil {
		return l.round("error", restFull)
	}
	if !lease.Held {
		return l.missed()
	}
	defer func() {
		l.settleOwed(id) // or others would overtake what this instance still has
		l.dropLease(id)
	}()
	if lease.TakenOver {
		// Before anything is claimed: what the former holder left comes first.
		l.floor.lift()
		if err := l.call("recover", l.e.recoverOrphans); err != nil {
			return l.round("error", restFull)
		}
	}
	for since := time.Now(); ; {
		v = l.inOrder(id)
		if v != again || closed(l.over) || time.Since(since) > serialHold {
			return v
		}
	}
}

// lock takes the lock beside the store's lease, where there is one.
func (l *lane) lock() (unlock func(), v verdict, ok bool) {
	if l.e.cfg.Locker == nil {
		return func() {}, 0, true
	}
	var held Held
	err := l.call("lock", func(ctx context.Context) (err error) {
		held, ok, err = l.e.cfg.Locker.TryLock(ctx, l.lockName())
		return err
	})
	if err != nil {
		return nil, l.round("error", restFull), false
	}
	if !ok {
		return nil, l.missed(), false
	}
	l.lost = held.Lost()
	return func() {
		l.lost = nil
		held.Release()
	}, 0, true
}

// missed ends a round for which another instance has the lease.
func (l *lane) missed() verdict { return l.round("missed_lock", restFull) }

func (l *lane) dropLease(id model.InstanceID) {
	_ = l.call("drop_lease", func(ctx context.Context) error {
		n, err := l.e.store.DropLeases(ctx, id, []model.Partition{l.part})
		if err == nil && n == 0 {
			l.e.metrics.leasesLost.WithLabelValues(l.q.name()).Inc()
		}
		return err
	})
}
