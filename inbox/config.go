package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/workqueue"
)

// Store keeps messages and their states. Packages sqlite, postgres and mysql,
// below this one, open a database and return one; import the one that is used.
type Store interface {
	workqueue.Store
	PutMessages(ctx context.Context, put model.Put, messages []model.NewMessage) (duplicates []int, err error)
	ForgetKeys(ctx context.Context, limit int) (int, error)
	Register(ctx context.Context, specs []model.SourceSpec) ([]model.Source, error)
	Stats(ctx context.Context) ([]model.SourceStats, error)
}

// Order is how the messages of one source are handled.
type Order string

const (
	// Serial: one after the other, one at a time in the whole cluster.
	Serial Order = "serial"
	// Keyed: one after the other for each key, keys side by side, over all
	// processes.
	Keyed Order = "keyed"
	// Parallel: several at once, in no order.
	Parallel Order = "parallel"
)

// Verification is how a source's pushes are verified.
type Verification struct {
	Kind     string   // "none" or "hmac": HMAC-SHA256 over the raw body
	Header   string   // hmac: the header that carries the signature
	Prefix   string   // hmac: what stands before it there, "sha256="
	Encoding string   // hmac: "hex" or "base64"
	Secrets  [][]byte // hmac: any of them may have signed
}

// NoVerification takes every push, from whomever it comes.
func NoVerification() Verification { return Verification{Kind: "none"} }

// Source is one sender: how its pushes are taken in, and how its messages are
// handled. The zero value of each number means its default.
type Source struct {
	Name   string // the last part of its path, /in/{name}
	Verify Verification
	// Accept is an expression over body, body_hash, headers, query, content_type
	// and size: a push for which it is false is acknowledged and not kept, one on
	// which it cannot be evaluated is kept and marked. Empty keeps all.
	Accept       string
	Dedup        Dedup
	Acknowledge  Acknowledge
	AnswerWithin time.Duration // default 2s, counted from the request's headers
	BodyLimit    int64         // bytes, default 1 MiB
	InFlight     int           // pushes that are received at once, default 256
	Handler      Handler       // nil: messages are kept, and none is consumed
	Consume      Consume
}

// Dedup keeps one of the pushes that are the same to their sender.
type Dedup struct {
	// Key is an expression that yields a string, a number, a boolean, or a list
	// of these: a push whose key is known, byte for byte and of the same type, is
	// acknowledged and not kept. One on which it cannot be evaluated, or is an
	// empty string, is kept and marked. Empty keeps all.
	Key    string
	Window time.Duration // how long a key is known after its first push was kept, default 8 days
}

// Acknowledge is the answer to a push that was kept, or is not wanted.
type Acknowledge struct {
	Status      int // 2xx, default 200
	Body        string
	ContentType string // default text/plain
}

// Consume says how messages are handled.
type Consume struct {
	// Paused is the first value of the source's switch; what an operator has
	// set since is kept in the store, and wins.
	Paused bool
	// Order holds over all processes, once all that run ask for the same.
	// Default: Serial.
	Order Order
	// Key is an expression that yields a string, a number, a boolean, or a list
	// of these: what Keyed keeps in order. It sees headers and query as they are
	// kept, which is without credentials. Messages on which it cannot be evaluated
	// are marked, and kept in order as if they had one key. Needed in Keyed.
	Key        string
	Partitions int // keys that may be worked on at once in Keyed, over all processes: 1 to 256, default 16
	// Block: a message that waits for a retry keeps those of its key behind it
	// from starting; in Serial these are all. Not in Parallel.
	Block         bool
	Concurrency   int             // handlers at once in Parallel, partitions at once in Keyed, default 64
	RoundInterval time.Duration   // longest wait when nothing is due, default 2s
	BatchSize     int             // messages a round takes at most, default 50
	Retry         *int            // tries after the first, default 3
	Backoff       []time.Duration // waits before them, the last repeats; default 30s, 2m, 10m
	OrphanAfter   time.Duration   // how long a started message may stay processing, default 5m; at least 2 × Timeout
	Timeout       time.Duration   // of one attempt, default 60s
	TripAfter     int             // timeouts in a row that end a round, default 3
}

