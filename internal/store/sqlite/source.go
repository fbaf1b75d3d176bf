package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// Register makes the sources known, and agrees on what is wanted of those of
// which nothing was agreed yet.
func (s *Store) Register(ctx context.Context, specs []model.SourceSpec) ([]model.Source, error) {
	sources := make([]model.Source, 0, len(specs))
	err := s.write(ctx, "register sources", func(t *tx) error {
		for i := range specs {
			id, err := register(t, &specs[i])
			if err != nil {
				return err
			}
			if err := t.query(scanSource(&sources), selectSources+` WHERE s.id = ?`, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return sources, nil
}

func register(t *tx, spec *model.SourceSpec) (id model.SourceID, err error) {
	err = t.query(func(rows *sql.Rows) error { return rows.Scan(&id) },
		`INSERT INTO posthouse_source (name, tenant, enabled, max_retry, backoff, orphan_after, jitter, on_uncertain, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET max_retry = excluded.max_retry, backoff = excluded.backoff, orphan_after = excluded.orphan_after,
				jitter = excluded.jitter, on_uncertain = excluded.on_uncertain
			RETURNING id`,
		spec.Name, spec.Tenant, spec.Enabled, spec.Policy.MaxRetry, columns.FormatBackoff(spec.Policy.Backoff),
		spec.Policy.OrphanAfter.Microseconds(), spec.Policy.Jitter.Microseconds(), spec.Policy.Uncertain, t.now)
	if err != nil || spec.Wants.Order == "" {
		return id, err
	}
	key, err := keyID(t, id, spec.Wants)
	if err != nil {
		return id, err
	}
	agreed, err := t.exec(`UPDATE posthouse_source SET ordering = ?, partitions = ?, key_id = ?, generation = generation + 1
		WHERE id = ? AND ordering = ''`, string(spec.Wants.Order), spec.Wants.Partitions, key, id)
	if err != nil || agreed == 0 {
		return id, err
	}
	return id, makePartitions(t, list([]model.SourceID{id}))
}

// keyID is the number of what the ordering tells keys by, given where there is
// none yet.
func keyID(t *tx, queue model.SourceID, o model.Ordering) (id model.KeyID, err error) {
	if !o.HasKeys() {
		return 0, nil
	}
	err = t.query(func(rows *sql.Rows) error { return rows.Scan(&id) },
		`SELECT id FROM posthouse_key WHERE queue = ? AND expression = ? AND blocks = ?`, queue, o.Key, o.Block)
	if err != nil || id != 0 {
		return id, err
	}
	err = t.query(func(rows *sql.Rows) error { return rows.Scan(&id) },
		`INSERT INTO posthouse_key (queue, id, expression, blocks)
			SELECT ?1, 1 + coalesce(max(id), 0), ?2, ?3 FROM posthouse_key WHERE queue = ?1 RETURNING id`, queue, o.Key, o.Block)
	return id, err
}

// Sources lists all sources by name.
func (s *Store) Sources(ctx context.Context) (sources []model.Source, err error) {
	err = s.read(ctx, "list sources", func(ctx context.Context, snapshot *sql.Tx) error {
		sources = nil
		rows, err := snapshot.QueryContext(ctx, selectSources+byName)
		return each(rows, err, scanSource(&sources))
	})
	return sources, err
}

// Columns of a source s with its key k, as sourceFields wants them.
const (
	sourceColumns = `s.id, s.name, s.tenant, s.enabled, s.ordering, s.partitions, s.key_id, s.generation, s.draining,
		coalesce(k.expression, ''), coalesce(k.blocks, 0), s.hold_until`
	sourcesWithKeys = ` FROM posthouse_source s LEFT JOIN posthouse_key k ON k.queue = s.id AND k.id = s.key_id`
	selectSources   = `SELECT ` + sourceColumns + sourcesWithKeys
	byName          = ` ORDER BY s.name`
)

func sourceFields(s *model.Source) []any {
	a := &s.Agreed
	return []any{&s.ID, &s.Name, &s.Tenant, &s.Enabled, &a.Order, &a.Partitions, &a.KeyID, &a.Generation, &a.Draining, &a.Key, &a.Block, &remaining{&s.HoldFor}}
}

// remaining reads a point in time as how far it is off, 0 where it has passed.
type remaining struct{ d *time.Duration }

// Scan implements sql.Scanner.
func (r *remaining) Scan(value any) error {
	until, ok := value.(int64)
	if !ok {
		return fmt.Errorf("a time is a %T", value)
	}
	var c clock
	*r.d = max(model.Micros(until).Sub(c.now()), 0)
	return nil
}

// HoldQueue notes for how long a provider wants to be left alone.
func (s *Store) HoldQueue(ctx context.Context, queue model.SourceID, wait time.Duration) error {
	return s.write(ctx, "hold queue", func(t *tx) error {
		_, err := t.exec(`UPDATE posthouse_source SET hold_until = ? WHERE id = ? AND hold_until < ?`, t.now.Add(wait), queue, t.now.Add(wait))
		return err
	})
}

func scanSource(sources *[]model.Source) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var source model.Source
		if err := rows.Scan(sourceFields(&source)...); err != nil {
			return err
		}
		*sources = append(*sources, source)
		return nil
	}
}

// SetEnabled turns consumption of a source on or off.
func (s *Store) SetEnabled(ctx context.Context, source string, enabled bool) error {
	const op = "switch source"
	return s.write(ctx, op, func(t *tx) error {
		n, err := t.exec(`UPDATE posthouse_source SET enabled = ? WHERE name = ?`, enabled, source)
		if err == nil && n == 0 {
			return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no source has that name")}
		}
		return err
	})
}
