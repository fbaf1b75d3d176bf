package testdb_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/rueidis"

	"github.com/posthouse/posthouse/internal/testdb"
)

var servers = []struct {
	name, env string
	fresh     func(testing.TB) string
}{
	{"postgres", testdb.EnvPostgres, testdb.Postgres},
	{"mariadb", testdb.EnvMariaDB, testdb.MariaDB},
	{"mysql", testdb.EnvMySQL, testdb.MySQL},
	{"pgbouncer", testdb.EnvPgBouncer, testdb.PgBouncer},
}

func TestEveryTestGetsADatabaseOfItsOwn(t *testing.T) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			var first, second string
			t.Run("while the test runs", func(t *testing.T) {
				first, second = s.fresh(t), s.fresh(t)
				if first == second {
					t.Fatal("two calls gave the same database")
				}
				for _, u := range []string{first, second} { // the same table in both: they are apart
					if _, err := open(t, u).Exec("CREATE TABLE a (b INT)"); err != nil {
						t.Fatal(err)
					}
				}
			})
			// A pgbouncer lets whoever asks for an unknown database wait for two minutes.
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := open(t, first).PingContext(ctx); err == nil {
				t.Error("the database is still there after its test has ended")
			}
		})
	}
}

func TestSQLiteFilesAreApart(t *testing.T) {
	if a, b := testdb.SQLite(t), testdb.SQLite(t); a == b || !strings.HasPrefix(a, "sqlite:/") {
		t.Errorf("got %q and %q", a, b)
	}
}

// A helper that fails its test is tested from outside: this test binary runs itself.
func TestAMissingOrWrongServerFailsTheTest(t *testing.T) {
	if only := os.Getenv("TESTDB_CHILD"); only != "" {
		for _, s := range servers {
			if s.name == only {
				s.fresh(t)
			}
		}
		if only == "redis" {
			testdb.Redis(t)
		}
		return
	}
	cases := []struct{ name, server, value, want string }{
		{"unset postgres", "postgres", "", "POSTHOUSE_TEST_POSTGRES is not set: run `make test`"},
		{"unset mariadb", "mariadb", "", "POSTHOUSE_TEST_MARIADB is not set: run `make test`"},
		{"unset mysql", "mysql", "", "POSTHOUSE_TEST_MYSQL is not set: run `make test`"},
		{"unset pgbouncer", "pgbouncer", "", "POSTHOUSE_TEST_PGBOUNCER is not set: run `make test`"},
		{"unset redis", "redis", "", "POSTHOUSE_TEST_REDIS is not set: run `make test`"},
		{"no Redis listens", "redis", "redis://127.0.0.1:1/0", "Redis does not answer"},
		{"a PostgreSQL for pgbouncer", "pgbouncer", os.Getenv(testdb.EnvPostgres), "a pgbouncer is needed"},
		{"nobody listens", "postgres", "postgres://a:b@127.0.0.1:1/c", "does not answer"},
		{"a MariaDB for MySQL", "mysql", os.Getenv(testdb.EnvMariaDB), "a MySQL is needed"},
		{"a MySQL for MariaDB", "mariadb", os.Getenv(testdb.EnvMySQL), "a MariaDB is needed"},
		{"another scheme", "mysql", "http://127.0.0.1", "postgres or mysql is expected"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^"+"TestAMissingOrWrongServerFailsTheTest$")
			cmd.Env = append(os.Environ(), "TESTDB_CHILD="+c.server, "POSTHOUSE_TEST_"+strings.ToUpper(c.server)+"="+c.value)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("want a failure that says %q, got %v:\n%s", c.want, err, out)
			}
		})
	}
}

func TestAnOwnServerStopsAndStartsWithItsData(t *testing.T) {
	t.Parallel()
	for _, s := range servers {
		if s.name == "pgbouncer" {
			continue // it has no data
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			own := testdb.Own(t, s.name)
			if shared := os.Getenv(s.env); own.URL == shared {
				t.Fatal("the shared server was given away")
			}
			db := open(t, own.URL)
			if _, err := db.Exec("CREATE TABLE kept (n INT)"); err != nil {
				t.Fatal(err)
			}
			own.Stop(t)
			if err := open(t, own.URL).Ping(); err == nil {
				t.Error("the server answers although it was stopped")
			}
			own.Start(t)
			if _, err := open(t, own.URL).Exec("INSERT INTO kept VALUES (1)"); err != nil {
				t.Errorf("after the start: %v", err)
			}
		})
	}
}

func TestThroughPgBouncerATransactionIsAllThatAClientHas(t *testing.T) {
	db := open(t, testdb.PgBouncer(t))
	// A parameter at startup is refused: whatever is set so would be another client's, too.
	u, err := url.Parse(testdb.PgBouncer(t))
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery += "&search_path=elsewhere"
	if err := open(t, u.String()).Ping(); err == nil || !strings.Contains(err.Error(), "search_path") {
		t.Errorf("a startup parameter: got %v", err)
	}
	// One connection of the server serves two of ours: no connection is anybody's own.
	process := func() (pid int) {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // only now: the next call gets another one
		if err := c.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	if a, b := process(), process(); a != b {
		t.Errorf("two clients were served by the processes %d and %d: this pools no transactions", a, b)
	}
}

func TestAnOwnRedisStopsStartsAndIsWiped(t *testing.T) {
	t.Parallel()
	own := testdb.Own(t, "redis")
	if own.URL == os.Getenv(testdb.EnvRedis) {
		t.Fatal("the shared Redis was given away")
	}
	option := rueidis.MustParseURL(own.URL)
	option.DisableCache, option.ForceSingleClient = true, true
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	get := func() (string, error) {
		return client.Do(t.Context(), client.B().Get().Key("kept").Build()).ToString()
	}
	if err := client.Do(t.Context(), client.B().Set().Key("kept").Value("yes").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	own.Stop(t)
	if c, err := rueidis.NewClient(option); err == nil {
		c.Close()
		t.Error("Redis answers although it was stopped")
	}
	own.Start(t)
	if got, err := get(); err != nil || got != "yes" {
		t.Errorf("after the start: got %q, %v", got, err)
	}
	own.Wipe(t)
	if got, err := get(); !rueidis.IsRedisNil(err) {
		t.Errorf("after wiping: got %q, %v", got, err)
	}
}

func open(t *testing.T, rawURL string) *sql.DB {
	t.Helper()
	driver, dsn := "pgx", rawURL
	if u, err := url.Parse(rawURL); err != nil {
		t.Fatal(err)
	} else if u.Scheme == "mysql" {
		driver = "mysql"
		dsn = fmt.Sprintf("%s@tcp(%s)%s", u.User, u.Host, u.Path)
		if _, err := mysql.ParseDSN(dsn); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}
