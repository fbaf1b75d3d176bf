package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/inbox/mysql"
	"github.com/posthouse/posthouse/inbox/postgres"
	"github.com/posthouse/posthouse/internal/testdb"
	"github.com/posthouse/posthouse/test/internal/running"
)

// wrong is by how much the database's clock differs from that of the instances.
const wrong = 10 * time.Minute

// The database's clock is ten minutes ahead of the instances', or behind, and it
// stands in Berlin: what happens when is told by that clock alone, so that every
// wait is as long as it should be, nobody living is taken for dead, and no age
// is wrong.
func TestAClockThatIsTenMinutesWrong(t *testing.T) {
	for _, e := range engines {
		for _, ahead := range []time.Duration{wrong, -wrong} {
			t.Run(fmt.Sprintf("IN-07 IN-09 %s %+v", e.Name, ahead), func(t *testing.T) {
				t.Parallel()
				store := testdb.OwnAt(t, e.Own, ahead).URL
				execute(t, store, toBerlin[e.Name])
				runWrongClock(t, e, store, ahead)
			})
		}
	}
}

// toBerlin lets a whole server believe to be in Berlin, in winter.
var toBerlin = map[string]string{
	"PostgreSQL": "ALTER ROLE CURRENT_USER SET timezone = 'Europe/Berlin'",
	"MariaDB":    "SET GLOBAL time_zone = '+01:00'", // it knows no names of zones unless they are loaded
}

