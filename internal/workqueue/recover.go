package workqueue

import (
	"context"
	"sync"

	"github.com/posthouse/posthouse/internal/model"
)

const recoverPage = 500 // orphans read at once

// running remembers what is executing in this process, so that its own
// recovery leaves that alone, and which claims it knows of.
type running struct {
	mu     sync.Mutex
	seqs   map[model.Seq]model.Token
	tokens map[model.Token]int // claims in use
	doubt  map[model.Token]bool
	// left are claims that are not given back though nobody here uses them: of a
	// delivery that may have been sent, while its outcome could not be written. It
	// says whether the last look missed the claim.
	left map[model.Token]bool
}

func newRunning() *running {
	return &running{seqs: map[model.Seq]model.Token{}, tokens: map[model.Token]int{}, doubt: map[model.Token]bool{}, left: map[model.Token]bool{}}
}

func (r *running) begin(w model.Work) {
	r.mu.Lock()
	r.seqs[w.Seq] = w.Token
	r.mu.Unlock()
}

func (r *running) end(w model.Work) {
	r.mu.Lock()
	if r.seqs[w.Seq] == w.Token {
		delete(r.seqs, w.Seq)
	}
	r.mu.Unlock()
}

func (r *running) has(seq model.Seq, token model.Token) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seqs[seq] == token
}

// use makes a claim known before the store hears of it, n times; -n is its end.
func (r *running) use(t model.Token, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tokens[t] += n; r.tokens[t] <= 0 {
		delete(r.tokens, t)
	}
}

// leave keeps a claim from being given back, until the store holds it no more.
func (r *running) leave(t model.Token) {
	r.mu.Lock()
	r.left[t] = false
	r.mu.Unlock()
}

func (r *running) isLeft(t model.Token) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, left := r.left[t]
	return left
}

// unknown picks, of the claims that the store holds for this instance, those
// that nobody here uses, now and at the last look: a claim whose call failed
// though it was committed.
func (r *running) unknown(claims []model.Claim) []model.Claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	var stale []model.Claim
	doubt, held := map[model.Token]bool{}, map[model.Token]bool{}
	for _, c := range claims {
		held[c.Token] = true
		_, left := r.left[c.Token]
		switch {
		case left || r.tokens[c.Token] > 0:
		case r.doubt[c.Token]:
			stale = append(stale, c)
		default:
			doubt[c.Token] = true
		}
	}
	r.doubt = doubt
	for t, missed := range r.left {
		if missed && !held[t] { // twice: the first look may be older than the claim
			delete(r.left, t)
			continue
		}
		r.left[t] = !held[t]
	}
	return stale
}

// recoverLoop brings orphans back after every heartbeat, for all queues.
func (e *Engine) recoverLoop(ctx context.Context) {
	for {
		select {
		case <-e.recoverNow:
		case <-ctx.Done():
			return
		}
		err := e.recoverOrphans(ctx)
		if ctx.Err() == nil {
			e.recovering.tell(err)
		}
		if err != nil && ctx.Err() == nil {
			e.metrics.storeErrors.WithLabelValues("recover").Inc()
			e.log.Warn("recovery failed; it is tried again at the next heartbeat", "err", err)
		}
		if err := e.giveBackUnknown(ctx); err != nil && ctx.Err() == nil {
			e.metrics.storeErrors.WithLabelValues("recover").Inc()
			e.log.Warn("claims in doubt could not be given back; tried again at the next heartbeat", "err", err)
		}
	}
}

// recoverOrphans settles every orphan that is there now, but those that this
// very process executes.
func (e *Engine) recoverOrphans(ctx context.Context) error {
	for {
		orphans, err := e.store.Orphans(ctx, recoverPage)
		if err != nil {
			return err
		}
		var settlements []model.Settlement
		for _, o := range orphans {
			if e.running.has(o.Seq, o.Token) {
				continue
			}
			settlements = append(settlements, recoveryOf(o, e.jitter))
		}
		if len(settlements) == 0 {
			return nil
		}
		lost := e.completer.settle(settlements...)
		e.recovered(settlements, lost == len(settlements))
		if len(orphans) < recoverPage || lost == len(settlements) {
			return nil
		}
	}
}

// recovered tells what was recovered, unless others were faster.
func (e *Engine) recovered(settlements []model.Settlement, byOthers bool) {
	retried := map[model.SourceID]bool{}
	for _, s := range settlements {
		retried[s.Queue] = true
		if byOthers {
			continue
		}
		e.metrics.recovered.WithLabelValues(e.nameOf(s.Queue), s.Kind.String()).Inc()
		switch s.Kind {
		case model.SettleFailed:
			e.log.Error("a message was lost with its worker, for the last time", "source", e.nameOf(s.Queue), "seq", s.Seq, "reason", s.Reason)
		case model.SettleUncertain:
			if q := e.queues[s.Queue]; q != nil && q.cfg.Observe != nil {
				q.cfg.Observe(Event{
					Queue: q.cfg.Source, Work: model.Work{Seq: s.Seq, Queue: s.Queue, StartedAt: s.StartedAt, RetryCount: s.RetryCount, Replay: s.Replay},
					Kind: s.Kind, Reason: s.Reason, Error: s.Error, Code: string(s.Reason), Duration: s.Duration,
				})
				continue
			}
			e.log.Error("a delivery was lost with its worker: nobody knows whether it was sent; it waits for an operator", "source", e.nameOf(s.Queue), "seq", s.Seq, "reason", s.Reason)
		case model.SettleSuccess, model.SettleRetry, model.SettleRelease, model.SettleDead:
		}
	}
	for queue := range retried {
		e.Wake(queue)
	}
}

func (e *Engine) giveBackUnknown(ctx context.Context) error {
	id, ok := e.member.current()
	if !ok {
		return nil
	}
	claims, err := e.store.Claims(ctx, id)
	if err != nil {
		return err
	}
	for _, c := range e.running.unknown(claims) {
		n, err := e.store.GiveBack(ctx, c.Queue, c.Token)
		if err != nil {
			return err
		}
		if n > 0 {
			e.metrics.recovered.WithLabelValues(e.nameOf(c.Queue), doubtfulClaim).Add(float64(n))
			e.Wake(c.Queue)
		}
	}
	return nil
}
