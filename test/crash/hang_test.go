package crash

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/posthouse/posthouse/test/internal/running"
)

// A target that never answers costs each attempt its timeout; three in a row
// end the round, and the next one waits for the whole interval.
func TestATargetThatNeverAnswersEndsTheRound(t *testing.T) {
	inEachOrder(t, "IN-15", runHang)
}

func runHang(t *testing.T, e running.Engine, order string) {
	t.Helper()
	const (
		timeout  = time.Second
		interval = 3 * time.Second
		pushes   = 9
	)
	target := running.NewTarget(t, running.Binary, func(ctx context.Context, x running.Execution) int {
		<-ctx.Done()
		return http.StatusOK
	})
	server := running.NewServer(t, running.Config{Store: e.Fresh(t), Sources: []running.Source{{
		Name: "stuck", Order: order, Target: target.URL, MaxRetry: 5, Backoff: time.Minute,
		Timeout: timeout, OrphanAfter: 5 * time.Second, RoundInterval: interval, Concurrency: 3,
	}}})
	// All are there before the first is tried, however slow the machine is.
	server.Start("")
	server.WaitReady()
	server.Switch("stuck", "pause")
	server.Terminate()
	server.Start("")
	server.WaitReady()
	load := running.NewLoad(t, running.LoadConfig{Doors: []string{server.Door}, Sources: []string{"stuck"}, Connections: 1})
	load.Grant(pushes)
	load.Wait()
	if n := load.Acknowledged(); n != pushes {
		t.Fatalf("%d pushes of %d were acknowledged", n, pushes)
	}
	server.Switch("stuck", "resume")
	running.Eventually(t, time.Minute, "every message was tried", func() error {
		stats, err := server.Stats()
		if err != nil {
			return err
		}
		if st := stats["stuck"]; st.Retrying != pushes {
			return fmt.Errorf("%d of %d messages wait for their retry", st.Retrying, pushes)
		}
		return nil
	})
	executions := target.Record()
	t.Run("IN-15 attempts are counted as timeouts", func(t *testing.T) {
		for _, x := range executions {
			m, err := server.Message(x.Message)
			if err != nil {
				t.Fatal(err)
			}
			if m.State != "pending" || m.RetryCount != 1 || len(m.Attempts) != 1 || m.Attempts[0].Reason != "timeout" {
				t.Errorf("message %d is %s after %d retries, attempts %+v; want one that ran into its timeout", x.Number, m.State, m.RetryCount, m.Attempts)
			}
		}
		n, err := server.Metric("posthouse_queue_attempts_total", `source="stuck"`, `outcome="retry"`, `reason="timeout"`)
		if err != nil || n != pushes {
			t.Errorf("the metric counts %v timeouts, want %d (%v)", n, pushes, err)
		}
	})
	t.Run("IN-15 three in a row end the round", func(t *testing.T) {
		// A parallel lane takes one more message between the first and the third
		// timeout.
		pauses := map[string]int{"serial": 2, "parallel": 1}[order]
		n, err := server.Metric("posthouse_queue_rounds_total", `source="stuck"`, `result="tripped"`)
		if err != nil || n < float64(pauses) {
			t.Errorf("the metric counts %v tripped rounds, want at least %d (%v)", n, pauses, err)
		}
		waited := 0
		for i := 1; i < len(executions); i++ {
			if executions[i].At.Sub(executions[i-1].At) > interval-100*time.Millisecond {
				waited++
			}
		}
		if len(executions) != pushes || waited < pauses {
			t.Errorf("%d executions with %d waits of a whole interval, want %d with at least %d", len(executions), waited, pushes, pauses)
		}
	})
	server.Terminate()
}
