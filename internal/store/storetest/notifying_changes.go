package storetest

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func cancelling(c *center) {
	c.run("NC-21 what has not begun is cancelled, and the answer is honest for each", cancelAnswers)
	c.run("a request that nobody knows", func(c *center) {
		_, err := c.CancelRequest(c.ctx(), uuid.New(), by)
		c.wantCode(err, model.CodeNotFound)
	})
	c.run("NC-21 what is claimed at the same time is either cancelled or claimed", cancelAgainstClaim)
}

func cancelAnswers(c *center) {
	owner := c.instance()
	channels := []model.Source{c.channel(), c.channel(), c.channel(), c.channel(), c.channel()}
	inApp := c.channel()
	r := c.seenBy(c.request("u1", channels...), inApp)
	head := c.accept(r)[0]
	c.end(model.SettleRetry, c.pickStarted(channels[1].ID, owner, 1)...)
	c.pickStarted(channels[2].ID, owner, 1)
	c.end(model.SettleSuccess, c.pickStarted(channels[3].ID, owner, 1)...)
	c.end(model.SettleDead, c.pickStarted(channels[4].ID, owner, 1)...)
	results, err := c.CancelRequest(c.ctx(), r.ID, by)
	c.must(err)
	want := []model.ChangeResult{
		{Done: true, Was: model.DeliveryPending, Is: model.DeliveryCancelled},
		{Done: true, Was: model.DeliveryRetryWait, Is: model.DeliveryCancelled},
		{Was: model.DeliveryProcessing, Is: model.DeliveryProcessing},
		{Was: model.DeliverySucceeded, Is: model.DeliverySucceeded},
		{Was: model.DeliveryDead, Is: model.DeliveryDead},
		{Was: model.DeliverySucceeded, Is: model.DeliverySucceeded},
	}
	for i := range want {
		want[i].ID, want[i].Found = head.Deliveries[i].ID, true
	}
	c.same("results", want, results)
	view := c.view(r.ID)
	if !view.Cancelled || len(view.Audit) != 1 || view.Audit[0].Action != "notification.cancel" || view.Audit[0].Target != "notification/"+r.ID.String() {
		c.Errorf("cancelled: %t, records %+v", view.Cancelled, view.Audit)
	}
	for i, d := range view.Deliveries {
		if d.Status != want[i].Is || (d.FinishedAt == 0) != (d.Status == model.DeliveryProcessing) {
			c.Errorf("shown as %+v", d)
		}
	}
	// Whoever is sending, or would send again, is told.
	var seqs []model.Seq
	for _, d := range head.Deliveries {
		seqs = append(seqs, d.Seq)
	}
	outgoing, err := c.Outgoing(c.ctx(), seqs)
	c.must(err)
	for _, o := range outgoing {
		if !o.Cancelled || o.Erased {
			c.Errorf("to be sent is %+v", o)
		}
	}
	if count := view.Deliveries[1].AttemptCount; count != 1 {
		c.Errorf("the one that was tried has %d attempts", count)
	}
	// Again nothing is changed, and so nothing recorded.
	before := c.dump([]string{"work", "outcome", "audit", "request"})
	for i := range want {
		want[i].Done, want[i].Was = false, want[i].Is
	}
	results, err = c.CancelRequest(c.ctx(), r.ID, by)
	c.must(err)
	c.same("results of the second", want, results)
	if after := c.dump([]string{"work", "outcome", "audit", "request"}); after != before {
		c.Error("the second call changed something")
	}
	if works := c.pick(channels[0].ID, owner, 5); len(works) != 0 {
		c.Errorf("claimed %+v", works)
	}
}

func cancelAgainstClaim(c *center) {
	channel := c.channel()
	requests, _ := c.send(channel, 60)
	other := c.notifications(c.h.Again(c.T, c.Store))
	var claimed, cancelled atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		owner := c.instance()
		p := c.params(channel.ID, owner, 3)
		wg.Go(func() {
			for claimed.Load()+cancelled.Load() < int64(len(requests)) && c.Context().Err() == nil && !c.Failed() {
				p.Token, p.Shared, p.Bare = newToken(), true, true
				got, err := c.ClaimWork(c.ctx(), p)
				if err != nil {
					c.Error(err)
					return
				}
				claimed.Add(int64(len(got.Works)))
			}
		})
	}
	var done sync.Map
	for i, r := range requests {
		if i%2 == 0 {
			continue
		}
		wg.Go(func() {
			results, err := other.CancelRequest(c.ctx(), r.ID, by)
			if err != nil || len(results) != 1 {
				c.Errorf("%+v, %v", results, err)
				return
			}
			if results[0].Done {
				cancelled.Add(1)
				done.Store(r.ID, true)
			}
		})
	}
	wg.Wait()
	if n := claimed.Load() + cancelled.Load(); n != int64(len(requests)) {
		c.Errorf("%d were claimed or cancelled, of %d", n, len(requests))
	}
	for _, r := range requests {
		want := model.DeliveryProcessing
		if _, was := done.Load(r.ID); was {
			want = model.DeliveryCancelled
		}
		c.wantStatus(r.Deliveries[0].ID, want)
	}
}

