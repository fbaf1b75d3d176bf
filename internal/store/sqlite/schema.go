package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

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

// CheckReady refuses another schema than this binary's, and a connection that
// does not write through to the disk.
func (s *Store) CheckReady(ctx context.Context) error {
	if err := migrate.Check(ctx, migrator{s}, versions); err != nil {
		return err
	}
	if s.cfg.AllowUnsafe {
		return nil
	}
	const op = "check durability"
	return s.write(ctx, op, func(t *tx) error {
		var journal string
		var synchronous int
		for query, into := range map[string]any{"PRAGMA journal_mode": &journal, "PRAGMA synchronous": &synchronous} {
			if err := t.query(func(rows *sql.Rows) error { return rows.Scan(into) }, query); err != nil {
				return err
			}
		}
		// In both modes FULL (2) and EXTRA (3) sync at every commit.
		if synchronous < 2 || (journal != "wal" && journal != "delete") {
			return &model.Error{Code: model.CodeUnsafe, Op: op,
				Err: fmt.Errorf("journal_mode is %s and synchronous is %d: a commit may be lost with the power", journal, synchronous)}
		}
		return nil
	})
}

// Ping checks that messages could be written and worked on now: that the file
// can be locked for writing, and that every table is there.
func (s *Store) Ping(ctx context.Context) error {
	return s.write(ctx, "ping", func(t *tx) error {
		_, err := t.exec(touchTables)
		return err
	})
}

// touchTables reads a row of every table at most.
const touchTables = `SELECT EXISTS (SELECT 1 FROM posthouse_message), EXISTS (SELECT 1 FROM posthouse_work), EXISTS (SELECT 1 FROM posthouse_outcome),
	EXISTS (SELECT 1 FROM posthouse_attempt), EXISTS (SELECT 1 FROM posthouse_counter), EXISTS (SELECT 1 FROM posthouse_source),
	EXISTS (SELECT 1 FROM posthouse_instance), EXISTS (SELECT 1 FROM posthouse_lease), EXISTS (SELECT 1 FROM posthouse_key),
	EXISTS (SELECT 1 FROM posthouse_want), EXISTS (SELECT 1 FROM posthouse_dedup),
	EXISTS (SELECT 1 FROM posthouse_template), EXISTS (SELECT 1 FROM posthouse_request), EXISTS (SELECT 1 FROM posthouse_secret),
	EXISTS (SELECT 1 FROM posthouse_delivery), EXISTS (SELECT 1 FROM posthouse_expiry), EXISTS (SELECT 1 FROM posthouse_user),
	EXISTS (SELECT 1 FROM posthouse_user_message), EXISTS (SELECT 1 FROM posthouse_audit)`

// migrator runs migrations. DDL is transactional here, and the transaction that
// it runs in is the lock.
type migrator struct{ s *Store }

func (m migrator) Applied(ctx context.Context) (applied []model.SchemaVersion, err error) {
	err = m.s.read(ctx, "read schema versions", func(ctx context.Context, snapshot *sql.Tx) error {
		var there bool
		err := snapshot.QueryRowContext(ctx, `SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'posthouse_schema'`).Scan(&there)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		rows, err := snapshot.QueryContext(ctx, selectVersions)
		applied, err = scanVersions(rows, err)
		return err
	})
	return applied, err
}

const selectVersions = `SELECT version, name, applied_at FROM posthouse_schema ORDER BY version`

func scanVersions(rows *sql.Rows, err error) (applied []model.SchemaVersion, _ error) {
	err = each(rows, err, func(rows *sql.Rows) error {
		var v model.SchemaVersion
		if err := rows.Scan(&v.Version, &v.Name, &v.AppliedAt); err != nil {
			return err
		}
		applied = append(applied, v)
		return nil
	})
	return applied, err
}

func (m migrator) Locked(ctx context.Context, change func(context.Context, migrate.Session) error) error {
	return m.s.writeWithin(ctx, migrate.LockTimeout, "migrate", func(t *tx) error {
		_, err := t.conn.ExecContext(t.ctx, `CREATE TABLE IF NOT EXISTS posthouse_schema (
			version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)`)
		if err != nil {
			return err
		}
		return change(ctx, session{t})
	})
}

// session does not use the prepared statements: each of its own runs once.
type session struct{ t *tx }

func (s session) Applied(context.Context) ([]model.SchemaVersion, error) {
	rows, err := s.t.conn.QueryContext(s.t.ctx, selectVersions)
	return scanVersions(rows, err)
}

func (s session) Apply(_ context.Context, m migrate.Migration) error {
	if err := s.run(m.Up); err != nil {
		return err
	}
	_, err := s.t.conn.ExecContext(s.t.ctx, `INSERT INTO posthouse_schema (version, name, applied_at) VALUES (?, ?, ?)`,
		m.Version, m.Name, s.t.now)
	return err
}

func (s session) Revert(_ context.Context, m migrate.Migration) error {
	if err := s.run(m.Down); err != nil {
		return err
	}
	_, err := s.t.conn.ExecContext(s.t.ctx, `DELETE FROM posthouse_schema WHERE version = ?`, m.Version)
	return err
}

func (s session) run(statements []string) error {
	for i, statement := range statements {
		if _, err := s.t.conn.ExecContext(s.t.ctx, statement); err != nil {
			return fmt.Errorf("statement %d: %w", i+1, err)
		}
	}
	return nil
}
