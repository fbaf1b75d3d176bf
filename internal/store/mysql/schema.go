package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/go-sql-driver/mysql"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/migrate"
)

//go:embed migrations/*.sql
var files embed.FS

// versions are the schema's. That the files are sound is proven by every test.
var versions = func() []migrate.Migration {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err)
	}
	all, err := migrate.Load(sub)
	if err != nil {
		panic(err)
	}
	return all
}()

// MigrateUp brings the schema to the newest version and returns what it applied.
func (s *Store) MigrateUp(ctx context.Context) ([]int, error) {
	return migrate.Up(ctx, migrator{s}, versions)
}

// MigrateDown takes one version back, with all its data, and returns it.
func (s *Store) MigrateDown(ctx context.Context) (int, error) {
	return migrate.Down(ctx, migrator{s}, versions)
}

// SchemaStatus lists all versions, applied or not.
func (s *Store) SchemaStatus(ctx context.Context) ([]model.SchemaVersion, error) {
	return migrate.Status(ctx, migrator{s}, versions)
}

// CheckReady refuses another schema than this binary's, and a server that does
// not write through to the disk. With a binary log that means the log, too:
// after a loss of power what is not in it is rolled back.
func (s *Store) CheckReady(ctx context.Context) error {
	if err := migrate.Check(ctx, migrator{s}, versions); err != nil {
		return err
	}
	if s.allowUnsafe {
		return nil
	}
	const op = "check durability"
	var flush, sync int
	var binlog bool
	err := s.read(ctx, op, func(c *call) error {
		var one script
		one.add(`SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog`)
		return c.query(&one, func(rows *sql.Rows) error { return into(rows, &flush, &binlog, &sync) })
	})
	switch {
	case err != nil:
		return err
	case flush != 1:
		err = fmt.Errorf("innodb_flush_log_at_trx_commit is %d, not 1: a commit may be lost with the power", flush)
	case binlog && sync != 1:
		err = fmt.Errorf("log_bin is on and sync_binlog is %d, not 1: a commit may be lost with the power", sync)
	default:
		return nil
	}
	return &model.Error{Code: model.CodeUnsafe, Op: op, Err: err}
}

// Ping checks that messages could be written and worked on now: it fails on a
// server that is read only, and where a table is missing, locked or not ours to
// use.
func (s *Store) Ping(ctx context.Context) error {
	return s.write(ctx, "ping", func(c *call) error {
		// The updates write nothing, but need all that a write does.
		var all script
		all.add(`UPDATE posthouse_message SET size = size WHERE seq = 0`)
		all.add(`UPDATE posthouse_work SET token = token WHERE seq = 0`)
		all.add(touchTables)
		return c.query(&all, func(*sql.Rows) error { return nil })
	})
}

// touchTables reads a row of every other table at most.
const touchTables = `SELECT EXISTS (SELECT 1 FROM posthouse_outcome), EXISTS (SELECT 1 FROM posthouse_attempt), EXISTS (SELECT 1 FROM posthouse_counter),
	EXISTS (SELECT 1 FROM posthouse_source), EXISTS (SELECT 1 FROM posthouse_instance), EXISTS (SELECT 1 FROM posthouse_lease),
	EXISTS (SELECT 1 FROM posthouse_key), EXISTS (SELECT 1 FROM posthouse_want), EXISTS (SELECT 1 FROM posthouse_dedup),
	EXISTS (SELECT 1 FROM posthouse_template), EXISTS (SELECT 1 FROM posthouse_request), EXISTS (SELECT 1 FROM posthouse_secret),
	EXISTS (SELECT 1 FROM posthouse_delivery), EXISTS (SELECT 1 FROM posthouse_expiry), EXISTS (SELECT 1 FROM posthouse_user),
	EXISTS (SELECT 1 FROM posthouse_user_message), EXISTS (SELECT 1 FROM posthouse_audit)`

// migrator runs migrations. DDL commits by itself here, so the lock is one of
// the connection.
type migrator struct{ s *Store }

func (m migrator) Applied(ctx context.Context) (applied []model.SchemaVersion, err error) {
	err = m.s.read(ctx, "read schema versions", func(c *call) (err error) {
		applied, err = readVersions(c)
		if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == errNoSuchTable {
			return nil
		}
		return err
	})
	return applied, err
}

func readVersions(c *call) (applied []model.SchemaVersion, err error) {
	var one script
	one.add(`SELECT version, name, applied_at FROM posthouse_schema ORDER BY version`)
	err = c.query(&one, func(rows *sql.Rows) error {
		var v model.SchemaVersion
		if err := into(rows, &v.Version, &v.Name, &v.AppliedAt); err != nil {
			return err
		}
		applied = append(applied, v)
		return nil
	})
	return applied, err
}

// lockName is different for each database of a server.
const lockName = `concat('posthouse:', left(sha2(database(), 256), 40))`

func (m migrator) Locked(ctx context.Context, change func(context.Context, migrate.Session) error) error {
	const op = "migrate"
	conn, err := m.s.db.Conn(ctx)
	if err != nil {
		return wrap(ctx, op, err)
	}
	// With the connection go the lock and its settings.
	defer func() {
		discard(conn)
		_ = conn.Close()
	}()
	c := &call{ctx: ctx, conn: conn}
	var begin script
	seconds := int(migrate.LockTimeout.Seconds())
	begin.add(`SET SESSION lock_wait_timeout = ?`, seconds)
	begin.add(`SELECT get_lock(`+lockName+`, ?)`, seconds)
	var got sql.NullInt64
	err = c.query(&begin, func(rows *sql.Rows) error { return into(rows, &got) })
	if err == nil && got.Int64 != 1 {
		return &model.Error{Code: model.CodeUnavailable, Op: op, Err: errors.New("another process holds the lock of the schema")}
	}
	if err == nil {
		err = c.each(`CREATE TABLE IF NOT EXISTS posthouse_schema (
			version INT NOT NULL PRIMARY KEY, name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
			applied_at BIGINT NOT NULL) ENGINE = InnoDB`)
	}
	if err == nil {
		err = change(ctx, locked{c})
	}
	return wrap(ctx, op, err)
}

// each runs statements one by one.
func (c *call) each(statements ...string) error {
	for i, statement := range statements {
		if _, err := c.conn.ExecContext(c.ctx, statement); err != nil {
			return fmt.Errorf("statement %d: %w", i+1, err)
		}
	}
	return nil
}

type locked struct{ c *call }

func (l locked) Applied(context.Context) ([]model.SchemaVersion, error) { return readVersions(l.c) }

func (l locked) Apply(_ context.Context, m migrate.Migration) error {
	if err := l.c.each(m.Up...); err != nil {
		return err
	}
	var record script
	record.add(`INSERT INTO posthouse_schema (version, name, applied_at) VALUES (?, ?, `+now+`)`, m.Version, m.Name)
	_, err := l.c.exec(&record)
	return err
}

func (l locked) Revert(_ context.Context, m migrate.Migration) error {
	if err := l.c.each(m.Down...); err != nil {
		return err
	}
	var record script
	record.add(`DELETE FROM posthouse_schema WHERE version = ?`, m.Version)
	_, err := l.c.exec(&record)
	return err
}
