package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

var (
	errNoChannel = errors.New("a delivery is for a channel that is not registered")
	errOtherKey  = errors.New("a request with that id is kept under another idempotency key")
)

// PutRequests keeps requests durably, each id and each idempotency key once.
func (s *Store) PutRequests(ctx context.Context, requests []model.NewRequest) (answers []model.PutRequest, err error) {
	if len(requests) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "put requests", func(t *tx) error {
		answers = make([]model.PutRequest, len(requests))
		fresh, err := insertRequests(t, requests)
		if err != nil {
			return err
		}
		hung := &parts{t: t, users: map[string][]*model.NewUserMessage{}, requests: map[*model.NewUserMessage]model.Seq{}}
		if err := hung.begin(); err != nil {
			return err
		}
		for i := range requests {
			if seq := fresh[i]; seq != 0 {
				if answers[i].First, err = hung.add(seq, &requests[i]); err != nil {
					return err
				}
			}
		}
		if err := hung.insert(); err != nil {
			return err
		}
		for i := range requests {
			if fresh[i] != 0 {
				continue
			}
			head, found, err := headOf(t.query, requests[i].Key)
			if err != nil {
				return err
			}
			if !found {
				return rejected(errOtherKey)
			}
			answers[i] = model.PutRequest{Duplicate: head.ID != requests[i].ID, First: head}
		}
		crashpoint.Hit(crashpoint.BeforePutCommit)
		return nil
	})
	if err != nil {
		return nil, err
	}
	crashpoint.Hit(crashpoint.AfterPutCommit)
	return answers, nil
}

func rejected(err error) error {
	return &model.Error{Code: model.CodeRejected, Op: "put requests", Err: err}
}

// insertRequests inserts those whose key is new, and returns the seqs of what
// this transaction inserted, by place; 0 for the others.
func insertRequests(t *tx, requests []model.NewRequest) ([]model.Seq, error) {
	var last model.Seq
	err := t.query(func(rows *sql.Rows) error { return rows.Scan(&last) }, `SELECT coalesce(max(seq), 0) FROM posthouse_request`)
	if err != nil {
		return nil, err
	}
	rows := make([]any, 0, 18*len(requests))
	for i := range requests {
		r := &requests[i]
		texts := make([]string, 3)
		for j, value := range []any{r.Success, r.Choices, r.Tags} {
			if texts[j], err = columns.JSON(value); err != nil {
				return nil, err
			}
		}
		rows = append(rows, r.ID[:], []byte(r.Key), t.now, 0, len(r.Sensitive.Bytes) > 0, r.NotBefore, r.ExpiresAt, string(r.Priority), r.BizType,
			r.Template, r.Recipient, r.Locale, r.Content.KeyID, columns.FormatContent(r.Content), texts[0], texts[1], texts[2],
			columns.Bytes(r.Variables))
		t.bytes += int64(len(r.Variables))
	}
	err = t.insert(`INSERT INTO posthouse_request (id, idem_key, accepted_at, cancelled_at, secret, not_before, expires_at, priority, biz_type,
		template, recipient, locale, content_key, content, success, choices, tags, variables) VALUES %s ON CONFLICT DO NOTHING`, 18, rows)
	if err != nil {
		return nil, err
	}
	inserted := map[uuid.UUID]model.Seq{}
	err = t.query(func(rows *sql.Rows) error {
		var seq model.Seq
		var id []byte
		err := rows.Scan(&seq, &id)
		inserted[uuid.UUID(id)] = seq
		return err
	}, `SELECT seq, id FROM posthouse_request WHERE seq > ?`, last)
	if err != nil {
		return nil, err
	}
	seqs := make([]model.Seq, len(requests))
	for i := range requests {
		id := requests[i].ID
		seqs[i] = inserted[id]
		delete(inserted, id) // the same id once more is no fresh one
	}
	return seqs, nil
}

