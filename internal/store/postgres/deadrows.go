package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// DeadRows counts the rows of work that are gone but cannot be removed yet, as
// the server estimates it, and says how long the oldest transaction has been
// open that may still see them; 0 where none is, or where this user may not see
// it. Claims walk dead rows: while somebody keeps a transaction open they become
// slower with every message.
func (s *Store) DeadRows(ctx context.Context) (rows int64, oldest time.Duration, err error) {
	err = s.read(ctx, "count dead rows", func(ctx context.Context, c conn) error {
		return c.query(ctx, func(r pgx.Rows) error {
			var seconds float64
			err := r.Scan(&rows, &seconds)
			oldest = time.Duration(seconds * float64(time.Second))
			return err
		}, `SELECT coalesce((SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'posthouse_work'::regclass), 0)::bigint,
			coalesce((SELECT max(`+now+` - extract(epoch FROM xact_start) * 1000000) / 1000000 FROM pg_stat_activity
				WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()), 0)::float8`)
	})
	return rows, oldest, err
}
