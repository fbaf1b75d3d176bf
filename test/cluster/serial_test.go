package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/posthouse/posthouse/internal/testdb"
	"github.com/posthouse/posthouse/test/internal/running"
)

// roundInterval is how often the instances here look for work that nobody told
// them of, backoff how long a retry waits, and haste what a busy machine may add
// to a time.
const (
	roundInterval = 200 * time.Millisecond
	backoff       = 300 * time.Millisecond
	haste         = 500 * time.Millisecond
)

// A serial source has one executor in the whole cluster, whichever instance
// receives: also when that one is killed, or frozen and thawed.
func TestSerialOrderOverInstances(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "IN-06 IN-07 IN-09", engines, func(t *testing.T, e running.Engine) {
		t.Run("lock in the database", func(t *testing.T) {
			t.Parallel()
			runSerial(t, running.Config{Store: e.Fresh(t)})
		})
		t.Run("lock in Redis", func(t *testing.T) {
			t.Parallel()
			runSerial(t, running.Config{Store: e.Fresh(t), Redis: testdb.Own(t, "redis").URL})
		})
	})
}

// frozen is a source whose first attempts last until the test lets them end.
const frozen = "frozen"

func runSerial(t *testing.T, cfg running.Config) {
	t.Helper()
	thawed := make(chan struct{})
	target := running.NewTarget(t, running.Binary, func(ctx context.Context, x running.Execution) int {
		wait := time.After(2 * time.Millisecond)
		if x.Source == frozen && x.Number == 0 && x.Attempt == 1 {
			wait = nil
		}
		select {
		case <-wait:
		case <-thawed:
		case <-ctx.Done():
		}
		return http.StatusOK
	})
	cfg.Sources = []running.Source{
		{Name: "one", Order: "serial", Target: target.URL, MaxRetry: 50, Backoff: backoff, RoundInterval: roundInterval},
		{Name: frozen, Order: "serial", Target: target.URL, MaxRetry: 50, Backoff: backoff, RoundInterval: roundInterval, Timeout: 40 * time.Second, OrphanAfter: 4 * time.Minute},
	}
	c := launch(t, 3, cfg)
	load := c.pushes(running.LoadConfig{Sources: []string{"one"}, Connections: 12, Pause: 100 * time.Millisecond})
	feed(t, load, target, 40)
	awaitCount(t, target, scale(200, 5000))
	inFlight := map[running.Claimed]bool{}

	for range scale(2, 20) {
		t.Run("IN-07 the holder is killed, another goes on", func(t *testing.T) { killHolder(t, c, target, inFlight) })
		awaitCount(t, target, scale(100, 1000))
	}
	t.Run("IN-06 the holder is frozen past its lease, and thaws", func(t *testing.T) { freezeHolder(t, c, target, inFlight, thawed) })
	awaitCount(t, target, scale(100, 1000))

	load.End()
	c.all[0].WaitHandled()
	c.stop()
	running.Audit{Store: cfg.Store, Load: load, Target: target, InFlight: len(inFlight), Serial: []string{"one"}}.Run(t)
}

// holder returns who executed last.
func (c *instances) holder(target *running.Target, source string) *running.Server {
	c.t.Helper()
	for _, x := range slices.Backward(target.Record()) {
		if x.Source == source {
			return c.named(x.Instance)
		}
	}
	c.t.Fatalf("nothing of source %s was executed", source)
	return nil
}

func killHolder(t *testing.T, c *instances, target *running.Target, inFlight map[running.Claimed]bool) {
	t.Helper()
	victim := c.holder(target, "one")
	killed := time.Now()
	c.kill(victim, inFlight)
	var next running.Execution
	running.Eventually(t, 20*time.Second, "another instance goes on", func() error {
		for _, x := range target.Record() {
			if x.Source == "one" && x.Instance != victim.Name && x.At.After(killed) {
				next = x
				return nil
			}
		}
		return errNotYet
	})
	t.Logf("%s went on %v after %s was killed", next.Instance, next.At.Sub(killed).Round(time.Millisecond), victim.Name)
	if took := next.At.Sub(killed); took > running.Freed+roundInterval+haste {
		t.Errorf("%v after the kill, want at most a lease and a third, %v", took, running.Freed)
	}
	victim.Start("")
	victim.WaitReady()
}

