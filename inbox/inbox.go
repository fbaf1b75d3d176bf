package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/ingest"
	"github.com/posthouse/posthouse/internal/ingest/verify"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/workqueue"
)

// Inbox receives pushes and has them handled. It is an http.Handler for
// POST /in/{source}.
type Inbox struct {
	door    *ingest.Door
	writer  *ingest.Writer
	engine  *workqueue.Engine
	backlog *backlog
	forget  *forgetter

	mu       sync.Mutex // held by Start and Stop
	started  bool
	stopped  bool
	endTimed context.CancelFunc // of what runs on a schedule
	timed    sync.WaitGroup
}

// Open registers the sources with the store and makes everything ready. Nothing
// is received or handled before Start.
func Open(ctx context.Context, cfg Config) (*Inbox, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	specs := make([]model.SourceSpec, len(cfg.Sources))
	for i, s := range cfg.Sources {
		specs[i] = s.spec()
	}
	sources, err := cfg.Store.Register(ctx, specs)
	if err != nil {
		return nil, fmt.Errorf("register the sources: %w", err)
	}
	mine := map[model.SourceID]bool{}
	for i, s := range cfg.Sources {
		mine[sources[i].ID] = s.Handler != nil
		if wanted := !s.Consume.Paused; sources[i].Enabled != wanted {
			cfg.Logger.Warn("the stored switch wins over the configuration; pause or resume the source to change it",
				"source", s.Name, "configured_enabled", wanted, "enabled", sources[i].Enabled)
		}
	}
	box := &Inbox{}
	if box.backlog, err = newBacklog(cfg.Store, mine, cfg.Logger, cfg.Registerer); err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	if box.forget, err = newForgetter(cfg.Store, cfg.Logger, cfg.Registerer); err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	if box.engine, err = box.openEngine(cfg, sources); err != nil {
		return nil, err
	}
	box.writer, err = ingest.NewWriter(ingest.WriterConfig{
		Keeper: cfg.Store, Log: cfg.Logger, Registerer: cfg.Registerer,
		OnKept: func(source model.SourceID, _ int) { box.engine.Kept(source) },
	})
	if err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	if box.door, err = openDoor(cfg, sources, box.writer); err != nil {
		return nil, err
	}
	box.follow(sources)
	return box, nil
}

// follow has the door place messages by what the processes have agreed on.
func (b *Inbox) follow(sources []model.Source) {
	for _, s := range sources {
		if s.Tenant != model.TenantInbox {
			continue
		}
		b.door.SetAgreed(s.ID, s.Agreed)
	}
}

func (b *Inbox) openEngine(cfg Config, sources []model.Source) (*workqueue.Engine, error) {
	var placer ingest.Placer
	var queues []workqueue.QueueConfig
	for i, s := range cfg.Sources {
		if s.Handler == nil {
			continue
		}
		q := s.queue()
		q.Source = sources[i]
		q.Handler = adapt(s.Name, s.Handler)
		q.KeyOf = placer.KeyOf
		queues = append(queues, q)
	}
	var observe func(workqueue.Event)
	if cfg.Observe != nil {
		observe = func(e workqueue.Event) { cfg.Observe(attemptOf(e)) }
	}
	metrics, err := workqueue.NewMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	return workqueue.New(workqueue.Config{
		Store: cfg.Store, Name: cfg.Instance, Lease: cfg.Lease, Drain: cfg.Drain, Queues: queues,
		Logger: cfg.Logger, Metrics: metrics, Observe: observe, Locker: cfg.Locker, OnSources: b.follow,
	})
}

func attemptOf(e workqueue.Event) Attempt {
	return Attempt{
		MessageID: e.Work.Message.ID.String(), Source: e.Queue.Name, N: e.Work.Attempt(),
		Outcome: e.Kind.String(), Reason: string(e.Reason), Error: e.Error,
		Duration: e.Duration, NextIn: e.Wait, Late: e.Late, Fenced: e.Lost,
		Size: len(e.Work.Message.Body), Body: e.Work.Message.Body,
	}
}

