// Package testdb answers one question for tests: which database may this test have to itself?
//
// Postgres, MariaDB and MySQL each make a new, empty database on the server that the environment names,
// and drop it when the test ends; PgBouncer does what Postgres does and leads there through a pgbouncer;
// SQLite names a file in the test's own folder. All return a store URL (postgres://…, mysql://…,
// sqlite:PATH), as a configuration would hold it. Redis is one for all: its tests keep apart by their keys.
//
// A missing server is a failure, never a skip: a database that was skipped is not a database that passed.
// Each function also asks the server what it is, so that a MariaDB cannot stand in for a MySQL, and logs
// the version. A test that has to stop the server itself takes Own: nobody else's tests run there.
package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
)

// The environment in which the tests run: `scripts/services env` prints it.
const (
	// EnvPostgres names the variable that holds the URL of a PostgreSQL on which databases may be made.
	EnvPostgres = "POSTHOUSE_TEST_POSTGRES"
	// EnvMariaDB does so for a MariaDB, in the form mysql://user:password@host:port/database.
	EnvMariaDB = "POSTHOUSE_TEST_MARIADB"
	// EnvMySQL does so for Oracle's MySQL, in the same form.
	EnvMySQL = "POSTHOUSE_TEST_MYSQL"
	// EnvPgBouncer names the variable that holds the URL of a pgbouncer through which every database of the
	// PostgreSQL can be reached, and whose console lets the same user in.
	EnvPgBouncer = "POSTHOUSE_TEST_PGBOUNCER"
	// EnvRedis does so for a Redis, in the form redis://host:port/number.
	EnvRedis = "POSTHOUSE_TEST_REDIS"
)

// patience bounds one statement of this package; creating and dropping a database writes to disk.
const patience = time.Minute

// Postgres makes a database on the PostgreSQL of the environment and returns its URL.
func Postgres(t testing.TB) string {
	t.Helper()
	return fresh(t, fromEnvironment(t, EnvPostgres), "PostgreSQL")
}

// MariaDB makes a database on the MariaDB of the environment and returns its URL.
func MariaDB(t testing.TB) string {
	t.Helper()
	return fresh(t, fromEnvironment(t, EnvMariaDB), "MariaDB")
}

// MySQL makes a database on the MySQL of the environment and returns its URL.
func MySQL(t testing.TB) string {
	t.Helper()
	return fresh(t, fromEnvironment(t, EnvMySQL), "MySQL")
}

// SQLite returns the URL of a database file that does not exist yet, in a folder that goes with the test.
func SQLite(t testing.TB) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "posthouse.db")
}

func fromEnvironment(t testing.TB, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: run `make test`, or `make services` and `eval \"$(scripts/services env)\"`", name)
	}
	return value
}

// fresh makes a database on the server at serverURL, which must be of the given make, and has it dropped
// when t ends.
func fresh(t testing.TB, serverURL, brand string) string {
	t.Helper()
	server, err := connect(serverURL)
	if err != nil {
		t.Fatalf("%s: %v", brand, err)
	}
	defer server.close(t)

	version, err := server.version()
	if err != nil {
		t.Fatalf("%s does not answer, is it started? %v", brand, err)
	}
	if got, _, _ := strings.Cut(version, " "); got != brand {
		t.Fatalf("a %s is needed, the environment names a server that is %s", brand, version)
	}
	t.Logf("database: %s", version)

	name := "t" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if err := server.exec(server.create, name); err != nil {
		t.Fatalf("%s: creating a database: %v", brand, err)
	}
	t.Cleanup(func() {
		// A connection of its own: the test may have restarted the server meanwhile.
		server, err := connect(serverURL)
		if err != nil {
			t.Errorf("%s: %v", brand, err)
			return
		}
		defer server.close(t)
		if err := server.exec(server.drop, name); err != nil {
			t.Errorf("%s: dropping the test's database: %v", brand, err)
		}
	})
	return server.urlOf(name)
}

// server is an administrator's connection to a database server.
type server struct {
	db           *sql.DB
	url          url.URL
	create, drop string // statements, %s is the name of a database
	versionQuery string // gives "BRAND VERSION …"
}

func connect(rawURL string) (*server, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("reading the server's URL: %w", err)
	}
	switch u.Scheme {
	case "postgres", "postgresql":
		db, err := sql.Open("pgx", rawURL)
		if err != nil {
			return nil, fmt.Errorf("opening the server's URL: %w", err)
		}
		return &server{
			db: db, url: *u,
			// template0, since nobody can be connected to it; FORCE, since a test may leave connections behind.
			create: "CREATE DATABASE %s TEMPLATE template0", drop: "DROP DATABASE IF EXISTS %s WITH (FORCE)",
			versionQuery: "SELECT 'PostgreSQL ' || current_setting('server_version')",
		}, nil
	case "mysql":
		c := mysql.NewConfig()
		c.Net, c.Addr, c.User = "tcp", u.Host, u.User.Username()
		c.Passwd, _ = u.User.Password()
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return nil, fmt.Errorf("opening the server's URL: %w", err)
		}
		return &server{
			db: sql.OpenDB(connector), url: *u,
			create: "CREATE DATABASE %s", drop: "DROP DATABASE IF EXISTS %s",
			versionQuery: "SELECT CONCAT(IF(VERSION() LIKE '%MariaDB%', 'MariaDB ', 'MySQL '), VERSION())",
		}, nil
	default:
		return nil, fmt.Errorf("the server's URL has the scheme %q: postgres or mysql is expected", u.Scheme)
	}
}

func (s *server) close(t testing.TB) {
	t.Helper()
	if err := s.db.Close(); err != nil {
		t.Errorf("closing the connection to the database server: %v", err)
	}
}

func (s *server) version() (version string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = s.db.QueryRowContext(ctx, s.versionQuery).Scan(&version)
	return version, err
}

// exec runs a statement in which a name of a database, made by this package, is put.
func (s *server) exec(format, database string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := s.db.ExecContext(ctx, fmt.Sprintf(format, database))
	return err
}

func (s *server) urlOf(database string) string {
	u := s.url
	u.Path = "/" + database
	return u.String()
}
