package running

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "modernc.org/sqlite"             // registers "sqlite"

	"github.com/posthouse/posthouse/internal/testdb"
)

// Engine is a database that is tested.
type Engine struct {
	Name  string
	Fresh func(testing.TB) string // makes a new one and returns its store URL
	Own   string                  // how testdb.Own calls one that may be stopped; empty: it is no process of its own
}

// Engines are all that there are.
var Engines = []Engine{
	{"SQLite", testdb.SQLite, ""},
	{"PostgreSQL", testdb.Postgres, "postgres"},
	{"MariaDB", testdb.MariaDB, "mariadb"},
	{"MySQL", testdb.MySQL, "mysql"},
}

// OnEachEngine runs a subtest on each of some databases, all at the same time, since
// they mostly wait. Tests that call it run one after the other: some measure
// how long an answer takes.
func OnEachEngine(t *testing.T, ids string, on []Engine, test func(t *testing.T, e Engine)) {
	t.Helper()
	for _, e := range on {
		t.Run(ids+" "+e.Name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// Database looks into the store past the servers.
type Database struct{ *sql.DB }

// Inspect opens the store that a URL names, as a reader, for the time of look.
// A mere reader does not tidy SQLite's write-ahead log when it leaves: the next
// server finds exactly what the killed one left.
func Inspect(storeURL string, look func(*Database) error) error {
	db, err := Open(storeURL, "mode=ro")
	if err != nil {
		return err
	}
	return errors.Join(look(&Database{db}), db.Close())
}

// Open opens what a store URL names; sqlite are parameters for SQLite.
func Open(storeURL, sqlite string) (*sql.DB, error) {
	switch scheme, rest, _ := strings.Cut(storeURL, ":"); scheme {
	case "sqlite":
		return sql.Open("sqlite", "file:"+rest+"?"+sqlite)
	case "postgres":
		return sql.Open("pgx", storeURL)
	case "mysql":
		return openMySQL(storeURL)
	default:
		return nil, fmt.Errorf("no such database: %s", scheme)
	}
}

func openMySQL(storeURL string) (*sql.DB, error) {
	u, err := url.Parse(storeURL)
	if err != nil {
		return nil, fmt.Errorf("reading the store's URL: %w", err)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("opening the store's URL: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// Claimed is one claim of one message.
type Claimed struct{ seq, token int64 }

// InFlight adds to set what was started and is not settled. Asked between a
// kill and the next start, that is what the kill may have cut short.
func (d *Database) InFlight(ctx context.Context, set map[Claimed]bool) error {
	// State 1 is processing.
	return d.claimed(ctx, "state = 1 AND started_at > 0", set)
}

// InFlightOf does so for one of several instances: that of the process pid.
func (d *Database) InFlightOf(ctx context.Context, pid int, set map[Claimed]bool) error {
	where := fmt.Sprintf("state = 1 AND started_at > 0 AND owner IN (SELECT id FROM posthouse_instance WHERE name LIKE '%%-%d')", pid)
	return d.claimed(ctx, where, set)
}

func (d *Database) claimed(ctx context.Context, where string, set map[Claimed]bool) error {
	rows, err := d.QueryContext(ctx, "SELECT seq, token FROM posthouse_work WHERE "+where)
	if err != nil {
		return fmt.Errorf("counting what is in flight: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var c Claimed
		if err := rows.Scan(&c.seq, &c.token); err != nil {
			return fmt.Errorf("counting what is in flight: %w", err)
		}
		set[c] = true
	}
	return rows.Err()
}

// LargestClaim returns how many messages of one source are processing under
// one token, at most.
func (d *Database) LargestClaim(ctx context.Context, source string) (most int, err error) {
	rows, err := d.QueryContext(ctx, "SELECT s.name, w.token FROM posthouse_work w JOIN posthouse_source s ON s.id = w.queue WHERE w.state = 1")
	if err != nil {
		return 0, fmt.Errorf("reading claims: %w", err)
	}
	defer rows.Close()
	sizes := map[int64]int{}
	for rows.Next() {
		var name string
		var token int64
		if err := rows.Scan(&name, &token); err != nil {
			return 0, fmt.Errorf("reading claims: %w", err)
		}
		if name == source {
			sizes[token]++
			most = max(most, sizes[token])
		}
	}
	return most, rows.Err()
}

// Kept is a message as the store holds it.
type Kept struct {
	Source     string
	Status     string // as people read it
	RetryCount int
	Number     int   // of the load's message
	Fault      error // what is wrong with the body
}

// Messages reads every message that the store holds.
func (d *Database) Messages(ctx context.Context, w Writing) (map[uuid.UUID]Kept, error) {
	all := map[uuid.UUID]Kept{}
	rows, err := d.QueryContext(ctx, "SELECT id, source, process_status, retry_count FROM posthouse_message_log")
	if err != nil {
		return nil, fmt.Errorf("reading the message log: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		var k Kept
		var status sql.NullString
		var retries sql.NullInt64
		if err := rows.Scan(&id, &k.Source, &status, &retries); err != nil {
			return nil, fmt.Errorf("reading the message log: %w", err)
		}
		k.Status, k.RetryCount = status.String, int(retries.Int64)
		all[id] = k
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("reading the message log: %w", err)
	}
	return all, d.bodies(ctx, w, all)
}

func (d *Database) bodies(ctx context.Context, w Writing, all map[uuid.UUID]Kept) error {
	rows, err := d.QueryContext(ctx, "SELECT id, body FROM posthouse_message")
	if err != nil {
		return fmt.Errorf("reading the messages: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		var body []byte
		if err := rows.Scan(&id, &body); err != nil {
			return fmt.Errorf("reading the messages: %w", err)
		}
		k, ok := all[id]
		if !ok {
			return fmt.Errorf("message %s is not in the message log", id)
		}
		k.Number, k.Fault = w.Number(body)
		all[id] = k
	}
	return rows.Err()
}

// locks are, by the scheme of the store's URL, how tables are locked against
// everybody, and let go.
var locks = map[string]struct {
	begin, table, between, end string
	release                    string
}{
	"sqlite":   {begin: "BEGIN EXCLUSIVE", release: "ROLLBACK"},
	"postgres": {begin: "BEGIN; LOCK TABLE ", table: "%s", between: ", ", end: " IN ACCESS EXCLUSIVE MODE", release: "ROLLBACK"},
	"mysql":    {begin: "LOCK TABLES ", table: "%s WRITE", between: ", ", release: "UNLOCK TABLES"},
}

// LockTables returns when it has the lock on the tables (SQLite: on all);
// release lets it go.
func LockTables(ctx context.Context, storeURL string, tables ...string) (release func() error, err error) {
	scheme, _, _ := strings.Cut(storeURL, ":")
	lock := locks[scheme]
	var names []string
	for _, table := range tables {
		if lock.table != "" {
			names = append(names, fmt.Sprintf(lock.table, table))
		}
	}
	db, err := Open(storeURL, "_pragma=busy_timeout(20000)")
	if err != nil {
		return nil, err
	}
	session, err := db.Conn(ctx) // a lock belongs to one
	if err != nil {
		return nil, errors.Join(fmt.Errorf("a session that locks: %w", err), db.Close())
	}
	for statement := range strings.SplitSeq(lock.begin+strings.Join(names, lock.between)+lock.end, "; ") {
		if _, err := session.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", statement, err), session.Close(), db.Close())
		}
	}
	return func() error {
		_, err := session.ExecContext(context.Background(), lock.release)
		return errors.Join(err, session.Close(), db.Close())
	}, nil
}
