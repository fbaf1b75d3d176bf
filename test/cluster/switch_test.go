package cluster

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthouse/posthouse/test/internal/running"
)

// serial → keyed over 16 partitions → over 32 → parallel, by rolling restarts,
// while many messages wait and more come in: half of the time the instances
// disagree.
func TestSwitchingTheOrderWithMessagesWaiting(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "IN-22", engines, runSwitch)
}

func runSwitch(t *testing.T, e running.Engine) {
	waiting := scale(2000, 10_000)
	var pace atomic.Int64 // how long a handler works
	target := running.NewTarget(t, running.Keyed(keyOf), func(ctx context.Context, _ running.Execution) int {
		rest(ctx, time.Duration(pace.Load()))
		return http.StatusOK
	})
	with := func(order string, partitions int) running.Config {
		s := running.Source{Name: "orders", Order: order, Partitions: partitions, Target: target.URL, MaxRetry: 20, Concurrency: 32}
		if order == "keyed" {
			s.Key = "body.key"
		}
		return running.Config{Sources: []running.Source{s}}
	}
	cfg := with("serial", 0)
	cfg.Store = e.Fresh(t)
	c := launch(t, 3, cfg)
	roll := func(order string, partitions int, slow time.Duration) {
		next := with(order, partitions)
		next.Store = cfg.Store
		c.roll(next)
		c.awaitAgreed("orders", order, partitions)
		pace.Store(int64(slow))
	}

	c.all[0].Switch("orders", "pause")
	<-time.After(running.Lease) // every instance has heard of it
	load := c.pushes(running.LoadConfig{Writing: running.Keyed(keyOf), Sources: []string{"orders"}, Connections: 24})
	load.Grant(waiting)
	load.Wait()
	pace.Store(int64(10 * time.Millisecond))
	c.all[0].Switch("orders", "resume")
	// From here on pushes go on, at a rate that does not lengthen the test.
	more := make(chan struct{})
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				load.Grant(2)
			case <-more:
				return
			}
		}
	}()
	awaitCount(t, target, 50)
	// So slow that there is work of every order, and some is left.
	roll("keyed", 16, 100*time.Millisecond)
	awaitCount(t, target, 100)
	roll("keyed", 32, 100*time.Millisecond)
	awaitCount(t, target, 100)
	left := 0
	c.inspect(func(db *running.Database) error {
		return db.QueryRowContext(context.Background(), "SELECT count(*) FROM posthouse_work WHERE state = 0").Scan(&left)
	})
	t.Logf("%d messages wait while the order is keyed over 32 partitions", left)
	if left < 100 {
		t.Errorf("%d messages are left to be executed in parallel order: too few to tell", left)
	}
	parallel := time.Now()
	roll("parallel", 0, 0)
	awaitCount(t, target, 100)
	close(more)
	load.Wait()
	load.End()
	c.all[0].WaitHandled()
	c.stop()

	running.Audit{Store: cfg.Store, Load: load, Target: target}.Run(t)
	t.Run("IN-22 each key in order, until the order was parallel", func(t *testing.T) {
		var before []running.Execution
		for _, x := range target.Record() {
			if x.At.Before(parallel) {
				before = append(before, x)
			}
		}
		keyOrder{Source: "orders", KeyOf: keyOf, Pushes: load.Record(), Executions: before}.run(t)
	})
}
