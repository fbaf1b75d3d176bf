package workqueue

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// member is this process's place among the living: one row that it renews
// every third of the lease. Its own deadline is counted from before the last
// good renewal was sent, by the monotonic clock, so that it stops claiming
// before anybody else may declare it dead.
type member struct {
	store   Members
	name    string
	lease   time.Duration
	log     *slog.Logger
	metrics *Metrics
	wants   []model.Want
	hurry   chan struct{} // the next renewal should come now
	// onBeat is told what each renewal found; it says whether the next one
	// should come soon.
	onBeat func(context.Context, model.Heartbeat) (soon bool)

	mu       sync.Mutex
	id       model.InstanceID
	deadline time.Time

	failedAt time.Time // of the last renewal that failed; only the loop touches it
}

func (m *member) callBound() time.Duration { return min(m.lease/3, 5*time.Second) }

// joinBound is how long registering may take: a database may be slow while many
// processes start.
const joinBound = 10 * time.Second

// join registers a new instance.
func (m *member) join(ctx context.Context) error {
	id := model.InstanceID(randomID())
	before := time.Now()
	ctx, cancel := context.WithTimeout(ctx, joinBound)
	defer cancel()
	if err := m.store.JoinInstance(ctx, id, m.name, model.Micros(m.lease.Microseconds()), m.wants); err != nil {
		return fmt.Errorf("register this instance: %w", err)
	}
	m.set(id, before)
	return nil
}

func (m *member) set(id model.InstanceID, renewedAt time.Time) {
	m.mu.Lock()
	m.id, m.deadline = id, renewedAt.Add(m.lease-m.lease/10)
	m.mu.Unlock()
}

// current returns the instance that may claim now; false: none, since the
// last renewal is too long ago.
func (m *member) current() (model.InstanceID, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id, m.id != 0 && time.Now().Before(m.deadline)
}

// run renews until ctx ends.
func (m *member) run(ctx context.Context) {
	for {
		wait := m.lease / 3
		switch ok, soon := m.beat(ctx); {
		case !ok:
			wait = m.lease / 10
		case soon:
			wait = min(wait, soonAgain)
		}
		select {
		case <-time.After(wait):
		case <-m.hurry:
		case <-ctx.Done():
			return
		}
	}
}

// soonAgain is how long after a renewal the next one comes while something is
// about to change.
const soonAgain = 250 * time.Millisecond

// beat renews once.
func (m *member) beat(ctx context.Context) (ok, soon bool) {
	m.mu.Lock()
	id := m.id
	m.mu.Unlock()
	before := time.Now()
	call, cancel := context.WithTimeout(ctx, m.callBound())
	defer cancel()
	hb, err := m.store.Beat(call, model.HeartbeatParams{
		Instance: id, LeaseFor: model.Micros(m.lease.Microseconds()),
		Bury: m.failedAt.IsZero() || before.Sub(m.failedAt) >= m.lease,
	})
	if err != nil {
		if ctx.Err() == nil {
			m.failedAt = before
			m.metrics.storeErrors.WithLabelValues("heartbeat").Inc()
			m.log.Warn("heartbeat failed", "err", err)
		}
		return false, false
	}
	if hb.Alive {
		m.set(id, before)
	} else {
		m.metrics.declaredDead.Inc()
		m.log.Warn("this instance was declared dead, its claims are fenced; it registers anew", "instance", id)
		if err := m.join(ctx); err != nil {
			m.log.Warn("registering anew failed", "err", err)
			return false, false
		}
	}
	if hb.Buried > 0 {
		m.metrics.buried.Add(float64(hb.Buried))
		m.log.Warn("instances whose lease ran out were declared dead", "count", hb.Buried)
	}
	return true, m.onBeat(ctx, hb)
}

// leave declares this instance dead, so that nobody waits for its lease.
func (m *member) leave(ctx context.Context) error {
	m.mu.Lock()
	id := m.id
	m.id = 0
	m.mu.Unlock()
	return m.store.LeaveInstance(ctx, id)
}

// randomID returns a random number that is not zero and fits a signed column.
func randomID() int64 { return rand.Int64N(1<<63-1) + 1 }
