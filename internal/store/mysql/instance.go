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

// JoinInstance registers a living instance with what it wants, and forgets those
// that have been dead for a week and left nothing.
func (s *Store) JoinInstance(ctx context.Context, id model.InstanceID, name string, leaseFor model.Micros, wants []model.Want) error {
	return s.write(ctx, "join instance", func(c *call) error {
		if err := c.begin(); err != nil {
			return err
		}
		keys, err := c.keyIDs(wants)
		if err != nil {
			return err
		}
		var join script
		join.add(setNow)
		join.add(`INSERT INTO posthouse_instance (id, name, started_at, lease_until, dead, left_started) VALUES (?, ?, @now, @now + ?, 0, 0)`,
			id, columns.Text(name), leaseFor)
		if len(wants) > 0 {
			var args []any
			for i := range wants {
				args = append(args, id, wants[i].Queue, string(wants[i].Order), wants[i].Partitions, keys[i])
			}
			join.add(`INSERT INTO posthouse_want (instance, queue, ordering, partitions, key_id) VALUES `+repeat(`(?,?,?,?,?)`, len(wants)), args...)
		}
		join.add(`SELECT id FROM posthouse_instance WHERE dead = 1 AND lease_until < @now - 7 * 86400000000 AND id NOT IN (
			SELECT w.owner FROM posthouse_source s STRAIGHT_JOIN posthouse_work w FORCE INDEX (posthouse_work_due)
			ON w.queue = s.id AND w.state = 1) ORDER BY id`)
		var old []model.InstanceID
		if err := c.query(&join, scanID(&old)); err != nil {
			return err
		}
		var end script
		if len(old) > 0 {
			end.add(`DELETE FROM posthouse_instance WHERE id IN (` + list(old) + `)`)
			end.add(`DELETE FROM posthouse_want WHERE instance IN (` + list(old) + `)`)
		}
		end.add(`COMMIT`)
		_, err = c.exec(&end)
		return err
	})
}

func scanID[T any](all *[]T) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var id T
		err := into(rows, &id)
		*all = append(*all, id)
		return err
	}
}

// LeaveInstance declares an instance dead that has stopped. Its row is locked
// first: what its claims that are under way take is then seen.
func (s *Store) LeaveInstance(ctx context.Context, id model.InstanceID) error {
	return s.write(ctx, "leave instance", func(c *call) error {
		var living []model.InstanceID
		var lock script
		lock.add(`START TRANSACTION`)
		lock.add(`SELECT id FROM posthouse_instance WHERE id = ? AND dead = 0 FOR UPDATE`, id)
		if err := c.query(&lock, scanID(&living)); err != nil {
			return err
		}
		_, err := c.declareDead(living)
		return err
	})
}

// declareDead ends a transaction in which the rows of the living were locked.
func (c *call) declareDead(living []model.InstanceID) (int, error) {
	if len(living) == 0 {
		return 0, c.rollback()
	}
	var bury script
	bury.add(`UPDATE posthouse_instance i SET i.dead = 1, i.left_started = ` + leftStarted + ` WHERE i.id IN (` + list(living) + `)`)
	bury.add(`COMMIT`)
	_, err := c.exec(&bury)
	return len(living), err
}

// Beat renews the lease of a living instance, and buries those whose lease ran
// out where it may, but for those of which a claim is under way. Renewal and
// burial are committed each by itself.
func (s *Store) Beat(ctx context.Context, p model.HeartbeatParams) (beat model.Heartbeat, err error) {
	err = s.write(ctx, "heartbeat", func(c *call) error {
		beat = model.Heartbeat{}
		var expired []model.InstanceID
		var renew script
		renew.add(setNow)
		renew.add(`UPDATE posthouse_instance SET lease_until = @now + ? WHERE id = ? AND dead = 0`, p.LeaseFor, p.Instance)
		// Not how many rows changed: a lease renewed twice in a microsecond does not change.
		renew.add(`SELECT count(*) FROM posthouse_instance WHERE id = ? AND dead = 0`, p.Instance)
		renew.add(selectSources + byName)
		renew.add(`SELECT id FROM posthouse_instance WHERE dead = 0 AND lease_until < @now AND id <> ? ORDER BY id`, p.Instance)
		err := c.query(&renew,
			func(rows *sql.Rows) error { return into(rows, &beat.Alive) },
			scanSource(&beat.Sources),
			scanID(&expired))
		if err != nil || !beat.Alive || !p.Bury || len(expired) == 0 {
			return err
		}
		var dying []model.InstanceID
		var lock script
		lock.add(`START TRANSACTION`)
		lock.add(`SELECT id FROM posthouse_instance FORCE INDEX (PRIMARY)
			WHERE id IN (` + list(expired) + `) AND dead = 0 AND lease_until < ` + now + ` ORDER BY id FOR UPDATE SKIP LOCKED`)
		if err := c.query(&lock, scanID(&dying)); err != nil {
			return err
		}
		beat.Buried, err = c.declareDead(dying)
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
