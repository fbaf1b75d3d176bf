package workqueue

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
)

const (
	// A claim loop that has been in one call of the store for longer than this
	// does not turn any more.
	stuckAfter = 30 * time.Second
	// Nor does one whose calls have all failed for longer than this.
	failingAfter = 5 * time.Second
)

// verdict is what a round tells the loop to do next.
type verdict int

const (
	again    verdict = iota // there may be more: go on at once
	rest                    // nothing is due: wait for a wake-up, or for the interval
	restFull                // wait for the whole interval, even if woken
	off                     // consumption is off: wait for the switch
)

// lane consumes one queue.
type lane struct {
	e       *Engine
	queue   *QueueConfig
	wake    chan struct{}
	enabled atomic.Bool

	storeSince atomic.Int64 // unix nanoseconds since when it waits for the store; 0: it does not
	failing    trouble      // calls of the store
	gone       atomic.Bool  // its loop has ended without being told to

	owed []model.Token // serial: claims that could not be given back; only the loop touches it

	slots  chan struct{} // parallel: one token for each execution that may run
	streak atomic.Int64  // parallel: timeouts in a row
}

func newLane(e *Engine, q *QueueConfig) *lane {
	l := &lane{e: e, queue: q, wake: make(chan struct{}, 1), slots: make(chan struct{}, q.Concurrency)}
	l.enabled.Store(q.Source.Enabled)
	e.metrics.begin(q.Source.Name)
	return l
}

func (l *lane) run() {
	defer func() {
		if r := recover(); r != nil {
			l.gone.Store(true)
			l.e.log.Error("a claim loop ended by a panic; this instance is not ready any more", "source", l.queue.Source.Name, "panic", fmt.Sprint(r))
		}
	}()
	round := l.serialRound
	if l.queue.Order == Parallel {
		round = l.parallelRound
		defer l.drainSlots()
	}
	woken := true // the first look needs no hint
	for !closed(l.e.stopping) {
		next := off
		if l.enabled.Load() {
			next = round(woken)
		}
		woken = l.pause(next)
	}
}

// pause waits as the verdict says. It returns whether a wake-up ended it.
func (l *lane) pause(v verdict) (woken bool) {
	var wake <-chan struct{} = l.wake
	var interval <-chan time.Time
	switch v {
	case again:
		return true
	case restFull:
		wake = nil
	case off, rest:
	}
	if v != off {
		t := time.NewTimer(l.queue.RoundInterval)
		defer t.Stop()
		interval = t.C
	}
	select {
	case <-wake:
		return true
	case <-interval:
	case <-l.e.stopping:
	}
	return false
}

func (l *lane) check() error {
	if l.gone.Load() {
		return fmt.Errorf("the claim loop has stopped")
	}
	if since := l.storeSince.Load(); since != 0 && time.Since(time.Unix(0, since)) > stuckAfter {
		return fmt.Errorf("the claim loop has been waiting for the store since %s", time.Unix(0, since).UTC().Format(time.RFC3339))
	}
	if since, ok := l.failing.longerThan(failingAfter); ok && l.enabled.Load() {
		return fmt.Errorf("every call of the store has failed since %s", since.UTC().Format(time.RFC3339))
	}
	return nil
}

// call runs one call of the store. It is not cut short at shutdown: the store
// bounds it, and its effect must be known.
func (l *lane) call(op string, f func(ctx context.Context) error) error {
	l.storeSince.Store(time.Now().UnixNano())
	err := f(context.Background())
	l.storeSince.Store(0)
	l.failing.tell(err)
	if err != nil {
		l.e.metrics.storeErrors.WithLabelValues(op).Inc()
		l.e.log.Warn("consuming waits for the store", "source", l.queue.Source.Name, "op", op, "err", err)
	}
	return err
}

func (l *lane) anyDue() (due bool, err error) {
	err = l.call("look", func(ctx context.Context) error {
		due, err = l.e.store.AnyDue(ctx, l.queue.Source.ID)
		return err
	})
	return due, err
}

