package workqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
)

// verdict is what a round tells the loop to do next.
type verdict int

const (
	again    verdict = iota // there may be more: go on at once
	rest                    // nothing is due: wait for a wake-up, or for the interval
	restFull                // wait for the whole interval, even if woken
	off                     // consumption is off: wait for the switch
	refused                 // nothing is admitted: wait as long as the admission says, or for a wake-up
)

// lane claims and executes the work of one queue, or of one partition of it,
// under one agreement.
type lane struct {
	q      *queue
	e      *Engine
	agreed model.Agreed
	part   model.Partition
	slots  []model.Slot
	over   <-chan struct{} // closed: claim no more
	wake   <-chan struct{}
	// owner is the instance for which a keyed partition is held, and lost is
	// closed when the lock beside the store's lease is gone; zero in other orders.
	owner model.InstanceID
	lost  <-chan struct{}
	since model.Micros // when the partition was taken

	storeSince atomic.Int64 // unix nanoseconds since when it waits for the store; 0: it does not

	// Only the loop touches these.
	owed []model.Token // claims that could not be given back
	// Serial: a lease that may have been taken from one who died, whose work is
	// not recovered yet, and one that may not have been let go.
	owesRecovery, owesDrop bool

	size       int // of the next group
	refusedFor time.Duration

	floor floor
}

func (q *queue) lane(agreed model.Agreed, part int, over <-chan struct{}) *lane {
	return &lane{
		q: q, e: q.e, agreed: agreed, part: model.Partition{Queue: q.id(), Number: part},
		slots: agreed.SlotsOf(part), over: over, wake: q.wake, size: 1,
	}
}

// run calls round until the lane is over.
func (l *lane) run(round func(woken bool) verdict) {
	l.q.mu.Lock()
	l.q.lanes[l] = true
	l.q.mu.Unlock()
	defer func() {
		if r := recover(); r != nil {
			l.q.gone.Store(true)
			l.e.log.Error("a claim loop ended by a panic; this instance is not ready any more", "source", l.q.name(), "panic", fmt.Sprint(r))
		}
		l.q.mu.Lock()
		delete(l.q.lanes, l)
		l.q.mu.Unlock()
	}()
	woken := true // the first look needs no hint
	for !closed(l.over) {
		next := off
		if l.q.enabled.Load() {
			next = round(woken)
		}
		woken = l.pause(next)
	}
}

// pause waits as the verdict says. It returns whether a wake-up ended it.
func (l *lane) pause(v verdict) (woken bool) {
	wake := l.wake
	var interval <-chan time.Time
	switch v {
	case again:
		return true
	case restFull:
		wake = nil
	case off, rest, refused:
	}
	if v != off {
		wait := l.q.cfg.RoundInterval
		if v == refused {
			wait = l.refusedFor
		}
		t := time.NewTimer(wait)
		defer t.Stop()
		interval = t.C
	}
	select {
	case <-wake:
		return true
	case <-interval:
		return v == refused // there was no look: what is due is claimed
	case <-l.over:
	}
	return false
}

// mayClaim returns the instance that may claim now.
func (l *lane) mayClaim() (model.InstanceID, bool) {
	id, ok := l.e.member.current()
	if l.owner != 0 && id != l.owner || l.lost != nil && closed(l.lost) {
		return 0, false
	}
	return id, ok
}

// call runs one call of the store. It is not cut short at shutdown: the store
// bounds it, and its effect must be known.
func (l *lane) call(op string, f func(ctx context.Context) error) error {
	l.storeSince.Store(time.Now().UnixNano())
	err := f(context.Background())
	l.storeSince.Store(0)
	l.q.failing.tell(err)
	if err != nil {
		l.e.metrics.storeErrors.WithLabelValues(op).Inc()
		l.e.log.Warn("consuming waits for the store", "source", l.q.name(), "op", op, "err", err)
	}
	return err
}

