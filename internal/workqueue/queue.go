package workqueue

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

const (
	// A claim loop that has been in one call of the store for longer than this
	// does not turn any more.
	stuckAfter = 30 * time.Second
	// Nor does one whose calls have all failed for longer than this.
	failingAfter = 5 * time.Second
)

// queue consumes one queue, under one agreement after the other.
type queue struct {
	e       *Engine
	cfg     *QueueConfig
	wake    chan struct{}
	enabled atomic.Bool
	agreed  agreement
	slots   chan struct{} // one token for each execution, or keyed partition, that may run

	failing trouble     // calls of the store
	placed  trouble     // placing what was kept under another agreement
	gone    atomic.Bool // a loop has ended without being told to
	streak  atomic.Int64

	mu     sync.Mutex
	lanes  map[*lane]bool
	shares *shares // while the order is keyed

	placing sync.Mutex // held by the one lane that places what is misplaced
}

func newQueue(e *Engine, cfg *QueueConfig) *queue {
	q := &queue{e: e, cfg: cfg, wake: make(chan struct{}, 1), slots: make(chan struct{}, cfg.Concurrency), lanes: map[*lane]bool{}}
	q.enabled.Store(cfg.Source.Enabled)
	q.agreed.set(cfg.Source.Agreed)
	e.metrics.begin(cfg.Source.Name)
	return q
}

func (q *queue) id() model.SourceID { return q.cfg.Source.ID }
func (q *queue) name() string       { return q.cfg.Source.Name }

// lockName names a partition for the lock beside the store's lease.
func (q *queue) lockName(part int) string { return q.name() + "/" + strconv.Itoa(part) }

// run consumes until the engine stops. While the agreement is being changed
// nothing is claimed.
func (q *queue) run() {
	for !closed(q.e.stopping) {
		agreed, changed := q.agreed.get()
		over := either(q.e.stopping, changed)
		if !agreed.Draining {
			q.consume(agreed, over)
		}
		<-over
	}
}

// consume works under one agreement. It returns when all has ended that was
// begun under it.
func (q *queue) consume(agreed model.Agreed, over <-chan struct{}) {
	switch agreed.Order {
	case model.Serial:
		l := q.lane(agreed, 0, over)
		l.run(l.serialRound)
	case model.Parallel:
		l := q.lane(agreed, 0, over)
		l.run(l.parallelRound)
		q.drainSlots()
	case model.Keyed:
		q.consumeKeyed(agreed, over)
	}
}

// drainSlots waits until nothing of this queue executes any more.
func (q *queue) drainSlots() {
	for range cap(q.slots) {
		q.slots <- struct{}{}
	}
	for range cap(q.slots) {
		<-q.slots
	}
}

// hear takes over what a heartbeat said of this queue.
func (q *queue) hear(s model.Source) {
	if q.cfg.OnSource != nil {
		q.cfg.OnSource(s)
	}
	if q.enabled.Swap(s.Enabled) != s.Enabled {
		q.e.log.Info("consumption switched", "source", s.Name, "enabled", s.Enabled)
		signal(q.wake)
	}
	before, _ := q.agreed.get()
	if !q.agreed.set(s.Agreed) {
		return
	}
	switch a := s.Agreed; {
	case a.Draining:
		q.e.log.Info("the order is about to change: nothing is claimed until what is processing has ended", "source", s.Name, "order", a.Order)
	case a.Generation != before.Generation:
		q.e.metrics.generations.WithLabelValues(s.Name).Inc()
		q.e.log.Info("the order has changed", "source", s.Name, "order", a.Order, "partitions", a.Partitions, "block", a.Block, "generation", a.Generation)
	}
}

// unsettled says whether this instance's configuration asks for another ordering
// than the one that holds, or the ordering is being changed.
func (q *queue) unsettled() (wantsOther, draining bool) {
	a, _ := q.agreed.get()
	return a.Ordering != q.cfg.Wants, a.Draining
}

func (q *queue) check() error {
	if q.gone.Load() {
		return fmt.Errorf("a claim loop has stopped")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := range q.lanes {
		if since := l.storeSince.Load(); since != 0 && time.Since(time.Unix(0, since)) > stuckAfter {
			return fmt.Errorf("a claim loop has been waiting for the store since %s", time.Unix(0, since).UTC().Format(time.RFC3339))
		}
	}
	if since, ok := q.placed.longerThan(failingAfter); ok && q.enabled.Load() {
		return fmt.Errorf("waiting messages could not be placed by their keys since %s", since.UTC().Format(time.RFC3339))
	}
	if since, ok := q.failing.longerThan(failingAfter); ok && q.enabled.Load() {
		return fmt.Errorf("every call of the store or the lock has failed since %s", since.UTC().Format(time.RFC3339))
	}
	return nil
}

// placePage is how many misplaced messages are placed at once. Their bodies are
// in memory meanwhile.
const placePage = 100

// place moves all pending work to the slots of the agreement: what was kept
// while another one held.
func (q *queue) place(l *lane) error {
	q.placing.Lock()
	defer q.placing.Unlock()
	total := 0
	defer func() {
		if total > 0 {
			q.e.Wake(q.id()) // it may belong to other partitions
			q.e.notifier.add(q.id())
		}
	}()
	for !closed(l.over) {
		var messages []model.Message
		err := l.call("place", func(ctx context.Context) (err error) {
			if messages, err = q.e.store.Misplaced(ctx, q.id(), l.agreed.KeyID, placePage); err != nil || len(messages) == 0 {
				return err
			}
			placed := make([]model.Placed, len(messages))
			for i := range messages {
				placed[i].Seq = messages[i].Seq
				if placed[i].Key, err = q.cfg.KeyOf(l.agreed, &messages[i]); err != nil {
					return err
				}
			}
			return q.e.store.Place(ctx, q.id(), placed)
		})
		q.placed.tell(err)
		if err != nil {
			return err
		}
		total += len(messages)
		q.e.metrics.placed.WithLabelValues(q.name()).Add(float64(len(messages)))
		if len(messages) < placePage {
			break
		}
	}
	if total > placePage {
		q.e.log.Info("waiting messages were placed by the keys that hold now", "source", q.name(), "messages", total)
	}
	return nil
}

// agreement is what is agreed on a queue, as last heard.
type agreement struct {
	mu      sync.Mutex
	now     model.Agreed
	changed chan struct{}
}

func (a *agreement) get() (now model.Agreed, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.now, a.changed
}

// set says whether it is another one. An older one, heard late, is not.
func (a *agreement) set(now model.Agreed) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	older := now.Generation < a.now.Generation || now.Generation == a.now.Generation && a.now.Draining
	if older || now == a.now {
		return false
	}
	a.now = now
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
	return true
}

// either is closed when a or b is.
func either(a, b <-chan struct{}) <-chan struct{} {
	both := make(chan struct{})
	go func() {
		defer close(both)
		select {
		case <-a:
		case <-b:
		}
	}()
	return both
}
