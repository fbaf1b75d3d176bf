package storetest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// RunNotifications proves Notifications, and what Store promises of deliveries,
// on the database of h. Its stores must be both. Nothing is skipped.
func RunNotifications(t *testing.T, h Harness) {
	t.Run("schema", h.notificationSchema)
	for _, topic := range []struct {
		name string
		test func(*center)
	}{
		{"requests", puttingRequests},
		{"keys", idempotencyKeys},
		{"user messages", userMessages},
		{"states", deliveryStates},
		{"settling", settlingDeliveries},
		{"cancelling", cancelling},
		{"expiring", expiring},
		{"operators", operators},
		{"secrets", secrets},
		{"all at once", allAtOnce},
		{"templates", templates},
		{"lists", deliveryLists},
		{"views", notificationViews},
		{"audit", auditing},
		{"calls", notificationCalls},
	} {
		t.Run(topic.name, func(t *testing.T) { topic.test(h.center(t)) })
	}
}

// notificationTables are those that only notifications have, without the prefix
// of their names. An engine may have more.
var notificationTables = []string{"template", "request", "secret", "delivery", "user", "user_message", "audit"}

// center is a kit whose store keeps notifications, too.
type center struct {
	*kit
	Notifications
	version model.TemplateID // that deliveries of these tests have frozen
}

func (h Harness) center(t *testing.T) *center {
	t.Helper()
	return centerOf(h.kit(t))
}

func centerOf(k *kit) *center {
	k.Helper()
	c := &center{kit: k, Notifications: k.notifications(k.Store)}
	ids, err := c.PutTemplates(c.ctx(), []model.TemplateVersion{{Code: "approval_todo", Kind: "text", Text: "To do"}})
	c.must(err)
	c.version = ids[0]
	return c
}

// notifications is the same store.
func (k *kit) notifications(s Store) Notifications {
	k.Helper()
	n, ok := s.(Notifications)
	if !ok {
		k.Fatalf("a %T keeps no notifications", s)
	}
	return n
}

// run is t.Run with the same store.
func (c *center) run(name string, test func(*center)) {
	c.Helper()
	c.kit.run(name, func(k *kit) {
		test(&center{kit: k, Notifications: c.Notifications, version: c.version})
	})
}

// alone is run with a store of its own.
func (c *center) alone(name string, test func(*center)) {
	c.Helper()
	c.T.Run(name, func(t *testing.T) { test(c.h.center(t)) })
}

// delivering is what channels of these tests want, unless they say otherwise.
var delivering = model.RetryPolicy{
	MaxRetry: 3, Backoff: []time.Duration{time.Second, time.Minute}, OrphanAfter: time.Hour,
	Jitter: 5 * time.Second, Uncertain: model.UncertainResend,
}

// channel registers a channel of its own.
func (c *center) channel() model.Source {
	c.Helper()
	return c.channelWith(delivering)
}

func (c *center) channelWith(p model.RetryPolicy) model.Source {
	c.Helper()
	sources, err := c.Register(c.ctx(), []model.SourceSpec{{
		Name: model.ChannelPrefix + "c-" + uuid.NewString(), Tenant: model.TenantDelivery, Enabled: true, Policy: p, Wants: parallel,
	}})
	c.must(err)
	if sources[0].Tenant != model.TenantDelivery {
		c.Fatalf("registered as %+v", sources[0])
	}
	c.agreed.set(sources...)
	return sources[0]
}

// nameOf is the channel's own.
func nameOf(channel model.Source) string { return channel.Name[len(model.ChannelPrefix):] }

// request is about something of its own, to be sent through channels.
func (c *center) request(recipient string, channels ...model.Source) model.NewRequest {
	id := uuid.Must(uuid.NewV7())
	r := model.NewRequest{
		ID: id, Key: "order:" + id.String(), Content: contentOf(id),
		BizType: "order.shipped", Template: "order_shipped", Recipient: recipient, Priority: model.PriorityNormal, Locale: "fr-CA",
		Variables: json.RawMessage(`{"n":1}`),
	}
	for i, channel := range channels {
		reason := fmt.Sprint("policy ", i+1)
		r.Choices = append(r.Choices, model.Choice{Channel: nameOf(channel), Reason: reason})
		r.Deliveries = append(r.Deliveries, model.NewDelivery{
			ID: uuid.Must(uuid.NewV7()), Channel: channel.ID, Template: c.version, Locale: "fr", Reason: reason,
			Masked: "u•••@example.com", Address: model.Sealed{KeyID: "k1", Bytes: []byte{0, 0xff, byte(i)}},
		})
	}
	return r
}

// seenBy adds what the user sees to a request: the user message, and a delivery
// that is done.
func (c *center) seenBy(r model.NewRequest, inApp model.Source) model.NewRequest {
	r.Message = &model.NewUserMessage{ID: uuid.Must(uuid.NewV7()), Title: "Shipped", Body: "It is on its *way*."}
	r.Choices = append(r.Choices, model.Choice{Channel: nameOf(inApp), Reason: "always"})
	r.Deliveries = append(r.Deliveries, model.NewDelivery{
		ID: uuid.Must(uuid.NewV7()), Channel: inApp.ID, Template: c.version, Locale: "fr", Reason: "always", Done: true,
	})
	return r
}

// again is the same request as somebody else sends it: all ids are others.
func again(r model.NewRequest) model.NewRequest {
	r.ID = uuid.Must(uuid.NewV7())
	if r.Message != nil {
		message := *r.Message
		message.ID = uuid.Must(uuid.NewV7())
		r.Message = &message
	}
	r.Deliveries = append([]model.NewDelivery(nil), r.Deliveries...)
	for i := range r.Deliveries {
		r.Deliveries[i].ID = uuid.Must(uuid.NewV7())
	}
	return r
}