func expiring(c *center) {
	c.alone("NC-21 what has not begun in time is cancelled, at most the limit", expireLimit)
	c.alone("NC-21 what was going on when its time passed is cancelled when it is back", expireLater)
}

func (c *center) expire(limit, want int) {
	c.Helper()
	n, err := c.ExpireDeliveries(c.ctx(), limit)
	c.must(err)
	if n != want {
		c.Errorf("%d expired, want %d", n, want)
	}
}

func expireLimit(c *center) {
	channel, inApp, owner := c.channel(), c.channel(), c.instance()
	now := model.MicrosOf(time.Now())
	var passed []model.NewRequest
	for i := range 12 {
		r := c.seenBy(c.request("u1", channel), inApp)
		r.ExpiresAt = now - model.Micros(i) - 1
		passed = append(passed, r)
	}
	future, never := c.request("u1", channel), c.request("u1", channel)
	future.ExpiresAt, future.NotBefore = now+2*hour, now+hour
	never.NotBefore = now + hour
	passed[11].NotBefore = now + hour
	c.accept(append(passed, future, never)...)
	works := c.pickStarted(channel.ID, owner, 6)
	c.end(model.SettleSuccess, works[0])
	c.end(model.SettleFailed, works[1])
	c.end(model.SettleRetry, works[2])
	c.end(model.SettleUncertain, works[3])
	// 12 of which 1 succeeded, 1 failed, 1 is uncertain and 2 are processing.
	c.expire(3, 3)
	c.expire(1, 1)
	c.expire(100, 3)
	c.expire(100, 0)
	got := c.stats(channel.ID)
	got.Source, got.OldestDueAge = model.Source{}, 0
	c.same("counts", model.SourceStats{Pending: 2, Processing: 2, Success: 1, Failed: 1, Uncertain: 1, Cancelled: 7}, got)
	for _, r := range []model.NewRequest{future, never} {
		c.wantStatus(r.Deliveries[0].ID, model.DeliveryPending)
	}
	if view := c.view(passed[11].ID); view.Cancelled || view.Deliveries[0].Status != model.DeliveryCancelled || view.Deliveries[0].FinishedAt < now-hour {
		c.Errorf("shown as %+v", view)
	}
}

func expireLater(c *center) {
	channel, owner := c.channel(), c.instance()
	started := &parcel{channel: channel, owner: owner, expires: 1}
	started.start(c)
	failed := &parcel{channel: channel, owner: owner, expires: 1}
	failed.start(c)
	c.end(model.SettleDead, failed.work)
	c.expire(100, 0)
	c.end(model.SettleRetry, started.work)
	c.expire(100, 1)
	c.wantStatus(started.id, model.DeliveryCancelled)
	replayWith(false)(c, failed)
	c.expire(100, 1)
	c.wantStatus(failed.id, model.DeliveryCancelled)
	replayWith(true)(c, started)
	c.expire(100, 1)
}

func operators(c *center) {
	c.run("NC-13 a replay answers for each, and starts anew", replayAll)
	c.run("NC-13 a forced replay keeps the attempt that had succeeded", replayKeepsSuccess)
	c.run("NC-13 a double click makes one replay", doubleClick)
	c.run("NC-21 an in-app delivery is never replayed", replayInApp)
	c.run("NC-10 an uncertain delivery is resolved as sent", resolvedSent)
	c.run("NC-10 an uncertain delivery is resolved as not sent", resolvedNotSent)
	c.run("NC-10 of two answers at once one holds", resolvedAtOnce)
}

