package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// putRequests keeps requests with all that hangs on them, in one statement.
//
// Requests go in by their keys, and one that another call is keeping is waited
// for. Everything else is made only for those that this very statement inserted
// (them). Users come after all requests, and by their ids: calls do not wait for
// each other in a ring. A user's row stays locked until the end, so that messages
// are numbered in the order of commit.
//
// Requests' numbers are drawn beforehand: they ascend, and are found in an array
// by their place, or by bisection, without any join. Deliveries' are drawn in the
// order given. Of messages m, u is the place of the
// user among those that have any, n that of the message among total of its user's.
//
// Parameters: of requests, $1 the place, $2 … $17 the columns; of secrets, $18 the
// place of the request, $19 and $20; of messages, $21 that place, $22 … $25; of
// deliveries, $26 that place, $27 … $36, when they are due, $37, and expire, $38.
const putRequests = `WITH numbers AS MATERIALIZED (
		SELECT ` + now + ` AS t,
			array(SELECT nextval('posthouse_request_seq') FROM generate_series(1, cardinality($1::int[]))) AS requests
	), kept AS (
		INSERT INTO posthouse_request (seq, accepted_at, not_before, expires_at, secret, cancelled, id, idem_key, content_key, content,
			biz_type, template, recipient, priority, locale, tags, success, choices, variables)
		SELECT numbers.requests[r.place], numbers.t, r.not_before, r.expires_at, r.secret, false, r.id, r.idem_key, r.content_key, r.content,
			r.biz_type, r.template, r.recipient, r.priority, r.locale, r.tags, r.success, r.choices, r.variables
		FROM numbers, unnest($1::int[], $2::uuid[], $3::bytea[], $4::text[], $5::bytea[], $6::text[], $7::text[], $8::text[], $9::text[],
			$10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::bigint[], $16::bigint[], $17::bool[])
			AS r (place, id, idem_key, content_key, content, biz_type, template, recipient, priority,
				locale, tags, success, choices, variables, not_before, expires_at, secret)
		ON CONFLICT DO NOTHING
		RETURNING seq
	), them AS MATERIALIZED (
		SELECT array_agg(seq ORDER BY seq) AS seqs FROM kept
	), secrets AS (
		INSERT INTO posthouse_secret (request, key_id, sealed)
		SELECT numbers.requests[g.place], g.key_id, g.sealed
		FROM numbers, them, unnest($18::int[], $19::text[], $20::bytea[]) AS g (place, key_id, sealed) WHERE ` + isOneOfThem + `
	), d AS MATERIALIZED (
		SELECT nextval('posthouse_delivery_seq') AS seq, numbers.requests[g.place] AS request, numbers.t, g.*
		FROM numbers, them, unnest($26::int[], $27::uuid[], $28::int[], $29::int[], $30::int[], $31::bool[], $32::text[], $33::text[],
			$34::text[], $35::text[], $36::bytea[], $37::bigint[], $38::bigint[])
			AS g (place, id, channel, template, purpose, done, locale, reason, masked, address_key, address, due_at, expires_at)
		WHERE ` + isOneOfThem + `
	), made AS (
		INSERT INTO posthouse_delivery (seq, request, created_at, channel, template, purpose, done, id, locale, reason, masked, address_key, address)
		SELECT seq, request, t, channel, template, purpose, done, id, locale, reason, masked, address_key, address FROM d
	), work AS (
		INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
		SELECT seq, greatest(due_at, t), 0, 0, 0, channel, 0, 0, 0, 0 FROM d WHERE NOT done
	), outcomes AS (
		INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status)
		SELECT seq, 0, t, channel, 0, 0, 0, 0 FROM d WHERE done
	), counted AS (
		` + count + `SELECT channel, count(*) FROM d WHERE done GROUP BY channel
	), expiries AS (
		INSERT INTO posthouse_expiry (expires_at, seq) SELECT expires_at, seq FROM d WHERE expires_at <> 0 AND NOT done
	), m AS MATERIALIZED (
		SELECT numbers.requests[g.place] AS request, numbers.t, g.*,
			dense_rank() OVER (ORDER BY g.user_id COLLATE "C")::int AS u,
			row_number() OVER (PARTITION BY g.user_id COLLATE "C" ORDER BY g.place) AS n,
			count(*) OVER (PARTITION BY g.user_id COLLATE "C") AS total
		FROM numbers, them, unnest($21::int[], $22::text[], $23::uuid[], $24::text[], $25::text[]) AS g (place, user_id, id, title, body)
		WHERE ` + isOneOfThem + `
	), users AS (
		INSERT INTO posthouse_user AS u (user_id, last_seq)
		SELECT user_id COLLATE "C", count(*) FROM m GROUP BY user_id COLLATE "C" ORDER BY user_id COLLATE "C"
		ON CONFLICT (user_id) DO UPDATE SET last_seq = u.last_seq + excluded.last_seq
		RETURNING user_id, last_seq
	), last AS MATERIALIZED (
		SELECT array_agg(last_seq ORDER BY user_id) AS seqs FROM users
	), messages AS (
		INSERT INTO posthouse_user_message (user_id, seq, request, created_at, read_at, id, title, body)
		SELECT m.user_id, last.seqs[m.u] - m.total + m.n, m.request, m.t, 0, m.id, m.title, m.body FROM m, last
	)
	SELECT numbers.requests, them.seqs, (SELECT array_agg(seq ORDER BY seq) FROM d) FROM numbers, them`

