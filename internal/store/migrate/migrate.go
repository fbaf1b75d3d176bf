// Package migrate answers how a schema gets from one version to the next. A
// store embeds numbered files and offers a Driver; the order, the refusals and
// the report are the same for every database.
//
// Versions are applied one at a time, each under the lock, so that several
// processes may migrate at once: each finds what the others have left to do.
// What is applied must be the first versions of those that are known. A schema
// that holds anything else was made by another binary and is not touched.
package migrate

import (
	"context"
	"fmt"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// LockTimeout is how long a Driver waits for the lock where ctx does not end
// sooner. Another process may be building an index meanwhile.
const LockTimeout = time.Minute

// Driver is what a database does for the runner. Its errors are *model.Error.
type Driver interface {
	// Applied lists the recorded versions in ascending order, without the
	// lock. A database without the version table has none; that is no error.
	Applied(ctx context.Context) ([]model.SchemaVersion, error)
	// Locked takes the lock of the schema, waiting at most LockTimeout
	// (CodeUnavailable), creates the version table where it is missing, and
	// calls change. Where DDL is transactional all that change does is one
	// transaction, committed when change returns nil. The lock is released
	// before Locked returns, and by the database where the process dies.
	Locked(ctx context.Context, change func(context.Context, Session) error) error
}

// Session is a Driver's database under the lock.
type Session interface {
	// Applied lists the recorded versions in ascending order.
	Applied(ctx context.Context) ([]model.SchemaVersion, error)
	// Apply runs m.Up and then records m. Where DDL is not transactional a
	// call that died half-way is repeated: the statements are idempotent.
	Apply(ctx context.Context, m Migration) error
	// Revert runs m.Down and then removes the record of m.
	Revert(ctx context.Context, m Migration) error
}

// Up applies every version that is missing, oldest first, and returns those
// that this call applied. CodeSchema where the schema is not this binary's.
func Up(ctx context.Context, d Driver, known []Migration) ([]int, error) {
	var done []int
	for {
		version := 0
		err := d.Locked(ctx, func(ctx context.Context, s Session) error {
			applied, err := s.Applied(ctx)
			if err != nil {
				return err
			}
			if err := prefix(applied, known); err != nil {
				return err
			}
			if len(applied) == len(known) {
				return nil
			}
			next := known[len(applied)]
			version = next.Version
			return s.Apply(ctx, next)
		})
		if err != nil || version == 0 {
			return done, err
		}
		done = append(done, version)
	}
}

// Down takes back the newest version and returns it, 0 where there is none.
// CodeSchema where the schema is not this binary's.
func Down(ctx context.Context, d Driver, known []Migration) (int, error) {
	undone := 0
	err := d.Locked(ctx, func(ctx context.Context, s Session) error {
		applied, err := s.Applied(ctx)
		if err != nil {
			return err
		}
		if err := prefix(applied, known); err != nil {
			return err
		}
		if len(applied) == 0 {
			return nil
		}
		m := known[len(applied)-1]
		undone = m.Version
		return s.Revert(ctx, m)
	})
	if err != nil {
		return 0, err
	}
	return undone, nil
}

// Status lists every version that is known or applied, in ascending order.
// AppliedAt is 0 for those that are missing; Unknown are those that another
// binary has applied.
func Status(ctx context.Context, d Driver, known []Migration) ([]model.SchemaVersion, error) {
	applied, err := d.Applied(ctx)
	if err != nil {
		return nil, err
	}
	var all []model.SchemaVersion
	i := 0
	unknown := func(a model.SchemaVersion) {
		a.Unknown = true
		all = append(all, a)
		i++
	}
	for _, m := range known {
		for i < len(applied) && applied[i].Version < m.Version {
			unknown(applied[i])
		}
		if i < len(applied) && applied[i].Version == m.Version {
			all = append(all, applied[i])
			i++
			continue
		}
		all = append(all, model.SchemaVersion{Version: m.Version, Name: m.Name})
	}
	for i < len(applied) {
		unknown(applied[i])
	}
	return all, nil
}

// Check refuses, with CodeSchema, a schema that is absent, older, newer or
// another one.
func Check(ctx context.Context, d Driver, known []Migration) error {
	applied, err := d.Applied(ctx)
	if err != nil {
		return err
	}
	if err := prefix(applied, known); err != nil {
		return err
	}
	switch {
	case len(applied) == 0 && len(known) > 0:
		return schemaError("the database has no schema yet; run: posthouse migrate up")
	case len(applied) < len(known):
		return schemaError("the schema is at version %d, this binary needs %d; run: posthouse migrate up",
			applied[len(applied)-1].Version, known[len(known)-1].Version)
	}
	return nil
}

// prefix checks that what is applied are the first of what is known.
func prefix(applied []model.SchemaVersion, known []Migration) error {
	for i, a := range applied {
		switch {
		case len(known) == 0 || a.Version > known[len(known)-1].Version:
			return schemaError("the schema is at version %d, newer than this binary", applied[len(applied)-1].Version)
		case a.Version != known[i].Version:
			return schemaError("the schema holds version %d where this binary expects %d", a.Version, known[i].Version)
		}
	}
	return nil
}

func schemaError(format string, args ...any) error {
	return &model.Error{Code: model.CodeSchema, Op: "check schema", Err: fmt.Errorf(format, args...)}
}
