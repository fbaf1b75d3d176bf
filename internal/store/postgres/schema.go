package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

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
// not write through to the disk.
func (s *Store) CheckReady(ctx context.Context) error {
	if err := migrate.Check(ctx, migrator{s}, versions); err != nil {
		return err
	}
	if s.allowUnsafe {
		return nil
	}
	const op = "check durability"
	var fsync, commit string
	err := s.read(ctx, op, func(ctx context.Context, c conn) error {
		return c.query(ctx, func(rows pgx.Rows) error { return rows.Scan(&fsync, &commit) },
			`SELECT current_setting('fsync'), current_setting('synchronous_commit')`)
	})
	if err != nil {
		return err
	}
	if fsync != "on" || (commit != "on" && commit != "remote_apply") {
		return &model.Error{Code: model.CodeUnsafe, Op: op,
			Err: fmt.Errorf("fsync is %s and synchronous_commit is %s: a commit may be lost with the power", fsync, commit)}
	}
	return nil
}

// Ping checks that messages could be written and worked on now: it fails on a
// server that is read only, and where a table is missing, locked or not ours to
// use.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.exec(ctx, "ping", touchTables)
	return err
}

// migrationLock is the advisory lock of migrations. It is let go with the
// transaction.
const migrationLock = 0x706f7374686f7573

// touchTables writes nothing, but needs all that a write does, and every table.
const touchTables = `WITH work AS (UPDATE posthouse_work SET token = token WHERE seq = 0)
	UPDATE posthouse_message SET size = size WHERE seq = 0
	AND EXISTS (SELECT FROM posthouse_outcome)
	AND EXISTS (SELECT FROM posthouse_attempt)
	AND EXISTS (SELECT FROM posthouse_counter)
	AND EXISTS (SELECT FROM posthouse_source)
	AND EXISTS (SELECT FROM posthouse_instance)
	AND EXISTS (SELECT FROM posthouse_lease)
	AND EXISTS (SELECT FROM posthouse_key)
	AND EXISTS (SELECT FROM posthouse_want)
	AND EXISTS (SELECT FROM posthouse_dedup)
	AND EXISTS (SELECT FROM posthouse_template)
	AND EXISTS (SELECT FROM posthouse_request)
	AND EXISTS (SELECT FROM posthouse_secret)
	AND EXISTS (SELECT FROM posthouse_delivery)
	AND EXISTS (SELECT FROM posthouse_expiry)
	AND EXISTS (SELECT FROM posthouse_user)
	AND EXISTS (SELECT FROM posthouse_user_message)
	AND EXISTS (SELECT FROM posthouse_audit)
	AND NOT EXISTS (SELECT FROM posthouse_counted WHERE false)`

// migrator runs migrations. DDL is transactional here.
type migrator struct{ s *Store }

func (m migrator) Applied(ctx context.Context) (applied []model.SchemaVersion, err error) {
	err = m.s.read(ctx, "read schema versions", func(ctx context.Context, c conn) (err error) {
		applied, err = readVersions(ctx, c)
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "42P01" { // no such table
			return nil
		}
		return err
	})
	return applied, err
}

func readVersions(ctx context.Context, c conn) (applied []model.SchemaVersion, err error) {
	err = c.query(ctx, func(rows pgx.Rows) error {
		var v model.SchemaVersion
		if err := rows.Scan(&v.Version, &v.Name, &v.AppliedAt); err != nil {
			return err
		}
		applied = append(applied, v)
		return nil
	}, `SELECT version, name, applied_at FROM posthouse_schema ORDER BY version`)
	return applied, err
}

func (m migrator) Locked(ctx context.Context, change func(context.Context, migrate.Session) error) error {
	const op = "migrate"
	err := m.s.pool.AcquireFunc(ctx, func(pooled *pgxpool.Conn) error {
		return transaction(ctx, m.s.conn(pooled), pgx.TxOptions{}, func(c conn) error {
			wait := fmt.Sprintf("SET LOCAL lock_timeout = %d", migrate.LockTimeout.Milliseconds())
			for _, statement := range []string{wait, "SET LOCAL statement_timeout = 0", "SET LOCAL idle_in_transaction_session_timeout = 0"} {
				if _, err := c.exec(ctx, statement); err != nil {
					return err
				}
			}
			if _, err := c.exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
				return err
			}
			_, err := c.exec(ctx, `CREATE TABLE IF NOT EXISTS posthouse_schema (
				version integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)`)
			if err != nil {
				return err
			}
			return change(ctx, session{c})
		})
	})
	return wrap(ctx, op, err)
}

type session struct{ c conn }

func (s session) Applied(ctx context.Context) ([]model.SchemaVersion, error) {
	return readVersions(ctx, s.c)
}

func (s session) Apply(ctx context.Context, m migrate.Migration) error {
	if err := s.run(ctx, m.Up); err != nil {
		return err
	}
	_, err := s.c.exec(ctx, `INSERT INTO posthouse_schema (version, name, applied_at) VALUES ($1, $2, `+now+`)`, m.Version, m.Name)
	return err
}

func (s session) Revert(ctx context.Context, m migrate.Migration) error {
	if err := s.run(ctx, m.Down); err != nil {
		return err
	}
	_, err := s.c.exec(ctx, `DELETE FROM posthouse_schema WHERE version = $1`, m.Version)
	return err
}

func (s session) run(ctx context.Context, statements []string) error {
	for i, statement := range statements {
		if _, err := s.c.exec(ctx, statement); err != nil {
			return fmt.Errorf("statement %d: %w", i+1, err)
		}
	}
	return nil
}
