package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// showDeliveries shows each of a page of deliveries, found row by row. Attempts
// that were made are counted by retry_count, but for the one that succeeded. What
// is in work and not pending or processing fell due when it became so.
const showDeliveries = `
	SELECT d.seq, d.id, r.id, s.name, d.purpose, r.recipient, d.masked, d.locale, d.reason,
		coalesce(w.state, 3), coalesce(w.retry_count, o.retry_count), greatest(w.retry_count, o.retry_count, o.n),
		coalesce(o.delivered_at, 0) <> 0, CASE WHEN w.state = 0 THEN w.due_at ELSE 0 END, d.created_at,
		coalesce(o.finished_at, CASE WHEN w.state >= 2 THEN w.due_at END, 0), coalesce(o.provider_id, ''),
		coalesce(a.outcome, ''), coalesce(a.reason, ''), coalesce(a.code, ''), coalesce(a.error, ''), coalesce(w.replay, o.replay)
	FROM page CROSS JOIN LATERAL (SELECT * FROM posthouse_delivery WHERE seq = page.seq OFFSET 0) d
	CROSS JOIN LATERAL (SELECT id, recipient FROM posthouse_request WHERE seq = d.request OFFSET 0) r
	CROSS JOIN LATERAL (SELECT name FROM posthouse_source WHERE id = d.channel OFFSET 0) s
	LEFT JOIN LATERAL (SELECT * FROM posthouse_work WHERE seq = d.seq OFFSET 0) w ON true
	LEFT JOIN LATERAL (SELECT * FROM posthouse_outcome WHERE seq = d.seq OFFSET 0) o ON true
	LEFT JOIN LATERAL (SELECT * FROM posthouse_attempt WHERE seq = d.seq AND replay = coalesce(w.replay, o.replay)
		AND n = coalesce(w.retry_count, o.retry_count) OFFSET 0) a ON true
	ORDER BY d.seq`

func scanDelivery(rows pgx.Rows) (v model.DeliveryView, err error) {
	var id, request [16]byte
	var state model.State
	var retryCount int
	var delivered bool
	var outcome string
	var reason model.Reason
	err = rows.Scan(&v.Seq, &id, &request, &v.Channel, &v.Purpose, &v.Recipient, &v.Masked, &v.Locale, &v.Reason,
		&state, &retryCount, &v.AttemptCount, &delivered, &v.NextAttemptAt, &v.CreatedAt, &v.FinishedAt, &v.ProviderID,
		&outcome, &reason, &v.ErrorCode, &v.ErrorText, &v.Replay)
	v.ID, v.RequestID = id, request
	v.Channel = columns.ChannelOf(v.Channel)
	v.Status = model.StatusOf(state, retryCount, delivered)
	v.ErrorClass = columns.ClassOf(outcome, reason)
	return v, err
}

// queryDeliveries shows those that page, which makes a CTE, finds.
func queryDeliveries(ctx context.Context, c conn, page string, args ...any) (views []model.DeliveryView, err error) {
	err = c.query(ctx, func(rows pgx.Rows) error {
		view, err := scanDelivery(rows)
		views = append(views, view)
		return err
	}, page+showDeliveries, args...)
	return views, err
}

const (
	deliveryOfID = `WITH page (seq) AS MATERIALIZED (SELECT seq FROM posthouse_delivery WHERE id = $1::uuid)`
	// deliveriesOfSeqs are those that were found before.
	deliveriesOfSeqs     = `WITH page (seq) AS MATERIALIZED (SELECT unnest($1::bigint[]))`
	deliveriesOfRequest  = `WITH page (seq) AS MATERIALIZED (SELECT seq FROM posthouse_delivery WHERE request = $1)`
	attemptsOfDeliveries = `SELECT seq, replay, n, started_at, ended_at, outcome, reason, error, http_status, code FROM posthouse_attempt
			WHERE seq = ANY ($1::bigint[])
		UNION ALL
		SELECT seq, replay, n, started_at, finished_at, 'success', '', '', http_status, '' FROM posthouse_outcome
			WHERE seq = ANY ($1::bigint[]) AND n > 0
		ORDER BY 1, 2, 3`
)

