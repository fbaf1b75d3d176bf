package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/posthouse/posthouse/test/internal/running"
)

// keys is how many keys messages have, and partitions how many of them are
// worked on at once.
const (
	keys       = 300
	partitions = 12
)

// keyOf spreads messages over the keys.
func keyOf(n int) string {
	return fmt.Sprintf("k%d", rand.New(rand.NewPCG(uint64(n), 2)).IntN(keys))
}

// stubborn is the key whose messages fail while the test wants it.
const stubborn = "k0"

// failsAtRandom says of one attempt in ten that it fails, always the same ones.
func failsAtRandom(x running.Execution) bool {
	return rand.New(rand.NewPCG(uint64(x.Number), uint64(x.Attempt))).IntN(10) == 0
}

func keyedSource(target *running.Target) running.Source {
	return running.Source{
		Name: "orders", Order: "keyed", Key: "body.key", Partitions: partitions, Block: true, Target: target.URL,
		MaxRetry: 100, Backoff: 150 * time.Millisecond, Concurrency: 4,
	}
}

// takesATime is how long handlers here work on message n.
func takesATime(n int) time.Duration { return time.Duration(1+n%8) * time.Millisecond }

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// 12 workers in 3 instances, 300 keys, attempts that fail at random: each key in
// order over all of its attempts, and none waits for another's retries.
func TestKeyedOrderOverInstances(t *testing.T) {
	running.OnEachEngine(t, "IN-22", engines, runKeyed)
}

func runKeyed(t *testing.T, e running.Engine) {
	var (
		mu      sync.Mutex
		failing bool // the stubborn key
	)
	target := running.NewTarget(t, running.Keyed(keyOf), func(ctx context.Context, x running.Execution) int {
		rest(ctx, takesATime(x.Number))
		mu.Lock()
		defer mu.Unlock()
		if failing && keyOf(x.Number) == stubborn || failsAtRandom(x) {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	stubbornly := func(on bool) {
		mu.Lock()
		defer mu.Unlock()
		failing = on
	}
	cfg := running.Config{Store: e.Fresh(t), Sources: []running.Source{keyedSource(target)}}
	c := launch(t, 3, cfg)
	c.awaitShared("orders", partitions)
	load := c.pushes(running.LoadConfig{Writing: running.Keyed(keyOf), Sources: []string{"orders"}, Connections: 24, Pause: 100 * time.Millisecond})
	load.Grant(1 << 30)

	period := time.Duration(scale(4, 60)) * time.Second
	t.Run("IN-22 a key whose head fails for long delays no other", func(t *testing.T) {
		<-time.After(time.Second)
		calm := time.Now()
		<-time.After(period)
		stubbornly(true)
		fails := time.Now()
		<-time.After(period)
		end := time.Now()
		between := func(from, to time.Time) []time.Duration {
			return latencies(load.Record(), target.Record(), func(x running.Execution, p running.Push) bool {
				return keyOf(x.Number) != stubborn && p.Acked.After(from) && p.Acked.Before(to.Add(-running.Grace))
			})
		}
		without, with := between(calm, fails), between(fails, end)
		failed := 0
		for _, x := range target.Record() {
			if keyOf(x.Number) == stubborn && x.At.After(fails) {
				failed++
			}
		}
		stubbornly(false)
		t.Logf("start latency without it: %s; with it: %s; the stubborn key failed %d times", summary(without), summary(with), failed)
		if p95, was := percentile(with, 95), percentile(without, 95); p95 > max(was*3/2, was+50*time.Millisecond) {
			t.Errorf("p95 of the other keys' start latency is %v, and was %v", p95, was)
		}
		if failed < 5 || len(with) < 50 {
			t.Errorf("the stubborn key was tried %d times, and %d other messages began: too few to tell", failed, len(with))
		}
	})

	inFlight := map[running.Claimed]bool{}
	for range scale(4, 60) {
		<-time.After(time.Duration(500+rand.IntN(1500)) * time.Millisecond)
		victim := c.all[rand.IntN(len(c.all))]
		c.kill(victim, inFlight)
		victim.Start("")
		victim.WaitReady()
	}
	load.End()
	c.all[0].WaitHandled()
	c.stop()
	running.Audit{Store: cfg.Store, Load: load, Target: target, InFlight: len(inFlight), Fails: func(x running.Execution) bool {
		return x.Status == http.StatusInternalServerError
	}}.Run(t)
	t.Run("IN-22 each key in order, over all attempts and kills", func(t *testing.T) {
		keyOrder{Source: "orders", KeyOf: keyOf, Pushes: load.Record(), Executions: target.Record(), Block: true}.run(t)
	})
	t.Run("IN-22 all instances worked", func(t *testing.T) { allWorked(t, c, target) })
}

func allWorked(t *testing.T, c *instances, target *running.Target) {
	t.Helper()
	by := map[string]int{}
	for _, x := range target.Record() {
		by[x.Instance]++
	}
	t.Logf("executions: %v", by)
	for _, s := range c.all {
		if by[s.Name] == 0 {
			t.Errorf("instance %s executed nothing", s.Name)
		}
	}
}

// Partitions go from one instance to another at each restart: that loses,
// doubles and overtakes nothing.
func TestAChainOfHandOvers(t *testing.T) {
	running.OnEachEngine(t, "IN-22 IN-16", engines, func(t *testing.T, e running.Engine) {
		wanted := scale(10, 50)
		target := running.NewTarget(t, running.Keyed(keyOf), func(ctx context.Context, x running.Execution) int {
			rest(ctx, takesATime(x.Number))
			return http.StatusOK
		})
		cfg := running.Config{Store: e.Fresh(t), Sources: []running.Source{keyedSource(target)}}
		c := launch(t, 3, cfg)
		held := c.awaitShared("orders", partitions)
		load := c.pushes(running.LoadConfig{Writing: running.Keyed(keyOf), Sources: []string{"orders"}, Connections: 24, Pause: 60 * time.Millisecond})
		load.Grant(1 << 30)
		handedOver, restarts := 0, 0
		for ; handedOver < wanted; restarts++ {
			c.restart(c.all[restarts%len(c.all)])
			now := c.awaitShared("orders", partitions)
			for part, holder := range now {
				if held[part] != holder {
					handedOver++
				}
			}
			held = now
		}
		t.Logf("%d hand-overs in %d restarts", handedOver, restarts)
		load.End()
		c.all[0].WaitHandled()
		c.stop()
		running.Audit{Store: cfg.Store, Load: load, Target: target}.Run(t)
		t.Run("IN-22 each key in order", func(t *testing.T) {
			keyOrder{Source: "orders", KeyOf: keyOf, Pushes: load.Record(), Executions: target.Record(), Block: true}.run(t)
		})
	})
}
