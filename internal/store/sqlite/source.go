package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// Register makes the sources known.
func (s *Store) Register(ctx context.Context, specs []model.SourceSpec) ([]model.Source, error) {
	sources := make([]model.Source, 0, len(specs))
	err := s.write(ctx, "register sources", func(t *tx) error {
		for _, spec := range specs {
			err := t.query(func(rows *sql.Rows) error {
				source := model.Source{Name: spec.Name}
				if err := rows.Scan(&source.ID, &source.Enabled); err != nil {
					return err
				}
				sources = append(sources, source)
				return nil
			}, `INSERT INTO posthouse_source (name, enabled, max_retry, backoff, orphan_after, created_at) VALUES (?, ?, ?, ?, ?, ?)
				ON CONFLICT (name) DO UPDATE SET max_retry = excluded.max_retry, backoff = excluded.backoff, orphan_after = excluded.orphan_after
				RETURNING id, enabled`,
				spec.Name, spec.Enabled, spec.Policy.MaxRetry, formatBackoff(spec.Policy.Backoff),
				spec.Policy.OrphanAfter.Microseconds(), t.now)
			if err != nil {
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

// Sources lists all sources by name.
func (s *Store) Sources(ctx context.Context) (sources []model.Source, err error) {
	err = s.read(ctx, "list sources", func(ctx context.Context, snapshot *sql.Tx) error {
		sources = nil
		rows, err := snapshot.QueryContext(ctx, selectSources)
		return each(rows, err, scanSource(&sources))
	})
	return sources, err
}

const selectSources = `SELECT id, name, enabled FROM posthouse_source ORDER BY name`

func scanSource(sources *[]model.Source) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var source model.Source
		if err := rows.Scan(&source.ID, &source.Name, &source.Enabled); err != nil {
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
			return &model.Error{Code: model.CodeNotFound, Op: op, Err: fmt.Errorf("no source has that name")}
		}
		return err
	})
}

// formatBackoff writes waits as microseconds, separated by commas.
func formatBackoff(waits []time.Duration) string {
	texts := make([]string, len(waits))
	for i, wait := range waits {
		texts[i] = strconv.FormatInt(wait.Microseconds(), 10)
	}
	return strings.Join(texts, ",")
}

func parseBackoff(text string) ([]time.Duration, error) {
	if text == "" {
		return nil, nil
	}
	var waits []time.Duration
	for field := range strings.SplitSeq(text, ",") {
		micros, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("stored backoff: %w", err)
		}
		waits = append(waits, duration(micros))
	}
	return waits, nil
}