func replayAll(c *center) {
	channel, owner := c.channel(), c.instance()
	made := c.everyStatus(channel, owner)
	order := []string{"DEAD", "PENDING", "SUCCEEDED", "FAILED", "UNCERTAIN", "CANCELLED", "RETRY_WAIT", "started", "inserted"}
	var ids []uuid.UUID
	for _, name := range order {
		ids = append(ids, made[name].id)
	}
	nobody := uuid.New()
	ids = append(ids, nobody, made["DEAD"].id)
	ask := func(force bool, done ...string) {
		c.Helper()
		was := map[uuid.UUID]model.DeliveryStatus{}
		for _, name := range order {
			view, _ := c.delivery(made[name].id)
			was[view.ID] = view.Status
		}
		results, err := c.ReplayDeliveries(c.ctx(), model.ReplayParams{IDs: ids, Force: force, Audit: by})
		c.must(err)
		want := make([]model.ChangeResult, len(ids))
		for i, id := range ids {
			want[i] = model.ChangeResult{ID: id, Found: id != nobody, Was: was[id], Is: was[id]}
			for _, name := range done {
				if id == made[name].id {
					want[i].Is, want[i].Done = model.DeliveryPending, was[id] != model.DeliveryPending
					was[id] = model.DeliveryPending
				}
			}
		}
		c.same("results", want, results)
	}
	ask(false, "DEAD", "FAILED")
	ask(true, "SUCCEEDED", "UNCERTAIN", "CANCELLED")
	for _, name := range []string{"DEAD", "FAILED", "SUCCEEDED", "UNCERTAIN", "CANCELLED"} {
		p := made[name]
		view := c.wantStatus(p.id, model.DeliveryPending)
		if view.AttemptCount != 0 || view.ErrorClass != "" || view.ErrorText != "" || view.Replay != 1 || view.FinishedAt != 0 || view.ProviderID != "" ||
			view.NextAttemptAt < view.CreatedAt || view.NextAttemptAt > view.CreatedAt+hour {
			c.Errorf("%s is replayed as %+v", name, view)
		}
		records := c.records("delivery/" + p.id.String())
		if len(records) != 1 || records[0].Action != "delivery.replay" || records[0].Actor != by.Actor || records[0].Reason != by.Reason ||
			c.detail(records[0], "was") != name {
			c.Errorf("%s: records %+v", name, records)
		}
	}
	none, err := c.ReplayDeliveries(c.ctx(), model.ReplayParams{Force: true, Audit: by})
	if err != nil || len(none) != 0 {
		c.Errorf("no ids: %v, %v", none, err)
	}
	p := made["DEAD"]
	works := c.pickStarted(channel.ID, owner, 100)
	for _, w := range works {
		if w.Seq == p.work.Seq && (w.Attempt() != 1 || w.Replay != 1 || w.Lost != 0) {
			c.Errorf("claimed as %+v", w)
		}
	}
	c.end(model.SettleFailed, works...)
	_, attempts := c.delivery(p.id)
	if len(attempts) != 2 || attempts[0].Replay != 0 || attempts[1].Replay != 1 || attempts[1].N != 1 {
		c.Errorf("attempts %+v", attempts)
	}
}

// detail is one word of what a record tells.
func (c *center) detail(r model.AuditRecord, name string) string {
	c.Helper()
	var details map[string]any
	c.must(json.Unmarshal(r.Details, &details))
	text, _ := details[name].(string)
	return text
}

func replayKeepsSuccess(c *center) {
	p := &parcel{channel: c.channel(), owner: c.instance()}
	p.start(c)
	c.end(model.SettleSuccess, p.work)
	_, before := c.delivery(p.id)
	replayWith(true)(c, p)
	_, after := c.delivery(p.id)
	c.same("its attempts", before, after)
	c.wantDelivered(p.channel.ID, 1, 1, 0)
	w := c.pickStarted(p.channel.ID, p.owner, 1)[0]
	c.end(model.SettleSuccess, w)
	view, attempts := c.delivery(p.id)
	if len(attempts) != 2 || attempts[0] != before[0] || attempts[1].Replay != 1 || attempts[1].Outcome != model.OutcomeSuccess || view.Replay != 1 {
		c.Errorf("shown as %+v with attempts %+v", view, attempts)
	}
	if view.ErrorClass != "" || view.AttemptCount != 1 {
		c.Errorf("shown as %+v", view)
	}
	c.wantDelivered(p.channel.ID, 1, 0, 1)
	if got := c.stats(p.channel.ID); got.Success != 1 {
		c.Errorf("counted as %+v", got)
	}
}

// once runs n calls at once, over two stores, and wants one of them to say done.
func (c *center) once(n int, call func(Notifications, int) (bool, error)) {
	c.Helper()
	stores := []Notifications{c.Notifications, c.notifications(c.h.Again(c.T, c.Store))}
	var done atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ok, err := call(stores[i%2], i)
			if err != nil {
				c.Error(err)
			}
			if ok {
				done.Add(1)
			}
		})
	}
	wg.Wait()
	if done.Load() != 1 {
		c.Errorf("%d of %d calls did it", done.Load(), n)
	}
}

