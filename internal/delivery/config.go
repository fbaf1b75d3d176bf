package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/model"
)

// Store is what carrying out needs of a store. storetest.Notifications is the
// full contract.
type Store interface {
	Outgoing(ctx context.Context, deliveries []model.Seq) ([]model.Outgoing, error)
	Templates(ctx context.Context, ids []model.TemplateID) ([]model.TemplateVersion, error)
	ExpireDeliveries(ctx context.Context, limit int) (int, error)
	CancelRequest(ctx context.Context, id uuid.UUID, audit model.Audit) ([]model.ChangeResult, error)
	Secrets(ctx context.Context, after model.Seq, limit int) ([]model.Seq, error)
	EraseSecrets(ctx context.Context, requests []model.Seq) (int, error)
	HoldQueue(ctx context.Context, queue model.SourceID, wait time.Duration) error
	Switch(ctx context.Context, queue string, enabled bool, audit model.Audit) (changed bool, err error)
	Audit(ctx context.Context, target string, before int64, limit int) ([]model.AuditRecord, error)
	Stats(ctx context.Context) ([]model.SourceStats, error)
}

// Ring opens what was sealed when the request was accepted.
type Ring interface {
	Open(sealed model.Sealed, context string) ([]byte, error)
}

// AddressContext is the context in which a delivery's address is sealed.
func AddressContext(delivery fmt.Stringer) string { return "address:" + delivery.String() }

// SensitiveContext is the context in which a request's sensitive values are sealed.
func SensitiveContext(request fmt.Stringer) string { return "sensitive:" + request.String() }

// Engine is told when a channel may have work again, and when a switch was
// changed. workqueue.Engine is one.
type Engine interface {
	Wake(queue model.SourceID)
	Hurry()
}

// Channel is one account through which deliveries are carried out. The zero
// value of each number means its default.
type Channel struct {
	Name   string       // without the prefix of its queue's name
	Kind   string       // of sender, for people: "email", "http"
	Queue  model.Source // registered; see SpecOf
	Sender channel.Sender
	// Addresses checks what Test is given. Default: any address will do.
	Addresses channel.Addresses
	Policy    model.RetryPolicy // the one that was registered
	// Rate is how many may be sent a second by all processes together; 0: no bound.
	Rate        float64
	Concurrency int           // sent at once by this process; default 8
	BatchSize   int           // claimed at once at most; default 50
	Timeout     time.Duration // of one attempt; default 30s
	// BreakerAfter failures in a row let the account wait; default 5.
	BreakerAfter int
	// BreakerCooldown is how long it waits then before one is tried; each trial that
	// fails doubles it, to a minute or to this where it is longer. Default 1s.
	BreakerCooldown time.Duration
	// PauseAfter refusals of the credentials in a row pause the channel; default 3.
	PauseAfter int
}

// Config is what a Carrier is made of.
type Config struct {
	Store      Store
	Ring       Ring
	Channels   []Channel
	Engine     Engine
	Logger     *slog.Logger          // default: none
	Registerer prometheus.Registerer // default: none
}

func (c *Config) setDefaults() error {
	switch {
	case c.Store == nil:
		return fmt.Errorf("delivery: Store is missing")
	case c.Ring == nil:
		return fmt.Errorf("delivery: Ring is missing")
	case c.Engine == nil:
		return fmt.Errorf("delivery: Engine is missing")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	channels := make([]Channel, len(c.Channels))
	seen := map[string]bool{}
	for i, ch := range c.Channels {
		if err := ch.setDefaults(); err != nil {
			return fmt.Errorf("delivery: channel %q: %w", ch.Name, err)
		}
		if seen[ch.Name] {
			return fmt.Errorf("delivery: channel %q is there twice", ch.Name)
		}
		seen[ch.Name] = true
		channels[i] = ch
	}
	c.Channels = channels
	return nil
}

func (c *Channel) setDefaults() error {
	orDefault(&c.Concurrency, 8)
	orDefault(&c.BatchSize, 50)
	orDefault(&c.Timeout, 30*time.Second)
	orDefault(&c.BreakerAfter, 5)
	orDefault(&c.BreakerCooldown, firstHold)
	orDefault(&c.PauseAfter, 3)
	switch {
	case c.Name == "":
		return fmt.Errorf("Name is missing")
	case c.Sender == nil:
		return fmt.Errorf("Sender is missing")
	case c.Queue.Name != model.ChannelPrefix+c.Name || c.Queue.ID == 0:
		return fmt.Errorf("Queue is that of %q; register SpecOf this channel", c.Queue.Name)
	case !c.Policy.Delivers():
		return fmt.Errorf("Policy says nothing of what follows an uncertain attempt")
	case c.Rate < 0 || c.Concurrency < 0 || c.BatchSize < 0 || c.Timeout < 0 || c.BreakerAfter < 0 || c.BreakerCooldown < 0 || c.PauseAfter < 0:
		return fmt.Errorf("a number is negative")
	}
	return nil
}

// orphanAfter is how long an attempt may take before others think that it is lost,
// where each is over sooner than that.
const orphanAfter = 5 * time.Minute

// OrphanAfter is the RetryPolicy.OrphanAfter of a channel whose attempts take this
// long at most: beyond twice as long, since one that is only late must not be made
// anew beside itself.
func OrphanAfter(attempt time.Duration) time.Duration { return max(orphanAfter, 2*attempt+time.Minute) }

// SpecOf is what the store must know of a channel.
func SpecOf(name string, policy model.RetryPolicy) model.SourceSpec {
	return model.SourceSpec{
		Name: model.ChannelPrefix + name, Tenant: model.TenantDelivery, Enabled: true, Policy: policy,
		Wants: model.Ordering{Order: model.Parallel},
	}
}

// Retry says how often a delivery is tried, and how long it waits between. The
// zero value of each means its default.
type Retry struct {
	Base        time.Duration // default 1s
	Cap         time.Duration // longest wait, without jitter; default 300s
	Jitter      time.Duration // each wait is longer by a random part of it; default 5s
	MaxAttempts int           // default 6
}

// maxDoublings bounds the exponent of the backoff.
const maxDoublings = 8

// Policy is what the queue needs to know: after the nth attempt a delivery waits
// min(Cap, Base × 2^min(n, 8)), and a random part of Jitter.
func (r Retry) Policy(uncertain model.OnUncertain) model.RetryPolicy {
	orDefault(&r.Base, time.Second)
	orDefault(&r.Cap, 300*time.Second)
	orDefault(&r.Jitter, 5*time.Second)
	orDefault(&r.MaxAttempts, 6)
	p := model.RetryPolicy{MaxRetry: r.MaxAttempts - 1, OrphanAfter: orphanAfter, Jitter: r.Jitter, Uncertain: uncertain}
	for n := 1; n <= maxDoublings; n++ {
		p.Backoff = append(p.Backoff, doubled(r.Base, n, r.Cap))
	}
	return p
}

// doubled is base × 2^n, at most limit. No n overflows.
func doubled(base time.Duration, n int, limit time.Duration) time.Duration {
	for range n {
		if base >= limit {
			break
		}
		base *= 2
	}
	return min(base, limit)
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
