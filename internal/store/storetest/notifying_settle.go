package storetest

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func settlingDeliveries(c *center) {
	c.run("NC-08 bare claims and starts load nothing", bareClaims)
	c.run("AC-2 a delivery that fails and then succeeds tells both attempts", failsThenSucceeds)
	c.run("NC-05 NC-13 what ends without success keeps its cause", keepsCause)
	c.run("NC-05 texts of a provider are kept short and clean", providersTexts)
	c.run("NC-10 an attempt says that nobody knows how it ended", uncertainAttempts)
	c.run("NC-11 a channel is held for all processes", holding)
	c.run("NC-21 an unburned attempt leaves no trace", unburned)
	c.run("NC-09 NC-10 orphans come with what the channel wants", orphanedDeliveries)
	c.run("NC-16 stats tell channels apart and count all states", deliveryStats)
	c.run("a batch may be of messages and of deliveries", mixedTenants)
}

func bareClaims(c *center) {
	channel, owner := c.channel(), c.instance()
	_, sent := c.send(channel, 4)
	if !c.due(channel.ID) {
		c.Error("nothing is due")
	}
	started := c.pickStarted(channel.ID, owner, 2)
	claimed := c.pick(channel.ID, owner, 5)
	c.same("claimed", sent, append(seqs(started), seqs(claimed)...))
	later, err := c.StartWork(c.ctx(), model.StartParams{Token: claimed[0].Token, Seqs: seqs(claimed), Bare: true})
	c.must(err)
	c.same("started", seqs(claimed), seqs(later))
	for _, w := range append(started, later...) {
		row, _ := c.row(w.Seq)
		if w.Message != nil || w.StartedAt == 0 || row.StartedAt != w.StartedAt || row.Owner != owner || w.Queue != channel.ID {
			c.Errorf("claimed as %+v, the work is %+v", w, row)
		}
	}
	if n, err := c.GiveBack(c.ctx(), channel.ID, claimed[0].Token); err != nil || n != 2 {
		c.Errorf("%d given back, %v", n, err)
	}
}

func failsThenSucceeds(c *center) {
	channel, owner := c.channel(), c.instance()
	requests, _ := c.send(channel, 1)
	id := requests[0].Deliveries[0].ID
	first := c.pickStarted(channel.ID, owner, 1)[0]
	s := ended(first, model.SettleRetry)
	s.Delay = time.Hour
	if !c.settleOne(s) {
		c.Fatal("not applied")
	}
	view := c.wantStatus(id, model.DeliveryRetryWait)
	if wait := view.NextAttemptAt.Sub(first.StartedAt); wait < time.Hour || wait > time.Hour+time.Minute {
		c.Errorf("it waits for %v", wait)
	}
	if view.AttemptCount != 1 || view.ErrorClass != model.ClassTransient || view.ErrorCode != "BUSY" || view.ErrorText != s.Error || view.FinishedAt != 0 {
		c.Errorf("shown as %+v", view)
	}
	if c.due(channel.ID) {
		c.Error("it is due")
	}
	c.change(`UPDATE posthouse_work SET due_at = 1 WHERE seq = %d`, first.Seq)
	second := c.pickStarted(channel.ID, owner, 1)[0]
	c.end(model.SettleSuccess, second)
	view = c.wantStatus(id, model.DeliverySucceeded)
	if view.AttemptCount != 2 || view.ProviderID != "SM-1" || view.NextAttemptAt != 0 || view.FinishedAt < second.StartedAt || view.ErrorCode != "BUSY" {
		c.Errorf("shown as %+v", view)
	}
	want := []model.AttemptView{
		{N: 1, StartedAt: first.StartedAt, EndedAt: first.StartedAt.Add(s.Duration), Outcome: model.OutcomeFailed, Reason: s.Reason,
			Error: s.Error, HTTPStatus: 503, Code: "BUSY"},
		{N: 2, StartedAt: second.StartedAt, EndedAt: view.FinishedAt, Outcome: model.OutcomeSuccess, HTTPStatus: 201},
	}
	_, attempts := c.delivery(id)
	c.same("attempts", want, attempts)
	shown := c.view(requests[0].ID)
	c.same("attempts of the request", map[model.Seq][]model.AttemptView{first.Seq: want}, shown.Attempts)
	c.same("the delivery of the request", []model.DeliveryView{view}, shown.Deliveries)
}

