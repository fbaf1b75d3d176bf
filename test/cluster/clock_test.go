package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/testdb"
	"github.com/posthouse/posthouse/test/internal/running"
)

// inBerlin returns a store whose server believes to be in Berlin, in winter.
var inBerlin = map[string]func(*testing.T) string{
	"PostgreSQL": func(t *testing.T) string {
		t.Helper()
		store := testdb.Postgres(t)
		execute(t, store, fmt.Sprintf("ALTER DATABASE %s SET timezone = 'Europe/Berlin'", nameOf(t, store)))
		return store
	},
	"MariaDB": func(t *testing.T) string {
		t.Helper()
		// It knows no names of zones unless they are loaded.
		own := testdb.Own(t, "mariadb")
		execute(t, own.URL, "SET GLOBAL time_zone = '+01:00'")
		return own.URL
	},
}

// nameOf returns the name of the database that a store's URL leads to.
func nameOf(t *testing.T, store string) string {
	t.Helper()
	u, err := url.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

func execute(t *testing.T, store, statement string) {
	t.Helper()
	db, err := running.Open(store, "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // nothing is kept there
	if _, err := db.ExecContext(context.Background(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// The database stands in one time zone, each instance in another: a retry comes
// when it is due, and nothing is taken from a living or a dead one too early.
func TestTimeZonesMoveNoMoment(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "IN-14 AC-9", engines, runZones)
}

func runZones(t *testing.T, e running.Engine) {
	const backoff = 5 * backoff
	const slow = "slow" // its handlers take two leases
	target := running.NewTarget(t, running.Binary, func(ctx context.Context, x running.Execution) int {
		switch {
		case x.Source == slow:
			rest(ctx, 2*running.Lease+running.Lease/2)
		case x.Attempt == 1:
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	cfg := running.Config{Store: inBerlin[e.Name](t), Sources: []running.Source{
		{Name: "retried", Order: "parallel", Target: target.URL, MaxRetry: 5, Backoff: backoff},
		{Name: slow, Order: "parallel", Target: target.URL, MaxRetry: 5, Backoff: backoff, Timeout: 20 * time.Second, OrphanAfter: time.Minute},
	}}
	c := launch(t, 3, cfg)
	load := c.pushes(running.LoadConfig{Sources: []string{"retried", slow}, Connections: 12, Pause: 20 * time.Millisecond})
	load.Grant(60)
	load.Wait()
	// One that works on slow messages dies in the middle.
	running.Eventually(t, 10*time.Second, "slow messages are executed", func() error {
		for _, x := range target.Record() {
			if x.Source == slow && x.Instance == "a" {
				return nil
			}
		}
		return errNotYet
	})
	killed := time.Now()
	inFlight := map[running.Claimed]bool{}
	c.kill(c.all[0], inFlight)
	c.all[1].WaitHandled()

	byMessage := map[uuid.UUID][]running.Execution{}
	for _, x := range target.Record() {
		byMessage[x.Message] = append(byMessage[x.Message], x)
	}
	t.Run("IN-10 no retry before it is due, and none much later", func(t *testing.T) {
		r := running.Reporter{T: t}
		var longest time.Duration
		for _, xs := range byMessage {
			if xs[0].Source != "retried" || len(xs) < 2 || xs[0].Instance == "a" {
				continue // an attempt of the killed one may have been lost, and counts from its recovery
			}
			waited := xs[1].At.Sub(xs[0].Ended)
			longest = max(longest, waited)
			if waited < backoff {
				r.Problemf("message %d was tried again after %v, want at least %v", xs[0].Number, waited, backoff)
			}
		}
		t.Logf("the longest wait for a retry was %v", longest.Round(time.Millisecond))
		if longest == 0 || longest > backoff+running.Lease {
			t.Errorf("the longest wait for a retry was %v", longest)
		}
	})
	t.Run("IN-14 nothing is recovered early", func(t *testing.T) {
		// The killed one had renewed its lease a third of it ago at the most.
		earliest := killed.Add(running.Lease - running.Lease/3 + backoff - haste)
		r := running.Reporter{T: t}
		lost := 0
		for _, xs := range byMessage {
			if xs[0].Source != slow {
				continue
			}
			if xs[0].Instance != "a" && len(xs) > 1 {
				r.Problemf("message %d, of a living instance, was executed %d times", xs[0].Number, len(xs))
			}
			if xs[0].Instance == "a" && len(xs) > 1 {
				if lost++; xs[1].At.Before(earliest) {
					r.Problemf("message %d, of the killed one, was executed again %v after the kill", xs[0].Number, xs[1].At.Sub(killed))
				}
			}
		}
		t.Logf("%d messages were lost with their worker", lost)
		if lost == 0 {
			t.Error("no message was lost with its worker: nothing is told")
		}
	})
	c.all[1].Terminate()
	c.all[2].Terminate()
	running.Audit{Store: cfg.Store, Load: load, Target: target, InFlight: len(inFlight), Fails: func(x running.Execution) bool {
		return x.Status == http.StatusInternalServerError
	}}.Run(t)
}