// parts is what hangs on requests, gathered into few statements.
type parts struct {
	t        *tx
	last     model.Seq                 // the last number of a delivery
	channels map[model.SourceID]string // names

	secrets, deliveries, works, outcomes, expiries []any

	succeeded map[model.SourceID]int64
	users     map[string][]*model.NewUserMessage // by recipient, in order
	order     []string                           // of recipients
	requests  map[*model.NewUserMessage]model.Seq
}

// begin reads what the others need. Deliveries are numbered here: nobody else
// can number one before the commit.
func (p *parts) begin() error {
	err := p.t.query(func(rows *sql.Rows) error { return rows.Scan(&p.last) },
		`SELECT seq FROM sqlite_sequence WHERE name = 'posthouse_delivery'`)
	if err != nil {
		return err
	}
	p.channels, p.succeeded = map[model.SourceID]string{}, map[model.SourceID]int64{}
	return p.t.query(func(rows *sql.Rows) error {
		var id model.SourceID
		var name string
		err := rows.Scan(&id, &name)
		p.channels[id] = columns.ChannelOf(name)
		return err
	}, `SELECT id, name FROM posthouse_source WHERE tenant = 1`)
}

func (p *parts) add(seq model.Seq, r *model.NewRequest) (model.RequestHead, error) {
	head := model.RequestHead{Seq: seq, ID: r.ID, Content: r.Content, Success: r.Success, Choices: r.Choices}
	if len(r.Sensitive.Bytes) > 0 {
		p.secrets = append(p.secrets, seq, r.Sensitive.KeyID, r.Sensitive.Bytes)
	}
	if m := r.Message; m != nil {
		if p.users[r.Recipient] == nil {
			p.order = append(p.order, r.Recipient)
		}
		p.users[r.Recipient] = append(p.users[r.Recipient], m)
		p.requests[m] = seq
		p.t.bytes += int64(len(m.Body))
	}
	for i := range r.Deliveries {
		d := &r.Deliveries[i]
		channel, known := p.channels[d.Channel]
		if !known {
			return head, rejected(errNoChannel)
		}
		p.last++
		reason := columns.Text(d.Reason)
		p.deliveries = append(p.deliveries, p.last, d.ID[:], seq, d.Channel, d.Purpose, p.t.now, d.Template, d.Done, d.Locale, reason,
			columns.Text(d.Masked), d.Address.KeyID, columns.Bytes(d.Address.Bytes))
		if d.Done {
			p.outcomes = append(p.outcomes, p.last, d.Channel, p.t.now)
			p.succeeded[d.Channel]++
		} else {
			p.works = append(p.works, p.last, d.Channel, max(p.t.now, r.NotBefore))
			if r.ExpiresAt != 0 {
				p.expiries = append(p.expiries, r.ExpiresAt, p.last)
			}
		}
		head.Deliveries = append(head.Deliveries, model.DeliveryHead{
			Seq: p.last, ID: d.ID, Channel: channel, Purpose: d.Purpose, Done: d.Done, Reason: reason,
		})
	}
	columns.SortDeliveries(head.Choices, head.Deliveries)
	return head, nil
}

func (p *parts) insert() error {
	for _, table := range []struct {
		statement string
		columns   int
		rows      []any
	}{
		{`INSERT INTO posthouse_secret (request, key_id, sealed) VALUES %s`, 3, p.secrets},
		{`INSERT INTO posthouse_delivery (seq, id, request, channel, purpose, created_at, template, done, locale, reason, masked, address_key, address)
			VALUES %s`, 13, p.deliveries},
		{`INSERT INTO posthouse_work (seq, queue, due_at, state, token, owner, started_at, retry_count, lost, replay)
			SELECT column1, column2, column3, 0, 0, 0, 0, 0, 0, 0 FROM (VALUES %s)`, 3, p.works},
		{`INSERT INTO posthouse_outcome (seq, source, started_at, finished_at, n, retry_count, replay, http_status)
			SELECT column1, column2, 0, column3, 0, 0, 0, 0 FROM (VALUES %s)`, 3, p.outcomes},
		{`INSERT INTO posthouse_expiry (expires_at, delivery) VALUES %s`, 2, p.expiries},
	} {
		if err := p.t.insert(table.statement, table.columns, table.rows); err != nil {
			return err
		}
	}
	if err := p.insertMessages(); err != nil {
		return err
	}
	return count(p.t, p.succeeded)
}

