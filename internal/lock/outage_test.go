package lock

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/testdb"
)

const bound = 2 * time.Second // of every call, Redis being there or not

func TestRedisStopsAndComesBack(t *testing.T) {
	t.Parallel()
	own := testdb.Own(t, "redis")
	r := open(t, Config{URL: own.URL, Lease: 2 * second})
	held := take(t, r, "held")
	released := take(t, r, "released")

	own.Stop(t)
	stopped := time.Now()
	t.Run("IN-07 stopped", func(t *testing.T) {
		within(t, bound, "TryLock", func() {
			if _, ok, err := r.TryLock(t.Context(), "new"); err == nil || ok {
				t.Errorf("TryLock without Redis: got %v, %v", ok, err)
			}
		})
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), "Redis") {
			t.Errorf("Check says %v", err)
		}
		within(t, bound, "Release", released.Release)
		lostWithin(t, held, 2*second-time.Since(stopped))
		within(t, bound, "Release of a lost one", held.Release)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("Check says %v", err)
		}
	})
	own.Start(t)
	t.Run("IN-07 back", func(t *testing.T) {
		for _, name := range []string{"new", "held", "released"} {
			eventually(t, r, name, 4*time.Second)
		}
		if err := r.Check(); err != nil {
			t.Errorf("Check says %v", err)
		}
	})
	own.Wipe(t)
	t.Run("IN-07 wiped", func(t *testing.T) {
		again, _ := eventually(t, r, "after wiping", 4*time.Second)
		keptFor(t, again, 3*second)
	})
}

func TestRedisMayBeDownAtTheStart(t *testing.T) {
	t.Parallel()
	own := testdb.Own(t, "redis")
	own.Stop(t)
	var r *Redis
	within(t, 100*time.Millisecond, "Open", func() { r = open(t, Config{URL: own.URL}) })
	if err := r.Check(); err == nil {
		t.Error("Check finds nothing wrong")
	}
	within(t, bound, "TryLock", func() {
		if _, ok, err := r.TryLock(t.Context(), "a"); err == nil || ok {
			t.Errorf("TryLock without Redis: got %v, %v", ok, err)
		}
	})
	own.Start(t)
	healthy(t, r, 4*time.Second)
	take(t, r, "a")
}

// A restart loses nothing, so that neither does the holder.
func TestALockOutlivesARestartWithinItsLease(t *testing.T) {
	t.Parallel()
	own := testdb.Own(t, "redis")
	r := open(t, Config{URL: own.URL, Lease: 6 * second})
	held := take(t, r, "a")
	own.Stop(t)
	own.Start(t)
	keptFor(t, held, 7*second)
	taken(t, r, "a")
}

func TestALockReleasedWhileRedisIsAwayIsFreedWhenItIsBack(t *testing.T) {
	t.Parallel()
	own := testdb.Own(t, "redis")
	r := open(t, Config{URL: own.URL, Lease: time.Minute})
	other := open(t, Config{URL: own.URL})
	held := take(t, r, "a")
	own.Stop(t)
	within(t, bound, "Release", held.Release)
	own.Start(t)
	eventually(t, other, "a", 5*time.Second) // not a minute
}

// A paused server takes commands and answers none.
func TestARedisThatHangs(t *testing.T) {
	t.Parallel()
	own := testdb.Own(t, "redis")
	r := open(t, Config{URL: own.URL, Lease: time.Minute})
	short := open(t, Config{URL: own.URL, Lease: second})
	first, held := take(t, r, "first"), take(t, short, "held")
	must(t, raw(t, own.URL)("CLIENT", "PAUSE", "4000", "ALL"))
	within(t, bound, "TryLock", func() {
		if _, ok, err := r.TryLock(t.Context(), "new"); err == nil || ok {
			t.Errorf("TryLock: got %v, %v", ok, err)
		}
	})
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("Check says %v", err)
	}
	within(t, bound, "Release", first.Release)
	lostWithin(t, held, second)
	within(t, bound, "Release of a lost one", held.Release)
	// What was asked for and given up may have been obtained; it does not stay so for the minute.
	for _, name := range []string{"new", "first", "held"} {
		eventually(t, r, name, 8*time.Second)
	}
}

// Nobody answers here, not even to the first word.
func TestASilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing was sent
	r := open(t, Config{URL: "redis://" + l.Addr().String()})
	within(t, bound, "TryLock", func() {
		if _, ok, err := r.TryLock(t.Context(), "a"); err == nil || ok {
			t.Errorf("TryLock: got %v, %v", ok, err)
		}
	})
	other := open(t, Config{URL: "redis://" + l.Addr().String()})
	within(t, time.Second, "TryLock that is called off", func() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, ok, err := other.TryLock(ctx, "a"); ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryLock: got %v, %v", ok, err)
		}
	})
	within(t, 2*bound, "Close", r.Close)
}

