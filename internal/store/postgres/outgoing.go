package postgres

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// outgoing finds each row by its key, one after the other.
const outgoing = `WITH clock AS MATERIALIZED (SELECT ` + now + ` AS t)
	SELECT d.seq, d.id, r.seq, r.id, r.biz_type, r.recipient, r.priority, d.locale, d.template, r.variables, s.key_id, s.sealed,
		r.secret AND s.request IS NULL, r.cancelled, d.address_key, d.address, r.expires_at, clock.t
	FROM clock, unnest($1::bigint[]) WITH ORDINALITY AS q (seq, n)
	CROSS JOIN LATERAL (SELECT * FROM posthouse_delivery WHERE seq = q.seq OFFSET 0) d
	CROSS JOIN LATERAL (SELECT * FROM posthouse_request WHERE seq = d.request OFFSET 0) r
	LEFT JOIN LATERAL (SELECT * FROM posthouse_secret WHERE r.secret AND request = r.seq OFFSET 0) s ON true
	ORDER BY q.n`

// Outgoing returns what is to be sent for deliveries, in the order given.
func (s *Store) Outgoing(ctx context.Context, deliveries []model.Seq) (all []model.Outgoing, err error) {
	if len(deliveries) == 0 {
		return nil, nil
	}
	given := takeParams()
	defer given.giveBack()
	given.int8s(len(deliveries), func(i int) int64 { return int64(deliveries[i]) })
	given.done()
	err = s.read(ctx, "read what is to be sent", func(ctx context.Context, c conn) error {
		all = make([]model.Outgoing, 0, len(deliveries))
		return c.run(ctx, outgoing, given, func(r *row) error {
			var known model.Outgoing // neighbours are mostly alike
			if n := len(all); n > 0 {
				known = all[n-1]
			}
			all = append(all, r.outgoing(&known))
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (r *row) outgoing(known *model.Outgoing) (o model.Outgoing) {
	o.Seq, o.ID, o.Request, o.RequestID = model.Seq(r.int()), r.uuid(), model.Seq(r.int()), r.uuid()
	o.BizType, o.Recipient = r.text(known.BizType), r.text(known.Recipient)
	o.Priority, o.Locale = model.Priority(r.text(string(known.Priority))), r.text(known.Locale)
	o.Template = model.TemplateID(r.int())
	o.Variables = json.RawMessage(bytes.Clone(r.next()))
	o.Sensitive = model.Sealed{KeyID: r.text(known.Sensitive.KeyID), Bytes: bytes.Clone(r.next())}
	o.Erased, o.Cancelled = r.bool(), r.bool()
	o.Address = model.Sealed{KeyID: r.text(known.Address.KeyID), Bytes: bytes.Clone(r.next())}
	o.ExpiresAt, o.Now = model.Micros(r.int()), model.Micros(r.int())
	return o
}

// UserMessages lists a user's messages with numbers above after, ascending.
func (s *Store) UserMessages(ctx context.Context, user string, after int64, limit int) (messages []model.UserMessage, err error) {
	err = s.read(ctx, "list user messages", func(ctx context.Context, c conn) error {
		messages = nil
		return c.query(ctx, func(rows pgx.Rows) error {
			var m model.UserMessage
			var id, request [16]byte
			err := rows.Scan(&id, &m.Seq, &request, &m.Title, &m.Body, &m.CreatedAt, &m.ReadAt)
			m.ID, m.RequestID = id, request
			messages = append(messages, m)
			return err
		}, `SELECT m.id, m.seq, r.id, m.title, m.body, m.created_at, m.read_at FROM (
				SELECT * FROM posthouse_user_message WHERE user_id = $1 AND seq > $2 ORDER BY seq LIMIT $3) m
			CROSS JOIN LATERAL (SELECT id FROM posthouse_request WHERE seq = m.request OFFSET 0) r ORDER BY m.seq`, columns.Text(user), after, limit)
	})
	return messages, err
}
