// Package postgres keeps everything in one PostgreSQL database, for any number
// of processes.
//
// Nearly every call is one statement in one round trip. Statements are written
// so that no plan that PostgreSQL may hold on to is a bad one, however the
// tables grow: rows are found by an index, never by what the statistics say.
//
// The clock is the database's. Only the pool's own upkeep runs in the
// background. A call whose context ends asks the server to cancel the statement
// and waits a moment for its answer; where none comes the connection is given
// up, and whether the call took effect is unknown.
//
// Behind a pooler that gives each transaction another connection of the server
// (default_query_exec_mode=exec in the URL) nothing is left on a connection, no
// prepared statement and no setting, and nobody is asked to cancel: the server
// is told beforehand how long a call may take.
package postgres

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse/posthouse/internal/model"
)

// Config says which database, and how it is used.
type Config struct {
	// URL is postgres://user:password@host:port/database?…, with the
	// parameters that libpq and pgx know.
	URL string
	// AllowUnsafe lets CheckReady pass although a commit may be lost with the
	// power.
	AllowUnsafe bool
	// MaxConns bounds the connections. Default: pool_max_conns of the URL, or 16.
	MaxConns int
}

const defaultMaxConns = 16

// Store is a PostgreSQL database. Its methods may be called at the same time.
type Store struct {
	allowUnsafe bool
	pool        *pgxpool.Pool
	// prepares says whether connections may hold prepared statements, which some
	// poolers do not allow: default_query_exec_mode of the URL.
	prepares bool
	// pooled says that a pooler stands between, which gives a connection of the
	// server to another client after each transaction.
	pooled bool
	// local is conn.local.
	local string
	// channels are the names of channels, string by model.SourceID.
	channels sync.Map
	// settled counts calls of Settle and PutRequests.
	settled atomic.Uint32
	// quiet is listenQuiet.
	quiet time.Duration
}

// How long a call may take where its ctx says nothing shorter.
const (
	writeTimeout   = 5 * time.Second
	readTimeout    = 10 * time.Second
	connectTimeout = 3 * time.Second
	// cancelTimeout is how long a call outlives its ctx at most, while the
	// server is asked to cancel.
	cancelTimeout = 250 * time.Millisecond
)

// settings of every connection, unless the URL has its own. The timeouts are
// those of the server, for when the process is gone or frozen: a call's own are
// shorter.
var settings = map[string]string{
	"application_name":                    "posthouse",
	"statement_timeout":                   "11s",
	"lock_timeout":                        "11s",
	"idle_in_transaction_session_timeout": "11s",
	// The tables may be much larger than when a statement was planned.
	"enable_seqscan": "off",
	"jit":            "off",
	// A batch of messages passes through it.
	"work_mem": "32MB",
}

// planned are settings by whether statements are prepared. If so they are planned
// once for each connection. Left to itself the server plans a call with few rows
// anew each time, since that plan looks cheaper than one for any number of rows,
// and takes longer to plan than to run.
var planned = map[bool]map[string]string{true: {"plan_cache_mode": "force_generic_plan"}}

// forced settings win over the URL: what was acknowledged must be on disk.
var forced = map[string]string{"synchronous_commit": "on"}

// Open prepares a store. It does not connect: the first call does.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	const op = "open postgres"
	config, err := pgxpool.ParseConfig(cfg.URL)
	if scheme, _, _ := strings.Cut(cfg.URL, "://"); err != nil || scheme != "postgres" && scheme != "postgresql" {
		// The driver's text may show parts of the password.
		return nil, &model.Error{Code: model.CodeInvalid, Op: op,
			Err: errors.New("the URL cannot be read; it should be like postgres://user:password@host:5432/database")}
	}
	switch {
	case cfg.MaxConns > 0:
		config.MaxConns = int32(min(cfg.MaxConns, 1<<15))
	case !strings.Contains(cfg.URL, "pool_max_conns="):
		config.MaxConns = defaultMaxConns
	}
	connection := config.ConnConfig
	prepares := connection.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
	for _, wanted := range []map[string]string{settings, planned[prepares]} {
		for name, value := range wanted {
			if _, own := connection.RuntimeParams[name]; !own {
				connection.RuntimeParams[name] = value
			}
		}
	}
	maps.Copy(connection.RuntimeParams, forced)
	s := &Store{
		allowUnsafe: cfg.AllowUnsafe, prepares: prepares, quiet: listenQuiet,
	}
	switch connection.DefaultQueryExecMode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
		s.pooled, s.local = true, localSettings(connection.RuntimeParams)
		// Neither has named statements, and this one needs no quoting.
		connection.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if connection.ConnectTimeout == 0 {
		connection.ConnectTimeout = connectTimeout
	}
	connection.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		if s.pooled {
			// A request to cancel might meet another client's statement, and it ends
			// some versions of pgbouncer. The server knows when to stop: conn.begin.
			return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn(), DeadlineDelay: cancelTimeout}
		}
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: cancelTimeout}
	}
	s.pool, err = pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, wrap(ctx, op, err)
	}
	s.settled.Store(firstSettled())
	return s, nil
}

// everywhere are the parameters that every pooler lets a connection begin with.
var everywhere = []string{"application_name", "client_encoding", "datestyle", "standard_conforming_strings", "timezone"}

// localSettings takes from the parameters that a connection begins with what a
// pooler may refuse, and returns the statement that sets it for one transaction.
func localSettings(parameters map[string]string) string {
	var calls []string
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if !slices.Contains(everywhere, strings.ToLower(name)) {
			calls = append(calls, setLocal(name, parameters[name]))
			delete(parameters, name)
		}
	}
	return "SELECT " + strings.Join(calls, ", ")
}

func setLocal(name, value string) string {
	return "set_config(" + quote(name) + ", " + quote(value) + ", true)"
}

// quote writes a literal.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// Close waits for the calls that are under way and closes all connections.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

// maxTries bounds how often a transaction is tried that had no effect.
const maxTries = 5

// use lends do a connection until timeout, and calls it again where it had no
// effect and may succeed.
func (s *Store) use(ctx context.Context, timeout time.Duration, op string, do func(context.Context, conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for try := 1; ; try++ {
		err := s.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			return do(ctx, s.conn(c))
		})
		if err == nil || try == maxTries || !again(err) || ctx.Err() != nil {
			return wrap(ctx, op, err)
		}
		pause(ctx, time.Duration(try)*time.Millisecond+rand.N(5*time.Millisecond))
	}
}

func (s *Store) conn(c *pgxpool.Conn) conn {
	return conn{pgx: c.Conn(), prepares: s.prepares, local: s.local}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (s *Store) write(ctx context.Context, op string, do func(context.Context, conn) error) error {
	return s.use(ctx, writeTimeout, op, func(ctx context.Context, c conn) error {
		c.writes = true
		return do(ctx, c)
	})
}

func (s *Store) read(ctx context.Context, op string, do func(context.Context, conn) error) error {
	return s.use(ctx, readTimeout, op, do)
}

// exec runs one statement and returns how many rows it changed.
func (s *Store) exec(ctx context.Context, op, sql string, args ...any) (n int64, err error) {
	err = s.write(ctx, op, func(ctx context.Context, c conn) (err error) {
		n, err = c.exec(ctx, sql, args...)
		return err
	})
	return n, err
}
