// Package mysql keeps everything in one MySQL (from 8.0) or MariaDB (from 10.6)
// database, for any number of processes.
//
// A call is one to three round trips: statements that belong together travel
// together, values are put in by the driver, and what is looked for is found by
// a named index, never by what the statistics say. Transactions run READ
// COMMITTED.
//
// The clock is the database's. Nothing runs in the background. A call whose
// context ends, ends its connection; another one then tells the server to kill
// it, and the call waits a moment until it is gone, so that no statement is left
// that would be committed later. Where the server cannot be told, whether the
// call took effect is unknown.
package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/posthouse/posthouse/internal/model"
)

// Config says which database, and how it is used.
type Config struct {
	// URL is mysql://user:password@host:port/database?…, with the parameters of
	// github.com/go-sql-driver/mysql (tls=true, timeout=3s, …); others are
	// taken for variables of the session. socket=PATH replaces host and port.
	URL string
	// AllowUnsafe lets CheckReady pass although a commit may be lost with the
	// power.
	AllowUnsafe bool
	// MaxConns bounds the connections. Default: 16.
	MaxConns int
}

const defaultMaxConns = 16

// Store is a MySQL or MariaDB database. Its methods may be called at the same
// time.
type Store struct {
	allowUnsafe bool
	db          *sql.DB
	killers     *sql.DB
	connector   *connector
	// shard of the counters: processes that count at the same time should not
	// wait for each other.
	shard int
}

// shards bounds the rows per source in posthouse_counter.
const shards = 8

// How long a call may take where its ctx says nothing shorter.
const (
	writeTimeout   = 5 * time.Second
	readTimeout    = 10 * time.Second
	connectTimeout = 3 * time.Second
	// cancelTimeout is how long a call outlives its ctx at most, while the
	// server is told to kill it.
	cancelTimeout = 250 * time.Millisecond
	// lockTimeout is how long the server lets a statement wait for a lock, in
	// seconds: less than a call has, so that it ends well by itself.
	lockTimeout = "4"
	// idleTimeout is how long a transaction of a process that was frozen in it may
	// keep its locks, in seconds, as on PostgreSQL. MySQL has no such limit: there
	// the others wait until the process goes on or its connection ends.
	idleTimeout = "5"
)

// Open prepares a store. It does not connect: the first call does.
func Open(_ context.Context, cfg Config) (*Store, error) {
	const op = "open mysql"
	config, err := driverConfig(cfg.URL)
	if err != nil {
		return nil, &model.Error{Code: model.CodeInvalid, Op: op, Err: err}
	}
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, &model.Error{Code: model.CodeInvalid, Op: op, Err: errURL}
	}
	c := &connector{Connector: inner}
	s := &Store{allowUnsafe: cfg.AllowUnsafe, db: sql.OpenDB(c), killers: sql.OpenDB(c), connector: c, shard: rand.IntN(shards)}
	maxConns := cfg.MaxConns
	if maxConns <= 0 {
		maxConns = defaultMaxConns
	}
	s.db.SetMaxOpenConns(maxConns)
	s.db.SetMaxIdleConns(maxConns)
	s.db.SetConnMaxIdleTime(5 * time.Minute)
	s.killers.SetMaxOpenConns(2)
	s.killers.SetMaxIdleConns(1)
	s.killers.SetConnMaxIdleTime(time.Minute)
	return s, nil
}

// Close waits for the calls that are under way and closes all connections.
func (s *Store) Close() error {
	if err := errors.Join(s.db.Close(), s.killers.Close()); err != nil {
		return &model.Error{Code: model.CodeInternal, Op: "close mysql", Err: err}
	}
	return nil
}

// errURL says nothing of the URL: any part of it may belong to the password.
var errURL = errors.New("the URL cannot be read; it should be like mysql://user:password@host:3306/database")

// reserved are parameters that this package decides. Some would only break it.
var reserved = []string{"allowAllFiles", "charset", "clientFoundRows", "collation", "columnsWithAlias", "interpolateParams", "loc",
	"maxAllowedPacket", "multiStatements", "parseTime", "strict", "socket"}

