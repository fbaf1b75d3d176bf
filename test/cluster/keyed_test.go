package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/test/internal/running"
)

// keys is how many keys messages have, and partitions how many of them are
// worked on at once.
const (
	keys       = 300
	partitions = 12
)

// stubborn is the key whose messages fail while the test wants it.
const stubborn = "k0"

// keyOf spreads messages over the keys; one in twenty has the stubborn one.
func keyOf(n int) string {
	if n%20 == 3 {
		return stubborn
	}
	return fmt.Sprintf("k%d", rand.New(rand.NewPCG(uint64(n), 2)).IntN(keys))
}

// partitionOf tells which of the partitions a key belongs to.
func partitionOf(t *testing.T, key string) int {
	t.Helper()
	program, err := expression.CompileKey("body.key")
	if err != nil {
		t.Fatal(err)
	}
	text, err := program.Eval(expression.Input{Body: fmt.Appendf(nil, `{"key":%q}`, key), ContentType: "application/json"})
	if err != nil {
		t.Fatal(err)
	}
	agreed := model.Agreed{Ordering: model.Ordering{Order: model.Keyed, Partitions: partitions, Key: "body.key"}, KeyID: 1}
	return agreed.Partition(agreed.KeyOf(text).Slot)
}

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
// It compares times, so the other clusters wait until it is over.
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
	load := c.pushes(running.LoadConfig{Writing: running.Keyed(keyOf), Sources: []string{"orders"}, Connections: 16, Pause: 300 * time.Millisecond})
	feed(t, load, target, 60)

	t.Run("IN-22 a key whose head fails for long delays no other", func(t *testing.T) {
		awaitCount(t, target, 100)
		stubbornly(true)
		from := time.Now()
		// Those that share its partition are compared with those that do not, at the
		// same time: so the machine's haste is the same for both.
		its := partitionOf(t, stubborn)
		latency := func(beside bool) []time.Duration {
			return latencies(load.Record(), target.Record(), func(x running.Execution, p running.Push) bool {
				key := keyOf(x.Number)
				return key != stubborn && (partitionOf(t, key) == its) == beside && p.Acked.After(from)
			})
		}
		var beside, elsewhere []time.Duration
		failed := 0
		<-time.After(time.Duration(scale(3, 60)) * time.Second)
		running.Eventually(t, time.Minute, "there is enough to tell from", func() error {
			failed = 0
			for _, x := range target.Record() {
				if keyOf(x.Number) == stubborn && x.At.After(from) {
					failed++
				}
			}
			if beside, elsewhere = latency(true), latency(false); failed < 8 || len(beside) < 15 || len(elsewhere) < 60 {
				return fmt.Errorf("%d failures, %d executions beside them, %d elsewhere", failed, len(beside), len(elsewhere))
			}
			return nil
		})
		stubbornly(false)
		t.Logf("the stubborn key failed %d times; start latency beside it: %s; in other partitions: %s", failed, summary(beside), summary(elsewhere))
		if p95, other := percentile(beside, 95), percentile(elsewhere, 95); p95 > other*3/2+haste/2 {
			t.Errorf("p95 of the start latency is %v for keys beside the stubborn one, and %v for others", p95, other)
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
	t.Parallel()
	running.OnEachEngine(t, "IN-22 IN-16", engines, func(t *testing.T, e running.Engine) {
		wanted := scale(10, 50)
		target := running.NewTarget(t, running.Keyed(keyOf), func(ctx context.Context, x running.Execution) int {
			rest(ctx, takesATime(x.Number))
			return http.StatusOK
		})
		cfg := running.Config{Store: e.Fresh(t), Sources: []running.Source{keyedSource(target)}}
		c := launch(t, 3, cfg)
		held := c.awaitShared("orders", partitions)
		load := c.pushes(running.LoadConfig{Writing: running.Keyed(keyOf), Sources: []string{"orders"}, Connections: 24, Pause: 150 * time.Millisecond})
		feed(t, load, target, 60)
		handedOver, restarts := 0, 0
		for ; handedOver < wanted || restarts < 2*len(c.all); restarts++ {
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
