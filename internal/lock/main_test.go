package lock

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"
)

// second is a lease that a test can outlive.
const second = time.Second

// A process that is killed or frozen is this test binary once more.
const (
	childURL    = "POSTHOUSE_LOCK_CHILD_URL"
	childPrefix = "POSTHOUSE_LOCK_CHILD_PREFIX"
)

func TestMain(m *testing.M) {
	if os.Getenv(childURL) != "" {
		if err := child(os.Stdout, os.Getenv(childURL), os.Getenv(childPrefix)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// child takes the lock "work", and says so; when it has lost it, it says so, releases it, says so, and ends.
func child(out io.Writer, url, prefix string) error {
	r, err := Open(Config{URL: url, Lease: second, Prefix: prefix})
	if err != nil {
		return err
	}
	defer r.Close()
	held, ok, err := r.TryLock(context.Background(), "work")
	if err != nil || !ok {
		return fmt.Errorf("not taken: %v, %w", ok, err)
	}
	fmt.Fprintln(out, "held")
	<-held.Lost()
	fmt.Fprintln(out, "lost")
	held.Release()
	fmt.Fprintln(out, "released")
	return nil
}

// process starts the child and returns when it holds the lock.
func process(t *testing.T, url, prefix string) (cmd *exec.Cmd, says func(want string)) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childURL+"="+url, childPrefix+"="+prefix)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	says = func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the other process says %q, not %q", lines.Text(), want)
		}
	}
	says("held")
	return cmd, says
}

func prefix() string { return "posthouse-test:" + rand.Text() + ":" }

func open(t *testing.T, cfg Config) *Redis {
	t.Helper()
	r, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// take fails the test unless the lock is obtained.
func take(t *testing.T, r *Redis, name string) Held {
	t.Helper()
	held, ok, err := r.TryLock(t.Context(), name)
	if err != nil || !ok {
		t.Fatalf("taking %q: got %v, %v", name, ok, err)
	}
	t.Cleanup(held.Release)
	return held
}

// taken fails the test unless another holds the lock.
func taken(t *testing.T, r *Redis, name string) {
	t.Helper()
	if held, ok, err := r.TryLock(t.Context(), name); err != nil || ok || held != nil {
		t.Fatalf("%q should be taken: got %v, %v, %v", name, held, ok, err)
	}
}

// eventually takes the lock as soon as it can be had, and fails the test when that is not within the given time.
func eventually(t *testing.T, r *Redis, name string, within time.Duration) (held Held, after time.Duration) {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		held, ok, err := r.TryLock(t.Context(), name)
		if ok {
			t.Cleanup(held.Release)
			return held, time.Since(began)
		}
		if time.Since(began) > within {
			t.Fatalf("%q cannot be had after %v: %v", name, within, err)
		}
		<-tick.C
	}
}

// healthy waits until Check says so.
func healthy(t *testing.T, r *Redis, within time.Duration) {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for r.Check() != nil {
		if time.Since(began) > within {
			t.Fatalf("after %v: %v", within, r.Check())
		}
		<-tick.C
	}
}

// lostWithin fails the test unless the loss is noticed in that time.
func lostWithin(t *testing.T, held Held, limit time.Duration) {
	t.Helper()
	select {
	case <-held.Lost():
		return // also when there is no time left to wait
	default:
	}
	select {
	case <-held.Lost():
	case <-time.After(limit):
		t.Fatalf("the loss was not noticed within %v", limit)
	}
}

// keptFor fails the test if the lock is lost in that time.
func keptFor(t *testing.T, held Held, span time.Duration) {
	t.Helper()
	select {
	case <-held.Lost():
		t.Fatal("the lock was lost")
	case <-time.After(span):
	}
}

// within fails the test when f takes longer.
func within(t *testing.T, limit time.Duration, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > limit {
		t.Errorf("%s took %v, longer than %v", what, took, limit)
	}
}

// raw is a client as somebody else's would be.
func raw(t *testing.T, url string) func(words ...string) rueidis.RedisResult {
	t.Helper()
	option := rueidis.MustParseURL(url)
	option.DisableCache, option.ForceSingleClient = true, true
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return func(words ...string) rueidis.RedisResult {
		return client.Do(context.Background(), client.B().Arbitrary(words...).Build())
	}
}

func must(t *testing.T, result rueidis.RedisResult) {
	t.Helper()
	if err := result.Error(); err != nil {
		t.Fatal(err)
	}
}
