package inbox_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/inbox/mysql"
	"github.com/posthouse/posthouse/inbox/postgres"
	"github.com/posthouse/posthouse/internal/testdb"
)

// executed counts what handlers saw, by source and body, over all processes.
type executed struct {
	mu   sync.Mutex
	n    map[string]int
	last chan struct{} // one for each "last"
}

func (e *executed) Handle(_ context.Context, m *inbox.Message) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n[m.Source+" "+string(m.Body)]++
	if string(m.Body) == "last" {
		e.last <- struct{}{}
	}
	return nil
}

// pushWith pushes with headers, each a name and a value; 0: there was no answer.
func pushWith(t *testing.T, url, body string, header ...string) (status int) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0
	}
	r.Header.Set("X-List", "0")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// Twins are pushed over two inboxes, each with connections of its own, as two
// processes would have them.
func TestTwins(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (a, b store){
		"PostgreSQL": func(t *testing.T) (a, b store) {
			url := testdb.Postgres(t)
			s1, err := postgres.Open(t.Context(), postgres.Config{URL: url})
			a = opened(t, s1, err)
			s2, err := postgres.Open(t.Context(), postgres.Config{URL: url})
			return a, opened(t, s2, err)
		},
		"MariaDB": func(t *testing.T) (a, b store) {
			url := testdb.MariaDB(t)
			s1, err := mysql.Open(t.Context(), mysql.Config{URL: url})
			a = opened(t, s1, err)
			s2, err := mysql.Open(t.Context(), mysql.Config{URL: url})
			return a, opened(t, s2, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := open(t)
			if err := a.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			done := &executed{n: map[string]int{}, last: make(chan struct{}, 2)}
			source := func(name string) inbox.Source {
				return inbox.Source{
					Name: name, Verify: inbox.NoVerification(), Handler: done, AnswerWithin: 30 * time.Second,
					Dedup: inbox.Dedup{Key: `headers["X-List"] == "1" ? [headers["X-A"], headers["X-B"]] : headers["X-Id"]`},
				}
			}
			sources := []inbox.Source{source("orders"), source("bills")}
			doors := []string{serve(t, inbox.Config{Store: a, Sources: sources}), serve(t, inbox.Config{Store: b, Sources: sources})}

			var pushes sync.WaitGroup
			push := func(n int, source, body string, header ...string) {
				pushes.Go(func() {
					if status := pushWith(t, doors[n%2]+"/in/"+source, body, header...); status != http.StatusOK {
						t.Errorf("%s is answered %d", body, status)
					}
				})
			}
			for i := range 100 {
				push(i, "orders", "twin", "X-Id", "one")
			}
			for i := range 4 { // each twice
				push(i, "bills", "of another source", "X-Id", "one")
				push(i, "orders", "A:e", "X-Id", "A:e")
				push(i, "orders", "a:É", "X-Id", "a:É")
				push(i, "orders", "a,bc", "X-List", "1", "X-A", "a", "X-B", "bc")
				push(i, "orders", "ab,c", "X-List", "1", "X-A", "ab", "X-B", "c")
				push(i, "orders", fmt.Sprint("without a key ", i)) // no header: kept each time
			}
			pushes.Wait()
			push(0, "orders", "last", "X-Id", "last") // behind all others
			push(1, "bills", "last", "X-Id", "last")
			pushes.Wait()
			for range 2 {
				select {
				case <-done.last:
				case <-time.After(time.Minute):
					t.Fatal("not all are handled within a minute")
				}
			}
			want := map[string]int{
				"orders twin": 1, "bills of another source": 1, "orders A:e": 1, "orders a:É": 1, "orders a,bc": 1, "orders ab,c": 1,
				"orders without a key 0": 1, "orders without a key 1": 1, "orders without a key 2": 1, "orders without a key 3": 1,
				"orders last": 1, "bills last": 1,
			}
			done.mu.Lock()
			defer done.mu.Unlock()
			t.Run("IN-24 each is executed once", func(t *testing.T) {
				for what, n := range want {
					if done.n[what] != n {
						t.Errorf("%s: %d times", what, done.n[what])
					}
				}
				if len(done.n) != len(want) {
					t.Errorf("executed are %v", done.n)
				}
			})
			t.Run("IN-24 each is one row", func(t *testing.T) {
				stats, err := b.Stats(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				rows := map[string]int64{}
				for _, s := range stats {
					rows[s.Source.Name] = s.Pending + s.Retrying + s.Processing + s.Success + s.Failed
				}
				if rows["orders"] != 10 || rows["bills"] != 2 {
					t.Errorf("rows are %v", rows)
				}
			})
		})
	}
}
