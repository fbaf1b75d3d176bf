package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func auditing(c *center) {
	c.run("records come newest first, page by page, of one target or of all", auditPages)
	c.run("what an operator did stands with the request", auditOfARequest)
	c.run("NC-11 a channel is paused and resumed, with a record where that changes something", switching)
}

func auditPages(c *center) {
	target := "channel/" + uuid.NewString()
	var want []model.AuditRecord
	for i := range 7 {
		r := model.AuditRecord{Actor: "ops ü", Action: "channel.test", Target: target, Reason: "r'\\ \n" + fmt.Sprint(i), Details: json.RawMessage(`{"n":"é\u0000"}`)}
		if i == 3 {
			r.Details = nil
		}
		c.must(c.AddAudit(c.ctx(), r))
		if i == 3 {
			r.Details = json.RawMessage(`{}`)
		}
		c.must(c.AddAudit(c.ctx(), model.AuditRecord{Actor: "system", Action: "channel.test", Target: target + "x"}))
		want = append([]model.AuditRecord{r}, want...)
	}
	for _, limit := range []int{1, 3, 100} {
		var got []model.AuditRecord
		for before := int64(0); ; {
			page, err := c.Audit(c.ctx(), target, before, limit)
			c.must(err)
			if len(page) > limit {
				c.Fatalf("a page of %d has %d", limit, len(page))
			}
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			before = page[len(page)-1].Seq
		}
		c.same("records", want, got, cmpopts.IgnoreFields(model.AuditRecord{}, "Seq", "At"))
		for i, r := range got {
			if r.At <= 0 || r.Seq <= 0 || i > 0 && (r.Seq >= got[i-1].Seq || r.At > got[i-1].At) {
				c.Errorf("record %d is %+v", i, r)
			}
		}
	}
	all, err := c.Audit(c.ctx(), "", 0, 14)
	c.must(err)
	if len(all) != 14 || all[0].Target != target+"x" || all[1].Target != target {
		c.Errorf("all are %+v", all)
	}
}

func auditOfARequest(c *center) {
	channel, owner := c.channel(), c.instance()
	requests, _ := c.send(channel, 2)
	works := c.pickStarted(channel.ID, owner, 2)
	c.end(model.SettleUncertain, works...)
	id := requests[0].Deliveries[0].ID
	_, err := c.ResolveDelivery(c.ctx(), id, false, model.Audit{Actor: "anna", Reason: "the provider's log\x00"})
	c.must(err)
	_, err = c.CancelRequest(c.ctx(), requests[0].ID, model.Audit{Actor: "bert", Reason: "recalled"})
	c.must(err)
	_, err = c.ReplayDeliveries(c.ctx(), model.ReplayParams{IDs: []uuid.UUID{id, requests[1].Deliveries[0].ID}, Force: true, Audit: by})
	c.must(err)
	c.must(c.AddAudit(c.ctx(), model.AuditRecord{Actor: "system", Action: "delivery.note", Target: "delivery/" + id.String()}))
	records := c.view(requests[0].ID).Audit
	var got [][4]string
	for i, r := range records {
		got = append(got, [4]string{r.Actor, r.Action, r.Target, r.Reason})
		if i > 0 && r.Seq <= records[i-1].Seq {
			c.Errorf("record %d comes too late", i)
		}
	}
	delivery := "delivery/" + id.String()
	c.same("records", [][4]string{
		{"anna", "delivery.resolve", delivery, "the provider's log\uFFFD"},
		{"bert", "notification.cancel", "notification/" + requests[0].ID.String(), "recalled"},
		{by.Actor, "delivery.replay", delivery, by.Reason},
		{"system", "delivery.note", delivery, ""},
	}, got)
	if other := c.view(requests[1].ID).Audit; len(other) != 1 {
		c.Errorf("records of the other request: %+v", other)
	}
}

func switching(c *center) {
	channel := c.channel()
	target := "channel/" + nameOf(channel)
	try := func(enabled, want bool, records int) {
		c.Helper()
		changed, err := c.Switch(c.ctx(), channel.Name, enabled, by)
		c.must(err)
		got := c.records(target)
		if changed != want || len(got) != records || c.stats(channel.ID).Source.Enabled != enabled {
			c.Errorf("switched to %t: changed %t, records %+v", enabled, changed, got)
		}
		if want && (got[0].Action != map[bool]string{true: "channel.resume", false: "channel.pause"}[enabled] || got[0].Reason != by.Reason) {
			c.Errorf("the record is %+v", got[0])
		}
	}
	try(true, false, 0)
	try(false, true, 1)
	try(false, false, 1)
	try(true, true, 2)
	c.once(6, func(s Notifications, _ int) (bool, error) { return s.Switch(c.ctx(), channel.Name, false, by) })
	try(false, false, 3)
	_, err := c.Switch(c.ctx(), "channel/nobody's", true, by)
	c.wantCode(err, model.CodeNotFound)
	if records := c.records("channel/nobody's"); len(records) != 0 {
		c.Errorf("records %+v", records)
	}
	// What was registered once keeps its switch.
	sources, err := c.Register(c.ctx(), []model.SourceSpec{{Name: channel.Name, Tenant: model.TenantDelivery, Enabled: true, Policy: delivering, Wants: parallel}})
	c.must(err)
	if sources[0].Enabled {
		c.Error("registering resumed it")
	}
}

