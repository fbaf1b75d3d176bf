package inbox

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/model"
)

// backlogEvery is how often the backlog is measured, consumption on or off.
const backlogEvery = 15 * time.Second

// statsReader counts messages.
type statsReader interface {
	Stats(ctx context.Context) ([]model.SourceStats, error)
}

// backlog measures what waits, on a schedule of its own.
type backlog struct {
	store  statsReader
	mine   map[model.SourceID]bool // the sources that this process consumes
	log    *slog.Logger
	gauges map[string]*prometheus.GaugeVec
	errors prometheus.Counter

	mu     sync.Mutex
	oldest time.Duration // among mine that are switched on
}

func newBacklog(store statsReader, mine map[model.SourceID]bool, log *slog.Logger, r prometheus.Registerer) (*backlog, error) {
	b := &backlog{store: store, mine: mine, log: log, gauges: map[string]*prometheus.GaugeVec{}}
	var collectors []prometheus.Collector
	gauge := func(name, help string) {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "posthouse", Subsystem: "inbox", Name: name, Help: help}, []string{"source"})
		b.gauges[name] = g
		collectors = append(collectors, g)
	}
	gauge("due", "Messages that could be executed now.")
	gauge("retrying", "Messages that failed and wait for their next attempt, due or not.")
	gauge("processing", "Messages that are claimed by an instance.")
	gauge("failed", "Messages that have failed for good.")
	gauge("oldest_due_age_seconds", "Since when the oldest due message has been due; 0 where none is.")
	gauge("enabled", "Whether consumption is switched on.")
	b.errors = prometheus.NewCounter(prometheus.CounterOpts{Namespace: "posthouse", Subsystem: "inbox", Name: "backlog_errors_total",
		Help: "Measurements of the backlog that failed; the gauges keep what was measured before."})
	if r == nil {
		return b, nil
	}
	for _, c := range append(collectors, b.errors) {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register the backlog's metrics: %w", err)
		}
	}
	return b, nil
}

func (b *backlog) run(ctx context.Context) {
	tick := time.NewTicker(backlogEvery)
	defer tick.Stop()
	for {
		b.measure(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (b *backlog) measure(ctx context.Context) {
	stats, err := b.store.Stats(ctx)
	if err != nil {
		if ctx.Err() == nil {
			b.errors.Inc()
			b.log.Warn("the backlog cannot be measured", "err", err)
		}
		return
	}
	var oldest time.Duration
	for _, s := range stats {
		if s.Source.Tenant != model.TenantInbox {
			continue
		}
		name, enabled := s.Source.Name, 0.0
		if s.Source.Enabled {
			enabled = 1
			if b.mine[s.Source.ID] {
				oldest = max(oldest, s.OldestDueAge)
			}
		}
		b.gauges["due"].WithLabelValues(name).Set(float64(s.Due))
		b.gauges["retrying"].WithLabelValues(name).Set(float64(s.Retrying))
		b.gauges["processing"].WithLabelValues(name).Set(float64(s.Processing))
		b.gauges["failed"].WithLabelValues(name).Set(float64(s.Failed))
		b.gauges["oldest_due_age_seconds"].WithLabelValues(name).Set(s.OldestDueAge.Seconds())
		b.gauges["enabled"].WithLabelValues(name).Set(enabled)
	}
	b.mu.Lock()
	b.oldest = oldest
	b.mu.Unlock()
}

// oldestDue is the age of the oldest due message of all sources that this
// process consumes and that are switched on, as it was measured last.
func (b *backlog) oldestDue() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.oldest
}
