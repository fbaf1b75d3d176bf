package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// leftStarted counts the works that instance i has started and not finished.
const leftStarted = `(SELECT count(*) FROM ` + processing + ` WHERE w.owner = i.id AND w.started_at <> 0)`

// JoinInstance registers a living instance, and forgets those that have been
// dead for a week and left nothing.
func (s *Store) JoinInstance(ctx context.Context, id model.InstanceID, name string, leaseFor model.Micros) error {
	const op = "join instance"
	_, err := s.exec(ctx, op, `INSERT INTO posthouse_instance (id, name, started_at, lease_until, dead, left_started)
		SELECT $1, $2, t, t + $3, false, 0 FROM (SELECT `+now+` AS t) clock`, id, columns.Text(name), leaseFor)
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, op, `DELETE FROM posthouse_instance WHERE dead AND lease_until < `+now+` - 7 * 86400000000
		AND id NOT IN (SELECT w.owner FROM `+processing+`)`)
	return err
}

// LeaveInstance declares an instance dead that has stopped.
func (s *Store) LeaveInstance(ctx context.Context, id model.InstanceID) error {
	_, err := s.exec(ctx, "leave instance", `UPDATE posthouse_instance i SET dead = true, left_started = `+leftStarted+`
		WHERE id = $1 AND NOT dead`, id)
	return err
}

// Beat renews the lease of a living instance, and buries those whose lease ran
// out where it may. The three statements are committed each by itself: the
// renewal must not wait for the rest.
func (s *Store) Beat(ctx context.Context, p model.HeartbeatParams) (beat model.Heartbeat, err error) {
	err = s.write(ctx, "heartbeat", func(ctx context.Context, c *pgxpool.Conn) error {
		beat = model.Heartbeat{}
		tag, err := c.Exec(ctx, `UPDATE posthouse_instance SET lease_until = `+now+` + $2 WHERE id = $1 AND NOT dead`, p.Instance, p.LeaseFor)
		if err != nil {
			return err
		}
		beat.Alive = tag.RowsAffected() == 1
		if beat.Sources, err = readSources(ctx, c); err != nil || !beat.Alive || !p.Bury {
			return err
		}
		// One that is renewed at this moment is passed over.
		tag, err = c.Exec(ctx, `UPDATE posthouse_instance i SET dead = true, left_started = `+leftStarted+`
			WHERE id = ANY (ARRAY(SELECT id FROM posthouse_instance WHERE NOT dead AND lease_until < `+now+` AND id <> $1
				ORDER BY id FOR UPDATE SKIP LOCKED))
			AND NOT dead`, p.Instance)
		beat.Buried = int(tag.RowsAffected())
		return err
	})
	if err != nil {
		return model.Heartbeat{}, err
	}
	return beat, nil
}

// Instances lists instances, living first.
func (s *Store) Instances(ctx context.Context) (instances []model.Instance, err error) {
	err = s.read(ctx, "list instances", func(ctx context.Context, c *pgxpool.Conn) error {
		instances = nil
		return query(ctx, c, func(rows pgx.Rows) error {
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

// TakeLease makes the instance the holder of the queue if nobody living holds
// it. Who holds it is read first; the change is guarded by that, and the dead
// do not come back.
func (s *Store) TakeLease(ctx context.Context, queue model.SourceID, instance model.InstanceID) (lease model.Lease, err error) {
	err = s.write(ctx, "take lease", func(ctx context.Context, c *pgxpool.Conn) error {
		lease = model.Lease{}
		var holder model.InstanceID
		err := c.QueryRow(ctx, `WITH was AS MATERIALIZED (
				SELECT l.holder FROM posthouse_lease l WHERE l.queue = $1 AND NOT EXISTS (
					SELECT 1 FROM posthouse_instance h WHERE h.id = l.holder AND h.id <> $2 AND NOT h.dead)
			)
			UPDATE posthouse_lease l SET holder = $2, since = `+now+` FROM was
			WHERE l.queue = $1 AND l.holder = was.holder
			AND EXISTS (SELECT 1 FROM posthouse_instance i WHERE i.id = $2 AND NOT i.dead)
			RETURNING was.holder`, queue, instance).Scan(&holder)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		lease = model.Lease{Held: true, TakenOver: holder != 0 && holder != instance}
		return nil
	})
	if err != nil {
		return model.Lease{}, err
	}
	return lease, nil
}

// DropLease lets go of a queue.
func (s *Store) DropLease(ctx context.Context, queue model.SourceID, instance model.InstanceID) (bool, error) {
	n, err := s.exec(ctx, "drop lease", `UPDATE posthouse_lease SET holder = 0 WHERE queue = $1 AND holder = $2`, queue, instance)
	return n == 1, err
}
