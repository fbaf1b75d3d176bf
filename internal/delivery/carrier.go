package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/workqueue"
)

const (
	// roundInterval is the longest wait until a retry that has fallen due is seen.
	roundInterval = time.Second
	callBound     = 5 * time.Second // of one call of the store
	// closeGrace is how long Stop waits for sends before their connections close.
	closeGrace = 5 * time.Second
)

// Carrier carries deliveries out.
type Carrier struct {
	cfg       Config
	log       *slog.Logger
	metrics   *metrics
	templates *templates
	lanes     []*lane
	sweeper   *sweeper
	clock     storeClock

	mu      sync.Mutex // held by Start and Stop
	started bool
	end     context.CancelFunc
	loops   sync.WaitGroup

	sendMu  sync.Mutex
	stopped bool
	sends   sync.WaitGroup
}

// lane is one channel at work.
type lane struct {
	c       *Carrier
	cfg     Channel
	account *account
	codes   codes

	dead, uncertain, unopenable alerts
	heldBack                    heldAlert
}

// New makes a Carrier that is not started. Its queues are to be given to the
// engine.
func New(cfg Config) (*Carrier, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	c := &Carrier{cfg: cfg, log: cfg.Logger, templates: newTemplates(cfg.Store)}
	var err error
	if c.metrics, err = newMetrics(cfg.Registerer, func() []*lane { return c.lanes }); err != nil {
		return nil, fmt.Errorf("delivery: %w", err)
	}
	for _, ch := range cfg.Channels {
		l := &lane{
			c: c, cfg: ch,
			dead:       alerts{log: c.log, channel: ch.Name, status: model.DeliveryDead, advice: adviceDead},
			uncertain:  alerts{log: c.log, channel: ch.Name, status: model.DeliveryUncertain, advice: adviceUncertain},
			unopenable: alerts{log: c.log, channel: ch.Name, status: model.DeliveryPending, advice: adviceKey},
			heldBack:   heldAlert{log: c.log, channel: ch.Name},
		}
		l.account = newAccount(&ch, func() { cfg.Engine.Wake(ch.Queue.ID) })
		c.lanes = append(c.lanes, l)
		c.metrics.begin(ch.Name)
	}
	c.sweeper = newSweeper(cfg.Store, c.log, c.metrics)
	return c, nil
}

// Queues are what the engine consumes.
func (c *Carrier) Queues() []workqueue.QueueConfig {
	queues := make([]workqueue.QueueConfig, len(c.lanes))
	for i, l := range c.lanes {
		queues[i] = workqueue.QueueConfig{
			Source: l.cfg.Queue, Wants: model.Ordering{Order: model.Parallel}, Policy: l.cfg.Policy,
			Handler: l.handle, Bare: true, Load: c.load, Admit: l.account, Observe: l.observe,
			OnSource: func(s model.Source) {
				l.account.hear(s.Enabled)
				l.account.hearHold(s.HoldFor)
			},
			OnConsumers: l.account.setConsumers,
			Concurrency: l.cfg.Concurrency, BatchSize: l.cfg.BatchSize, Timeout: l.cfg.Timeout, RoundInterval: roundInterval,
			TripAfter: math.MaxInt32, // that is the breaker's business
		}
	}
	return queues
}

// Start begins to cancel what expires, to erase what is not needed any more, and
// to measure. Calling it again does nothing more.
func (c *Carrier) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.isStopped() {
		return
	}
	c.started = true
	ctx, end := context.WithCancel(context.Background())
	c.end = end
	c.loops.Go(func() { c.sweeper.expireLoop(ctx) })
	c.loops.Go(func() { c.sweeper.eraseLoop(ctx) })
	c.loops.Go(func() { c.sweeper.cancelLoop(ctx) })
	c.loops.Go(func() { c.measureLoop(ctx) })
}

// Stop ends that, and closes the senders. The engine is to be stopped before. A
// send that does not end keeps its sender open. Calling it again waits for the
// first call.
func (c *Carrier) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isStopped() {
		return
	}
	c.sendMu.Lock()
	c.stopped = true
	c.sendMu.Unlock()
	if c.started {
		c.end()
		c.loops.Wait()
	}
	ended := make(chan struct{})
	go func() {
		c.sends.Wait()
		close(ended)
	}()
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		c.log.Warn("a sender is still at work; its connections are not closed")
		return
	}
	for _, l := range c.lanes {
		if err := l.cfg.Sender.Close(); err != nil {
			c.log.Warn("a sender could not be closed", "channel", l.cfg.Name)
		}
	}
}

