package inbox

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/posthouse/posthouse/internal/model"
)

// counted is a store that says what it is told to say.
type counted struct {
	stats []model.SourceStats
	err   error
}

func (c *counted) Stats(context.Context) ([]model.SourceStats, error) { return c.stats, c.err }

func TestBacklog(t *testing.T) {
	source := func(id model.SourceID, name string, enabled bool, age time.Duration) model.SourceStats {
		return model.SourceStats{Source: model.Source{ID: id, Name: name, Enabled: enabled}, Due: 7, Retrying: 2, OldestDueAge: age}
	}
	store := &counted{stats: []model.SourceStats{
		source(1, "mine", true, time.Minute), source(2, "paused", false, time.Hour), source(3, "of others", true, 2*time.Hour),
	}}
	registry := prometheus.NewRegistry()
	open := func() (*backlog, error) {
		return newBacklog(store, map[model.SourceID]bool{1: true, 2: true}, slog.New(slog.DiscardHandler), registry)
	}
	b, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a second one in the same registry is refused", func(t *testing.T) {
		var already prometheus.AlreadyRegisteredError
		if _, err := open(); !errors.As(err, &already) {
			t.Errorf("got %v", err)
		}
	})
	b.measure(t.Context())
	t.Run("IN-08 every source is measured, switched on or off", func(t *testing.T) {
		for _, name := range []string{"mine", "paused", "of others"} {
			if got := testutil.ToFloat64(b.gauges["due"].WithLabelValues(name)); got != 7 {
				t.Errorf("%s: %v due", name, got)
			}
		}
	})
	t.Run("only what this process consumes, and is switched on, makes it late", func(t *testing.T) {
		if got := b.oldestDue(); got != time.Minute {
			t.Errorf("oldest due %v, want 1m", got)
		}
	})
	t.Run("a measurement that fails is counted, and changes nothing", func(t *testing.T) {
		store.err = errors.New("away")
		b.measure(t.Context())
		if n := testutil.ToFloat64(b.errors); n != 1 || b.oldestDue() != time.Minute {
			t.Errorf("%v errors, oldest %v", n, b.oldestDue())
		}
	})
}
