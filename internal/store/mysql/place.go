package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/posthouse/posthouse/internal/model"
)

// Misplaced lists pending work outside of the slots of the KeyID.
func (s *Store) Misplaced(ctx context.Context, queue model.SourceID, id model.KeyID, limit int) (messages []model.Message, err error) {
	if limit < 1 {
		return nil, nil
	}
	from, to := id.SlotRange()
	err = s.read(ctx, "list misplaced work", func(c *call) error {
		messages = nil
		var one script
		one.add(`SELECT `+messageColumns+` FROM (
				SELECT seq FROM posthouse_work FORCE INDEX (posthouse_work_due)
				WHERE queue = ? AND state = 0 AND (slot < ? OR slot >= ?) ORDER BY seq LIMIT ?) w
			STRAIGHT_JOIN posthouse_message m FORCE INDEX (PRIMARY) ON m.seq = w.seq ORDER BY m.seq`, queue, from, to, limit)
		return c.query(&one, func(rows *sql.Rows) error {
			m, err := scanMessage(rows)
			if err == nil {
				messages = append(messages, *m)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return messages, nil
}

// Place moves pending work to where it belongs, in the order of seq.
func (s *Store) Place(ctx context.Context, queue model.SourceID, placed []model.Placed) error {
	if len(placed) == 0 {
		return nil
	}
	placed = slices.SortedStableFunc(slices.Values(placed), func(a, b model.Placed) int { return cmp.Compare(a.Seq, b.Seq) })
	return s.write(ctx, "place work", func(c *call) error {
		var todo script
		todo.add(`START TRANSACTION`)
		for some := range slices.Chunk(placed, packetRows) {
			seqs, slots, hashes := make([]model.Seq, len(some)), make([]model.Slot, len(some)), make([]int64, len(some))
			for i := range some {
				seqs[i], slots[i], hashes[i] = some[i].Seq, some[i].Key.Slot, some[i].Key.Hash
			}
			todo.add(`UPDATE posthouse_work w FORCE INDEX (PRIMARY) SET w.slot = `+pick(seqs, slots)+`, w.key_hash = `+pick(seqs, hashes)+`
				WHERE w.seq IN (`+list(seqs)+`) AND w.queue = ? AND w.state = 0`, queue)
			if err := c.relieve(&todo); err != nil {
				return err
			}
		}
		todo.add(`COMMIT`)
		_, err := c.exec(&todo)
		return err
	})
}
