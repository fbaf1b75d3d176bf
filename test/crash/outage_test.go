package crash

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/testdb"
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
	onEachEngine(t, "AC-9 IN-02", engines, func(t *testing.T, e engine) {
		url := e.fresh(t)
		runOutage(t, url, func() outage {
			release, err := lockMessages(t.Context(), url)
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
	servers := slices.DeleteFunc(slices.Clone(engines), func(e engine) bool { return e.own == "" })
	onEachEngine(t, "AC-9 IN-02", servers, func(t *testing.T, e engine) {
		own := testdb.Own(t, e.own)
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

// answers collects what the senders were told.
type answers struct {
	mu  sync.Mutex
	all []answer
}

func (a *answers) add(one answer) {
	a.mu.Lock()
	a.all = append(a.all, one)
	a.mu.Unlock()
}

func (a *answers) record() []answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]answer(nil), a.all...)
}

// runOutage pushes into a server while strike makes its store unusable for
// some time, and judges what was answered.
func runOutage(t *testing.T, storeURL string, strike func() outage) {
	t.Helper()
	target := newTarget(t, nil)
	server := newServer(t, serverConfig{Store: storeURL, Sources: []sourceConfig{
		{Name: "serial", Order: "serial", Target: target.url, MaxRetry: 10},
		{Name: "parallel", Order: "parallel", Target: target.url, MaxRetry: 10},
	}})
	server.start("")
	server.waitReady()
	pid := server.pid()
	begun := time.Now()
	var got answers
	load := newLoad(t, loadConfig{Door: server.door, Sources: []string{"serial", "parallel"}, Pause: 100 * time.Millisecond, Answered: got.add})
	load.grant(1 << 30)
	enough := func(patience time.Duration, former, more int) {
		t.Helper()
		eventually(t, patience, fmt.Sprintf("%d more pushes are acknowledged", more), func() error {
			if n := load.acknowledged() - former; n < more {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
	}
	enough(startPatience, 0, 500)
	struck := strike()
	acknowledged, executed := load.acknowledged(), len(target.record())
	enough(backWithin, acknowledged, 500)
	eventually(t, backWithin, "messages are handled again", func() error {
		if n := len(target.record()) - executed; n < 100 {
			return fmt.Errorf("%d executions since the end of the outage", n)
		}
		return nil
	})
	load.end()
	server.waitHandled()

	t.Run("AC-9 the process was not restarted", func(t *testing.T) {
		_, exited := server.process()
		select {
		case <-exited:
			t.Errorf("it ended: %s", server.ending())
		default:
			if server.pid() != pid {
				t.Errorf("the process was %d and is %d", pid, server.pid())
			}
		}
	})
	ended := time.Now()
	server.terminate()
	judgeAnswers(t, got.record(), struck)
	t.Run("AC-9 the log stays readable", func(t *testing.T) {
		lines, err := logLines(server.logPath, begun, ended)
		if err != nil {
			t.Fatal(err)
		}
		most := busiest(lines)
		t.Logf("%d lines in %v, at most %d in a second", len(lines), ended.Sub(begun).Round(time.Second), len(most))
		if len(most) >= maxLogLines {
			t.Errorf("%d lines in one second:", len(most))
			for _, line := range most {
				t.Logf("%s %s %s", line.Time.Format(time.StampMilli), line.Level, line.Text)
			}
		}
	})
	// Nobody was killed: nothing is executed twice.
	audit{Store: storeURL, Load: load, Target: target, Serial: []string{"serial"}}.run(t)
}

func judgeAnswers(t *testing.T, all []answer, struck outage) {
	t.Helper()
	t.Run("AC-9 IN-02 only 503 meanwhile", func(t *testing.T) {
		r := reporter{T: t}
		statuses := map[int]int{}
		for _, a := range all {
			if a.done.Before(struck.begin.Add(settled)) || a.done.After(struck.end) {
				continue
			}
			statuses[a.status]++
			if a.status != http.StatusServiceUnavailable {
				r.problemf("%v after the begin: %d %v", a.done.Sub(struck.begin).Round(time.Millisecond), a.status, a.err)
			}
		}
		t.Logf("in %v of outage: %v", struck.end.Sub(struck.begin).Round(time.Millisecond), statuses)
		if statuses[http.StatusServiceUnavailable] == 0 {
			t.Error("nothing was answered at all")
		}
	})
	t.Run("IN-02 an answer to every push, in time", func(t *testing.T) {
		r := reporter{T: t}
		var longest time.Duration
		for _, a := range all {
			took := a.done.Sub(a.sent)
			longest = max(longest, took)
			switch {
			case a.err != nil:
				r.problemf("no answer: %v", a.err)
			case a.status != http.StatusOK && a.status != http.StatusServiceUnavailable:
				r.problemf("answered %d", a.status)
			case took > answerWithin+grace:
				r.problemf("%d after %v", a.status, took.Round(time.Millisecond))
			}
		}
		t.Logf("%d answers, the slowest after %v", len(all), longest.Round(time.Millisecond))
	})
}
