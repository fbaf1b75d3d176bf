package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/delivery"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/notify"
)

var fakeStart = model.MicrosOf(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))

// at is n seconds after the start.
func at(n int) model.Micros { return fakeStart + model.Micros(n)*1_000_000 }

// fakeNotifier answers by the idempotency key.
type fakeNotifier struct{}

func (fakeNotifier) Accept(_ context.Context, s notify.Submission) (notify.Receipt, error) {
	receipt := notify.Receipt{ID: testID(1), Status: notify.StatusAccepted, Deliveries: []notify.Delivered{
		{ID: testID(11), Channel: "in_app", Status: model.DeliverySucceeded, Reason: "policy 1"},
		{ID: testID(12), Channel: "mail", Status: model.DeliveryPending, Reason: "policy 1"},
	}, Skipped: []model.Choice{{Channel: "text", Skipped: true, Reason: "the recipient has no phone"}}}
	switch {
	case strings.HasPrefix(s.IdempotencyKey, "known"):
		receipt.Duplicate = true
	case strings.HasPrefix(s.IdempotencyKey, "taken"):
		return notify.Receipt{}, &notify.Error{Code: notify.Conflict, Detail: "The key is that of another notification.",
			Fields: []notify.FieldError{{Field: "recipient", Problem: "differs"}, {Field: "variables", Problem: "differs"}}}
	case strings.HasPrefix(s.IdempotencyKey, "wrong"):
		return notify.Receipt{}, &notify.Error{Code: notify.Invalid, Detail: "The notification is wrong.",
			Fields: []notify.FieldError{{Field: "variables.title", Problem: "is missing"}, {Problem: "no policy matches"}}}
	case strings.HasPrefix(s.IdempotencyKey, "later"):
		return notify.Receipt{}, &notify.Error{Code: notify.Unavailable, Detail: "The store is too slow.", RetryAfter: 1500 * time.Millisecond}
	case strings.HasPrefix(s.IdempotencyKey, "broken"):
		return notify.Receipt{}, errors.New("internal detail: relation posthouse_request")
	case strings.HasPrefix(s.IdempotencyKey, "panics"):
		panic(s.IdempotencyKey)
	}
	return receipt, nil
}

// fakeDeliveries holds one notification with a delivery of each kind.
type fakeDeliveries struct {
	view model.RequestView
	err  error
	long int // bytes of each user message; 0: a few
}

