package sqlite

import (
	"context"
	"database/sql"

	"github.com/posthouse/posthouse/internal/model"
)

// leftStarted counts the works that the instance of the outer statement has
// started and not finished.
const leftStarted = `(SELECT count(*) FROM posthouse_source s CROSS JOIN posthouse_work w ON w.queue = s.id AND w.state = 1
	WHERE w.owner = posthouse_instance.id AND w.started_at <> 0)`

// forgetAfter is how long a dead instance is remembered, in microseconds.
const forgetAfter = 7 * 24 * 3600 * 1e6

// JoinInstance registers a living instance with what it wants, and forgets
// those that have been dead for a week and left nothing. A consumer is alone with the file, so every
// other instance is a former one, and is declared dead.
func (s *Store) JoinInstance(ctx context.Context, id model.InstanceID, name string, leaseFor model.Micros, wants []model.Want) error {
	return s.write(ctx, "join instance", func(t *tx) error {
		if s.cfg.Consumer {
			if _, err := t.exec(`UPDATE posthouse_instance SET dead = 1, left_started = ` + leftStarted + ` WHERE NOT dead`); err != nil {
				return err
			}
		}
		_, err := t.exec(`INSERT INTO posthouse_instance (id, name, started_at, lease_until, dead, left_started) VALUES (?, ?, ?, ?, 0, 0)`,
			id, name, t.now, t.now+leaseFor)
		if err != nil {
			return err
		}
		for _, want := range wants {
			key, err := keyID(t, want.Queue, want.Ordering)
			if err != nil {
				return err
			}
			_, err = t.exec(`INSERT INTO posthouse_want (instance, queue, ordering, partitions, key_id) VALUES (?, ?, ?, ?, ?)`,
				id, want.Queue, string(want.Order), want.Partitions, key)
			if err != nil {
				return err
			}
		}
		forgotten, err := t.exec(`DELETE FROM posthouse_instance WHERE dead AND lease_until < ?
			AND id NOT IN (SELECT w.owner FROM posthouse_source s JOIN posthouse_work w ON w.queue = s.id AND w.state = 1)`, t.now-forgetAfter)
		if err == nil && forgotten > 0 {
			_, err = t.exec(`DELETE FROM posthouse_want WHERE instance NOT IN (SELECT id FROM posthouse_instance)`)
		}
		return err
	})
}

// LeaveInstance declares an instance dead that has stopped.
func (s *Store) LeaveInstance(ctx context.Context, id model.InstanceID) error {
	return s.write(ctx, "leave instance", func(t *tx) error {
		_, err := t.exec(`UPDATE posthouse_instance SET dead = 1, left_started = `+leftStarted+` WHERE id = ? AND NOT dead`, id)
		return err
	})
}

// Beat renews the lease of a living instance, and buries those whose lease ran
// out where it may.
func (s *Store) Beat(ctx context.Context, p model.HeartbeatParams) (beat model.Heartbeat, err error) {
	err = s.write(ctx, "heartbeat", func(t *tx) error {
		n, err := t.exec(`UPDATE posthouse_instance SET lease_until = ? WHERE id = ? AND NOT dead`, t.now+p.LeaseFor, p.Instance)
		if err != nil {
			return err
		}
		beat = model.Heartbeat{Alive: n == 1}
		if p.Bury && beat.Alive {
			n, err := t.exec(`UPDATE posthouse_instance SET dead = 1, left_started = `+leftStarted+` WHERE NOT dead AND lease_until < ?`, t.now)
			if err != nil {
				return err
			}
			beat.Buried = int(n)
		}
		return t.query(scanSource(&beat.Sources), selectSources+byName)
	})
	if err != nil {
		return model.Heartbeat{}, err
	}
	return beat, nil
}

// Instances lists instances, living first.
func (s *Store) Instances(ctx context.Context) (instances []model.Instance, err error) {
	err = s.read(ctx, "list instances", func(ctx context.Context, snapshot *sql.Tx) error {
		instances = nil
		rows, err := snapshot.QueryContext(ctx, `SELECT id, name, started_at, lease_until, dead FROM posthouse_instance
			ORDER BY dead, started_at DESC, id`)
		return each(rows, err, func(rows *sql.Rows) error {
			var i model.Instance
			if err := rows.Scan(&i.ID, &i.Name, &i.StartedAt, &i.LeaseUntil, &i.Dead); err != nil {
				return err
			}
			instances = append(instances, i)
			return nil
		})
	})
	return instances, err
}
