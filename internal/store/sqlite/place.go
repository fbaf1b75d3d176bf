package sqlite

import (
	"context"
	"database/sql"

	"github.com/posthouse/posthouse/internal/model"
)

// Misplaced lists pending work outside of the slots of the KeyID.
func (s *Store) Misplaced(ctx context.Context, queue model.SourceID, id model.KeyID, limit int) (messages []model.Message, err error) {
	err = s.read(ctx, "list misplaced work", func(ctx context.Context, snapshot *sql.Tx) error {
		messages = nil
		from, to := id.SlotRange()
		rows, err := snapshot.QueryContext(ctx, `SELECT `+messageColumns+` FROM posthouse_message m WHERE m.seq IN (
				SELECT seq FROM (SELECT seq FROM posthouse_work WHERE queue = ?1 AND state = 0 AND slot < ?2
					UNION ALL SELECT seq FROM posthouse_work WHERE queue = ?1 AND state = 0 AND slot >= ?3)
				ORDER BY seq LIMIT ?4) ORDER BY m.seq`, queue, from, to, limit)
		return each(rows, err, func(rows *sql.Rows) error {
			m, err := scanMessage(rows)
			if err == nil {
				messages = append(messages, *m)
			}
			return err
		})
	})
	return messages, err
}

// Place moves pending work to where it belongs.
func (s *Store) Place(ctx context.Context, queue model.SourceID, placed []model.Placed) error {
	if len(placed) == 0 {
		return nil
	}
	return s.write(ctx, "place work", func(t *tx) error {
		var moves tuples
		for _, p := range placed {
			moves.add(int64(p.Seq), int64(p.Key.Slot), p.Key.Hash)
		}
		_, err := t.exec(`UPDATE posthouse_work SET slot = moved.value ->> 1, key_hash = moved.value ->> 2 FROM json_each(?) moved
			WHERE posthouse_work.seq = moved.value ->> 0 AND queue = ? AND state = 0`, moves.String(), queue)
		return err
	})
}