func newFakeDeliveries() *fakeDeliveries {
	one := func(n int, channel string, status model.DeliveryStatus) model.DeliveryView {
		return model.DeliveryView{
			Seq: model.DeliverySeqs + model.Seq(n), ID: testID(10 + n), RequestID: testID(1), Channel: channel, Recipient: "u1008",
			Locale: "zh-CN", Reason: "policy 1", Status: status, CreatedAt: at(0),
		}
	}
	inApp := one(1, "in_app", model.DeliverySucceeded)
	inApp.FinishedAt = at(0)
	mail := one(2, "mail", model.DeliverySucceeded)
	mail.Masked, mail.AttemptCount, mail.FinishedAt, mail.ProviderID, mail.Replay = "z•••@example.com", 1, at(30), "250 queued as 77", 1
	text := one(3, "text", model.DeliveryUncertain)
	text.Masked, text.AttemptCount, text.FinishedAt, text.ErrorClass, text.ErrorCode, text.ErrorText = "+86•••4321", 1, at(5), model.ClassUncertain, "timeout", "no answer after the request was sent"
	waiting := one(4, "chat", model.DeliveryRetryWait)
	waiting.Masked, waiting.AttemptCount, waiting.NextAttemptAt, waiting.ErrorClass, waiting.ErrorCode = "#op•••", 2, at(90), model.ClassRateLimited, "429"
	dead := one(5, "pager", model.DeliveryDead)
	dead.Masked, dead.AttemptCount, dead.FinishedAt, dead.ErrorClass, dead.ErrorCode, dead.ErrorText = "z•••", 6, at(600), model.ClassTransient, "503", "the provider answered 503"
	return &fakeDeliveries{view: model.RequestView{
		Seq: 1, AcceptedAt: at(0), Secret: true,
		Request: model.NewRequest{
			ID: testID(1), Key: "approval:9421:assignee:u1008:v3", BizType: "approval.todo", Template: "approval_todo", Recipient: "u1008",
			Priority: model.PriorityHigh, Locale: "zh-CN", ExpiresAt: at(3600), Tags: []string{"hr"},
			Choices: []model.Choice{{Channel: "in_app", Reason: "policy 1"}, {Channel: "fax", Skipped: true, Reason: "the recipient has no fax"}},
		},
		Deliveries: []model.DeliveryView{inApp, mail, text, waiting, dead},
		Attempts: map[model.Seq][]model.AttemptView{
			mail.Seq: {
				{N: 1, StartedAt: at(1), EndedAt: at(2), Outcome: model.OutcomeFailed, Reason: model.ReasonPermanent, Code: "550 5.1.1", Error: "the mailbox is not there"},
				{Replay: 1, N: 1, StartedAt: at(29), EndedAt: at(30), Outcome: model.OutcomeSuccess},
			},
			text.Seq: {{N: 1, StartedAt: at(1), EndedAt: at(5), Outcome: model.OutcomeUncertain, Reason: model.ReasonUncertain, Code: "timeout", Error: "no answer after the request was sent"}},
		},
		Audit: []model.AuditRecord{{Seq: 3, At: at(20), Actor: "li", Action: "delivery.replay", Target: "delivery/" + mail.ID.String(),
			Reason: "the mailbox is there again", Details: json.RawMessage(`{"was":"FAILED"}`)}},
	}}
}

var errNone = &model.Error{Code: model.CodeNotFound, Op: "find", Err: errors.New("no row")}

func (f *fakeDeliveries) find(id uuid.UUID) *model.DeliveryView {
	for i := range f.view.Deliveries {
		if f.view.Deliveries[i].ID == id {
			return &f.view.Deliveries[i]
		}
	}
	return nil
}

func (f *fakeDeliveries) Request(_ context.Context, id uuid.UUID) (model.RequestView, error) {
	if f.err == nil && id != f.view.Request.ID {
		return model.RequestView{}, errNone
	}
	return f.view, f.err
}

func (f *fakeDeliveries) CancelRequest(_ context.Context, id uuid.UUID, _ model.Audit) (results []model.ChangeResult, err error) {
	if f.err == nil && id != f.view.Request.ID {
		return nil, errNone
	}
	for i := range f.view.Deliveries {
		d := &f.view.Deliveries[i]
		r := model.ChangeResult{ID: d.ID, Found: true, Was: d.Status, Is: d.Status}
		if d.Status == model.DeliveryPending || d.Status == model.DeliveryRetryWait {
			r.Done, r.Is, d.Status = true, model.DeliveryCancelled, model.DeliveryCancelled
		}
		results = append(results, r)
	}
	return results, f.err
}

func (f *fakeDeliveries) UserMessages(_ context.Context, user string, after int64, limit int) (list []model.UserMessage, err error) {
	for n := after + 1; user == "u1008" && n <= 3 && len(list) < limit; n++ {
		list = append(list, model.UserMessage{ID: testID(20 + int(n)), Seq: n, RequestID: testID(1), Title: "Travel request", Body: "Your code is •••.", CreatedAt: at(int(n))})
	}
	// This user has 40, each so long.
	for n := after + 1; user == "long" && n <= 40 && len(list) < limit; n++ {
		list = append(list, model.UserMessage{ID: testID(20 + int(n)), Seq: n, RequestID: testID(1), Title: "t", Body: strings.Repeat("x", f.long), CreatedAt: at(int(n))})
	}
	return list, f.err
}

