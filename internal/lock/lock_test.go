package lock

import (
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/testdb"
)

func TestOneHolderAtATime(t *testing.T) {
	t.Parallel()
	url, prefix := testdb.Redis(t), prefix()
	a := open(t, Config{URL: url, Lease: second, Prefix: prefix})
	b := open(t, Config{URL: url, Lease: second, Prefix: prefix})

	t.Run("IN-06 whoever comes second is told at once", func(t *testing.T) {
		held := take(t, a, "one")
		taken(t, b, "one")
		taken(t, a, "one") // the same process is no exception
		take(t, b, "another").Release()
		held.Release()
		take(t, b, "one")
	})
	t.Run("IN-07 a lock outlives its lease while its holder lives", func(t *testing.T) {
		held := take(t, a, "long")
		keptFor(t, held, 2500*time.Millisecond)
		taken(t, b, "long")
		held.Release()
		held.Release()
		take(t, b, "long")
		held.Release() // does not take it from b
		taken(t, a, "long")
		select {
		case <-held.Lost():
			t.Error("a lock that was released counts as lost")
		default:
		}
	})
	t.Run("IN-06 under contention", func(t *testing.T) {
		var holders, times atomic.Int32
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for range 50 {
					held, ok, err := []*Redis{a, b}[i%2].TryLock(t.Context(), "contended")
					if err != nil {
						t.Error(err)
						return
					}
					if !ok {
						continue
					}
					if n := holders.Add(1); n != 1 {
						t.Errorf("%d hold it at once", n)
					}
					times.Add(1)
					holders.Add(-1)
					held.Release()
				}
			})
		}
		wg.Wait()
		if times.Load() < 20 {
			t.Errorf("it was obtained %d times only", times.Load())
		}
	})
}

func TestAHolderThatStopsFreesItsLock(t *testing.T) {
	t.Parallel()
	url := testdb.Redis(t)
	limit := second + second/3

	t.Run("IN-07 killed", func(t *testing.T) {
		t.Parallel()
		prefix := prefix()
		r := open(t, Config{URL: url, Lease: second, Prefix: prefix})
		cmd, _ := process(t, url, prefix)
		taken(t, r, "work")
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, after := eventually(t, r, "work", limit); after < second/3 {
			t.Errorf("it was free after %v: it had not been held", after)
		}
	})
	t.Run("IN-07 frozen, and thawed when another holds it", func(t *testing.T) {
		t.Parallel()
		prefix := prefix()
		r := open(t, Config{URL: url, Lease: second, Prefix: prefix})
		cmd, says := process(t, url, prefix)
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		held, _ := eventually(t, r, "work", limit)
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		says("lost")
		says("released")
		taken(t, r, "work") // by ourselves still
		keptFor(t, held, second)
	})
}

func TestALossIsNoticedAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	own := testdb.Own(t, "redis")
	do := raw(t, own.URL)
	cases := map[string][]string{
		"deleted":            {"DEL", "posthouse:lock:deleted"},
		"overwritten":        {"SET", "posthouse:lock:overwritten", "mine"},
		"wiped":              {"FLUSHALL"},
		"moved":              {"RENAME", "posthouse:lock:moved", "elsewhere"},
		"no longer a string": {"EVAL", `redis.call("DEL", KEYS[1]) return redis.call("RPUSH", KEYS[1], "x")`, "1", "posthouse:lock:no longer a string"},
	}
	for name, interference := range cases {
		t.Run("IN-07 "+name, func(t *testing.T) {
			r := open(t, Config{URL: own.URL, Lease: second})
			held := take(t, r, name)
			must(t, do(interference...))
			lostWithin(t, held, second/3+second/4)
			key := []string{"EXISTS", "posthouse:lock:" + name}
			before, err := do(key...).AsInt64()
			if err != nil {
				t.Fatal(err)
			}
			held.Release()
			if after, err := do(key...).AsInt64(); err != nil || after != before {
				t.Errorf("releasing what was lost changed another's key: %d keys became %d, %v", before, after, err)
			}
			if err := r.Check(); err != nil {
				t.Errorf("nothing is wrong with Redis: %v", err)
			}
		})
	}
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	url, prefix := testdb.Redis(t), prefix()
	r := open(t, Config{URL: url, Prefix: prefix})
	other := open(t, Config{URL: url, Prefix: prefix})
	held := take(t, r, "held")
	take(t, r, "released").Release()

	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if held, ok, _ := r.TryLock(t.Context(), "meanwhile"); ok {
				held.Release()
			}
		})
	}
	within(t, 2*time.Second, "closing", r.Close)
	wg.Wait()
	lostWithin(t, held, 0)
	within(t, 100*time.Millisecond, "a release after closing", held.Release)
	taken(t, other, "held") // whoever held it may be at work yet
	take(t, other, "released")
	if _, ok, err := r.TryLock(t.Context(), "late"); ok || err == nil {
		t.Errorf("a lock of what was closed: got %v, %v", ok, err)
	}
	if err := r.Check(); err == nil {
		t.Error("what was closed is said to be well")
	}
	r.Close()
	must(t, raw(t, url)("DEL", prefix+"held"))
}

func TestAConfigurationThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "127.0.0.1:6379", "http://u:hunter2@h/0", "unix:///hunter2", "redis://", "redis:///hunter2",
		"redis://u:hunter2%@h/0", "redis://u:%zzhunter2@h/0", "redis://u:hunter2/x@h/0", "redis://u:hunter2@h:x/0",
		"redis://u:x@h/hunter2", "redis://u:x@h/1/2", "redis://u:x@h/-1", "redis://u:x@h/0?password=hunter2", "redis://u:x@h/0#hunter2",
		"redis://u:hun\nter2@h",
	} {
		r, err := Open(Config{URL: url})
		if err == nil {
			r.Close()
			t.Errorf("%q is taken", url)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "ter2") {
			t.Errorf("%q: the error shows the password: %v", url, err)
		}
	}
	for _, lease := range []time.Duration{-time.Second, time.Millisecond, time.Second - 1} {
		if r, err := Open(Config{URL: "redis://127.0.0.1:1", Lease: lease}); err == nil || !strings.Contains(err.Error(), lease.String()) {
			t.Errorf("a lease of %v: got %v", lease, err)
			if err == nil {
				r.Close()
			}
		}
	}
	for _, url := range []string{"redis://127.0.0.1:1", "redis://127.0.0.1:1/", "redis://:p%2Fw@127.0.0.1:1/3", "rediss://u:p@127.0.0.1:1/0"} {
		open(t, Config{URL: url})
	}
}
