package storetest

import (
	"fmt"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func deliveryStates(c *center) {
	c.run("NC-21 every operation in every state", everyStep)
	c.run("NC-21 a token that is stale after recovery changes nothing", staleDelivery)
}

// parcel is one delivery with whatever its last claim was.
type parcel struct {
	channel model.Source
	owner   model.InstanceID
	expires model.Micros
	request model.NewRequest
	id      uuid.UUID
	work    model.Work // as last claimed; zero before
}

func (p *parcel) accept(c *center) {
	c.Helper()
	p.request = c.request("u1", p.channel)
	p.request.ExpiresAt = p.expires
	c.accept(p.request)
	p.id = p.request.Deliveries[0].ID
}

func (p *parcel) start(c *center) {
	c.Helper()
	p.accept(c)
	p.work = c.pickStarted(p.channel.ID, p.owner, 1)[0]
}

// finished makes a delivery whose first attempt ended so.
func finished(kind model.SettleKind) func(*center, *parcel) {
	return func(c *center, p *parcel) {
		c.Helper()
		p.start(c)
		c.end(kind, p.work)
	}
}

// The states of NC-21, told apart further where the rows differ.
var parcelMakers = []struct {
	name string
	make func(c *center, p *parcel)
}{
	{"PENDING", func(c *center, p *parcel) { p.accept(c) }},
	{"RETRY_WAIT", finished(model.SettleRetry)},
	{"claimed", func(c *center, p *parcel) {
		p.accept(c)
		p.work = c.pick(p.channel.ID, p.owner, 1)[0]
	}},
	{"started", func(c *center, p *parcel) { p.start(c) }},
	{"SUCCEEDED", finished(model.SettleSuccess)},
	{"DELIVERED", func(c *center, p *parcel) {
		p.start(c)
		c.end(model.SettleSuccess, p.work)
		c.change(`UPDATE posthouse_outcome SET delivered_at = finished_at + 1 WHERE seq = %d`, p.work.Seq)
	}},
	{"inserted", func(c *center, p *parcel) {
		p.request = c.seenBy(c.request("u1"), p.channel)
		p.request.ExpiresAt = p.expires
		c.accept(p.request)
		p.id = p.request.Deliveries[0].ID
	}},
	{"FAILED", finished(model.SettleFailed)},
	{"DEAD", finished(model.SettleDead)},
	{"UNCERTAIN", finished(model.SettleUncertain)},
	{"resolved", func(c *center, p *parcel) {
		p.start(c)
		c.end(model.SettleUncertain, p.work)
		result, err := c.ResolveDelivery(c.ctx(), p.id, true, by)
		c.must(err)
		if !result.Done {
			c.Fatalf("resolved as %+v", result)
		}
	}},
	{"CANCELLED", func(c *center, p *parcel) {
		p.accept(c)
		_, err := c.CancelRequest(c.ctx(), p.request.ID, by)
		c.must(err)
	}},
}

// step tries something and says whether the store reports an effect.
type step struct {
	name    string
	expires bool // on a delivery whose time has passed
	try     func(c *center, p *parcel) bool
}

// resolve tries to resolve a delivery.
func resolve(sent bool) func(c *center, p *parcel) bool {
	return func(c *center, p *parcel) bool {
		result, err := c.ResolveDelivery(c.ctx(), p.id, sent, by)
		c.must(err)
		return c.told(p.id, result)
	}
}

// replayWith tries to replay a delivery.
func replayWith(force bool) func(c *center, p *parcel) bool {
	return func(c *center, p *parcel) bool {
		results, err := c.ReplayDeliveries(c.ctx(), model.ReplayParams{IDs: []uuid.UUID{p.id}, Force: force, Audit: by})
		c.must(err)
		return len(results) == 1 && c.told(p.id, results[0])
	}
}

// told checks that a result is of the delivery and tells what it is now.
func (c *center) told(id uuid.UUID, r model.ChangeResult) (done bool) {
	c.Helper()
	if view, _ := c.delivery(id); r.ID != id || !r.Found || r.Is != view.Status || r.Done == (r.Was == r.Is) || r.Erased {
		c.Errorf("it is %s, the result is %+v", view.Status, r)
	}
	return r.Done
}

func steps() []step {
	all := []step{
		{name: "put", try: func(c *center, p *parcel) bool {
			c.accept(p.request)
			return false
		}},
		{name: "put by another", try: func(c *center, p *parcel) bool { return !c.answers(again(p.request))[0].Duplicate }},
		{name: "claim", try: func(c *center, p *parcel) bool { return len(c.pick(p.channel.ID, p.owner, 5)) > 0 }},
		{name: "cancel", try: func(c *center, p *parcel) bool {
			results, err := c.CancelRequest(c.ctx(), p.request.ID, by)
			c.must(err)
			return len(results) == 1 && c.told(p.id, results[0])
		}},
		{name: "expire", expires: true, try: func(c *center, _ *parcel) bool {
			n, err := c.ExpireDeliveries(c.ctx(), 1000)
			c.must(err)
			return n > 0
		}},
		{name: "expire in time", try: func(c *center, _ *parcel) bool {
			n, err := c.ExpireDeliveries(c.ctx(), 1000)
			c.must(err)
			return n > 0
		}},
		{name: "replay", try: replayWith(false)},
		{name: "forced replay", try: replayWith(true)},
		{name: "resolve as sent", try: resolve(true)},
		{name: "resolve as not sent", try: resolve(false)},
		{name: "replay as a message", try: func(c *center, p *parcel) bool { return replayOne(c.kit, p.id, true) != model.ReplayNotFound }},
	}
	for _, token := range []struct {
		name string
		of   func(*parcel) model.Token
	}{
		{"its token", func(p *parcel) model.Token { return p.work.Token }},
		{"another token", func(*parcel) model.Token { return newToken() }},
		{"no token", func(*parcel) model.Token { return 0 }},
	} {
		start := func(c *center, p *parcel) model.StartParams {
			return model.StartParams{Token: token.of(p), Seqs: []model.Seq{c.numberOf(p.id)}, Bare: true}
		}
		all = append(all,
			step{name: "start with " + token.name, try: func(c *center, p *parcel) bool {
				works, err := c.StartWork(c.ctx(), start(c, p))
				c.must(err)
				return len(works) > 0
			}},
			step{name: "unstart with " + token.name, try: func(c *center, p *parcel) bool {
				n, err := c.UnstartWork(c.ctx(), start(c, p))
				c.must(err)
				return n > 0
			}},
			step{name: "give back with " + token.name, try: func(c *center, p *parcel) bool {
				n, err := c.GiveBack(c.ctx(), p.channel.ID, token.of(p))
				c.must(err)
				return n > 0
			}})
		for _, kind := range settleKinds {
			all = append(all, step{name: kind.String() + " with " + token.name, try: func(c *center, p *parcel) bool {
				end := ended(p.work, kind)
				end.Seq, end.Queue, end.Token = c.numberOf(p.id), p.channel.ID, token.of(p)
				return c.settleOne(end)
			}})
		}
	}
	return all
}

var settleKinds = []model.SettleKind{
	model.SettleSuccess, model.SettleRetry, model.SettleFailed, model.SettleRelease, model.SettleDead, model.SettleUncertain,
}

// numberOf finds the seq behind a public id.
func (c *center) numberOf(id uuid.UUID) model.Seq {
	c.Helper()
	view, _ := c.delivery(id)
	return view.Seq
}

// allowedSteps is the whole of NC-21, as far as it is the store's today: state
// and step to the state that follows. Every other pair changes nothing.
// "started" and "claimed" are both PROCESSING.
var allowedSteps = map[string]map[string]string{
	"PENDING":    {"claim": "claimed", "cancel": "CANCELLED", "expire": "CANCELLED"},
	"RETRY_WAIT": {"claim": "claimed", "cancel": "CANCELLED", "expire": "CANCELLED"},
	"claimed": {
		"start with its token": "started", "give back with its token": "PENDING", "success with its token": "SUCCEEDED",
		"retry with its token": "RETRY_WAIT", "failed with its token": "FAILED", "released with its token": "PENDING",
		"dead with its token": "DEAD", "uncertain with its token": "UNCERTAIN",
	},
	"started": {
		"unstart with its token": "claimed", "give back with its token": "PENDING", "success with its token": "SUCCEEDED",
		"retry with its token": "RETRY_WAIT", "failed with its token": "FAILED", "released with its token": "PENDING",
		"dead with its token": "DEAD", "uncertain with its token": "UNCERTAIN",
	},
	"SUCCEEDED": {"forced replay": "PENDING"},
	"DELIVERED": {"forced replay": "PENDING"},
	"resolved":  {"forced replay": "PENDING"},
	"FAILED":    {"replay": "PENDING", "forced replay": "PENDING"},
	"DEAD":      {"replay": "PENDING", "forced replay": "PENDING"},
	"UNCERTAIN": {"forced replay": "PENDING", "resolve as sent": "SUCCEEDED", "resolve as not sent": "PENDING"},
	"CANCELLED": {"forced replay": "PENDING"},
}

// audited are the steps that leave a record of the delivery where they change it.
var audited = map[string]bool{"replay": true, "forced replay": true, "resolve as sent": true, "resolve as not sent": true}

// parcelFacts are all that the store knows of a delivery.
type parcelFacts struct {
	View     model.DeliveryView
	Attempts []model.AttemptView
	Work     model.Work
	HasWork  bool
	Stats    model.SourceStats
	Audit    []model.AuditRecord
}

func (c *center) facts(p *parcel) (f parcelFacts) {
	c.Helper()
	f.View, f.Attempts = c.delivery(p.id)
	f.Work, f.HasWork = c.row(f.View.Seq)
	f.Stats = c.stats(p.channel.ID)
	f.Stats.OldestDueAge = 0
	f.Audit = c.records("delivery/" + p.id.String())
	return f
}

func everyStep(c *center) {
	owner := c.instance()
	for _, state := range parcelMakers {
		// One delivery that is refused everything, one each for what changes it.
		made := func(c *center, expires bool) *parcel {
			p := &parcel{channel: c.channel(), owner: owner}
			if expires {
				p.expires = 1
			}
			state.make(c, p)
			return p
		}
		refused := made(c, false)
		before := c.facts(refused)
		for _, s := range steps() {
			want, ok := allowedSteps[state.name][s.name]
			if !ok {
				c.run(state.name+" refuses "+s.name, func(c *center) {
					p, before := refused, before
					if s.expires {
						p = made(c, true)
						before = c.facts(p)
					}
					if s.try(c, p) {
						c.Error("reported as done")
					}
					if diff := cmp.Diff(before, c.facts(p)); diff != "" {
						c.Errorf("changed: %s", diff)
					}
				})
				continue
			}
			c.run(fmt.Sprintf("%s allows %s to %s", state.name, s.name, want), func(c *center) {
				p := made(c, s.expires)
				before := c.facts(p)
				if !s.try(c, p) {
					c.Error("reported as not done")
				}
				c.wantStep(before, c.facts(p), want, audited[s.name])
			})
		}
	}
}

// wantStep checks that a delivery went over into another state, with all that
// belongs to it.
func (c *center) wantStep(before, after parcelFacts, want string, audit bool) {
	c.Helper()
	status := after.View.Status
	got := string(status)
	if status == model.DeliveryProcessing {
		got = map[bool]string{true: "started", false: "claimed"}[after.Work.StartedAt != 0]
	}
	if got != want {
		c.Errorf("it is %s now, want %s", got, want)
	}
	if after.HasWork == status.Sent() {
		c.Errorf("%s, and has work: %t", got, after.HasWork)
	}
	if w := after.Work; status != model.DeliveryProcessing && (w.Token != 0 || w.Owner != 0 || w.StartedAt != 0) {
		c.Errorf("%s, but its work is %+v", got, w)
	}
	ended := status.Final() || status == model.DeliveryUncertain
	if ended != (after.View.FinishedAt != 0) || ended && after.View.FinishedAt < after.View.CreatedAt {
		c.Errorf("%s, and finished at %d", got, after.View.FinishedAt)
	}
	waits := status == model.DeliveryPending || status == model.DeliveryRetryWait
	if waits != (after.View.NextAttemptAt != 0) {
		c.Errorf("%s, and next tried at %d", got, after.View.NextAttemptAt)
	}
	if n := len(after.Audit) - len(before.Audit); n != map[bool]int{true: 1}[audit] {
		c.Errorf("%d records are kept", n)
	}
	if replayed := audit && status == model.DeliveryPending; replayed != (after.View.Replay == before.View.Replay+1) {
		c.Errorf("it is replay %d now, and was %d", after.View.Replay, before.View.Replay)
	}
	stats := after.Stats
	counts := map[model.DeliveryStatus]int64{
		model.DeliveryPending: stats.Pending, model.DeliveryRetryWait: stats.Retrying, model.DeliveryProcessing: stats.Processing,
		model.DeliverySucceeded: stats.Success, model.DeliveryDelivered: stats.Success, model.DeliveryFailed: stats.Failed, model.DeliveryDead: stats.Dead,
		model.DeliveryUncertain: stats.Uncertain, model.DeliveryCancelled: stats.Cancelled,
	}
	sum := stats.Pending + stats.Retrying + stats.Processing + stats.Success + stats.Failed + stats.Dead + stats.Uncertain + stats.Cancelled
	if counts[status] != 1 || sum != 1 {
		c.Errorf("%s, and counted as %+v", got, stats)
	}
}

func staleDelivery(c *center) {
	p := &parcel{channel: c.channel(), owner: c.instance()}
	p.start(c)
	stale := p.work
	c.must(c.LeaveInstance(c.ctx(), p.owner))
	lost := ended(stale, model.SettleRetry)
	lost.Lost, lost.Uncertain, lost.Reason = true, true, model.ReasonWorkerLost
	if !c.settleOne(lost) {
		c.Fatal("not recovered")
	}
	refused := func(when string) {
		for _, kind := range settleKinds {
			if c.settleOne(ended(stale, kind)) {
				c.Errorf("a late %v was applied %s", kind, when)
			}
		}
	}
	refused("to a delivery that waits")
	next := c.pickStarted(p.channel.ID, c.instance(), 1)
	if len(next) != 1 || next[0].RetryCount != 1 || next[0].Lost != 1 {
		c.Fatalf("claimed again: %+v", next)
	}
	refused("to another's claim")
	c.end(model.SettleSuccess, next[0])
	refused("to a delivery that has succeeded")
	replayWith(true)(c, p)
	refused("to a delivery that was replayed")
	_, err := c.CancelRequest(c.ctx(), p.request.ID, by)
	c.must(err)
	refused("to a delivery that was cancelled")
	c.wantStatus(p.id, model.DeliveryCancelled)
}
