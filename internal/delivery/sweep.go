package delivery

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/model"
)

const (
	expireEvery = time.Second
	expirePage  = 500 // deliveries cancelled at once, so that no transaction is long
	expirePages = 20  // in one sweep

	// walkEvery is how often one page of the requests that have sensitive values
	// is looked at, whatever is known of them: the safety net.
	walkEvery = 5 * time.Second
	walkPage  = 500
	// maxEnded bounds what is remembered to be erased; the walk finds the rest.
	maxEnded = 5000
)

// sweepStore is what sweeping needs of a store.
type sweepStore interface {
	ExpireDeliveries(ctx context.Context, limit int) (int, error)
	Secrets(ctx context.Context, after model.Seq, limit int) ([]model.Seq, error)
	EraseSecrets(ctx context.Context, requests []model.Seq) (int, error)
}

// sweeper cancels what has expired and erases what is not needed any more. Every
// process does: it is little to do, and whoever comes second finds nothing.
type sweeper struct {
	store   sweepStore
	log     *slog.Logger
	metrics *metrics

	expire chan struct{} // now
	erase  chan struct{} // there are requests in waiting

	mu      sync.Mutex
	waiting map[model.Seq]bool // requests of which a delivery has ended

	walked model.Seq // how far the walk has come; only its loop touches it
}

func newSweeper(store sweepStore, log *slog.Logger, m *metrics) *sweeper {
	return &sweeper{store: store, log: log, metrics: m, waiting: map[model.Seq]bool{},
		expire: make(chan struct{}, 1), erase: make(chan struct{}, 1)}
}

// expireNow has the sweep come now.
func (s *sweeper) expireNow() { signal(s.expire) }

// ended has a request's sensitive values erased, if that was its last delivery.
func (s *sweeper) ended(request model.Seq) {
	s.mu.Lock()
	if len(s.waiting) < maxEnded {
		s.waiting[request] = true
	}
	s.mu.Unlock()
	signal(s.erase)
}

func (s *sweeper) take() []model.Seq {
	s.mu.Lock()
	defer s.mu.Unlock()
	var requests []model.Seq
	for r := range s.waiting {
		if len(requests) == walkPage {
			signal(s.erase)
			break
		}
		requests = append(requests, r)
		delete(s.waiting, r)
	}
	slices.Sort(requests)
	return requests
}

func (s *sweeper) expireLoop(ctx context.Context) {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	t := trouble{log: s.log, what: "expired deliveries cannot be cancelled; they are not sent"}
	for {
		select {
		case <-tick.C:
		case <-s.expire:
		case <-ctx.Done():
			return
		}
		t.tell(ctx, s.expireAll(ctx))
	}
}

func (s *sweeper) expireAll(ctx context.Context) error {
	for range expirePages {
		n, err := bounded(ctx, func(ctx context.Context) (int, error) { return s.store.ExpireDeliveries(ctx, expirePage) })
		if err != nil {
			return err
		}
		s.metrics.expired.Add(float64(n))
		if n < expirePage {
			break
		}
	}
	return nil
}

func (s *sweeper) eraseLoop(ctx context.Context) {
	tick := time.NewTicker(walkEvery)
	defer tick.Stop()
	t := trouble{log: s.log, what: "sensitive values that are not needed any more cannot be erased"}
	for {
		var err error
		select {
		case <-s.erase:
			err = s.eraseOf(ctx, s.take())
		case <-tick.C:
			err = s.walk(ctx)
		case <-ctx.Done():
			return
		}
		t.tell(ctx, err)
	}
}

func (s *sweeper) eraseOf(ctx context.Context, requests []model.Seq) error {
	if len(requests) == 0 {
		return nil
	}
	n, err := bounded(ctx, func(ctx context.Context) (int, error) { return s.store.EraseSecrets(ctx, requests) })
	s.metrics.erased.Add(float64(n))
	return err
}

// walk looks at one page, and begins anew after the last.
func (s *sweeper) walk(ctx context.Context) error {
	page, err := bounded(ctx, func(ctx context.Context) ([]model.Seq, error) { return s.store.Secrets(ctx, s.walked, walkPage) })
	if err != nil {
		return err
	}
	if err := s.eraseOf(ctx, page); err != nil {
		return err
	}
	s.walked = 0
	if len(page) == walkPage {
		s.walked = page[len(page)-1]
	}
	return nil
}

// bounded makes a call of the store that ends in time.
func bounded[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	return call(ctx)
}

// trouble tells when something begins to fail, and when that is over.
type trouble struct {
	log  *slog.Logger
	what string
	on   bool
}

func (t *trouble) tell(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !t.on:
		t.on = true
		t.log.Warn("what is done for deliveries on a schedule fails; it is tried again", "what", t.what, "err", err)
	case err == nil && t.on:
		t.on = false
		t.log.Info("what is done for deliveries on a schedule succeeds again", "was", t.what)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// measureEvery is how often what waits is counted.
const measureEvery = 15 * time.Second

func (c *Carrier) measureLoop(ctx context.Context) {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	t := trouble{log: c.log, what: "what waits for delivery cannot be counted"}
	for {
		t.tell(ctx, c.measure(ctx))
		for _, l := range c.lanes {
			l.dead.flush()
			l.uncertain.flush()
			l.unopenable.flush()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (c *Carrier) measure(ctx context.Context) error {
	stats, err := bounded(ctx, c.cfg.Store.Stats)
	if err != nil {
		count(ctx, c.metrics.measureErrors)
		return err
	}
	for _, s := range stats {
		if l := c.laneOf(s.Source.ID); l != nil {
			c.metrics.waiting.WithLabelValues(l.cfg.Name).Set(float64(s.Pending + s.Retrying))
			c.metrics.oldest.WithLabelValues(l.cfg.Name).Set(s.OldestDueAge.Seconds())
		}
	}
	return nil
}

func count(ctx context.Context, failures prometheus.Counter) {
	if ctx.Err() == nil {
		failures.Inc()
	}
}

func (c *Carrier) laneOf(queue model.SourceID) *lane {
	for _, l := range c.lanes {
		if l.cfg.Queue.ID == queue {
			return l
		}
	}
	return nil
}
