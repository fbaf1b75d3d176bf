package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/crashpoint"
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
	inEachOrder(t, "AC-8 IN-14", func(t *testing.T, e engine, order string) {
		plan := long
		if e.name == "MySQL" {
			plan = short
		}
		runCrashes(t, e.fresh(t), order, plan)
	})
}

func runCrashes(t *testing.T, storeURL, order string, plan crashPlan) {
	t.Helper()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	kills := plan.kills(random, order)
	t.Logf("%d pushes, %d kills, seed %d", plan.pushes[order], len(kills), seed)

	const refusedRetries = 2
	target := newTarget(t, unhurried)
	cfg := serverConfig{Store: storeURL}
	// So many tries that no innocent message spends them all on kills.
	for _, name := range []string{"one", "two"} {
		cfg.Sources = append(cfg.Sources, sourceConfig{Name: name, Order: order, Target: target.url, MaxRetry: 50})
	}
	cfg.Sources = append(cfg.Sources, sourceConfig{Name: refused, Order: order, Target: target.url, MaxRetry: refusedRetries})
	server := newServer(t, cfg)
	// One message in ten goes to the source refused.
	load := newLoad(t, loadConfig{Door: server.door, Sources: []string{"one", "two", "one", "two", "one", "two", "one", "two", "one", refused}})

	// Once without a kill: the tables are there from now on.
	server.start("")
	server.waitReady()
	server.terminate()

	begun, left := time.Now(), plan.pushes[order]
	inFlight := map[claimed]bool{}
	for i, k := range kills {
		server.start(k.env())
		share := left / (len(kills) + 1 - i)
		left -= share
		load.grant(share)
		k.await(t, server, load)
		if err := inspect(storeURL, func(db *database) error { return db.inFlight(context.Background(), inFlight) }); err != nil {
			t.Fatalf("after kill %d, %v: %v", i, k, err)
		}
	}
	killed := time.Now()
	server.start("")
	load.grant(left)
	server.waitReady()
	load.wait()
	pushed := time.Now()
	server.waitHandled()
	handled := time.Now()
	server.terminate()
	t.Logf("kills %v, then pushing the rest %v, handling it %v, stopping %v", killed.Sub(begun).Round(time.Millisecond),
		pushed.Sub(killed).Round(time.Millisecond), handled.Sub(pushed).Round(time.Millisecond), time.Since(handled).Round(time.Millisecond))

	a := audit{Store: storeURL, Load: load, Target: target, InFlight: len(inFlight), RefusedTries: refusedRetries + 1, Fails: failsFirst}
	if order == "serial" {
		a.Serial = []string{"one", "two", refused}
	}
	a.run(t)
}

// A server that is killed while it makes its tables makes them the next time,
// also where each of their statements is a transaction of its own.
func TestAKillWhileTheTablesAreMade(t *testing.T) {
	onEachEngine(t, "AC-8", engines, func(t *testing.T, e engine) {
		storeURL := e.fresh(t)
		target := newTarget(t, nil)
		server := newServer(t, serverConfig{Store: storeURL, Sources: []sourceConfig{{Name: "one", Order: "serial", Target: target.url, MaxRetry: 3}}})
		load := newLoad(t, loadConfig{Door: server.door, Sources: []string{"one"}, Connections: 1})
		for after := 40 * time.Millisecond; after < 400*time.Millisecond; after += 30 * time.Millisecond {
			server.start("")
			<-time.After(after)
			server.kill()
			if !server.waitExit(stopPatience) || !server.wasKilled() {
				t.Fatalf("after %v the server ended by itself: %s", after, server.ending())
			}
		}
		server.start("")
		server.waitReady()
		load.grant(1)
		load.wait()
		server.waitHandled()
		server.terminate()
		audit{Store: storeURL, Load: load, Target: target}.run(t)
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
func (k kill) await(t *testing.T, s *server, l *load) {
	t.Helper()
	_, exited := s.process()
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
			if !s.wasKilled() {
				t.Fatalf("before the kill %v the server ended by itself: %s", k, s.ending())
			}
			return
		case <-moment:
			s.kill()
		case <-more.C:
			if l.idle() {
				l.grant(20)
			}
		case <-deadline:
			t.Fatalf("the server has lived %v and not reached its kill, %v", pointPatience, k)
		}
	}
}
