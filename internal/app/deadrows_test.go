package app

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/posthouse/posthouse/internal/store/postgres"
	"github.com/posthouse/posthouse/internal/testdb"
)

// deadCount is a store that has so many dead rows.
type deadCount struct{ rows int64 }

func (c *deadCount) DeadRows(context.Context) (int64, time.Duration, error) {
	return c.rows, time.Minute, nil
}

func TestDeadRows(t *testing.T) {
	t.Run("IN-16 one warning when they pile up, and one line when they are gone", func(t *testing.T) {
		var log bytes.Buffer
		store := &deadCount{}
		d, err := newDeadRows(store, slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		for _, rows := range []int64{0, 200_000, 300_000, 60_000, 10, 20} {
			store.rows = rows
			d.measure(t.Context())
		}
		if got := strings.Count(log.String(), "slows down"); got != 1 {
			t.Errorf("%d warnings, want 1:\n%s", got, log.String())
		}
		if got := strings.Count(log.String(), "fast again"); got != 1 {
			t.Errorf("%d all-clears, want 1:\n%s", got, log.String())
		}
		if got := testutil.ToFloat64(d.rows); got != 20 {
			t.Errorf("the gauge says %v", got)
		}
	})
	t.Run("IN-16 PostgreSQL tells the oldest transaction", func(t *testing.T) {
		store, err := postgres.Open(t.Context(), postgres.Config{URL: testdb.Postgres(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		if _, err := store.MigrateUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := store.DeadRows(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
