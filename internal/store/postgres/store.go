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
package postgres

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
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
	// shard of the counters: processes that count at the same time should not
	// wait for each other.
	shard int32
}

// shards bounds the rows per source in posthouse_counter.
const shards = 8

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
	for name, value := range settings {
		if _, own := connection.RuntimeParams[name]; !own {
			connection.RuntimeParams[name] = value
		}
	}
	maps.Copy(connection.RuntimeParams, forced)
	if connection.ConnectTimeout == 0 {
		connection.ConnectTimeout = connectTimeout
	}
	connection.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: cancelTimeout}
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, wrap(ctx, op, err)
	}
	return &Store{
		allowUnsafe: cfg.AllowUnsafe, pool: pool, shard: rand.Int32N(shards),
		prepares: connection.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement,
	}, nil
}

// Close waits for the calls that are under way and closes all connections.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

// maxTries bounds how often a transaction is tried that had no effect.
const maxTries = 5

// use lends do a connection until timeout, and calls it again where it had no
// effect and may succeed.
func (s *Store) use(ctx context.Context, timeout time.Duration, op string, do func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for try := 1; ; try++ {
		err := s.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return do(ctx, c) })
		if err == nil || try == maxTries || !again(err) || ctx.Err() != nil {
			return wrap(ctx, op, err)
		}
		pause(ctx, time.Duration(try)*time.Millisecond+rand.N(5*time.Millisecond))
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (s *Store) write(ctx context.Context, op string, do func(context.Context, *pgxpool.Conn) error) error {
	return s.use(ctx, writeTimeout, op, do)
}

func (s *Store) read(ctx context.Context, op string, do func(context.Context, *pgxpool.Conn) error) error {
	return s.use(ctx, readTimeout, op, do)
}

// transaction runs do in a transaction and commits it.
func transaction(ctx context.Context, c *pgxpool.Conn, options pgx.TxOptions, do func(pgx.Tx) error) error {
	tx, err := c.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		// Also after ctx has ended. Where it fails the connection is given up,
		// and the server rolls back.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer cancel()
		_ = tx.Rollback(late)
		return err
	}
	return tx.Commit(ctx)
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// query calls scan for every row.
func query(ctx context.Context, q querier, scan func(pgx.Rows) error, sql string, args ...any) error {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// exec runs one statement and returns how many rows it changed.
func (s *Store) exec(ctx context.Context, op, sql string, args ...any) (n int64, err error) {
	err = s.write(ctx, op, func(ctx context.Context, c *pgxpool.Conn) error {
		tag, err := c.Exec(ctx, sql, args...)
		n = tag.RowsAffected()
		return err
	})
	return n, err
}
