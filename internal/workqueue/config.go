package workqueue

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// Result is how one execution of a handler ended. The zero value is success.
type Result struct {
	Err        error        // nil: handled
	Reason     model.Reason // why not; ReasonError where empty
	HTTPStatus int          // what a target answered; 0 where none
	Permanent  bool         // no retry can help
	// RetryAfter is a floor for the wait until the next attempt.
	RetryAfter time.Duration
	// Postpone gives the attempt back, to be made after this time. It needs no
	// Err; 0 means that it was not asked for.
	Postpone time.Duration
	// Uncertain: nobody knows whether it took effect. It needs an Err. What
	// follows is the policy's business; where that is the inbox's it is a failure
	// as any other.
	Uncertain  bool
	Code       string // deliveries: the provider's own for a failure
	ProviderID string // deliveries: the provider's for what it accepted
}

// Handler executes one message. It must return soon after ctx has ended; until
// it returns, or orphan_after has passed, its message stays processing.
type Handler func(ctx context.Context, work model.Work) Result

// Event tells how one attempt ended, after that was settled.
type Event struct {
	Queue    model.Source
	Work     model.Work
	Kind     model.SettleKind
	Reason   model.Reason
	Error    string
	Duration time.Duration // of the handler
	Wait     time.Duration // until the next attempt, where Kind is SettleRetry or SettleRelease
	Late     bool          // handled, but after its timeout
	Lost     bool          // it was fenced: what it did counts for nothing
	Code     string        // see Result
}

// Admission says how many executions of a queue in parallel order may begin,
// beside the free slots that there are. It is asked before anything is claimed,
// so that nothing is held that must wait. Its methods must not block.
type Admission interface {
	// Admit lets at most n begin. Where it lets none it says after which time to
	// ask again; Engine.Wake ends that wait early.
	Admit(n int) (admitted int, again time.Duration)
	// Unused gives back n of what was admitted: their handlers do not begin.
	Unused(n int)
}

// QueueConfig is one queue and how it is consumed. The zero value of each
// number means its default.
type QueueConfig struct {
	Source model.Source
	// Wants is the order that this instance's configuration asks for; what holds
	// is what all agree on. Default: serial; 16 partitions where it is keyed.
	Wants   model.Ordering
	Handler Handler
	// KeyOf tells the key of a message that was kept under another agreement. An
	// error means that this process cannot tell any: it claims nothing until
	// another one has placed what waits. Default: all have one key.
	KeyOf         func(model.Agreed, *model.Message) (model.Key, error)
	Policy        model.RetryPolicy // MaxRetry is taken as it is; OrphanAfter default 5m; Backoff default 30s, 2m, 10m
	RoundInterval time.Duration     // longest wait when nothing is due; default 2s
	BatchSize     int               // messages a round takes at most; default 50
	Timeout       time.Duration     // of one execution; default 60s
	TripAfter     int               // consecutive timeouts that end a round; default 3
	Concurrency   int               // executions at once in Parallel, partitions at once in Keyed; default 64

	// Bare claims load no messages: the work is of deliveries. KeyOf and
	// Work.Message are not for them.
	Bare bool
	// Load is called with what was claimed, before any of it is executed, and may
	// complete the works. On an error, or when ctx ends, all is given back.
	Load func(ctx context.Context, works []model.Work) error
	// Admit lets executions begin, in Parallel. Default: all that have a slot.
	Admit Admission
	// Observe is called in place of Config.Observe, and must not block. It is also
	// told what became uncertain by being recovered; of such Work only numbers are
	// known.
	Observe func(Event)
	// OnSource is told of the queue, its switch among others, after every
	// heartbeat, and OnConsumers how many living instances consume it, at least
	// once a heartbeat. They must not block.
	OnSource    func(model.Source)
	OnConsumers func(n int)
}

// Config is what an Engine is made of.
type Config struct {
	Store   Store
	Name    string        // of this instance, for people; default "posthouse"
	Lease   time.Duration // how long a silent instance counts as living; default 30s, at least 1s
	Drain   time.Duration // how long Stop waits for running handlers; default 25s
	Queues  []QueueConfig
	Logger  *slog.Logger // default: none
	Metrics *Metrics     // default: unregistered ones
	Observe func(Event)  // called after each attempt; must not block
	// Locker excludes other processes beside the store. Default: the store alone.
	Locker Locker
	// OnSources is told all sources, with what is agreed on each, after every
	// heartbeat. It must not block.
	OnSources func([]model.Source)
}

func (c *Config) setDefaults() error {
	if c.Store == nil {
		return fmt.Errorf("workqueue: Store is missing")
	}
	orDefault(&c.Name, "posthouse")
	orDefault(&c.Lease, 30*time.Second)
	orDefault(&c.Drain, 25*time.Second)
	if c.Lease < time.Second {
		return fmt.Errorf("workqueue: Lease %v is below 1s", c.Lease)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		var err error
		if c.Metrics, err = NewMetrics(nil); err != nil {
			return err
		}
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	if c.OnSources == nil {
		c.OnSources = func([]model.Source) {}
	}
	return nil
}

// WithDefaults returns q with every number that was left out filled in.
func (q QueueConfig) WithDefaults() QueueConfig {
	q.Wants = normal(q.Wants)
	if q.KeyOf == nil {
		q.KeyOf = func(a model.Agreed, _ *model.Message) (model.Key, error) { return a.KeyOf(nil), nil }
	}
	orDefault(&q.Policy.OrphanAfter, 5*time.Minute)
	orDefault(&q.RoundInterval, 2*time.Second)
	orDefault(&q.BatchSize, 50)
	orDefault(&q.Timeout, time.Minute)
	orDefault(&q.TripAfter, 3)
	orDefault(&q.Concurrency, 64)
	if len(q.Policy.Backoff) == 0 {
		q.Policy.Backoff = []time.Duration{30 * time.Second, 2 * time.Minute, 10 * time.Minute}
	}
	return q
}

// normal leaves nothing in an ordering that means nothing there.
func normal(o model.Ordering) model.Ordering {
	orDefault(&o.Order, model.Serial)
	switch o.Order {
	case model.Keyed:
		orDefault(&o.Partitions, 16)
	case model.Parallel:
		o.Partitions, o.Key = 0, ""
	case model.Serial:
		o.Partitions, o.Key = 1, ""
	}
	return o
}

func (q QueueConfig) validate() error {
	switch {
	case q.Handler == nil:
		return fmt.Errorf("Handler is missing")
	case q.Wants.Order != model.Serial && q.Wants.Order != model.Keyed && q.Wants.Order != model.Parallel:
		return fmt.Errorf("Order %q is unknown", q.Wants.Order)
	case q.Wants.Order == model.Keyed && q.Wants.Key == "":
		return fmt.Errorf("Key is missing for keyed order")
	case q.Wants.Partitions > model.MaxPartitions:
		return fmt.Errorf("Partitions %d is above %d", q.Wants.Partitions, model.MaxPartitions)
	case q.Wants.Order == model.Parallel && q.Wants.Block:
		return fmt.Errorf("parallel order has nothing that could Block")
	case q.Policy.OrphanAfter < 2*q.Timeout:
		return fmt.Errorf("OrphanAfter %v is below 2 × Timeout %v", q.Policy.OrphanAfter, q.Timeout)
	case q.RoundInterval < 0 || q.BatchSize < 0 || q.Timeout < 0 || q.TripAfter < 0 || q.Concurrency < 0 || q.Wants.Partitions < 0 || q.Policy.MaxRetry < 0:
		return fmt.Errorf("a number is negative")
	}
	return nil
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
