package httpapi

import (
	"encoding/json"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// DeliveryItem is one delivery in a list.
type DeliveryItem struct {
	ID             string  `json:"id" format:"uuid" doc:"What the provider gets as its idempotency key, or in the Message-ID."`
	NotificationID string  `json:"notification_id" format:"uuid"`
	Channel        string  `json:"channel"`
	Purpose        string  `json:"purpose" enum:"primary,former_address,escalation"`
	Recipient      string  `json:"recipient" doc:"The recipient's id."`
	Destination    *string `json:"destination" doc:"The address, masked; null where there is none to send to (in the application)."`
	Locale         string  `json:"locale" doc:"Of the template that was used; empty is its default."`
	Reason         string  `json:"reason" doc:"Why the channel was chosen."`
	Status         string  `json:"status" enum:"PENDING,PROCESSING,RETRY_WAIT,SUCCEEDED,DELIVERED,FAILED,DEAD,UNCERTAIN,CANCELLED"`
	AttemptCount   int     `json:"attempt_count" minimum:"0" doc:"Since the last replay."`
	NextAttemptAt  Time    `json:"next_attempt_at" doc:"Null unless it is PENDING or in RETRY_WAIT."`
	CreatedAt      Time    `json:"created_at" nullable:"false"`
	FinishedAt     Time    `json:"finished_at" doc:"When it became final, or UNCERTAIN."`
	ProviderID     *string `json:"provider_id" doc:"The provider's id of the message, where it gave one."`
	ErrorClass     *string `json:"error_class" enum:"transient,rate_limited,permanent,auth,uncertain" doc:"Of the last attempt since the last replay that did not succeed."`
	ErrorCode      *string `json:"error_code" doc:"The provider's own, such as 550 5.1.1."`
	ErrorText      *string `json:"error_text"`
	Replay         int     `json:"replay" minimum:"0" doc:"How often it was replayed."`
}

// DeliveryList is one page of deliveries, newest first.
type DeliveryList struct {
	Items      []DeliveryItem `json:"items" nullable:"false"`
	NextCursor *string        `json:"next_cursor" doc:"The cursor of the next page; null on the last."`
}

// DeliveryDetail is one delivery with its attempts.
type DeliveryDetail struct {
	DeliveryItem
	Attempts []DeliveryAttempt `json:"attempts" nullable:"false" doc:"All that have ended, oldest first."`
}

// DeliveryAttempt is one attempt at a delivery.
type DeliveryAttempt struct {
	Replay     int     `json:"replay" minimum:"0" doc:"Which replay it belongs to; 0 before the first."`
	N          int     `json:"n" minimum:"1" doc:"1 for the first since the replay."`
	StartedAt  Time    `json:"started_at"`
	EndedAt    Time    `json:"ended_at"`
	Outcome    string  `json:"outcome" enum:"success,failed,lost,uncertain"`
	Class      string  `json:"class" enum:"success,transient,rate_limited,permanent,auth,uncertain,error,panic,timeout,http_status,connect,forbidden,worker_lost,orphaned" doc:"How the answer was classed, or what came between."`
	Code       *string `json:"code" doc:"The provider's own."`
	Text       *string `json:"text" doc:"What happened, in one line."`
	HTTPStatus *int    `json:"http_status"`
}

// NewDeliveryItem shows a delivery.
func NewDeliveryItem(v model.DeliveryView) DeliveryItem {
	return DeliveryItem{
		ID: v.ID.String(), NotificationID: v.RequestID.String(), Channel: v.Channel, Purpose: v.Purpose.String(), Recipient: v.Recipient,
		Destination: unlessZero(v.Masked), Locale: v.Locale, Reason: v.Reason, Status: string(v.Status), AttemptCount: v.AttemptCount,
		NextAttemptAt: Time(v.NextAttemptAt), CreatedAt: Time(v.CreatedAt), FinishedAt: Time(v.FinishedAt), ProviderID: unlessZero(v.ProviderID),
		ErrorClass: unlessZero(string(v.ErrorClass)), ErrorCode: unlessZero(v.ErrorCode), ErrorText: unlessZero(v.ErrorText), Replay: v.Replay,
	}
}

// NewDeliveryAttempt shows an attempt.
func NewDeliveryAttempt(v model.AttemptView) DeliveryAttempt {
	class := string(v.Reason)
	if v.Outcome == model.OutcomeSuccess {
		class = string(model.ClassSuccess)
	}
	return DeliveryAttempt{
		Replay: v.Replay, N: v.N, StartedAt: Time(v.StartedAt), EndedAt: Time(v.EndedAt), Outcome: v.Outcome, Class: class,
		Code: unlessZero(v.Code), Text: unlessZero(v.Error), HTTPStatus: unlessZero(v.HTTPStatus),
	}
}

// Change is what a change of one delivery came to.
type Change struct {
	ID      string  `json:"id" format:"uuid"`
	Channel string  `json:"channel,omitempty"`
	Done    bool    `json:"done"`
	Was     *string `json:"was" doc:"The status before; null where there is no such delivery."`
	Is      *string `json:"is" doc:"The status after it."`
	Detail  string  `json:"detail,omitempty" doc:"Why it was not done."`
}

func newChange(r model.ChangeResult, detail string) Change {
	c := Change{ID: r.ID.String(), Done: r.Done, Was: unlessZero(string(r.Was)), Is: unlessZero(string(r.Is))}
	if !r.Done {
		c.Detail = detail
	}
	return c
}

// CancelAnswer is what cancelling a notification came to.
type CancelAnswer struct {
	ID         string   `json:"id" format:"uuid"`
	Status     string   `json:"status" enum:"accepted,in_progress,succeeded,failed,cancelled" doc:"Of the notification, afterwards."`
	Deliveries []Change `json:"deliveries" nullable:"false"`
}

// ReasonRequest says why.
type ReasonRequest struct {
	_ struct{} `additionalProperties:"false"`

	Reason string `json:"reason" maxLength:"500" doc:"For the audit log."`
}

// CancelRequest may say why.
type CancelRequest struct {
	_ struct{} `additionalProperties:"false"`

	Reason string `json:"reason,omitempty" maxLength:"500" doc:"For the audit log."`
}

// ReplayRequest asks to send one delivery again.
type ReplayRequest struct {
	_ struct{} `additionalProperties:"false"`

	Reason string `json:"reason" maxLength:"500" doc:"For the audit log."`
	Force  bool   `json:"force,omitempty" doc:"Also where it is UNCERTAIN, SUCCEEDED, DELIVERED or CANCELLED: the recipient may get it twice."`
}

// ResolveRequest says what an operator has found out.
type ResolveRequest struct {
	_ struct{} `additionalProperties:"false"`

	Outcome string `json:"outcome" enum:"sent,not_sent" doc:"sent: it becomes SUCCEEDED. not_sent: it is sent again."`
	Reason  string `json:"reason" maxLength:"500" doc:"For the audit log: how it was found out."`
}

// BulkReplayRequest chooses deliveries to be sent again.
type BulkReplayRequest struct {
	_ struct{} `additionalProperties:"false"`

	Filter BulkReplayFilter `json:"filter"`
	DryRun bool             `json:"dry_run,omitempty" doc:"Only say what would be done."`
	Reason string           `json:"reason" maxLength:"500" doc:"For the audit log."`
	Force  bool             `json:"force,omitempty" doc:"Also where it is UNCERTAIN, SUCCEEDED, DELIVERED or CANCELLED: the recipient may get it twice."`
	Limit  int              `json:"limit,omitempty" minimum:"1" maximum:"500" default:"100" doc:"How many at most in this call."`
	Cursor string           `json:"cursor,omitempty" doc:"The next_cursor of the call before, with the same filter."`
}

// BulkReplayFilter is either ids, or a status with what narrows it.
type BulkReplayFilter struct {
	_ struct{} `additionalProperties:"false"`

	Status  string `json:"status,omitempty" enum:"FAILED,DEAD,UNCERTAIN,SUCCEEDED,DELIVERED,CANCELLED" doc:"Required without ids. Other than FAILED and DEAD only with force."`
	Channel string `json:"channel,omitempty" minLength:"1"`
	From    *Time  `json:"from,omitempty" doc:"Created at or after."`
	To      *Time  `json:"to,omitempty" doc:"Created before."`

	IDs []string `json:"ids,omitempty" minItems:"1" maxItems:"500" doc:"These alone; nothing else may be set with it."`
}

// BulkReplayAnswer is what one call came to.
type BulkReplayAnswer struct {
	DryRun     bool     `json:"dry_run"`
	Matched    int      `json:"matched" doc:"In this call."`
	Replayed   int      `json:"replayed" doc:"In this call; in a dry run: what would have been."`
	Results    []Change `json:"results" nullable:"false"`
	NextCursor *string  `json:"next_cursor" doc:"Call again with it; null where nothing is left."`
}

// UserMessageList is a user's messages, ascending.
type UserMessageList struct {
	Items      []UserMessageItem `json:"items" nullable:"false"`
	NextCursor *string           `json:"next_cursor" doc:"To be given as after; null where nothing follows for now."`
}

// UserMessageItem is what a user sees.
type UserMessageItem struct {
	ID        string `json:"id" format:"uuid"`
	Seq       int64  `json:"seq" minimum:"1" doc:"From 1, without gaps, per user."`
	RequestID string `json:"request_id" format:"uuid" doc:"The notification."`
	Title     string `json:"title"`
	Body      string `json:"body" doc:"Markdown. Values of sensitive variables are dots in it."`
	CreatedAt Time   `json:"created_at" nullable:"false"`
	ReadAt    Time   `json:"read_at"`
}

func newUserMessage(m model.UserMessage) UserMessageItem {
	return UserMessageItem{ID: m.ID.String(), Seq: m.Seq, RequestID: m.RequestID.String(), Title: m.Title, Body: m.Body, CreatedAt: Time(m.CreatedAt), ReadAt: Time(m.ReadAt)}
}

// AuditList is one page of what operators did, newest first.
type AuditList struct {
	Items      []AuditItem `json:"items" nullable:"false"`
	NextCursor *string     `json:"next_cursor" doc:"The cursor of the next page; null on the last."`
}

// AuditItem is one thing that somebody did.
type AuditItem struct {
	Seq     int64           `json:"seq"`
	At      Time            `json:"at" nullable:"false"`
	Actor   string          `json:"actor"`
	Action  string          `json:"action" doc:"Such as delivery.replay."`
	Target  string          `json:"target" doc:"On what: delivery/<id>, notification/<id> or channel/<name>."`
	Reason  string          `json:"reason"`
	Details json.RawMessage `json:"details" doc:"A small object: the former status, the outcome."`
}

func newAuditItem(r model.AuditRecord) AuditItem {
	details := r.Details
	if len(details) == 0 {
		details = json.RawMessage("{}")
	}
	return AuditItem{Seq: r.Seq, At: Time(r.At), Actor: r.Actor, Action: r.Action, Target: r.Target, Reason: r.Reason, Details: details}
}

// parseIDs reads ids; the places of those that are none are returned.
func parseIDs(texts []string) (ids []uuid.UUID, bad []int) {
	ids = make([]uuid.UUID, len(texts))
	for i, text := range texts {
		id, err := uuid.Parse(text)
		if err != nil || len(text) != 36 {
			bad = append(bad, i)
		}
		ids[i] = id
	}
	return ids, bad
}
