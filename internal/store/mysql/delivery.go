package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// groupOf is what key_hash holds for a delivery whose work is in that state:
// what is listed together is together in the index posthouse_work_key, in the
// order of seq. What is processing stays where it was.
func groupOf(s model.State, failedBefore bool) int64 {
	switch {
	case s > model.Processing:
		return int64(s)
	case failedBefore:
		return 1
	}
	return 0
}

// Columns of a delivery d with all that hangs on it, as scanDelivery wants them.
const (
	deliveryColumns = `d.seq, d.id, r.id, s.name, d.purpose, r.recipient, d.masked, d.locale, d.reason, coalesce(w.state, 3),
		coalesce(o.retry_count, w.retry_count, 0), coalesce(o.n, 0), coalesce(o.delivered_at, 0), coalesce(w.due_at, 0), d.created_at,
		coalesce(o.finished_at, 0), coalesce(o.provider_id, ''), coalesce(a.outcome, ''), coalesce(a.reason, ''), coalesce(a.code, ''),
		coalesce(a.error, ''), coalesce(o.replay, w.replay, 0)`
	ofDelivery = ` STRAIGHT_JOIN posthouse_request r FORCE INDEX (PRIMARY) ON r.seq = d.request
		STRAIGHT_JOIN posthouse_source s FORCE INDEX (PRIMARY) ON s.id = d.channel
		LEFT JOIN posthouse_work w FORCE INDEX (PRIMARY) ON w.seq = d.seq
		LEFT JOIN posthouse_outcome o FORCE INDEX (PRIMARY) ON o.seq = d.seq
		LEFT JOIN posthouse_attempt a FORCE INDEX (PRIMARY) ON a.seq = d.seq AND a.replay = coalesce(o.replay, w.replay)
			AND a.n = coalesce(o.retry_count, w.retry_count)`
)

func scanDelivery(views *[]model.DeliveryView) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var v model.DeliveryView
		var id, request []byte
		var state model.State
		var retries, n int
		var delivered, dueAt model.Micros
		var outcome string
		var reason model.Reason
		err := into(rows, &v.Seq, &id, &request, &v.Channel, &v.Purpose, &v.Recipient, &v.Masked, &v.Locale, &v.Reason, &state, &retries, &n,
			&delivered, &dueAt, &v.CreatedAt, &v.FinishedAt, &v.ProviderID, &outcome, &reason, &v.ErrorCode, &v.ErrorText, &v.Replay)
		if err != nil {
			return err
		}
		v.ID, v.RequestID, v.Channel = uuid.UUID(id), uuid.UUID(request), columns.ChannelOf(v.Channel)
		v.Status = model.StatusOf(state, retries, delivered > 0)
		v.AttemptCount = max(retries, n)
		v.ErrorClass = columns.ClassOf(outcome, reason)
		switch {
		case state == model.Pending:
			v.NextAttemptAt = dueAt
		case state > model.Success, state == model.Failed:
			v.FinishedAt = dueAt
		}
		*views = append(*views, v)
		return nil
	}
}

// attemptsOf adds the query of the attempts of works.
func (s *script) attemptsOf(seqs []model.Seq) {
	s.add(`SELECT seq, replay, n, started_at, ended_at, outcome, reason, error, http_status, code
		FROM posthouse_attempt FORCE INDEX (PRIMARY) WHERE seq IN (` + list(seqs) + `)
		UNION ALL
		SELECT seq, replay, n, started_at, finished_at, 'success', '', '', http_status, ''
		FROM posthouse_outcome FORCE INDEX (PRIMARY) WHERE seq IN (` + list(seqs) + `) AND n > 0
		ORDER BY 1, 2, 3`)
}

func scanAttempts(attempts map[model.Seq][]model.AttemptView) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var seq model.Seq
		var a model.AttemptView
		err := into(rows, &seq, &a.Replay, &a.N, &a.StartedAt, &a.EndedAt, &a.Outcome, &a.Reason, &a.Error, &a.HTTPStatus, &a.Code)
		attempts[seq] = append(attempts[seq], a)
		return err
	}
}