func keepsCause(c *center) {
	owner := c.instance()
	for kind, want := range map[model.SettleKind]struct {
		status  model.DeliveryStatus
		state   model.State
		class   model.Class
		outcome string
	}{
		model.SettleFailed:    {model.DeliveryFailed, model.Failed, model.ClassPermanent, model.OutcomeFailed},
		model.SettleDead:      {model.DeliveryDead, model.Dead, model.ClassTransient, model.OutcomeFailed},
		model.SettleUncertain: {model.DeliveryUncertain, model.Uncertain, model.ClassUncertain, model.OutcomeUncertain},
	} {
		c.run(string(want.status), func(c *center) {
			p := &parcel{channel: c.channel(), owner: owner}
			p.start(c)
			c.end(model.SettleRetry, p.work)
			w := c.pickStarted(p.channel.ID, owner, 1)[0]
			s := ended(w, kind)
			s.Lost = true
			if !c.settleOne(s) {
				c.Fatal("not applied")
			}
			view := c.wantStatus(p.id, want.status)
			if view.AttemptCount != 2 || view.ErrorClass != want.class || view.ErrorCode != s.Code || view.ErrorText != s.Error ||
				view.FinishedAt < w.StartedAt || view.FinishedAt > w.StartedAt+hour || view.NextAttemptAt != 0 || view.ProviderID != "" {
				c.Errorf("shown as %+v", view)
			}
			row, _ := c.row(w.Seq)
			if row.State != want.state || row.RetryCount != 2 || row.Lost != 1 || row.DueAt != view.FinishedAt {
				c.Errorf("the work is %+v; due_at is to be the time of the end", row)
			}
			_, attempts := c.delivery(p.id)
			if want.outcome == model.OutcomeFailed {
				want.outcome = model.OutcomeLost
			}
			if len(attempts) != 2 || attempts[1].Outcome != want.outcome || attempts[1].N != 2 || attempts[1].Code != s.Code {
				c.Errorf("attempts %+v", attempts)
			}
			if works := c.pick(p.channel.ID, owner, 5); len(works) != 0 {
				c.Errorf("claimed %+v", works)
			}
		})
	}
}

func providersTexts(c *center) {
	channel, owner := c.channel(), c.instance()
	requests, _ := c.send(channel, 2)
	works := c.pickStarted(channel.ID, owner, 2)
	failed, done := ended(works[0], model.SettleFailed), ended(works[1], model.SettleSuccess)
	failed.Error = strings.Repeat("\x00é\xff'", 1<<18)
	failed.Code = "a\x00" + strings.Repeat("é", model.MaxErrorCode)
	done.ProviderID = "b\xff" + strings.Repeat("😀", model.MaxProviderID)
	applied, err := c.Settle(c.ctx(), []model.Settlement{failed, done})
	c.must(err)
	if diff := cmp.Diff([]bool{true, true}, applied); diff != "" {
		c.Fatal(diff)
	}
	view, attempts := c.delivery(requests[0].Deliveries[0].ID)
	if view.ErrorText != model.CleanError(failed.Error) || attempts[0].Error != view.ErrorText {
		c.Errorf("the text is kept as %q", view.ErrorText)
	}
	for text, want := range map[string]struct {
		prefix string
		size   int
	}{
		view.ErrorCode: {"a\uFFFDéé", model.MaxErrorCode},
		c.wantStatus(requests[1].Deliveries[0].ID, model.DeliverySucceeded).ProviderID: {"b\uFFFD😀😀", model.MaxProviderID},
	} {
		if !strings.HasPrefix(text, want.prefix) || len(text) > want.size || len(text) < want.size-utf8.UTFMax || !utf8.ValidString(text) {
			c.Errorf("%q is kept, want at most %d bytes that begin with %q", text, want.size, want.prefix)
		}
	}
	if attempts[0].Code != view.ErrorCode {
		c.Errorf("the attempt has the code %q", attempts[0].Code)
	}
}

