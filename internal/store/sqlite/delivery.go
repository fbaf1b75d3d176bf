package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// showDeliveries shows the deliveries of a page, newest first.
const showDeliveries = `
	SELECT d.seq, d.id, r.id, s.name, d.purpose, r.recipient, d.masked, d.locale, d.reason,
		coalesce(w.state, 3), coalesce(o.retry_count, w.retry_count), coalesce(o.delivered_at, 0) <> 0,
		CASE WHEN o.n > 0 THEN o.n ELSE coalesce(o.retry_count, w.retry_count) END,
		CASE WHEN w.state = 0 THEN w.due_at ELSE 0 END, d.created_at,
		coalesce(o.finished_at, CASE WHEN w.state > 1 THEN w.due_at END, 0), coalesce(o.provider_id, ''),
		coalesce(a.outcome, ''), coalesce(a.reason, ''), coalesce(a.code, ''), coalesce(a.error, ''), coalesce(o.replay, w.replay)
	FROM page CROSS JOIN posthouse_delivery d ON d.seq = page.seq
	JOIN posthouse_request r ON r.seq = d.request
	JOIN posthouse_source s ON s.id = d.channel
	LEFT JOIN posthouse_work w ON w.seq = d.seq
	LEFT JOIN posthouse_outcome o ON o.seq = d.seq
	LEFT JOIN posthouse_attempt a ON a.seq = d.seq AND a.replay = coalesce(o.replay, w.replay) AND a.n = coalesce(o.retry_count, w.retry_count)
	ORDER BY d.seq DESC`

func scanDelivery(views *[]model.DeliveryView) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var v model.DeliveryView
		var id, request []byte
		var state model.State
		var retries int
		var delivered bool
		var outcome string
		var reason model.Reason
		err := rows.Scan(&v.Seq, &id, &request, &v.Channel, &v.Purpose, &v.Recipient, &v.Masked, &v.Locale, &v.Reason, &state, &retries, &delivered,
			&v.AttemptCount, &v.NextAttemptAt, &v.CreatedAt, &v.FinishedAt, &v.ProviderID, &outcome, &reason, &v.ErrorCode, &v.ErrorText, &v.Replay)
		if err != nil {
			return err
		}
		copy(v.ID[:], id)
		copy(v.RequestID[:], request)
		v.Channel = columns.ChannelOf(v.Channel)
		v.Status = model.StatusOf(state, retries, delivered)
		v.ErrorClass = columns.ClassOf(outcome, reason)
		*views = append(*views, v)
		return nil
	}
}

// Delivery finds one delivery with its attempts.
func (s *Store) Delivery(ctx context.Context, id uuid.UUID) (view model.DeliveryView, attempts []model.AttemptView, err error) {
	const op = "show delivery"
	err = s.read(ctx, op, func(ctx context.Context, snapshot *sql.Tx) error {
		var found []model.DeliveryView
		err := queries(ctx, snapshot)(scanDelivery(&found), `WITH page (seq) AS (SELECT seq FROM posthouse_delivery WHERE id = ?)`+showDeliveries, id[:])
		if err == nil && len(found) == 0 {
			return none(op, "no delivery has that id")
		}
		if err != nil {
			return err
		}
		view = found[0]
		attempts, err = attemptsOf(ctx, snapshot, view.Seq)
		return err
	})
	if err != nil {
		return model.DeliveryView{}, nil, err
	}
	return view, attempts, nil
}

// Pages of deliveries. They are the heads of branches, one for each channel,
// merged. What waits or is processing is found among what does, however much has
// ended; the indexes are named, for the planner may think otherwise.
const (
	pageOfDeliveries = `WITH page (seq) AS MATERIALIZED (SELECT found.seq FROM posthouse_source c
		CROSS JOIN posthouse_delivery found ON found.seq IN (`

	ofChannels = ` AND x.seq < @before AND x.seq >= @first AND d.created_at >= @from AND d.created_at < @to ORDER BY x.seq DESC LIMIT @limit)
		WHERE c.tenant = 1 AND @channel IN (0, c.id) ORDER BY found.seq DESC LIMIT @limit)`

	anyDelivery = `SELECT x.seq FROM posthouse_delivery x INDEXED BY posthouse_delivery_channel
		CROSS JOIN posthouse_delivery d ON d.seq = x.seq WHERE x.channel = c.id`
	waitingDelivery = `SELECT x.seq FROM posthouse_work x INDEXED BY posthouse_work_due
		CROSS JOIN posthouse_delivery d ON d.seq = x.seq WHERE x.queue = c.id AND x.state = @state AND x.retry_count BETWEEN @low AND @high`
	endedDelivery = `SELECT x.seq FROM posthouse_work x INDEXED BY posthouse_work_ended
		CROSS JOIN posthouse_delivery d ON d.seq = x.seq
		WHERE x.queue = c.id AND x.state = @state AND x.state > 1 AND x.seq >= 4611686018427387904`
	succeededDelivery = `SELECT x.seq FROM posthouse_outcome x INDEXED BY posthouse_outcome_source
		CROSS JOIN posthouse_delivery d ON d.seq = x.seq WHERE x.source = c.id AND x.delivered_at = 0`
	deliveredDelivery = `SELECT x.seq FROM posthouse_outcome x INDEXED BY posthouse_outcome_delivered
		CROSS JOIN posthouse_delivery d ON d.seq = x.seq WHERE x.source = c.id AND x.delivered_at <> 0`
)

