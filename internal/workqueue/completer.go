package workqueue

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

const (
	maxSettleBatch    = 500  // settlements in one transaction
	maxSettleBacklog  = 4096 // unsettled outcomes above which no more work is fetched
	settleCallBound   = 5 * time.Second
	settleRetryPause  = 100 * time.Millisecond
	settleLongestWait = 2 * time.Second
)

// completer gathers settlements and hands them to the store in batches: what
// waits while one batch is written makes the next. It drops none: while the
// store is away they wait, and lanes fetch no more.
type completer struct {
	store   Queue
	log     *slog.Logger
	metrics *Metrics

	mu         sync.Mutex
	waiting    []pendingSettlement
	ended      bool          // the loop is over: nothing is written any more
	room       chan struct{} // closed when the backlog has shrunk below its bound; nil while it is
	wake       chan struct{}
	stop       chan struct{}
	giveUp     chan struct{} // closed when even Stop can wait no longer
	giveUpOnce sync.Once
	over       chan struct{}
}

type pendingSettlement struct {
	model.Settlement
	// done is told whether it was applied. certain is false where an earlier
	// try may have been the one that applied it, or where nothing is known.
	done func(applied, certain bool)
}

func newCompleter(store Queue, log *slog.Logger, metrics *Metrics) *completer {
	return &completer{
		store: store, log: log, metrics: metrics,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), giveUp: make(chan struct{}), over: make(chan struct{}),
	}
}

// submit hands over settlements; done is called for each, from the
// completer's goroutine.
func (c *completer) submit(settlements ...pendingSettlement) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		for _, s := range settlements {
			s.done(false, false)
		}
		return
	}
	c.waiting = append(c.waiting, settlements...)
	c.metrics.unsettled.Set(float64(len(c.waiting)))
	c.mu.Unlock()
	signal(c.wake)
}

// submitAndWait hands over settlements and waits until done was called for all.
func (c *completer) submitAndWait(settlements []pendingSettlement) {
	var wg sync.WaitGroup
	wg.Add(len(settlements))
	for i := range settlements {
		done := settlements[i].done
		settlements[i].done = func(applied, certain bool) {
			done(applied, certain)
			wg.Done()
		}
	}
	c.submit(settlements...)
	wg.Wait()
}

// settle hands over settlements and waits: how many were surely lost?
func (c *completer) settle(settlements ...model.Settlement) (lost int) {
	pending := make([]pendingSettlement, len(settlements))
	for i, s := range settlements {
		pending[i] = pendingSettlement{s, func(applied, certain bool) {
			if !applied && certain {
				lost++
			}
		}}
	}
	c.submitAndWait(pending)
	return lost
}

// waitForRoom waits until the backlog is below its bound.
func (c *completer) waitForRoom(stop <-chan struct{}) bool {
	c.mu.Lock()
	if len(c.waiting) < maxSettleBacklog {
		c.mu.Unlock()
		return true
	}
	if c.room == nil {
		c.room = make(chan struct{})
	}
	room := c.room
	c.mu.Unlock()
	select {
	case <-room:
		return true
	case <-stop:
		return false
	}
}

func (c *completer) run() {
	defer close(c.over)
	for {
		batch := c.take()
		if len(batch) == 0 {
			select {
			case <-c.wake:
				continue
			case <-c.stop:
				if c.endIfEmpty() {
					return
				}
				continue
			}
		}
		c.write(batch, true)
	}
}

// close settles what is left and ends the loop; when ctx ends first, what is
// left is given up: the work stays processing, and is recovered.
func (c *completer) close(ctx context.Context) {
	close(c.stop)
	select {
	case <-c.over:
	case <-ctx.Done():
		c.abandon()
		<-c.over
	}
}

// abandon gives up what cannot be written.
func (c *completer) abandon() { c.giveUpOnce.Do(func() { close(c.giveUp) }) }

func (c *completer) endIfEmpty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = len(c.waiting) == 0
	return c.ended
}

// take takes a batch, in the order of seq, each message once.
func (c *completer) take() []pendingSettlement {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return nil
	}
	taken := make([]pendingSettlement, 0, min(len(c.waiting), maxSettleBatch))
	seen := make(map[model.Seq]bool, cap(taken))
	left := c.waiting[:0]
	for _, s := range c.waiting {
		if len(taken) == maxSettleBatch || seen[s.Seq] {
			left = append(left, s)
			continue
		}
		seen[s.Seq] = true
		taken = append(taken, s)
	}
	clear(c.waiting[len(left):])
	c.waiting = left
	c.metrics.unsettled.Set(float64(len(left)))
	if c.room != nil && len(left) < maxSettleBacklog {
		close(c.room)
		c.room = nil
	}
	slices.SortFunc(taken, func(a, b pendingSettlement) int { return cmp.Compare(a.Seq, b.Seq) })
	return taken
}

// write settles the batch, however long that takes. A batch that the store
// refuses for good is split until the one at fault stands alone. certain: no
// earlier try can have applied any of it.
func (c *completer) write(batch []pendingSettlement, certain bool) {
	settlements := make([]model.Settlement, len(batch))
	for i, s := range batch {
		settlements[i] = s.Settlement
	}
	pause := settleRetryPause
	for {
		ctx, cancel := context.WithTimeout(context.Background(), settleCallBound)
		applied, err := c.store.Settle(ctx, settlements)
		cancel()
		if err == nil {
			for i, s := range batch {
				s.done(applied[i], certain || applied[i])
			}
			return
		}
		c.metrics.storeErrors.WithLabelValues("settle").Inc()
		if code := model.CodeOf(err); code != model.CodeUnavailable {
			if len(batch) > 1 {
				c.write(batch[:len(batch)/2], certain)
				c.write(batch[len(batch)/2:], certain)
				return
			}
			c.log.Error("an outcome cannot be written; its message stays processing until it is recovered", "seq", batch[0].Seq, "err", err)
			batch[0].done(false, false)
			return
		}
		certain = false
		c.log.Warn("outcomes wait for the store", "err", err)
		select {
		case <-time.After(pause):
			pause = min(2*pause, settleLongestWait)
		case <-c.giveUp:
			for _, s := range batch {
				s.done(false, false)
			}
			return
		}
	}
}

// signal wakes whoever waits on c, without waiting.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