func openDoor(cfg Config, sources []model.Source, writer *ingest.Writer) (*ingest.Door, error) {
	doors := make([]ingest.Source, len(cfg.Sources))
	for i, s := range cfg.Sources {
		verifier, err := verify.New(s.Verify.Kind, verify.Config{
			Header: s.Verify.Header, Prefix: s.Verify.Prefix, Encoding: verify.Encoding(s.Verify.Encoding), Secrets: s.Verify.Secrets,
		})
		if err != nil {
			return nil, fmt.Errorf("inbox: source %q: verify: %w", s.Name, err)
		}
		doors[i] = ingest.Source{
			Name: s.Name, ID: sources[i].ID, Verifier: verifier,
			Acknowledge:  ingest.Acknowledge{Status: s.Acknowledge.Status, Body: s.Acknowledge.Body, ContentType: s.Acknowledge.ContentType},
			AnswerWithin: s.AnswerWithin, BodyLimit: s.BodyLimit, Concurrency: s.InFlight,
		}
		if s.Accept != "" {
			if doors[i].Accept, err = expression.Compile(s.Accept); err != nil {
				return nil, fmt.Errorf("inbox: source %q: accept: %w", s.Name, err)
			}
		}
		if s.Dedup.Key != "" {
			doors[i].Dedup.Window = s.Dedup.Window
			if doors[i].Dedup.Key, err = expression.CompileKey(s.Dedup.Key); err != nil {
				return nil, fmt.Errorf("inbox: source %q: dedup: %w", s.Name, err)
			}
		}
	}
	door, err := ingest.NewDoor(ingest.DoorConfig{
		Writer: writer, Sources: doors, Memory: cfg.Memory, Hash: cfg.HashCredential, Log: cfg.Logger, Registerer: cfg.Registerer,
	})
	if err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	return door, nil
}

// ErrStopped says that the inbox was stopped; it cannot be started again.
var ErrStopped = errors.New("inbox: stopped")

// Start begins to receive and to consume. Calling it again does nothing more;
// after Stop it returns ErrStopped.
func (b *Inbox) Start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return ErrStopped
	}
	if b.started {
		return nil
	}
	if err := b.engine.Start(ctx); err != nil {
		return err
	}
	b.started = true
	b.writer.Start()
	ctx, b.endTimed = context.WithCancel(context.WithoutCancel(ctx))
	b.timed.Go(func() { b.backlog.run(ctx) })
	b.timed.Go(func() { b.forget.run(ctx) })
	return nil
}

// Stop receives no more (pushes are answered 503), waits for running handlers
// as long as Drain says, and gives back what has not begun or does not end.
// The HTTP server should be shut down before. Calling it again waits for the
// first call.
func (b *Inbox) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.started && !b.stopped {
		b.writer.Stop()
		b.engine.Stop()
		b.endTimed()
		b.timed.Wait()
	}
	b.stopped = true
}

// Engine is what consumes in this process. Until Start, further queues can be
// added to it: one process has one.
func (b *Inbox) Engine() *workqueue.Engine { return b.engine }

// ServeHTTP receives a push: POST /in/{source}.
func (b *Inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.door.ServeHTTP(w, r) }

// Server returns an http.Server for a handler that includes this one, with
// limits that suit a door: header size and time, idle time.
func Server(handler http.Handler) *http.Server { return ingest.NewServer(handler) }

// maxReadyAge is the age of the oldest due message above which Check says that
// consuming does not keep up.
const maxReadyAge = 10 * time.Minute

// Check says what keeps this process from doing its work: commits that fail, a
// lease that is not renewed, a claim loop that has stopped, due messages that nobody takes.
func (b *Inbox) Check() error {
	err := errors.Join(b.writer.Check(), b.engine.Check())
	if age := b.backlog.oldestDue(); age > maxReadyAge {
		err = errors.Join(err, fmt.Errorf("the oldest due message has been waiting for %s", age.Round(time.Second)))
	}
	return err
}