// insertMessages numbers and keeps what users see.
func (p *parts) insertMessages() error {
	var rows []any
	for _, recipient := range p.order {
		messages := p.users[recipient]
		var user, last int64
		err := p.t.query(func(rows *sql.Rows) error { return rows.Scan(&user, &last) },
			`INSERT INTO posthouse_user (user_id, last_seq) VALUES (?, ?)
				ON CONFLICT (user_id) DO UPDATE SET last_seq = last_seq + excluded.last_seq RETURNING id, last_seq`, recipient, len(messages))
		if err != nil {
			return err
		}
		for i, m := range messages {
			rows = append(rows, user, last-int64(len(messages)-1-i), m.ID[:], p.requests[m], p.t.now, 0, columns.Text(m.Title), columns.Text(m.Body))
		}
	}
	return p.t.insert(`INSERT INTO posthouse_user_message (user, seq, id, request, created_at, read_at, title, body) VALUES %s`, 8, rows)
}

// RequestByKey finds what is kept under an idempotency key.
func (s *Store) RequestByKey(ctx context.Context, key string) (head model.RequestHead, err error) {
	const op = "find request"
	err = s.read(ctx, op, func(ctx context.Context, snapshot *sql.Tx) error {
		var found bool
		var err error
		head, found, err = headOf(queries(ctx, snapshot), key)
		if err == nil && !found {
			return none(op, "no request has that key")
		}
		return err
	})
	if err != nil {
		return model.RequestHead{}, err
	}
	return head, nil
}

func none(op, what string) error {
	return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New(what)}
}

// query calls scan for every row: tx.query, or the same outside of a writing
// transaction.
type query func(scan func(*sql.Rows) error, query string, args ...any) error

func queries(ctx context.Context, snapshot *sql.Tx) query {
	return func(scan func(*sql.Rows) error, query string, args ...any) error {
		rows, err := snapshot.QueryContext(ctx, query, args...)
		return each(rows, err, scan)
	}
}

func headOf(ask query, key string) (head model.RequestHead, found bool, err error) {
	err = ask(func(rows *sql.Rows) error {
		var id, content, success, choices []byte
		var keyID string
		if err := rows.Scan(&head.Seq, &id, &keyID, &content, &success, &choices); err != nil {
			return err
		}
		found = true
		head.ID = uuid.UUID(id)
		if err := columns.ParseJSON(success, &head.Success); err != nil {
			return err
		}
		if err := columns.ParseJSON(choices, &head.Choices); err != nil {
			return err
		}
		head.Content, err = columns.ParseContent(keyID, content)
		return err
	}, `SELECT seq, id, content_key, content, success, choices FROM posthouse_request WHERE idem_key = ?`, []byte(key))
	if err != nil || !found {
		return model.RequestHead{}, false, err
	}
	err = ask(func(rows *sql.Rows) error {
		var d model.DeliveryHead
		var id []byte
		err := rows.Scan(&d.Seq, &id, &d.Channel, &d.Purpose, &d.Done, &d.Reason)
		copy(d.ID[:], id)
		d.Channel = columns.ChannelOf(d.Channel)
		head.Deliveries = append(head.Deliveries, d)
		return err
	}, `SELECT d.seq, d.id, s.name, d.purpose, d.done, d.reason FROM posthouse_delivery d JOIN posthouse_source s ON s.id = d.channel
		WHERE d.request = ? ORDER BY d.seq`, head.Seq)
	columns.SortDeliveries(head.Choices, head.Deliveries)
	return head, true, err
}

