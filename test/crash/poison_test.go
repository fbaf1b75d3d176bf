package crash

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
)

// A message that kills its worker each time it is executed, first of a batch of
// 50, ends failed; the 49 behind it, and all others, succeed.
func TestAMessageThatKillsItsWorkerEndsAlone(t *testing.T) {
	inEachOrder(t, "IN-14", runPoison)
}

func runPoison(t *testing.T, e engine, order string) {
	t.Helper()
	const (
		batch    = 50
		maxRetry = 2
	)
	var (
		running  atomic.Pointer[server]                                  // set before anything is pushed
		plugs    = map[string]int{"serial": 1, "parallel": batch}[order] // what fills all slots
		poison   = plugs
		open     = make(chan struct{}) // closed: nothing is held back any more
		held     atomic.Int64
		poisoned atomic.Int64
		killed   atomic.Int64 // the process that was killed last
		claimed  atomic.Int64 // messages claimed together, when the poison was executed first
		storeURL = e.fresh(t)
	)
	target := newTarget(t, func(ctx context.Context, x execution) int {
		switch {
		case x.source != "bad":
		case x.number == poison:
			if poisoned.Add(1) == 1 {
				err := inspect(storeURL, func(db *database) error {
					n, err := db.largestClaim(ctx, x.source)
					claimed.Store(int64(n))
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
			killed.Store(int64(running.Load().pid()))
			running.Load().kill()
			<-ctx.Done() // the caller is gone for certain
		case x.number < plugs:
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
	server := newServer(t, serverConfig{Store: storeURL, Sources: []sourceConfig{
		{Name: "bad", Order: order, Target: target.url, MaxRetry: maxRetry, Concurrency: batch, Timeout: 30 * time.Second, OrphanAfter: 150 * time.Second},
		{Name: "calm", Order: "parallel", Target: target.url, MaxRetry: 50},
	}})
	running.Store(server)
	server.start("")
	server.waitReady()

	// Executions are held back until a whole batch waits behind them, the poison
	// first; then the process is killed, and its successor finds that batch.
	bad := newLoad(t, loadConfig{Door: server.door, Sources: []string{"bad"}, Connections: 1})
	bad.grant(plugs)
	bad.wait()
	eventually(t, 10*time.Second, "the slots are taken", func() error {
		if n := held.Load(); n < int64(plugs) {
			return fmt.Errorf("%d executions are held back, of %d", n, plugs)
		}
		return nil
	})
	bad.grant(batch)
	bad.wait()
	server.kill()
	server.waitExit(stopPatience)
	close(open)
	server.start("")
	ctx, cancel := context.WithCancel(t.Context())
	supervisor := server.supervise(ctx)
	// Other sources go on meanwhile.
	calm := newLoad(t, loadConfig{Door: server.door, Sources: []string{"calm"}, Connections: 4, Pause: 50 * time.Millisecond})
	calm.grant(1 << 30)
	eventually(t, time.Minute, "the poison was tried as often as allowed", func() error {
		if n := poisoned.Load(); n < maxRetry+1 {
			return fmt.Errorf("it was executed %d times", n)
		}
		return nil
	})
	eventually(t, startPatience, "the last one that was killed has a successor", func() error {
		if int64(server.pid()) == killed.Load() {
			return fmt.Errorf("process %d was killed", killed.Load())
		}
		return nil
	})
	server.waitReady()
	calm.end()
	server.waitHandled()
	cancel()
	supervisor()

	executions := target.record()
	var id uuid.UUID
	tries := 0
	for _, x := range executions {
		if x.source == "bad" && x.number == poison {
			id = x.message
			tries++
		}
	}
	t.Run("IN-14 the poison was the first of a batch", func(t *testing.T) {
		if n := claimed.Load(); n != batch {
			t.Errorf("%d messages were claimed together when the poison was executed first, want %d", n, batch)
		}
	})
	t.Run("IN-14 the poison is lost with its worker as often as allowed, then failed", func(t *testing.T) {
		m, err := server.message(id)
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
	stats, err := server.stats()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("IN-14 its neighbours succeed", func(t *testing.T) {
		if st := stats["bad"]; st.Success != plugs+batch-1 || st.Failed != 1 {
			t.Errorf("source bad: %d succeeded, %d failed; want %d and 1", st.Success, st.Failed, plugs+batch-1)
		}
	})
	t.Run("IN-16 other sources succeed", func(t *testing.T) {
		acked := calm.acknowledged()
		if st := stats["calm"]; st.Success < acked || st.Failed != 0 || acked == 0 {
			t.Errorf("source calm: %d acknowledged, %d succeeded, %d failed", acked, st.Success, st.Failed)
		}
	})
	if faults := target.faults(); len(faults) > 0 {
		t.Errorf("at the target: %v", faults)
	}
	server.terminate()
}