func freezeHolder(t *testing.T, c *instances, target *running.Target, inFlight map[running.Claimed]bool, thawed chan struct{}) {
	t.Helper()
	slow := running.NewLoad(t, running.LoadConfig{Doors: []string{c.all[0].Door}, Sources: []string{frozen}, Connections: 1})
	slow.Grant(1)
	var first running.Execution
	running.Eventually(t, 10*time.Second, "the message is being executed", func() error {
		for _, x := range target.Record() {
			if x.Source == frozen {
				first = x
				return nil
			}
		}
		return errNotYet
	})
	victim := c.named(first.Instance)
	fencedBefore := c.metric([]*running.Server{victim}, "posthouse_queue_fenced_writes_total", `source="`+frozen+`"`)
	frozenAt := time.Now()
	victim.Signal(syscall.SIGSTOP)
	target.CutOff(victim.Name)
	c.inspect(func(db *running.Database) error { return db.InFlightOf(context.Background(), victim.PID(), inFlight) })

	other := c.others(victim)[0]
	var finished running.Message
	running.Eventually(t, 20*time.Second, "another instance finishes the message", func() (err error) {
		if finished, err = other.Message(first.Message); err == nil && finished.State != "success" {
			err = fmt.Errorf("it is %s", finished.State)
		}
		return err
	})
	took := time.Since(frozenAt)
	t.Logf("another finished it %v after the freeze, its backoff included", took.Round(time.Millisecond))
	if took > running.Freed+backoff+2*roundInterval+haste {
		t.Errorf("%v after the freeze, want at most a lease and a third, %v, and the backoff", took, running.Freed)
	}

	close(thawed) // the frozen one's handler has succeeded; it does not know yet
	victim.Signal(syscall.SIGCONT)
	running.Eventually(t, 20*time.Second, "the thawed one is fenced, and joins again", func() error {
		fenced, err := victim.Metric("posthouse_queue_fenced_writes_total", `source="`+frozen+`"`)
		if err != nil {
			return err
		}
		dead, err := victim.Metric("posthouse_queue_declared_dead_total")
		if err != nil {
			return err
		}
		if fenced-fencedBefore < 1 || dead < 1 {
			return fmt.Errorf("%v fenced writes, declared dead %v times", fenced-fencedBefore, dead)
		}
		return nil
	})
	target.Rejoin(victim.Name)
	victim.WaitReady()
	after, err := other.Message(first.Message)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(after, finished) {
		t.Errorf("the thawed one has changed the message from %+v to %+v", finished, after)
	}
	if after.RetryCount != 1 {
		t.Errorf("retry_count is %d, want 1: one attempt was lost", after.RetryCount)
	}
	if log, err := os.ReadFile(victim.LogPath); err != nil || !strings.Contains(string(log), "fenced: others hold") {
		t.Errorf("it did not log that it was fenced (%v)", err)
	}
	if _, exited := victim.Process(); closed(exited) {
		t.Errorf("it has ended: %s", victim.Ending())
	}
	again := running.NewLoad(t, running.LoadConfig{Doors: []string{victim.Door}, Sources: []string{frozen}, Connections: 1})
	again.Grant(1) // message 0 once more: its first attempt finds thawed closed
	running.Eventually(t, 20*time.Second, "the thawed one executes again", func() error {
		if c.holder(target, frozen) != victim {
			again.Grant(1)
			return errNotYet
		}
		return nil
	})
	again.End()
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A Redis that is away stops consuming, and nothing else; one that forgets
// everything stops nothing, and lets nothing happen twice at once.
func TestRedisStoppedAndWiped(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "IN-06 IN-07", engines, runRedis)
}

