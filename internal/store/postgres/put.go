package postgres

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// putForm says what a put consists of beside its messages.
type putForm struct {
	success bool // outcomes, and no work
	keys    bool // work stands elsewhere than where all does without keys
	dedup   bool // keys of senders
}

var putStatements = func() map[putForm]string {
	all := map[putForm]string{}
	for _, success := range []bool{false, true} {
		for _, keys := range []bool{false, true} {
			for _, dedup := range []bool{false, true} {
				f := putForm{success, keys && !success, dedup}
				all[f] = f.statement()
			}
		}
	}
	return all
}()

// statement is the whole put. Work, or an outcome, is made only for the
// messages that this very statement inserted.
//
// Rows go in by their ids, so that two puts of the same messages wait for each
// other instead of locking each other out; their places ($1) say which of the
// numbers drawn beforehand each gets.
//
// Keys of senders are taken before any message, in their order, and one that
// another put is taking is waited for. Only the messages that have their key by
// then are kept, and those without one. Who has which is returned.
func (f putForm) statement() string {
	numbers := `WITH numbers AS MATERIALIZED (
			SELECT array(SELECT nextval('posthouse_message_seq') FROM generate_series(1, cardinality($1::int[]))) AS drawn, ` + now + ` AS t
		)`
	taken, arrays, names, filter := ``, ``, ``, ``
	next := 9
	if f.dedup {
		taken = `, owners AS (
			INSERT INTO posthouse_dedup AS d (source, hash, id, expires_at)
			SELECT g.source, g.hash, g.id, numbers.t + g.lasts
			FROM numbers, unnest($10::int[], $11::bytea[], $12::uuid[], $13::bigint[]) AS g (source, hash, id, lasts)
			ORDER BY g.source, g.hash
			ON CONFLICT (source, hash) DO UPDATE SET
				id = CASE WHEN d.expires_at <= (SELECT t FROM numbers) THEN excluded.id ELSE d.id END,
				expires_at = CASE WHEN d.expires_at <= (SELECT t FROM numbers) THEN excluded.expires_at ELSE d.expires_at END
			RETURNING d.source, d.hash, d.id
		)`
		arrays, names = `, $9::bytea[]`, `, hash`
		filter = ` WHERE m.hash = '' OR (m.source, m.hash, m.id) IN (SELECT source, hash, id FROM owners)`
		next = 14
	}
	keep := `, kept AS (
			INSERT INTO posthouse_message (seq, received_at, source, size, id, content_type, check_note, headers, query, body)
			SELECT numbers.drawn[m.place], numbers.t, m.source, length(m.body), m.id, m.content_type, m.check_note, m.headers, m.query, m.body
			FROM numbers, unnest($1::int[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::bytea[]` + arrays + `)
				AS m (place, id, source, content_type, check_note, headers, query, body` + names + `)` + filter + `
			ON CONFLICT (id) DO NOTHING
			RETURNING seq, source, received_at
		)`
	var made string
	switch {
	case f.success:
		keep += `, counted AS (` + count + `SELECT source, count(*) FROM kept GROUP BY source)`
		made = `INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status)
			SELECT seq, 0, received_at, source, 0, 0, 0, 0 FROM kept`
	case f.keys:
		// The numbers ascend, and so a number tells its place.
		made = fmt.Sprintf(`INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state, slot, key_hash)
			SELECT seq, received_at, 0, 0, 0, source, 0, 0, 0, 0,
				($%d::int[])[width_bucket(seq, numbers.drawn)], ($%d::bigint[])[width_bucket(seq, numbers.drawn)]
			FROM kept, numbers`, next, next+1)
	default:
		made = `INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
			SELECT seq, received_at, 0, 0, 0, source, 0, 0, 0, 0 FROM kept`
	}
	if f.dedup {
		return numbers + taken + keep + `, made AS (` + made + `) SELECT source, hash, id FROM owners`
	}
	return numbers + keep + ` ` + made
}

