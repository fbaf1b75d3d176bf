package load

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/testdb"
	"github.com/posthouse/posthouse/test/internal/running"
)

// The sources that are in nobody's way, and the three that try to be.
const (
	stuck    = "stuck"    // its handlers return when their contexts end
	failing  = "failing"  // its handlers fail, and its retries come soon
	flooding = "flooding" // more is pushed to it than its handlers manage
)

// others are 197 sources, or 37, of all orders.
var others = func() (names []string) {
	for i := range scale(37, 197) {
		names = append(names, fmt.Sprintf("quiet%03d", i))
	}
	return names
}()

// One source is stuck, one fails and one floods: what is pushed to the others
// meanwhile starts as soon as it did before.
func TestOneSourceDelaysNoOther(t *testing.T) {
	running.OnEachEngine(t, "IN-16", engines, runIsolation)
}

func runIsolation(t *testing.T, e running.Engine) {
	target := running.NewTarget(t, running.Binary, func(ctx context.Context, x running.Execution) int {
		switch x.Source {
		case stuck:
			<-ctx.Done()
		case failing:
			return http.StatusInternalServerError
		case flooding:
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return http.StatusOK
	})
	server := running.NewServer(t, running.Config{Store: e.Fresh(t), Sources: sourcesOf(target.URL, append([]string{stuck, failing, flooding}, others...))})
	server.Start("")
	server.WaitReady()

	quiet(t, server, target) // every source has had its first messages
	alone := quiet(t, server, target)
	before := sizeOf(t, server)
	bad := running.NewLoad(t, running.LoadConfig{Doors: []string{server.Door}, Sources: []string{stuck, failing}, Connections: 4})
	bad.Grant(400)
	flood := running.NewLoad(t, running.LoadConfig{Doors: []string{server.Door}, Sources: []string{flooding}, Connections: 16, Pause: 50 * time.Millisecond})
	flood.Grant(1_000_000)
	running.Eventually(t, patience, "all three are at their worst", func() error {
		if n := target.AtOnce(stuck); n < 8 {
			return fmt.Errorf("%d handlers are stuck", n)
		}
		stats, err := server.Stats()
		if err == nil && (stats[flooding].Pending < 100 || stats[failing].Retrying < 100) {
			err = fmt.Errorf("the flood: %+v, the failing: %+v", stats[flooding], stats[failing])
		}
		return err
	})
	beside := quiet(t, server, target)
	after := sizeOf(t, server)
	flood.End()

	t.Logf("from acknowledgement to start, alone: %v; beside the three: %v (%.2f × at the 95th of 100)", alone, beside, beside.p95.Seconds()/alone.p95.Seconds())
	t.Logf("alone: %v; beside the three: %v", before, after)
	if slowest := 2 * time.Second; beside.most > slowest {
		t.Errorf("a message of another source started only %v after its acknowledgement, want %v at most", beside.most, slowest)
	}
	if soak && beside.p95 > alone.p95*3/2 {
		t.Errorf("the others' latency is %v, want at most 1.5 × %v", beside.p95, alone.p95)
	}
	// What runs: a handler has its connection to the target, with two goroutines.
	if most := before.goroutines + 1000; after.goroutines > most {
		t.Errorf("%v goroutines, want %v at most", after.goroutines, most)
	}
	if most := before.memory + 128<<20; after.memory > most {
		t.Errorf("%v bytes of memory, want %v at most", after.memory, most)
	}
}

// sourcesOf configures sources, of each order in turn.
func sourcesOf(target string, names []string) (sources []running.Source) {
	for i, name := range names {
		s := running.Source{Name: name, Order: orders[i%len(orders)], Target: target, MaxRetry: 100, Backoff: 200 * time.Millisecond,
			Timeout: 30 * time.Second, OrphanAfter: 2 * time.Minute, RoundInterval: 2 * time.Second, Concurrency: 8}
		if name == stuck || name == failing || name == flooding {
			s.Order = "parallel"
		}
		if s.Order == "keyed" {
			s.Key, s.Partitions = "body_hash", 4
		}
		sources = append(sources, s)
	}
	return sources
}

// latency is how long messages waited from their acknowledgement to their start.
type latency struct{ p50, p95, most time.Duration }

func (l latency) String() string {
	return fmt.Sprintf("p50 %v, p95 %v, at most %v", l.p50.Round(10*time.Microsecond), l.p95.Round(10*time.Microsecond), l.most.Round(10*time.Microsecond))
}

// quiet pushes to all other sources, slowly, and measures that.
func quiet(t *testing.T, server *running.Server, target *running.Target) latency {
	t.Helper()
	first := len(target.Record())
	load := running.NewLoad(t, running.LoadConfig{Doors: []string{server.Door}, Sources: others, Connections: 4, Pause: 40 * time.Millisecond})
	messages := scale(4, 20) * len(others)
	load.Grant(messages)
	load.Wait()
	var waits []time.Duration
	running.Eventually(t, patience, "the others' messages have started", func() error {
		waits = waits[:0]
		pushes := load.Record()
		for _, x := range target.Record()[first:] {
			if slices.Contains(others, x.Source) {
				waits = append(waits, max(0, x.At.Sub(pushes[x.Number].Acked)))
			}
		}
		if len(waits) < messages {
			return fmt.Errorf("%d of %d", len(waits), messages)
		}
		return nil
	})
	slices.Sort(waits)
	return latency{waits[len(waits)/2], waits[len(waits)*95/100], waits[len(waits)-1]}
}

// size is what a server takes of its machine.
type size struct{ goroutines, memory float64 }

func (s size) String() string {
	return fmt.Sprintf("%.0f goroutines, %.0f MiB", s.goroutines, s.memory/(1<<20))
}

func sizeOf(t *testing.T, server *running.Server) (s size) {
	t.Helper()
	var err error
	if s.goroutines, err = server.Metric("go_goroutines"); err != nil {
		t.Fatal(err)
	}
	if s.memory, err = server.Metric("process_resident_memory_bytes"); err != nil {
		t.Fatal(err)
	}
	return s
}

// What a server asks of its database when there is nothing to do: a fixed number
// of statements a heartbeat, however many sources there are, and while
// consumption is on, one look for each source and round interval.
func TestIdleSourcesAskForLittle(t *testing.T) {
	t.Parallel() // it waits
	for _, c := range []struct {
		name string
		on   bool
		of   []string
	}{
		{"IN-08 consumption is off, one source", false, others[:1]},
		{"IN-08 consumption is off, all sources", false, others},
		{"IN-08 consumption is on, all sources", true, others},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			target := running.NewTarget(t, running.Binary, nil)
			sources := sourcesOf(target.URL, c.of)
			store := testdb.Postgres(t)
			server := running.NewServer(t, running.Config{Store: store, Sources: sources})
			server.Start("")
			server.WaitReady()
			if !c.on {
				for _, name := range c.of {
					server.Switch(name, "pause")
				}
			}
			rest(tellsAfter)
			commits := commitsIn(t, store, scale(6*time.Second, 30*time.Second))
			looks := 0.0
			if c.on {
				looks = float64(len(c.of)) / sources[0].RoundInterval.Seconds()
			}
			beats := 3 / running.Lease.Seconds()
			t.Logf("%d sources: %.1f transactions a second, of which %.1f may be looks; %.1f more for each heartbeat", len(c.of), commits, looks, (commits-looks)/beats)
			if most := looks*1.1 + beats*perHeartbeat; commits > most {
				t.Errorf("%d idle sources ask for %.1f transactions a second, want %.1f at most", len(c.of), commits, most)
			}
		})
	}
}

// tellsAfter is when a PostgreSQL has told what was done before on connections
// that are not used any more, which is ten seconds later.
const tellsAfter = 11 * time.Second

// perHeartbeat is how many statements a process makes for each heartbeat, at
// most, with those that measure the backlog now and then.
const perHeartbeat = 12

// commitsIn says how many transactions a second end in a database.
func commitsIn(t *testing.T, store string, d time.Duration) float64 {
	t.Helper()
	db, err := running.Open(store, "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // only read
	count := func() (n int) {
		if err := db.QueryRowContext(t.Context(), "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	from := count()
	begun := time.Now()
	rest(d)
	return float64(count()-from) / time.Since(begun).Seconds()
}

func rest(d time.Duration) { <-time.After(d) }
