package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/test/internal/running"
)

// A kill ends the server at the n-th passage of a named point, or, where point
// is empty, some time after its start.
type kill struct {
	point string
	n     int
	after time.Duration
}

func (k kill) String() string {
	if k.point == "" {
		return fmt.Sprintf("%v after the start", k.after)
	}
	return fmt.Sprintf("%s:%d", k.point, k.n)
}

// points are the named points, and up to which passage the kill may wait. One
// is passed for each message, the others for each batch.
var points = []struct {
	name string
	upTo int
}{
	{crashpoint.BeforePutCommit, 6},
	{crashpoint.AfterPutCommit, 6},
	{crashpoint.AfterClaim, 3},
	{crashpoint.AfterStart, 6},
	{crashpoint.AfterHandler, 60},
	{crashpoint.BeforeSettle, 6},
	{crashpoint.AfterSettle, 6},
}

// How long a server may live without reaching the point of its kill.
const pointPatience = time.Minute

// crashPlan is how much is pushed into one server, and how often it is killed.
type crashPlan struct {
	pushes                map[string]int // at least, by order
	atEachPoint, atRandom int
}

// kills draws the plan's kills, in an order of their own. The more is pushed
// between two of them, the later they come.
func (p crashPlan) kills(random *rand.Rand, order string) []kill {
	later := max(1, p.pushes[order]/(p.atEachPoint*len(points)+p.atRandom)/300)
	var all []kill
	for range p.atEachPoint {
		for _, point := range points {
			all = append(all, kill{point: point.name, n: 1 + random.IntN(later*point.upTo)})
		}
	}
	for range p.atRandom {
		all = append(all, kill{after: time.Duration(later*random.IntN(1500)) * time.Millisecond})
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// unhurried is how the target works in these tests: most messages take no
// time, one in sixteen some milliseconds, so that kills find work in flight; one
// in a hundred fails at first; what comes from the source refused always fails.
func unhurried(ctx context.Context, x running.Execution) int {
	if x.Number%16 == 0 {
		select {
		case <-time.After(time.Duration(x.Number%9) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if x.Source == running.Refused || failsFirst(x) {
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

func failsFirst(x running.Execution) bool { return x.Number%100 == 7 && x.Attempt == 1 }

// Each database gets 10,000 pushes (640,000 in the long form), parted between
// sources in serial order and parallel ones. MySQL speaks the dialect of
// MariaDB: its form is shorter.
func TestCrashesLoseNothingThatWasAcknowledged(t *testing.T) {
	parts := func(serial, parallel int) map[string]int {
		return map[string]int{"serial": serial, "parallel": parallel}
	}
	long, short := crashPlan{parts(3_500, 6_500), 3, 3}, crashPlan{parts(1_000, 2_000), 1, 1}
	if os.Getenv("POSTHOUSE_SOAK") == "1" {
		long, short = crashPlan{parts(60_000, 580_000), 20, 60}, crashPlan{parts(6_000, 58_000), 5, 15}
	}
	inEachOrder(t, "AC-8 IN-14", func(t *testing.T, e running.Engine, order string) {
		plan := long
		if e.Name == "MySQL" {
			plan = short
		}
		runCrashes(t, e.Fresh(t), order, plan)
	})
}

func runCrashes(t *testing.T, storeURL, order string, plan crashPlan) {
	t.Helper()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	kills := plan.kills(random, order)
	t.Logf("%d pushes, %d kills, seed %d", plan.pushes[order], len(kills), seed)

	const refusedRetries = 2
	target := running.NewTarget(t, running.Binary, unhurried)
	cfg := running.Config{Store: storeURL}
	// So many tries that no innocent message spends them all on kills.
	for _, name := range []string{"one", "two"} {
		cfg.Sources = append(cfg.Sources, running.Source{Name: name, Order: order, Target: target.URL, MaxRetry: 50})
	}
	cfg.Sources = append(cfg.Sources, running.Source{Name: running.Refused, Order: order, Target: target.URL, MaxRetry: refusedRetries})
	server := running.NewServer(t, cfg)
	// One message in ten goes to the source refused.
	load := running.NewLoad(t, running.LoadConfig{Doors: []string{server.Door}, Sources: []string{"one", "two", "one", "two", "one", "two", "one", "two", "one", running.Refused}})

	// Once without a kill: the tables are there from now on.
	server.Start("")
	server.WaitReady()
	server.Terminate()

	begun, left := time.Now(), plan.pushes[order]
	inFlight := map[running.Claimed]bool{}
	for i, k := range kills {
		server.Start(k.env())
		share := left / (len(kills) + 1 - i)
		left -= share
		load.Grant(share)
		k.await(t, server, load)
		if err := running.Inspect(storeURL, func(db *running.Database) error { return db.InFlight(context.Background(), inFlight) }); err != nil {
			t.Fatalf("after kill %d, %v: %v", i, k, err)
		}
	}
	killed := time.Now()
	server.Start("")
	load.Grant(left)
	server.WaitReady()
	load.Wait()
	pushed := time.Now()
	server.WaitHandled()
	handled := time.Now()
	server.Terminate()
	t.Logf("kills %v, then pushing the rest %v, handling it %v, stopping %v", killed.Sub(begun).Round(time.Millisecond),
		pushed.Sub(killed).Round(time.Millisecond), handled.Sub(pushed).Round(time.Millisecond), time.Since(handled).Round(time.Millisecond))

	a := running.Audit{Store: storeURL, Load: load, Target: target, InFlight: len(inFlight), RefusedTries: refusedRetries + 1, Fails: failsFirst}
	if order == "serial" {
		a.Serial = []string{"one", "two", running.Refused}
	}
	a.Run(t)
}

// A server that is killed while it makes its tables makes them the next time,
// also where each of their statements is a transaction of its own.
func TestAKillWhileTheTablesAreMade(t *testing.T) {
	running.OnEachEngine(t, "AC-8", running.Engines, func(t *testing.T, e running.Engine) {
		storeURL := e.Fresh(t)
		target := running.NewTarget(t, running.Binary, nil)
		server := running.NewServer(t, running.Config{Store: storeURL, Sources: []running.Source{{Name: "one", Order: "serial", Target: target.URL, MaxRetry: 3}}})
		load := running.NewLoad(t, running.LoadConfig{Doors: []string{server.Door}, Sources: []string{"one"}, Connections: 1})
		for after := 40 * time.Millisecond; after < 400*time.Millisecond; after += 30 * time.Millisecond {
			server.Start("")
			<-time.After(after)
			server.Kill()
			if !server.WaitExit(running.StopPatience) || !server.WasKilled() {
				t.Fatalf("after %v the server ended by itself: %s", after, server.Ending())
			}
		}
		server.Start("")
		server.WaitReady()
		load.Grant(1)
		load.Wait()
		server.WaitHandled()
		server.Terminate()
		running.Audit{Store: storeURL, Load: load, Target: target}.Run(t)
	})
}

func (k kill) env() string {
	if k.point == "" {
		return ""
	}
	return k.String()
}

// await returns when the kill has happened. While it does not, and the senders
// are idle, it allows them some pushes more.
func (k kill) await(t *testing.T, s *running.Server, l *running.Load) {
	t.Helper()
	_, exited := s.Process()
	deadline := time.After(pointPatience)
	more := time.NewTicker(200 * time.Millisecond)
	defer more.Stop()
	var moment <-chan time.Time
	if k.point == "" {
		moment = time.After(k.after)
	}
	for {
		select {
		case <-exited:
			if !s.WasKilled() {
				t.Fatalf("before the kill %v the server ended by itself: %s", k, s.Ending())
			}
			return
		case <-moment:
			s.Kill()
		case <-more.C:
			if l.Idle() {
				l.Grant(20)
			}
		case <-deadline:
			t.Fatalf("the server has lived %v and not reached its kill, %v", pointPatience, k)
		}
	}
}
