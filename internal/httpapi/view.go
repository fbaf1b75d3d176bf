package httpapi

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/posthouse/posthouse/internal/ingest"
	"github.com/posthouse/posthouse/internal/model"
)

// The shapes of the API's answers. They are exported so that the command line
// prints the very same.

// MessageItem is one message in a list.
type MessageItem struct {
	ID          string  `json:"id" format:"uuid"`
	Source      string  `json:"source"`
	State       string  `json:"state" enum:"pending,processing,success,failed" doc:"A message that waits for a retry is pending, with a retry_count above 0."`
	RetryCount  int     `json:"retry_count" minimum:"0" doc:"Attempts that failed or were lost since the last replay."`
	NextRetryAt Time    `json:"next_retry_at" doc:"When the next attempt falls due; null unless it waits for a retry."`
	ReceivedAt  Time    `json:"received_at" nullable:"false" doc:"When it was kept, by the store's clock."`
	FinishedAt  Time    `json:"finished_at" doc:"When it succeeded, or its last attempt failed; null while it is neither."`
	Error       *string `json:"error" doc:"Of the last attempt that did not succeed, while the message has not; at most 500 characters."`
	ContentType string  `json:"content_type" doc:"As the sender gave it, made printable; empty where it gave none."`
	Size        int64   `json:"size" minimum:"0" doc:"Of the body, in bytes."`
	Check       string  `json:"check,omitempty" doc:"Which of the source's expressions could not be evaluated on it (accept, or dedup or key with that before it), and why; absent where all could."`
}

// MessageList is one page of messages, newest first.
type MessageList struct {
	Items      []MessageItem `json:"items" nullable:"false"`
	NextCursor *string       `json:"next_cursor" doc:"The cursor of the next page; null on the last."`
}

// MessageDetail is one message with its attempts.
type MessageDetail struct {
	MessageItem
	Replay   int       `json:"replay,omitempty" minimum:"0" doc:"How often it was replayed; absent where it was not."`
	Attempts []Attempt `json:"attempts" nullable:"false" doc:"All that have ended, oldest first."`
}

// Attempt is one attempt at handling a message.
type Attempt struct {
	N          int     `json:"n" minimum:"1" doc:"1 for the first since the replay."`
	Replay     int     `json:"replay,omitempty" minimum:"0" doc:"Which replay it belongs to; absent before the first."`
	StartedAt  Time    `json:"started_at"`
	EndedAt    Time    `json:"ended_at"`
	Outcome    string  `json:"outcome" enum:"success,failed,lost"`
	Reason     *string `json:"reason" enum:"error,panic,timeout,http_status,connect,forbidden,permanent,worker_lost,orphaned" doc:"Why it did not succeed; null where it did."`
	Error      *string `json:"error" doc:"At most 500 characters."`
	HTTPStatus *int    `json:"http_status" doc:"What an HTTP target answered; null where none did."`
}

// HeaderLine is one header line that was kept. Values that carry a credential
// were replaced by a keyed hash, or removed, before.
type HeaderLine struct {
	Name  string `json:"name"`
	Value string `json:"value" doc:"Bytes that are not UTF-8 are shown as U+FFFD."`
}

// HeaderList is the header of one message: names in their canonical form and
// order, the values of one name in the order in which they came.
type HeaderList struct {
	Items []HeaderLine `json:"items" nullable:"false" doc:"Sorted by their names, which are written in the canonical form (X-Request-Id); the values of one name are in the order in which they came. Values are exact, but for those of credentials, which are replaced by a keyed hash or by [removed], and headers of the connection are left out."`
}

// Stats counts the messages of all sources.
type Stats struct {
	Sources []SourceStats `json:"sources" nullable:"false"`
}

// SourceStats counts the messages of one source.
type SourceStats struct {
	Source       string  `json:"source"`
	Pending      int64   `json:"pending" minimum:"0" doc:"Without those that wait for a retry."`
	Retrying     int64   `json:"retrying" minimum:"0"`
	Processing   int64   `json:"processing" minimum:"0"`
	Success      int64   `json:"success" minimum:"0"`
	Failed       int64   `json:"failed" minimum:"0"`
	OldestDueAge float64 `json:"oldest_due_age_s" minimum:"0" doc:"Seconds since the oldest work that is due fell due; 0 where nothing is."`
	Enabled      bool    `json:"enabled" doc:"Consumption is switched on."`
}

// SourceList lists sources, by name.
type SourceList struct {
	Sources []SourceItem `json:"sources" nullable:"false"`
}

// SourceItem is one source.
type SourceItem struct {
	Name       string `json:"name"`
	Enabled    bool   `json:"enabled" doc:"Consumption is switched on. The stored switch wins over the configuration's."`
	Configured bool   `json:"configured" doc:"False for a source that is only known from earlier: its messages are still there."`

	// What holds for all instances.
	Order      *string `json:"order" enum:"serial,keyed,parallel" doc:"What all instances have agreed on, whatever the configuration of this one says; null where none has consumed it yet."`
	Partitions int     `json:"partitions" minimum:"0" doc:"How many keys may be worked on at once: 1 in serial order, 0 in parallel, which has none."`
	Key        *string `json:"key" doc:"The expression that tells what is kept in order; null but in keyed order."`
	OnRetry    *string `json:"on_retry" enum:"skip,block" doc:"What a message that waits for a retry does to those of its key behind it."`
	Generation int64   `json:"generation" minimum:"0" doc:"Counts how often this was changed."`
	Draining   bool    `json:"draining" doc:"It is about to change: what is running may end, and nothing begins until then."`

	Wanted *Ordering `json:"wanted,omitempty" doc:"What the configuration of this instance asks for; absent where that is what holds. It comes to hold when all living instances that consume the source ask for it."`
}

