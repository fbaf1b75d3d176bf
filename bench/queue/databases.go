package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "modernc.org/sqlite"             // registers "sqlite"
)

// connections is how many each contender may hold.
const connections = 16

// engine is a database server, or SQLite.
type engine struct {
	name, title string
	version     string
	server      string // URL of a database on it, from where others are made; empty for SQLite
	variable    string // of the environment, that holds server
	ask         string // query for its version
	driver      string // of database/sql
}

func allEngines() []engine {
	return []engine{
		{name: "postgres", title: "PostgreSQL", variable: "POSTHOUSE_TEST_POSTGRES", ask: "SELECT current_setting('server_version')", driver: "pgx"},
		{name: "mariadb", title: "MariaDB", variable: "POSTHOUSE_TEST_MARIADB", ask: "SELECT version()", driver: "mysql"},
		{name: "sqlite", title: "SQLite", ask: "SELECT sqlite_version()", driver: "sqlite"},
	}
}

func engineNames() []string {
	var names []string
	for _, e := range allEngines() {
		names = append(names, e.name)
	}
	return names
}

// open finds an engine in the environment, and asks whether it is there.
func open(ctx context.Context, name string) (*engine, error) {
	for _, e := range allEngines() {
		if e.name != name {
			continue
		}
		if e.variable != "" {
			if e.server = os.Getenv(e.variable); e.server == "" {
				return nil, fmt.Errorf("%s is not set: run `make bench-queue`", e.variable)
			}
		}
		err := e.use(e.server, func(db *sql.DB) error { return db.QueryRowContext(ctx, e.ask).Scan(&e.version) })
		if err != nil {
			return nil, fmt.Errorf("%s does not answer: %w", e.title, err)
		}
		return &e, nil
	}
	return nil, fmt.Errorf("there is no engine %q", name)
}

// use lends do a connection to the database of this URL.
func (e *engine) use(databaseURL string, do func(*sql.DB) error) error {
	db, err := e.connect(databaseURL)
	if err != nil {
		return err
	}
	return errors.Join(do(db), db.Close())
}

func (e *engine) connect(databaseURL string) (*sql.DB, error) {
	dsn := databaseURL
	switch e.name {
	case "sqlite":
		dsn = "file::memory:"
	case "mariadb":
		u, err := url.Parse(databaseURL)
		if err != nil || u.Path == "" {
			return nil, errors.New("its URL cannot be read")
		}
		c := mysql.NewConfig()
		c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), u.Path[1:]
		c.Passwd, _ = u.User.Password()
		dsn = c.FormatDSN()
	}
	return sql.Open(e.driver, dsn)
}

func (e *engine) administer(ctx context.Context, statement string) error {
	return e.use(e.server, func(db *sql.DB) error {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %s: %w", e.title, statement, err)
		}
		return nil
	})
}

// database is a new one on an engine.
type database struct {
	*engine
	url  string
	path string // of SQLite's file
	drop func(context.Context) error
}

// databaseName is the same each time: there is never more than one.
const databaseName = "posthouse_bench_queue"

// fresh makes an empty database in place of the one before.
func (e *engine) fresh(ctx context.Context, work string) (*database, error) {
	if e.name == "sqlite" {
		dir := filepath.Join(work, "sqlite")
		return &database{engine: e, path: filepath.Join(dir, "posthouse.db"), drop: func(context.Context) error { return os.RemoveAll(dir) }}, nil
	}
	u, err := url.Parse(e.server)
	if err != nil {
		return nil, fmt.Errorf("the URL of %s cannot be read", e.title)
	}
	u.Path = "/" + databaseName
	drop := func(ctx context.Context) error {
		return e.administer(ctx, "DROP DATABASE IF EXISTS "+databaseName)
	}
	if err := drop(ctx); err != nil {
		return nil, err
	}
	return &database{engine: e, url: u.String(), drop: drop}, e.administer(ctx, "CREATE DATABASE "+databaseName)
}

// settleDown has the server do what the backlog left it to do later, so that
// the measurement does not pay for it: all contenders find their tables in
// order, and statistics that are true.
func (d *database) settleDown(ctx context.Context) error {
	if d.name != "postgres" {
		return nil
	}
	return d.use(d.url, func(db *sql.DB) error {
		for _, statement := range []string{"VACUUM ANALYZE", "CHECKPOINT"} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %s: %w", d.title, statement, err)
			}
		}
		return nil
	})
}

// watchCPU begins to watch how much processor the database uses, and returns
// how to ask. On PostgreSQL it is that of the processes that serve this database
// and live when it is asked: what writes the log and checkpoints is not in it.
// On MariaDB it is all of the server, whoever uses it besides. It is 0 where that
// cannot be known: the server runs elsewhere, or in this process.
func (d *database) watchCPU(ctx context.Context) (func(context.Context) (time.Duration, error), error) {
	list := map[string]func(context.Context, *sql.DB) ([]int, error){"postgres": backends, "mariadb": mysqld}[d.name]
	if list == nil {
		return func(context.Context) (time.Duration, error) { return 0, nil }, nil
	}
	ask := func(ctx context.Context) (cpu map[int]time.Duration, err error) {
		err = d.use(d.url, func(db *sql.DB) error {
			pids, err := list(ctx, db)
			cpu = map[int]time.Duration{}
			for _, pid := range pids {
				cpu[pid] = processCPU(pid)
			}
			return err
		})
		return cpu, err
	}
	before, err := ask(ctx)
	return func(ctx context.Context) (used time.Duration, err error) {
		after, err := ask(ctx)
		for pid, cpu := range after {
			used += cpu - before[pid]
		}
		return used, err
	}, err
}

func backends(ctx context.Context, db *sql.DB) (pids []int, err error) {
	rows, err := db.QueryContext(ctx, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err has told
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			return nil, err
		}
		if nameOf(pid) == "postgres" { // not some other process, of another machine
			pids = append(pids, pid)
		}
	}
	return pids, rows.Err()
}

func mysqld(ctx context.Context, db *sql.DB) ([]int, error) {
	var file string
	if err := db.QueryRowContext(ctx, "SELECT @@pid_file").Scan(&file); err != nil {
		return nil, err
	}
	if pid := numberIn(file); nameOf(pid) == "mariadbd" {
		return []int{pid}, nil
	}
	return nil, nil
}
