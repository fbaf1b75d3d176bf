package storetest

import (
	"cmp"
	"slices"

	"github.com/posthouse/posthouse/internal/model"
)

// oracle is what a store is, without a database: the property test asks it
// what the store must answer. Its clock counts the changes made; what waits is
// not due within any test.
type oracle struct {
	now      int64
	messages []*truth // by seq
	living   map[model.InstanceID]bool
	expired  map[model.InstanceID]bool // living, and its lease has run out
	left     map[model.InstanceID]int  // dead, and how many started works it left
	leases   map[model.Partition]model.InstanceID
}

// later is added to the time of what waits.
const later = 1 << 40

// truth is all that is to be known of one message.
type truth struct {
	model.NewMessage
	seq      model.Seq
	state    model.State
	due      int64
	token    model.Token
	owner    model.InstanceID
	started  bool
	retries  int
	lost     int
	replay   int
	attempts []model.AttemptView // without times; the last one is success where state is, unless imported
}

func newOracle() *oracle {
	return &oracle{living: map[model.InstanceID]bool{}, expired: map[model.InstanceID]bool{},
		left: map[model.InstanceID]int{}, leases: map[model.Partition]model.InstanceID{}}
}

func (o *oracle) put(how model.Put, messages []model.NewMessage) (kept []*truth) {
	o.now++
	for _, m := range messages {
		if slices.ContainsFunc(o.messages, func(t *truth) bool { return t.ID == m.ID }) {
			continue
		}
		t := &truth{NewMessage: m, due: o.now}
		if how == model.PutSuccess {
			t.state = model.Success
		}
		o.messages = append(o.messages, t)
		kept = append(kept, t)
	}
	return kept
}

// of lists messages of a queue (0: of all) that are as wanted.
func (o *oracle) of(queue model.SourceID, wanted func(*truth) bool) (found []*truth) {
	for _, t := range o.messages {
		if (queue == 0 || t.Source == queue) && wanted(t) {
			found = append(found, t)
		}
	}
	return found
}

func (t *truth) in(state model.State) bool { return t.state == state }

func (o *oracle) due(queue model.SourceID) []*truth {
	due := o.of(queue, func(t *truth) bool { return t.in(model.Pending) && t.due < later })
	slices.SortStableFunc(due, byDue)
	return due
}

func byDue(a, b *truth) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq)) }

// misplaced lists pending work outside of the slots of the KeyID.
func (o *oracle) misplaced(queue model.SourceID, id model.KeyID) []*truth {
	from, to := id.SlotRange()
	return o.of(queue, func(t *truth) bool { return t.in(model.Pending) && (t.Key.Slot < from || t.Key.Slot >= to) })
}

// dueIn is due work of some slots.
func (o *oracle) dueIn(queue model.SourceID, slots []model.Slot) []*truth {
	return slices.DeleteFunc(o.due(queue), func(t *truth) bool { return !slices.Contains(slots, t.Key.Slot) })
}

// unblocked passes over what something of its key keeps back. What waits for
// another one becomes due with that one.
func (o *oracle) unblocked(due []*truth) (free []*truth) {
	held := map[int64]bool{}
	until := map[*truth]int64{}
	for _, t := range due {
		for _, h := range o.of(t.Source, func(h *truth) bool { return h.Key.Hash == t.Key.Hash && h.seq < t.seq }) {
			if h.in(model.Processing) || h.in(model.Pending) && h.due > t.due {
				held[t.Key.Hash] = true
			}
			if h.in(model.Pending) && h.due > t.due {
				until[t] = max(until[t], h.due)
			}
		}
		if !held[t.Key.Hash] {
			free = append(free, t)
		}
	}
	for t, due := range until {
		t.due = due
	}
	return free
}

func (o *oracle) claim(p model.ClaimParams) []*truth {
	if !o.living[p.Owner] {
		return nil
	}
	o.now++
	due := o.dueIn(p.Queue, p.Slots)
	if p.Block {
		due = o.unblocked(due)
	}
	due = due[:min(len(due), p.Limit)]
	for _, t := range due {
		t.state, t.token, t.owner = model.Processing, p.Token, p.Owner
		t.started = p.Start && (t.lost == 0 || t.retries < p.AloneFrom)
	}
	return due
}

// held finds the message where it is processing under the token.
func (o *oracle) held(seq model.Seq, token model.Token) *truth {
	for _, t := range o.messages {
		if t.seq == seq && t.in(model.Processing) && t.token == token {
			return t
		}
	}
	return nil
}

// mark sets or takes back the start of what is held, and returns what changed.
func (o *oracle) mark(p model.StartParams, started bool) (changed []*truth) {
	o.now++
	for _, seq := range p.Seqs {
		if t := o.held(seq, p.Token); t != nil && t.started != started && (o.living[t.owner] || !started) {
			t.started = started
			changed = append(changed, t)
		}
	}
	return changed
}

func (t *truth) release(state model.State) {
	t.state, t.token, t.owner, t.started = state, 0, 0, false
}

