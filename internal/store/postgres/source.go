package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// Register makes the sources known, and agrees on what is wanted of those of
// which nothing was agreed yet. It takes them in the order of their names, so
// that processes that start at the same time do not block each other, and
// inserts only what is missing, so that no ids are used up.
func (s *Store) Register(ctx context.Context, specs []model.SourceSpec) ([]model.Source, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	order := make([]int, len(specs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(specs[a].Name, specs[b].Name) })
	sources := make([]model.Source, len(specs))
	err := s.write(ctx, "register sources", func(ctx context.Context, c conn) error {
		return transaction(ctx, c, pgx.TxOptions{}, func(c conn) error {
			batch := &pgx.Batch{}
			for _, i := range order {
				register(batch, &specs[i], &sources[i])
			}
			return c.batch(ctx, batch)
		})
	})
	if err != nil {
		return nil, err
	}
	return sources, nil
}

func register(batch *pgx.Batch, spec *model.SourceSpec, source *model.Source) {
	name, policy, wants := columns.Text(spec.Name), spec.Policy, spec.Wants
	batch.Queue(`INSERT INTO posthouse_source (name, enabled, max_retry, backoff, orphan_after, tenant, created_at)
		SELECT $1, $2, $3, $4, $5, $6, `+now+` WHERE NOT EXISTS (SELECT 1 FROM posthouse_source WHERE name = $1)
		ON CONFLICT (name) DO NOTHING`,
		name, spec.Enabled, policy.MaxRetry, columns.FormatBackoff(policy.Backoff), policy.OrphanAfter.Microseconds(), int(spec.Tenant))
	// From here on its row is locked.
	batch.Queue(`UPDATE posthouse_source SET max_retry = $2, backoff = $3, orphan_after = $4, jitter = $5, on_uncertain = $6
		WHERE name = $1`,
		name, policy.MaxRetry, columns.FormatBackoff(policy.Backoff), policy.OrphanAfter.Microseconds(),
		policy.Jitter.Microseconds(), int(policy.Uncertain))
	if wants.Order != "" {
		if wants.HasKeys() {
			batch.Queue(makeKey+`WHERE s.name = $3`, columns.Text(wants.Key), wants.Block, name)
		}
		batch.Queue(`UPDATE posthouse_source s SET ordering = $2, partitions = $3, key_id = `+keyID+`, generation = generation + 1
			WHERE name = $1 AND ordering = ''`,
			name, string(wants.Order), wants.Partitions, wants.HasKeys(), columns.Text(wants.Key), wants.Block)
		// All partitions, and no others; where something was agreed before, they are there.
		batch.Queue(`INSERT INTO posthouse_lease (queue, part, holder, since)
			SELECT s.id, part, 0, 0 FROM posthouse_source s, generate_series(0, s.partitions - 1) part WHERE s.name = $1
			ON CONFLICT (queue, part) DO NOTHING`, name)
		batch.Queue(`DELETE FROM posthouse_lease l USING posthouse_source s WHERE s.name = $1 AND l.queue = s.id AND l.part >= s.partitions`, name)
	}
	batch.Queue(selectSources+`WHERE s.name = $1`, name).QueryRow(func(row pgx.Row) error { return row.Scan(sourceFields(source)...) })
}

const (
	// makeKey gives the sources s that a WHERE names a number for the expression
	// $1 and whether it blocks, $2, unless it has one. Their rows must be locked.
	makeKey = `INSERT INTO posthouse_key (queue, id, expression, blocks)
		SELECT s.id, 1 + coalesce((SELECT max(k.id) FROM posthouse_key k WHERE k.queue = s.id), 0), $1, $2
		FROM (SELECT * FROM posthouse_source s
			WHERE NOT EXISTS (SELECT 1 FROM posthouse_key k WHERE k.queue = s.id AND k.expression = $1 AND k.blocks = $2)) s `
	// keyID is that number for a source s, where $4 says that there is one, for
	// the expression $5 and whether it blocks, $6.
	keyID = `coalesce((SELECT k.id FROM posthouse_key k WHERE $4 AND k.queue = s.id AND k.expression = $5 AND k.blocks = $6), 0)`
)

// Sources lists all sources by name.
func (s *Store) Sources(ctx context.Context) (sources []model.Source, err error) {
	err = s.read(ctx, "list sources", func(ctx context.Context, c conn) (err error) {
		sources, err = readSources(ctx, c)
		return err
	})
	return sources, err
}

// Columns of sources s with their keys k, as sourceFields wants them.
const (
	sourceColumns = `s.id, s.name, s.tenant, s.enabled, s.ordering, s.partitions, s.key_id, s.generation, s.draining,
		coalesce(k.expression, ''), coalesce(k.blocks, false), CASE WHEN s.hold_until = 0 THEN 0 ELSE greatest(s.hold_until - ` + now + `, 0) END`
	withKey       = `LEFT JOIN posthouse_key k ON k.queue = s.id AND k.id = s.key_id `
	selectSources = `SELECT ` + sourceColumns + ` FROM posthouse_source s ` + withKey
)

func sourceFields(s *model.Source) []any {
	a := &s.Agreed
	return []any{&s.ID, &s.Name, &s.Tenant, &s.Enabled, &a.Order, &a.Partitions, &a.KeyID, &a.Generation, &a.Draining, &a.Key, &a.Block, (*columns.Micros)(&s.HoldFor)}
}

func readSources(ctx context.Context, c conn) (sources []model.Source, err error) {
	err = c.query(ctx, func(rows pgx.Rows) error {
		var source model.Source
		if err := rows.Scan(sourceFields(&source)...); err != nil {
			return err
		}
		sources = append(sources, source)
		return nil
	}, selectSources+`ORDER BY s.name`)
	return sources, err
}

// SetEnabled turns consumption of a source on or off.
func (s *Store) SetEnabled(ctx context.Context, source string, enabled bool) error {
	const op = "switch source"
	n, err := s.exec(ctx, op, `UPDATE posthouse_source SET enabled = $2 WHERE name = $1`, columns.Text(source), enabled)
	if err == nil && n == 0 {
		return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no source has that name")}
	}
	return err
}

// HoldQueue notes for how long a provider wants to be left alone.
func (s *Store) HoldQueue(ctx context.Context, queue model.SourceID, wait time.Duration) error {
	_, err := s.exec(ctx, "hold queue", `UPDATE posthouse_source SET hold_until = `+now+` + $2::bigint WHERE id = $1 AND hold_until < `+now+` + $2::bigint`,
		int32(queue), max(wait, 0).Microseconds())
	return err
}
