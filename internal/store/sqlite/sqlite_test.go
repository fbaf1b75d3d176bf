package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/posthouse/posthouse/internal/store/storetest"
)

var _ storetest.Store = (*Store)(nil)

func harness() storetest.Harness {
	return storetest.Harness{
		Engine: "SQLite",
		Version: func(t *testing.T, s storetest.Store) string {
			var version string
			if err := s.(*Store).readers.QueryRow("SELECT sqlite_version()").Scan(&version); err != nil {
				t.Fatal(err)
			}
			return "SQLite " + version
		},
		Open: func(t *testing.T) storetest.Store {
			s := open(t, Config{Path: filepath.Join(t.TempDir(), "posthouse.db")})
			migrated(t, s)
			return s
		},
		OpenEmpty: func(t *testing.T) storetest.Store {
			return open(t, Config{Path: filepath.Join(t.TempDir(), "posthouse.db")})
		},
		Again: func(t *testing.T, s storetest.Store) storetest.Store {
			return open(t, s.(*Store).cfg)
		},
		DB: func(t *testing.T, s storetest.Store) *sql.DB {
			return other(t, s.(*Store))
		},
		Lock: func(t *testing.T, s storetest.Store) func() {
			db := other(t, s.(*Store))
			if _, err := db.Exec("BEGIN EXCLUSIVE"); err != nil {
				t.Fatal(err)
			}
			return func() {
				if _, err := db.Exec("ROLLBACK"); err != nil {
					t.Error(err)
				}
			}
		},
	}
}

func TestStore(t *testing.T) { storetest.Run(t, harness()) }

func TestNotifications(t *testing.T) { storetest.RunNotifications(t, harness()) }

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
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

func migrated(t *testing.T, s *Store) {
	t.Helper()
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// other is one connection to the same file, as another process has it.
func other(t *testing.T, s *Store) *sql.DB {
	t.Helper()
	db := pool(s.cfg.Path, readWrite, 1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