// isOneOfThem: the request at g.place was inserted.
const isOneOfThem = `them.seqs[width_bucket(numbers.requests[g.place], them.seqs)] = numbers.requests[g.place]`

// PutRequests keeps requests durably, each key once. What others have under a key
// is read when the statement is committed: it was not to be seen before.
func (s *Store) PutRequests(ctx context.Context, requests []model.NewRequest) (answers []model.PutRequest, err error) {
	const op = "put requests"
	if len(requests) == 0 {
		return nil, nil
	}
	p := takeParams()
	defer p.giveBack()
	if err := p.requests(requests); err != nil {
		return nil, &model.Error{Code: model.CodeRejected, Op: op, Err: err}
	}
	inserted := false
	err = s.write(ctx, op, func(ctx context.Context, c conn) error {
		answers = nil
		if err := s.knowChannels(ctx, c, requests); err != nil {
			return err
		}
		var drawn, kept, deliveries []int64
		err := commit(ctx, c, crashpoint.BeforePutCommit, func(c conn) error {
			return c.run(ctx, putRequests, p, func(r *row) error {
				drawn, kept, deliveries = r.int8s(), r.int8s(), r.int8s()
				return nil
			})
		})
		if err != nil {
			return err
		}
		crashpoint.Hit(crashpoint.AfterPutCommit)
		inserted = inserted || len(kept) > 0
		answers, err = s.answer(ctx, c, requests, drawn, kept, deliveries)
		return err
	})
	if err != nil {
		return nil, err
	}
	if inserted {
		s.gatherNowAndThen(ctx) // what was done with the insert is counted
	}
	return answers, nil
}

// answer says what became of requests. kept are the seqs, of those drawn, that
// were inserted, ascending, and deliveries the seqs of theirs.
func (s *Store) answer(ctx context.Context, c conn, requests []model.NewRequest, drawn, kept, deliveries []int64) ([]model.PutRequest, error) {
	answers := make([]model.PutRequest, len(requests))
	var keys [][]byte
	for i := range requests {
		r := &requests[i]
		if _, inserted := slices.BinarySearch(kept, drawn[i]); !inserted {
			keys = append(keys, []byte(r.Key))
			continue
		}
		answers[i].First = s.headOf(r, model.Seq(drawn[i]), deliveries[:len(r.Deliveries)])
		deliveries = deliveries[len(r.Deliveries):]
	}
	if keys == nil {
		return answers, nil
	}
	heads, err := readHeads(ctx, c, keys)
	if err != nil {
		return nil, err
	}
	for i := range requests {
		if answers[i].First.Seq != 0 {
			continue
		}
		head, found := heads[requests[i].Key]
		if !found {
			return nil, &model.Error{Code: model.CodeRejected, Op: "put requests", Err: errors.New("a request has the id of another one")}
		}
		answers[i] = model.PutRequest{Duplicate: head.ID != requests[i].ID, First: head}
	}
	return answers, nil
}

func (s *Store) headOf(r *model.NewRequest, seq model.Seq, deliveries []int64) model.RequestHead {
	head := model.RequestHead{Seq: seq, ID: r.ID, Content: r.Content, Success: r.Success, Choices: r.Choices}
	for i := range r.Deliveries {
		d := &r.Deliveries[i]
		head.Deliveries = append(head.Deliveries, model.DeliveryHead{
			Seq: model.Seq(deliveries[i]), ID: d.ID, Channel: s.channelName(d.Channel), Purpose: d.Purpose, Done: d.Done,
			Reason: columns.Text(d.Reason),
		})
	}
	columns.SortDeliveries(head.Choices, head.Deliveries)
	return head
}

