package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Priority is for the policies that choose channels.
type Priority string

// The values of Priority.
const (
	Low    Priority = "low"
	Normal Priority = "normal"
	High   Priority = "high"
)

// Notification says what happened and whom to tell.
type Notification struct {
	// IdempotencyKey names it for ever: another one with the same key and the same
	// content is the same one, and is told once. Take it from the business:
	// "approval:9421:assignee:u1008:v3". Required, at most 128 bytes.
	IdempotencyKey string `json:"idempotency_key"`
	BizType        string `json:"biz_type"` // what policies go by: "approval.todo"; required
	Template       string `json:"template"` // the code of a template; required

	Recipient Recipient      `json:"recipient"`
	Variables map[string]any `json:"variables,omitempty"` // as the template declares them

	Priority  Priority  `json:"priority,omitempty"` // default: Normal
	Locale    string    `json:"locale,omitempty"`   // such as "zh-CN"; default: the template's
	NotBefore time.Time `json:"not_before,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // what is not sent by then is cancelled
	Tags      []string  `json:"tags,omitempty"`      // for policies
}

// Recipient is whom to tell. A channel whose address is missing is skipped.
type Recipient struct {
	ID    string // required; what the user's messages are listed by
	Email string
	Phone string
	// Other are further addresses, by the kind that a channel's `address` names.
	Other map[string]string
}

// MarshalJSON implements json.Marshaler: all addresses stand beside the id.
func (r Recipient) MarshalJSON() ([]byte, error) {
	all := maps.Clone(r.Other)
	if all == nil {
		all = map[string]string{}
	}
	for name, value := range map[string]string{"id": r.ID, "email": r.Email, "phone": r.Phone} {
		if value == "" {
			continue
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("the recipient has %s twice: also in Other", name)
		}
		all[name] = value
	}
	return json.Marshal(all)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Recipient) UnmarshalJSON(text []byte) error {
	var all map[string]string
	if err := json.Unmarshal(text, &all); err != nil {
		return errors.New("the recipient must be an object of texts")
	}
	*r = Recipient{ID: all["id"], Email: all["email"], Phone: all["phone"]}
	for name, value := range all {
		if name == "id" || name == "email" || name == "phone" {
			continue
		}
		if r.Other == nil {
			r.Other = map[string]string{}
		}
		r.Other[name] = value
	}
	return nil
}

// Status is where a notification as a whole stands.
type Status string

// The values of Status.
const (
	Accepted   Status = "accepted"    // nothing has been tried yet
	InProgress Status = "in_progress" // neither succeeded nor failed
	Succeeded  Status = "succeeded"   // what the policy asks for was sent
	Failed     Status = "failed"      // what the policy asks for cannot be reached any more
	Cancelled  Status = "cancelled"
)

// Receipt says that a notification is kept.
type Receipt struct {
	ID        string `json:"id"`
	Status    Status `json:"status"`
	Duplicate bool   `json:"duplicate"` // it had been accepted before; nothing was added

	Deliveries []ReceiptDelivery `json:"deliveries"`
	Skipped    []Choice          `json:"skipped"`
}

// ReceiptDelivery is one channel's task.
type ReceiptDelivery struct {
	ID      string         `json:"id"`
	Channel string         `json:"channel"`
	Status  DeliveryStatus `json:"status"`
	Reason  string         `json:"reason"` // why the channel was chosen
}

// Choice is a channel and the reason that concerns it.
type Choice struct {
	Channel string `json:"channel"`
	Reason  string `json:"reason"`
}

// Notify submits a notification. A nil error means that it is kept durably, and
// is carried out from now on. It is tried again where no answer came.
func (c *Client) Notify(ctx context.Context, n Notification) (Receipt, error) {
	var r Receipt
	err := c.do(ctx, call{method: http.MethodPost, path: "/notifications", body: n, answer: &r, again: true})
	return r, err
}

// MaxBatch is how many notifications one batch may have.
const MaxBatch = 1000

// BatchResult answers for one notification of a batch.
type BatchResult struct {
	Receipt Receipt // the zero Receipt where there is an error
	Err     error   // an *Error, or nil
}

// NotifyBatch submits up to MaxBatch notifications and answers for each, in the
// order given: one that is refused keeps no other from being accepted. The batch
// as a whole is tried again where no answer came; those whose error is
// Unavailable may be submitted again.
func (c *Client) NotifyBatch(ctx context.Context, list []Notification) ([]BatchResult, error) {
	var answer struct {
		Results []struct {
			Status       int      `json:"status"`
			Notification *Receipt `json:"notification"`
			Problem      *problem `json:"problem"`
		} `json:"results"`
	}
	body := struct {
		Notifications []Notification `json:"notifications"`
	}{list}
	if err := c.do(ctx, call{method: http.MethodPost, path: "/notifications:batch", body: body, answer: &answer, again: true}); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(list) {
		return nil, &Error{Code: Internal, Detail: "the answer has another number of results than there were notifications"}
	}
	results := make([]BatchResult, len(list))
	for i, r := range answer.Results {
		switch {
		case r.Problem != nil:
			e := r.Problem.error(r.Status)
			prefix := fmt.Sprintf("notifications[%d].", i)
			for f := range e.Fields {
				e.Fields[f].Field = strings.TrimPrefix(e.Fields[f].Field, prefix)
			}
			results[i].Err = e
		case r.Notification != nil:
			results[i].Receipt = *r.Notification
		default:
			results[i].Err = &Error{Code: Internal, Status: r.Status, Detail: "the answer has no result for this notification"}
		}
	}
	return results, nil
}

// NotificationDetail is a notification with all that became of it.
type NotificationDetail struct {
	ID             string    `json:"id"`
	Status         Status    `json:"status"`
	IdempotencyKey string    `json:"idempotency_key"`
	BizType        string    `json:"biz_type"`
	Template       string    `json:"template"`
	Recipient      string    `json:"recipient"` // the id
	Priority       Priority  `json:"priority"`
	Locale         string    `json:"locale"`
	Tags           []string  `json:"tags"`
	AcceptedAt     time.Time `json:"accepted_at"`
	NotBefore      time.Time `json:"not_before,omitzero"`
	ExpiresAt      time.Time `json:"expires_at,omitzero"`
	// Sensitive says what became of the values of sensitive variables: "none",
	// "kept" (encrypted) or "erased".
	Sensitive string `json:"sensitive"`

	Deliveries []Delivery `json:"deliveries"`
	Skipped    []Choice   `json:"skipped"`
	Timeline   []Event    `json:"timeline"` // oldest first
}

// Event is one thing that happened to a notification.
type Event struct {
	At time.Time `json:"at"`
	// Event: "accepted", "chosen", "skipped", "attempt", "expired" or "operator".
	Event      string `json:"event"`
	Channel    string `json:"channel,omitempty"`
	DeliveryID string `json:"delivery_id,omitempty"`
	Reason     string `json:"reason,omitempty"` // of a choice, or an operator's

	Attempt *Attempt `json:"attempt,omitempty"`
	Actor   string   `json:"actor,omitempty"`
	Action  string   `json:"action,omitempty"`
}

// Notification returns a notification with its timeline.
func (c *Client) Notification(ctx context.Context, id string) (NotificationDetail, error) {
	var d NotificationDetail
	err := c.do(ctx, call{method: http.MethodGet, path: "/notifications/" + url.PathEscape(id), answer: &d, again: true})
	return d, err
}

// CancelResult says what cancelling came to.
type CancelResult struct {
	ID         string         `json:"id"`
	Status     Status         `json:"status"` // of the notification, afterwards
	Deliveries []ChangeResult `json:"deliveries"`
}

// Cancel cancels what has not begun to be sent, and says for each delivery what
// came of that: what was sent, or is being sent, stays so.
func (c *Client) Cancel(ctx context.Context, id, reason string) (CancelResult, error) {
	var r CancelResult
	body := map[string]string{"reason": reason}
	err := c.do(ctx, call{method: http.MethodPost, path: "/notifications/" + url.PathEscape(id) + "/cancel", body: body, answer: &r})
	return r, err
}

// UserMessage is what a user sees.
type UserMessage struct {
	ID        string    `json:"id"`
	Seq       int64     `json:"seq"` // from 1, without gaps, per user
	RequestID string    `json:"request_id"`
	Title     string    `json:"title"`
	Body      string    `json:"body"`
	CreatedAt time.Time `json:"created_at"`
	ReadAt    time.Time `json:"read_at,omitzero"`
}

// UserMessages lists a user's messages with a Seq above after, ascending, at most
// limit (0: 50, at most 500). Where there are fewer, nothing follows for now. Long
// messages take several calls; where one fails, those of the calls before are
// returned with the error.
func (c *Client) UserMessages(ctx context.Context, user string, after int64, limit int) ([]UserMessage, error) {
	const defaultLimit = 50
	var all []UserMessage
	for {
		var page struct {
			Items      []UserMessage `json:"items"`
			NextCursor string        `json:"next_cursor"`
		}
		query := url.Values{}
		setInt(query, "after", after)
		setInt(query, "limit", int64(limit))
		if err := c.do(ctx, call{method: http.MethodGet, path: "/users/" + url.PathEscape(user) + "/messages", query: query, answer: &page, again: true}); err != nil {
			return all, err
		}
		if all = append(all, page.Items...); limit == 0 {
			limit = defaultLimit
		}
		if limit -= len(page.Items); limit <= 0 || page.NextCursor == "" || len(page.Items) == 0 {
			return all, nil
		}
		after = page.Items[len(page.Items)-1].Seq
	}
}
