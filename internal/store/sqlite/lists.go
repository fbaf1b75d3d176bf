package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// A list is made in two steps: a page of places, off one index, and then what
// is shown of each.
const showPage = `
	SELECT page.at, m.seq, m.id, s.name, coalesce(w.state, 3), coalesce(o.retry_count, w.retry_count),
		CASE WHEN w.state = 0 AND w.retry_count > 0 THEN w.due_at ELSE 0 END, m.received_at,
		coalesce(o.finished_at, CASE WHEN w.state = 2 THEN a.ended_at END, 0), coalesce(a.error, ''),
		m.content_type, m.size, m.check_note, coalesce(o.replay, w.replay)
	FROM page CROSS JOIN posthouse_message m ON m.seq = page.seq
	JOIN posthouse_source s ON s.id = m.source
	LEFT JOIN posthouse_work w ON w.seq = m.seq
	LEFT JOIN posthouse_outcome o ON o.seq = m.seq
	LEFT JOIN posthouse_attempt a ON a.seq = w.seq AND a.replay = w.replay AND a.n = w.retry_count
	ORDER BY page.at DESC, m.seq DESC`

// The pages. A source of 0 stands for all: of messages and outcomes that is
// the order of their primary key. Of work it is the heads of the index's
// branches, merged: one for each slot of each source. The slots are found by
// leaping from one to the next. Where there are more of them than places on the
// page, it cannot go back further than the newest of as many slots as that.
const (
	pageOfMessages = `WITH page (at, seq) AS MATERIALIZED (SELECT 0, seq FROM posthouse_message
		WHERE source = @source AND seq < @seq ORDER BY seq DESC LIMIT @limit)`
	pageOfAllMessages = `WITH page (at, seq) AS MATERIALIZED (SELECT 0, seq FROM posthouse_message
		WHERE seq < @seq ORDER BY seq DESC LIMIT @limit)`
	pageOfOutcomes = `WITH page (at, seq) AS MATERIALIZED (SELECT 0, seq FROM posthouse_outcome
		WHERE source = @source AND seq < @seq ORDER BY seq DESC LIMIT @limit)`
	pageOfAllOutcomes = `WITH page (at, seq) AS MATERIALIZED (SELECT 0, seq FROM posthouse_outcome
		WHERE seq < @seq ORDER BY seq DESC LIMIT @limit)`
	pageOfWork    = `WITH RECURSIVE branch (queue, slot) AS (` + firstSlot + ` AND s.id = @source` + pageOfBranches
	pageOfAllWork = `WITH RECURSIVE branch (queue, slot) AS (` + firstSlot + pageOfBranches

	firstSlot = `SELECT s.id, (SELECT min(slot) FROM posthouse_work WHERE queue = s.id AND state = @state)
		FROM posthouse_source s WHERE s.tenant = 0`

	inBranch = `FROM posthouse_work WHERE queue = b.queue AND state = @state AND slot = b.slot
		AND retry_count BETWEEN @low AND @high AND (due_at, seq) < (@due, @seq)`
	ofBranch  = inBranch + ` ORDER BY due_at DESC, seq DESC`
	notBeyond = inBranch + ` AND due_at >= (SELECT at FROM bound) ORDER BY due_at DESC, seq DESC`

	pageOfBranches = `
		UNION ALL
		SELECT b.queue, (SELECT min(slot) FROM posthouse_work WHERE queue = b.queue AND state = @state AND slot > b.slot)
			FROM branch b WHERE b.slot IS NOT NULL
	), bound (at) AS MATERIALIZED (SELECT CASE WHEN (SELECT count(slot) FROM branch) < @limit THEN 0 ELSE
		(SELECT CASE WHEN count(at) < @limit THEN 0 ELSE min(at) END FROM (
			SELECT (SELECT due_at ` + ofBranch + ` LIMIT 1) AS at FROM branch b WHERE b.slot IS NOT NULL ORDER BY at DESC LIMIT @limit)) END
	), page (at, seq) AS MATERIALIZED (SELECT w.due_at, w.seq FROM branch b
		CROSS JOIN posthouse_work w ON w.seq IN (SELECT seq ` + notBeyond + ` LIMIT @limit)
		WHERE b.slot IS NOT NULL ORDER BY w.due_at DESC, w.seq DESC LIMIT @limit)`
)