func uncertainAttempts(c *center) {
	channel, owner := c.channel(), c.instance()
	requests, _ := c.send(channel, 1)
	id := requests[0].Deliveries[0].ID
	for i, marks := range []struct {
		lost, uncertain bool
		outcome         string
		class           model.Class
	}{
		{false, false, model.OutcomeFailed, model.ClassTransient},
		{true, false, model.OutcomeLost, model.ClassTransient},
		{false, true, model.OutcomeUncertain, model.ClassUncertain},
		{true, true, model.OutcomeUncertain, model.ClassUncertain},
	} {
		w := c.pickStarted(channel.ID, owner, 1)[0]
		s := ended(w, model.SettleRetry)
		s.Lost, s.Uncertain, s.Reason = marks.lost, marks.uncertain, model.ReasonWorkerLost
		if !c.settleOne(s) {
			c.Fatal("not applied")
		}
		view, attempts := c.delivery(id)
		if len(attempts) != i+1 || attempts[i].Outcome != marks.outcome || attempts[i].Reason != model.ReasonWorkerLost || view.ErrorClass != marks.class {
			c.Errorf("%+v is shown as %+v with attempts %+v", marks, view, attempts)
		}
	}
	if row, _ := c.row(c.numberOf(id)); row.Lost != 2 || row.RetryCount != 4 {
		c.Errorf("the work is %+v", row)
	}
}

func unburned(c *center) {
	p := &parcel{channel: c.channel(), owner: c.instance()}
	p.start(c)
	postponed := ended(p.work, model.SettleRelease)
	postponed.Delay = time.Hour
	if !c.settleOne(postponed) {
		c.Fatal("not applied")
	}
	view := c.wantStatus(p.id, model.DeliveryPending)
	_, attempts := c.delivery(p.id)
	wait := view.NextAttemptAt.Sub(p.work.StartedAt)
	if view.AttemptCount != 0 || len(attempts) != 0 || wait < time.Hour || wait > time.Hour+time.Minute {
		c.Errorf("shown as %+v with attempts %+v", view, attempts)
	}
}

func orphanedDeliveries(c *center) {
	for name, want := range map[string]model.RetryPolicy{
		"resend": delivering,
		"hold":   {MaxRetry: 5, Backoff: []time.Duration{time.Second}, OrphanAfter: time.Minute, Uncertain: model.UncertainHold},
		"jitter": {MaxRetry: 1, OrphanAfter: 42 * time.Minute, Jitter: 1234567 * time.Microsecond, Uncertain: model.UncertainResend},
	} {
		c.run(name, func(c *center) {
			channel, owner := c.channelWith(want), c.instance()
			c.send(channel, 2)
			started, claimed := c.pickStarted(channel.ID, owner, 1)[0], c.pick(channel.ID, owner, 1)[0]
			c.leave(owner)
			got := c.orphansOf(channel.ID)
			if len(got) != 2 {
				c.Fatalf("%d orphans", len(got))
			}
			for i, w := range []model.Work{started, claimed} {
				c.same("the work", w, got[i].Work)
				c.same("the policy", want, got[i].Policy)
				if !got[i].OwnerDead || got[i].Alone != (i == 0) {
					c.Errorf("orphaned as %+v", got[i])
				}
			}
			// The policy is that of the last registration, the rest stays.
			changed := model.RetryPolicy{MaxRetry: 9, OrphanAfter: time.Hour, Jitter: time.Second, Uncertain: model.UncertainHold}
			sources, err := c.Register(c.ctx(), []model.SourceSpec{{Name: channel.Name, Tenant: model.TenantDelivery, Policy: changed, Wants: parallel}})
			c.must(err)
			c.same("registered again", []model.Source{channel}, sources)
			c.same("the policy", changed, c.orphansOf(channel.ID)[0].Policy)
		})
	}
	c.run("a source has none of it", func(c *center) {
		source, owner := c.source(), c.instance()
		c.processing(source, owner)
		c.leave(owner)
		c.same("the policy", policy, c.orphansOf(source)[0].Policy)
	})
}

