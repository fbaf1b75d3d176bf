package inbox

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// oldKeys has so many keys whose window is over.
type oldKeys struct {
	sync.Mutex
	n, calls int
	err      error
}

func (k *oldKeys) ForgetKeys(_ context.Context, limit int) (int, error) {
	k.Lock()
	defer k.Unlock()
	k.calls++
	if k.err != nil {
		return 0, k.err
	}
	gone := min(limit, k.n)
	k.n -= gone
	return gone, nil
}

func TestForgetter(t *testing.T) {
	t.Run("IN-24 every minute all keys go whose window is over, a thousand at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			keys := &oldKeys{n: 2500}
			f, err := newForgetter(keys, slog.New(slog.NewTextHandler(&log, nil)), nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { f.run(ctx); close(done) }()
			after := func(wait time.Duration, left, calls int) {
				t.Helper()
				time.Sleep(wait)
				synctest.Wait()
				keys.Lock()
				defer keys.Unlock()
				if keys.n != left || keys.calls != calls {
					t.Errorf("%d keys are left after %d calls, want %d after %d", keys.n, keys.calls, left, calls)
				}
			}
			after(59*time.Second, 2500, 0)
			after(time.Second, 0, 3)
			become := func(n int, err error) {
				keys.Lock()
				defer keys.Unlock()
				keys.n, keys.err = n, err
			}
			become(1, errors.New("away"))
			after(5*time.Minute, 1, 8)
			become(1, nil)
			after(time.Minute, 0, 9)
			if n := testutil.ToFloat64(f.forgotten); n != 2501 {
				t.Errorf("counted %v", n)
			}
			if n := strings.Count(log.String(), "\n"); n != 2 {
				t.Errorf("%d lines were logged:\n%s", n, &log)
			}
			cancel()
			<-done
		})
	})
}
