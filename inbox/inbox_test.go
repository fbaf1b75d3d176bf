package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openStore(t testing.TB) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(sqlite.Config{Path: filepath.Join(t.TempDir(), "inbox.db"), Consumer: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

// serveInbox runs an inbox behind a real server until the test ends.
func serveInbox(t testing.TB, cfg Config) (url string) {
	t.Helper()
	box, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return serverOf(t, box)
}

// serverOf serves box until the test ends, and stops it then.
func serverOf(t testing.TB, box *Inbox) (url string) {
	server := httptest.NewServer(box)
	t.Cleanup(func() {
		server.Close()
		box.Stop()
	})
	return server.URL
}

func push(t testing.TB, url, contentType string, body []byte) int {
	t.Helper()
	response, err := http.Post(url, contentType, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func TestPushIsHandled(t *testing.T) {
	t.Run("IN-01 IN-25 what was answered 2xx reaches the handler byte for byte", func(t *testing.T) {
		bodies := [][]byte{
			[]byte(`{}`), []byte(`{"n":9007199254740993}`), []byte("nul \x00 in it"), []byte("\xff\xfe broken \xc3\x28"),
			[]byte(`{"lone":"\ud800"}`), make([]byte, 1<<20),
		}
		got := make(chan *Message, len(bodies))
		url := serveInbox(t, Config{Store: openStore(t), Sources: []Source{{
			Name: "odd", Verify: NoVerification(),
			Handler: HandlerFunc(func(_ context.Context, m *Message) error { got <- m; return nil }),
		}}})
		for _, body := range bodies {
			if status := push(t, url+"/in/odd?a=1&token=s3cret", "application/x-odd; v=\"1\"", body); status != http.StatusOK {
				t.Fatalf("answered %d", status)
			}
		}
		for i, want := range bodies {
			m := <-got
			if !bytes.Equal(m.Body, want) {
				t.Errorf("body %d came out with %d bytes, other than it went in", i, len(m.Body))
			}
			if m.Header().Get("Content-Type") != "application/x-odd; v=\"1\"" || m.Attempt != 1 || m.Source != "odd" {
				t.Errorf("message %d: %q, attempt %d, source %q", i, m.Header().Get("Content-Type"), m.Attempt, m.Source)
			}
			if !strings.HasPrefix(m.Query, "a=1") || strings.Contains(m.Query, "s3cret") {
				t.Errorf("query %q", m.Query)
			}
		}
	})
	t.Run("IN-08 a source without a handler keeps its messages", func(t *testing.T) {
		store := openStore(t)
		url := serveInbox(t, Config{Store: store, Sources: []Source{{Name: "later", Verify: NoVerification()}}})
		if status := push(t, url+"/in/later", "text/plain", []byte("x")); status != http.StatusOK {
			t.Fatalf("answered %d", status)
		}
		stats, err := store.Stats(t.Context())
		if err != nil || stats[0].Pending != 1 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}

func TestHandlerErrors(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		name string
		err  error
		want string // outcome, reason, wait
	}{
		{"IN-11 an error is retried after the backoff", boom, "retry error 1h0m0s"},
		{"IN-04 permanent fails at once", Permanent(boom), "failed permanent 0s"},
		{"IN-04 permanent is found behind other errors", fmt.Errorf("while handling: %w", Permanent(boom)), "failed permanent 0s"},
		{"IN-11 RetryAfter is a floor", RetryAfter(2*time.Hour, boom), "retry error 2h0m0s"},
		{"IN-11 RetryAfter below the backoff changes nothing", RetryAfter(time.Second, boom), "retry error 1h0m0s"},
		{"IN-04 Postpone gives the attempt back", Postpone(3 * time.Hour), "released  3h0m0s"},
		{"IN-11 what a target answered decides", &answered{}, "retry http_status 1h30m0s"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := make(chan Attempt, 1)
			url := serveInbox(t, Config{Store: openStore(t), Observe: func(a Attempt) { got <- a }, Sources: []Source{{
				Name: "s", Verify: NoVerification(), Consume: Consume{Backoff: []time.Duration{time.Hour}},
				Handler: HandlerFunc(func(context.Context, *Message) error { return test.err }),
			}}})
			push(t, url+"/in/s", "text/plain", []byte("x"))
			a := <-got
			if text := fmt.Sprintf("%s %s %s", a.Outcome, a.Reason, a.NextIn); text != test.want {
				t.Errorf("got %q, want %q", text, test.want)
			}
		})
	}
}

type answered struct{}

func (*answered) Error() string { return "target answered 503" }
func (*answered) Failure() (model.Reason, int, time.Duration, bool) {
	return model.ReasonHTTPStatus, 503, 90 * time.Minute, false
}

func TestLifecycle(t *testing.T) {
	t.Run("IN-02 after Stop a push is answered 503", func(t *testing.T) {
		box, err := Open(t.Context(), Config{Store: openStore(t), Sources: []Source{{Name: "s", Verify: NoVerification()}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := box.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(box)
		defer server.Close()
		box.Stop()
		box.Stop()
		if status := push(t, server.URL+"/in/s", "text/plain", []byte("x")); status != http.StatusServiceUnavailable {
			t.Errorf("answered %d", status)
		}
	})
	t.Run("many started and stopped at once leave nothing behind", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 8 {
			store := openStore(t)
			wg.Go(func() {
				box, err := Open(t.Context(), Config{Store: store, Sources: []Source{{
					Name: "s", Verify: NoVerification(), Handler: HandlerFunc(func(context.Context, *Message) error { return nil })}}})
				if err != nil {
					t.Error(err)
					return
				}
				wg.Go(box.Stop)
				if err := box.Start(t.Context()); err != nil && !errors.Is(err, ErrStopped) {
					t.Error(err)
				}
				box.Stop()
			})
		}
		wg.Wait()
	})
	t.Run("a wrong configuration names the field", func(t *testing.T) {
		store := openStore(t)
		for want, source := range map[string]Source{
			"Verify is missing":     {Name: "s"},
			"no Name":               {Verify: NoVerification()},
			"accept":                {Name: "s", Verify: NoVerification(), Accept: "body.("},
			"OrphanAfter":           {Name: "s", Verify: NoVerification(), Handler: HandlerFunc(nil), Consume: Consume{Timeout: time.Hour}},
			`source "s": verify`:    {Name: "s", Verify: Verification{Kind: "hmac"}},
			"dedup: 1:1: ":          {Name: "s", Verify: NoVerification(), Dedup: Dedup{Key: "nil"}},
			"Key is missing":        {Name: "s", Verify: NoVerification(), Consume: Consume{Order: Keyed}},
			"consume: key: 1:1: ":   {Name: "s", Verify: NoVerification(), Consume: Consume{Order: Keyed, Key: "nil"}},
			"Partitions is 257":     {Name: "s", Verify: NoVerification(), Consume: Consume{Order: Keyed, Key: "body.id", Partitions: 257}},
			"Block has no meaning":  {Name: "s", Verify: NoVerification(), Consume: Consume{Order: Parallel, Block: true}},
			"Order \"random\" is u": {Name: "s", Verify: NoVerification(), Handler: HandlerFunc(nil), Consume: Consume{Order: "random"}},
		} {
			_, err := Open(t.Context(), Config{Store: store, Sources: []Source{source}})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want something about %q", err, want)
			}
		}
	})
}
