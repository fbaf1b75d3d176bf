package app

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/channel/mailbox"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/delivery"
	"github.com/posthouse/posthouse/internal/httpapi"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/notify"
	"github.com/posthouse/posthouse/internal/template"
	"github.com/posthouse/posthouse/internal/workqueue"
)

// notificationStore is what notifications need of a store.
type notificationStore interface {
	notify.Store
	delivery.Store
	httpapi.DeliveryStore
	Register(ctx context.Context, specs []model.SourceSpec) ([]model.Source, error)
}

// notifications are the rooms that keep notifications and carry them out.
type notifications struct {
	cfg      *config.Config
	store    notificationStore
	center   *notify.Center
	channels []openChannel
	mailbox  *mailbox.Mailbox // nil but in dev
	carrier  *delivery.Carrier
	engine   *workqueue.Engine // nil until attach
}

// openChannel is a configured channel with its queue, and its sender where it
// has one.
type openChannel struct {
	name   string
	cfg    config.Channel
	queue  model.Source
	policy model.RetryPolicy
	sender channel.Sender // nil in-app
	checks channel.Addresses
}

// openNotifications makes the rooms ready, and registers the channels. It returns
// nil where no channels are configured.
func openNotifications(ctx context.Context, store notificationStore, p Params) (n *notifications, err error) {
	if len(p.Config.Channels) == 0 {
		return nil, nil
	}
	set, err := loadTemplates(p)
	if err != nil {
		return nil, err
	}
	n = &notifications{cfg: p.Config, store: store}
	defer func() {
		if err != nil {
			n.closeSenders()
		}
	}()
	if err := n.openChannels(ctx); err != nil {
		return nil, err
	}
	policies, err := policiesOf(p.Config)
	if err != nil {
		return nil, err
	}
	accepting := make([]notify.Channel, len(n.channels))
	for i, c := range n.channels {
		accepting[i] = notify.Channel{
			Name: c.name, Queue: c.queue.ID, Kind: c.cfg.Template, InApp: c.cfg.Type == config.ChannelInApp,
			AddressKind: c.cfg.Address, Addresses: c.checks,
		}
	}
	n.center, err = notify.New(notify.Config{
		Store: store, Templates: set, Ring: p.Config.Keys, Channels: accepting, Policies: policies,
		OnPut: n.kept, Logger: p.Logger, Registerer: p.Registry,
	})
	return n, err
}

// loadTemplates reads all templates, and tells every problem at once.
func loadTemplates(p Params) (*template.Set, error) {
	set, problems := template.Load(os.DirFS(p.Config.Templates))
	if len(problems) == 0 {
		return set, nil
	}
	faults := make([]string, len(problems))
	for i, problem := range problems {
		faults[i] = problem.String()
	}
	return nil, fmt.Errorf("templates, in %s: %s", p.Config.Templates, strings.Join(faults, "; "))
}

// openChannels makes the senders, which connect to nothing yet, and registers
// the queues.
func (n *notifications) openChannels(ctx context.Context) error {
	var specs []model.SourceSpec
	for _, name := range n.cfg.ChannelNames() {
		c := openChannel{name: name, cfg: n.cfg.Channels[name]}
		c.policy = deliveryPolicy(c.cfg)
		var err error
		if c.sender, c.checks, err = n.senderOf(c.cfg); err != nil {
			return fmt.Errorf("channels.%s: %w", name, err)
		}
		n.channels = append(n.channels, c)
		specs = append(specs, delivery.SpecOf(name, c.policy))
	}
	queues, err := n.store.Register(ctx, specs)
	if err != nil {
		return fmt.Errorf("register the channels: %w", err)
	}
	for i := range n.channels {
		n.channels[i].queue = queues[i]
	}
	return nil
}

// deliveryPolicy is what follows an attempt that did not succeed.
func deliveryPolicy(c config.Channel) model.RetryPolicy {
	uncertain := model.UncertainResend
	if c.OnUncertain == config.Hold {
		uncertain = model.UncertainHold
	}
	r := c.Retry
	p := delivery.Retry{Base: r.Base, Cap: r.Cap, Jitter: r.Jitter, MaxAttempts: r.MaxAttempts}.Policy(uncertain)
	p.Jitter = r.Jitter // 0 is what somebody may want
	p.OrphanAfter = delivery.OrphanAfter(attemptTimeout(c))
	return p
}

