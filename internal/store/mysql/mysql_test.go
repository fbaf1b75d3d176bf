package mysql

import (
	"context"
	"database/sql"
	"testing"

	"github.com/posthouse/posthouse/internal/store/storetest"
	"github.com/posthouse/posthouse/internal/testdb"
)

var (
	_ storetest.Store         = (*Store)(nil)
	_ storetest.Notifications = (*Store)(nil)
)

// engine is one of the two products.
type engine struct {
	name  string
	fresh func(testing.TB) string
}

var (
	mariaDB = engine{"MariaDB", testdb.MariaDB}
	mySQL   = engine{"MySQL", testdb.MySQL}
	engines = []engine{mariaDB, mySQL}
)

// urls remembers where a store is.
type opened struct {
	*Store
	url string
}

func (e engine) harness() storetest.Harness {
	empty := func(t *testing.T) storetest.Store {
		url := e.fresh(t)
		return opened{open(t, Config{URL: url}), url}
	}
	return storetest.Harness{
		Engine: e.name,
		Version: func(t *testing.T, s storetest.Store) string {
			var version string
			// MySQL's version does not name it, MariaDB's does.
			err := other(t, s.(opened).url).QueryRow("SELECT concat(if(version() LIKE '%MariaDB%', '', 'MySQL '), version())").Scan(&version)
			if err != nil {
				t.Fatal(err)
			}
			return version
		},
		Open: func(t *testing.T) storetest.Store {
			s := empty(t)
			migrated(t, s.(opened).Store)
			return s
		},
		OpenEmpty: empty,
		Again: func(t *testing.T, s storetest.Store) storetest.Store {
			url := s.(opened).url
			return opened{open(t, Config{URL: url}), url}
		},
		DB: func(t *testing.T, s storetest.Store) *sql.DB { return other(t, s.(opened).url) },
		Lock: func(t *testing.T, s storetest.Store) func() {
			conn, err := other(t, s.(opened).url).Conn(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.ExecContext(t.Context(), "LOCK TABLES posthouse_message WRITE"); err != nil {
				t.Fatal(err)
			}
			return func() {
				if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
					t.Error(err)
				}
				_ = conn.Close()
			}
		},
	}
}

func TestMariaDB(t *testing.T) { storetest.Run(t, mariaDB.harness()) }

func TestMySQL(t *testing.T) {
	onlyInFull(t)
	storetest.Run(t, mySQL.harness())
}

func TestNotificationsOnMariaDB(t *testing.T) { storetest.RunNotifications(t, mariaDB.harness()) }

func TestNotificationsOnMySQL(t *testing.T) {
	onlyInFull(t)
	storetest.RunNotifications(t, mySQL.harness())
}

// onlyInFull leaves MySQL out with -short: the short form looks for races in
// this package, and its code is the same for both products. Statements differ
// by what a server answers, which is proven in full.
func onlyInFull(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("in full only: the same Go code runs on MariaDB")
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
func other(t testing.TB, url string) *sql.DB {
	t.Helper()
	config, err := driverConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
