package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
)

// Secrets lists requests above after that have sensitive values, by seq.
func (s *Store) Secrets(ctx context.Context, after model.Seq, limit int) (requests []model.Seq, err error) {
	err = s.read(ctx, "list secrets", func(ctx context.Context, c conn) error {
		requests = nil
		return c.query(ctx, func(rows pgx.Rows) error {
			var seq model.Seq
			err := rows.Scan(&seq)
			requests = append(requests, seq)
			return err
		}, `SELECT request FROM posthouse_secret WHERE request > $1 ORDER BY request LIMIT $2`, after, limit)
	})
	return requests, err
}

// Who changes a delivery that is final into one that is not has its request's
// secret locked (lockSecrets); so has who erases it. What was locked is looked at
// by another statement, which sees what was committed until then. OFFSET 0 keeps the
// planner from looking at all deliveries at once.
const (
	lockToErase = `SELECT request FROM posthouse_secret WHERE request = ANY ($1::bigint[]) ORDER BY request FOR UPDATE SKIP LOCKED`
	erase       = `DELETE FROM posthouse_secret WHERE request = ANY ($1::bigint[]) AND NOT EXISTS (
		SELECT 1 FROM posthouse_delivery d
		CROSS JOIN LATERAL (SELECT state FROM posthouse_work WHERE seq = d.seq OFFSET 0) w
		WHERE d.request = posthouse_secret.request AND w.state IN (0, 1, 5) OFFSET 0)`
	lockSecrets = `SELECT request FROM posthouse_secret WHERE request = ANY ($1::bigint[]) ORDER BY request FOR SHARE`
)

// EraseSecrets erases the sensitive values of those of the requests whose
// deliveries are all final. One that is being replayed is passed over.
func (s *Store) EraseSecrets(ctx context.Context, requests []model.Seq) (n int, err error) {
	if len(requests) == 0 {
		return 0, nil
	}
	err = s.write(ctx, "erase secrets", func(ctx context.Context, c conn) error {
		return transaction(ctx, c, pgx.TxOptions{}, func(c conn) error {
			locked, err := queryNumbers(ctx, c, lockToErase, seqs(requests))
			if err != nil || len(locked) == 0 {
				n = 0
				return err
			}
			erased, err := c.exec(ctx, erase, locked)
			n = int(erased)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// queryNumbers returns the one column of a result.
func queryNumbers(ctx context.Context, c conn, sql string, args ...any) (numbers []int64, err error) {
	err = c.query(ctx, func(rows pgx.Rows) error {
		var n int64
		err := rows.Scan(&n)
		numbers = append(numbers, n)
		return err
	}, sql, args...)
	return numbers, err
}
