package mysql

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/posthouse/posthouse/internal/model"
)

// wantedOtherwise are the sources s of which the living instance (?) wants
// something else than holds, and no other living one something else than it
// does.
const wantedOtherwise = `SELECT s.id FROM posthouse_instance i
	STRAIGHT_JOIN posthouse_want mine ON mine.instance = i.id
	STRAIGHT_JOIN posthouse_source s FORCE INDEX (PRIMARY) ON s.id = mine.queue
	WHERE i.id = ? AND i.dead = 0 AND s.draining = 0
	AND NOT (s.ordering = mine.ordering AND s.partitions = mine.partitions AND s.key_id = mine.key_id)
	AND NOT EXISTS (SELECT 1 FROM posthouse_instance living STRAIGHT_JOIN posthouse_want other FORCE INDEX (PRIMARY)
		ON other.instance = living.id AND other.queue = mine.queue
		WHERE living.dead = 0
		AND NOT (other.ordering = mine.ordering AND other.partitions = mine.partitions AND other.key_id = mine.key_id))
	ORDER BY s.id`

// Agree lets the orderings that living instances want become what holds. Where
// nothing is to change, which is nearly always, it only reads. The rows of the
// sources are locked in the order of their ids: a claim holds its source's
// shared, so the drain waits for claims that are under way, and a later one
// finds it.
func (s *Store) Agree(ctx context.Context, instance model.InstanceID) (sources []model.Source, err error) {
	err = s.write(ctx, "agree", func(c *call) error {
		var changing []model.SourceID
		scan := func(rows *sql.Rows) error {
			var id model.SourceID
			err := into(rows, &id)
			changing = append(changing, id)
			return err
		}
		sources = nil
		var look script
		look.add(wantedOtherwise, instance)
		look.add(selectSources + byName)
		if err := c.query(&look, scan, scanSource(&sources)); err != nil {
			return err
		}
		if len(changing) > 0 {
			if err := c.drain(instance, changing); err != nil {
				return err
			}
		}
		for i := range sources {
			if sources[i].Agreed.Draining {
				changing = append(changing, sources[i].ID)
			}
		}
		if len(changing) == 0 {
			return nil
		}
		if n, err := c.dueAsKept(changing); err != nil || n == manyDue {
			return err
		}
		return c.nextGenerations(changing, &sources)
	})
	if err != nil {
		return nil, err
	}
	return sources, nil
}

func (c *call) drain(instance model.InstanceID, queues []model.SourceID) error {
	var begin script
	begin.add(`UPDATE posthouse_source s SET s.draining = 1,
		s.next_ordering = (SELECT w.ordering FROM posthouse_want w WHERE w.instance = ? AND w.queue = s.id),
		s.next_partitions = (SELECT w.partitions FROM posthouse_want w WHERE w.instance = ? AND w.queue = s.id),
		s.next_key_id = (SELECT w.key_id FROM posthouse_want w WHERE w.instance = ? AND w.queue = s.id)
		WHERE s.id IN (`+list(queues)+`) AND s.draining = 0
		AND NOT EXISTS (SELECT 1 FROM posthouse_want w WHERE w.instance = ? AND w.queue = s.id
			AND w.ordering = s.ordering AND w.partitions = s.partitions AND w.key_id = s.key_id)
		AND EXISTS (SELECT 1 FROM posthouse_instance i STRAIGHT_JOIN posthouse_want w ON w.instance = i.id AND w.queue = s.id
			WHERE i.id = ? AND i.dead = 0)`, instance, instance, instance, instance, instance)
	_, err := c.exec(&begin)
	return err
}

// manyDue bounds how many works are made due again by one call.
const manyDue = 5000