// deliveryBranch finds the deliveries of one channel c with a status.
func deliveryBranch(status model.DeliveryStatus) (branch string, args []any, err error) {
	state, low, high := model.Pending, 0, math.MaxInt32
	switch status {
	case "":
		return anyDelivery, nil, nil
	case model.DeliverySucceeded:
		return succeededDelivery, nil, nil
	case model.DeliveryDelivered:
		return deliveredDelivery, nil, nil
	case model.DeliveryFailed:
		return endedDelivery, []any{sql.Named("state", model.Failed)}, nil
	case model.DeliveryDead:
		return endedDelivery, []any{sql.Named("state", model.Dead)}, nil
	case model.DeliveryUncertain:
		return endedDelivery, []any{sql.Named("state", model.Uncertain)}, nil
	case model.DeliveryCancelled:
		return endedDelivery, []any{sql.Named("state", model.Cancelled)}, nil
	case model.DeliveryPending:
		high = 0
	case model.DeliveryRetryWait:
		low = 1
	case model.DeliveryProcessing:
		state = model.Processing
	default:
		return "", nil, errStatus
	}
	return waitingDelivery, []any{sql.Named("state", state), sql.Named("low", low), sql.Named("high", high)}, nil
}

var (
	errDeliveryLimit = errors.New("a page of less than one delivery")
	errStatus        = errors.New("no such status")
)

// ListDeliveries returns one page, newest first.
func (s *Store) ListDeliveries(ctx context.Context, p model.DeliveryListParams) (page model.DeliveryPage, err error) {
	const op = "list deliveries"
	branch, args, err := deliveryBranch(p.Status)
	if p.Limit < 1 {
		err = errDeliveryLimit
	}
	if err != nil {
		return page, &model.Error{Code: model.CodeInvalid, Op: op, Err: err}
	}
	err = s.read(ctx, op, func(ctx context.Context, snapshot *sql.Tx) error {
		page = model.DeliveryPage{}
		ask := queries(ctx, snapshot)
		first, before, err := seqsBetween(ask, p.From, p.To)
		if err != nil {
			return err
		}
		if p.Before != 0 {
			before = min(before, p.Before)
		}
		to := p.To
		if to == 0 {
			to = math.MaxInt64
		}
		args := append(slices.Clip(args), sql.Named("channel", p.Channel), sql.Named("first", first), sql.Named("before", before),
			sql.Named("from", p.From), sql.Named("to", to), sql.Named("limit", p.Limit+1))
		if err := ask(scanDelivery(&page.Items), pageOfDeliveries+branch+ofChannels+showDeliveries, args...); err != nil {
			return err
		}
		if len(page.Items) > p.Limit { // one more than was asked for
			page.Items = page.Items[:p.Limit]
			page.Next = page.Items[p.Limit-1].Seq
		}
		return nil
	})
	if err != nil {
		return model.DeliveryPage{}, err
	}
	return page, nil
}

// seqsBetween bounds the seqs of deliveries that were made in a time: from the
// first to before the other.
func seqsBetween(ask query, from, to model.Micros) (first, before model.Seq, err error) {
	first, before = model.DeliverySeqs, math.MaxInt64
	if from == 0 && to == 0 {
		return first, before, nil
	}
	last := first - 1
	err = ask(func(rows *sql.Rows) error { return rows.Scan(&last) }, `SELECT coalesce(max(seq), ?) FROM posthouse_delivery`, last)
	if err != nil {
		return 0, 0, err
	}
	made := func(at model.Seq) (seq model.Seq, when model.Micros, found bool, err error) {
		err = ask(func(rows *sql.Rows) error {
			found = true
			return rows.Scan(&seq, &when)
		}, `SELECT seq, created_at FROM posthouse_delivery WHERE seq >= ? ORDER BY seq LIMIT 1`, at)
		return seq, when, found, err
	}
	if to != 0 {
		if before, err = columns.SeqAt(first, last, to.Add(columns.Disorder), made); err != nil {
			return 0, 0, err
		}
	}
	if from != 0 {
		first, err = columns.SeqAt(first, last, from.Add(-columns.Disorder), made)
	}
	return first, before, err
}

// Outgoing returns what is to be sent.
func (s *Store) Outgoing(ctx context.Context, deliveries []model.Seq) (outgoing []model.Outgoing, err error) {
	if len(deliveries) == 0 {
		return nil, nil
	}
	err = s.read(ctx, "read what is to be sent", func(ctx context.Context, snapshot *sql.Tx) error {
		outgoing = nil
		now := s.clock.now()
		return queries(ctx, snapshot)(func(rows *sql.Rows) error {
			o := model.Outgoing{Now: now}
			var id, request, variables []byte
			err := rows.Scan(&o.Seq, &id, &o.Request, &request, &o.BizType, &o.Recipient, &o.Priority, &o.Locale, &o.Template, &variables,
				&o.Sensitive.KeyID, &o.Sensitive.Bytes, &o.Erased, &o.Cancelled, &o.Address.KeyID, &o.Address.Bytes, &o.ExpiresAt)
			copy(o.ID[:], id)
			copy(o.RequestID[:], request)
			o.Variables = variables
			outgoing = append(outgoing, o)
			return err
		}, `SELECT d.seq, d.id, r.seq, r.id, r.biz_type, r.recipient, r.priority, d.locale, d.template, r.variables,
				coalesce(x.key_id, ''), x.sealed, r.secret AND x.request IS NULL, r.cancelled_at <> 0, d.address_key, d.address, r.expires_at
			FROM json_each(?) wanted CROSS JOIN posthouse_delivery d ON d.seq = wanted.value
			JOIN posthouse_request r ON r.seq = d.request
			LEFT JOIN posthouse_secret x ON x.request = r.seq
			ORDER BY wanted.key`, list(deliveries))
	})
	if err != nil {
		return nil, err
	}
	return outgoing, nil
}
