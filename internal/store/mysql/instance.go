package mysql

import (
	"context"
	"database/sql"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// leftStarted counts the works that instance i has started and not finished.
const leftStarted = `(SELECT count(*) FROM posthouse_source s
	STRAIGHT_JOIN posthouse_work w FORCE INDEX (posthouse_work_due) ON w.queue = s.id AND w.state = 1
	WHERE w.owner = i.id AND w.started_at <> 0)`

// JoinInstance registers a living instance, and forgets those that have been
// dead for a week and left nothing.
func (s *Store) JoinInstance(ctx context.Context, id model.InstanceID, name string, leaseFor model.Micros) error {
	return s.write(ctx, "join instance", func(c *call) error {
		var old []model.InstanceID
		var join script
		join.add(setNow)
		join.add(`INSERT INTO posthouse_instance (id, name, started_at, lease_until, dead, left_started) VALUES (?, ?, @now, @now + ?, 0, 0)`,
			id, columns.Text(name), leaseFor)
		join.add(`SELECT id FROM posthouse_instance WHERE dead = 1 AND lease_until < @now - 7 * 86400000000 AND id NOT IN (
			SELECT w.owner FROM posthouse_source s STRAIGHT_JOIN posthouse_work w FORCE INDEX (posthouse_work_due)
			ON w.queue = s.id AND w.state = 1)`)
		err := c.query(&join, func(rows *sql.Rows) error {
			var id model.InstanceID
			err := into(rows, &id)
			old = append(old, id)
			return err
		})
		if err != nil || len(old) == 0 {
			return err
		}
		var forget script
		forget.add(`DELETE FROM posthouse_instance WHERE id IN (` + list(old) + `)`)
		_, err = c.exec(&forget)
		return err
	})
}

// LeaveInstance declares an instance dead that has stopped.
func (s *Store) LeaveInstance(ctx context.Context, id model.InstanceID) error {
	_, err := s.run(ctx, "leave instance", `UPDATE posthouse_instance i SET i.dead = 1, i.left_started = `+leftStarted+`
		WHERE i.id = ? AND i.dead = 0`, id)
	return err
}

// Beat renews the lease of a living instance, and buries those whose lease ran
// out where it may. Renewal and burial are committed each by itself.
func (s *Store) Beat(ctx context.Context, p model.HeartbeatParams) (beat model.Heartbeat, err error) {
	err = s.write(ctx, "heartbeat", func(c *call) error {
		beat = model.Heartbeat{}
		var expired []model.InstanceID
		var renew script
		renew.add(setNow)
		renew.add(`UPDATE posthouse_instance SET lease_until = @now + ? WHERE id = ? AND dead = 0`, p.LeaseFor, p.Instance)
		// Not how many rows changed: a lease renewed twice in a microsecond does not change.
		renew.add(`SELECT count(*) FROM posthouse_instance WHERE id = ? AND dead = 0`, p.Instance)
		renew.add(selectSources)
		renew.add(`SELECT id FROM posthouse_instance WHERE dead = 0 AND lease_until < @now AND id <> ? ORDER BY id`, p.Instance)
		err := c.query(&renew,
			func(rows *sql.Rows) error { return into(rows, &beat.Alive) },
			scanSource(&beat.Sources),
			func(rows *sql.Rows) error {
				var id model.InstanceID
				err := into(rows, &id)
				expired = append(expired, id)
				return err
			})
		if err != nil || !beat.Alive || !p.Bury || len(expired) == 0 {
			return err
		}
		var bury script
		bury.add(`UPDATE posthouse_instance i SET i.dead = 1, i.left_started = ` + leftStarted + `
			WHERE i.id IN (` + list(expired) + `) AND i.dead = 0 AND i.lease_until < ` + now)
		n, err := c.exec(&bury)
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
	err = s.read(ctx, "list instances", func(c *call) error {
		instances = nil
		var one script
		one.add(`SELECT id, name, started_at, lease_until, dead FROM posthouse_instance ORDER BY dead, started_at DESC, id`)
		return c.query(&one, func(rows *sql.Rows) error {
			var i model.Instance
			err := into(rows, &i.ID, &i.Name, &i.StartedAt, &i.LeaseUntil, &i.Dead)
			instances = append(instances, i)
			return err
		})
	})
	return instances, err
}

// TakeLease makes the instance the holder of the queue if nobody living holds
// it. Who holds it is read first; the change is guarded by that, and the dead
// do not come back.
func (s *Store) TakeLease(ctx context.Context, queue model.SourceID, instance model.InstanceID) (lease model.Lease, err error) {
	err = s.write(ctx, "take lease", func(c *call) error {
		lease = model.Lease{}
		var holder model.InstanceID
		free := false
		var look script
		// One row where the instance lives and the queue is there.
		look.add(`SELECT l.holder, other.id IS NULL FROM posthouse_instance i
			STRAIGHT_JOIN posthouse_lease l ON l.queue = ?
			LEFT JOIN posthouse_instance other ON other.id = l.holder AND other.id <> i.id AND other.dead = 0
			WHERE i.id = ? AND i.dead = 0`, queue, instance)
		err := c.query(&look, func(rows *sql.Rows) error { return into(rows, &holder, &free) })
		if err != nil || !free {
			return err
		}
		var take script
		take.add(`UPDATE posthouse_lease SET holder = ?, since = `+now+` WHERE queue = ? AND holder = ?
			AND EXISTS (SELECT 1 FROM posthouse_instance WHERE id = ? AND dead = 0)`, instance, queue, holder, instance)
		n, err := c.exec(&take)
		if err == nil && n == 1 {
			lease = model.Lease{Held: true, TakenOver: holder != 0 && holder != instance}
		}
		return err
	})
	if err != nil {
		return model.Lease{}, err
	}
	return lease, nil
}

// DropLease lets go of a queue.
func (s *Store) DropLease(ctx context.Context, queue model.SourceID, instance model.InstanceID) (bool, error) {
	n, err := s.run(ctx, "drop lease", `UPDATE posthouse_lease SET holder = 0 WHERE queue = ? AND holder = ?`, queue, instance)
	return n == 1, err
}
