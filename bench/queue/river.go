package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	riverWorkers  = 2000
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond // as short as the cooldown, it was slower
	riverBatch    = 1000                  // jobs in one InsertManyFast
)

// order is the arguments of a job: what Posthouse gets as a body, as one string.
// River indexes arguments by their keys and values, and many would slow it down.
type order struct {
	Body string `json:"body"`
}

func (order) Kind() string { return "order" }

type worker struct {
	river.WorkerDefaults[order]
	handled *handled
}

func (w *worker) Work(context.Context, *river.Job[order]) error {
	w.handled.one()
	return nil
}

type riverQueue struct {
	pool    *pgxpool.Pool
	client  *river.Client[pgx.Tx]
	started bool
}

func openRiver(ctx context.Context, db *database, h *handled) (_ queue, err error) {
	config, err := pgxpool.ParseConfig(db.url)
	if err != nil {
		return nil, fmt.Errorf("the URL of %s cannot be read", db.title)
	}
	config.MaxConns = connections
	q := &riverQueue{}
	if q.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if err := q.open(ctx, h); err != nil {
		q.pool.Close()
		return nil, err
	}
	return q, nil
}

func (q *riverQueue) open(ctx context.Context, h *handled) error {
	driver := riverpgxv5.New(q.pool)
	log := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: log})
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{handled: h})
	q.client, err = river.NewClient(driver, &river.Config{
		Logger:            log,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		FetchCooldown:     riverCooldown,
		FetchPollInterval: riverPoll,
		Workers:           workers,
	})
	return err
}

func (q *riverQueue) fill(ctx context.Context, n int) error {
	for first := 0; first < n; first += riverBatch {
		jobs := make([]river.InsertManyParams, min(riverBatch, n-first))
		for i := range jobs {
			jobs[i].Args = order{Body: string(payload(first + i))}
		}
		if _, err := q.client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}

func (q *riverQueue) start(ctx context.Context) error {
	q.started = true
	return q.client.Start(ctx)
}

func (q *riverQueue) done(ctx context.Context) (n int, err error) {
	err = q.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed'").Scan(&n)
	return n, err
}

func (q *riverQueue) busy(ctx context.Context) (busy bool, err error) {
	// By the index: counting would compete with what is being measured.
	err = q.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM river_job
		WHERE state IN ('available', 'cancelled', 'discarded', 'pending', 'retryable', 'running', 'scheduled'))`).Scan(&busy)
	return busy, err
}

func (q *riverQueue) stop(ctx context.Context) (err error) {
	if q.started {
		err = q.client.Stop(ctx)
	}
	q.pool.Close()
	return err
}
