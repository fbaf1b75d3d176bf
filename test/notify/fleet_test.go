package notify

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/posthouse/posthouse/client"
	"github.com/posthouse/posthouse/test/internal/running"
)

// Workers of each of the three processes.
var workers = []int{3, 3, 2}

const (
	allWorkers = 8
	// takes is how long the provider takes, and between how long a worker may take
	// from one delivery to the next: to record the one and to claim the other, which
	// are a few commits. On a quiet machine that takes some milliseconds; this is for
	// one whose disk is everybody's.
	takes   = 20 * time.Millisecond
	between = 200 * time.Millisecond
	// looked is how often a process looks for due deliveries that it was not told of.
	looked = 2 * time.Second
)

// clusters are the databases that several processes can share.
var clusters = slices.DeleteFunc(slices.Clone(engines), func(e running.Engine) bool { return e.Own == "" })

// It measures, and so runs beside no other test.
func TestThreeProcessesShareTheDeliveries(t *testing.T) {
	running.OnEachEngine(t, "AC-4", clusters, func(t *testing.T, e running.Engine) {
		provider := running.NewProvider(t, nil)
		notify := func(n int) *running.Notify {
			return &running.Notify{Channels: []running.Channel{
				{Name: "text", Provider: provider.URL, Concurrency: n, OnUncertain: "resend", ReadTimeout: 2 * time.Minute},
			}}
		}
		base := running.NewNotify(t, nil, running.Policy{Send: []string{"text"}})
		f := ready(t, e, 0, base)
		for i, n := range workers {
			one := *base
			one.Channels = notify(n).Channels
			f.all = append(f.all, f.another(string(rune('a'+i)), &one))
		}
		f.start(f.all...)
		t.Run("NC-08 each is sent once, and none waits while a worker is idle", func(t *testing.T) { shareOut(t, f, provider) })
		t.Run("NC-09 a process that was frozen beyond its lease", func(t *testing.T) { freeze(t, f, provider) })
		noFaults(t, provider)
	})
}

// submit makes n notifications, spread over all servers.
func submit(t *testing.T, f *fleet, prefix string, n int) (ids []string) {
	t.Helper()
	const batch = 250
	for begin := 0; begin < n; begin += batch {
		var list []client.Notification
		for i := begin; i < min(begin+batch, n); i++ {
			list = append(list, todo(fmt.Sprintf("%s:%d", prefix, i), "order.status"))
		}
		results, err := f.api(f.all[begin/batch%len(f.all)]).NotifyBatch(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			ids = append(ids, r.Receipt.Deliveries[0].ID)
		}
	}
	return ids
}

// pause is how long a provider takes.
func pause(d time.Duration) { <-time.After(d) }