func runRedis(t *testing.T, e running.Engine) {
	redis := testdb.Own(t, "redis")
	target := running.NewTarget(t, running.Binary, func(ctx context.Context, _ running.Execution) int {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		}
		return http.StatusOK
	})
	cfg := running.Config{Store: e.Fresh(t), Redis: redis.URL, Sources: []running.Source{{Name: "one", Order: "serial", Target: target.URL, MaxRetry: 50}}}
	c := launch(t, 3, cfg)
	var answers running.Answers
	load := c.pushes(running.LoadConfig{Sources: []string{"one"}, Connections: 6, Pause: 200 * time.Millisecond, Answered: answers.Add})
	load.Grant(1 << 30)
	awaitCount(t, target, 100)

	t.Run("IN-07 wiped again and again, order holds", func(t *testing.T) {
		option, err := rueidis.ParseURL(redis.URL)
		if err != nil {
			t.Fatal(err)
		}
		option.DisableCache = true
		client, err := rueidis.NewClient(option)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		for range scale(20, 200) {
			if err := client.Do(t.Context(), client.B().Flushall().Build()).Error(); err != nil {
				t.Fatal(err)
			}
			<-time.After(150 * time.Millisecond)
		}
		awaitCount(t, target, 50)
	})
	t.Run("IN-07 stopped: receiving goes on, consuming waits, readyz says why", func(t *testing.T) { stopRedis(t, c, redis, target, load) })

	load.End()
	c.all[0].WaitHandled()
	c.stop()
	t.Run("IN-07 every push was acknowledged at once", func(t *testing.T) {
		r := running.Reporter{T: t}
		for _, a := range answers.Record() {
			if !a.Acked() {
				r.Problemf("answered %d: %v", a.Status, a.Err)
			}
		}
	})
	running.Audit{Store: cfg.Store, Load: load, Target: target, Serial: []string{"one"}}.Run(t)
}

func stopRedis(t *testing.T, c *instances, redis *testdb.Server, target *running.Target, load *running.Load) {
	t.Helper()
	redis.Stop(t)
	stopped := time.Now()
	// An instance says that it is not ready when its calls have failed for 5 s.
	running.Eventually(t, 20*time.Second, "every /readyz says why", func() error {
		for _, s := range c.all {
			status, text, err := s.Readiness()
			if err != nil {
				return err
			}
			if status != http.StatusServiceUnavailable || !strings.Contains(text, "lock") {
				return fmt.Errorf("%s answers %d: %s", s.Name, status, text)
			}
		}
		return nil
	})
	_, text, _ := c.all[0].Readiness()
	t.Logf("after %v /readyz says: %s", time.Since(stopped).Round(time.Millisecond), text)
	<-time.After(max(0, 2*running.Lease-time.Since(stopped)))
	for _, x := range target.Record() {
		if x.At.After(stopped.Add(running.Lease)) {
			t.Errorf("an execution began %v after Redis had stopped, longer than a lease", x.At.Sub(stopped))
			break
		}
	}
	acknowledged := load.Acknowledged()
	<-time.After(time.Second)
	if more := load.Acknowledged() - acknowledged; more < 10 {
		t.Errorf("%d pushes were acknowledged in a second without Redis", more)
	}
	before := target.Count()
	answers := make(chan time.Time, 1)
	go func() {
		for {
			conn, err := net.DialTimeout("tcp", strings.TrimSuffix(strings.TrimPrefix(redis.URL, "redis://"), "/0"), time.Second)
			if err == nil {
				answers <- time.Now()
				_ = conn.Close()
				return
			}
			<-time.After(5 * time.Millisecond)
		}
	}()
	redis.Start(t)
	back := <-answers
	running.Eventually(t, 20*time.Second, "consuming goes on", func() error {
		if target.Count() == before {
			return errNotYet
		}
		return nil
	})
	took := target.Record()[before].At.Sub(back)
	t.Logf("consuming went on %v after Redis was back", took.Round(time.Millisecond))
	if took > running.Lease+roundInterval+haste {
		t.Errorf("%v after Redis was back, want a lease", took)
	}
	for _, s := range c.all {
		s.WaitReady()
	}
}
