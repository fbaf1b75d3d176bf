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
	// One that may still be on its way must not take a lease that is taken anew.
	if l.owesDrop && !l.dropLease(id) {
		return l.round("error", restFull)
	}
	unlock, v, ok := l.lock()
	if !ok {
		return v
	}
	defer unlock()
	if v, ok = l.takeLease(id); !ok {
		return v
	}
	defer func() {
		if l.settleOwed(id) { // or others would overtake what this instance still has
			l.dropLease(id)
		}
	}()
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
		held, ok, err = l.e.cfg.Locker.TryLock(ctx, l.q.lockName(l.part.Number))
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

// takeLease takes the store's lease. What a dead holder left is recovered before
// anything is claimed; until that has gone well the lease is not let go either,
// since whoever takes it next would not be told.
func (l *lane) takeLease(id model.InstanceID) (v verdict, ok bool) {
	owed := l.owesRecovery
	l.owesRecovery = true // where the answer is lost it may have been taken
	var lease model.Lease
	err := l.call("take_lease", func(ctx context.Context) error {
		leases, err := l.e.store.TakeLeases(ctx, id, []model.Partition{l.part})
		if err == nil {
			lease = leases[0]
		}
		return err
	})
	if err != nil {
		return l.round("error", restFull), false
	}
	if !lease.Held {
		l.owesRecovery = false
		return l.missed(), false
	}
	if owed || lease.TakenOver {
		l.floor.lift()
		if err := l.call("recover", l.e.recoverOrphans); err != nil {
			return l.round("error", restFull), false
		}
	}
	l.owesRecovery = false
	l.since = lease.Since
	return 0, true
}

func (l *lane) dropLease(id model.InstanceID) (ok bool) {
	err := l.call("drop_lease", func(ctx context.Context) error {
		n, err := l.e.store.DropLeases(ctx, id, []model.Holding{{Partition: l.part, Since: l.since}})
		if err == nil && n == 0 && !l.owesDrop {
			l.e.metrics.leasesLost.WithLabelValues(l.q.name()).Inc()
		}
		return err
	})
	l.owesDrop = err != nil
	return err == nil
}
