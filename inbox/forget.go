package inbox

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	forgetEvery = time.Minute
	forgetBatch = 1000 // keys deleted at once, so that no transaction is long
)

// keyKeeper deletes the keys of Source.Dedup whose window is over.
type keyKeeper interface {
	ForgetKeys(ctx context.Context, limit int) (int, error)
}

// forgetter deletes such keys on a schedule of its own. Every process does: it
// is little to do, and whoever comes second finds nothing.
type forgetter struct {
	store     keyKeeper
	log       *slog.Logger
	forgotten prometheus.Counter
	trouble   bool // the last call failed
}

func newForgetter(store keyKeeper, log *slog.Logger, r prometheus.Registerer) (*forgetter, error) {
	f := &forgetter{store: store, log: log}
	f.forgotten = prometheus.NewCounter(prometheus.CounterOpts{Namespace: "posthouse", Subsystem: "inbox", Name: "dedup_keys_forgotten_total",
		Help: "Keys by which duplicates were known that this process deleted, since their window was over."})
	if r != nil {
		if err := r.Register(f.forgotten); err != nil {
			return nil, fmt.Errorf("register the metric of forgotten keys: %w", err)
		}
	}
	return f, nil
}

func (f *forgetter) run(ctx context.Context) {
	tick := time.NewTicker(forgetEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.forget(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// forget deletes all that may go. A failure is told when it begins and when it
// is over; the keys wait until then.
func (f *forgetter) forget(ctx context.Context) {
	for {
		n, err := f.store.ForgetKeys(ctx, forgetBatch)
		if err != nil {
			if ctx.Err() == nil && !f.trouble {
				f.trouble = true
				f.log.Warn("keys of duplicates whose window is over cannot be deleted", "err", err)
			}
			return
		}
		if f.trouble {
			f.trouble = false
			f.log.Info("keys of duplicates whose window is over can be deleted again")
		}
		f.forgotten.Add(float64(n))
		if n < forgetBatch {
			return
		}
	}
}