// Ordering is what a configuration asks of the order of a source.
type Ordering struct {
	Order      string  `json:"order" enum:"serial,keyed,parallel"`
	Partitions int     `json:"partitions" minimum:"0"`
	Key        *string `json:"key"`
	OnRetry    string  `json:"on_retry" enum:"skip,block"`
}

func newOrdering(o model.Ordering) Ordering {
	retry := "skip"
	if o.Block {
		retry = "block"
	}
	return Ordering{Order: string(o.Order), Partitions: o.Partitions, Key: unlessZero(o.Key), OnRetry: retry}
}

// RejectList lists pushes that were turned away, newest first.
type RejectList struct {
	Items []Reject `json:"items" nullable:"false"`
}

// Reject is one push that was turned away.
type Reject struct {
	Time        Time    `json:"time" nullable:"false"`
	Kind        string  `json:"kind" enum:"refused,not_kept" doc:"Refused with a 4xx, or acknowledged and not kept."`
	Cause       string  `json:"cause" doc:"Not kept: duplicate, or that accept is false."`
	Status      int     `json:"status" doc:"What the sender was answered."`
	Size        *int64  `json:"size" doc:"Of the body, in bytes: what was read, or declared; null where neither is known."`
	ContentType string  `json:"content_type"`
	Name        *string `json:"name" doc:"The source that was asked for, where there is no such source."`
	Sample      *string `json:"sample" doc:"The beginning of a body that was not kept, as text."`
}

// NewMessageItem shows a message in a list.
func NewMessageItem(v model.MessageView) MessageItem {
	return MessageItem{
		ID: v.ID.String(), Source: v.Source, State: v.State.String(), RetryCount: v.RetryCount,
		NextRetryAt: Time(v.NextRetryAt), ReceivedAt: Time(v.ReceivedAt), FinishedAt: Time(v.FinishedAt),
		Error: unlessZero(v.Error), ContentType: v.ContentType, Size: v.Size, Check: v.Check,
	}
}

// NewMessageList shows the page that p asked for.
func NewMessageList(p model.ListParams, page model.MessagePage) MessageList {
	list := MessageList{Items: convert(page.Items, NewMessageItem)}
	if page.Next != nil {
		next := EncodeCursor(p, *page.Next)
		list.NextCursor = &next
	}
	return list
}

// NewMessageDetail shows one message with its attempts.
func NewMessageDetail(v model.MessageView, attempts []model.AttemptView) MessageDetail {
	return MessageDetail{MessageItem: NewMessageItem(v), Replay: v.Replay, Attempts: convert(attempts, newAttempt)}
}

func newAttempt(v model.AttemptView) Attempt {
	return Attempt{
		N: v.N, Replay: v.Replay, StartedAt: Time(v.StartedAt), EndedAt: Time(v.EndedAt), Outcome: v.Outcome,
		Reason: unlessZero(string(v.Reason)), Error: unlessZero(v.Error), HTTPStatus: unlessZero(v.HTTPStatus),
	}
}

// NewHeaderList shows header lines as model.NewMessage keeps them.
func NewHeaderList(lines []byte) HeaderList {
	list := HeaderList{Items: []HeaderLine{}}
	for line := range bytes.SplitSeq(lines, []byte("\r\n")) {
		if name, value, found := strings.Cut(string(line), ":"); found {
			list.Items = append(list.Items, HeaderLine{Name: name, Value: strings.Trim(value, " \t")})
		}
	}
	return list
}

// secondsOf is a duration in seconds, to the millisecond.
func secondsOf(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

// NewStats shows the counts of all sources; queues of other tenants are none.
func NewStats(stats []model.SourceStats) Stats {
	stats = slices.DeleteFunc(slices.Clone(stats), func(s model.SourceStats) bool { return s.Source.Tenant != model.TenantInbox })
	return Stats{Sources: convert(stats, func(s model.SourceStats) SourceStats {
		return SourceStats{
			Source: s.Source.Name, Enabled: s.Source.Enabled,
			Pending: s.Pending, Retrying: s.Retrying, Processing: s.Processing, Success: s.Success, Failed: s.Failed,
			OldestDueAge: secondsOf(s.OldestDueAge),
		}
	})}
}

// NewRejectList shows what the door turned away.
func NewRejectList(rejects []ingest.Reject) RejectList {
	return RejectList{Items: convert(rejects, func(r ingest.Reject) Reject {
		shown := Reject{
			Time: Time(model.MicrosOf(r.Time)), Kind: r.Kind, Cause: r.Cause, Status: r.Status,
			ContentType: r.ContentType, Name: unlessZero(r.Name), Sample: unlessZero(r.Sample),
		}
		if r.Size >= 0 {
			shown.Size = &r.Size
		}
		return shown
	})}
}

// convert maps a list; none at all becomes an empty one, never null.
func convert[From, To any](from []From, one func(From) To) []To {
	to := make([]To, 0, len(from))
	for _, f := range from {
		to = append(to, one(f))
	}
	return to
}

// unlessZero returns nil for what is absent.
func unlessZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
