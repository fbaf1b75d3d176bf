package postgres

import (
	"context"
	"errors"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
)

// A list is made in two steps: a page of places, off one index, and then what
// is shown of each.
const showPage = `
	SELECT page.at, m.seq, m.id, s.name, coalesce(w.state, 3), coalesce(o.retry_count, w.retry_count),
		CASE WHEN w.state = 0 AND w.retry_count > 0 THEN w.due_at ELSE 0 END, m.received_at,
		coalesce(o.finished_at, CASE WHEN w.state = 2 THEN a.ended_at END, 0), coalesce(a.error, ''),
		m.content_type, m.size, m.check_note, coalesce(o.replay, w.replay)
	FROM page JOIN posthouse_message m ON m.seq = page.seq
	JOIN posthouse_source s ON s.id = m.source
	LEFT JOIN posthouse_work w ON w.seq = m.seq
	LEFT JOIN posthouse_outcome o ON o.seq = m.seq
	LEFT JOIN posthouse_attempt a ON a.seq = w.seq AND a.replay = w.replay AND a.n = w.retry_count
	ORDER BY page.at DESC, m.seq DESC`

// The pages. A source of 0 stands for all: of messages and outcomes that is
// the order of their primary key; of work it is the head of each branch of the
// index, merged. $1 is how many, $2 the seq to begin under; of
// work, $3 is the due_at to begin under, $4 the state, $5 and $6 bound the
// retries. The last is the source.
const (
	pageOfMessages = `WITH page (at, seq) AS MATERIALIZED (SELECT 0::bigint, seq FROM posthouse_message
		WHERE source = $3 AND seq + 0 < $2 ORDER BY seq + 0 DESC LIMIT $1)`
	pageOfAllMessages = `WITH page (at, seq) AS MATERIALIZED (SELECT 0::bigint, seq FROM posthouse_message
		WHERE seq < $2 ORDER BY seq DESC LIMIT $1)`
	pageOfOutcomes = `WITH page (at, seq) AS MATERIALIZED (SELECT 0::bigint, seq FROM posthouse_outcome
		WHERE source = $3 AND seq + 0 < $2 ORDER BY seq + 0 DESC LIMIT $1)`
	pageOfAllOutcomes = `WITH page (at, seq) AS MATERIALIZED (SELECT 0::bigint, seq FROM posthouse_outcome
		WHERE seq < $2 ORDER BY seq DESC LIMIT $1)`
	// Work stands by slots. The next slot in which there is any is found off the
	// index, each with the newest work in it; only as many slots as the page has
	// lines can be on it.
	pageOfWork    = `WITH RECURSIVE q (id) AS (SELECT $7::int), ` + pageOfSlots
	pageOfAllWork = `WITH RECURSIVE q (id) AS (SELECT id FROM posthouse_source WHERE tenant = 0), ` + pageOfSlots
	pageOfSlots   = `slots (queue, slot) AS (
			SELECT q.id, w.slot FROM q CROSS JOIN LATERAL (
				SELECT slot FROM posthouse_work WHERE queue = q.id AND state = $4 ORDER BY slot LIMIT 1) w
			UNION ALL
			SELECT s.queue, w.slot FROM slots s CROSS JOIN LATERAL (
				SELECT slot FROM posthouse_work WHERE queue = s.queue AND state = $4 AND slot > s.slot ORDER BY slot LIMIT 1) w
		), tops AS MATERIALIZED (
			SELECT s.queue, s.slot FROM slots s CROSS JOIN LATERAL (` + newestOfSlot + `LIMIT 1) w
			ORDER BY w.due_at DESC, w.seq DESC LIMIT $1
		), page (at, seq) AS MATERIALIZED (
			SELECT w.due_at, w.seq FROM tops s CROSS JOIN LATERAL (` + newestOfSlot + `LIMIT $1) w
			ORDER BY w.due_at DESC, w.seq DESC LIMIT $1
		)`
	newestOfSlot = `SELECT due_at, seq FROM posthouse_work
		WHERE queue = s.queue AND state = $4 AND slot = s.slot AND retry_count BETWEEN $5 AND $6 AND (due_at, seq + 0) < ($3, $2)
		ORDER BY due_at DESC, seq + 0 DESC `
)

