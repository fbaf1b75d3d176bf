package notify

import "github.com/posthouse/posthouse/internal/model"

// Status is where a request stands. It is never stored: it follows from its
// deliveries and from its aggregate, which is data.
type Status string

// The values of Status.
const (
	// StatusAccepted: kept, and no sending has begun.
	StatusAccepted Status = "accepted"
	// StatusInProgress: begun, and not decided. A delivery of which nobody knows
	// how it ended waits for an operator, and so is not decided.
	StatusInProgress Status = "in_progress"
	// StatusSucceeded: what the aggregate asks for has been sent, whatever comes
	// of the rest.
	StatusSucceeded Status = "succeeded"
	// StatusFailed: what the aggregate asks for cannot come about any more, even
	// if all that is undecided were sent, unless an operator replays something.
	StatusFailed Status = "failed"
	// StatusCancelled: nothing that counts is undecided, and without what was
	// cancelled or has expired it might have succeeded.
	StatusCancelled Status = "cancelled"
)

// Statuses lists all of them.
func Statuses() []Status {
	return []Status{StatusAccepted, StatusInProgress, StatusSucceeded, StatusFailed, StatusCancelled}
}

// standing is what became of one channel, from the worst to the best.
type standing int

const (
	lost      standing = iota // failed, dead, or skipped: no delivery was made
	cancelled                 // or expired
	open                      // not final
	sent
)

// StatusOf tells a request's status from its deliveries. A channel with several
// deliveries (a former address, an escalation) stands as its best one does. With
// the zero aggregate all channels must have sent that have a delivery; where
// there is none, the request has failed.
func StatusOf(v model.RequestView) Status {
	standings := make(map[string]standing, len(v.Deliveries))
	begun := false
	for _, d := range v.Deliveries {
		s := standingOf(d.Status)
		standings[d.Channel] = max(standings[d.Channel], s)
		begun = begun || hasBegun(d)
	}
	all, some := v.Request.Success.All, v.Request.Success.Any
	if len(all) == 0 && len(some) == 0 {
		for channel := range standings {
			all = append(all, channel)
		}
		if len(all) == 0 {
			return StatusFailed
		}
	}
	switch s := aggregate(standings, all, some); {
	case s == sent:
		return StatusSucceeded
	case s == cancelled:
		return StatusCancelled
	case s == lost:
		return StatusFailed
	case begun:
		return StatusInProgress
	}
	return StatusAccepted
}

// aggregate: all of them stand as the worst, one of them as the best, and both
// conditions as the worse one. Undecided weighs less than cancelled only where
// it may still decide.
func aggregate(standings map[string]standing, all, some []string) standing {
	worst, undecided := sent, false
	note := func(s standing) {
		undecided = undecided || s == open
		worst = min(worst, s)
	}
	for _, channel := range all {
		note(standings[channel])
	}
	if len(some) > 0 {
		best := lost
		for _, channel := range some {
			best = max(best, standings[channel])
		}
		note(best)
	}
	if worst == cancelled && undecided {
		return open // it may still fail
	}
	return worst
}

func standingOf(s model.DeliveryStatus) standing {
	switch s {
	case model.DeliverySucceeded, model.DeliveryDelivered:
		return sent
	case model.DeliveryPending, model.DeliveryProcessing, model.DeliveryRetryWait, model.DeliveryUncertain:
		return open
	case model.DeliveryCancelled:
		return cancelled
	case model.DeliveryFailed, model.DeliveryDead:
	}
	return lost
}

// hasBegun: somebody has tried to send it. What has succeeded without an attempt
// had nothing to send (in-app).
func hasBegun(d model.DeliveryView) bool {
	switch d.Status {
	case model.DeliveryPending, model.DeliverySucceeded, model.DeliveryDelivered:
		return d.AttemptCount > 0 || d.Replay > 0
	case model.DeliveryProcessing, model.DeliveryRetryWait, model.DeliveryFailed, model.DeliveryDead, model.DeliveryUncertain, model.DeliveryCancelled:
	}
	return true
}
