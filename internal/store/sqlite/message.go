package sqlite

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// PutMessages keeps messages durably, each id and each Dedup key once.
func (s *Store) PutMessages(ctx context.Context, put model.Put, messages []model.NewMessage) (duplicates []int, err error) {
	if len(messages) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "put messages", func(t *tx) error {
		var err error
		if duplicates, err = takeKeys(t, messages); err != nil {
			return err
		}
		messages := columns.Without(messages, duplicates)
		// The rows that this transaction inserts are those above.
		var last model.Seq
		err = t.query(func(rows *sql.Rows) error { return rows.Scan(&last) }, `SELECT coalesce(max(seq), 0) FROM posthouse_message`)
		if err != nil {
			return err
		}
		rows := make([]any, 0, 9*len(messages))
		for i := range messages {
			m := &messages[i]
			rows = append(rows, m.ID[:], m.Source, t.now, m.ContentType, len(m.Body), m.Check,
				columns.Bytes(m.Headers), columns.Bytes(m.Query), columns.Bytes(m.Body))
			t.bytes += int64(len(m.Headers) + len(m.Query) + len(m.Body))
		}
		err = t.insert(`INSERT INTO posthouse_message (id, source, received_at, content_type, size, check_note, headers, query, body)
			VALUES %s ON CONFLICT (id) DO NOTHING`, 9, rows)
		if err != nil {
			return err
		}
		if put == model.PutSuccess {
			err = imported(t, last)
		} else {
			err = pending(t, last, messages)
		}
		crashpoint.Hit(crashpoint.BeforePutCommit)
		return err
	})
	if err != nil {
		return nil, err
	}
	crashpoint.Hit(crashpoint.AfterPutCommit)
	return duplicates, nil
}

// pending makes work for what this transaction inserted.
func pending(t *tx, last model.Seq, messages []model.NewMessage) error {
	var keys map[uuid.UUID]model.Key
	for i := range messages {
		if key := messages[i].Key; key != (model.Key{}) {
			if keys == nil {
				keys = make(map[uuid.UUID]model.Key, len(messages))
			}
			keys[messages[i].ID] = key
		}
	}
	if keys == nil {
		_, err := t.exec(`INSERT INTO posthouse_work (seq, queue, state, due_at, token, owner, started_at, retry_count, lost, replay)
			SELECT seq, source, 0, received_at, 0, 0, 0, 0, 0, 0 FROM posthouse_message WHERE seq > ?`, last)
		return err
	}
	var placed tuples
	err := t.query(func(rows *sql.Rows) error {
		var seq int64
		var id []byte
		if err := rows.Scan(&seq, &id); err != nil {
			return err
		}
		key := keys[uuid.UUID(id)]
		placed.add(seq, int64(key.Slot), key.Hash)
		return nil
	}, `SELECT seq, id FROM posthouse_message WHERE seq > ?`, last)
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO posthouse_work (seq, queue, slot, key_hash, state, due_at, token, owner, started_at, retry_count, lost, replay)
		SELECT m.seq, m.source, placed.value ->> 1, placed.value ->> 2, 0, m.received_at, 0, 0, 0, 0, 0, 0
		FROM json_each(?) placed CROSS JOIN posthouse_message m ON m.seq = placed.value ->> 0`, placed.String())
	return err
}

// imported writes down as handled what this transaction inserted.
func imported(t *tx, last model.Seq) error {
	_, err := t.exec(`INSERT INTO posthouse_outcome (seq, source, started_at, finished_at, n, retry_count, replay, http_status)
		SELECT seq, source, 0, received_at, 0, 0, 0, 0 FROM posthouse_message WHERE seq > ?`, last)
	if err != nil {
		return err
	}
	kept := map[model.SourceID]int64{}
	err = t.query(func(rows *sql.Rows) error {
		var source model.SourceID
		var n int64
		err := rows.Scan(&source, &n)
		kept[source] = n
		return err
	}, `SELECT source, count(*) FROM posthouse_message WHERE seq > ? GROUP BY source`, last)
	if err != nil {
		return err
	}
	return count(t, kept)
}

// count adds to the counters of succeeded messages. One shard will do where
// there is one writer.
func count(t *tx, succeeded map[model.SourceID]int64) error {
	for _, source := range slices.Sorted(maps.Keys(succeeded)) {
		if succeeded[source] == 0 {
			continue
		}
		_, err := t.exec(`INSERT INTO posthouse_counter (source, shard, succeeded) VALUES (?, 0, ?)
			ON CONFLICT (source, shard) DO UPDATE SET succeeded = succeeded + excluded.succeeded`, source, succeeded[source])
		if err != nil {
			return err
		}
	}
	return nil
}

// Columns of a whole message, as scanMessage wants them.
const messageColumns = `m.seq, m.id, m.source, m.received_at, m.content_type, m.check_note, m.headers, m.query, m.body`

func scanMessage(rows *sql.Rows) (*model.Message, error) {
	m := &model.Message{}
	var id []byte
	err := rows.Scan(&m.Seq, &id, &m.Source, &m.ReceivedAt, &m.ContentType, &m.Check, &m.Headers, &m.Query, &m.Body)
	if err != nil {
		return nil, err
	}
	copy(m.ID[:], id)
	return m, nil
}