// ListMessages returns one page, newest first.
func (s *Store) ListMessages(ctx context.Context, p model.ListParams) (page model.MessagePage, err error) {
	const op = "list messages"
	sql, args, err := pageQuery(p)
	if err != nil {
		return page, &model.Error{Code: model.CodeInvalid, Op: op, Err: err}
	}
	err = s.read(ctx, op, func(ctx context.Context, c conn) error {
		if c.local == "" {
			// Planned for these very arguments, since the limit decides what is best.
			c.local = `SELECT ` + setLocal("plan_cache_mode", "force_custom_plan")
		}
		page = model.MessagePage{}
		var last model.Cursor
		return c.query(ctx, func(rows pgx.Rows) error {
			if len(page.Items) == p.Limit { // one more than was asked for
				page.Next = &last
				return nil
			}
			view, at, err := scanView(rows)
			last = model.Cursor{DueAt: at, Seq: view.Seq}
			page.Items = append(page.Items, view)
			return err
		}, sql+showPage, args...)
	})
	if err != nil {
		return model.MessagePage{}, err
	}
	return page, nil
}

var (
	errLimit  = errors.New("a page of less than one message")
	errFilter = errors.New("no such filter")
)

func pageQuery(p model.ListParams) (sql string, args []any, err error) {
	if p.Limit < 1 {
		return "", nil, errLimit
	}
	if p.After == (model.Cursor{}) {
		p.After = model.Cursor{DueAt: math.MaxInt64, Seq: model.DeliverySeqs}
	}
	args = []any{p.Limit + 1, p.After.Seq}
	ofWork := func(state model.State, low, high int) {
		args = append(args, p.After.DueAt, int(state), low, high)
	}
	one, all := pageOfWork, pageOfAllWork
	switch p.Filter {
	case model.AnyState:
		one, all = pageOfMessages, pageOfAllMessages
	case model.OnlySuccess:
		one, all = pageOfOutcomes, pageOfAllOutcomes
	case model.OnlyPending:
		ofWork(model.Pending, 0, 0)
	case model.OnlyRetrying:
		ofWork(model.Pending, 1, math.MaxInt32)
	case model.OnlyProcessing:
		ofWork(model.Processing, 0, math.MaxInt32)
	case model.OnlyFailed:
		ofWork(model.Failed, 0, math.MaxInt32)
	default:
		return "", nil, errFilter
	}
	if p.Source == 0 {
		return all, args, nil
	}
	return one, append(args, p.Source), nil
}

func scanView(rows pgx.Rows) (v model.MessageView, at model.Micros, err error) {
	var id [16]byte
	err = rows.Scan(&at, &v.Seq, &id, &v.Source, &v.State, &v.RetryCount, &v.NextRetryAt, &v.ReceivedAt, &v.FinishedAt,
		&v.Error, &v.ContentType, &v.Size, &v.Check, &v.Replay)
	v.ID = id
	return v, at, err
}

// Message finds one message with its attempts.
func (s *Store) Message(ctx context.Context, id uuid.UUID) (view model.MessageView, attempts []model.AttemptView, err error) {
	const op = "show message"
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = s.read(ctx, op, func(ctx context.Context, c conn) error {
		return transaction(ctx, c, snapshot, func(c conn) error {
			attempts = nil
			found := false
			err := c.query(ctx, func(rows pgx.Rows) (err error) {
				view, _, err = scanView(rows)
				found = true
				return err
			}, `WITH page (at, seq) AS MATERIALIZED (SELECT 0::bigint, seq FROM posthouse_message WHERE id = $1::uuid)`+showPage, id)
			if err == nil && !found {
				return notFound(op)
			}
			if err != nil {
				return err
			}
			return c.query(ctx, func(rows pgx.Rows) error {
				var a model.AttemptView
				err := rows.Scan(&a.Replay, &a.N, &a.StartedAt, &a.EndedAt, &a.Outcome, &a.Reason, &a.Error, &a.HTTPStatus)
				attempts = append(attempts, a)
				return err
			}, `SELECT replay, n, started_at, ended_at, outcome, reason, error, http_status FROM posthouse_attempt WHERE seq = $1
				UNION ALL
				SELECT replay, n, started_at, finished_at, 'success', '', '', http_status FROM posthouse_outcome WHERE seq = $1 AND n > 0
				ORDER BY 1, 2`, view.Seq)
		})
	})
	if err != nil {
		return model.MessageView{}, nil, err
	}
	return view, attempts, nil
}

