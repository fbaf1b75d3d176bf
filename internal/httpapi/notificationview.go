package httpapi

import (
	"cmp"
	"slices"
	"time"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/notify"
)

// NotificationRequest says what happened and whom to tell.
type NotificationRequest struct {
	_ struct{} `additionalProperties:"false"`

	IdempotencyKey string              `json:"idempotency_key" maxLength:"128" doc:"Names it for ever: another one with the same key and the same content is the same one. Take it from the business, such as approval:9421:assignee:u1008:v3. At most 128 bytes, compared byte for byte."`
	BizType        string              `json:"biz_type" maxLength:"128" doc:"What happened, for policies: approval.todo."`
	Template       string              `json:"template" maxLength:"64" doc:"The code of a template."`
	Recipient      NotificationAddress `json:"recipient"`
	Variables      map[string]any      `json:"variables,omitempty" doc:"As the template declares them."`
	Priority       string              `json:"priority,omitempty" enum:"low,normal,high" default:"normal"`
	Locale         string              `json:"locale,omitempty" maxLength:"35" doc:"Such as zh-CN. Without it, or where the template has no such text: the template's default."`
	NotBefore      *time.Time          `json:"not_before,omitempty" nullable:"true" doc:"Nothing is sent before; the message to be read in the application is there at once."`
	ExpiresAt      *time.Time          `json:"expires_at,omitempty" nullable:"true" doc:"What is not sent by then is cancelled."`
	Tags           []string            `json:"tags,omitempty" maxItems:"20" nullable:"true" doc:"For policies; at most 64 bytes each."`
}

// NotificationAddress is whom to tell. It has further members where a channel is
// configured with another kind of address.
type NotificationAddress struct {
	_ struct{} `additionalProperties:"true"`

	ID    string `json:"id" maxLength:"128"`
	Email string `json:"email,omitempty"`
	Phone string `json:"phone,omitempty"`
}

// BatchRequest is notifications to be accepted each by itself.
type BatchRequest struct {
	_ struct{} `additionalProperties:"false"`

	Notifications []NotificationRequest `json:"notifications" minItems:"1" maxItems:"1000" nullable:"false"`
}

// NotificationReceipt says that a notification is kept.
type NotificationReceipt struct {
	ID         string            `json:"id" format:"uuid"`
	Status     string            `json:"status" enum:"accepted,in_progress,succeeded,failed,cancelled" doc:"As it was when it was accepted."`
	Duplicate  bool              `json:"duplicate" doc:"It had been accepted before; nothing was added."`
	Deliveries []ReceiptDelivery `json:"deliveries" nullable:"false"`
	Skipped    []ChannelReason   `json:"skipped" nullable:"false" doc:"Channels that the policy wants, and that cannot be used for this recipient."`
}

// ReceiptDelivery is one channel's task.
type ReceiptDelivery struct {
	ID      string `json:"id" format:"uuid"`
	Channel string `json:"channel"`
	Status  string `json:"status" enum:"PENDING,PROCESSING,RETRY_WAIT,SUCCEEDED,DELIVERED,FAILED,DEAD,UNCERTAIN,CANCELLED"`
	Reason  string `json:"reason" doc:"Why the channel was chosen."`
}

// ChannelReason is a channel and why.
type ChannelReason struct {
	Channel string `json:"channel"`
	Reason  string `json:"reason"`
}

// BatchAnswer answers for each notification of a batch, in the order given.
type BatchAnswer struct {
	Results []BatchResult `json:"results" nullable:"false"`
}

// BatchResult is what the notification by itself would have been answered.
type BatchResult struct {
	Status       int                  `json:"status" doc:"202, 200 (a duplicate), 409, 422, 500 or 503."`
	Notification *NotificationReceipt `json:"notification,omitempty"`
	Problem      *Problem             `json:"problem,omitempty"`
}

// NotificationDetail is a notification with all that became of it.
type NotificationDetail struct {
	ID             string          `json:"id" format:"uuid"`
	Status         string          `json:"status" enum:"accepted,in_progress,succeeded,failed,cancelled" doc:"It follows from the deliveries, by what the policy calls a success."`
	IdempotencyKey string          `json:"idempotency_key"`
	BizType        string          `json:"biz_type"`
	Template       string          `json:"template"`
	Recipient      string          `json:"recipient" doc:"The recipient's id."`
	Priority       string          `json:"priority" enum:"low,normal,high"`
	Locale         string          `json:"locale" doc:"As asked for; each delivery says which was used."`
	Tags           []string        `json:"tags" nullable:"false"`
	AcceptedAt     Time            `json:"accepted_at" nullable:"false"`
	NotBefore      Time            `json:"not_before"`
	ExpiresAt      Time            `json:"expires_at"`
	Sensitive      string          `json:"sensitive" enum:"none,kept,erased" doc:"What became of the values of sensitive variables: there are none, they are kept encrypted until nothing is left to send, or they are gone."`
	Deliveries     []DeliveryItem  `json:"deliveries" nullable:"false"`
	Skipped        []ChannelReason `json:"skipped" nullable:"false"`
	Timeline       []TimelineEvent `json:"timeline" nullable:"false" doc:"What happened, oldest first."`
}

