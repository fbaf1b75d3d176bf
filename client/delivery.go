package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// DeliveryStatus is where a delivery stands.
type DeliveryStatus string

// The values of DeliveryStatus.
const (
	DeliveryPending    DeliveryStatus = "PENDING"
	DeliveryProcessing DeliveryStatus = "PROCESSING"
	DeliveryRetryWait  DeliveryStatus = "RETRY_WAIT" // an attempt failed, and another one will be made
	DeliverySucceeded  DeliveryStatus = "SUCCEEDED"  // accepted by the provider
	DeliveryDelivered  DeliveryStatus = "DELIVERED"  // a receipt says so
	DeliveryFailed     DeliveryStatus = "FAILED"     // no retry can help
	DeliveryDead       DeliveryStatus = "DEAD"       // tries spent
	DeliveryUncertain  DeliveryStatus = "UNCERTAIN"  // the provider may have accepted it; waits for an operator
	DeliveryCancelled  DeliveryStatus = "CANCELLED"
)

// Delivery is one channel's task.
type Delivery struct {
	ID             string         `json:"id"` // what the provider gets as its idempotency key
	NotificationID string         `json:"notification_id"`
	Channel        string         `json:"channel"`
	Purpose        string         `json:"purpose"` // "primary", "former_address" or "escalation"
	Recipient      string         `json:"recipient"`
	Destination    string         `json:"destination"` // the address, masked; empty in-app
	Locale         string         `json:"locale"`      // of the template that was used
	Reason         string         `json:"reason"`      // why the channel was chosen
	Status         DeliveryStatus `json:"status"`
	AttemptCount   int            `json:"attempt_count"` // since the last replay
	NextAttemptAt  time.Time      `json:"next_attempt_at,omitzero"`
	CreatedAt      time.Time      `json:"created_at"`
	FinishedAt     time.Time      `json:"finished_at,omitzero"`
	ProviderID     string         `json:"provider_id"` // the provider's id of the message, where it gave one
	ErrorClass     string         `json:"error_class"` // of the last attempt that did not succeed
	ErrorCode      string         `json:"error_code"`  // the provider's
	ErrorText      string         `json:"error_text"`
	Replay         int            `json:"replay"` // how often it was replayed
}

// Attempt is one attempt at a delivery.
type Attempt struct {
	Replay    int       `json:"replay"`
	N         int       `json:"n"` // 1 for the first since the replay
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	Outcome   string    `json:"outcome"` // "success", "failed", "lost" or "uncertain"
	Class     string    `json:"class"`   // "success", "transient", "rate_limited", "permanent", "auth", "uncertain", "worker_lost", …
	Code      string    `json:"code"`    // the provider's
	Text      string    `json:"text"`

	HTTPStatus int `json:"http_status"` // 0 where none
}

// DeliveryDetail is a delivery with its attempts, oldest first.
type DeliveryDetail struct {
	Delivery

	Attempts []Attempt `json:"attempts"`
}

// Delivery returns one delivery with its attempts.
func (c *Client) Delivery(ctx context.Context, id string) (DeliveryDetail, error) {
	var d DeliveryDetail
	err := c.do(ctx, call{method: http.MethodGet, path: "/deliveries/" + url.PathEscape(id), answer: &d, again: true})
	return d, err
}

// DeliveryFilter narrows a list of deliveries. The zero value lists all.
type DeliveryFilter struct {
	Status  DeliveryStatus
	Channel string
	From    time.Time // created at or after
	To      time.Time // created before
	Limit   int       // of one page; 0: 50, at most 500
	Cursor  string    // the NextCursor of the page before
}

func (f DeliveryFilter) query() url.Values {
	query := url.Values{}
	set(query, "status", string(f.Status))
	set(query, "channel", f.Channel)
	setTime(query, "from", f.From)
	setTime(query, "to", f.To)
	setInt(query, "limit", int64(f.Limit))
	set(query, "cursor", f.Cursor)
	return query
}

// DeliveryPage is one page of deliveries, newest first.
type DeliveryPage struct {
	Items      []Delivery `json:"items"`
	NextCursor string     `json:"next_cursor"` // "" on the last
}

// DeliveryPage returns one page.
func (c *Client) DeliveryPage(ctx context.Context, f DeliveryFilter) (DeliveryPage, error) {
	var page DeliveryPage
	err := c.do(ctx, call{method: http.MethodGet, path: "/deliveries", query: f.query(), answer: &page, again: true})
	return page, err
}

