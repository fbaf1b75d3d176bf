package crash

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/testdb"
	"github.com/posthouse/posthouse/test/internal/running"
)

// How long an outage lasts; a stopped server is down for a little longer.
const (
	lockHeld = 10 * time.Second
	down     = 6 * time.Second
	// From when on after its begin nothing may be answered 2xx any more: what had
	// been committed just before is answered by then.
	settled = 2 * time.Second
	// How soon after its end the door must take pushes again.
	backWithin = 10 * time.Second
)

// maxLogLines a second are too many, outage or not.
const maxLogLines = 10

// outage is the time during which the store could not be written to.
type outage struct{ begin, end time.Time }

func TestALockedMessageTableLosesNothing(t *testing.T) {
	running.OnEachEngine(t, "AC-9 IN-02", running.Engines, func(t *testing.T, e running.Engine) {
		url := e.Fresh(t)
		runOutage(t, url, func() outage {
			release, err := running.LockTables(t.Context(), url, "posthouse_message")
			if err != nil {
				t.Fatal(err)
			}
			o := outage{begin: time.Now()}
			<-time.After(lockHeld)
			o.end = time.Now()
			if err := release(); err != nil {
				t.Fatal(err)
			}
			return o
		})
	})
}

func TestAStoppedDatabaseLosesNothing(t *testing.T) {
	servers := slices.DeleteFunc(slices.Clone(running.Engines), func(e running.Engine) bool { return e.Own == "" })
	running.OnEachEngine(t, "AC-9 IN-02", servers, func(t *testing.T, e running.Engine) {
		own := testdb.Own(t, e.Own)
		runOutage(t, own.URL, func() outage {
			own.Stop(t)
			o := outage{begin: time.Now()}
			<-time.After(down)
			o.end = time.Now()
			own.Start(t)
			return o
		})
	})
}

// runOutage pushes into a server while strike makes its store unusable for
// some time, and judges what was answered.
func runOutage(t *testing.T, storeURL string, strike func() outage) {
	t.Helper()
	target := running.NewTarget(t, running.Binary, nil)
	server := running.NewServer(t, running.Config{Store: storeURL, Sources: []running.Source{
		{Name: "serial", Order: "serial", Target: target.URL, MaxRetry: 10},
		{Name: "parallel", Order: "parallel", Target: target.URL, MaxRetry: 10},
	}})
	server.Start("")
	server.WaitReady()
	pid := server.PID()
	begun := time.Now()
	var got running.Answers
	load := running.NewLoad(t, running.LoadConfig{Doors: []string{server.Door}, Sources: []string{"serial", "parallel"}, Pause: 100 * time.Millisecond, Answered: got.Add})
	load.Grant(1 << 30)
	enough := func(patience time.Duration, former, more int) {
		t.Helper()
		running.Eventually(t, patience, fmt.Sprintf("%d more pushes are acknowledged", more), func() error {
			if n := load.Acknowledged() - former; n < more {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
	}
	enough(running.StartPatience, 0, 500)
	struck := strike()
	acknowledged, executed := load.Acknowledged(), len(target.Record())
	enough(backWithin, acknowledged, 500)
	running.Eventually(t, backWithin, "messages are handled again", func() error {
		if n := len(target.Record()) - executed; n < 100 {
			return fmt.Errorf("%d executions since the end of the outage", n)
		}
		return nil
	})
	load.End()
	server.WaitHandled()

	t.Run("AC-9 the process was not restarted", func(t *testing.T) {
		_, exited := server.Process()
		select {
		case <-exited:
			t.Errorf("it ended: %s", server.Ending())
		default:
			if server.PID() != pid {
				t.Errorf("the process was %d and is %d", pid, server.PID())
			}
		}
	})
	ended := time.Now()
	server.Terminate()
	judgeAnswers(t, got.Record(), struck)
	t.Run("AC-9 the log stays readable", func(t *testing.T) {
		lines, err := running.LogLines(server.LogPath, begun, ended)
		if err != nil {
			t.Fatal(err)
		}
		most := running.Busiest(lines)
		t.Logf("%d lines in %v, at most %d in a second", len(lines), ended.Sub(begun).Round(time.Second), len(most))
		if len(most) >= maxLogLines {
			t.Errorf("%d lines in one second:", len(most))
			for _, line := range most {
				t.Logf("%s %s %s", line.Time.Format(time.StampMilli), line.Level, line.Text)
			}
		}
	})
	// Nobody was killed: nothing is executed twice.
	running.Audit{Store: storeURL, Load: load, Target: target, Serial: []string{"serial"}}.Run(t)
}

func judgeAnswers(t *testing.T, all []running.Answer, struck outage) {
	t.Helper()
	t.Run("AC-9 IN-02 only 503 meanwhile", func(t *testing.T) {
		r := running.Reporter{T: t}
		statuses := map[int]int{}
		for _, a := range all {
			if a.Done.Before(struck.begin.Add(settled)) || a.Done.After(struck.end) {
				continue
			}
			statuses[a.Status]++
			if a.Status != http.StatusServiceUnavailable {
				r.Problemf("%v after the begin: %d %v", a.Done.Sub(struck.begin).Round(time.Millisecond), a.Status, a.Err)
			}
		}
		t.Logf("in %v of outage: %v", struck.end.Sub(struck.begin).Round(time.Millisecond), statuses)
		if statuses[http.StatusServiceUnavailable] == 0 {
			t.Error("nothing was answered at all")
		}
	})
	t.Run("IN-02 an answer to every push, in time", func(t *testing.T) {
		r := running.Reporter{T: t}
		var longest time.Duration
		for _, a := range all {
			took := a.Done.Sub(a.Sent)
			longest = max(longest, took)
			switch {
			case a.Err != nil:
				r.Problemf("no answer: %v", a.Err)
			case a.Status != http.StatusOK && a.Status != http.StatusServiceUnavailable:
				r.Problemf("answered %d", a.Status)
			case took > running.AnswerWithin+running.Grace:
				r.Problemf("%d after %v", a.Status, took.Round(time.Millisecond))
			}
		}
		t.Logf("%d answers, the slowest after %v", len(all), longest.Round(time.Millisecond))
	})
}
