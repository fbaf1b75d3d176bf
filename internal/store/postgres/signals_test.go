package postgres

import (
	"context"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/testdb"
)

// listening listens on s until stop is called, which returns why it ended.
func listening(t *testing.T, s *Store) (heard chan []model.SourceID, stop func() error, ended chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	heard, ended = make(chan []model.SourceID, 100), make(chan error, 1)
	go func() { ended <- s.Listen(ctx, func(queues []model.SourceID) { heard <- queues }) }()
	t.Cleanup(cancel)
	stop = func() error {
		cancel()
		return soon(t, ended)
	}
	if first := soon(t, heard); first != nil {
		t.Fatalf("it begins with %v, want nil", first)
	}
	return heard, stop, ended
}

func soon[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
	}
	return v
}

func TestSignals(t *testing.T) {
	ctx := t.Context()
	s := open(t, Config{URL: testdb.Postgres(t)})
	second := open(t, Config{URL: s.pool.Config().ConnString()})
	backends := func() (n int) {
		if err := other(t, s).QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Run("IN-09 what one process tells, another and itself hear", func(t *testing.T) {
		here, stopHere, _ := listening(t, s)
		there, stopThere, _ := listening(t, second)
		var many []model.SourceID
		for i := range model.SourceID(3000) {
			many = append(many, 1<<31-1-i)
		}
		if err := s.Notify(ctx, nil); err != nil {
			t.Error(err)
		}
		if err := s.Notify(ctx, many); err != nil {
			t.Fatal(err)
		}
		for _, heard := range []chan []model.SourceID{here, there} {
			var all []model.SourceID
			for len(all) < len(many) {
				all = append(all, soon(t, heard)...)
			}
			slices.Sort(all)
			slices.Reverse(all)
			if !slices.Equal(all, many) {
				t.Errorf("heard %d queues, not those that were told", len(all))
			}
		}
		for _, stop := range []func() error{stopHere, stopThere} {
			wantCode(t, stop(), model.CodeUnavailable)
		}
		eventually(t, "the end of the connections", func() error {
			if n := backends(); n > 0 {
				return context.DeadlineExceeded
			}
			return nil
		})
	})
	t.Run("what is no signal is passed over", func(t *testing.T) {
		heard, stop, _ := listening(t, s)
		for _, payload := range []string{"", "hello", "99999999999999", "x,7,"} {
			if _, err := other(t, s).Exec(`SELECT pg_notify($1, $2)`, channel, payload); err != nil {
				t.Fatal(err)
			}
		}
		if got := soon(t, heard); !slices.Equal(got, []model.SourceID{7}) {
			t.Errorf("heard %v, want 7", got)
		}
		wantCode(t, stop(), model.CodeUnavailable)
	})
	t.Run("a killed connection ends it, and it can begin again", func(t *testing.T) {
		_, _, ended := listening(t, s)
		if _, err := other(t, s).Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'LISTEN%'`); err != nil {
			t.Fatal(err)
		}
		wantCode(t, soon(t, ended), model.CodeUnavailable)
		heard, stop, _ := listening(t, s)
		if err := second.Notify(ctx, []model.SourceID{3}); err != nil {
			t.Fatal(err)
		}
		if got := soon(t, heard); !slices.Equal(got, []model.SourceID{3}) {
			t.Errorf("heard %v, want 3", got)
		}
		wantCode(t, stop(), model.CodeUnavailable)
	})
	t.Run("a connection that has gone silent is noticed, and one that is only quiet stays", func(t *testing.T) {
		through, freeze := proxied(t, s.pool.Config().ConnString())
		third := open(t, Config{URL: through})
		third.quiet = 50 * time.Millisecond
		heard, _, ended := listening(t, third)
		time.Sleep(6 * third.quiet) // quiet, and asked for a sign of life several times
		if err := s.Notify(ctx, []model.SourceID{5}); err != nil {
			t.Fatal(err)
		}
		if got := soon(t, heard); !slices.Equal(got, []model.SourceID{5}) {
			t.Errorf("heard %v, want 5", got)
		}
		freeze()
		wantCode(t, soon(t, ended), model.CodeUnavailable)
	})
	t.Run("there are none behind a pooler", func(t *testing.T) {
		pooled := open(t, Config{URL: testdb.PgBouncer(t)})
		wantCode(t, pooled.Notify(ctx, []model.SourceID{1}), model.CodeInvalid)
		wantCode(t, pooled.Listen(ctx, func([]model.SourceID) { t.Error("heard something") }), model.CodeInvalid)
		if pooled.CanSignal() || !s.CanSignal() {
			t.Error("it says otherwise")
		}
	})
}

func TestPayloads(t *testing.T) {
	var queues, read []model.SourceID
	for i := range model.SourceID(5000) {
		queues = append(queues, i*400_000)
	}
	for _, text := range payloads(queues) {
		if len(text) >= 8000 {
			t.Errorf("a payload of %d bytes", len(text))
		}
		read = append(read, readPayload(text)...)
	}
	if !slices.Equal(read, queues) {
		t.Errorf("%d queues became %d others", len(queues), len(read))
	}
}

// proxied returns a URL that leads through a proxy, and what makes it pass on
// nothing any more while all connections stay open.
func proxied(t *testing.T, raw string) (through string, freeze func()) {
	t.Helper()
	target, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var frozen atomic.Bool
	var wg sync.WaitGroup
	address := target.Host
	var mu sync.Mutex
	var open []net.Conn
	pass := func(to, from net.Conn) {
		buf := make([]byte, 1<<16)
		for {
			n, err := from.Read(buf)
			if err != nil {
				_ = to.Close()
				return
			}
			if !frozen.Load() {
				if _, err := to.Write(buf[:n]); err != nil {
					return
				}
			}
		}
	}
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				_ = client.Close()
				continue
			}
			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			wg.Go(func() { pass(server, client) })
			wg.Go(func() { pass(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, c := range open {
			_ = io.Closer(c).Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	target.Host = listener.Addr().String()
	return target.String(), func() { frozen.Store(true) }
}