func (f *fakeDeliveries) Delivery(_ context.Context, id uuid.UUID) (model.DeliveryView, []model.AttemptView, error) {
	d := f.find(id)
	if f.err != nil || d == nil {
		return model.DeliveryView{}, nil, errors.Join(f.err, errNone)
	}
	return *d, f.view.Attempts[d.Seq], nil
}

func (f *fakeDeliveries) ListDeliveries(_ context.Context, p model.DeliveryListParams) (page model.DeliveryPage, err error) {
	for _, d := range slices.Backward(f.view.Deliveries) {
		if p.Status != "" && d.Status != p.Status || p.Before != 0 && d.Seq >= p.Before || p.From > d.CreatedAt || p.To != 0 && d.CreatedAt >= p.To {
			continue
		}
		if len(page.Items) == p.Limit {
			page.Next = page.Items[p.Limit-1].Seq
			break
		}
		page.Items = append(page.Items, d)
	}
	return page, f.err
}

func (f *fakeDeliveries) ReplayDeliveries(_ context.Context, p model.ReplayParams) (results []model.ChangeResult, err error) {
	for _, id := range p.IDs {
		d := f.find(id)
		if d == nil {
			results = append(results, model.ChangeResult{ID: id})
			continue
		}
		r := wouldReplay(*d, f.view.Erased, p.Force)
		d.Status = r.Is
		results = append(results, r)
	}
	return results, f.err
}

func (f *fakeDeliveries) ResolveDelivery(_ context.Context, id uuid.UUID, sent bool, _ model.Audit) (model.ChangeResult, error) {
	d := f.find(id)
	if f.err != nil || d == nil {
		return model.ChangeResult{ID: id}, f.err
	}
	r := model.ChangeResult{ID: id, Found: true, Was: d.Status, Is: d.Status}
	if d.Status == model.DeliveryUncertain {
		r.Done, d.Status = true, model.DeliveryPending
		if sent {
			d.Status = model.DeliverySucceeded
		}
		r.Is = d.Status
	}
	return r, nil
}

func (f *fakeDeliveries) Audit(_ context.Context, target string, before int64, limit int) (list []model.AuditRecord, err error) {
	for seq := int64(120); seq > 0 && len(list) < limit; seq-- {
		r := model.AuditRecord{Seq: seq, At: at(int(seq)), Actor: "api", Action: "channel.pause", Target: "channel/mail", Reason: "maintenance"}
		if seq == 3 {
			r = f.view.Audit[0]
		}
		if (target == "" || target == r.Target) && (before == 0 || seq < before) {
			list = append(list, r)
		}
	}
	return list, f.err
}

// fakeChannels is two channels, one of which is paused.
type fakeChannels struct{ err error }

func (f fakeChannels) Channels(context.Context) ([]delivery.ChannelStatus, error) {
	return []delivery.ChannelStatus{
		{Name: "mail", Kind: "email", State: delivery.StatePaused, Since: at(60), By: "system", Reason: "the account is refused: 535 5.7.8", Failures: 3},
	}, f.err
}

func (f fakeChannels) set(name string) error {
	if f.err == nil && name != "mail" {
		return errNone
	}
	return f.err
}

func (f fakeChannels) Pause(_ context.Context, name string, _ model.Audit) error { return f.set(name) }

func (f fakeChannels) Resume(_ context.Context, name string, _ model.Audit) error {
	return f.set(name)
}

func (f fakeChannels) Test(_ context.Context, name, address string) (channel.Result, error) {
	if err := f.set(name); err != nil {
		return channel.Result{}, err
	}
	if !strings.Contains(address, "@") {
		return channel.Result{}, &model.Error{Code: model.CodeInvalid, Op: "check an address", Err: errors.New("no @")}
	}
	return channel.Result{Class: model.ClassPermanent, Code: "550 5.1.1", Text: "the server refuses the recipient", HTTPStatus: 0}, nil
}
