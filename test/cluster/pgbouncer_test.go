package cluster

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/testdb"
	"github.com/posthouse/posthouse/test/internal/running"
)

// Behind pgbouncer in transaction mode there are no signals and no prepared
// statements: work is found by looking.
func TestBehindPgBouncer(t *testing.T) {
	t.Parallel()
	t.Run("IN-06 IN-22 AC-9", func(t *testing.T) {
		t.Parallel()
		target := running.NewTarget(t, running.Keyed(keyOf), func(ctx context.Context, x running.Execution) int {
			rest(ctx, takesATime(x.Number))
			return http.StatusOK
		})
		cfg := running.Config{Store: testdb.PgBouncer(t), Sources: []running.Source{
			{Name: "serial", Order: "serial", Target: target.URL, MaxRetry: 50}, keyedSource(target),
		}}
		c := launch(t, 3, cfg)
		c.awaitShared("orders", partitions)
		load := c.pushes(running.LoadConfig{Writing: running.Keyed(keyOf), Sources: []string{"serial", "orders"}, Connections: 12, Pause: 50 * time.Millisecond})
		load.Grant(scale(600, 20_000))
		awaitCount(t, target, 200)
		inFlight := map[running.Claimed]bool{}
		c.kill(c.all[1], inFlight)
		c.all[1].Start("")
		load.Wait()
		c.all[0].WaitHandled()
		c.all[1].WaitReady()
		c.stop()
		running.Audit{Store: cfg.Store, Load: load, Target: target, InFlight: len(inFlight), Serial: []string{"serial"}}.Run(t)
		t.Run("IN-22 each key in order", func(t *testing.T) {
			keyOrder{Source: "orders", KeyOf: keyOf, Pushes: load.Record(), Executions: target.Record(), Block: true}.run(t)
		})
	})
}