func driverConfig(text string) (*mysql.Config, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "mysql" || len(u.Path) < 2 {
		return nil, errURL
	}
	parameters := u.Query()
	socket := parameters.Get("socket")
	for _, name := range reserved {
		parameters.Del(name)
	}
	config, err := mysql.ParseDSN("/?" + parameters.Encode())
	if err != nil {
		return nil, errURL
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.DBName = u.Path[1:]
	config.Net, config.Addr = "tcp", net.JoinHostPort(orDefault(u.Hostname(), "127.0.0.1"), orDefault(u.Port(), "3306"))
	if socket != "" {
		config.Net, config.Addr = "unix", socket
	}
	if config.Timeout == 0 {
		config.Timeout = connectTimeout
	}
	config.InterpolateParams = true
	config.MultiStatements = true
	config.MaxAllowedPacket = 1 << 30 // packets are measured here, by what the server takes
	config.Logger = &mysql.NopLogger{}
	if err := config.Apply(mysql.Charset("utf8mb4", "")); err != nil {
		return nil, errURL
	}
	return config, nil
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// session makes a new connection ready, and asks who it is. What it sets wins
// over the URL.
const session = `SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO',
	time_zone = '+00:00', innodb_lock_wait_timeout = ` + lockTimeout + `, lock_wait_timeout = ` + lockTimeout + `, autocommit = 1
	/*M!100300 , idle_transaction_timeout = ` + idleTimeout + ` */;
	SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
	SELECT connection_id(), concat_ws(':', @@hostname, @@port, @@server_id), @@max_allowed_packet`

// connector makes connections that know who they are on which server.
type connector struct {
	driver.Connector
	packet atomic.Int64 // the server's max_allowed_packet, as last seen
}

// driverConn is all that the driver's connections can do.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

type conn struct {
	driverConn
	id     int64
	server string
}

var errForeign = errors.New("a connection that this package did not make")

// of is the connection behind c.
func of(c *sql.Conn) (self *conn, err error) {
	err = c.Raw(func(dc any) error {
		var ok bool
		if self, ok = dc.(*conn); !ok {
			return errForeign
		}
		return nil
	})
	return self, err
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	dc, ok := made.(driverConn)
	if !ok {
		_ = made.Close()
		return nil, errForeign
	}
	rows, err := dc.QueryContext(ctx, session, nil)
	if err == nil {
		row := make([]driver.Value, 3)
		err = errors.Join(rows.Next(row), rows.Close())
		if err == nil {
			var id, packet int64
			var server string
			if err = scan(row, &id, &server, &packet); err == nil {
				c.packet.Store(packet)
				return &conn{driverConn: dc, id: id, server: server}, nil
			}
		}
	}
	_ = dc.Close()
	return nil, err
}

// maxTries bounds how often a transaction is tried that had no effect.
const maxTries = 10

// use lends do a connection until timeout, and calls it again where it had no
// effect and may succeed.
func (s *Store) use(ctx context.Context, timeout time.Duration, op string, do func(*call) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for try := 1; ; try++ {
		err := s.once(ctx, do)
		if err == nil || try == maxTries || !again(err) || ctx.Err() != nil {
			return wrap(ctx, op, err)
		}
		pause(ctx, rand.N(time.Duration(try*try)*time.Millisecond)+time.Millisecond)
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

func (s *Store) write(ctx context.Context, op string, do func(*call) error) error {
	return s.use(ctx, writeTimeout, op, do)
}

func (s *Store) read(ctx context.Context, op string, do func(*call) error) error {
	return s.use(ctx, readTimeout, op, do)
}

// once gives the connection back only where it is known to be in no
// transaction.
func (s *Store) once(ctx context.Context, do func(*call) error) error {
	c, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // it only goes back to the pool
	self, err := of(c)
	if err != nil {
		return err
	}
	err = do(&call{ctx: ctx, conn: c, packet: int(s.connector.packet.Load())})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		discard(c)
		s.kill(self)
	default:
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer cancel()
		if _, failed := c.ExecContext(late, "ROLLBACK"); failed != nil {
			discard(c)
		}
	}
	return err
}

// discard takes a connection out of the pool.
func discard(c *sql.Conn) { _ = c.Raw(func(any) error { return driver.ErrBadConn }) }

// kill ends what a connection has been doing on the server, and waits until it
// has ended. The connection that does it may have reached another server, behind
// a balancer: then it leaves that alone.
func (s *Store) kill(victim *conn) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	c, err := s.killers.Conn(ctx)
	if err != nil {
		return // the server cannot be told
	}
	defer func() { _ = c.Close() }()
	if self, err := of(c); err != nil || self.server != victim.server {
		return
	}
	if _, err := c.ExecContext(ctx, "KILL ?", victim.id); err != nil {
		return // it has gone already, or cannot be told
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		var there bool
		err := c.QueryRowContext(ctx, "SELECT count(*) > 0 FROM information_schema.processlist WHERE id = ?", victim.id).Scan(&there)
		if err != nil || !there {
			return
		}
		pause(ctx, wait)
	}
}
