package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Channel is one way to reach people, and how it is doing.
type Channel struct {
	Name string `json:"name"`
	Type string `json:"type"` // "" where it is only known from earlier
	// State: "active", "paused", "breaker_open" (too many failures: one delivery at
	// a time is tried), "rate_limited" (the provider asked to wait), "not_configured".
	State    string    `json:"state"`
	Reason   string    `json:"reason"` // why it is paused
	Since    time.Time `json:"since,omitzero"`
	By       string    `json:"by"`       // who paused it
	Failures int       `json:"failures"` // in a row

	Pending    int64 `json:"pending"`
	RetryWait  int64 `json:"retry_wait"`
	Processing int64 `json:"processing"`
	Succeeded  int64 `json:"succeeded"`
	Failed     int64 `json:"failed"`
	Dead       int64 `json:"dead"`
	Uncertain  int64 `json:"uncertain"`
	Cancelled  int64 `json:"cancelled"`

	OldestDueAge float64 `json:"oldest_due_age_s"` // seconds
}

// Channels lists the channels, by name, as the instance that answers sees them.
func (c *Client) Channels(ctx context.Context) ([]Channel, error) {
	var list struct {
		Channels []Channel `json:"channels"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: "/channels", answer: &list, again: true})
	return list.Channels, err
}

// SwitchResult says how the switch of a channel stands.
type SwitchResult struct {
	Name    string `json:"name"`
	Enabled bool   `json:"enabled"`
}

// Pause stops sending through a channel; what is to be sent waits, and burns no
// attempt. Running attempts end.
func (c *Client) Pause(ctx context.Context, channel, reason string) (SwitchResult, error) {
	return c.switchChannel(ctx, channel, "/pause", reason)
}

// Resume goes on sending.
func (c *Client) Resume(ctx context.Context, channel, reason string) (SwitchResult, error) {
	return c.switchChannel(ctx, channel, "/resume", reason)
}

func (c *Client) switchChannel(ctx context.Context, channel, verb, reason string) (SwitchResult, error) {
	var r SwitchResult
	body := map[string]string{"reason": reason}
	err := c.do(ctx, call{method: http.MethodPost, path: "/channels/" + url.PathEscape(channel) + verb, body: body, answer: &r})
	return r, err
}

// TestResult is how one attempt of a test message ended.
type TestResult struct {
	Class      string `json:"class"`
	Code       string `json:"code"`
	Text       string `json:"text"`
	ProviderID string `json:"provider_id"`
	HTTPStatus int    `json:"http_status"` // 0 where none
}

// Test sends a test message to an address, once.
func (c *Client) Test(ctx context.Context, channel, address string) (TestResult, error) {
	var r TestResult
	body := map[string]string{"address": address}
	err := c.do(ctx, call{method: http.MethodPost, path: "/channels/" + url.PathEscape(channel) + "/test", body: body, answer: &r})
	return r, err
}

// AuditRecord is one thing that somebody did.
type AuditRecord struct {
	Seq     int64          `json:"seq"`
	At      time.Time      `json:"at"`
	Actor   string         `json:"actor"`
	Action  string         `json:"action"`
	Target  string         `json:"target"` // "delivery/<id>", "notification/<id>", "channel/<name>"
	Reason  string         `json:"reason"`
	Details map[string]any `json:"details"`
}

// AuditPage is one page of records, newest first.
type AuditPage struct {
	Items      []AuditRecord `json:"items"`
	NextCursor string        `json:"next_cursor"` // "" on the last
}

// Audit lists what was done to one target, or ("") to all.
func (c *Client) Audit(ctx context.Context, target, cursor string) (AuditPage, error) {
	var page AuditPage
	query := url.Values{}
	set(query, "target", target)
	set(query, "cursor", cursor)
	err := c.do(ctx, call{method: http.MethodGet, path: "/audit", query: query, answer: &page, again: true})
	return page, err
}
