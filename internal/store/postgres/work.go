package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// AnyDue says whether the queue has due work.
func (s *Store) AnyDue(ctx context.Context, queue model.SourceID) (due bool, err error) {
	err = s.read(ctx, "look for due work", func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM posthouse_work
			WHERE queue = $1 AND state = 0 AND due_at <= (SELECT `+now+`))`, queue).Scan(&due)
	})
	return due, err
}

// Columns of work w, as workFields wants them.
const workColumns = `w.seq, w.queue, w.state, w.due_at, w.token, w.owner, w.started_at, w.retry_count, w.lost, w.replay`

func workFields(w *model.Work) []any {
	return []any{&w.Seq, &w.Queue, &w.State, &w.DueAt, &w.Token, &w.Owner, &w.StartedAt, &w.RetryCount, &w.Lost, &w.Replay}
}

// withMessages ends a statement that changed work and called what it returned
// "changed": it loads the message of what was started, and orders all. OFFSET 0
// keeps the planner from joining any other way than row by row.
const withMessages = ` SELECT ` + workColumns + `, ` + messageColumns + ` FROM changed w
	LEFT JOIN LATERAL (SELECT * FROM posthouse_message m WHERE m.seq = w.seq AND w.started_at <> 0 OFFSET 0) m ON true `

func scanWork(works *[]model.Work) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var w model.Work
		var m messageRow
		if err := rows.Scan(append(workFields(&w), m.fields()...)...); err != nil {
			return err
		}
		w.Message = m.message()
		*works = append(*works, w)
		return nil
	}
}

// claim asks the clock in a query of its own, or it would be a filter and not a
// bound of the index scan.
const claim = `WITH clock AS MATERIALIZED (SELECT ` + now + ` AS t), changed AS (
		UPDATE posthouse_work SET state = 1, token = $3, owner = $2,
			started_at = CASE WHEN NOT $5 OR (lost > 0 AND retry_count >= $6) THEN 0 ELSE (SELECT t FROM clock) END
		WHERE seq = ANY (ARRAY(SELECT seq FROM posthouse_work
			WHERE queue = $1 AND state = 0 AND due_at <= (SELECT t FROM clock)
			AND EXISTS (SELECT 1 FROM posthouse_instance WHERE id = $2 AND NOT dead)
			ORDER BY due_at, seq + 0 LIMIT $4 FOR UPDATE SKIP LOCKED))
		RETURNING *
	)` + withMessages + `ORDER BY w.due_at, w.seq`

// ClaimWork moves due work to processing.
func (s *Store) ClaimWork(ctx context.Context, p model.ClaimParams) (claimed []model.Work, err error) {
	err = s.write(ctx, "claim", func(ctx context.Context, c *pgxpool.Conn) error {
		claimed = nil
		return query(ctx, c, scanWork(&claimed), claim,
			p.Queue, p.Owner, p.Token, p.Limit, p.Start, p.AloneFrom)
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

const start = `WITH clock AS MATERIALIZED (SELECT ` + now + ` AS t), changed AS (
		UPDATE posthouse_work u SET started_at = (SELECT t FROM clock)
		WHERE seq = ANY ($1::bigint[]) AND state + 0 = 1 AND token = $2 AND started_at = 0
		AND EXISTS (SELECT 1 FROM posthouse_instance i WHERE i.id = u.owner AND NOT i.dead)
		RETURNING *
	)` + withMessages + `ORDER BY array_position($1::bigint[], w.seq)`

// StartWork marks claimed work as started. The work of an instance that was
// declared dead is no longer its own, even before it is recovered.
func (s *Store) StartWork(ctx context.Context, p model.StartParams) (started []model.Work, err error) {
	err = s.write(ctx, "start", func(ctx context.Context, c *pgxpool.Conn) error {
		started = nil
		return query(ctx, c, scanWork(&started), start, seqs(p.Seqs), p.Token)
	})
	if err != nil {
		return nil, err
	}
	return started, nil
}

// UnstartWork takes the mark of StartWork back.
func (s *Store) UnstartWork(ctx context.Context, p model.StartParams) (int, error) {
	n, err := s.exec(ctx, "unstart", `UPDATE posthouse_work SET started_at = 0
		WHERE seq = ANY ($1::bigint[]) AND state + 0 = 1 AND token = $2 AND started_at <> 0`, seqs(p.Seqs), p.Token)
	return int(n), err
}

func seqs(all []model.Seq) []int64 {
	numbers := make([]int64, len(all))
	for i, seq := range all {
		numbers[i] = int64(seq)
	}
	return numbers
}

// GiveBack returns all work of one claim to pending. What is being settled at
// this moment is passed over.
func (s *Store) GiveBack(ctx context.Context, queue model.SourceID, token model.Token) (int, error) {
	n, err := s.exec(ctx, "give back", `UPDATE posthouse_work SET state = 0, token = 0, owner = 0, started_at = 0
		WHERE seq = ANY (ARRAY(SELECT seq FROM posthouse_work WHERE queue = $1 AND state = 1 AND token = $2 FOR UPDATE SKIP LOCKED))
		AND state + 0 = 1 AND token = $2`, queue, token)
	return int(n), err
}

// processing is all work w that is processing, with its source s: one look at
// the index for each source.
const processing = `posthouse_source s
	CROSS JOIN LATERAL (SELECT * FROM posthouse_work WHERE queue = s.id AND state = 1 OFFSET 0) w`

// Claims lists the claims under which work of this owner is processing.
func (s *Store) Claims(ctx context.Context, owner model.InstanceID) (claims []model.Claim, err error) {
	err = s.read(ctx, "list claims", func(ctx context.Context, c *pgxpool.Conn) error {
		claims = nil
		return query(ctx, c, func(rows pgx.Rows) error {
			var claim model.Claim
			if err := rows.Scan(&claim.Queue, &claim.Token); err != nil {
				return err
			}
			claims = append(claims, claim)
			return nil
		}, `SELECT DISTINCT w.queue, w.token FROM `+processing+`
			WHERE w.owner = $1 ORDER BY w.queue, w.token`, owner)
	})
	return claims, err
}

const listOrphans = `WITH clock AS MATERIALIZED (SELECT ` + now + ` AS t)
	SELECT ` + workColumns + `, i.id IS NULL OR i.dead,
		coalesce(i.dead AND i.left_started = 1 AND w.started_at <> 0
			AND count(*) FILTER (WHERE w.started_at <> 0) OVER (PARTITION BY w.owner) = 1, false),
		s.max_retry, s.backoff, s.orphan_after, clock.t
	FROM clock, ` + processing + ` LEFT JOIN posthouse_instance i ON i.id = w.owner
	WHERE i.id IS NULL OR i.dead OR (w.started_at <> 0 AND w.started_at < clock.t - s.orphan_after)
	ORDER BY w.seq LIMIT $1`

// Orphans lists processing work that its owner will not finish. A work was
// alone when its owner had started one when it died, and has no other now (one
// whose start was under way at that moment).
func (s *Store) Orphans(ctx context.Context, limit int) (orphans []model.Orphan, err error) {
	err = s.read(ctx, "list orphans", func(ctx context.Context, c *pgxpool.Conn) error {
		orphans = nil
		return query(ctx, c, func(rows pgx.Rows) error {
			var o model.Orphan
			var backoff string
			var orphanAfter int64
			fields := append(workFields(&o.Work), &o.OwnerDead, &o.Alone, &o.Policy.MaxRetry, &backoff, &orphanAfter, &o.Now)
			err := rows.Scan(fields...)
			if err != nil {
				return err
			}
			o.Policy.OrphanAfter = columns.Duration(orphanAfter)
			o.Policy.Backoff, err = columns.ParseBackoff(backoff)
			orphans = append(orphans, o)
			return err
		}, listOrphans, limit)
	})
	return orphans, err
}
