package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// deadRowsReader is a store whose database must keep rows that are gone while
// somebody may still see them.
type deadRowsReader interface {
	DeadRows(ctx context.Context) (rows int64, oldest time.Duration, err error)
}

const (
	deadRowsEvery = 30 * time.Second
	// manyDeadRows is where claims become noticeably slower.
	manyDeadRows = 100_000
)

// deadRows tells when claims become slow since dead rows pile up, and why.
type deadRows struct {
	store  deadRowsReader
	log    *slog.Logger
	rows   prometheus.Gauge
	oldest prometheus.Gauge
	warned bool
}

func newDeadRows(store deadRowsReader, log *slog.Logger, r prometheus.Registerer) (*deadRows, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "posthouse", Subsystem: "store", Name: name, Help: help})
	}
	d := &deadRows{store: store, log: log,
		rows:   gauge("dead_rows", "Rows of work that are gone but cannot be removed yet. From 100000 on claims are noticeably slower."),
		oldest: gauge("oldest_transaction_seconds", "How long the oldest transaction that may see dead rows has been open; 0 where none is, or none may be seen."),
	}
	for _, c := range []prometheus.Collector{d.rows, d.oldest} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of dead rows: %w", err)
		}
	}
	return d, nil
}

// watchDeadRows measures until ctx ends, where the store can tell.
func watchDeadRows(ctx context.Context, store Store, p Params) error {
	reader, ok := store.(deadRowsReader)
	if !ok {
		return nil
	}
	d, err := newDeadRows(reader, p.Logger, p.Registry)
	if err != nil {
		return err
	}
	go func() {
		tick := time.NewTicker(deadRowsEvery)
		defer tick.Stop()
		for {
			d.measure(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// measure warns once when there are many, and says once when there are not any
// more.
func (d *deadRows) measure(ctx context.Context) {
	rows, oldest, err := d.store.DeadRows(ctx)
	if err != nil {
		return // whatever else asks the database says so
	}
	d.rows.Set(float64(rows))
	d.oldest.Set(oldest.Seconds())
	switch {
	case !d.warned && rows >= manyDeadRows:
		d.warned = true
		d.log.Warn("claiming slows down: the database keeps rows that are gone, since a transaction is open elsewhere, or vacuum does not keep up",
			"dead_rows", rows, "oldest_transaction", oldest.Round(time.Second))
	case d.warned && rows < manyDeadRows/2:
		d.warned = false
		d.log.Info("the database has removed the rows that were gone; claiming is fast again", "dead_rows", rows)
	}
}