// Deliveries goes through all deliveries of a filter, newest first, page by page.
// It ends with the first error.
func (c *Client) Deliveries(ctx context.Context, f DeliveryFilter) iter.Seq2[Delivery, error] {
	return func(yield func(Delivery, error) bool) {
		for {
			page, err := c.DeliveryPage(ctx, f)
			if err != nil {
				yield(Delivery{}, err)
				return
			}
			for _, d := range page.Items {
				if !yield(d, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			f.Cursor = page.NextCursor
		}
	}
}

// ChangeResult says what a change of one delivery came to.
type ChangeResult struct {
	ID      string         `json:"id"`
	Channel string         `json:"channel,omitempty"`
	Done    bool           `json:"done"`
	Was     DeliveryStatus `json:"was,omitempty"`
	Is      DeliveryStatus `json:"is,omitempty"`
	Detail  string         `json:"detail,omitempty"` // why not, where it was not done
}

// ReplayParams says why a delivery is to be sent again.
type ReplayParams struct {
	Reason string // required; for the audit log
	// Force also replays what is UNCERTAIN, SUCCEEDED, DELIVERED or CANCELLED: the
	// recipient may get it twice.
	Force bool
}

// Replay sends a delivery again. Conflict where its state does not allow it, as
// where it was replayed just now.
func (c *Client) Replay(ctx context.Context, id string, p ReplayParams) (ChangeResult, error) {
	var r ChangeResult
	body := map[string]any{"reason": p.Reason, "force": p.Force}
	err := c.do(ctx, call{method: http.MethodPost, path: "/deliveries/" + url.PathEscape(id) + "/replay", body: body, answer: &r})
	return r, err
}

// BulkReplay chooses deliveries to be sent again: by their ids alone, or by a
// status and, where set, a channel and a window.
type BulkReplay struct {
	IDs []string // at most 500; an empty list that is not nil is refused

	Status   DeliveryStatus
	Channel  string
	From, To time.Time

	DryRun bool   // only say what would be done
	Reason string // required
	Force  bool   // see ReplayParams
	Limit  int    // how many at most in this call; 0: 100, at most 500
	Cursor string // the NextCursor of the call before
}

// BulkReplayResult says what one call of ReplayMany came to.
type BulkReplayResult struct {
	DryRun     bool           `json:"dry_run"`
	Matched    int            `json:"matched"`  // in this call
	Replayed   int            `json:"replayed"` // in this call; with DryRun: what would be
	Results    []ChangeResult `json:"results"`
	NextCursor string         `json:"next_cursor"` // "" where nothing is left
}

// ReplayMany sends deliveries again, at most Limit in one call. Call it again with
// the NextCursor until that is empty.
func (c *Client) ReplayMany(ctx context.Context, p BulkReplay) (BulkReplayResult, error) {
	type filter struct {
		Status  DeliveryStatus `json:"status,omitempty"`
		Channel string         `json:"channel,omitempty"`
		From    time.Time      `json:"from,omitzero"`
		To      time.Time      `json:"to,omitzero"`
		IDs     []string       `json:"ids,omitzero"` // an empty list is refused, and does not choose all
	}
	body := struct {
		Filter filter `json:"filter"`
		DryRun bool   `json:"dry_run"`
		Reason string `json:"reason"`
		Force  bool   `json:"force"`
		Limit  int    `json:"limit,omitempty"`
		Cursor string `json:"cursor,omitempty"`
	}{filter{p.Status, p.Channel, p.From, p.To, p.IDs}, p.DryRun, p.Reason, p.Force, p.Limit, p.Cursor}
	var r BulkReplayResult
	err := c.do(ctx, call{method: http.MethodPost, path: "/deliveries/replay", body: body, answer: &r})
	return r, err
}

// Outcome is what an operator found out about an UNCERTAIN delivery.
type Outcome string

// The values of Outcome.
const (
	Sent    Outcome = "sent"     // it becomes SUCCEEDED
	NotSent Outcome = "not_sent" // it is sent again
)

// Resolve ends the uncertainty of a delivery. Conflict where it is not UNCERTAIN.
func (c *Client) Resolve(ctx context.Context, id string, outcome Outcome, reason string) (ChangeResult, error) {
	var r ChangeResult
	body := map[string]string{"outcome": string(outcome), "reason": reason}
	err := c.do(ctx, call{method: http.MethodPost, path: "/deliveries/" + url.PathEscape(id) + "/resolve", body: body, answer: &r})
	return r, err
}

func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

func setInt(query url.Values, name string, value int64) {
	if value != 0 {
		query.Set(name, strconv.FormatInt(value, 10))
	}
}

func setTime(query url.Values, name string, at time.Time) {
	if !at.IsZero() {
		query.Set(name, at.UTC().Format(time.RFC3339Nano))
	}
}