func doubleClick(c *center) {
	owner := c.instance()
	for name, kind := range map[string]model.SettleKind{"dead": model.SettleDead, "succeeded": model.SettleSuccess} {
		c.run(name, func(c *center) {
			p := &parcel{channel: c.channel(), owner: owner}
			p.start(c)
			c.end(kind, p.work)
			c.once(8, func(s Notifications, _ int) (bool, error) {
				results, err := s.ReplayDeliveries(c.ctx(), model.ReplayParams{IDs: []uuid.UUID{p.id}, Force: true, Audit: by})
				return err == nil && results[0].Done, err
			})
			if view := c.wantStatus(p.id, model.DeliveryPending); view.Replay != 1 {
				c.Errorf("replayed as %+v", view)
			}
			if records := c.records("delivery/" + p.id.String()); len(records) != 1 {
				c.Errorf("records %+v", records)
			}
		})
	}
}

func replayInApp(c *center) {
	inApp := c.channel()
	r := c.seenBy(c.request("u1"), inApp)
	c.accept(r)
	results, err := c.ReplayDeliveries(c.ctx(), model.ReplayParams{IDs: []uuid.UUID{r.Deliveries[0].ID}, Force: true, Audit: by})
	c.must(err)
	c.same("the result", []model.ChangeResult{{ID: r.Deliveries[0].ID, Found: true, Was: model.DeliverySucceeded, Is: model.DeliverySucceeded}}, results)
	c.wantDelivered(inApp.ID, 1, 0, 1)
}

// uncertain makes an uncertain delivery, after so many failed attempts.
func (c *center) uncertain(failed int) *parcel {
	c.Helper()
	p := &parcel{channel: c.channel(), owner: c.instance()}
	p.start(c)
	for range failed {
		c.end(model.SettleRetry, p.work)
		p.work = c.pickStarted(p.channel.ID, p.owner, 1)[0]
	}
	c.end(model.SettleUncertain, p.work)
	return p
}

func resolvedSent(c *center) {
	p := c.uncertain(1)
	before, attempts := c.delivery(p.id)
	if !resolve(true)(c, p) {
		c.Error("reported as not done")
	}
	view, after := c.delivery(p.id)
	if view.Status != model.DeliverySucceeded || view.FinishedAt < before.FinishedAt || view.AttemptCount != 2 || view.Replay != 0 || view.ErrorClass != model.ClassUncertain {
		c.Errorf("shown as %+v", view)
	}
	c.same("its attempts: none has succeeded", attempts, after)
	records := c.records("delivery/" + p.id.String())
	if len(records) != 1 || records[0].Action != "delivery.resolve" || c.detail(records[0], "outcome") != "sent" || c.detail(records[0], "was") != "UNCERTAIN" {
		c.Errorf("records %+v", records)
	}
	c.wantDelivered(p.channel.ID, 1, 0, 1)
	if resolve(true)(c, p) || resolve(false)(c, p) {
		c.Error("resolved again")
	}
	if result, err := c.ResolveDelivery(c.ctx(), uuid.New(), true, by); err != nil || result.Found || result.Done {
		c.Errorf("of nobody's: %+v, %v", result, err)
	}
}

func resolvedNotSent(c *center) {
	p := c.uncertain(2)
	if !resolve(false)(c, p) {
		c.Error("reported as not done")
	}
	view, attempts := c.delivery(p.id)
	if view.Status != model.DeliveryPending || view.AttemptCount != 0 || view.Replay != 1 || view.ErrorClass != "" || len(attempts) != 3 {
		c.Errorf("shown as %+v with attempts %+v", view, attempts)
	}
	records := c.records("delivery/" + p.id.String())
	if len(records) != 1 || records[0].Action != "delivery.resolve" || c.detail(records[0], "outcome") != "not_sent" {
		c.Errorf("records %+v", records)
	}
	works := c.pickStarted(p.channel.ID, p.owner, 5)
	if len(works) != 1 || works[0].Attempt() != 1 || works[0].Replay != 1 {
		c.Fatalf("claimed %+v", works)
	}
	c.end(model.SettleSuccess, works[0])
}

func resolvedAtOnce(c *center) {
	for range 4 {
		p := c.uncertain(0)
		c.once(6, func(s Notifications, i int) (bool, error) {
			result, err := s.ResolveDelivery(c.ctx(), p.id, i%3 == 0, by)
			return result.Done, err
		})
		view, _ := c.delivery(p.id)
		if (view.Status == model.DeliverySucceeded) == (view.Status == model.DeliveryPending) || len(c.records("delivery/"+p.id.String())) != 1 {
			c.Errorf("shown as %+v", view)
		}
	}
}