// Config is what an Inbox is made of.
type Config struct {
	Store    Store
	Sources  []Source
	Instance string        // this process's name, for people; default "posthouse"
	Lease    time.Duration // how long a silent process counts as living, default 30s, at least 1s
	Drain    time.Duration // how long Stop waits for running handlers, default 25s
	Memory   int64         // bound of all bodies being received, in bytes; default 256 MiB
	// Locker excludes other processes beside the store, whose leases stand in any
	// case. Default: the store alone.
	Locker Locker
	// HashCredential replaces credentials in what is kept of headers and query.
	// Default: they are removed.
	HashCredential func(credential []byte) string
	Logger         *slog.Logger          // default: none
	Registerer     prometheus.Registerer // default: none
	// Observe is told how each attempt ended. It must not block.
	Observe func(Attempt)
}

// Locker gives out locks that exclude other processes.
type Locker = workqueue.Locker

// Held is a lock of a Locker.
type Held = workqueue.Held

// Attempt tells how one attempt to handle a message ended.
type Attempt struct {
	MessageID string
	Source    string
	N         int    // 1 for the first since the last replay
	Outcome   string // "success", "retry", "failed" or "released"
	Reason    string // why it did not succeed, a word of a closed set
	Error     string // what the handler said; may contain what the target answered
	Duration  time.Duration
	NextIn    time.Duration // until the next attempt, where there is one
	Late      bool          // it succeeded, after its timeout
	Fenced    bool          // others had taken the message over: it counts for nothing
	// Size of the body, in bytes.
	Size int
	// Body is the exact body. It must not be changed, nor kept.
	Body []byte
}

func (s Source) spec() model.SourceSpec {
	q := s.queue()
	return model.SourceSpec{Name: s.Name, Enabled: !s.Consume.Paused, Policy: q.Policy, Wants: q.Wants}
}

// queue translates what concerns consuming. Defaults that the store must know
// are filled in here.
func (s Source) queue() workqueue.QueueConfig {
	c := s.Consume
	retry := 3
	if c.Retry != nil {
		retry = *c.Retry
	}
	q := workqueue.QueueConfig{
		Wants:         model.Ordering{Order: model.Order(c.Order), Partitions: c.Partitions, Key: c.Key, Block: c.Block},
		Policy:        model.RetryPolicy{MaxRetry: retry, Backoff: c.Backoff, OrphanAfter: c.OrphanAfter},
		RoundInterval: c.RoundInterval, BatchSize: c.BatchSize, Timeout: c.Timeout, TripAfter: c.TripAfter, Concurrency: c.Concurrency,
	}
	return q.WithDefaults()
}

func (c *Config) validate() error {
	if c.Store == nil {
		return fmt.Errorf("inbox: Store is missing")
	}
	for _, s := range c.Sources {
		if s.Name == "" {
			return fmt.Errorf("inbox: a source has no Name")
		}
		if s.Verify.Kind == "" {
			return fmt.Errorf("inbox: source %q: Verify is missing; write NoVerification() where none is wanted", s.Name)
		}
		if s.Dedup.Window < 0 {
			return fmt.Errorf("inbox: source %q: dedup: Window %v is negative", s.Name, s.Dedup.Window)
		}
		if err := s.Consume.validate(); err != nil {
			return fmt.Errorf("inbox: source %q: consume: %w", s.Name, err)
		}
	}
	return nil
}

// validate tests what must hold also where nothing is consumed here: the store
// is told of it.
func (c Consume) validate() error {
	switch {
	case c.Order != "" && c.Order != Serial && c.Order != Keyed && c.Order != Parallel:
		return fmt.Errorf("Order %q is unknown", c.Order)
	case c.Partitions < 0 || c.Partitions > model.MaxPartitions:
		return fmt.Errorf("Partitions is %d; 1 to %d are possible", c.Partitions, model.MaxPartitions)
	case c.Order == Parallel && c.Block:
		return errors.New("Block has no meaning in Parallel, where no message is behind another")
	case c.Order != Keyed:
		return nil
	case c.Key == "":
		return errors.New("Key is missing, but Order is Keyed")
	}
	if _, err := expression.CompileKey(c.Key); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	return nil
}
