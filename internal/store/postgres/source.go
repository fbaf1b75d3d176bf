package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// Register makes the sources known. It takes them in the order of their names,
// so that processes that start at the same time do not block each other, and
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
	err := s.write(ctx, "register sources", func(ctx context.Context, c *pgxpool.Conn) error {
		return transaction(ctx, c, pgx.TxOptions{}, func(tx pgx.Tx) error {
			batch := &pgx.Batch{}
			for _, i := range order {
				name, policy := columns.Text(specs[i].Name), specs[i].Policy
				batch.Queue(`INSERT INTO posthouse_source (name, enabled, max_retry, backoff, orphan_after, created_at)
					SELECT $1, $2, $3, $4, $5, `+now+` WHERE NOT EXISTS (SELECT 1 FROM posthouse_source WHERE name = $1)
					ON CONFLICT (name) DO NOTHING`,
					name, specs[i].Enabled, policy.MaxRetry, columns.FormatBackoff(policy.Backoff), policy.OrphanAfter.Microseconds())
				batch.Queue(`UPDATE posthouse_source SET max_retry = $2, backoff = $3, orphan_after = $4 WHERE name = $1
					RETURNING id, name, enabled`,
					name, policy.MaxRetry, columns.FormatBackoff(policy.Backoff), policy.OrphanAfter.Microseconds()).
					QueryRow(func(row pgx.Row) error {
						return row.Scan(&sources[i].ID, &sources[i].Name, &sources[i].Enabled)
					})
				batch.Queue(`INSERT INTO posthouse_lease (queue, holder, since)
					SELECT id, 0, 0 FROM posthouse_source WHERE name = $1 ON CONFLICT (queue) DO NOTHING`, name)
			}
			return tx.SendBatch(ctx, batch).Close()
		})
	})
	if err != nil {
		return nil, err
	}
	return sources, nil
}

// Sources lists all sources by name.
func (s *Store) Sources(ctx context.Context) (sources []model.Source, err error) {
	err = s.read(ctx, "list sources", func(ctx context.Context, c *pgxpool.Conn) (err error) {
		sources, err = readSources(ctx, c)
		return err
	})
	return sources, err
}

func readSources(ctx context.Context, q querier) (sources []model.Source, err error) {
	err = query(ctx, q, func(rows pgx.Rows) error {
		var source model.Source
		if err := rows.Scan(&source.ID, &source.Name, &source.Enabled); err != nil {
			return err
		}
		sources = append(sources, source)
		return nil
	}, `SELECT id, name, enabled FROM posthouse_source ORDER BY name`)
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