func readAttempts(ctx context.Context, c conn, deliveries []int64) (attempts map[model.Seq][]model.AttemptView, err error) {
	attempts = map[model.Seq][]model.AttemptView{}
	err = c.query(ctx, func(rows pgx.Rows) error {
		var seq model.Seq
		var a model.AttemptView
		err := rows.Scan(&seq, &a.Replay, &a.N, &a.StartedAt, &a.EndedAt, &a.Outcome, &a.Reason, &a.Error, &a.HTTPStatus, &a.Code)
		attempts[seq] = append(attempts[seq], a)
		return err
	}, attemptsOfDeliveries, deliveries)
	return attempts, err
}

// snapshot is a transaction that sees one state of everything.
var snapshot = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// Delivery finds one delivery with its attempts.
func (s *Store) Delivery(ctx context.Context, id uuid.UUID) (view model.DeliveryView, attempts []model.AttemptView, err error) {
	const op = "show delivery"
	err = s.read(ctx, op, func(ctx context.Context, c conn) error {
		return transaction(ctx, c, snapshot, func(c conn) error {
			views, err := queryDeliveries(ctx, c, deliveryOfID, id)
			if err == nil && len(views) == 0 {
				err = &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no delivery has that id")}
			}
			if err != nil {
				return err
			}
			view = views[0]
			all, err := readAttempts(ctx, c, []int64{int64(view.Seq)})
			attempts = all[view.Seq]
			return err
		})
	})
	if err != nil {
		return model.DeliveryView{}, nil, err
	}
	return view, attempts, nil
}

// Request finds one request with all that hangs on it.
func (s *Store) Request(ctx context.Context, id uuid.UUID) (view model.RequestView, err error) {
	const op = "show request"
	err = s.read(ctx, op, func(ctx context.Context, c conn) error {
		return transaction(ctx, c, snapshot, func(c conn) (err error) {
			view, err = readRequest(ctx, c, id)
			if err == nil && view.Seq == 0 {
				err = noRequest(op)
			}
			if err != nil {
				return err
			}
			view.Deliveries, err = queryDeliveries(ctx, c, deliveriesOfRequest, view.Seq)
			if err != nil {
				return err
			}
			numbers, targets := make([]int64, len(view.Deliveries)), []string{columns.RequestTarget(id)}
			for i, d := range view.Deliveries {
				numbers[i] = int64(d.Seq)
				targets = append(targets, columns.DeliveryTarget(d.ID))
			}
			if view.Attempts, err = readAttempts(ctx, c, numbers); err != nil {
				return err
			}
			view.Audit, err = readAudit(ctx, c, auditOfSome, targets)
			return err
		})
	})
	if err != nil {
		return model.RequestView{}, err
	}
	return view, nil
}

func noRequest(op string) error {
	return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no request has that id")}
}

// readRequest reads the request itself; its Seq is 0 where there is none.
func readRequest(ctx context.Context, c conn, id uuid.UUID) (v model.RequestView, err error) {
	err = c.query(ctx, func(rows pgx.Rows) error {
		r := &v.Request
		var key, tags, success, choices, variables []byte
		err := rows.Scan(&v.Seq, &v.AcceptedAt, &v.Cancelled, &v.Secret, &v.Erased, &key, &r.BizType, &r.Template, &r.Recipient,
			&r.Priority, &r.Locale, &r.NotBefore, &r.ExpiresAt, &tags, &success, &choices, &variables)
		if err != nil {
			return err
		}
		r.ID, r.Key = id, string(key)
		if len(variables) > 0 {
			r.Variables = variables
		}
		return errors.Join(columns.ParseJSON(tags, &r.Tags), columns.ParseJSON(success, &r.Success), columns.ParseJSON(choices, &r.Choices))
	}, `SELECT seq, accepted_at, cancelled, secret, secret AND NOT EXISTS (SELECT 1 FROM posthouse_secret s WHERE s.request = r.seq),
			idem_key, biz_type, template, recipient, priority, locale, not_before, expires_at, tags, success, choices, variables
		FROM posthouse_request r WHERE id = $1::uuid`, id)
	return v, err
}