// anyDue looks without claiming.
func (l *lane) anyDue() (bool, error) {
	var due model.Due
	floor, done := l.floor.begin()
	err := l.call("look", func(ctx context.Context) (err error) {
		due, err = l.e.store.DueWork(ctx, model.DueParams{Queue: l.q.id(), KeyID: l.agreed.KeyID, Slots: l.slots, Floor: floor})
		return err
	})
	done()
	if floor == 0 && len(due.Slots) > 0 {
		l.floor.lift() // the claim must see it, too
	}
	return len(due.Slots) > 0 || due.Misplaced, err
}

// placeTries bounds how often a claim is made again because messages had come
// in under another agreement meanwhile.
const placeTries = 5

// claim takes due work and starts it, under a new token. On an error the claim
// may have been made all the same; it is given back.
func (l *lane) claim(owner model.InstanceID, limit int) (model.Token, []model.Work, error) {
	for range placeTries {
		token, claimed, err := l.claimOnce(owner, limit)
		switch {
		case err != nil:
			return token, nil, err
		case claimed.Outdated:
			signal(l.e.member.hurry) // the agreement has changed
			return token, nil, nil
		case !claimed.Misplaced:
			return token, claimed.Works, nil
		}
		if err := l.q.place(l); err != nil {
			return token, nil, err
		}
	}
	return 0, nil, nil
}

func (l *lane) claimOnce(owner model.InstanceID, limit int) (token model.Token, claimed model.Claimed, err error) {
	token = model.Token(randomID())
	l.e.running.use(token, 1)
	floor, done := l.floor.begin()
	err = l.call("claim", func(ctx context.Context) (err error) {
		claimed, err = l.e.store.ClaimWork(ctx, model.ClaimParams{
			Queue: l.q.id(), Owner: owner, Token: token, Limit: limit, Start: true, AloneFrom: aloneFrom(l.q.cfg.Policy), Bare: l.q.cfg.Bare,
			Generation: l.agreed.Generation, KeyID: l.agreed.KeyID, Slots: l.slots,
			Shared: l.agreed.Order == model.Parallel, Block: l.agreed.Block, Floor: floor,
		})
		return err
	})
	if err != nil {
		l.giveBack(token)
		l.e.running.use(token, -1)
		return token, model.Claimed{}, err
	}
	done()
	l.floor.claimed(claimed.Works)
	if len(claimed.Works) == 0 {
		l.e.running.use(token, -1)
		return token, claimed, nil
	}
	crashpoint.Hit(crashpoint.AfterClaim)
	crashpoint.Hit(crashpoint.AfterStart)
	if err := l.load(claimed.Works); err != nil {
		l.giveBack(token)
		l.e.running.use(token, -1)
		return token, model.Claimed{}, err
	}
	return token, claimed, nil
}

// loadBound is how long loading what was claimed may take.
const loadBound = 5 * time.Second

func (l *lane) load(works []model.Work) error {
	if l.q.cfg.Load == nil {
		return nil
	}
	return l.call("load", func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, loadBound)
		defer cancel()
		defer func() {
			if recover() != nil { // what it says may hold what was loaded
				err = errors.New("a panic while what was claimed was loaded")
			}
		}()
		return l.q.cfg.Load(ctx, works)
	})
}