func (o *oracle) giveBack(queue model.SourceID, token model.Token) int {
	given := o.of(queue, func(t *truth) bool { return t.in(model.Processing) && t.token == token })
	for _, t := range given {
		t.release(model.Pending)
	}
	return len(given)
}

func (o *oracle) claims(owner model.InstanceID) map[model.Claim]bool {
	claims := map[model.Claim]bool{}
	for _, t := range o.of(0, func(t *truth) bool { return t.in(model.Processing) && t.owner == owner }) {
		claims[model.Claim{Queue: t.Source, Token: t.token}] = true
	}
	return claims
}

func (o *oracle) settle(settlements []model.Settlement) []bool {
	o.now++
	applied := make([]bool, len(settlements))
	for i, s := range settlements {
		t := o.held(s.Seq, s.Token)
		if t == nil {
			continue
		}
		applied[i] = true
		due := o.now
		if s.Delay > 0 {
			due += later
		}
		attempt := model.AttemptView{Replay: s.Replay, N: s.RetryCount + 1, Outcome: model.OutcomeFailed,
			Reason: s.Reason, Error: model.CleanError(s.Error), HTTPStatus: s.HTTPStatus}
		if s.Lost {
			attempt.Outcome = model.OutcomeLost
		}
		switch s.Kind {
		case model.SettleSuccess:
			t.release(model.Success)
			attempt.Outcome, attempt.Reason, attempt.Error = model.OutcomeSuccess, "", ""
		case model.SettleRelease:
			t.release(model.Pending)
			if s.Delay > 0 {
				t.due = due
			}
			continue
		case model.SettleRetry:
			t.release(model.Pending)
			t.due = due
		case model.SettleFailed:
			t.release(model.Failed)
			t.due = o.now
		}
		if s.Kind != model.SettleSuccess {
			t.retries++
			if s.Lost {
				t.lost++
			}
		}
		t.attempts = append(t.attempts, attempt)
	}
	return applied
}

func (o *oracle) replayOf(t *truth, force bool) model.ReplayResult {
	switch {
	case t == nil:
		return model.ReplayNotFound
	case t.in(model.Success) && force:
		// The outcome goes, and with it the attempt that it stood for.
		if n := len(t.attempts); n > 0 && t.attempts[n-1].Outcome == model.OutcomeSuccess {
			t.attempts = t.attempts[:n-1]
		}
		t.Key = model.Key{} // it went with the work
	case t.in(model.Failed):
	default:
		return model.ReplayRefused
	}
	t.state, t.due, t.retries, t.lost = model.Pending, o.now, 0, 0
	t.replay++
	return model.Replayed
}

// die declares an instance dead.
func (o *oracle) die(id model.InstanceID) {
	if !o.living[id] {
		return
	}
	o.living[id], o.expired[id] = false, false
	o.left[id] = len(o.of(0, func(t *truth) bool { return t.in(model.Processing) && t.owner == id && t.started }))
}

func (o *oracle) beat(p model.HeartbeatParams) bool {
	if !o.living[p.Instance] {
		return false
	}
	o.expired[p.Instance] = false
	if p.Bury {
		for id, expired := range o.expired {
			if expired {
				o.die(id)
			}
		}
	}
	o.expired[p.Instance] = p.LeaseFor < hour
	return true
}

func (o *oracle) orphans() []*truth {
	return o.of(0, func(t *truth) bool { return t.in(model.Processing) && !o.living[t.owner] })
}

func (o *oracle) take(p model.Partition, id model.InstanceID) model.Lease {
	holder := o.leases[p]
	if !o.living[id] || holder != id && o.living[holder] {
		return model.Lease{}
	}
	o.leases[p] = id
	return model.Lease{Held: true, TakenOver: holder != 0 && holder != id}
}

func (o *oracle) drop(p model.Partition, id model.InstanceID) bool {
	held := o.leases[p] == id
	if held {
		o.leases[p] = 0
	}
	return held
}

func (t *truth) passes(filter model.Filter) bool {
	switch filter {
	case model.OnlyPending:
		return t.in(model.Pending) && t.retries == 0
	case model.OnlyRetrying:
		return t.in(model.Pending) && t.retries > 0
	case model.OnlyProcessing:
		return t.in(model.Processing)
	case model.OnlySuccess:
		return t.in(model.Success)
	case model.OnlyFailed:
		return t.in(model.Failed)
	}
	return true
}

func (o *oracle) list(queue model.SourceID, filter model.Filter) []*truth {
	found := o.of(queue, func(t *truth) bool { return t.passes(filter) })
	if filter != model.AnyState && filter != model.OnlySuccess {
		slices.SortStableFunc(found, byDue)
	}
	slices.Reverse(found)
	return found
}

func (o *oracle) stats(queue model.SourceID) (s model.SourceStats) {
	for _, t := range o.of(queue, func(*truth) bool { return true }) {
		switch {
		case t.passes(model.OnlyPending):
			s.Pending++
		case t.passes(model.OnlyRetrying):
			s.Retrying++
		case t.in(model.Processing):
			s.Processing++
		case t.in(model.Success):
			s.Success++
		case t.in(model.Failed):
			s.Failed++
		}
	}
	s.Due = int64(len(o.due(queue)))
	return s
}
