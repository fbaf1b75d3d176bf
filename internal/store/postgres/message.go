package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
)

// Both forms of a put are one statement. Work, or an outcome, is made only for
// the messages that this very statement inserted.
//
// Rows go in by their ids, so that two puts of the same messages wait for each
// other instead of locking each other out; their places ($1) say which of the
// numbers drawn beforehand each gets.
const (
	keep = `WITH numbers AS MATERIALIZED (
			SELECT array(SELECT nextval('posthouse_message_seq') FROM generate_series(1, cardinality($1::int[]))) AS drawn, ` + now + ` AS t
		), kept AS (
			INSERT INTO posthouse_message (seq, received_at, source, size, id, content_type, check_note, headers, query, body)
			SELECT numbers.drawn[m.place], numbers.t, m.source, length(m.body), m.id, m.content_type, m.check_note, m.headers, m.query, m.body
			FROM numbers, unnest($1::int[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::bytea[])
				AS m (place, id, source, content_type, check_note, headers, query, body)
			ON CONFLICT (id) DO NOTHING
			RETURNING seq, source, received_at
		) `
	keepPending = keep + `
		INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
		SELECT seq, received_at, 0, 0, 0, source, 0, 0, 0, 0 FROM kept`
	keepSuccess = keep + `, counted AS (` + count + `SELECT source, $9::int, count(*) FROM kept GROUP BY source ORDER BY source` + counting + `)
		INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status)
		SELECT seq, 0, received_at, source, 0, 0, 0, 0 FROM kept`
)

// A query between the two adds to the counters of succeeded messages.
const (
	count    = `INSERT INTO posthouse_counter (source, shard, succeeded) `
	counting = ` ON CONFLICT (source, shard) DO UPDATE SET succeeded = posthouse_counter.succeeded + excluded.succeeded`
)

// PutMessages keeps messages durably, each id once.
func (s *Store) PutMessages(ctx context.Context, put model.Put, messages []model.NewMessage) error {
	if len(messages) == 0 {
		return nil
	}
	statement := keepPending
	if put == model.PutSuccess {
		statement = keepSuccess
	}
	params := takePutParams()
	defer params.giveBack()
	params.write(messages, s.shard, put == model.PutSuccess)
	err := s.write(ctx, "put messages", func(ctx context.Context, c *pgxpool.Conn) error {
		return commit(ctx, c, crashpoint.BeforePutCommit, func(executor) error {
			return params.run(ctx, c.Conn(), statement, s.prepares)
		})
	})
	if err == nil {
		crashpoint.Hit(crashpoint.AfterPutCommit)
	}
	return err
}

type executor interface {
	querier
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// commit runs do, which is one statement. The statement commits itself, except
// in a build in which a test wants to crash before the commit.
func commit(ctx context.Context, c *pgxpool.Conn, crash string, do func(executor) error) error {
	if !crashpoint.Enabled {
		return do(c)
	}
	return transaction(ctx, c, pgx.TxOptions{}, func(tx pgx.Tx) error {
		err := do(tx)
		crashpoint.Hit(crash)
		return err
	})
}

// Columns of a message m that may be absent, as scanMessage wants them.
const messageColumns = `m.seq, m.id, m.source, m.received_at, m.content_type, m.check_note, m.headers, m.query, m.body`

// messageRow is what a message's columns are read into.
type messageRow struct {
	seq, source, receivedAt pgtype.Int8
	id                      pgtype.UUID
	contentType, check      pgtype.Text
	headers, query, body    []byte
}

func (r *messageRow) fields() []any {
	return []any{&r.seq, &r.id, &r.source, &r.receivedAt, &r.contentType, &r.check, &r.headers, &r.query, &r.body}
}

// message is nil where there was none.
func (r *messageRow) message() *model.Message {
	if !r.seq.Valid {
		return nil
	}
	return &model.Message{
		NewMessage: model.NewMessage{
			ID: r.id.Bytes, Source: model.SourceID(r.source.Int64), ContentType: r.contentType.String, Check: r.check.String,
			Headers: r.headers, Query: r.query, Body: r.body,
		},
		Seq: model.Seq(r.seq.Int64), ReceivedAt: model.Micros(r.receivedAt.Int64),
	}
}
