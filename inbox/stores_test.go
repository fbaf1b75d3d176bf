package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/inbox/mysql"
	"github.com/posthouse/posthouse/inbox/postgres"
	"github.com/posthouse/posthouse/inbox/sqlite"
	"github.com/posthouse/posthouse/internal/testdb"
)

// store is what the packages below have in common.
type store interface {
	inbox.Store
	Migrate(ctx context.Context) error
	Close() error
}

func opened[S store](t *testing.T, s S, err error) store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openSQLite(t *testing.T) store {
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: strings.TrimPrefix(testdb.SQLite(t), "sqlite:")})
	return opened(t, s, err)
}

func openPostgres(t *testing.T) store {
	s, err := postgres.Open(t.Context(), postgres.Config{URL: testdb.Postgres(t)})
	return opened(t, s, err)
}

func openMySQL(url func(testing.TB) string) func(t *testing.T) store {
	return func(t *testing.T) store {
		s, err := mysql.Open(t.Context(), mysql.Config{URL: url(t)})
		return opened(t, s, err)
	}
}

func TestPublicStores(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) store{
		"SQLite": openSQLite, "PostgreSQL": openPostgres, "MariaDB": openMySQL(testdb.MariaDB), "MySQL": openMySQL(testdb.MySQL),
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			got := make(chan string, 1)
			cfg := inbox.Config{Store: s, Sources: []inbox.Source{{
				Name: "orders", Verify: inbox.NoVerification(),
				Handler: inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) error { got <- string(m.Body); return nil }),
			}}}
			t.Run("without its tables it is refused", func(t *testing.T) {
				if _, err := inbox.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "check the store") {
					t.Fatalf("got %v", err)
				}
			})
			t.Run("IN-01 IN-25 with them it keeps a push, and has it handled", func(t *testing.T) {
				for range 2 {
					if err := s.Migrate(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if status := push(t, serve(t, cfg)+"/in/orders", "7"); status != http.StatusOK {
					t.Fatalf("answered %d", status)
				}
				if body := <-got; body != "7" {
					t.Errorf("handled %q", body)
				}
			})
		})
	}
}

func TestUnsafeStore(t *testing.T) {
	server := testdb.Own(t, "postgres")
	db, err := sql.Open("pgx", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), "ALTER SYSTEM SET fsync = off"); err != nil {
		t.Fatal(err)
	}
	server.Stop(t)
	server.Start(t)
	open := func(t *testing.T, allow bool) store {
		s, err := postgres.Open(t.Context(), postgres.Config{URL: server.URL, AllowUnsafe: allow})
		return opened(t, s, err)
	}
	cfg := inbox.Config{Sources: []inbox.Source{{Name: "orders", Verify: inbox.NoVerification()}}}
	t.Run("IN-01 settings that lose acknowledged pushes are refused", func(t *testing.T) {
		s := open(t, false)
		if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "fsync is off") {
			t.Errorf("Migrate: %v", err)
		}
		cfg.Store = s
		if _, err := inbox.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "fsync is off") {
			t.Errorf("Open, the tables being there: %v", err)
		}
	})
	t.Run("IN-01 unless they are allowed", func(t *testing.T) {
		s := open(t, true)
		if err := s.Migrate(t.Context()); err != nil {
			t.Error(err)
		}
		cfg.Store = s
		if _, err := inbox.Open(t.Context(), cfg); err != nil {
			t.Error(err)
		}
	})
}

func TestRejects(t *testing.T) {
	s := openSQLite(t)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	box, server := serveBox(t, inbox.Config{Store: s, Sources: []inbox.Source{
		{Name: "orders", Verify: inbox.NoVerification(), Accept: "body.wanted", Acknowledge: inbox.Acknowledge{Status: 202}},
	}})
	push(t, server+"/in/orders", `{"wanted":false}`)
	push(t, server+"/in/odrers", `{"wanted":true}`)
	ignored := cmpopts.IgnoreFields(inbox.Reject{}, "Time", "Cause", "Sample", "ContentType")
	t.Run("what was not kept is told", func(t *testing.T) {
		got := box.Rejects("orders")
		if diff := cmp.Diff([]inbox.Reject{{Kind: inbox.RejectNotKept, Status: 202, Size: 16}}, got, ignored); diff != "" {
			t.Fatal(diff)
		}
		if got[0].Time.IsZero() || got[0].Cause == "" || got[0].Sample != `{"wanted":false}` || got[0].ContentType != "application/json" {
			t.Errorf("%+v", got[0])
		}
	})
	t.Run("and what was pushed to a name that is no source", func(t *testing.T) {
		got := box.Rejects("")
		if diff := cmp.Diff([]inbox.Reject{{Kind: inbox.RejectRefused, Status: 404, Name: "odrers"}}, got, ignored, cmpopts.IgnoreFields(inbox.Reject{}, "Size")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a name that is no source has no list", func(t *testing.T) {
		if got := box.Rejects("odrers"); got != nil {
			t.Errorf("got %+v", got)
		}
	})
}

func TestOneRegistryTakesOneInbox(t *testing.T) {
	s := openSQLite(t)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg := inbox.Config{Store: s, Registerer: prometheus.NewRegistry(), Sources: []inbox.Source{{Name: "orders", Verify: inbox.NoVerification()}}}
	if _, err := inbox.Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	var already prometheus.AlreadyRegisteredError
	if _, err := inbox.Open(t.Context(), cfg); !errors.As(err, &already) {
		t.Errorf("the second Open returned %v", err)
	}
}

func serve(t *testing.T, cfg inbox.Config) (url string) {
	t.Helper()
	_, url = serveBox(t, cfg)
	return url
}

// serveBox runs an inbox behind a real server until the test ends.
func serveBox(t *testing.T, cfg inbox.Config) (box *inbox.Inbox, url string) {
	t.Helper()
	box, err := inbox.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(box)
	t.Cleanup(func() {
		server.Close()
		box.Stop()
	})
	return box, server.URL
}

func push(t *testing.T, url, body string) int {
	t.Helper()
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}