// The words of TimelineEvent.Event, in the order in which they stand where they
// have the same time.
const (
	EventAccepted = "accepted"
	EventChosen   = "chosen"
	EventSkipped  = "skipped"
	EventAttempt  = "attempt"
	EventExpired  = "expired"
	EventOperator = "operator"
)

// TimelineEvent is one thing that happened.
type TimelineEvent struct {
	At         Time             `json:"at" nullable:"false" doc:"Of an attempt: when it ended."`
	Event      string           `json:"event" enum:"accepted,chosen,skipped,attempt,expired,operator"`
	Channel    string           `json:"channel,omitempty"`
	DeliveryID string           `json:"delivery_id,omitempty" format:"uuid"`
	Reason     string           `json:"reason,omitempty" doc:"Why a channel was chosen or skipped, or what an operator gave as the reason."`
	Attempt    *DeliveryAttempt `json:"attempt,omitempty"`
	Actor      string           `json:"actor,omitempty"`
	Action     string           `json:"action,omitempty" doc:"Such as delivery.replay."`
}

// NewNotificationReceipt shows what was kept.
func NewNotificationReceipt(r notify.Receipt) NotificationReceipt {
	return NotificationReceipt{
		ID: r.ID.String(), Status: string(r.Status), Duplicate: r.Duplicate,
		Deliveries: convert(r.Deliveries, func(d notify.Delivered) ReceiptDelivery {
			return ReceiptDelivery{ID: d.ID.String(), Channel: d.Channel, Status: string(d.Status), Reason: d.Reason}
		}),
		Skipped: skipped(r.Skipped),
	}
}

func skipped(choices []model.Choice) []ChannelReason {
	list := []ChannelReason{}
	for _, c := range choices {
		if c.Skipped {
			list = append(list, ChannelReason{c.Channel, c.Reason})
		}
	}
	return list
}

// NewNotificationDetail shows a notification with its timeline.
func NewNotificationDetail(v model.RequestView) NotificationDetail {
	r := v.Request
	d := NotificationDetail{
		ID: r.ID.String(), Status: string(notify.StatusOf(v)), IdempotencyKey: r.Key, BizType: r.BizType, Template: r.Template,
		Recipient: r.Recipient, Priority: string(r.Priority), Locale: r.Locale, Tags: append([]string{}, r.Tags...),
		AcceptedAt: Time(v.AcceptedAt), NotBefore: Time(r.NotBefore), ExpiresAt: Time(r.ExpiresAt), Sensitive: "none",
		Deliveries: convert(v.Deliveries, NewDeliveryItem), Skipped: skipped(r.Choices), Timeline: timeline(v),
	}
	switch {
	case v.Erased:
		d.Sensitive = "erased"
	case v.Secret:
		d.Sensitive = "kept"
	}
	return d
}

// hasExpired: it was cancelled, and by nobody.
func hasExpired(d model.DeliveryView, expires model.Micros) bool {
	return d.Status == model.DeliveryCancelled && expires != 0 && d.FinishedAt >= expires
}

// timeline tells what happened, oldest first.
func timeline(v model.RequestView) []TimelineEvent {
	events := []TimelineEvent{{At: Time(v.AcceptedAt), Event: EventAccepted}}
	for _, c := range v.Request.Choices {
		if c.Skipped {
			events = append(events, TimelineEvent{At: Time(v.AcceptedAt), Event: EventSkipped, Channel: c.Channel, Reason: c.Reason})
		}
	}
	channels := make(map[string]model.DeliveryView, len(v.Deliveries)) // by the target of audit records
	for _, d := range v.Deliveries {
		channels["delivery/"+d.ID.String()] = d
		events = append(events, TimelineEvent{At: Time(d.CreatedAt), Event: EventChosen, Channel: d.Channel, DeliveryID: d.ID.String(), Reason: d.Reason})
		for _, a := range v.Attempts[d.Seq] {
			shown := NewDeliveryAttempt(a)
			events = append(events, TimelineEvent{At: Time(a.EndedAt), Event: EventAttempt, Channel: d.Channel, DeliveryID: d.ID.String(), Attempt: &shown})
		}
		if hasExpired(d, v.Request.ExpiresAt) {
			events = append(events, TimelineEvent{At: Time(d.FinishedAt), Event: EventExpired, Channel: d.Channel, DeliveryID: d.ID.String()})
		}
	}
	for _, r := range v.Audit {
		e := TimelineEvent{At: Time(r.At), Event: EventOperator, Actor: r.Actor, Action: r.Action, Reason: r.Reason}
		if d, ok := channels[r.Target]; ok {
			e.Channel, e.DeliveryID = d.Channel, d.ID.String()
		}
		events = append(events, e)
	}
	slices.SortStableFunc(events, func(a, b TimelineEvent) int { return cmp.Compare(a.At, b.At) })
	return events
}