// snapshot begins a transaction that sees everything at one time.
func (s *script) snapshot() {
	s.add(`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
	s.add(`START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY`)
}

// Delivery finds one delivery with its attempts, as they stood at one time.
func (s *Store) Delivery(ctx context.Context, id uuid.UUID) (model.DeliveryView, []model.AttemptView, error) {
	const op = "show delivery"
	var views []model.DeliveryView
	var attempts map[model.Seq][]model.AttemptView
	err := s.read(ctx, op, func(c *call) error {
		views, attempts = nil, map[model.Seq][]model.AttemptView{}
		var show script
		show.snapshot()
		show.add(`SELECT `+deliveryColumns+` FROM posthouse_delivery d FORCE INDEX (posthouse_delivery_id)`+ofDelivery+` WHERE d.id = ?`, id[:])
		if err := c.query(&show, scanDelivery(&views)); err != nil {
			return err
		}
		if len(views) == 0 {
			return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no delivery has that id")}
		}
		var more script
		more.attemptsOf([]model.Seq{views[0].Seq})
		more.add(`COMMIT`)
		return c.query(&more, scanAttempts(attempts))
	})
	if err != nil {
		return model.DeliveryView{}, nil, err
	}
	return views[0], attempts[views[0].Seq], nil
}

// Outgoing returns what is to be sent for deliveries, in the order given.
func (s *Store) Outgoing(ctx context.Context, deliveries []model.Seq) (all []model.Outgoing, err error) {
	if len(deliveries) == 0 {
		return nil, nil
	}
	err = s.read(ctx, "read what is to be sent", func(c *call) error {
		found := map[model.Seq]model.Outgoing{}
		var one script
		one.add(`SELECT d.seq, d.id, d.request, r.id, r.biz_type, r.recipient, r.priority, d.locale, d.template, r.variables,
				coalesce(x.key_id, ''), x.sealed, r.secret AND x.request IS NULL, r.cancelled, d.address_key, d.address, r.expires_at, ` + now + `
			FROM posthouse_delivery d FORCE INDEX (PRIMARY) STRAIGHT_JOIN posthouse_request r FORCE INDEX (PRIMARY) ON r.seq = d.request
			LEFT JOIN posthouse_secret x FORCE INDEX (PRIMARY) ON x.request = r.seq
			WHERE d.seq IN (` + list(deliveries) + `)`)
		err := c.query(&one, func(rows *sql.Rows) error {
			var o model.Outgoing
			var id, request, variables []byte
			err := into(rows, &o.Seq, &id, &o.Request, &request, &o.BizType, &o.Recipient, &o.Priority, &o.Locale, &o.Template, &variables,
				&o.Sensitive.KeyID, &o.Sensitive.Bytes, &o.Erased, &o.Cancelled, &o.Address.KeyID, &o.Address.Bytes, &o.ExpiresAt, &o.Now)
			copy(o.ID[:], id)
			copy(o.RequestID[:], request)
			o.Variables = variables
			found[o.Seq] = o
			return err
		})
		all = make([]model.Outgoing, 0, len(deliveries))
		for _, seq := range deliveries {
			if o, there := found[seq]; there {
				all = append(all, o)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// ListDeliveries returns one page, newest first. Its places come off one branch
// of an index for each channel. Where times bound it, the first statement finds
// about where they begin and end in the order of seq.
func (s *Store) ListDeliveries(ctx context.Context, p model.DeliveryListParams) (page model.DeliveryPage, err error) {
	const op = "list deliveries"
	if p.Limit < 1 {
		return page, &model.Error{Code: model.CodeInvalid, Op: op, Err: errors.New("a page of less than one delivery")}
	}
	if p.Status != "" && !slices.Contains(model.DeliveryStatuses(), p.Status) {
		return page, &model.Error{Code: model.CodeInvalid, Op: op, Err: errors.New("no such status")}
	}
	if p.Before == 0 {
		p.Before = math.MaxInt64
	}
	err = s.read(ctx, op, func(c *call) error {
		page = model.DeliveryPage{}
		places := deliveryPlaces{p: p, above: 0, below: p.Before}
		if err := places.bound(c); err != nil {
			return err
		}
		query := places.query()
		if query == "" {
			return nil
		}
		var one script
		one.add(`WITH page (seq) AS (` + query + `) SELECT ` + deliveryColumns + `
			FROM page STRAIGHT_JOIN posthouse_delivery d FORCE INDEX (PRIMARY) ON d.seq = page.seq` + ofDelivery + ` ORDER BY page.seq DESC`)
		if err := c.query(&one, scanDelivery(&page.Items)); err != nil {
			return err
		}
		if len(page.Items) > p.Limit {
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

// deliveryPlaces are the places of a page.
type deliveryPlaces struct {
	p            model.DeliveryListParams
	channels     []model.SourceID // those that are listed; not for any status
	above, below model.Seq
}

// bound reads which channels there are, and between which seqs all lies that was
// made in time: but for columns.Disorder, they follow the order of time.
func (l *deliveryPlaces) bound(c *call) error {
	var look script
	var scans []func(*sql.Rows) error
	const made = `SELECT seq FROM posthouse_delivery FORCE INDEX (posthouse_delivery_created) WHERE created_at `
	disorder := model.Micros(columns.Disorder.Microseconds())
	if l.p.From != 0 {
		look.add(made+`< ? ORDER BY created_at DESC, seq DESC LIMIT 1`, l.p.From-disorder)
		scans = append(scans, func(rows *sql.Rows) error { return into(rows, &l.above) })
	}
	if l.p.To != 0 {
		look.add(made+`>= ? ORDER BY created_at, seq LIMIT 1`, l.p.To+disorder)
		scans = append(scans, func(rows *sql.Rows) error {
			var first model.Seq
			err := into(rows, &first)
			l.below = min(l.below, first)
			return err
		})
	}
	switch {
	case l.p.Channel != 0:
		l.channels = []model.SourceID{l.p.Channel}
	case l.p.Status != "":
		look.add(`SELECT id FROM posthouse_source WHERE tenant = 1 ORDER BY id`)
		scans = append(scans, scanID(&l.channels))
	}
	if len(scans) == 0 {
		return nil
	}
	return c.query(&look, scans...)
}

// query holds numbers only. It is empty where there is no channel.
func (l *deliveryPlaces) query() string {
	if l.p.Status == "" && l.p.Channel == 0 {
		return l.branch("posthouse_delivery", "PRIMARY", "true")
	}
	var branches []string
	for _, channel := range l.channels {
		branches = append(branches, l.ofChannel(channel))
	}
	if len(branches) < 2 {
		return strings.Join(branches, "")
	}
	return fmt.Sprintf(`SELECT seq FROM ((%s)) merged ORDER BY seq DESC LIMIT %d`, strings.Join(branches, ") UNION ALL ("), l.p.Limit+1)
}

func (l *deliveryPlaces) ofChannel(channel model.SourceID) string {
	work := func(group int64, state model.State) string {
		return l.branch("posthouse_work", "posthouse_work_key", fmt.Sprintf("t.queue = %d AND t.key_hash = %d AND t.state = %d", channel, group, state))
	}
	outcome := func(delivered int) string {
		return l.branch("posthouse_outcome", "posthouse_outcome_source", fmt.Sprintf("t.source = %d AND t.delivered = %d", channel, delivered))
	}
	switch l.p.Status {
	case model.DeliveryPending:
		return work(groupOf(model.Pending, false), model.Pending)
	case model.DeliveryRetryWait:
		return work(groupOf(model.Pending, true), model.Pending)
	case model.DeliveryProcessing: // few: sorted
		return l.branch("posthouse_work", "posthouse_work_due", fmt.Sprintf("t.queue = %d AND t.state = 1", channel))
	case model.DeliveryFailed:
		return work(groupOf(model.Failed, true), model.Failed)
	case model.DeliveryDead:
		return work(groupOf(model.Dead, true), model.Dead)
	case model.DeliveryUncertain:
		return work(groupOf(model.Uncertain, true), model.Uncertain)
	case model.DeliveryCancelled:
		return work(groupOf(model.Cancelled, true), model.Cancelled)
	case model.DeliverySucceeded:
		return outcome(0)
	case model.DeliveryDelivered:
		return outcome(1)
	}
	return l.branch("posthouse_delivery", "posthouse_delivery_channel", fmt.Sprintf("t.channel = %d", channel))
}

func (l *deliveryPlaces) branch(table, index, condition string) string {
	join := ""
	if l.p.From != 0 || l.p.To != 0 {
		to := l.p.To
		if to == 0 {
			to = math.MaxInt64
		}
		join = ` STRAIGHT_JOIN posthouse_delivery made FORCE INDEX (PRIMARY) ON made.seq = t.seq`
		condition += fmt.Sprintf(` AND made.created_at >= %d AND made.created_at < %d`, l.p.From, to)
	}
	return fmt.Sprintf(`SELECT t.seq FROM %s t FORCE INDEX (%s)%s WHERE %s AND t.seq > %d AND t.seq < %d ORDER BY t.seq DESC LIMIT %d`,
		table, index, join, condition, l.above, l.below, l.p.Limit+1)
}
