package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"
)

// bench is one run.
type bench struct {
	settings
	out        io.Writer
	work       string // a folder for everything that is written
	engines    []*engine
	contenders []*contender
}

// contender is a queue on a database.
type contender struct {
	kind
	engine *engine
	rounds []round
}

func (c *contender) name() string { return c.kind.name + "-" + c.engine.name }

// kind is a queue.
type kind struct {
	name  string
	title string
	on    []string // engines; nil: all
	open  func(context.Context, *database, *handled) (queue, error)
}

// kinds are all that there are. The first is what the others are compared to.
var kinds = []kind{
	{name: "river", title: "River", on: []string{"postgres"}, open: openRiver},
	{name: "parallel", title: "Posthouse, parallel", open: openParallel},
	{name: "keyed", title: "Posthouse, keyed", open: openKeyed},
	{name: "serial", title: "Posthouse, serial", open: openSerial},
	{name: "deliveries", title: "Posthouse, deliveries", open: openDeliveries},
}

func contenderNames() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return names
}

// queue is what is measured.
type queue interface {
	// fill makes a backlog of n messages.
	fill(ctx context.Context, n int) error
	start(ctx context.Context) error
	// busy asks the database whether there is anything that it does not know to
	// be handled.
	busy(ctx context.Context) (bool, error)
	// done counts what the database knows to be handled.
	done(ctx context.Context) (int, error)
	// stop also closes the queue's connections; it may not have been started.
	stop(ctx context.Context) error
}

// round is one measurement of a contender.
type round struct {
	took        time.Duration
	cpu         time.Duration // of this process, all of it
	databaseCPU time.Duration // of the database; meaningful where the engine can tell
	load        float64       // average of the last minute, before it began
}

func (b *bench) prepare(ctx context.Context) error {
	for _, name := range b.stores {
		e, err := open(ctx, name)
		if err != nil {
			return err
		}
		b.engines = append(b.engines, e)
		fmt.Fprintln(b.out, e.title, e.version)
		for _, k := range kinds {
			if slices.Contains(b.only, k.name) && (k.on == nil || slices.Contains(k.on, e.name)) {
				b.contenders = append(b.contenders, &contender{kind: k, engine: e})
			}
		}
	}
	if len(b.contenders) == 0 {
		return errors.New("-only and -store leave nothing to measure")
	}
	if b.profile != "" && !slices.ContainsFunc(b.contenders, func(c *contender) bool { return c.name() == b.profiled }) {
		return fmt.Errorf("-profiled: %q is not measured", b.profiled)
	}
	fmt.Fprintln(b.out, machineLine())
	return nil
}

func (b *bench) measure(ctx context.Context) error {
	for i := range b.rounds {
		for _, c := range b.contenders {
			r, err := b.once(ctx, c, i == 0)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name(), err)
			}
			c.rounds = append(c.rounds, r)
			fmt.Fprintf(b.out, "round %d of %d: %-20s %7.2f s\n", i+1, b.rounds, c.name(), r.took.Seconds())
		}
	}
	return nil
}

// once measures a contender once.
func (b *bench) once(ctx context.Context, c *contender, first bool) (r round, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.within)
	defer cancel()
	db, err := c.engine.fresh(ctx, b.work)
	if err != nil {
		return r, err
	}
	defer func() {
		err = errors.Join(err, db.drop(context.WithoutCancel(ctx)))
	}()
	h := newHandled(b.messages)
	q, err := c.open(ctx, db, h)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, q.stop(context.WithoutCancel(ctx))) }()
	if err := q.fill(ctx, b.messages); err != nil {
		return r, fmt.Errorf("make the backlog: %w", err)
	}
	if err := db.settleDown(ctx); err != nil {
		return r, err
	}
	profile := io.Discard
	if first && b.profile != "" && c.name() == b.profiled {
		f, err := os.Create(b.profile)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		profile = f
	}
	return b.watch(ctx, db, q, h, profile)
}

// watch starts the queue and waits until all is done.
func (b *bench) watch(ctx context.Context, db *database, q queue, h *handled, profile io.Writer) (r round, err error) {
	runtime.GC()
	if profile != io.Discard {
		if err := pprof.StartCPUProfile(profile); err != nil {
			return r, err
		}
		defer pprof.StopCPUProfile()
	}
	r.load = loadAverage()
	watched, err := db.watchCPU(ctx)
	if err != nil {
		return r, err
	}
	cpu, began := ownCPU(), time.Now()
	if err := q.start(ctx); err != nil {
		return r, fmt.Errorf("start: %w", err)
	}
	select {
	case <-h.all:
	case <-ctx.Done():
		return r, fmt.Errorf("%d of %d were handled: %w", h.n.Load(), b.messages, ctx.Err())
	}
	for busy := true; busy; {
		time.Sleep(5 * time.Millisecond)
		if busy, err = q.busy(ctx); err != nil {
			return r, fmt.Errorf("after all were handled: %w", err)
		}
	}
	r.took, r.cpu = time.Since(began), ownCPU()-cpu
	if r.databaseCPU, err = watched(ctx); err != nil {
		return r, err
	}
	done, err := q.done(ctx)
	if n := h.n.Load(); err == nil && (n != int64(b.messages) || done != b.messages) {
		err = fmt.Errorf("%d messages were handled %d times, and %d are known to be", b.messages, n, done)
	}
	return r, err
}
