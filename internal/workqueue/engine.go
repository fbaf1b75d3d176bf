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
	recovering trouble // recovery after heartbeats
	lanes      map[model.SourceID]*lane

	recoverNow chan struct{}
	stopping   chan struct{}           // closed: claim no more
	abandon    chan struct{}           // closed: wait for no handler
	handlers   context.Context         // what handlers run in
	endAll     context.CancelCauseFunc // ends handlers

	lanesDone sync.WaitGroup
	loopsDone sync.WaitGroup
	endLoops  context.CancelFunc

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
		completer: newCompleter(cfg.Store, cfg.Logger, cfg.Metrics), gate: newGate(), running: newRunning(),
		lanes:      map[model.SourceID]*lane{},
		recoverNow: make(chan struct{}, 1), stopping: make(chan struct{}), abandon: make(chan struct{}),
		stopped: make(chan struct{}),
	}
	e.handlers, e.endAll = context.WithCancelCause(context.Background())
	e.member = &member{store: cfg.Store, name: cfg.Name, lease: cfg.Lease, log: cfg.Logger, metrics: cfg.Metrics, onBeat: e.onBeat}
	for i := range cfg.Queues {
		l := newLane(e, &cfg.Queues[i])
		e.lanes[l.queue.Source.ID] = l
	}
	return e, nil
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
	for _, l := range e.lanes {
		e.lanesDone.Go(l.run)
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
	lanes := make(chan struct{})
	go func() {
		e.lanesDone.Wait()
		close(lanes)
	}()
	if !within(lanes, e.cfg.Drain) {
		e.log.Warn("handlers are still running after the drain time; their contexts end now", "drain", e.cfg.Drain)
		e.endAll(errStopping)
		if !within(lanes, stopGrace) {
			close(e.abandon)
			<-lanes
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
	close(e.stopped)
}

// Wake says that a queue may have due work. It is a hint: losing it costs at
// most a round interval.
func (e *Engine) Wake(queue model.SourceID) {
	if l := e.lanes[queue]; l != nil {
		signal(l.wake)
	}
}

// onBeat takes over what the heartbeat brought: the switches.
func (e *Engine) onBeat(hb model.Heartbeat) {
	for _, s := range hb.Sources {
		l := e.lanes[s.ID]
		if l != nil && l.enabled.Swap(s.Enabled) != s.Enabled {
			e.log.Info("consumption switched", "source", s.Name, "enabled", s.Enabled)
			signal(l.wake)
		}
	}
	signal(e.recoverNow)
}

func (e *Engine) nameOf(queue model.SourceID) string {
	if l := e.lanes[queue]; l != nil {
		return l.queue.Source.Name
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
	for _, l := range e.lanes {
		if err := l.check(); err != nil {
			problems = append(problems, fmt.Errorf("source %s: %w", l.queue.Source.Name, err))
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