func (l *lane) start(token model.Token, works []model.Work) (started []model.Work, err error) {
	err = l.call("start", func(ctx context.Context) (err error) {
		started, err = l.e.store.StartWork(ctx, model.StartParams{Token: token, Seqs: seqsOf(works), Bare: l.q.cfg.Bare})
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range started { // what was loaded with the claim
		if at := slices.IndexFunc(works, func(w model.Work) bool { return w.Seq == started[i].Seq }); at >= 0 {
			started[i].Outgoing = works[at].Outgoing
		}
	}
	if lost := len(works) - len(started); lost > 0 {
		l.fenced(lost)
	}
	crashpoint.Hit(crashpoint.AfterStart)
	return started, nil
}

// giveBack returns what is still processing under the token, and what nobody
// here executes. If that fails, the next heartbeat finds the claim. Where order
// counts that may be too late: the next round owes it first.
func (l *lane) giveBack(token model.Token) (ok bool) {
	l.floor.lift()
	err := l.call("give_back", func(ctx context.Context) error {
		_, err := l.e.store.GiveBack(ctx, l.q.id(), token)
		return err
	})
	if err != nil && l.agreed.Order != model.Parallel {
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

// settleOwed gives back what is owed before the partition is let go, for as
// long as it is this instance's to give.
func (l *lane) settleOwed(owner model.InstanceID) (settled bool) {
	for !l.giveBackOwed() {
		if id, ok := l.e.member.current(); ok && id != owner || closed(l.e.stopping) {
			return false // leaving, or being dead, lets others recover it
		}
		select {
		case <-time.After(settleRetryPause):
		case <-l.e.stopping:
		}
	}
	return true
}

func (l *lane) fenced(n int) {
	l.e.metrics.fenced.WithLabelValues(l.q.name()).Add(float64(n))
	l.e.log.Warn("fenced: others hold what this instance had claimed", "source", l.q.name(), "messages", n)
}

// mayBegin says whether a handler may begin: a process that was frozen since the
// claim, and beyond its lease, executes what may be another's by now no more.
func (l *lane) mayBegin(w model.Work) bool {
	id, ok := l.e.member.current()
	if ok && id == w.Owner {
		return true
	}
	l.e.metrics.notBegun.WithLabelValues(l.q.name()).Inc()
	l.e.log.Warn("claimed work is not begun: this instance's lease has run out since", "source", l.q.name(), "seq", w.Seq)
	return false
}

func (l *lane) began(w model.Work) *execution {
	l.e.running.begin(w)
	l.e.metrics.running.WithLabelValues(l.q.name()).Inc()
	return l.e.execute(l.q.cfg, w)
}

// outcome makes the settlement of an execution that ended. Its done tells
// everybody who wants to know.
func (l *lane) outcome(w model.Work, e ended, after func(applied bool)) pendingSettlement {
	crashpoint.Hit(crashpoint.AfterHandler)
	name, m := l.q.name(), l.e.metrics
	m.running.WithLabelValues(name).Dec()
	m.handling.WithLabelValues(name).Observe(e.duration.Seconds())
	s := settlementOf(w, e, l.q.cfg.Policy, l.e.jitter)
	late := s.Kind == model.SettleSuccess && e.timedOut
	return pendingSettlement{s, func(applied, certain bool) {
		if !applied && !certain && l.q.cfg.Policy.Delivers() {
			l.e.running.leave(w.Token) // it may have been sent: whoever recovers it says that
		}
		l.e.running.end(w)
		if !applied && certain {
			l.fenced(1)
		}
		if late {
			m.late.WithLabelValues(name).Inc()
		}
		m.attempts.WithLabelValues(name, s.Kind.String(), string(s.Reason)).Inc()
		observe := l.e.cfg.Observe
		if l.q.cfg.Observe != nil {
			observe = l.q.cfg.Observe
		}
		observe(Event{Queue: l.q.cfg.Source, Work: w, Kind: s.Kind, Reason: s.Reason, Error: s.Error,
			Duration: e.duration, Wait: s.Delay, Late: late, Lost: !applied && certain, Code: s.Code})
		after(applied || !certain)
	}}
}

func (l *lane) round(result string, v verdict) verdict {
	l.e.metrics.rounds.WithLabelValues(l.q.name(), result).Inc()
	return v
}

func seqsOf(works []model.Work) []model.Seq {
	seqs := make([]model.Seq, len(works))
	for i, w := range works {
		seqs[i] = w.Seq
	}
	return seqs
}
