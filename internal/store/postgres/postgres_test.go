package postgres

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/posthouse/posthouse/internal/store/storetest"
	"github.com/posthouse/posthouse/internal/testdb"
)

var (
	_ storetest.Store         = (*Store)(nil)
	_ storetest.Notifications = (*Store)(nil)
	_ storetest.Signals       = (*Store)(nil)
)

func harness(database func(testing.TB) string) storetest.Harness {
	return storetest.Harness{
		Engine: "PostgreSQL",
		Version: func(t *testing.T, s storetest.Store) string {
			var version string
			if err := other(t, s.(*Store)).QueryRow("SELECT version()").Scan(&version); err != nil {
				t.Fatal(err)
			}
			return version
		},
		Open: func(t *testing.T) storetest.Store {
			s := open(t, Config{URL: database(t)})
			migrated(t, s)
			return s
		},
		OpenEmpty: func(t *testing.T) storetest.Store { return open(t, Config{URL: database(t)}) },
		Again: func(t *testing.T, s storetest.Store) storetest.Store {
			return open(t, Config{URL: s.(*Store).pool.Config().ConnString()})
		},
		DB: func(t *testing.T, s storetest.Store) *sql.DB { return other(t, s.(*Store)) },
		Lock: func(t *testing.T, s storetest.Store) func() {
			tx, err := other(t, s.(*Store)).Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("LOCK TABLE posthouse_message IN ACCESS EXCLUSIVE MODE"); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := tx.Rollback(); err != nil {
					t.Error(err)
				}
			}
		},
	}
}

func TestStore(t *testing.T) { storetest.Run(t, harness(testdb.Postgres)) }

func TestNotifications(t *testing.T) { storetest.RunNotifications(t, harness(testdb.Postgres)) }

func TestNotificationsBehindAPooler(t *testing.T) {
	onlyInFull(t)
	storetest.RunNotifications(t, harness(testdb.PgBouncer))
}

// TestStoreBehindAPooler is the same suite through a pgbouncer that gives each
// transaction another connection of the server.
func TestStoreBehindAPooler(t *testing.T) {
	onlyInFull(t)
	h := harness(testdb.PgBouncer)
	h.FewHistories = true
	storetest.Run(t, h)
}

// onlyInFull leaves the suite behind the pooler out with -short: the short form
// looks for races in this package. The little that only runs behind a pooler is
// what TestPooler, TestClaimTakesWhatWasMovedMeanwhile and the tests of signals
// go through there, too, in both forms.
func onlyInFull(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("in full only: the same Go code runs without a pooler")
	}
}

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg)
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

func migrated(t testing.TB, s *Store) {
	t.Helper()
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// other connects to the same database, as another program does.
func other(t testing.TB, s *Store) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", s.pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

var _ = stdlib.GetDefaultDriver // registers "pgx"
