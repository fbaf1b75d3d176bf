package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// leftStarted counts the works that instance i has started and not finished.
const leftStarted = `(SELECT count(*) FROM ` + processing + ` WHERE w.owner = i.id AND w.started_at <> 0)`

// JoinInstance registers a living instance with what it wants, and forgets
// those that have been dead for a week and left nothing.
func (s *Store) JoinInstance(ctx context.Context, id model.InstanceID, name string, leaseFor model.Micros, wants []model.Want) error {
	wants = slices.Clone(wants)
	slices.SortFunc(wants, func(a, b model.Want) int { return cmp.Compare(a.Queue, b.Queue) })
	return s.write(ctx, "join instance", func(ctx context.Context, c conn) error {
		return transaction(ctx, c, pgx.TxOptions{}, func(c conn) error {
			batch := &pgx.Batch{}
			join(batch, id, name, leaseFor, wants)
			return c.batch(ctx, batch)
		})
	})
}

func join(batch *pgx.Batch, id model.InstanceID, name string, leaseFor model.Micros, wants []model.Want) {
	batch.Queue(`WITH forgotten AS (
			DELETE FROM posthouse_instance WHERE dead AND lease_until < ` + now + ` - 7 * 86400000000
			AND id NOT IN (SELECT w.owner FROM ` + processing + `)
			RETURNING id
		)
		DELETE FROM posthouse_want WHERE instance IN (SELECT id FROM forgotten)`)
	for _, w := range wants {
		if w.HasKeys() {
			batch.Queue(`SELECT FROM posthouse_source WHERE id = $1 FOR NO KEY UPDATE`, w.Queue)
			batch.Queue(makeKey+`WHERE s.id = $3`, columns.Text(w.Key), w.Block, w.Queue)
		}
		batch.Queue(`INSERT INTO posthouse_want (instance, queue, ordering, partitions, key_id)
			SELECT $1, s.id, $2, $3, `+keyID+` FROM posthouse_source s WHERE s.id = $7`,
			id, string(w.Order), w.Partitions, w.HasKeys(), columns.Text(w.Key), w.Block, w.Queue)
	}
	batch.Queue(`INSERT INTO posthouse_instance (id, name, started_at, lease_until, dead, left_started)
		SELECT $1, $2, t, t + $3, false, 0 FROM (SELECT `+now+` AS t) clock`, id, columns.Text(name), leaseFor)
}

// LeaveInstance declares an instance dead that has stopped.
func (s *Store) LeaveInstance(ctx context.Context, id model.InstanceID) error {
	return s.write(ctx, "leave instance", func(ctx context.Context, c conn) error {
		_, err := bury(ctx, c, `SELECT id FROM posthouse_instance WHERE id = $1 AND NOT dead FOR UPDATE`, id)
		return err
	})
}

// bury declares instances dead, which the statement that finds them locks. FOR
// UPDATE excludes their claims; what they left is counted when it is known that
// none is under way.
func bury(ctx context.Context, c conn, find string, id model.InstanceID) (n int64, err error) {
	err = transaction(ctx, c, pgx.TxOptions{}, func(c conn) error {
		var dead []int64
		err := c.query(ctx, func(rows pgx.Rows) error {
			var id int64
			err := rows.Scan(&id)
			dead = append(dead, id)
			return err
		}, find, id)
		if err != nil || len(dead) == 0 {
			return err
		}
		n, err = c.exec(ctx, `UPDATE posthouse_instance i SET dead = true, left_started = `+leftStarted+` WHERE id = ANY ($1::bigint[])`, dead)
		return err
	})
	return n, err
}

// Beat renews the lease of a living instance, and buries those whose lease ran
// out where it may. The three statements are committed each by itself: the
// renewal must not wait for the rest.
func (s *Store) Beat(ctx context.Context, p model.HeartbeatParams) (beat model.Heartbeat, err error) {
	err = s.write(ctx, "heartbeat", func(ctx context.Context, c conn) error {
		beat = model.Heartbeat{}
		n, err := c.exec(ctx, `UPDATE posthouse_instance SET lease_until = `+now+` + $2 WHERE id = $1 AND NOT dead`, p.Instance, p.LeaseFor)
		if err != nil {
			return err
		}
		beat.Alive = n == 1
		if beat.Sources, err = readSources(ctx, c); err != nil || !beat.Alive || !p.Bury {
			return err
		}
		// One that is renewed, or claims, at this moment is passed over.
		n, err = bury(ctx, c, `SELECT id FROM posthouse_instance WHERE NOT dead AND lease_until < `+now+` AND id <> $1
			ORDER BY id FOR UPDATE SKIP LOCKED`, p.Instance)
		beat.Buried = int(n)
		return err
	})
	if err != nil {
		return model.Heartbeat{}, err
	}
	return beat, nil
}

// Instances lists instances, living first.
func (s *Store) Instances(ctx context.Context) (instances []model.Instance, err error) {
	err = s.read(ctx, "list instances", func(ctx context.Context, c conn) error {
		instances = nil
		return c.query(ctx, func(rows pgx.Rows) error {
			var i model.Instance
			if err := rows.Scan(&i.ID, &i.Name, &i.StartedAt, &i.LeaseUntil, &i.Dead); err != nil {
				return err
			}
			instances = append(instances, i)
			return nil
		}, `SELECT id, name, started_at, lease_until, dead FROM posthouse_instance ORDER BY dead, started_at DESC, id`)
	})
	return instances, err
}
