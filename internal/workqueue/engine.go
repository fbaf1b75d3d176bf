package workqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// stopGrace is how long Stop waits, after handlers' contexts have ended, for
// the handlers to return, and then for their outcomes to be written.
const stopGrace = 2 * time.Second

// Engine consumes a set of queues in one process.
type Engine struct {
	store      Store
	cfg        Config
	log        *slog.Logger
	metrics    *Metrics
	member     *member
	completer  *completer
	gate       *gate
	running    *running
	jitter     jitter
	recovering trouble // recovery after heartbeats
	queues     map[model.SourceID]*queue
	balancer   *balancer
	notifier   *notifier

	recoverNow chan struct{}
	stopping   chan struct{}           // closed: claim no more
	abandon    chan struct{}           // closed: wait for no handler
	handlers   context.Context         // what handlers run in
	endAll     context.CancelCauseFunc // ends handlers

	queuesDone sync.WaitGroup
	loopsDone  sync.WaitGroup
	endLoops   context.CancelFunc

	mu      sync.Mutex
	started bool
	stopped chan struct{} // closed when Stop has finished; nil before Start
}

// New makes an engine that is not started. Its queues must be registered.
func New(cfg Config) (*Engine, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	e := &Engine{
		store: cfg.Store, cfg: cfg, log: cfg.Logger, metrics: cfg.Metrics,
		completer: newCompleter(cfg.Store, cfg.Logger, cfg.Metrics), gate: newGate(), running: newRunning(), jitter: randomPart,
		queues:     map[model.SourceID]*queue{},
		recoverNow: make(chan struct{}, 1), stopping: make(chan struct{}), abandon: make(chan struct{}),
		stopped: make(chan struct{}),
	}
	e.handlers, e.endAll = context.WithCancelCause(context.Background())
	e.member = &member{store: cfg.Store, name: cfg.Name, lease: cfg.Lease, log: cfg.Logger, metrics: cfg.Metrics,
		hurry: make(chan struct{}, 1), onBeat: e.onBeat}
	e.balancer = &balancer{e: e, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	e.notifier = newNotifier(e)
	for _, q := range cfg.Queues {
		if err := e.Add(q); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Add has a further queue consumed, which must be registered. It is called
// before Start, by one at a time.
func (e *Engine) Add(cfg QueueConfig) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	cfg = cfg.WithDefaults()
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("workqueue: queue %q: %w", cfg.Source.Name, err)
	}
	if e.started || closed(e.stopping) {
		return fmt.Errorf("workqueue: queue %q is added after the engine was started", cfg.Source.Name)
	}
	if e.queues[cfg.Source.ID] != nil {
		return fmt.Errorf("workqueue: queue %q is there twice", cfg.Source.Name)
	}
	q := newQueue(e, &cfg)
	e.queues[q.id()] = q
	e.member.wants = append(e.member.wants, model.Want{Queue: q.id(), Ordering: q.cfg.Wants})
	return nil
}

// Start registers this instance, recovers what dead ones left, and begins to
// consume. It is called once.
func (e *Engine) Start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started || closed(e.stopping) {
		return errors.New("workqueue: an engine is started once")
	}
	if err := e.member.join(ctx); err != nil {
		return err
	}
	e.started = true
	loops, end := context.WithCancel(context.Background())
	e.endLoops = end
	go e.completer.run()
	e.loopsDone.Go(func() { e.member.run(loops) })
	e.loopsDone.Go(func() { e.recoverLoop(loops) })
	e.loopsDone.Go(func() { e.balancer.run(loops) })
	if e.notifier.signals != nil {
		e.loopsDone.Go(func() { e.notifier.tell(loops) })
		e.loopsDone.Go(func() { e.notifier.hear(loops) })
	}
	for _, q := range e.queues {
		e.queuesDone.Go(q.run)
	}
	return nil
}

