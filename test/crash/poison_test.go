package crash

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/test/internal/running"
)

// A message that kills its worker each time it is executed, first of a batch of
// 50, ends failed; the 49 behind it, and all others, succeed.
func TestAMessageThatKillsItsWorkerEndsAlone(t *testing.T) {
	inEachOrder(t, "IN-14", runPoison)
}

func runPoison(t *testing.T, e running.Engine, order string) {
	t.Helper()
	const (
		batch    = 50
		maxRetry = 2
	)
	var (
		present  atomic.Pointer[running.Server]                          // set before anything is pushed
		plugs    = map[string]int{"serial": 1, "parallel": batch}[order] // what fills all slots
		poison   = plugs
		open     = make(chan struct{}) // closed: nothing is held back any more
		held     atomic.Int64
		poisoned atomic.Int64
		killed   atomic.Int64 // the process that was killed last
		claimed  atomic.Int64 // messages claimed together, when the poison was executed first
		storeURL = e.Fresh(t)
	)
	target := running.NewTarget(t, running.Binary, func(ctx context.Context, x running.Execution) int {
		switch {
		case x.Source != "bad":
		case x.Number == poison:
			if poisoned.Add(1) == 1 {
				err := running.Inspect(storeURL, func(db *running.Database) error {
					n, err := db.LargestClaim(ctx, x.Source)
					claimed.Store(int64(n))
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
			killed.Store(int64(present.Load().PID()))
			present.Load().Kill()
			<-ctx.Done() // the caller is gone for certain
		case x.Number < plugs:
			held.Add(1)
			select {
			case <-open:
			case <-ctx.Done():
			}
		case killed.Load() == 0:
			<-ctx.Done() // it was claimed with the poison, and shares its fate
		}
		return http.StatusOK
	})
	server := running.NewServer(t, running.Config{Store: storeURL, Sources: []running.Source{
		{Name: "bad", Order: order, Target: target.URL, MaxRetry: maxRetry, Concurrency: batch, Timeout: 30 * time.Second, OrphanAfter: 150 * time.Second},
		{Name: "calm", Order: "parallel", Target: target.URL, MaxRetry: 50},
	}})
	present.Store(server)
	server.Start("")
	server.WaitReady()

	// Executions are held back until a whole batch waits behind them, the poison
	// first; then the process is killed, and its successor finds that batch.
	bad := running.NewLoad(t, running.LoadConfig{Doors: []string{server.Door}, Sources: []string{"bad"}, Connections: 1})
	bad.Grant(plugs)
	bad.Wait()
	running.Eventually(t, 10*time.Second, "the slots are taken", func() error {
		if n := held.Load(); n < int64(plugs) {
			return fmt.Errorf("%d executions are held back, of %d", n, plugs)
		}
		return nil
	})
	bad.Grant(batch)
	bad.Wait()
	server.Kill()
	server.WaitExit(running.StopPatience)
	close(open)
	server.Start("")
	ctx, cancel := context.WithCancel(t.Context())
	supervisor := server.Supervise(ctx)
	// Other sources go on meanwhile.
	calm := running.NewLoad(t, running.LoadConfig{Doors: []string{server.Door}, Sources: []string{"calm"}, Connections: 4, Pause: 50 * time.Millisecond})
	calm.Grant(1 << 30)
	running.Eventually(t, time.Minute, "the poison was tried as often as allowed", func() error {
		if n := poisoned.Load(); n < maxRetry+1 {
			return fmt.Errorf("it was executed %d times", n)
		}
		return nil
	})
	running.Eventually(t, running.StartPatience, "the last one that was killed has a successor", func() error {
		if int64(server.PID()) == killed.Load() {
			return fmt.Errorf("process %d was killed", killed.Load())
		}
		return nil
	})
	server.WaitReady()
	calm.End()
	server.WaitHandled()
	cancel()
	supervisor()

	executions := target.Record()
	var id uuid.UUID
	tries := 0
	for _, x := range executions {
		if x.Source == "bad" && x.Number == poison {
			id = x.Message
			tries++
		}
	}
	t.Run("IN-14 the poison was the first of what was claimed together", func(t *testing.T) {
		want := int64(batch)
		if order == "serial" {
			want = 1 // where order counts a claim takes what is begun at once, after a killed process one
		}
		if n := claimed.Load(); n != want {
			t.Errorf("%d messages were claimed together when the poison was executed first, want %d", n, want)
		}
	})
	t.Run("IN-14 the poison is lost with its worker as often as allowed, then failed", func(t *testing.T) {
		m, err := server.Message(id)
		if err != nil {
			t.Fatal(err)
		}
		if m.State != "failed" || tries != maxRetry+1 || len(m.Attempts) != maxRetry+1 {
			t.Errorf("it is %s after %d executions and %d attempts, want failed after %d", m.State, tries, len(m.Attempts), maxRetry+1)
		}
		for _, a := range m.Attempts {
			if a.Reason != "worker_lost" || a.Outcome != "lost" {
				t.Errorf("attempt %d: %s for the reason %q, want lost, worker_lost", a.N, a.Outcome, a.Reason)
			}
		}
	})
	stats, err := server.Stats()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("IN-14 its neighbours succeed", func(t *testing.T) {
		if st := stats["bad"]; st.Success != plugs+batch-1 || st.Failed != 1 {
			t.Errorf("source bad: %d succeeded, %d failed; want %d and 1", st.Success, st.Failed, plugs+batch-1)
		}
	})
	t.Run("IN-16 other sources succeed", func(t *testing.T) {
		acked := calm.Acknowledged()
		if st := stats["calm"]; st.Success < acked || st.Failed != 0 || acked == 0 {
			t.Errorf("source calm: %d acknowledged, %d succeeded, %d failed", acked, st.Success, st.Failed)
		}
	})
	if faults := target.Faults(); len(faults) > 0 {
		t.Errorf("at the target: %v", faults)
	}
	server.Terminate()
}
