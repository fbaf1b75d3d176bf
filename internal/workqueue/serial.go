package workqueue

import (
	"context"
	"slices"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// Serial work is marked as started in groups, since each mark is a commit. A
// group grows while groups are quick, and is cut when it is not: what has not
// begun is unmarked, so that a crash burns no attempt of a message that merely
// waited behind a slow one.
const (
	maxGroup   = 32
	quickGroup = 5 * time.Millisecond
)

// serialRound takes the queue's lease, executes one batch in order, and lets
// go.
func (l *lane) serialRound(woken bool) verdict {
	if !woken {
		due, err := l.anyDue()
		if err != nil {
			return l.round("error", restFull)
		}
		if !due {
			return l.round("idle", rest)
		}
	}
	id, ok := l.e.member.current()
	if !ok {
		return l.round("error", restFull)
	}
	var lease model.Lease
	err := l.call("take_lease", func(ctx context.Context) (err error) {
		lease, err = l.e.store.TakeLease(ctx, l.queue.Source.ID, id)
		return err
	})
	if err != nil {
		return l.round("error", restFull)
	}
	if !lease.Held {
		return l.round("missed_lock", restFull)
	}
	defer l.dropLease(id)
	if lease.TakenOver {
		// Before anything is claimed: what the former holder left comes first.
		err := l.call("recover", l.e.recoverOrphans)
		if err != nil {
			return l.round("error", restFull)
		}
	}
	if !l.giveBackOwed() {
		return l.round("error", restFull)
	}
	token, works, err := l.claim(id, l.queue.BatchSize, false)
	if err != nil {
		return l.round("error", restFull)
	}
	if len(works) == 0 {
		return l.round("idle", rest)
	}
	b := batch{lane: l, token: token, left: works}
	b.execute(id)
	if b.dirty || len(b.left) > 0 {
		l.giveBack(token)
	}
	l.e.running.use(token, -1)
	switch {
	case b.failed:
		return l.round("error", restFull)
	case b.tripped:
		l.e.log.Warn("round ended early: too many timeouts in a row", "source", l.queue.Source.Name, "timeouts", l.queue.TripAfter)
		return l.round("tripped", restFull)
	case len(works) == l.queue.BatchSize:
		return l.round("worked", again)
	}
	return l.round("worked", rest)
}

func (l *lane) dropLease(id model.InstanceID) {
	_ = l.call("drop_lease", func(ctx context.Context) error {
		_, err := l.e.store.DropLease(ctx, l.queue.Source.ID, id)
		return err
	})
}

// batch is the claimed work of one serial round.
type batch struct {
	lane     *lane
	token    model.Token
	left     []model.Work // claimed, not started
	timeouts int          // in a row
	tripped  bool         // too many of them
	failed   bool         // the store failed, or others hold what was claimed
	dirty    bool         // work may be marked as started whose handler never ran
}

// over says whether the round must not go on.
func (b *batch) over(id model.InstanceID) bool {
	now, ok := b.lane.e.member.current()
	return len(b.left) == 0 || b.failed || b.tripped || closed(b.lane.e.stopping) || !ok || now != id || !b.lane.enabled.Load()
}

func (b *batch) execute(id model.InstanceID) {
	l := b.lane
	size := 1
	for !b.over(id) {
		if needsCompanyOfNone(b.left[0], l.queue.Policy) {
			b.alone()
			size = 1
			continue
		}
		n := 1
		for n < min(size, len(b.left)) && !needsCompanyOfNone(b.left[n], l.queue.Policy) {
			n++
		}
		if !l.e.gate.enter(l.e.stopping) {
			return
		}
		quick := b.group(n)
		l.e.gate.leave()
		size = min(2*size, maxGroup)
		if !quick {
			size = 1
		}
	}
}

// alone executes the first message of what is left while nothing else runs in
// this process. If the others do not end in time it is put off.
func (b *batch) alone() {
	l := b.lane
	leave, ok := l.e.gate.enterAlone(l.e.stopping, l.queue.Timeout)
	if !ok {
		if closed(l.e.stopping) {
			return
		}
		w := b.left[0]
		b.left = b.left[1:]
		l.e.metrics.alonePassed.Inc()
		l.e.completer.settle(putOff(w, l.queue))
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

// group starts the first n messages of what is left and executes them in
// order. It returns whether that was quick and none failed.
func (b *batch) group(n int) (quick bool) {
	l := b.lane
	started, err := l.start(b.token, b.left[:n])
	if err != nil {
		b.failed, b.dirty = true, true
		return false
	}
	if len(started) < n {
		b.failed = true // what is not ours any more is nobody's business here
	}
	b.left = b.left[n:]
	quick = true
	begun := time.Now()
	slow := time.NewTimer(quickGroup)
	defer slow.Stop()
	var outcomes []pendingSettlement
	cut := func(rest []model.Work) {
		quick = false
		b.settle(outcomes)
		outcomes = nil
		b.unstart(rest)
	}
	for i := 0; i < len(started); i++ {
		w := started[i]
		x := l.began(w)
		e, over := x.wait(slow.C)
		if !over {
			cut(started[i+1:])
			started = started[:i+1]
			e, _ = x.wait(nil)
		}
		outcomes = append(outcomes, l.outcome(w, e, func(applied bool) {
			if !applied {
				b.failed = true
			}
		}))
		quick = quick && e.Err == nil
		b.countTimeout(e)
		if rest := started[i+1:]; len(rest) > 0 && (b.tripped || closed(l.e.stopping) || time.Since(begun) > quickGroup) {
			cut(rest)
			break
		}
	}
	b.settle(outcomes)
	return quick
}

func (b *batch) countTimeout(e ended) {
	if !e.timedOut {
		b.timeouts = 0
		return
	}
	b.timeouts++
	b.tripped = b.tripped || b.timeouts >= b.lane.queue.TripAfter
}

// unstart takes the mark back from messages whose handlers have not begun, and
// puts them in front of what is left.
func (b *batch) unstart(works []model.Work) {
	if len(works) == 0 {
		return
	}
	err := b.lane.call("unstart", func(ctx context.Context) error {
		_, err := b.lane.e.store.UnstartWork(ctx, model.StartParams{Token: b.token, Seqs: seqsOf(works)})
		return err
	})
	if err != nil {
		b.failed, b.dirty = true, true
		return
	}
	b.left = append(slices.Clip(works), b.left...)
}

// settle writes outcomes and waits for that: in serial order nothing starts
// before what came before it is known to be settled.
func (b *batch) settle(outcomes []pendingSettlement) {
	if len(outcomes) == 0 {
		return
	}
	b.lane.e.completer.submitAndWait(outcomes)
}
