package workqueue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

const (
	// notifyPause is the least time between two signals of this process.
	notifyPause = 20 * time.Millisecond
	// relisten is how long it waits after the connection was lost.
	relisten = time.Second
)

// notifier tells other processes of due work, and hears of it from them, where
// the store can carry that. Many hints become one signal.
type notifier struct {
	e         *Engine
	signals   Signals // nil: the store cannot
	wake      chan struct{}
	company   atomic.Bool // other instances live that consume
	listening atomic.Bool

	mu      sync.Mutex
	pending map[model.SourceID]bool
}

func newNotifier(e *Engine) *notifier {
	n := &notifier{e: e, wake: make(chan struct{}, 1), pending: map[model.SourceID]bool{}}
	n.signals, _ = e.store.(Signals)
	return n
}

// add tells of due work, soon.
func (n *notifier) add(queue model.SourceID) { n.addHint(queue) }

// addFree tells of free partitions, soon. It is told as the negative queue.
func (n *notifier) addFree(queue model.SourceID) { n.addHint(-queue) }

func (n *notifier) addHint(queue model.SourceID) {
	if n.signals == nil {
		return
	}
	n.mu.Lock()
	n.pending[queue] = true
	n.mu.Unlock()
	signal(n.wake)
}

func (n *notifier) take() []model.SourceID {
	n.mu.Lock()
	defer n.mu.Unlock()
	queues := slices.Sorted(maps.Keys(n.pending))
	clear(n.pending)
	return queues
}

// tell sends until ctx ends.
func (n *notifier) tell(ctx context.Context) {
	for {
		select {
		case <-n.wake:
		case <-ctx.Done():
			return
		}
		if queues := n.take(); len(queues) > 0 {
			n.send(ctx, queues)
		}
		select {
		case <-time.After(notifyPause):
		case <-ctx.Done():
			return
		}
	}
}

func (n *notifier) send(ctx context.Context, queues []model.SourceID) {
	if err := n.signals.Notify(ctx, queues); err != nil && ctx.Err() == nil {
		n.e.metrics.storeErrors.WithLabelValues("notify").Inc()
		n.e.log.Debug("others could not be woken; they look by themselves", "err", err)
	}
}

// sayGoodbye tells others that what this process held is free.
func (n *notifier) sayGoodbye(ctx context.Context) {
	if n.signals == nil || !n.company.Load() {
		return
	}
	var free []model.SourceID
	for queue := range n.e.queues {
		free = append(free, queue, -queue)
	}
	n.send(ctx, free)
}

// hear listens until ctx ends, over one connection after the other. Whatever
// was told between two of them is looked for.
func (n *notifier) hear(ctx context.Context) {
	for ctx.Err() == nil {
		err := n.signals.Listen(ctx, n.heard)
		n.listening.Store(false)
		if model.CodeOf(err) == model.CodeInvalid {
			return // the store is reached in a way that carries no signals
		}
		if ctx.Err() != nil {
			return
		}
		n.e.metrics.storeErrors.WithLabelValues("listen").Inc()
		n.e.log.Warn("signals of other instances are not heard; due work is found by looking", "err", err)
		select {
		case <-time.After(relisten):
		case <-ctx.Done():
		}
	}
}

func (n *notifier) heard(queues []model.SourceID) {
	if queues == nil {
		n.listening.Store(true)
		for _, q := range n.e.queues {
			signal(q.wake)
		}
		signal(n.e.balancer.wake)
	}
	for _, id := range queues {
		if id < 0 {
			signal(n.e.balancer.wake)
		} else {
			n.e.Wake(id)
		}
	}
}
