package workqueue

import (
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// parallelRound claims as much due work as there are free slots, and starts
// it. It waits for no handler: executions end, and are settled, on their own.
func (l *lane) parallelRound(woken bool) verdict {
	q := l.q
	if !l.e.completer.waitForRoom(l.over) || !q.acquire(l.over) {
		return rest
	}
	if !q.enabled.Load() { // switched off while it waited
		<-q.slots
		return off
	}
	if q.tripped() { // looked at with a free slot in hand: what ended before it has counted
		<-q.slots
		return l.round("tripped", restFull)
	}
	taken := 1
	for taken < q.cfg.BatchSize && q.tryAcquire() {
		taken++
	}
	admitted, again := l.admit(taken)
	started, verdict := 0, refused
	if l.refusedFor = again; admitted > 0 {
		started, verdict = l.fill(admitted, woken)
		l.unused(admitted - started)
	}
	for range taken - started {
		<-q.slots
	}
	return verdict
}

// admit asks how many of n executions may begin.
func (l *lane) admit(n int) (admitted int, again time.Duration) {
	if l.q.cfg.Admit == nil {
		return n, 0
	}
	admitted, again = l.q.cfg.Admit.Admit(n)
	return min(admitted, n), again
}

func (l *lane) unused(n int) {
	if l.q.cfg.Admit != nil && n > 0 {
		l.q.cfg.Admit.Unused(n)
	}
}

// fill claims and starts at most n messages.
func (l *lane) fill(n int, woken bool) (started int, v verdict) {
	if !woken {
		due, err := l.anyDue()
		if err != nil {
			return 0, l.round("error", restFull)
		}
		if !due {
			return 0, l.round("idle", rest)
		}
	}
	id, ok := l.mayClaim()
	if !ok {
		return 0, l.round("error", restFull)
	}
	// Claimed work is started work here: whoever must be alone waits for it.
	if !l.e.gate.enter(l.over) {
		return 0, rest
	}
	defer l.e.gate.leave()
	token, works, err := l.claim(id, n)
	if err != nil {
		return 0, l.round("error", restFull)
	}
	if len(works) == 0 {
		return 0, l.round("idle", rest)
	}
	l.e.running.use(token, len(works)-1) // one use for each; claim made the first
	for _, w := range works {
		if needsCompanyOfNone(w, l.q.cfg.Policy) {
			go l.executeAlone(w)
			continue
		}
		l.e.gate.add(1)
		go l.executeBeside(w)
	}
	if len(works) == n {
		return n, l.round("worked", again)
	}
	return len(works), l.round("worked", rest)
}

func (l *lane) executeBeside(w model.Work) {
	l.finish(w, l.e.gate.leave)
}

// executeAlone waits until nothing else runs in this process; if the others do
// not end in time, the message is put off.
func (l *lane) executeAlone(w model.Work) {
	release := func() {
		l.e.running.use(w.Token, -1)
		l.unused(1)
		<-l.q.slots
	}
	leave, ok := l.e.gate.enterAlone(l.over, l.q.cfg.Timeout)
	if !ok {
		l.e.metrics.alonePassed.Inc()
		l.e.completer.settle(putOff(w, l.q.cfg))
		release()
		return
	}
	started, err := l.start(w.Token, []model.Work{w})
	if err != nil || len(started) == 0 {
		// In doubt: the heartbeat finds the claim, since it is not used here.
		leave()
		release()
		return
	}
	l.finish(started[0], leave)
}

// finish executes started work and settles what came of it.
func (l *lane) finish(w model.Work, leave func()) {
	if !l.mayBegin(w) {
		l.unused(1)
		l.e.completer.submit(pendingSettlement{notBegun(w), func(applied, certain bool) {
			if !applied && certain {
				l.fenced(1)
			}
			leave()
			l.e.running.use(w.Token, -1)
		}})
		<-l.q.slots
		return
	}
	e, _ := l.began(w).wait(nil)
	if e.timedOut {
		l.q.streak.Add(1)
	} else {
		l.q.streak.Store(0)
	}
	l.e.completer.submit(l.outcome(w, e, func(bool) {
		leave()
		l.e.running.use(w.Token, -1)
	}))
	<-l.q.slots
}

// notBegun gives work back whose handler did not begin.
func notBegun(w model.Work) model.Settlement {
	return model.Settlement{Seq: w.Seq, Queue: w.Queue, Token: w.Token, Kind: model.SettleRelease}
}

func (q *queue) tripped() bool {
	if q.streak.Load() < int64(q.cfg.TripAfter) {
		return false
	}
	q.streak.Store(0)
	q.e.log.Warn("claiming pauses for a round: too many timeouts in a row", "source", q.name(), "timeouts", q.cfg.TripAfter)
	return true
}

func (q *queue) acquire(stop <-chan struct{}) bool {
	select {
	case q.slots <- struct{}{}:
		return true
	case <-stop:
		return false
	}
}

func (q *queue) tryAcquire() bool {
	select {
	case q.slots <- struct{}{}:
		return true
	default:
		return false
	}
}