// Request finds one request with its deliveries, attempts and audit records.
func (s *Store) Request(ctx context.Context, id uuid.UUID) (view model.RequestView, err error) {
	const op = "show request"
	err = s.read(ctx, op, func(ctx context.Context, snapshot *sql.Tx) error {
		view = model.RequestView{}
		ask := queries(ctx, snapshot)
		err := ask(func(rows *sql.Rows) error { return scanRequest(rows, &view) }, `SELECT r.seq, r.id, r.idem_key, r.accepted_at, r.cancelled_at <> 0,
				r.secret, r.secret AND NOT EXISTS (SELECT 1 FROM posthouse_secret x WHERE x.request = r.seq), r.not_before, r.expires_at, r.priority,
				r.biz_type, r.template, r.recipient, r.locale, r.success, r.choices, r.tags, r.variables
			FROM posthouse_request r WHERE r.id = ?`, id[:])
		if err == nil && view.Seq == 0 {
			return none(op, "no request has that id")
		}
		if err != nil {
			return err
		}
		view.Deliveries, err = deliveriesOf(ask, view.Seq)
		if err != nil {
			return err
		}
		targets := []string{columns.RequestTarget(id)}
		for i := range view.Deliveries {
			d := &view.Deliveries[i]
			targets = append(targets, columns.DeliveryTarget(d.ID))
			attempts, err := attemptsOf(ctx, snapshot, d.Seq)
			if err != nil {
				return err
			}
			if len(attempts) > 0 {
				if view.Attempts == nil {
					view.Attempts = map[model.Seq][]model.AttemptView{}
				}
				view.Attempts[d.Seq] = attempts
			}
		}
		list, err := columns.JSON(targets)
		if err != nil {
			return err
		}
		return ask(scanAudit(&view.Audit), `SELECT `+auditColumns+` FROM posthouse_audit
			WHERE target IN (SELECT value FROM json_each(?)) ORDER BY seq`, list)
	})
	if err != nil {
		return model.RequestView{}, err
	}
	return view, nil
}

func scanRequest(rows *sql.Rows, v *model.RequestView) error {
	r := &v.Request
	var id, key, success, choices, tags, variables []byte
	err := rows.Scan(&v.Seq, &id, &key, &v.AcceptedAt, &v.Cancelled, &v.Secret, &v.Erased, &r.NotBefore, &r.ExpiresAt, &r.Priority,
		&r.BizType, &r.Template, &r.Recipient, &r.Locale, &success, &choices, &tags, &variables)
	if err != nil {
		return err
	}
	copy(r.ID[:], id)
	r.Key, r.Variables = string(key), variables
	return errors.Join(columns.ParseJSON(success, &r.Success), columns.ParseJSON(choices, &r.Choices), columns.ParseJSON(tags, &r.Tags))
}

// deliveriesOf lists those of one request, by seq.
func deliveriesOf(ask query, request model.Seq) (views []model.DeliveryView, err error) {
	err = ask(scanDelivery(&views), `WITH page (seq) AS MATERIALIZED (SELECT seq FROM posthouse_delivery WHERE request = ?)`+showDeliveries, request)
	slices.Reverse(views)
	return views, err
}

// UserMessages lists a user's messages, ascending.
func (s *Store) UserMessages(ctx context.Context, user string, after int64, limit int) (messages []model.UserMessage, err error) {
	err = s.read(ctx, "list user messages", func(ctx context.Context, snapshot *sql.Tx) error {
		messages = nil
		return queries(ctx, snapshot)(func(rows *sql.Rows) error {
			var m model.UserMessage
			var id, request []byte
			err := rows.Scan(&id, &m.Seq, &request, &m.Title, &m.Body, &m.CreatedAt, &m.ReadAt)
			copy(m.ID[:], id)
			copy(m.RequestID[:], request)
			messages = append(messages, m)
			return err
		}, `SELECT m.id, m.seq, r.id, m.title, m.body, m.created_at, m.read_at
			FROM posthouse_user u CROSS JOIN posthouse_user_message m ON m.user = u.id JOIN posthouse_request r ON r.seq = m.request
			WHERE u.user_id = ? AND m.seq > ? ORDER BY m.seq LIMIT ?`, user, after, limit)
	})
	if err != nil {
		return nil, err
	}
	return messages, nil
}