// channelName is the name of a channel that is known.
func (s *Store) channelName(id model.SourceID) string {
	name, _ := s.channels.Load(id)
	text, _ := name.(string)
	return text
}

// knowChannels finds out the names of the channels of requests, which never
// change.
func (s *Store) knowChannels(ctx context.Context, c conn, requests []model.NewRequest) error {
	known := func() bool {
		for i := range requests {
			for j := range requests[i].Deliveries {
				if s.channelName(requests[i].Deliveries[j].Channel) == "" {
					return false
				}
			}
		}
		return true
	}
	if known() {
		return nil
	}
	sources, err := readSources(ctx, c)
	if err != nil {
		return err
	}
	for _, source := range sources {
		if source.Tenant == model.TenantDelivery {
			s.channels.Store(source.ID, columns.ChannelOf(source.Name))
		}
	}
	if !known() {
		return &model.Error{Code: model.CodeRejected, Op: "put requests", Err: errors.New("a delivery is for no known channel")}
	}
	return nil
}

// requests makes the parameters of putRequests.
func (p *params) requests(requests []model.NewRequest) error {
	n := len(requests)
	places := make([]int32, n) // from 1, in the order of the keys
	var secrets, messages []int32
	type part struct {
		place int32
		of    *model.NewRequest
		d     *model.NewDelivery
	}
	var deliveries []part
	size := 0
	for i := range requests {
		r, place := &requests[i], int32(i+1)
		places[i] = place
		size += 512 + len(r.Variables) + len(r.Sensitive.Bytes)
		if len(r.Sensitive.Bytes) > 0 {
			secrets = append(secrets, place)
		}
		if r.Message != nil {
			messages = append(messages, place)
			size += 64 + len(r.Message.Title) + len(r.Message.Body)
		}
		for j := range r.Deliveries {
			deliveries = append(deliveries, part{place, r, &r.Deliveries[j]})
			size += 256 + len(r.Deliveries[j].Address.Bytes)
		}
	}
	slices.SortStableFunc(places, func(a, b int32) int {
		return strings.Compare(requests[a-1].Key, requests[b-1].Key)
	})
	of := func(place int32) *model.NewRequest { return &requests[place-1] }
	at := func(i int) *model.NewRequest { return of(places[i]) }
	texts := func(value func(*model.NewRequest) string) {
		p.texts(n, func(i int) string { return columns.Text(value(at(i))) })
	}
	var failed error
	asJSON := func(value func(*model.NewRequest) any) {
		p.texts(n, func(i int) string {
			text, err := columns.JSON(value(at(i)))
			failed = errors.Join(failed, err)
			return text
		})
	}

	p.buf = slices.Grow(p.buf, size+1024)
	p.int4s(n, func(i int) int32 { return places[i] })
	p.uuids(n, func(i int) *uuid.UUID { return &at(i).ID })
	p.byteas(n, func(i int) []byte { return []byte(at(i).Key) })
	texts(func(r *model.NewRequest) string { return r.Content.KeyID })
	p.byteas(n, func(i int) []byte { return columns.FormatContent(at(i).Content) })
	texts(func(r *model.NewRequest) string { return r.BizType })
	texts(func(r *model.NewRequest) string { return r.Template })
	texts(func(r *model.NewRequest) string { return r.Recipient })
	texts(func(r *model.NewRequest) string { return string(r.Priority) })
	texts(func(r *model.NewRequest) string { return r.Locale })
	asJSON(func(r *model.NewRequest) any { return r.Tags })
	asJSON(func(r *model.NewRequest) any { return r.Success })
	asJSON(func(r *model.NewRequest) any { return r.Choices })
	texts(func(r *model.NewRequest) string { return string(r.Variables) })
	p.int8s(n, func(i int) int64 { return int64(at(i).NotBefore) })
	p.int8s(n, func(i int) int64 { return int64(at(i).ExpiresAt) })
	p.bools(n, func(i int) bool { return len(at(i).Sensitive.Bytes) > 0 })

	p.int4s(len(secrets), func(i int) int32 { return secrets[i] })
	p.texts(len(secrets), func(i int) string { return columns.Text(of(secrets[i]).Sensitive.KeyID) })
	p.byteas(len(secrets), func(i int) []byte { return of(secrets[i]).Sensitive.Bytes })

	p.int4s(len(messages), func(i int) int32 { return messages[i] })
	p.texts(len(messages), func(i int) string { return columns.Text(of(messages[i]).Recipient) })
	p.uuids(len(messages), func(i int) *uuid.UUID { return &of(messages[i]).Message.ID })
	p.texts(len(messages), func(i int) string { return columns.Text(of(messages[i]).Message.Title) })
	p.texts(len(messages), func(i int) string { return columns.Text(of(messages[i]).Message.Body) })

	m := len(deliveries)
	p.int4s(m, func(i int) int32 { return deliveries[i].place })
	p.uuids(m, func(i int) *uuid.UUID { return &deliveries[i].d.ID })
	p.int4s(m, func(i int) int32 { return int32(deliveries[i].d.Channel) })
	p.int4s(m, func(i int) int32 { return int32(deliveries[i].d.Template) })
	p.int4s(m, func(i int) int32 { return int32(deliveries[i].d.Purpose) })
	p.bools(m, func(i int) bool { return deliveries[i].d.Done })
	p.texts(m, func(i int) string { return columns.Text(deliveries[i].d.Locale) })
	p.texts(m, func(i int) string { return columns.Text(deliveries[i].d.Reason) })
	p.texts(m, func(i int) string { return columns.Text(deliveries[i].d.Masked) })
	p.texts(m, func(i int) string { return columns.Text(deliveries[i].d.Address.KeyID) })
	p.byteas(m, func(i int) []byte { return deliveries[i].d.Address.Bytes })
	p.int8s(m, func(i int) int64 { return int64(deliveries[i].of.NotBefore) })
	p.int8s(m, func(i int) int64 { return int64(deliveries[i].of.ExpiresAt) })
	p.done()
	return failed
}

