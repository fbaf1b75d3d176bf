package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

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
	err := s.write(ctx, "register sources", func(c *call) error {
		var begin script
		begin.add(`START TRANSACTION`)
		if _, err := c.exec(&begin); err != nil {
			return err
		}
		for _, i := range order {
			name, policy := []byte(columns.Text(specs[i].Name)), specs[i].Policy
			backoff, orphanAfter := columns.FormatBackoff(policy.Backoff), policy.OrphanAfter.Microseconds()
			var one script
			one.add(`INSERT INTO posthouse_source (name, enabled, max_retry, backoff, orphan_after, created_at)
				SELECT v.* FROM (SELECT ? AS name, ? AS enabled, ? AS max_retry, ? AS backoff, ? AS orphan_after, `+now+` AS created_at) v
				WHERE NOT EXISTS (SELECT 1 FROM posthouse_source WHERE name = ?)
				ON DUPLICATE KEY UPDATE id = posthouse_source.id`,
				name, specs[i].Enabled, policy.MaxRetry, backoff, orphanAfter, name)
			one.add(`UPDATE posthouse_source SET max_retry = ?, backoff = ?, orphan_after = ? WHERE name = ?`,
				policy.MaxRetry, backoff, orphanAfter, name)
			one.add(`INSERT INTO posthouse_lease (queue, holder, since)
				SELECT s.id, 0, 0 FROM posthouse_source s WHERE s.name = ? ON DUPLICATE KEY UPDATE queue = posthouse_lease.queue`, name)
			one.add(`SELECT id, name, enabled FROM posthouse_source WHERE name = ?`, name)
			err := c.query(&one, func(rows *sql.Rows) error {
				return into(rows, &sources[i].ID, &sources[i].Name, &sources[i].Enabled)
			})
			if err != nil {
				return err
			}
		}
		var end script
		end.add(`COMMIT`)
		_, err := c.exec(&end)
		return err
	})
	if err != nil {
		return nil, err
	}
	return sources, nil
}

// Sources lists all sources by name.
func (s *Store) Sources(ctx context.Context) (sources []model.Source, err error) {
	err = s.read(ctx, "list sources", func(c *call) error {
		sources = nil
		var one script
		one.add(selectSources)
		return c.query(&one, scanSource(&sources))
	})
	return sources, err
}

const selectSources = `SELECT id, name, enabled FROM posthouse_source ORDER BY name`

func scanSource(sources *[]model.Source) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var source model.Source
		err := into(rows, &source.ID, &source.Name, &source.Enabled)
		*sources = append(*sources, source)
		return err
	}
}

// SetEnabled turns consumption of a source on or off.
func (s *Store) SetEnabled(ctx context.Context, source string, enabled bool) error {
	const op = "switch source"
	found := false
	err := s.write(ctx, op, func(c *call) error {
		name := []byte(columns.Text(source))
		var change script
		change.add(`UPDATE posthouse_source SET enabled = ? WHERE name = ?`, enabled, name)
		change.add(`SELECT count(*) FROM posthouse_source WHERE name = ?`, name)
		return c.query(&change, func(rows *sql.Rows) error { return into(rows, &found) })
	})
	if err == nil && !found {
		return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no source has that name")}
	}
	return err
}
