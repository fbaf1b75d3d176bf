package cluster

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/posthouse/posthouse/test/internal/running"
)

// up is a time in which an instance was ready and not told to stop.
type up struct{ from, to time.Time }

// Restarting three instances one after the other under load costs no attempt.
func TestARollingRestartBurnsNothing(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "IN-16", engines, runRolling)
}

func runRolling(t *testing.T, e running.Engine) {
	target := running.NewTarget(t, running.Keyed(keyOf), func(ctx context.Context, x running.Execution) int {
		rest(ctx, takesATime(x.Number))
		return http.StatusOK
	})
	cfg := running.Config{Store: e.Fresh(t), Sources: []running.Source{
		{Name: "serial", Order: "serial", Target: target.URL, MaxRetry: 5},
		{Name: "keyed", Order: "keyed", Key: "body.key", Partitions: 16, Block: true, Target: target.URL, MaxRetry: 5},
		{Name: "parallel", Order: "parallel", Target: target.URL, MaxRetry: 5},
	}}
	c := launch(t, 3, cfg)
	living := map[string][]up{}
	for _, s := range c.all {
		living[s.Door] = []up{{from: time.Now()}}
	}
	var answers running.Answers
	load := c.pushes(running.LoadConfig{
		Writing: running.Keyed(keyOf), Sources: []string{"serial", "keyed", "parallel"}, Connections: 24, Pause: 200 * time.Millisecond, Answered: answers.Add,
	})
	feed(t, load, target, 60)
	awaitCount(t, target, 200)
	for range scale(1, 10) {
		for _, s := range c.all {
			ups := living[s.Door]
			ups[len(ups)-1].to = time.Now()
			c.restart(s)
			living[s.Door] = append(ups, up{from: time.Now()})
			awaitCount(t, target, 100)
		}
	}
	for _, ups := range living {
		ups[len(ups)-1].to = time.Now()
	}
	load.End()
	c.all[0].WaitHandled()
	c.stop()

	t.Run("IN-16 the doors of the living answer 2xx or 503", func(t *testing.T) {
		r := running.Reporter{T: t}
		judged, elsewhere := map[int]int{}, map[int]int{}
		for _, a := range answers.Record() {
			if !slices.ContainsFunc(living[a.Door], func(u up) bool { return a.Sent.After(u.from) && a.Done.Before(u.to) }) {
				elsewhere[a.Status]++
				continue
			}
			judged[a.Status]++
			if !a.Acked() && a.Status != http.StatusServiceUnavailable {
				r.Problemf("answered %d: %v", a.Status, a.Err)
			}
		}
		t.Logf("answers of the living by status: %v; of those that stopped or started: %v", judged, elsewhere)
	})
	t.Run("IN-16 no attempt is burned", func(t *testing.T) {
		r := running.Reporter{T: t}
		c.inspect(func(db *running.Database) error {
			all, err := db.Messages(context.Background(), running.Keyed(keyOf))
			for id, k := range all {
				if k.Status != "success" || k.RetryCount != 0 {
					r.Problemf("message %s of source %s is %s after %d retries", id, k.Source, k.Status, k.RetryCount)
				}
			}
			return err
		})
	})
	running.Audit{Store: cfg.Store, Load: load, Target: target, Serial: []string{"serial"}}.Run(t)
	t.Run("IN-22 each key in order", func(t *testing.T) {
		keyOrder{Source: "keyed", KeyOf: keyOf, Pushes: load.Record(), Executions: target.Record(), Block: true}.run(t)
	})
}
