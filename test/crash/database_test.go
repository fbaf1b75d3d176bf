package crash

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

// engine is a database that is tested.
type engine struct {
	name  string
	fresh func(testing.TB) string // makes a new one and returns its store URL
	own   string                  // how testdb.Own calls one that may be stopped; empty: it is no process of its own
}

var engines = []engine{
	{"SQLite", testdb.SQLite, ""},
	{"PostgreSQL", testdb.Postgres, "postgres"},
	{"MariaDB", testdb.MariaDB, "mariadb"},
	{"MySQL", testdb.MySQL, "mysql"},
}

// onEachEngine runs a subtest on each of some databases, all at the same time, since
// they mostly wait. Tests that call it run one after the other: some measure
// how long an answer takes.
func onEachEngine(t *testing.T, ids string, on []engine, test func(t *testing.T, e engine)) {
	t.Helper()
	for _, e := range on {
		t.Run(ids+" "+e.name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// inEachOrder does the same for each order on every database.
func inEachOrder(t *testing.T, ids string, test func(t *testing.T, e engine, order string)) {
	t.Helper()
	onEachEngine(t, ids, engines, func(t *testing.T, e engine) {
		for _, order := range []string{"serial", "parallel"} {
			t.Run(order, func(t *testing.T) {
				t.Parallel()
				test(t, e, order)
			})
		}
	})
}

// database looks into the store past the server.
type database struct{ *sql.DB }

// inspect opens the store that a URL names, as a reader, for the time of look.
// A mere reader does not tidy SQLite's write-ahead log when it leaves: the next
// server finds exactly what the killed one left.
func inspect(storeURL string, look func(*database) error) error {
	db, err := open(storeURL, "mode=ro")
	if err != nil {
		return err
	}
	return errors.Join(look(&database{db}), db.Close())
}

// open opens what a store URL names; sqlite are parameters for SQLite.
func open(storeURL, sqlite string) (*sql.DB, error) {
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

// claimed is one claim of one message.
type claimed struct{ seq, token int64 }

// inFlight adds to set what was started and is not settled. Asked between a
// kill and the next start, that is what the kill may have cut short.
func (d *database) inFlight(ctx context.Context, set map[claimed]bool) error {
	// State 1 is processing.
	rows, err := d.QueryContext(ctx, "SELECT seq, token FROM posthouse_work WHERE state = 1 AND started_at > 0")
	if err != nil {
		return fmt.Errorf("counting what is in flight: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var c claimed
		if err := rows.Scan(&c.seq, &c.token); err != nil {
			return fmt.Errorf("counting what is in flight: %w", err)
		}
		set[c] = true
	}
	return rows.Err()
}

// largestClaim returns how many messages of one source are processing under
// one token, at most.
func (d *database) largestClaim(ctx context.Context, source string) (most int, err error) {
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

// kept is a message as the store holds it.
type kept struct {
	source string
	status string // as people read it
	number int    // of the load's message
	fault  error  // what is wrong with the body
}

// messages reads every message that the store holds.
func (d *database) messages(ctx context.Context) (map[uuid.UUID]kept, error) {
	all := map[uuid.UUID]kept{}
	rows, err := d.QueryContext(ctx, "SELECT id, source, process_status FROM posthouse_message_log")
	if err != nil {
		return nil, fmt.Errorf("reading the message log: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		var k kept
		var status sql.NullString
		if err := rows.Scan(&id, &k.source, &status); err != nil {
			return nil, fmt.Errorf("reading the message log: %w", err)
		}
		k.status = status.String
		all[id] = k
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("reading the message log: %w", err)
	}
	return all, d.bodies(ctx, all)
}

func (d *database) bodies(ctx context.Context, all map[uuid.UUID]kept) error {
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
		k.number, k.fault = numberOf(body)
		all[id] = k
	}
	return rows.Err()
}

// locks are, by the scheme of the store's URL, the statements that lock the
// message table against everybody, and the one that lets it go.
var locks = map[string]struct {
	take    []string
	release string
}{
	"sqlite":   {[]string{"BEGIN EXCLUSIVE"}, "ROLLBACK"},
	"postgres": {[]string{"BEGIN", "LOCK TABLE posthouse_message IN ACCESS EXCLUSIVE MODE"}, "ROLLBACK"},
	"mysql":    {[]string{"LOCK TABLES posthouse_message WRITE"}, "UNLOCK TABLES"},
}

// lockMessages returns when it has the lock; release lets it go.
func lockMessages(ctx context.Context, storeURL string) (release func() error, err error) {
	scheme, _, _ := strings.Cut(storeURL, ":")
	lock := locks[scheme]
	db, err := open(storeURL, "_pragma=busy_timeout(20000)")
	if err != nil {
		return nil, err
	}
	session, err := db.Conn(ctx) // a lock belongs to one
	if err != nil {
		return nil, errors.Join(fmt.Errorf("a session that locks: %w", err), db.Close())
	}
	for _, statement := range lock.take {
		if _, err := session.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", statement, err), session.Close(), db.Close())
		}
	}
	return func() error {
		_, err := session.ExecContext(context.Background(), lock.release)
		return errors.Join(err, session.Close(), db.Close())
	}, nil
}