func policiesOf(cfg *config.Config) ([]notify.Policy, error) {
	policies := make([]notify.Policy, len(cfg.Policies))
	for i, p := range cfg.Policies {
		policies[i] = notify.Policy{Send: p.Send, Success: model.Aggregate{All: p.Success.All, Any: p.Success.Any}}
		if p.When == "" {
			continue
		}
		var err error
		if policies[i].When, err = notify.CompileWhen(p.When); err != nil {
			return nil, fmt.Errorf("policies[%d].when: %w", i, err)
		}
	}
	return policies, nil
}

// attach has the inbox's engine consume the channels' queues: a process has one
// engine, and so one lease.
func (n *notifications) attach(box *inbox.Inbox, p Params) error {
	if n == nil {
		return nil
	}
	n.engine = box.Engine()
	var err error
	n.carrier, err = delivery.New(delivery.Config{
		Store: n.store, Ring: n.cfg.Keys, Channels: n.carried(), Engine: n.engine, Logger: p.Logger, Registerer: p.Registry,
	})
	if err != nil {
		return err
	}
	for _, q := range n.carrier.Queues() {
		if err := n.engine.Add(q); err != nil {
			return err
		}
	}
	return nil
}

// carried are the channels that have something to send.
func (n *notifications) carried() (channels []delivery.Channel) {
	for _, c := range n.channels {
		if c.sender == nil {
			continue
		}
		channels = append(channels, delivery.Channel{
			Name: c.name, Kind: string(c.cfg.Type), Queue: c.queue, Sender: c.sender, Addresses: c.checks, Policy: c.policy,
			Rate: float64(c.cfg.Rate), Concurrency: c.cfg.Concurrency, BatchSize: n.cfg.Worker.BatchSize,
			Timeout: attemptTimeout(c.cfg), BreakerAfter: c.cfg.Breaker.Failures, BreakerCooldown: c.cfg.Breaker.Cooldown,
		})
	}
	return channels
}

// attemptTimeout bounds one attempt as a whole: a sender's own time limits come
// first.
func attemptTimeout(c config.Channel) time.Duration {
	switch {
	case c.SMTP != nil:
		// A conversation has some ten answers, each of which may take its time.
		return c.SMTP.ConnectTimeout + 12*c.SMTP.ReadTimeout
	case c.Request != nil:
		return 2*c.Request.ConnectTimeout + c.Request.ReadTimeout + 5*time.Second
	}
	return 30 * time.Second
}

func (n *notifications) start() {
	if n == nil {
		return
	}
	n.center.Start()
	n.carrier.Start()
}

// stop is called when the engine has stopped: until then its handlers may make
// notifications.
func (n *notifications) stop() {
	if n == nil {
		return
	}
	n.center.Stop()
	if n.carrier == nil {
		n.closeSenders()
		return
	}
	n.carrier.Stop()
}

// closeSenders closes those that no carrier has taken over.
func (n *notifications) closeSenders() {
	for _, c := range n.channels {
		if c.sender != nil {
			_ = c.sender.Close() // nothing has been sent
		}
	}
}

// kept wakes the queues that have new deliveries.
func (n *notifications) kept(queues []model.SourceID) {
	for _, q := range queues {
		n.engine.Kept(q)
	}
}

// wake says that there may be due deliveries on any channel: an operator has
// brought some back.
func (n *notifications) wake() {
	for _, c := range n.channels {
		n.engine.Kept(c.queue.ID)
	}
}

// extend adds to what the API shows.
func (n *notifications) extend(c *httpapi.Config) {
	if n == nil {
		return
	}
	c.Notifications, c.Deliveries, c.Channels, c.Wake = n.center, n.store, n.carrier, n.wake
	c.ChannelTypes = make(map[string]string, len(n.channels))
	for _, channel := range n.channels {
		c.ChannelTypes[channel.name] = string(channel.cfg.Type)
	}
	if n.mailbox != nil {
		c.Pages = map[string]http.Handler{mailbox.Path: n.mailbox}
	}
}