// dueAsKept takes back, for some works of sources that drain, that they became
// due with an earlier one of their key.
func (c *call) dueAsKept(queues []model.SourceID) (int, error) {
	var works []model.Seq
	var look script
	look.add(`SELECT w.seq FROM posthouse_source s FORCE INDEX (PRIMARY)
		STRAIGHT_JOIN posthouse_work w FORCE INDEX (posthouse_work_due) ON w.queue = s.id AND w.state = 0
		STRAIGHT_JOIN posthouse_message m FORCE INDEX (PRIMARY) ON m.seq = w.seq
		WHERE s.id IN (`+list(queues)+`) AND s.draining = 1
		AND w.key_hash <> 0 AND w.retry_count = 0 AND w.replay = 0 AND w.due_at > m.received_at
		AND EXISTS (SELECT 1 FROM posthouse_work h FORCE INDEX (posthouse_work_key)
			WHERE h.queue = w.queue AND h.key_hash = w.key_hash AND h.seq < w.seq AND h.state < 2 AND h.due_at = w.due_at)
		LIMIT ?`, manyDue)
	err := c.query(&look, func(rows *sql.Rows) error {
		var seq model.Seq
		err := into(rows, &seq)
		works = append(works, seq)
		return err
	})
	if err != nil || len(works) == 0 {
		return 0, err
	}
	slices.Sort(works)
	var change script
	change.add(`UPDATE posthouse_work w FORCE INDEX (PRIMARY) STRAIGHT_JOIN posthouse_message m FORCE INDEX (PRIMARY) ON m.seq = w.seq
		SET w.due_at = m.received_at WHERE w.seq IN (` + list(works) + `) AND w.state = 0`)
	_, err = c.exec(&change)
	return len(works), err
}

// nextGenerations begins the next generation of those sources that drain and
// have drained, and reads all sources anew.
func (c *call) nextGenerations(queues []model.SourceID, sources *[]model.Source) error {
	partitions := map[model.SourceID]int{}
	var look script
	look.add(`START TRANSACTION`)
	look.add(`SELECT s.id, s.next_partitions FROM posthouse_source s FORCE INDEX (PRIMARY)
		WHERE s.id IN (` + list(queues) + `) AND s.draining = 1 ORDER BY s.id FOR UPDATE`)
	// Nothing begins to be processed by now: what is seen is all there is.
	look.add(`SELECT s.id FROM posthouse_source s FORCE INDEX (PRIMARY) WHERE s.id IN (` + list(queues) + `)
		AND EXISTS (SELECT 1 FROM posthouse_work w FORCE INDEX (posthouse_work_due) WHERE w.queue = s.id AND w.state = 1)`)
	err := c.query(&look, func(rows *sql.Rows) error {
		var id model.SourceID
		var next int
		err := into(rows, &id, &next)
		partitions[id] = next
		return err
	}, func(rows *sql.Rows) error {
		var id model.SourceID
		err := into(rows, &id)
		delete(partitions, id)
		return err
	})
	if err != nil {
		return err
	}
	var todo script
	if len(partitions) > 0 {
		drained := list(slices.Sorted(maps.Keys(partitions)))
		// Assignments are made from left to right.
		todo.add(`UPDATE posthouse_source SET ordering = next_ordering, partitions = next_partitions, key_id = next_key_id,
			generation = generation + 1, draining = 0, next_ordering = '', next_partitions = 0, next_key_id = 0
			WHERE id IN (` + drained + `) AND draining = 1`)
		todo.add(`DELETE FROM posthouse_lease WHERE queue IN (` + drained + `)`)
		addLeases(&todo, partitions)
	}
	todo.add(`COMMIT`)
	todo.add(selectSources + byName)
	*sources = nil
	return c.query(&todo, scanSource(sources))
}

// addLeases gives queues a lease for every partition that they have by now, and
// none for others. Those that were there stay as they are.
func addLeases(todo *script, partitions map[model.SourceID]int) {
	queues := slices.Sorted(maps.Keys(partitions))
	var args []any
	for _, queue := range queues {
		for part := range partitions[queue] {
			args = append(args, queue, part)
		}
	}
	if len(args) > 0 {
		todo.add(`INSERT INTO posthouse_lease (holder, since, queue, part) VALUES `+repeat(`(0,0,?,?)`, len(args)/2)+
			` ON DUPLICATE KEY UPDATE queue = posthouse_lease.queue`, args...)
	}
	todo.add(`DELETE l FROM posthouse_lease l STRAIGHT_JOIN posthouse_source s ON s.id = l.queue
		WHERE l.queue IN (` + list(queues) + `) AND l.part >= s.partitions`)
}