// A caller who gives up early leaves no lock behind, whatever became of his command.
func TestACallThatIsCalledOffLeavesNoLock(t *testing.T) {
	t.Parallel()
	url, prefix := testdb.Redis(t), prefix()
	r := open(t, Config{URL: url, Lease: time.Minute, Prefix: prefix})
	healthy(t, r, 4*time.Second)
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		held, ok, err := r.TryLock(ctx, "a")
		if ok {
			held.Release()
		} else if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	eventually(t, r, "a", 4*time.Second)
	if err := r.Check(); err != nil {
		t.Errorf("a caller's impatience is no trouble of Redis: %v", err)
	}
}

// A command whose caller has gone may be sent, and answered, long after he was told that it failed.
func TestALateAnswerIsUndone(t *testing.T) {
	t.Parallel()
	r := open(t, Config{URL: "redis://127.0.0.1:1"})
	ctx, cancel := context.WithCancel(t.Context())
	answer, undone := make(chan struct{}), make(chan struct{})
	yes, err := r.call(ctx, func(context.Context) (bool, error) {
		cancel()
		<-answer
		return true, nil
	}, func() { close(undone) })
	if yes || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", yes, err)
	}
	close(answer)
	<-undone
}

func TestCheckSeesWhatKeepsRedisFromGivingLocks(t *testing.T) {
	t.Parallel()
	own := testdb.Own(t, "redis")
	do := raw(t, own.URL)
	r := open(t, Config{URL: own.URL})
	healthy(t, r, 4*time.Second)

	trouble := func(t *testing.T, r *Redis, want string) {
		t.Helper()
		began := time.Now()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for err := r.Check(); err == nil || !strings.Contains(err.Error(), want); err = r.Check() {
			if time.Since(began) > 4*time.Second {
				t.Fatalf("Check says %v, not %s", err, want)
			}
			<-tick.C
		}
		if err := r.Check(); strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password is shown: %v", err)
		}
	}
	t.Run("IN-07 a replica", func(t *testing.T) {
		must(t, do("REPLICAOF", "127.0.0.1", "1"))
		trouble(t, r, "READONLY")
		must(t, do("REPLICAOF", "NO", "ONE"))
		healthy(t, r, 4*time.Second)
	})
	t.Run("IN-07 full", func(t *testing.T) {
		must(t, do("CONFIG", "SET", "maxmemory", "1"))
		trouble(t, r, "OOM")
		must(t, do("CONFIG", "SET", "maxmemory", "0"))
		healthy(t, r, 4*time.Second)
	})
	t.Run("IN-07 scripts forbidden", func(t *testing.T) {
		must(t, do("ACL", "SETUSER", "weak", "on", ">hunter2", "~*", "+@all", "-evalsha"))
		trouble(t, open(t, Config{URL: strings.Replace(own.URL, "//", "//weak:hunter2@", 1)}), "NOPERM")
	})
	t.Run("IN-07 passwords", func(t *testing.T) {
		must(t, do("CONFIG", "SET", "requirepass", "right"))
		trouble(t, open(t, Config{URL: own.URL}), "NOAUTH")
		trouble(t, open(t, Config{URL: strings.Replace(own.URL, "//", "//:hunter2@", 1)}), "WRONGPASS")
		u := strings.TrimSuffix(strings.Replace(own.URL, "//", "//:right@", 1), "/0")
		take(t, open(t, Config{URL: u + "/3", Prefix: "p:"}), "a")
		if n, err := raw(t, u+"/3")("EXISTS", "p:a").AsInt64(); n != 1 || err != nil {
			t.Errorf("in database 3: got %d keys, %v", n, err)
		}
	})
}

// What does not know the command repeats it, with the password.
func TestAServerThatRepeatsThePassword(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it ends the loop
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close() //nolint:errcheck // the client has gone
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if strings.HasPrefix(lines.Text(), "*") {
						if _, err := c.Write([]byte("-ERR unknown command 'AUTH', with args beginning with: 'hunter2' \r\n")); err != nil {
							return
						}
					}
				}
			}()
		}
	}()
	r := open(t, Config{URL: "redis://:hunter2@" + l.Addr().String()})
	_, ok, err := r.TryLock(t.Context(), "a")
	if ok || err == nil || !strings.Contains(err.Error(), "unknown command 'AUTH'") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("TryLock: got %v, %v", ok, err)
	}
}

func TestWhatIsLeftToBeDeletedIsBounded(t *testing.T) {
	t.Parallel()
	r := open(t, Config{URL: "redis://127.0.0.1:1"})
	for range 2 * maxRemnants {
		r.leave("key", "value")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.remains) != maxRemnants {
		t.Errorf("%d are remembered, not %d", len(r.remains), maxRemnants)
	}
}