func (c *Carrier) isStopped() bool {
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	return c.stopped
}

// mayCall counts a call of a sender, unless they are being closed.
func (c *Carrier) mayCall() bool {
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	if !c.stopped {
		c.sends.Add(1)
	}
	return !c.stopped
}

func (c *Carrier) lane(name string) (*lane, error) {
	for _, l := range c.lanes {
		if l.cfg.Name == name {
			return l, nil
		}
	}
	return nil, &model.Error{Code: model.CodeNotFound, Op: "find the channel", Err: fmt.Errorf("no channel is called %q", name)}
}

// load fetches what is to be sent for what was claimed, with its templates.
func (c *Carrier) load(ctx context.Context, works []model.Work) error {
	seqs := make([]model.Seq, len(works))
	for i := range works {
		seqs[i] = works[i].Seq
	}
	outgoing, err := c.outgoing(ctx, seqs)
	if err != nil {
		return err
	}
	found := make(map[model.Seq]*model.Outgoing, len(outgoing))
	var ids []model.TemplateID
	for i := range outgoing {
		found[outgoing[i].Seq] = &outgoing[i]
		if !unreadable(&outgoing[i]) {
			ids = append(ids, outgoing[i].Template)
		}
	}
	for i := range works {
		works[i].Outgoing = found[works[i].Seq]
	}
	return c.templates.fetch(ctx, ids)
}

// outgoing reads what is to be sent. One that cannot be read hinders no other: it
// has no ID then.
func (c *Carrier) outgoing(ctx context.Context, seqs []model.Seq) ([]model.Outgoing, error) {
	read := func(seqs []model.Seq) ([]model.Outgoing, error) {
		before := time.Now()
		outgoing, err := c.cfg.Store.Outgoing(ctx, seqs)
		for i := range outgoing {
			c.clock.set(outgoing[i].Now, before)
		}
		return outgoing, err
	}
	all, err := read(seqs)
	if err == nil || isOfAll(ctx, err) {
		return all, err
	}
	all = nil
	for _, seq := range seqs {
		one, err := read([]model.Seq{seq})
		switch {
		case err == nil:
			all = append(all, one...)
		case isOfAll(ctx, err):
			return nil, err
		default:
			c.log.Warn("what is to be sent cannot be read; this delivery waits, and no attempt is burned", "seq", seq, "err", err)
			all = append(all, model.Outgoing{Seq: seq})
		}
	}
	return all, nil
}

// unreadable says whether a delivery is there and could not be read.
func unreadable(o *model.Outgoing) bool { return o.ID == uuid.Nil }

// storeClock tells the store's time between two calls of it.
type storeClock struct {
	mu    sync.Mutex
	store model.Micros
	local time.Time
}

// set takes in what the store's clock said, after the local time before.
func (s *storeClock) set(store model.Micros, before time.Time) {
	s.mu.Lock()
	s.store, s.local = store, before
	s.mu.Unlock()
}

// now is the store's time, or a little later.
func (s *storeClock) now() model.Micros {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.Add(time.Since(s.local))
}

// observe takes in what became of an attempt, after that was settled.
func (l *lane) observe(e workqueue.Event) {
	if e.Lost {
		return
	}
	l.c.metrics.outcomes.WithLabelValues(l.cfg.Name, e.Kind.String()).Inc()
	o := e.Work.Outgoing
	switch e.Kind {
	case model.SettleDead:
		l.dead.add(l.codes.label(e.Code))
		fallthrough
	case model.SettleSuccess, model.SettleFailed:
		if o != nil && len(o.Sensitive.Bytes) > 0 {
			l.c.sweeper.ended(o.Request)
		}
	case model.SettleRelease:
		switch {
		case o == nil:
		case withdrawn(e.Work):
			l.c.sweeper.cancelled(o.RequestID)
		case expired(o, l.c.clock.now()):
			l.c.sweeper.expireNow()
		}
	case model.SettleUncertain:
		l.uncertain.add(l.codes.label(e.Code))
	case model.SettleRetry:
	}
}

func expired(o *model.Outgoing, now model.Micros) bool { return o.ExpiresAt != 0 && now >= o.ExpiresAt }

// withdrawn says whether a delivery's request was cancelled while an attempt was
// under way, so that no other may follow. What was replayed is wanted again.
func withdrawn(w model.Work) bool { return w.Outgoing != nil && w.Outgoing.Cancelled && w.Replay == 0 }