// PutMessages keeps messages durably, each id once, and each key of a sender
// within its window once.
func (s *Store) PutMessages(ctx context.Context, put model.Put, messages []model.NewMessage) (duplicates []int, err error) {
	if len(messages) == 0 {
		return nil, nil
	}
	twins := columns.Twins(messages)
	form := putForm{success: put == model.PutSuccess, dedup: len(twins) > 0}
	form.keys = !form.success && slices.ContainsFunc(messages, func(m model.NewMessage) bool { return m.Key != model.Key{} })
	p := takeParams()
	defer p.giveBack()
	p.put(form, messages, twins)
	owners := make([]uuid.UUID, len(twins))
	err = s.write(ctx, "put messages", func(ctx context.Context, c conn) error {
		return commit(ctx, c, crashpoint.BeforePutCommit, func(c conn) error {
			return c.run(ctx, putStatements[form], p, func(r *row) error {
				source, hash := model.SourceID(r.int()), r.next()
				at, _ := slices.BinarySearchFunc(twins, hash, func(twin columns.Twin, hash []byte) int {
					return cmp.Or(cmp.Compare(twin.Source, source), bytes.Compare(twin.Hash[:], hash))
				})
				owners[at] = r.uuid()
				return nil
			})
		})
	})
	if err != nil {
		return nil, err
	}
	crashpoint.Hit(crashpoint.AfterPutCommit)
	return columns.Duplicates(messages, twins, owners), nil
}

// put makes the parameters of the form's statement.
func (p *params) put(form putForm, messages []model.NewMessage, twins []columns.Twin) {
	n, size := len(messages), 0
	places := make([]int32, n) // from 1, in the order of the ids
	for i := range messages {
		m := &messages[i]
		places[i] = int32(i + 1)
		size += len(m.Body) + len(m.Headers) + len(m.Query) + len(m.ContentType) + len(m.Check) + 128
	}
	slices.SortStableFunc(places, func(a, b int32) int {
		return bytes.Compare(messages[a-1].ID[:], messages[b-1].ID[:])
	})
	p.buf = slices.Grow(p.buf, size+256)
	at := func(i int) *model.NewMessage { return &messages[places[i]-1] }
	p.int4s(n, func(i int) int32 { return places[i] })
	p.uuids(n, func(i int) *uuid.UUID { return &at(i).ID })
	p.int4s(n, func(i int) int32 { return int32(at(i).Source) })
	p.texts(n, func(i int) string { return columns.Text(at(i).ContentType) })
	p.texts(n, func(i int) string { return columns.Text(at(i).Check) })
	p.byteas(n, func(i int) []byte { return at(i).Headers })
	p.byteas(n, func(i int) []byte { return at(i).Query })
	p.byteas(n, func(i int) []byte { return at(i).Body })
	if form.dedup {
		p.byteas(n, func(i int) []byte {
			if m := at(i); m.Dedup.Window > 0 {
				return m.Dedup.Hash[:]
			}
			return nil
		})
		p.int4s(len(twins), func(i int) int32 { return int32(twins[i].Source) })
		p.byteas(len(twins), func(i int) []byte { return twins[i].Hash[:] })
		p.uuids(len(twins), func(i int) *uuid.UUID { return &twins[i].ID })
		p.int8s(len(twins), func(i int) int64 { return twins[i].Window.Microseconds() })
	}
	if form.keys {
		p.int4s(n, func(i int) int32 { return int32(messages[i].Key.Slot) })
		p.int8s(n, func(i int) int64 { return messages[i].Key.Hash })
	}
	p.done()
}

// commit runs do, which is one statement. The statement commits itself, except
// in a build in which a test wants to crash before the commit.
func commit(ctx context.Context, c conn, crash string, do func(conn) error) error {
	if !crashpoint.Enabled {
		return do(c)
	}
	return transaction(ctx, c, pgx.TxOptions{}, func(c conn) error {
		err := do(c)
		crashpoint.Hit(crash)
		return err
	})
}

// ForgetKeys deletes keys of senders whose window is over.
func (s *Store) ForgetKeys(ctx context.Context, limit int) (int, error) {
	n, err := s.exec(ctx, "forget keys", `DELETE FROM posthouse_dedup
		WHERE ctid = ANY (ARRAY(SELECT ctid FROM posthouse_dedup WHERE expires_at <= (SELECT `+now+`)
			ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))
		AND expires_at + 0 <= `+now, limit)
	return int(n), err
}