// ListMessages returns one page, newest first.
func (s *Store) ListMessages(ctx context.Context, p model.ListParams) (page model.MessagePage, err error) {
	const op = "list messages"
	query, args, err := pageQuery(p)
	if err != nil {
		return page, &model.Error{Code: model.CodeInvalid, Op: op, Err: err}
	}
	err = s.read(ctx, op, func(ctx context.Context, snapshot *sql.Tx) error {
		page = model.MessagePage{}
		var last model.Cursor
		rows, err := snapshot.QueryContext(ctx, query+showPage, args...)
		return each(rows, err, func(rows *sql.Rows) error {
			if len(page.Items) == p.Limit { // one more than was asked for
				page.Next = &last
				return nil
			}
			view, at, err := scanView(rows)
			last = model.Cursor{DueAt: at, Seq: view.Seq}
			page.Items = append(page.Items, view)
			return err
		})
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

func pageQuery(p model.ListParams) (query string, args []any, err error) {
	if p.Limit < 1 {
		return "", nil, errLimit
	}
	if p.After == (model.Cursor{}) {
		p.After = model.Cursor{DueAt: math.MaxInt64, Seq: math.MaxInt64}
	}
	// Outcomes of deliveries come after those of all messages.
	if p.Filter == model.OnlySuccess {
		p.After.Seq = min(p.After.Seq, model.DeliverySeqs)
	}
	args = []any{sql.Named("source", p.Source), sql.Named("seq", p.After.Seq), sql.Named("limit", p.Limit+1)}
	one, all := pageOfWork, pageOfAllWork
	var state model.State
	low, high := 0, math.MaxInt32
	switch p.Filter {
	case model.AnyState:
		one, all = pageOfMessages, pageOfAllMessages
	case model.OnlySuccess:
		one, all = pageOfOutcomes, pageOfAllOutcomes
	case model.OnlyPending:
		state, high = model.Pending, 0
	case model.OnlyRetrying:
		state, low = model.Pending, 1
	case model.OnlyProcessing:
		state = model.Processing
	case model.OnlyFailed:
		state = model.Failed
	default:
		return "", nil, errFilter
	}
	args = append(args, sql.Named("due", p.After.DueAt), sql.Named("state", state), sql.Named("low", low), sql.Named("high", high))
	if p.Source == 0 {
		return all, args, nil
	}
	return one, args, nil
}

func scanView(rows *sql.Rows) (v model.MessageView, at model.Micros, err error) {
	var id []byte
	err = rows.Scan(&at, &v.Seq, &id, &v.Source, &v.State, &v.RetryCount, &v.NextRetryAt, &v.ReceivedAt, &v.FinishedAt,
		&v.Error, &v.ContentType, &v.Size, &v.Check, &v.Replay)
	copy(v.ID[:], id)
	return v, at, err
}

// Message finds one message with its attempts.
func (s *Store) Message(ctx context.Context, id uuid.UUID) (view model.MessageView, attempts []model.AttemptView, err error) {
	const op = "show message"
	err = s.read(ctx, op, func(ctx context.Context, snapshot *sql.Tx) error {
		attempts = nil
		found := false
		rows, err := snapshot.QueryContext(ctx, `WITH page (at, seq) AS (SELECT 0, seq FROM posthouse_message WHERE id = ?)`+showPage, id[:])
		err = each(rows, err, func(rows *sql.Rows) (err error) {
			view, _, err = scanView(rows)
			found = true
			return err
		})
		if err == nil && !found {
			return notFound(op)
		}
		if err != nil {
			return err
		}
		attempts, err = attemptsOf(ctx, snapshot, view.Seq)
		return err
	})
	if err != nil {
		return model.MessageView{}, nil, err
	}
	return view, attempts, nil
}

// attemptsOf lists the attempts at one work, oldest first, with the successful
// one.
func attemptsOf(ctx context.Context, snapshot *sql.Tx, seq model.Seq) (attempts []model.AttemptView, err error) {
	rows, err := snapshot.QueryContext(ctx, `SELECT replay, n, started_at, ended_at, outcome, reason, error, http_status, code
		FROM posthouse_attempt WHERE seq = @seq
		UNION ALL
		SELECT replay, n, started_at, finished_at, 'success', '', '', http_status, '' FROM posthouse_outcome WHERE seq = @seq AND n > 0
		ORDER BY 1, 2`, sql.Named("seq", seq))
	err = each(rows, err, func(rows *sql.Rows) error {
		var a model.AttemptView
		err := rows.Scan(&a.Replay, &a.N, &a.StartedAt, &a.EndedAt, &a.Outcome, &a.Reason, &a.Error, &a.HTTPStatus, &a.Code)
		attempts = append(attempts, a)
		return err
	})
	return attempts, err
}

// Body returns the exact bytes.
func (s *Store) Body(ctx context.Context, id uuid.UUID) (model.Message, error) {
	const op = "read body"
	var message *model.Message
	err := s.read(ctx, op, func(ctx context.Context, snapshot *sql.Tx) error {
		rows, err := snapshot.QueryContext(ctx, `SELECT `+messageColumns+` FROM posthouse_message m WHERE m.id = ?`, id[:])
		err = each(rows, err, func(rows *sql.Rows) (err error) {
			message, err = scanMessage(rows)
			return err
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

// Stats counts per source. Failed and processing are counted on the index
// alone.
func (s *Store) Stats(ctx context.Context) (stats []model.SourceStats, err error) {
	err = s.read(ctx, "count messages", func(ctx context.Context, snapshot *sql.Tx) error {
		stats = nil
		now := s.clock.now()
		rows, err := snapshot.QueryContext(ctx, `SELECT `+sourceColumns+`,
				coalesce(p.pending, 0), coalesce(p.retrying, 0), coalesce(p.due, 0), coalesce(p.oldest, 0),
				(SELECT count(*) FROM posthouse_work w WHERE w.queue = s.id AND w.state = 1),
				(SELECT count(*) FROM posthouse_work w WHERE w.queue = s.id AND w.state = 2),
				CASE WHEN s.tenant = 0 THEN 0 ELSE (SELECT count(*) FROM posthouse_work w WHERE w.queue = s.id AND w.state = 4) END,
				CASE WHEN s.tenant = 0 THEN 0 ELSE (SELECT count(*) FROM posthouse_work w WHERE w.queue = s.id AND w.state = 5) END,
				CASE WHEN s.tenant = 0 THEN 0 ELSE (SELECT count(*) FROM posthouse_work w WHERE w.queue = s.id AND w.state = 6) END,
				(SELECT coalesce(sum(succeeded), 0) FROM posthouse_counter c WHERE c.source = s.id)
			`+sourcesWithKeys+`
			LEFT JOIN (SELECT queue, sum(retry_count = 0) AS pending, sum(retry_count > 0) AS retrying,
					sum(due_at <= @now) AS due, min(CASE WHEN due_at <= @now THEN due_at END) AS oldest
				FROM posthouse_work WHERE state = 0 GROUP BY queue) p ON p.queue = s.id
			ORDER BY s.name`, sql.Named("now", now))
		return each(rows, err, func(rows *sql.Rows) error {
			var c model.SourceStats
			var oldest model.Micros
			err := rows.Scan(append(sourceFields(&c.Source), &c.Pending, &c.Retrying, &c.Due, &oldest,
				&c.Processing, &c.Failed, &c.Dead, &c.Uncertain, &c.Cancelled, &c.Success)...)
			if c.Due > 0 {
				c.OldestDueAge = now.Sub(oldest)
			}
			stats = append(stats, c)
			return err
		})
	})
	return stats, err
}