func notificationCalls(c *center) {
	c.run("a call whose ctx has ended does nothing", notificationsTooLate)
	c.run("a closed store refuses", func(c *center) {
		reads, changes := c.notificationReads(), c.notificationChanges()
		c.must(c.Close())
		for _, calls := range []map[string]func(context.Context) error{reads, changes} {
			for name, try := range calls {
				if err := try(c.ctx()); err == nil {
					c.Errorf("%s: no error", name)
				}
			}
		}
	})
}

// notificationChanges are all calls that change something, and will where they
// are made alone.
func (c *center) notificationChanges() map[string]func(context.Context) error {
	c.Helper()
	channel, inApp, owner := c.channel(), c.channel(), c.instance()
	dead := &parcel{channel: channel, owner: owner}
	dead.start(c)
	c.end(model.SettleDead, dead.work)
	uncertain := c.uncertain(0)
	secret := c.accept(c.secret())[0].Seq
	expired := &parcel{channel: channel, owner: owner, expires: 1}
	expired.accept(c)
	waiting := &parcel{channel: channel, owner: owner}
	waiting.accept(c)
	return map[string]func(context.Context) error{
		"put templates": func(ctx context.Context) error {
			_, err := c.PutTemplates(ctx, []model.TemplateVersion{{Code: uuid.NewString()}})
			return err
		},
		"put requests": func(ctx context.Context) error {
			_, err := c.PutRequests(ctx, []model.NewRequest{c.seenBy(c.request("u1", channel), inApp)})
			return err
		},
		"cancel": func(ctx context.Context) error {
			_, err := c.CancelRequest(ctx, waiting.request.ID, by)
			return err
		},
		"expire": func(ctx context.Context) error { _, err := c.ExpireDeliveries(ctx, 10); return err },
		"replay": func(ctx context.Context) error {
			_, err := c.ReplayDeliveries(ctx, model.ReplayParams{IDs: []uuid.UUID{dead.id}, Audit: by})
			return err
		},
		"resolve": func(ctx context.Context) error {
			_, err := c.ResolveDelivery(ctx, uncertain.id, true, by)
			return err
		},
		"erase": func(ctx context.Context) error { _, err := c.EraseSecrets(ctx, []model.Seq{secret}); return err },
		"switch": func(ctx context.Context) error {
			_, err := c.Switch(ctx, channel.Name, false, by)
			return err
		},
		"add audit": func(ctx context.Context) error {
			return c.AddAudit(ctx, model.AuditRecord{Actor: "ops", Action: "channel.test", Target: "channel/x"})
		},
	}
}

// notificationReads are all calls that change nothing.
func (c *center) notificationReads() map[string]func(context.Context) error {
	requests, deliveries := c.send(c.channel(), 1)
	r := requests[0]
	return map[string]func(context.Context) error{
		"templates": func(ctx context.Context) error {
			_, err := c.Templates(ctx, []model.TemplateID{c.version})
			return err
		},
		"by key":   func(ctx context.Context) error { _, err := c.RequestByKey(ctx, r.Key); return err },
		"request":  func(ctx context.Context) error { _, err := c.Request(ctx, r.ID); return err },
		"messages": func(ctx context.Context) error { _, err := c.UserMessages(ctx, "u1", 0, 5); return err },
		"outgoing": func(ctx context.Context) error { _, err := c.Outgoing(ctx, deliveries); return err },
		"delivery": func(ctx context.Context) error { _, _, err := c.Delivery(ctx, r.Deliveries[0].ID); return err },
		"list": func(ctx context.Context) error {
			_, err := c.ListDeliveries(ctx, model.DeliveryListParams{Limit: 1})
			return err
		},
		"secrets": func(ctx context.Context) error { _, err := c.Secrets(ctx, 0, 1); return err },
		"audit":   func(ctx context.Context) error { _, err := c.Audit(ctx, "", 0, 1); return err },
	}
}

func notificationsTooLate(c *center) {
	ended, cancel := context.WithCancel(c.ctx())
	cancel()
	passed, cancel := context.WithDeadline(c.ctx(), time.Now().Add(-time.Second))
	defer cancel()
	for name, try := range c.notificationReads() {
		c.run(name, func(c *center) {
			c.wantCode(try(ended), model.CodeUnavailable)
			c.wantCode(try(passed), model.CodeUnavailable)
			c.must(try(c.ctx()))
		})
	}
	everything := slices.Concat(tables, notificationTables)
	for name := range c.notificationChanges() {
		c.run(name, func(c *center) {
			try := c.notificationChanges()[name]
			before := c.dump(everything)
			c.wantCode(try(ended), model.CodeUnavailable)
			c.wantCode(try(passed), model.CodeUnavailable)
			if after := c.dump(everything); after != before {
				c.Error("it changed something")
			}
			c.must(try(c.ctx()))
			if after := c.dump(everything); after == before {
				c.Error("the same call in time changed nothing: this test proves nothing")
			}
		})
	}
}