func runWrongClock(t *testing.T, e running.Engine, store string, ahead time.Duration) {
	const backoff = 1500 * time.Millisecond
	const retried, slow, ordered, waiting = "retried", "slow", "ordered", "waiting"
	target := running.NewTarget(t, running.Binary, func(ctx context.Context, x running.Execution) int {
		switch {
		case x.Source == slow:
			rest(ctx, 2*running.Lease+running.Lease/2)
		case x.Source == retried && x.Attempt == 1:
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	one := running.Source{Order: "parallel", Target: target.URL, MaxRetry: 5, Backoff: backoff, Timeout: 20 * time.Second, OrphanAfter: time.Minute}
	cfg := running.Config{Store: store}
	for _, name := range []string{retried, slow, ordered, waiting} {
		one.Name = name
		if one.Order = "parallel"; name == ordered {
			one.Order = "serial"
		}
		cfg.Sources = append(cfg.Sources, one)
	}
	c := launch(t, 2, cfg)
	requireWrong(t, store, ahead)
	c.all[0].Switch(waiting, "pause")
	// Both know of the switch after a heartbeat.
	rest(t.Context(), running.Lease/2)

	began := time.Now()
	load := c.pushes(running.LoadConfig{Sources: []string{retried, slow, ordered, waiting, ordered}, Connections: 10, Pause: 10 * time.Millisecond})
	load.Grant(100)
	load.Wait()
	pushed := time.Now()
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

	t.Run("IN-14 what outlives orphan_after is recovered by elapsed time", func(t *testing.T) { recoversByElapsedTime(t, e, store) })
	cfg.Name = "c"
	c.all = append(c.all, running.NewServer(t, cfg))
	c.all[2].Start("")
	c.all[2].WaitReady()
	t.Run("IN-23 ages are those of elapsed time", func(t *testing.T) { soundAges(t, c.all[2], waiting, began, pushed) })
	c.all[1].Switch(waiting, "resume")
	c.all[1].WaitHandled()

	byMessage := map[uuid.UUID][]running.Execution{}
	for _, x := range target.Record() {
		byMessage[x.Message] = append(byMessage[x.Message], x)
	}
	t.Run("IN-10 no retry before its backoff has passed, and none much later", func(t *testing.T) {
		r := running.Reporter{T: t}
		var longest time.Duration
		for _, xs := range byMessage {
			if xs[0].Source != retried || len(xs) < 2 || xs[0].Instance == "a" {
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
	t.Run("IN-07 nobody living is declared dead, and the dead not before their lease is over", func(t *testing.T) {
		for _, name := range []string{"posthouse_queue_declared_dead_total", "posthouse_queue_fenced_writes_total"} {
			if n := c.metric(c.all[1:], name); n != 0 {
				t.Errorf("%s is %v", name, n)
			}
		}
		// The killed one had renewed its lease a third of it ago at the most.
		earliest, latest := killed.Add(running.Lease-running.Lease/3+backoff-haste), killed.Add(running.Freed+backoff+running.Lease)
		r := running.Reporter{T: t}
		lost := 0
		for _, xs := range byMessage {
			switch {
			case xs[0].Source != slow || len(xs) == 1:
			case xs[0].Instance != "a":
				r.Problemf("message %d, of a living instance, was executed %d times", xs[0].Number, len(xs))
			case xs[1].At.Before(earliest) || xs[1].At.After(latest):
				r.Problemf("message %d, of the killed one, was executed again %v after the kill", xs[0].Number, xs[1].At.Sub(killed))
			default:
				lost++
			}
		}
		t.Logf("%d messages were lost with their worker", lost)
		if lost == 0 {
			t.Error("no message was lost with its worker: nothing is told")
		}
	})
	c.all[1].Terminate()
	c.all[2].Terminate()
	running.Audit{Store: store, Load: load, Target: target, InFlight: len(inFlight), Serial: []string{ordered}, Fails: func(x running.Execution) bool {
		return x.Status == http.StatusInternalServerError
	}}.Run(t)
}

// requireWrong fails the test unless the server's clock is as wrong as it should be.
func requireWrong(t *testing.T, store string, ahead time.Duration) {
	t.Helper()
	db, err := running.Open(store, "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // only read
	var started int64
	if err := db.QueryRowContext(t.Context(), "SELECT max(started_at) FROM posthouse_instance").Scan(&started); err != nil {
		t.Fatal(err)
	}
	if off := time.Until(time.UnixMicro(started)) - ahead; off > haste || off < -time.Minute {
		t.Fatalf("the store's clock is not %v ahead: an instance started at %v by it, and it is %v", ahead, time.UnixMicro(started).UTC(), time.Now().UTC())
	}
}

// soundAges reads the age of messages that were kept between two moments, and
// are due since.
func soundAges(t *testing.T, s *running.Server, source string, from, to time.Time) {
	var stats struct {
		Sources []struct {
			Source string  `json:"source"`
			Age    float64 `json:"oldest_due_age_s"`
		} `json:"sources"`
	}
	least := time.Since(to)
	getJSON(t, s, "/v1/inbox/stats", &stats)
	most := time.Since(from)
	told := false
	for _, st := range stats.Sources {
		if st.Source != source {
			continue
		}
		told = true
		if st.Age < least.Seconds() || st.Age > most.Seconds() {
			t.Errorf("/v1/inbox/stats says that the oldest has been due for %v s; it is %v to %v", st.Age, least, most)
		}
	}
	if !told {
		t.Errorf("/v1/inbox/stats tells nothing of %s", source)
	}
	running.Eventually(t, 10*time.Second, "the backlog is measured", func() error { // which a process does first when it starts
		age, err := s.Metric("posthouse_inbox_oldest_due_age_seconds", fmt.Sprintf("source=%q", source))
		if err == nil && age == 0 {
			err = errNotYet
		}
		if most := time.Since(from); age < 0 || age > most.Seconds() || age > 0 && age < least.Seconds() {
			t.Fatalf("the metric says that the oldest has been due for %v s; it is %v to %v", age, least, most)
		}
		return err
	})
	if status, text, err := s.Readiness(); err != nil || status != http.StatusOK {
		t.Errorf("/readyz says %d: %s %v", status, text, err)
	}
}

// getJSON asks again while the answer is 503: a database whose clock was set may
// end a session as if it had idled.
func getJSON(t *testing.T, s *running.Server, path string, into any) {
	t.Helper()
	running.Eventually(t, 10*time.Second, "GET "+path, func() error {
		resp, err := http.Get("http://" + s.Admin + path)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		switch resp.StatusCode {
		case http.StatusOK:
		case http.StatusServiceUnavailable:
			return errNotYet
		default:
			t.Fatalf("GET %s: %s", path, resp.Status)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		return json.Unmarshal(body, into)
	})
}

// recoversByElapsedTime lets a handler not return when its context ends, in one
// of two instances that this very process is: no target over HTTP can do that.
func recoversByElapsedTime(t *testing.T, e running.Engine, store string) {
	const orphanAfter, timeout, lease, backoff = 3 * time.Second, time.Second, time.Second, 50 * time.Millisecond
	var mu sync.Mutex
	var starts []time.Time
	started := make(chan struct{}, 2)
	release := make(chan struct{})
	handler := inbox.HandlerFunc(func(context.Context, *inbox.Message) error {
		mu.Lock()
		starts = append(starts, time.Now())
		first := len(starts) == 1
		mu.Unlock()
		started <- struct{}{}
		if first {
			<-release
		}
		return nil
	})
	var boxes []*inbox.Inbox
	for range 2 {
		box, err := inbox.Open(t.Context(), inbox.Config{
			Store: openStore(t, e, store), Lease: lease, Drain: time.Second,
			Sources: []inbox.Source{{Name: "stubborn", Verify: inbox.NoVerification(), Handler: handler, Consume: inbox.Consume{
				Order: inbox.Parallel, Timeout: timeout, OrphanAfter: orphanAfter, Backoff: []time.Duration{backoff}, RoundInterval: 50 * time.Millisecond,
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := box.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(box.Stop)
		boxes = append(boxes, box)
	}
	t.Cleanup(func() { close(release) }) // before they stop
	push(t, boxes[0], "stubborn")
	for range 2 {
		select {
		case <-started:
		case <-time.After(orphanAfter + 20*time.Second):
			t.Fatalf("after %d starts nothing more came", len(starts))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	again := starts[1].Sub(starts[0])
	t.Logf("a message whose handler does not return was executed again after %v", again.Round(time.Millisecond))
	if again < orphanAfter+backoff-50*time.Millisecond || again > orphanAfter+2*lease+2*haste {
		t.Errorf("it was executed again after %v, want %v and a heartbeat", again, orphanAfter)
	}
}

// openStore opens an inbox's store on what an engine's URL names.
func openStore(t *testing.T, e running.Engine, store string) inbox.Store {
	t.Helper()
	if e.Name == "PostgreSQL" {
		s, err := postgres.Open(t.Context(), postgres.Config{URL: store})
		return closing(t, s, err)
	}
	s, err := mysql.Open(t.Context(), mysql.Config{URL: store})
	return closing(t, s, err)
}

func closing[S interface {
	inbox.Store
	Close() error
}](t *testing.T, s S, err error) inbox.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func push(t *testing.T, box *inbox.Inbox, source string) {
	t.Helper()
	answer := httptest.NewRecorder()
	box.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/in/"+source, strings.NewReader("1")))
	if answer.Code != http.StatusOK {
		t.Fatalf("a push was answered %d", answer.Code)
	}
}

// The databases that several processes share have one clock, and no statement
// brings along another: that of the process, or one that tells the time of a
// zone or of the transaction's beginning.
func TestStatementsTakeNoTimeFromTheProcess(t *testing.T) {
	for _, adapter := range []string{"postgres", "mysql"} {
		t.Run("IN-07 IN-09 "+adapter, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join("..", "..", "internal", "store", adapter, "*.go"))
			if err != nil || len(files) == 0 {
				t.Fatalf("no source of the adapter was found: %v", err)
			}
			clocks := 0
			for _, name := range files {
				if strings.HasSuffix(name, "_test.go") {
					continue
				}
				set := token.NewFileSet()
				file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				for n := range ast.Preorder(file) {
					switch n := n.(type) {
					case *ast.SelectorExpr:
						if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && n.Sel.Name == "Now" {
							t.Errorf("%s: time.Now is the clock of the process", set.Position(n.Pos()))
						}
					case *ast.BasicLit:
						if otherClocks.MatchString(n.Value) {
							t.Errorf("%s: %s is not the clock that all instances go by", set.Position(n.Pos()), otherClocks.FindString(n.Value))
						}
						if strings.Contains(n.Value, "clock_timestamp()") || strings.Contains(n.Value, "utc_timestamp(6)") {
							clocks++
						}
					}
				}
			}
			if clocks != 1 {
				t.Errorf("the adapter writes down in %d places what its clock is, want 1", clocks)
			}
		})
	}
}

var otherClocks = regexp.MustCompile(`(?i)\b(now|sysdate|curdate|curtime|unix_timestamp|localtime|localtimestamp|transaction_timestamp|statement_timestamp)\s*\(|\bcurrent_(timestamp|time|date)\b`)
