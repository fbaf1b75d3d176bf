package delivery

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/model"
)

const (
	expireEvery = time.Second
	expirePage  = 500 // deliveries cancelled at once, so that no transaction is long
	expirePages = 20  // in one sweep

	// walkEvery is the pause between two walks over the requests that have sensitive
	// values, whatever is known of them: what is cancelled or expires is found so.
	walkEvery = 5 * time.Second
	// walkPause is the least between two pages of one walk.
	walkPause = 50 * time.Millisecond
	walkPage  = 500
	// maxEnded bounds what is remembered to be erased; the walk finds the rest. Of
	// what is to be cancelled the next attempt tells again.
	maxEnded = 5000
)

// sweepStore is what sweeping needs of a store.
type sweepStore interface {
	ExpireDeliveries(ctx context.Context, limit int) (int, error)
	Secrets(ctx context.Context, after model.Seq, limit int) ([]model.Seq, error)
	EraseSecrets(ctx context.Context, requests []model.Seq) (int, error)
	CancelRequest(ctx context.Context, id uuid.UUID, audit model.Audit) ([]model.ChangeResult, error)
}

// sweeper cancels what has expired and erases what is not needed any more. Every
// process does: it is little to do, and whoever comes second finds nothing.
type sweeper struct {
	store   sweepStore
	log     *slog.Logger
	metrics *metrics

	expire chan struct{} // now
	erase  chan struct{} // there are requests in waiting
	cancel chan struct{} // there are requests in withdrawn

	mu        sync.Mutex
	waiting   map[model.Seq]bool // requests of which a delivery has ended
	withdrawn map[uuid.UUID]bool // requests that were cancelled while an attempt was under way

	walked model.Seq // how far the walk has come; only its loop touches it
}

func newSweeper(store sweepStore, log *slog.Logger, m *metrics) *sweeper {
	return &sweeper{store: store, log: log, metrics: m, waiting: map[model.Seq]bool{}, withdrawn: map[uuid.UUID]bool{},
		expire: make(chan struct{}, 1), erase: make(chan struct{}, 1), cancel: make(chan struct{}, 1)}
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
	next := time.NewTimer(walkEvery)
	defer next.Stop()
	t := trouble{log: s.log, what: "sensitive values that are not needed any more cannot be erased"}
	for {
		var err error
		select {
		case <-s.erase:
			err = s.eraseOf(ctx, s.take())
		case <-next.C:
			var pause time.Duration
			pause, err = s.walk(ctx)
			next.Reset(pause)
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

// walk looks at one page, and says when the next is to be: soon, while pages are
// full. It goes on also after a page that fails, which hinders no other.
func (s *sweeper) walk(ctx context.Context) (next time.Duration, err error) {
	begun := time.Now()
	page, err := bounded(ctx, func(ctx context.Context) ([]model.Seq, error) { return s.store.Secrets(ctx, s.walked, walkPage) })
	if err != nil {
		return walkEvery, err
	}
	err = s.eraseOf(ctx, page)
	s.walked = 0
	if len(page) < walkPage {
		return walkEvery, err
	}
	s.walked = page[len(page)-1]
	if err != nil {
		return walkEvery, err
	}
	return max(walkPause, time.Since(begun)), nil // half of the time at most
}

// cancelled has a request's deliveries cancelled of which one was under way when
// the request was.
func (s *sweeper) cancelled(request uuid.UUID) {
	s.mu.Lock()
	if len(s.withdrawn) < maxEnded {
		s.withdrawn[request] = true
	}
	s.mu.Unlock()
	signal(s.cancel)
}

func (s *sweeper) cancelLoop(ctx context.Context) {
	t := trouble{log: s.log, what: "what was cancelled while an attempt was under way cannot be ended; it is not sent"}
	for {
		select {
		case <-s.cancel:
		case <-ctx.Done():
			return
		}
		t.tell(ctx, s.cancelAll(ctx))
	}
}

func (s *sweeper) cancelAll(ctx context.Context) (err error) {
	s.mu.Lock()
	requests := s.withdrawn
	s.withdrawn = map[uuid.UUID]bool{}
	s.mu.Unlock()
	audit := model.Audit{Actor: "system", Reason: "the request was cancelled while an attempt was under way"}
	for id := range requests {
		_, failed := bounded(ctx, func(ctx context.Context) ([]model.ChangeResult, error) { return s.store.CancelRequest(ctx, id, audit) })
		if failed != nil {
			err = failed // its delivery comes again
		}
	}
	return err
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
			l.heldBack.look(l.account.standing())
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
			l.heldBack.waiting = s.Pending+s.Retrying+s.Processing > 0
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