// claim takes due work under a new token. On an error the claim may have been
// made all the same; it is given back.
func (l *lane) claim(owner model.InstanceID, limit int, start bool) (model.Token, []model.Work, error) {
	token := model.Token(randomID())
	l.e.running.use(token, 1)
	var works []model.Work
	err := l.call("claim", func(ctx context.Context) (err error) {
		works, err = l.e.store.ClaimWork(ctx, model.ClaimParams{
			Queue: l.queue.Source.ID, Owner: owner, Token: token, Limit: limit,
			Start: start, AloneFrom: l.queue.Policy.MaxRetry,
		})
		return err
	})
	if err != nil {
		l.giveBack(token)
		l.e.running.use(token, -1)
		return token, nil, err
	}
	if len(works) == 0 {
		l.e.running.use(token, -1)
		return token, nil, nil
	}
	crashpoint.Hit(crashpoint.AfterClaim)
	if start {
		crashpoint.Hit(crashpoint.AfterStart)
	}
	return token, works, nil
}

func (l *lane) start(token model.Token, works []model.Work) (started []model.Work, err error) {
	err = l.call("start", func(ctx context.Context) (err error) {
		started, err = l.e.store.StartWork(ctx, model.StartParams{Token: token, Seqs: seqsOf(works)})
		return err
	})
	if err != nil {
		return nil, err
	}
	if lost := len(works) - len(started); lost > 0 {
		l.fenced(lost)
	}
	crashpoint.Hit(crashpoint.AfterStart)
	return started, nil
}

// giveBack returns what is still processing under the token, and what nobody
// here executes. If that fails, the next heartbeat finds the claim. In serial
// order that may be too late: the next round owes it first.
func (l *lane) giveBack(token model.Token) (ok bool) {
	err := l.call("give_back", func(ctx context.Context) error {
		_, err := l.e.store.GiveBack(ctx, l.queue.Source.ID, token)
		return err
	})
	if err != nil && l.queue.Order == Serial {
		l.owed = append(l.owed, token)
	}
	return err == nil
}

// giveBackOwed gives back what could not be given back before. Nothing may be
// claimed until it has: what waits behind would overtake.
func (l *lane) giveBackOwed() (ok bool) {
	owed := l.owed
	l.owed = nil
	ok = true
	for _, token := range owed {
		ok = l.giveBack(token) && ok
	}
	return ok
}

func (l *lane) fenced(n int) {
	l.e.metrics.fenced.WithLabelValues(l.queue.Source.Name).Add(float64(n))
	l.e.log.Warn("fenced: others hold what this instance had claimed", "source", l.queue.Source.Name, "messages", n)
}

func (l *lane) began(w model.Work) *execution {
	l.e.running.begin(w)
	l.e.metrics.running.WithLabelValues(l.queue.Source.Name).Inc()
	return l.e.execute(l.queue, w)
}

// outcome makes the settlement of an execution that ended. Its done tells
// everybody who wants to know.
func (l *lane) outcome(w model.Work, e ended, after func(applied bool)) pendingSettlement {
	crashpoint.Hit(crashpoint.AfterHandler)
	name, m := l.queue.Source.Name, l.e.metrics
	m.running.WithLabelValues(name).Dec()
	m.handling.WithLabelValues(name).Observe(e.duration.Seconds())
	s := settlementOf(w, e, l.queue.Policy)
	late := s.Kind == model.SettleSuccess && e.timedOut
	return pendingSettlement{s, func(applied, certain bool) {
		l.e.running.end(w)
		if !applied && certain {
			l.fenced(1)
		}
		if late {
			m.late.WithLabelValues(name).Inc()
		}
		m.attempts.WithLabelValues(name, s.Kind.String(), string(s.Reason)).Inc()
		l.e.cfg.Observe(Event{Queue: l.queue.Source, Work: w, Kind: s.Kind, Reason: s.Reason, Error: s.Error,
			Duration: e.duration, Wait: s.Delay, Late: late, Lost: !applied && certain})
		after(applied || !certain)
	}}
}

func (l *lane) round(result string, v verdict) verdict {
	l.e.metrics.rounds.WithLabelValues(l.queue.Source.Name, result).Inc()
	return v
}

func seqsOf(works []model.Work) []model.Seq {
	seqs := make([]model.Seq, len(works))
	for i, w := range works {
		seqs[i] = w.Seq
	}
	return seqs
}
