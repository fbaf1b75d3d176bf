package workqueue

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// slowSettler settles one batch a second.
type slowSettler struct{ Queue }

func (slowSettler) Settle(_ context.Context, s []model.Settlement) ([]bool, error) {
	time.Sleep(time.Second)
	return make([]bool, len(s)), nil
}

func TestCompleter(t *testing.T) {
	t.Run("no more is fetched while 4096 outcomes wait to be written", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCompleter(slowSettler{}, slog.New(slog.DiscardHandler), newTestMetrics(t))
			if !c.waitForRoom(nil) {
				t.Fatal("no room at first")
			}
			for i := range maxSettleBacklog + maxSettleBatch {
				c.submit(pendingSettlement{model.Settlement{Seq: model.Seq(i + 1)}, func(bool, bool) {}})
			}
			begun := time.Now()
			go c.run()
			if !c.waitForRoom(nil) {
				t.Fatal("told to stop")
			}
			if waited := time.Since(begun); waited < time.Second {
				t.Errorf("waited %v", waited)
			}
			c.close(t.Context())
		})
	})
	t.Run("after it has ended, what is handed over is answered as unknown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCompleter(slowSettler{}, slog.New(slog.DiscardHandler), newTestMetrics(t))
			go c.run()
			c.close(t.Context())
			told := false
			c.submit(pendingSettlement{model.Settlement{Seq: 1}, func(applied, certain bool) { told = !applied && !certain }})
			if !told {
				t.Error("nobody was told")
			}
		})
	})
	t.Run("one message is in a batch once", func(t *testing.T) {
		c := newCompleter(slowSettler{}, slog.New(slog.DiscardHandler), newTestMetrics(t))
		for range 3 {
			c.submit(pendingSettlement{model.Settlement{Seq: 7}, nil})
		}
		for range 3 {
			if batch := c.take(); len(batch) != 1 {
				t.Errorf("a batch of %d", len(batch))
			}
		}
	})
}

func newTestMetrics(t *testing.T) *Metrics {
	t.Helper()
	metrics, err := NewMetrics(nil)
	must(t, err)
	return metrics
}