// Body returns the exact bytes.
func (s *Store) Body(ctx context.Context, id uuid.UUID) (model.Message, error) {
	const op = "read body"
	given := takeParams()
	defer given.giveBack()
	given.uuid(id)
	given.done()
	var message *model.Message
	err := s.read(ctx, op, func(ctx context.Context, c conn) error {
		err := c.run(ctx, `SELECT `+messageColumns+` FROM posthouse_message m WHERE m.id = $1`, given, func(r *row) error {
			message = r.message(nil)
			return nil
		})
		if err == nil && message == nil {
			return notFound(op)
		}
		return err
	})
	if err != nil {
		return model.Message{}, err
	}
	return *message, nil
}

func notFound(op string) error {
	return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no message has that id")}
}

// Stats counts per source.
func (s *Store) Stats(ctx context.Context) (stats []model.SourceStats, err error) {
	err = s.read(ctx, "count messages", func(ctx context.Context, c conn) error {
		stats = nil
		// One pass over all work there is, for which the order of the table is best.
		return transaction(ctx, c, pgx.TxOptions{}, func(c conn) error {
			batch := &pgx.Batch{}
			batch.Queue(`SET LOCAL enable_seqscan = on`)
			batch.Queue(countAll).Query(func(rows pgx.Rows) error {
				for rows.Next() {
					var c model.SourceStats
					var now, oldest model.Micros
					err := rows.Scan(append(sourceFields(&c.Source), &now, &c.Pending, &c.Retrying, &c.Due, &oldest,
						&c.Processing, &c.Failed, &c.Dead, &c.Uncertain, &c.Cancelled, &c.Success)...)
					if err != nil {
						return err
					}
					if c.Due > 0 {
						c.OldestDueAge = now.Sub(oldest)
					}
					stats = append(stats, c)
				}
				return rows.Err()
			})
			return c.batch(ctx, batch)
		})
	})
	return stats, err
}

const countAll = `WITH clock AS MATERIALIZED (SELECT ` + now + ` AS t)
	SELECT ` + sourceColumns + `, clock.t, coalesce(w.pending, 0), coalesce(w.retrying, 0), coalesce(w.due, 0), coalesce(w.oldest, 0),
		coalesce(w.processing, 0), coalesce(w.failed, 0), coalesce(w.dead, 0), coalesce(w.uncertain, 0), coalesce(w.cancelled, 0),
		coalesce(c.succeeded, 0)
	FROM clock, posthouse_source s ` + withKey + `LEFT JOIN (
		SELECT source, sum(succeeded)::bigint AS succeeded FROM (
			SELECT source, succeeded FROM posthouse_counter UNION ALL SELECT source, succeeded FROM posthouse_counted) c
		GROUP BY source
	) c ON c.source = s.id LEFT JOIN (
		SELECT queue,
			count(*) FILTER (WHERE state = 0 AND retry_count = 0) AS pending,
			count(*) FILTER (WHERE state = 0 AND retry_count > 0) AS retrying,
			count(*) FILTER (WHERE state = 0 AND due_at <= clock.t) AS due,
			min(due_at) FILTER (WHERE state = 0 AND due_at <= clock.t) AS oldest,
			count(*) FILTER (WHERE state = 1) AS processing,
			count(*) FILTER (WHERE state = 2) AS failed,
			count(*) FILTER (WHERE state = 4) AS dead,
			count(*) FILTER (WHERE state = 5) AS uncertain,
			count(*) FILTER (WHERE state = 6) AS cancelled
		FROM clock, posthouse_work GROUP BY queue
	) w ON w.queue = s.id
	ORDER BY s.name`