// contentOf is a fingerprint that no other request has.
func contentOf(id uuid.UUID) (content model.Content) {
	content.KeyID = "k1"
	for i := range content.Fields {
		content.Fields[i] = [16]byte(id)
		content.Fields[i][0] = byte(i)
	}
	return content
}

// accept keeps requests, and wants each to be the first of its key.
func (c *center) accept(requests ...model.NewRequest) []model.RequestHead {
	c.Helper()
	answers := c.answers(requests...)
	heads := make([]model.RequestHead, len(answers))
	for i, a := range answers {
		if a.Duplicate || a.First.ID != requests[i].ID {
			c.Fatalf("request %d of %d is said to be a duplicate: %+v", i+1, len(answers), a)
		}
		heads[i] = a.First
	}
	return heads
}

func (c *center) answers(requests ...model.NewRequest) []model.PutRequest {
	c.Helper()
	answers, err := c.PutRequests(c.ctx(), requests)
	c.must(err)
	if len(answers) != len(requests) {
		c.Fatalf("%d requests have %d answers", len(requests), len(answers))
	}
	return answers
}

// send accepts n requests with one delivery each through the channel, and
// returns them with the numbers of the deliveries.
func (c *center) send(channel model.Source, n int) (requests []model.NewRequest, deliveries []model.Seq) {
	c.Helper()
	for range n {
		requests = append(requests, c.request("u1", channel))
	}
	for _, head := range c.accept(requests...) {
		deliveries = append(deliveries, head.Deliveries[0].Seq)
	}
	return requests, deliveries
}

// pick claims deliveries without starting them.
func (c *center) pick(channel model.SourceID, owner model.InstanceID, limit int) []model.Work {
	c.Helper()
	return c.claimWith(model.ClaimParams{Queue: channel, Owner: owner, Limit: limit, Shared: true, Bare: true})
}

// pickStarted claims deliveries and starts them.
func (c *center) pickStarted(channel model.SourceID, owner model.InstanceID, limit int) []model.Work {
	c.Helper()
	return c.claimWith(model.ClaimParams{Queue: channel, Owner: owner, Limit: limit, Shared: true, Bare: true, Start: true, AloneFrom: 1000})
}

// ended is how the attempt at a delivery ended.
func ended(w model.Work, kind model.SettleKind) model.Settlement {
	s := model.Settlement{
		Seq: w.Seq, Queue: w.Queue, Token: w.Token, Kind: kind, StartedAt: w.StartedAt,
		Duration: 1500 * time.Microsecond, RetryCount: w.RetryCount, Replay: w.Replay,
	}
	switch kind {
	case model.SettleSuccess:
		s.HTTPStatus, s.ProviderID = 201, "SM-1"
	case model.SettleRetry, model.SettleDead:
		s.Reason, s.Error, s.HTTPStatus, s.Code = model.ReasonTransient, "503 from the provider", 503, "BUSY"
	case model.SettleFailed:
		s.Reason, s.Error, s.HTTPStatus, s.Code = model.ReasonPermanent, "no such number", 400, "21211"
	case model.SettleUncertain:
		s.Reason, s.Error, s.Uncertain = model.ReasonUncertain, "no answer after the last byte", true
	case model.SettleRelease:
	}
	return s
}

// end settles one attempt and wants it applied.
func (c *center) end(kind model.SettleKind, works ...model.Work) {
	c.Helper()
	for _, w := range works {
		if !c.settleOne(ended(w, kind)) {
			c.Fatalf("%v of delivery %d was not applied", kind, w.Seq)
		}
	}
}

func (c *center) delivery(id uuid.UUID) (model.DeliveryView, []model.AttemptView) {
	c.Helper()
	view, attempts, err := c.Delivery(c.ctx(), id)
	c.must(err)
	return view, attempts
}

func (c *center) wantStatus(id uuid.UUID, want model.DeliveryStatus) model.DeliveryView {
	c.Helper()
	view, _ := c.delivery(id)
	if view.Status != want {
		c.Errorf("the delivery is %s, want %s", view.Status, want)
	}
	return view
}

func (c *center) view(id uuid.UUID) model.RequestView {
	c.Helper()
	view, err := c.Request(c.ctx(), id)
	c.must(err)
	return view
}

// records are those of one target, newest first.
func (c *center) records(target string) []model.AuditRecord {
	c.Helper()
	records, err := c.Audit(c.ctx(), target, 0, 1000)
	c.must(err)
	return records
}

// wantDelivered checks how many rows a channel has.
func (c *center) wantDelivered(channel model.SourceID, deliveries, work, outcomes int64) {
	c.Helper()
	got := [3]int64{
		c.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_delivery WHERE channel = %d`, channel)),
		c.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_work WHERE queue = %d`, channel)),
		c.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_outcome WHERE source = %d`, channel)),
	}
	if want := [3]int64{deliveries, work, outcomes}; got != want {
		c.Errorf("deliveries, works and outcomes are %v, want %v", got, want)
	}
}

// by is who does something in these tests.
var by = model.Audit{Actor: "ops", Reason: "the provider was down"}

// same compares without telling nothing from what is empty.
func (c *center) same(what string, want, got any, options ...cmp.Option) {
	c.Helper()
	if diff := cmp.Diff(want, got, append(options, cmpopts.EquateEmpty())...); diff != "" {
		c.Errorf("%s: %s", what, diff)
	}
}
