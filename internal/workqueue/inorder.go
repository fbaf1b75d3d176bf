package workqueue

import (
	"context"
	"slices"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// Work in order is claimed and started in groups, since each is a commit. A
// group grows while groups are quick, and is cut when it is not: what has not
// begun is unmarked, so that a crash burns no attempt of a message that merely
// waited behind a slow one.
const (
	maxGroup   = 32
	quickGroup = 5 * time.Millisecond
)

// inOrder executes due work of this lane, one after the other, until nothing is
// due or the batch is full.
func (l *lane) inOrder(id model.InstanceID) verdict {
	if !l.giveBackOwed() {
		return l.round("error", restFull)
	}
	r := inOrderRound{lane: l, owner: id}
	for taken := 0; taken < l.q.cfg.BatchSize && !r.over(); {
		n, err := r.step(min(l.size, l.q.cfg.BatchSize-taken))
		if err != nil {
			return l.round("error", restFull)
		}
		if taken += n; n > 0 {
			continue
		}
		if taken == 0 {
			return l.round("idle", rest)
		}
		return l.round("worked", rest)
	}
	switch {
	case r.failed:
		return l.round("error", restFull)
	case r.over() && !r.tripped:
		// The lease is not renewed, the lock is lost, or the source is switched off.
		if r.claims == 0 {
			return restFull
		}
		return l.round("worked", restFull)
	case r.tripped:
		l.e.log.Warn("round ended early: too many timeouts in a row", "source", l.q.name(), "timeouts", l.q.cfg.TripAfter)
		return l.round("tripped", restFull)
	}
	return l.round("worked", again)
}

// inOrderRound is what a round knows beyond one claim.
type inOrderRound struct {
	lane     *lane
	owner    model.InstanceID
	claims   int  // that brought work
	timeouts int  // in a row
	tripped  bool // too many of them
	failed   bool // the store failed, or others hold what was claimed
}

// over says whether the round must not go on.
func (r *inOrderRound) over() bool {
	now, ok := r.lane.mayClaim()
	return r.failed || r.tripped || closed(r.lane.over) || !ok || now != r.owner || !r.lane.q.enabled.Load()
}

// step claims at most n messages and executes them.
func (r *inOrderRound) step(n int) (taken int, err error) {
	l := r.lane
	if !l.e.gate.enter(l.over) {
		return 0, nil
	}
	b := batch{inOrderRound: r, inside: true}
	defer b.leaveGate()
	b.token, b.left, err = l.claim(r.owner, n)
	if err != nil || len(b.left) == 0 {
		return 0, err
	}
	defer l.e.running.use(b.token, -1)
	taken = len(b.left)
	r.claims++
	b.execute()
	if (b.dirty || len(b.left) > 0) && !b.giveBackLeft() {
		r.failed = true // what the claim holds must not be overtaken
	}
	return taken, nil
}

// batch is the work of one claim.
type batch struct {
	*inOrderRound
	token  model.Token
	left   []model.Work // whose handlers have not begun; started_at tells whether they are marked
	inside bool         // the gate
	dirty  bool         // work may be marked as started whose handler never ran
}

func (b *batch) leaveGate() {
	if b.inside {
		b.lane.e.gate.leave()
		b.inside = false
	}
}

func (b *batch) execute() {
	l := b.lane
	for len(b.left) > 0 && !b.over() {
		if needsCompanyOfNone(b.left[0], l.q.cfg.Policy) {
			b.leaveGate()
			b.alone()
			l.size = 1
			continue
		}
		if !b.inside {
			if !l.e.gate.enter(l.over) {
				return
			}
			b.inside = true
		}
		n := 1
		for n < min(max(l.size, 1), len(b.left)) && !needsCompanyOfNone(b.left[n], l.q.cfg.Policy) {
			n++
		}
		quick := b.group(n)
		b.leaveGate()
		l.size = min(2*l.size, maxGroup)
		if !quick {
			l.size = 1
		}
	}
}

// alone executes the first message of what is left while nothing else runs in
// this process. If the others do not end in time it is put off.
func (b *batch) alone() {
	l := b.lane
	if b.unmark(b.left[1:]); b.failed {
		return
	}
	leave, ok := l.e.gate.enterAlone(l.over, l.q.cfg.Timeout)
	if !ok {
		if closed(l.over) {
			return
		}
		w := b.left[0]
		b.left = b.left[1:]
		l.e.metrics.alonePassed.Inc()
		l.e.completer.settle(putOff(w, l.q.cfg))
		if l.agreed.Block {
			b.block(w)
		}
		return
	}
	defer leave()
	b.group(1)
}

// putOff gives work back that could not run alone.
func putOff(w model.Work, q *QueueConfig) model.Settlement {
	return model.Settlement{Seq: w.Seq, Queue: w.Queue, Token: w.Token, Kind: model.SettleRelease,
		Delay: max(q.RoundInterval, time.Second)}
}

// marked starts those of the first n messages of what is left that are not
// marked as started yet, and takes them out.
func (b *batch) marked(n int) []model.Work {
	group := b.left[:n:n]
	from := slices.IndexFunc(group, func(w model.Work) bool { return w.StartedAt == 0 })
	if from < 0 {
		b.left = b.left[n:]
		return group
	}
	if from > 0 { // what is marked goes first
		b.left = b.left[from:]
		return group[:from:from]
	}
	to := n
	if next := slices.IndexFunc(group, func(w model.Work) bool { return w.StartedAt != 0 }); next > 0 {
		to = next
	}
	started, err := b.lane.start(b.token, group[:to])
	if err != nil {
		b.failed, b.dirty = true, true
		return nil
	}
	if len(started) < to {
		b.failed = true // what is not ours any more is nobody's business here
	}
	b.left = b.left[to:]
	return started
}

// group executes the first n messages of what is left, in order. It returns
// whether that was quick and none failed.
func (b *batch) group(n int) (quick bool) {
	l := b.lane
	started := b.marked(n)
	quick = !b.failed
	begun := time.Now()
	slow := time.NewTimer(quickGroup)
	defer slow.Stop()
	var outcomes []pendingSettlement
	cut := func(rest []model.Work) {
		quick = false
		b.settle(outcomes)
		outcomes = nil
		b.left = append(slices.Clip(rest), b.left...)
		b.unmark(b.left)
	}
	for i := 0; i < len(started); i++ {
		w := started[i]
		if !l.mayBegin(w) {
			cut(started[i:])
			b.failed, b.dirty = true, true
			break
		}
		x := l.began(w)
		e, over := x.wait(slow.C)
		if !over {
			cut(started[i+1:])
			started = started[:i+1]
			e, _ = x.wait(nil)
		}
		outcome := l.outcome(w, e, func(applied bool) {
			if !applied {
				b.failed = true
			}
		})
		outcomes = append(outcomes, outcome)
		quick = quick && e.Err == nil
		b.countTimeout(e)
		blocks := l.agreed.Block && outcome.Kind != model.SettleSuccess
		if rest := started[i+1:]; blocks || len(rest) > 0 && (b.tripped || closed(l.over) || time.Since(begun) > quickGroup) {
			cut(rest)
			if blocks {
				b.block(w)
			}
			break
		}
	}
	b.settle(outcomes)
	return quick
}

// giveBackLeft gives back what has not begun. The claim as a whole only where it
// holds nothing that may have been sent.
func (b *batch) giveBackLeft() (ok bool) {
	if !b.lane.e.running.isLeft(b.token) {
		return b.lane.giveBack(b.token)
	}
	b.lane.floor.lift()
	left := make([]model.Settlement, len(b.left))
	for i, w := range b.left {
		left[i] = notBegun(w)
	}
	b.lane.e.completer.settle(left...)
	return true
}

// block gives back what is left of the key of w: it may not overtake it.
func (b *batch) block(w model.Work) {
	var followers []model.Settlement
	b.left = slices.DeleteFunc(slices.Clone(b.left), func(f model.Work) bool {
		if f.Key.Hash != w.Key.Hash {
			return false
		}
		followers = append(followers, model.Settlement{Seq: f.Seq, Queue: f.Queue, Token: f.Token, Kind: model.SettleRelease})
		return true
	})
	if len(followers) > 0 {
		b.lane.e.completer.settle(followers...)
		b.lane.floor.lift()
	}
}

func (b *batch) countTimeout(e ended) {
	if !e.timedOut {
		b.timeouts = 0
		return
	}
	b.timeouts++
	b.tripped = b.tripped || b.timeouts >= b.lane.q.cfg.TripAfter
}

// unmark takes the mark back from those of the works that have it. Their
// handlers have not begun.
func (b *batch) unmark(works []model.Work) {
	var marked []model.Work
	for _, w := range works {
		if w.StartedAt != 0 {
			marked = append(marked, w)
		}
	}
	if len(marked) == 0 {
		return
	}
	err := b.lane.call("unstart", func(ctx context.Context) error {
		_, err := b.lane.e.store.UnstartWork(ctx, model.StartParams{Token: b.token, Seqs: seqsOf(marked)})
		return err
	})
	if err != nil {
		b.failed, b.dirty = true, true
		return
	}
	for i := range works {
		works[i].StartedAt, works[i].Message = 0, nil
	}
}

// settle writes outcomes and waits for that: nothing starts before what came
// before it is known to be settled.
func (b *batch) settle(outcomes []pendingSettlement) {
	if len(outcomes) > 0 {
		b.lane.e.completer.submitAndWait(outcomes)
	}
}
