package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "modernc.org/sqlite"             // registers "sqlite"
)

// engine is a database server, or SQLite.
type engine struct {
	name    string // sqlite, postgres, mariadb
	title   string
	version string
	server  string // URL of a database on it, from where others are made; empty for SQLite
}

// engines are what the environment has.
func engines(ctx context.Context) ([]*engine, error) {
	all := []*engine{
		{name: "sqlite", title: "SQLite"},
		{name: "postgres", title: "PostgreSQL", server: os.Getenv("POSTHOUSE_TEST_POSTGRES")},
		{name: "mariadb", title: "MariaDB", server: os.Getenv("POSTHOUSE_TEST_MARIADB")},
	}
	for _, e := range all {
		query := "SELECT version()"
		if e.name == "sqlite" {
			query = "SELECT sqlite_version()"
		} else if e.server == "" {
			return nil, fmt.Errorf("the environment names no %s: run `make bench`", e.title)
		}
		err := e.ask(e.server, func(db *sql.DB) error { return db.QueryRowContext(ctx, query).Scan(&e.version) })
		if err != nil {
			return nil, fmt.Errorf("%s does not answer, is it started? %w", e.title, err)
		}
	}
	return all, nil
}

// ask lends do a connection to the database of this URL.
func (e *engine) ask(databaseURL string, do func(*sql.DB) error) (err error) {
	driver, dsn := "sqlite", "file::memory:"
	switch {
	case e.name == "postgres":
		driver, dsn = "pgx", databaseURL
	case e.name == "mariadb":
		u, err := url.Parse(databaseURL)
		if err != nil {
			return errors.New("its URL cannot be read")
		}
		c := mysql.NewConfig()
		c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), u.Path[1:]
		c.Passwd, _ = u.User.Password()
		driver, dsn = "mysql", c.FormatDSN()
	case databaseURL != "":
		dsn = "file:" + databaseURL[len("sqlite:"):] + "?mode=ro"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}

// database is a new one on an engine.
type database struct {
	*engine
	url  string
	drop func(context.Context) error
}

// databaseName is the same each time: there is never more than one.
const databaseName = "posthouse_bench"

// fresh makes an empty database in place of the one before.
func (e *engine) fresh(ctx context.Context, work string) (*database, error) {
	if e.name == "sqlite" {
		dir := filepath.Join(work, "sqlite")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make a folder for SQLite: %w", err)
		}
		return &database{engine: e, url: "sqlite:" + filepath.Join(dir, "posthouse.db"), drop: func(context.Context) error { return os.RemoveAll(dir) }}, nil
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

func (e *engine) administer(ctx context.Context, statement string) error {
	return e.ask(e.server, func(db *sql.DB) error {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %s: %w", e.title, statement, err)
		}
		return nil
	})
}

// count returns how many rows a table has.
func (d *database) count(ctx context.Context, table string) (n int64, err error) {
	err = d.ask(d.url, func(db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("%s: count %s: %w", d.title, table, err)
	}
	return n, nil
}

// writeOut has the server write down what it may write later, so that the
// next measurement does not pay for this one.
func (e *engine) writeOut(ctx context.Context) error {
	if e.name == "postgres" {
		return e.administer(ctx, "CHECKPOINT")
	}
	return nil
}