func shareOut(t *testing.T, f *fleet, provider *running.Provider) {
	t.Helper()
	n := scale(2000, 10000)
	gate := newAccepting()
	var numbers map[string]int // set before the gate opens
	provider.Respond(func(ctx context.Context, c running.Call) running.Reply {
		gate.wait(ctx)
		pause(takes)
		if c.N == 1 {
			switch numbers[c.Key] % 50 {
			case 11:
				return running.Reply{Drop: true}
			case 37:
				return running.Reply{Status: 500}
			}
		}
		return running.Reply{}
	})
	ids := submit(t, f, "share", n)
	byKey := map[string]int{}
	for i, id := range ids {
		byKey[id] = i
	}
	numbers = byKey
	running.Eventually(t, patience, "all workers are at work", func() error {
		if busy := gate.count(); busy != allWorkers {
			return fmt.Errorf("%d are", busy)
		}
		return nil
	})
	opened := time.Now()
	close(gate.open)
	ideal := time.Duration(n) * takes / allWorkers
	bound := time.Duration(n)*(takes+between)/allWorkers + 5*time.Second // the retries come last
	running.Eventually(t, 2*bound, "all are accepted", func() error {
		if got := provider.Accepted(); got != n {
			return fmt.Errorf("%d of %d are", got, n)
		}
		return nil
	})
	accepted := map[string]int{}
	var last time.Time
	by := map[string]int{}
	begun := map[string]time.Time{} // the last call, by process
	var busy, longest time.Duration
	for _, c := range provider.Calls() {
		if c.Accepted {
			accepted[c.Key]++
		}
		busy += c.Ended.Sub(later(c.At, opened))
		by[c.Instance]++
		if c.N == 1 { // there was one due
			longest = max(longest, c.At.Sub(later(begun[c.Instance], opened)))
			begun[c.Instance] = c.At
		}
		if c.Ended.After(last) {
			last = c.Ended
		}
	}
	took := last.Sub(opened)
	t.Logf("%d deliveries in %v, at best %v; workers were at the provider for %d %% of the time; the longest idle time of a process was %v; calls by process %v",
		n, took.Round(time.Millisecond), ideal, 100*busy/(took*allWorkers), longest.Round(time.Millisecond), by)
	if took > bound {
		t.Errorf("it took %v, want at most %v", took, bound)
	}
	if longest > looked*3/4 {
		t.Errorf("a process with all its workers idle took nothing for %v", longest)
	}
	for i, s := range f.all {
		if fair := n * workers[i] / allWorkers; by[s.Name] < fair*3/4 {
			t.Errorf("process %s carried out %d, by its workers it is to have about %d: some were idle", s.Name, by[s.Name], fair)
		}
	}
	r := running.Reporter{T: t}
	for _, id := range ids {
		if accepted[id] != 1 {
			r.Problemf("delivery %s was accepted %d times", id, accepted[id])
		}
	}
	running.Eventually(t, patience, "all are recorded as sent", func() error {
		if c := f.channel(f.a(), "text"); c.Succeeded != int64(n) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func freeze(t *testing.T, f *fleet, provider *running.Provider) {
	t.Helper()
	victim, other := f.a(), f.b()
	thawed := newAccepting()
	provider.Respond(func(ctx context.Context, c running.Call) running.Reply {
		if c.Instance == victim.Name {
			thawed.wait(context.WithoutCancel(ctx))
		}
		pause(takes)
		return running.Reply{}
	})
	before := len(provider.Calls())
	ids := submit(t, f, "frozen", 60)
	running.Eventually(t, patience, "the victim is sending", func() error {
		if n := thawed.count(); n != workers[0] {
			return fmt.Errorf("%d of its workers are", n)
		}
		return nil
	})
	victim.Signal(syscall.SIGSTOP)
	provider.CutOff(victim.Name)
	snapshot := map[string]string{}
	for _, id := range ids {
		d := f.await(other, id, client.DeliverySucceeded)
		snapshot[id] = fmt.Sprintf("%+v", d)
	}
	begun := map[string]bool{} // by the victim, before
	for _, c := range provider.Calls()[before:] {
		if c.Instance == victim.Name {
			begun[c.Key] = true
		}
	}
	victim.Signal(syscall.SIGCONT)
	provider.Rejoin(victim.Name)
	after := len(provider.Calls())
	close(thawed.open)
	victim.WaitReady()
	running.Eventually(t, patience, "the victim works again", func() error {
		round := submit(t, f, fmt.Sprintf("thawed:%d", len(provider.Calls())), 10)
		for _, id := range round {
			f.await(victim, id, client.DeliverySucceeded)
		}
		if !slices.ContainsFunc(provider.Calls()[after:], func(c running.Call) bool { return c.Instance == victim.Name }) {
			return fmt.Errorf("others carry out everything")
		}
		return nil
	})
	r := running.Reporter{T: t}
	for _, c := range provider.Calls()[after:] {
		if _, theirs := snapshot[c.Key]; theirs {
			r.Problemf("%s sent delivery %s once more, which others had sent", c.Instance, c.Key)
		}
	}
	for _, id := range ids {
		if got := fmt.Sprintf("%+v", f.detail(other, id)); got != snapshot[id] {
			r.Problemf("what is recorded of a delivery has changed: %s, was %s", got, snapshot[id])
		}
		want := 1
		if begun[id] {
			want = 2
		}
		if n := len(provider.Of(id)); n != want {
			r.Problemf("a delivery was sent %d times, want %d (begun by the frozen process: %v)", n, want, begun[id])
		}
	}
	if len(begun) != workers[0] {
		t.Errorf("the frozen process had begun %d", len(begun))
	}
}
