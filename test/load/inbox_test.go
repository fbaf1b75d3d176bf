package load

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/inbox/postgres"
)

const (
	only     = "only"          // the name of the one source
	pushers  = 64              // pushes at once
	patience = 2 * time.Minute // for which a test waits for what should take seconds
)

// process is an inbox with one source on a PostgreSQL, inside of this process:
// its handler does nothing but count.
type process struct {
	t       *testing.T
	store   *postgres.Store
	box     *inbox.Inbox
	handled atomic.Int64
	one     chan struct{} // something was handled
}

func openInbox(t *testing.T, url string, consume inbox.Consume) *process {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, store: store, one: make(chan struct{}, 1)}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.box, err = inbox.Open(t.Context(), inbox.Config{Store: store, Lease: 5 * time.Second, Sources: []inbox.Source{{
		Name: only, Verify: inbox.NoVerification(), InFlight: 2 * pushers, AnswerWithin: 20 * time.Second, Consume: consume,
		Handler: inbox.HandlerFunc(func(context.Context, *inbox.Message) error {
			p.handled.Add(1)
			select {
			case p.one <- struct{}{}:
			default:
			}
			return nil
		}),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.box.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) close() {
	p.box.Stop()
	if err := p.store.Close(); err != nil {
		p.t.Error(err)
	}
}

// push pushes n messages and waits until all are acknowledged.
func (p *process) push(n int, body func(i int) string) {
	p.t.Helper()
	var next, refused atomic.Int64
	var wg sync.WaitGroup
	for range pushers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				answer := httptest.NewRecorder()
				request := httptest.NewRequestWithContext(p.t.Context(), http.MethodPost, "/in/"+only, strings.NewReader(body(int(i))))
				request.Header.Set("Content-Type", "application/json")
				if p.box.ServeHTTP(answer, request); answer.Code != http.StatusOK {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := refused.Load(); n > 0 {
		p.t.Fatalf("%d pushes were refused", n)
	}
}

// wait waits until n messages were handled.
func (p *process) wait(n int) {
	p.t.Helper()
	deadline := time.After(patience)
	for p.handled.Load() < int64(n) {
		select {
		case <-p.one:
		case <-deadline:
			p.t.Fatalf("%d messages of %d were handled in %v", p.handled.Load(), n, patience)
		}
	}
}