const selectHeads = `SELECT r.idem_key, r.seq, r.id, r.content_key, r.content, r.success, r.choices,
		d.seq, d.id, s.name, d.purpose, d.done, d.reason
	FROM unnest($1::bytea[]) AS k (idem_key)
	CROSS JOIN LATERAL (SELECT * FROM posthouse_request WHERE idem_key = k.idem_key OFFSET 0) r
	LEFT JOIN LATERAL (SELECT * FROM posthouse_delivery WHERE request = r.seq OFFSET 0) d ON true
	LEFT JOIN LATERAL (SELECT name FROM posthouse_source WHERE id = d.channel OFFSET 0) s ON true
	ORDER BY r.seq, d.seq`

// readHeads finds what is kept under idempotency keys.
func readHeads(ctx context.Context, c conn, keys [][]byte) (map[string]model.RequestHead, error) {
	given := takeParams()
	defer given.giveBack()
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	given.byteas(len(keys), func(i int) []byte { return keys[i] })
	given.done()
	heads := make(map[string]model.RequestHead, len(keys))
	err := c.run(ctx, selectHeads, given, func(r *row) (err error) {
		key := string(r.next())
		head, known := heads[key]
		head.Seq, head.ID = model.Seq(r.int()), r.uuid()
		contentKey, content, success, choices := r.text(""), r.next(), r.next(), r.next()
		if !known {
			head.Content, err = columns.ParseContent(contentKey, content)
			err = errors.Join(err, columns.ParseJSON(success, &head.Success), columns.ParseJSON(choices, &head.Choices))
		}
		d := model.DeliveryHead{Seq: model.Seq(r.int()), ID: r.uuid(), Channel: columns.ChannelOf(r.text("")),
			Purpose: model.Purpose(r.int()), Done: r.bool(), Reason: r.text("")}
		if d.Seq != 0 {
			head.Deliveries = append(head.Deliveries, d)
		}
		heads[key] = head
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, head := range heads {
		columns.SortDeliveries(head.Choices, head.Deliveries)
	}
	return heads, nil
}

// RequestByKey finds what is kept under an idempotency key.
func (s *Store) RequestByKey(ctx context.Context, key string) (head model.RequestHead, err error) {
	const op = "find request by key"
	err = s.read(ctx, op, func(ctx context.Context, c conn) error {
		heads, err := readHeads(ctx, c, [][]byte{[]byte(key)})
		if err != nil {
			return err
		}
		var found bool
		if head, found = heads[key]; !found {
			return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no request has that key")}
		}
		return nil
	})
	if err != nil {
		return model.RequestHead{}, err
	}
	return head, nil
}
