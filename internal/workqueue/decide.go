package workqueue

import (
	"github.com/posthouse/posthouse/internal/model"
)

// needsCompanyOfNone says whether this attempt must run alone in its process:
// it is the last one, and the message was lost before. The one that kills
// processes then ends, and its neighbours do not end with it.
func needsCompanyOfNone(w model.Work, p model.RetryPolicy) bool {
	return w.Lost > 0 && p.Spent(w.RetryCount)
}

// settlementOf decides what becomes of work whose execution ended.
func settlementOf(w model.Work, e ended, p model.RetryPolicy) model.Settlement {
	s := model.Settlement{
		Seq: w.Seq, Queue: w.Queue, Token: w.Token,
		StartedAt: w.StartedAt, Duration: e.duration, RetryCount: w.RetryCount, Replay: w.Replay,
		HTTPStatus: e.HTTPStatus,
	}
	switch {
	case e.abandoned:
		s.Kind = model.SettleRelease
	case e.Postpone > 0:
		s.Kind, s.Delay = model.SettleRelease, e.Postpone
	case e.Err == nil:
		s.Kind = model.SettleSuccess
	case e.stopped:
		s.Kind = model.SettleRelease
	default:
		s.Kind, s.Reason, s.Error = model.SettleRetry, e.Reason, e.Err.Error()
		s.Delay = max(p.Wait(w.RetryCount), e.RetryAfter)
		if e.Permanent || p.Spent(w.RetryCount) {
			s.Kind, s.Delay = model.SettleFailed, 0
		}
	}
	return s
}

// recoveryOf decides what becomes of an orphan.
func recoveryOf(o model.Orphan) model.Settlement {
	s := model.Settlement{
		Seq: o.Seq, Queue: o.Queue, Token: o.Token,
		StartedAt: o.StartedAt, RetryCount: o.RetryCount, Replay: o.Replay,
	}
	if o.StartedAt == 0 { // claimed and never started: nothing was tried
		s.Kind = model.SettleRelease
		return s
	}
	s.Duration = o.Now.Sub(o.StartedAt)
	s.Kind, s.Delay = model.SettleRetry, o.Policy.Wait(o.RetryCount)
	spent := o.Policy.Spent(o.RetryCount)
	if o.OwnerDead {
		s.Lost, s.Reason, s.Error = true, model.ReasonWorkerLost, textWorkerLost
		// In company nobody knows which one killed the process: the last try
		// is not taken for it.
		spent = spent && o.Alone
	} else {
		s.Reason, s.Error = model.ReasonOrphaned, textOrphaned
	}
	if spent {
		s.Kind, s.Delay = model.SettleFailed, 0
	}
	return s
}

// What an operator reads where no handler has left a text.
const (
	textWorkerLost = "worker lost: the process that executed it died or was cut off"
	textOrphaned   = "the handler was still running when orphan_after had passed"
	textTimeout    = "the handler ran into its timeout"
)
