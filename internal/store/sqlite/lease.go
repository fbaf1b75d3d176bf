package sqlite

import (
	"context"
	"database/sql"

	"github.com/posthouse/posthouse/internal/model"
)

// TakeLeases makes the instance the holder of those partitions that nobody
// living holds.
func (s *Store) TakeLeases(ctx context.Context, instance model.InstanceID, partitions []model.Partition) (leases []model.Lease, err error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "take leases", func(t *tx) error {
		leases = make([]model.Lease, len(partitions))
		var taken []model.Partition // that were not the caller's before
		err := t.query(func(rows *sql.Rows) error {
			var place int
			var holder model.InstanceID
			var since model.Micros
			if err := rows.Scan(&place, &holder, &since); err != nil {
				return err
			}
			if holder != instance {
				taken = append(taken, partitions[place])
				since = t.now
			}
			leases[place] = model.Lease{Held: true, Since: since, TakenOver: holder != 0 && holder != instance}
			return nil
		}, `SELECT wanted.key, l.holder, l.since FROM json_each(?1) wanted
			CROSS JOIN posthouse_lease l ON l.queue = wanted.value ->> 0 AND l.part = wanted.value ->> 1
			WHERE EXISTS (SELECT 1 FROM posthouse_instance i WHERE i.id = ?2 AND NOT i.dead)
			AND NOT EXISTS (SELECT 1 FROM posthouse_instance other WHERE other.id = l.holder AND other.id <> ?2 AND NOT other.dead)`,
			pairs(partitions), instance)
		if err != nil || len(taken) == 0 {
			return err
		}
		_, err = t.exec(`UPDATE posthouse_lease SET holder = ?, since = ?
			WHERE (queue, part) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))`, instance, t.now, pairs(taken))
		return err
	})
	if err != nil {
		return nil, err
	}
	return leases, nil
}

// DropLeases lets go of partitions.
func (s *Store) DropLeases(ctx context.Context, instance model.InstanceID, held []model.Holding) (dropped int, err error) {
	if len(held) == 0 {
		return 0, nil
	}
	err = s.write(ctx, "drop leases", func(t *tx) error {
		var given tuples
		for _, h := range held {
			given.add(int64(h.Queue), int64(h.Number), int64(h.Since))
		}
		n, err := t.exec(`UPDATE posthouse_lease SET holder = 0 WHERE holder = ?1 AND EXISTS (SELECT 1 FROM json_each(?2)
			WHERE value ->> 0 = queue AND value ->> 1 = part AND value ->> 2 IN (0, since))
			AND (queue, part) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?2))`, instance, given.String())
		dropped = int(n)
		return err
	})
	if err != nil {
		return 0, err
	}
	return dropped, nil
}

// pairs are partitions as queue and number.
func pairs(partitions []model.Partition) string {
	var pairs tuples
	for _, p := range partitions {
		pairs.add(int64(p.Queue), int64(p.Number))
	}
	return pairs.String()
}

// Occupancy says who holds what.
func (s *Store) Occupancy(ctx context.Context) (o model.Occupancy, err error) {
	err = s.read(ctx, "list leases", func(ctx context.Context, snapshot *sql.Tx) error {
		o = model.Occupancy{Consumers: map[model.SourceID]int{}}
		rows, err := snapshot.QueryContext(ctx, `SELECT l.queue, l.part, l.holder, l.since, i.id IS NOT NULL
			FROM posthouse_lease l LEFT JOIN posthouse_instance i ON i.id = l.holder AND NOT i.dead
			WHERE l.holder <> 0 ORDER BY l.queue, l.part`)
		err = each(rows, err, func(rows *sql.Rows) error {
			var h model.Holding
			if err := rows.Scan(&h.Queue, &h.Number, &h.Holder, &h.Since, &h.Alive); err != nil {
				return err
			}
			o.Holdings = append(o.Holdings, h)
			return nil
		})
		if err != nil {
			return err
		}
		rows, err = snapshot.QueryContext(ctx, `SELECT w.queue, count(*) FROM posthouse_want w
			JOIN posthouse_instance i ON i.id = w.instance AND NOT i.dead GROUP BY w.queue`)
		return each(rows, err, func(rows *sql.Rows) error {
			var queue model.SourceID
			var n int
			err := rows.Scan(&queue, &n)
			o.Consumers[queue] = n
			return err
		})
	})
	if err != nil {
		return model.Occupancy{}, err
	}
	return o, nil
}