func deliveryStats(c *center) {
	c.alone("in a store of its own", func(c *center) {
		channel, owner := c.channel(), c.instance()
		source := c.sourceWith(policy)
		c.everyStatus(channel, owner)
		c.everyState(source.ID, owner, 2)
		all, err := c.Stats(c.ctx())
		c.must(err)
		for i := range all {
			all[i].OldestDueAge = 0
		}
		want := []model.SourceStats{
			{Source: channel, Pending: 1, Retrying: 1, Due: 2, Processing: 2, Success: 4, Failed: 1, Dead: 1, Uncertain: 1, Cancelled: 1},
			{Source: source, Pending: 2, Due: 2, Retrying: 2, Processing: 2, Success: 3, Failed: 2},
		}
		c.same("all", want, all)
		sources, err := c.Sources(c.ctx())
		c.must(err)
		c.same("sources", []model.Source{channel, source}, sources)
	})
}

// everyStatus makes one delivery in each state of NC-21.
func (c *center) everyStatus(channel model.Source, owner model.InstanceID) map[string]*parcel {
	c.Helper()
	made := map[string]*parcel{}
	add := func(names ...string) {
		for _, state := range parcelMakers {
			if slices.Contains(names, state.name) {
				p := &parcel{channel: channel, owner: owner}
				state.make(c, p)
				made[state.name] = p
			}
		}
	}
	// What can be claimed comes last.
	add("claimed", "started", "SUCCEEDED", "DELIVERED", "inserted", "FAILED", "DEAD", "UNCERTAIN", "resolved", "CANCELLED")
	add("RETRY_WAIT")
	add("PENDING")
	return made
}

func mixedTenants(c *center) {
	channel, source, owner := c.channel(), c.source(), c.instance()
	p := &parcel{channel: channel, owner: owner}
	p.start(c)
	m, w := c.processing(source, owner)
	stale := ended(p.work, model.SettleDead)
	stale.Token++
	applied, err := c.Settle(c.ctx(), []model.Settlement{stale, ended(p.work, model.SettleSuccess), settlement(w, model.SettleFailed)})
	c.must(err)
	if diff := cmp.Diff([]bool{false, true, true}, applied); diff != "" {
		c.Error(diff)
	}
	c.wantStatus(p.id, model.DeliverySucceeded)
	c.wantState(m.ID, model.Failed)
}

func holding(c *center) {
	channel := c.channel()
	heldFor := func() time.Duration {
		sources, err := c.Sources(c.ctx())
		c.must(err)
		for _, s := range sources {
			if s.ID == channel.ID {
				return s.HoldFor
			}
		}
		c.Fatal("the channel is not listed")
		return 0
	}
	if got := heldFor(); got != 0 {
		c.Errorf("held for %v before anybody asked", got)
	}
	c.must(c.HoldQueue(c.ctx(), channel.ID, time.Hour))
	c.must(c.HoldQueue(c.ctx(), channel.ID, time.Minute)) // shortens nothing
	if got := heldFor(); got <= 59*time.Minute || got > time.Hour {
		c.Errorf("held for %v, want an hour", got)
	}
	other := c.channel()
	c.must(c.HoldQueue(c.ctx(), other.ID, -time.Hour))
	sources, err := c.Sources(c.ctx())
	c.must(err)
	for _, s := range sources {
		if s.ID == other.ID && s.HoldFor != 0 {
			c.Errorf("held for %v by a hold that has passed", s.HoldFor)
		}
	}
}