// Stop claims no more, waits for running handlers (Drain), then ends their
// contexts, gives back what still does not return, and leaves. An attempt that
// shutdown cut short is given back. Calling it again waits for the first.
func (e *Engine) Stop() {
	e.mu.Lock()
	started, first := e.started, !closed(e.stopping)
	if first {
		close(e.stopping)
	}
	e.mu.Unlock()
	if !started {
		return
	}
	if !first {
		<-e.stopped
		return
	}
	ended := make(chan struct{})
	go func() {
		e.queuesDone.Wait()
		close(ended)
	}()
	if !within(ended, e.cfg.Drain) {
		e.log.Warn("handlers are still running after the drain time; their contexts end now", "drain", e.cfg.Drain)
		e.endAll(errStopping)
		if !within(ended, stopGrace) {
			close(e.abandon)
			if !within(ended, stopGrace+settleCallBound) {
				e.completer.abandon() // the store is away: what is left is recovered by others
				<-ended
			}
		}
	}
	e.endAll(errStopping)
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace+settleCallBound)
	defer cancel()
	e.completer.close(ctx)
	e.endLoops()
	e.loopsDone.Wait()
	if err := e.member.leave(ctx); err != nil {
		e.log.Warn("leaving failed; others wait for the lease to run out", "err", err)
	}
	e.notifier.sayGoodbye(ctx)
	close(e.stopped)
}

// Wake says that a queue may have due work. It is a hint: losing it costs at
// most a round interval.
func (e *Engine) Wake(queue model.SourceID) {
	if q := e.queues[queue]; q != nil {
		signal(q.wake)
	}
}

// Hurry has the next heartbeat come now: a switch was changed, and should be
// heard.
func (e *Engine) Hurry() { signal(e.member.hurry) }

// Kept says that a queue has new work, which this process has just kept: it
// wakes this process, and others where there are any.
func (e *Engine) Kept(queue model.SourceID) {
	e.Wake(queue)
	if e.notifier.company.Load() {
		e.notifier.add(queue)
	}
}

// onBeat takes over what the heartbeat brought, switches and agreements, and
// works towards the agreements that are wanted. It says whether the next
// heartbeat should come soon.
func (e *Engine) onBeat(ctx context.Context, hb model.Heartbeat) (soon bool) {
	other, _ := e.hear(hb.Sources)
	if id, ok := e.member.current(); ok && other {
		sources, err := e.store.Agree(ctx, id)
		if err == nil {
			_, soon = e.hear(sources)
		} else if ctx.Err() == nil {
			e.metrics.storeErrors.WithLabelValues("agree").Inc()
			e.log.Warn("the order could not be agreed on; it is tried again at the next heartbeat", "err", err)
		}
	}
	signal(e.recoverNow)
	signal(e.balancer.wake)
	return soon
}

// hear says whether any queue's agreement is another one than this instance
// wants, or is being changed.
func (e *Engine) hear(sources []model.Source) (other, draining bool) {
	for _, s := range sources {
		q := e.queues[s.ID]
		if q == nil {
			continue
		}
		q.hear(s)
		o, d := q.unsettled()
		other, draining = other || o || d, draining || d
	}
	e.cfg.OnSources(sources)
	return other, draining
}

// company says whether other instances consume what this one might keep.
func (e *Engine) company(o model.Occupancy) bool {
	for queue, n := range o.Consumers {
		if e.queues[queue] != nil {
			n--
		}
		if n > 0 {
			return true
		}
	}
	return false
}

func (e *Engine) countsConsumers() bool {
	for _, q := range e.queues {
		if q.cfg.OnConsumers != nil {
			return true
		}
	}
	return false
}

func (e *Engine) tellConsumers(o model.Occupancy) {
	for _, q := range e.queues {
		if q.cfg.OnConsumers != nil {
			q.cfg.OnConsumers(o.Consumers[q.id()])
		}
	}
}

func (e *Engine) nameOf(queue model.SourceID) string {
	if q := e.queues[queue]; q != nil {
		return q.name()
	}
	return "unknown"
}

// Check says whether this instance consumes as it should: it may claim, and
// every lane turns. The error says what does not.
func (e *Engine) Check() error {
	var problems []error
	if _, ok := e.member.current(); !ok {
		problems = append(problems, errors.New("this instance's lease is not renewed: it claims nothing"))
	}
	if since, ok := e.recovering.longerThan(e.cfg.Lease); ok {
		problems = append(problems, fmt.Errorf("nothing has been recovered since %s: the store fails", since.UTC().Format(time.RFC3339)))
	}
	if since, ok := e.balancer.failing.longerThan(e.cfg.Lease); ok {
		problems = append(problems, fmt.Errorf("partitions have not been shared out since %s: the store or the lock fails", since.UTC().Format(time.RFC3339)))
	}
	for _, q := range e.queues {
		if err := q.check(); err != nil {
			problems = append(problems, fmt.Errorf("source %s: %w", q.name(), err))
		}
	}
	return errors.Join(problems...)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// within waits for c, at most d.
func within(c <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}
