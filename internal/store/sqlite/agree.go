package sqlite

import (
	"context"
	"database/sql"

	"github.com/posthouse/posthouse/internal/model"
)

// beginDrain lets the sources drain of which the instance wants something else
// than holds, and no other living one something else than it does.
const beginDrain = `UPDATE posthouse_source AS s
	SET draining = 1, next_ordering = mine.ordering, next_partitions = mine.partitions, next_key_id = mine.key_id
	FROM posthouse_want mine
	WHERE mine.instance = ?1 AND mine.queue = s.id AND NOT s.draining
	AND (s.ordering, s.partitions, s.key_id) <> (mine.ordering, mine.partitions, mine.key_id)
	AND EXISTS (SELECT 1 FROM posthouse_instance i WHERE i.id = ?1 AND NOT i.dead)
	AND NOT EXISTS (SELECT 1 FROM posthouse_want other JOIN posthouse_instance i ON i.id = other.instance AND NOT i.dead
		WHERE other.queue = s.id
		AND (other.ordering, other.partitions, other.key_id) <> (mine.ordering, mine.partitions, mine.key_id))`

// endDrain begins the next generation of the sources that have drained.
const endDrain = `UPDATE posthouse_source
	SET ordering = next_ordering, partitions = next_partitions, key_id = next_key_id, generation = generation + 1,
		draining = 0, next_ordering = '', next_partitions = 0, next_key_id = 0
	WHERE draining AND NOT EXISTS (SELECT 1 FROM posthouse_work w WHERE w.queue = posthouse_source.id AND w.state = 1)
	RETURNING id`

// dueAsKept takes back, for at most ? works of sources that drain, that they
// became due with an earlier one of their key.
const dueAsKept = `UPDATE posthouse_work SET due_at = (SELECT m.received_at FROM posthouse_message m WHERE m.seq = posthouse_work.seq)
	WHERE seq IN (SELECT w.seq FROM posthouse_source s CROSS JOIN posthouse_work w ON w.queue = s.id AND w.state = 0
		CROSS JOIN posthouse_message m ON m.seq = w.seq
		WHERE s.draining AND w.key_hash <> 0 AND w.retry_count = 0 AND w.replay = 0 AND w.due_at > m.received_at
		AND EXISTS (SELECT 1 FROM posthouse_work h WHERE h.queue = w.queue AND h.key_hash = w.key_hash AND h.key_hash <> 0
			AND h.state < 2 AND h.seq < w.seq AND h.due_at = w.due_at)
		LIMIT ?)`

// manyDue bounds how many works are made due again by one call.
const manyDue = 5000

// Agree lets the orderings that living instances want become what holds. That a
// claim and the beginning of a drain exclude each other needs nothing here:
// there is one writer.
func (s *Store) Agree(ctx context.Context, instance model.InstanceID) (sources []model.Source, err error) {
	err = s.write(ctx, "agree", func(t *tx) error {
		if _, err := t.exec(beginDrain, instance); err != nil {
			return err
		}
		n, err := t.exec(dueAsKept, manyDue)
		if err != nil {
			return err
		}
		if n == manyDue { // there is more
			return t.query(scanSource(&sources), selectSources+byName)
		}
		var begun []model.SourceID
		err = t.query(func(rows *sql.Rows) error {
			var id model.SourceID
			err := rows.Scan(&id)
			begun = append(begun, id)
			return err
		}, endDrain)
		if err != nil {
			return err
		}
		if len(begun) > 0 {
			queues := list(begun)
			if _, err := t.exec(`DELETE FROM posthouse_lease WHERE queue IN (SELECT value FROM json_each(?))`, queues); err != nil {
				return err
			}
			if err := makePartitions(t, queues); err != nil {
				return err
			}
		}
		return t.query(scanSource(&sources), selectSources+byName)
	})
	if err != nil {
		return nil, err
	}
	return sources, nil
}

// makePartitions gives queues (a JSON array) a lease for every partition that
// they have by now, and none for others. Those that were there stay as they are.
func makePartitions(t *tx, queues string) error {
	_, err := t.exec(`WITH RECURSIVE number (part) AS (SELECT 0 UNION ALL SELECT part + 1 FROM number WHERE part < ?1)
		INSERT INTO posthouse_lease (queue, part, holder, since)
		SELECT s.id, number.part, 0, 0 FROM posthouse_source s JOIN number ON number.part < s.partitions
		WHERE s.id IN (SELECT value FROM json_each(?2))
		ON CONFLICT (queue, part) DO NOTHING`, model.MaxPartitions-1, queues)
	if err != nil {
		return err
	}
	_, err = t.exec(`DELETE FROM posthouse_lease WHERE queue IN (SELECT value FROM json_each(?))
		AND part >= (SELECT s.partitions FROM posthouse_source s WHERE s.id = posthouse_lease.queue)`, queues)
	return err
}
