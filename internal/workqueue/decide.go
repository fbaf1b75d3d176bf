package workqueue

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// needsCompanyOfNone says whether this attempt must run alone in its process:
// it is the last one, and the message was lost before. The one that kills
// processes then ends, and its neighbours do not end with it. A delivery may have
// been sent when it was lost: its last try ends uncertain, in company or not.
func needsCompanyOfNone(w model.Work, p model.RetryPolicy) bool {
	return w.Lost > 0 && w.RetryCount >= aloneFrom(p)
}

// aloneFrom is the number of retries from which on it must.
func aloneFrom(p model.RetryPolicy) int {
	if p.Delivers() {
		return math.MaxInt32
	}
	return p.MaxRetry
}

// jitter draws the random part of a wait, from 0 to at most its argument.
type jitter func(most time.Duration) time.Duration

func randomPart(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return rand.N(most)
}

// settlementOf decides what becomes of work whose execution ended.
//
// The inbox promises at least once: what was cut short is given back, or has
// failed. A delivery may have been accepted by its provider when nobody heard how
// its attempt ended: that is uncertain, unless the Result says otherwise.
func settlementOf(w model.Work, e ended, p model.RetryPolicy, j jitter) model.Settlement {
	s := model.Settlement{
		Seq: w.Seq, Queue: w.Queue, Token: w.Token,
		StartedAt: w.StartedAt, Duration: e.duration, RetryCount: w.RetryCount, Replay: w.Replay,
		HTTPStatus: e.HTTPStatus,
	}
	switch {
	case p.Delivers() && (e.abandoned || e.orphaned || e.Uncertain && e.Err != nil):
		s.Reason, s.Error, s.Code = model.ReasonUncertain, textAbandoned, e.Code
		if !e.abandoned {
			s.Reason, s.Error = e.Reason, e.Err.Error()
		}
		inDoubt(&s, p, max(p.Wait(w.RetryCount), e.RetryAfter)+j(p.Jitter))
	case e.abandoned:
		s.Kind = model.SettleRelease
	case e.Postpone > 0:
		s.Kind, s.Delay = model.SettleRelease, e.Postpone
	case e.Err == nil:
		s.Kind, s.ProviderID = model.SettleSuccess, e.ProviderID
	case e.stopped:
		s.Kind = model.SettleRelease
	default:
		s.Kind, s.Reason, s.Error, s.Code = model.SettleRetry, e.Reason, e.Err.Error(), e.Code
		s.Delay = max(p.Wait(w.RetryCount), e.RetryAfter) + j(p.Jitter)
		switch {
		case e.Permanent:
			s.Kind, s.Delay = model.SettleFailed, 0
		case p.Spent(w.RetryCount):
			s.Kind, s.Delay = spentOf(p), 0
		}
	}
	return s
}

// spentOf is what becomes of work whose tries are spent.
func spentOf(p model.RetryPolicy) model.SettleKind {
	if p.Delivers() {
		return model.SettleDead
	}
	return model.SettleFailed
}

// inDoubt settles an attempt of a delivery of which nobody knows how it ended.
func inDoubt(s *model.Settlement, p model.RetryPolicy, wait time.Duration) {
	s.Uncertain = true
	if p.Uncertain == model.UncertainResend && !p.Spent(s.RetryCount) {
		s.Kind, s.Delay = model.SettleRetry, wait
		return
	}
	s.Kind, s.Delay = model.SettleUncertain, 0
}

// recoveryOf decides what becomes of an orphan.
func recoveryOf(o model.Orphan, j jitter) model.Settlement {
	s := model.Settlement{
		Seq: o.Seq, Queue: o.Queue, Token: o.Token,
		StartedAt: o.StartedAt, RetryCount: o.RetryCount, Replay: o.Replay,
	}
	if o.StartedAt == 0 { // claimed and never started: nothing was tried
		s.Kind = model.SettleRelease
		return s
	}
	s.Duration = o.Now.Sub(o.StartedAt)
	s.Kind, s.Delay = model.SettleRetry, o.Policy.Wait(o.RetryCount)+j(o.Policy.Jitter)
	spent := o.Policy.Spent(o.RetryCount)
	if o.OwnerDead {
		s.Lost, s.Reason, s.Error = true, model.ReasonWorkerLost, textWorkerLost
		// In company nobody knows which one killed the process: the last try
		// is not taken for it.
		spent = spent && o.Alone
	} else {
		s.Reason, s.Error = model.ReasonOrphaned, textOrphaned
	}
	switch {
	case o.Policy.Delivers():
		inDoubt(&s, o.Policy, s.Delay)
	case spent:
		s.Kind, s.Delay = model.SettleFailed, 0
	}
	return s
}

// What an operator reads where no handler has left a text.
const (
	textWorkerLost = "worker lost: the process that executed it died or was cut off"
	textOrphaned   = "the handler was still running when orphan_after had passed"
	textAbandoned  = "the handler was still running when the process could wait no longer"
	textTimeout    = "the handler ran into its timeout"
)
