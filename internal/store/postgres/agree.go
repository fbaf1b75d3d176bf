package postgres

import (
	"context"

	"github.com/posthouse/posthouse/internal/model"
)

// beginDrain lets the sources drain of which instance $1 wants something else
// than holds, and no other living one something else than it does. FOR UPDATE
// waits for the claims that are under way, and lets others wait, which look
// again then.
const (
	beginDrain = `UPDATE posthouse_source s
		SET draining = true, next_ordering = mine.ordering, next_partitions = mine.partitions, next_key_id = mine.key_id
		FROM posthouse_want mine
		WHERE s.id = ANY (ARRAY(SELECT s.id FROM posthouse_source s JOIN posthouse_want mine ON mine.queue = s.id
			WHERE ` + wantsChange + ` ORDER BY s.id FOR UPDATE OF s))
		AND mine.queue = s.id AND ` + wantsChange
	wantsChange = `mine.instance = $1 AND NOT s.draining
		AND (s.ordering, s.partitions, s.key_id) <> (mine.ordering, mine.partitions, mine.key_id)
		AND EXISTS (SELECT 1 FROM posthouse_instance i WHERE i.id = $1 AND NOT i.dead)
		AND NOT EXISTS (SELECT 1 FROM posthouse_want other JOIN posthouse_instance i ON i.id = other.instance AND NOT i.dead
			WHERE other.queue = s.id
			AND (other.ordering, other.partitions, other.key_id) <> (mine.ordering, mine.partitions, mine.key_id))`
)

// endDrain begins the next generation of the sources that have drained, with
// all partitions free. It is a statement after the one that began the drain was
// committed: it sees every claim that did not see the drain.
//
// Who waited for a row looks at it again, but not at the work: the generation
// says whether what was seen of that still counts.
const endDrain = `WITH drained AS MATERIALIZED (
		SELECT s.id, s.generation FROM posthouse_source s
		WHERE s.draining AND NOT EXISTS (SELECT 1 FROM posthouse_work w WHERE w.queue = s.id AND w.state = 1)
	), begun AS (
		UPDATE posthouse_source SET ordering = next_ordering, partitions = next_partitions, key_id = next_key_id,
			generation = generation + 1, draining = false, next_ordering = '', next_partitions = 0, next_key_id = 0
		WHERE draining AND id = ANY (ARRAY(
			SELECT s.id FROM posthouse_source s JOIN drained d ON d.id = s.id AND d.generation = s.generation
			ORDER BY s.id FOR UPDATE OF s))
		RETURNING id, partitions
	), gone AS (
		DELETE FROM posthouse_lease l USING begun b WHERE l.queue = b.id AND l.part >= b.partitions
	)
	INSERT INTO posthouse_lease (queue, part, holder, since)
	SELECT b.id, part, 0, 0 FROM begun b, generate_series(0, b.partitions - 1) part ORDER BY 1, 2
	ON CONFLICT (queue, part) DO UPDATE SET holder = 0, since = 0`

// dueAsKept takes back, for at most $1 works of sources that drain, that they
// became due with an earlier one of their key.
const dueAsKept = `UPDATE posthouse_work w SET due_at = m.received_at FROM posthouse_message m
	WHERE m.seq = w.seq AND w.state + 0 = 0 AND w.seq = ANY (ARRAY(
		SELECT w.seq FROM posthouse_source s
		CROSS JOIN LATERAL (SELECT * FROM posthouse_work WHERE queue = s.id AND state = 0 OFFSET 0) w
		CROSS JOIN LATERAL (SELECT received_at FROM posthouse_message WHERE seq = w.seq OFFSET 0) m
		WHERE s.draining AND w.key_hash <> 0 AND w.retry_count = 0 AND w.replay = 0 AND w.due_at > m.received_at
		AND EXISTS (SELECT 1 FROM posthouse_work h WHERE h.queue = w.queue AND h.key_hash = w.key_hash AND h.key_hash <> 0
			AND h.state < 2 AND h.seq < w.seq AND h.due_at = w.due_at)
		LIMIT $1))`

// manyDue bounds how many works are made due again by one call.
const manyDue = 5000

// Agree lets the orderings that living instances want become what holds. Each
// of its statements is committed by itself.
func (s *Store) Agree(ctx context.Context, instance model.InstanceID) (sources []model.Source, err error) {
	err = s.write(ctx, "agree", func(ctx context.Context, c conn) error {
		if _, err := c.exec(ctx, beginDrain, instance); err != nil {
			return err
		}
		n, err := c.exec(ctx, dueAsKept, manyDue)
		if err == nil && n < manyDue {
			_, err = c.exec(ctx, endDrain)
		}
		if err != nil {
			return err
		}
		sources, err = readSources(ctx, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	return sources, nil
}
