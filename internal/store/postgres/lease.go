package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
)

// takeLeases answers with the places ($4) of the partitions that instance $1
// holds by then, and who held them before. Who holds them is read first; the
// change is guarded by that. One that is being taken at this moment by another
// is passed over, one that is the caller's own is not written. FOR KEY SHARE
// keeps the caller from being declared dead meanwhile.
const takeLeases = `WITH me AS MATERIALIZED (
		SELECT i.id FROM posthouse_instance i WHERE i.id = $1 AND NOT i.dead FOR KEY SHARE
	), free AS MATERIALIZED (
		SELECT w.place, l.queue, l.part, l.holder, l.since
		FROM me, unnest($2::int[], $3::int[], $4::int[]) AS w (queue, part, place)
		JOIN posthouse_lease l ON l.queue = w.queue AND l.part = w.part
		WHERE NOT EXISTS (SELECT 1 FROM posthouse_instance h WHERE h.id = l.holder AND h.id <> $1 AND NOT h.dead)
	), taken AS (
		UPDATE posthouse_lease l SET holder = $1, since = ` + now + `
		WHERE l.ctid = ANY (ARRAY(SELECT l.ctid FROM free f JOIN posthouse_lease l
			ON l.queue = f.queue AND l.part = f.part AND l.holder = f.holder AND f.holder <> $1
			ORDER BY l.queue, l.part FOR UPDATE OF l SKIP LOCKED))
		RETURNING l.queue, l.part, l.since
	)
	SELECT f.place, f.holder, f.since FROM free f WHERE f.holder = $1
	UNION ALL SELECT f.place, f.holder, t.since FROM free f JOIN taken t USING (queue, part) WHERE f.holder <> $1`

// TakeLeases makes the instance the holder of those partitions that nobody
// living holds.
func (s *Store) TakeLeases(ctx context.Context, instance model.InstanceID, partitions []model.Partition) (leases []model.Lease, err error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "take leases", func(ctx context.Context, c conn) error {
		leases = make([]model.Lease, len(partitions))
		queues, parts := columnsOf(partitions)
		places := make([]int32, len(partitions))
		for i := range places {
			places[i] = int32(i)
		}
		return c.query(ctx, func(rows pgx.Rows) error {
			var place int
			var holder model.InstanceID
			var since model.Micros
			err := rows.Scan(&place, &holder, &since)
			leases[place] = model.Lease{Held: true, Since: since, TakenOver: holder != 0 && holder != instance}
			return err
		}, takeLeases, instance, queues, parts, places)
	})
	if err != nil {
		return nil, err
	}
	return leases, nil
}

// DropLeases lets go of partitions.
func (s *Store) DropLeases(ctx context.Context, instance model.InstanceID, held []model.Holding) (int, error) {
	if len(held) == 0 {
		return 0, nil
	}
	partitions, since := make([]model.Partition, len(held)), make([]int64, len(held))
	for i, h := range held {
		partitions[i], since[i] = h.Partition, int64(h.Since)
	}
	queues, parts := columnsOf(partitions)
	n, err := s.exec(ctx, "drop leases", `WITH held AS MATERIALIZED (
			SELECT l.queue, l.part, l.since FROM unnest($2::int[], $3::int[], $4::bigint[]) AS w (queue, part, since)
			JOIN posthouse_lease l ON l.queue = w.queue AND l.part = w.part AND l.holder = $1 AND w.since IN (0, l.since)
			ORDER BY l.queue, l.part FOR UPDATE OF l
		)
		UPDATE posthouse_lease l SET holder = 0 FROM held h WHERE l.queue = h.queue AND l.part = h.part AND l.holder = $1
		AND l.since = h.since`, instance, queues, parts, since)
	return int(n), err
}

func columnsOf(partitions []model.Partition) (queues, parts []int32) {
	queues, parts = make([]int32, len(partitions)), make([]int32, len(partitions))
	for i, p := range partitions {
		queues[i], parts[i] = int32(p.Queue), int32(p.Number)
	}
	return queues, parts
}

// Occupancy says who holds what, and counts who would.
func (s *Store) Occupancy(ctx context.Context) (o model.Occupancy, err error) {
	err = s.read(ctx, "list leases", func(ctx context.Context, c conn) error {
		o = model.Occupancy{Consumers: map[model.SourceID]int{}}
		err := c.query(ctx, func(rows pgx.Rows) error {
			var h model.Holding
			err := rows.Scan(&h.Queue, &h.Number, &h.Holder, &h.Since, &h.Alive)
			o.Holdings = append(o.Holdings, h)
			return err
		}, `SELECT l.queue, l.part, l.holder, l.since, i.id IS NOT NULL
			FROM posthouse_lease l LEFT JOIN posthouse_instance i ON i.id = l.holder AND NOT i.dead
			WHERE l.holder <> 0 ORDER BY l.queue, l.part`)
		if err != nil {
			return err
		}
		return c.query(ctx, func(rows pgx.Rows) error {
			var queue model.SourceID
			var n int
			err := rows.Scan(&queue, &n)
			o.Consumers[queue] = n
			return err
		}, `SELECT w.queue, count(*) FROM posthouse_want w JOIN posthouse_instance i ON i.id = w.instance AND NOT i.dead GROUP BY w.queue`)
	})
	if err != nil {
		return model.Occupancy{}, err
	}
	return o, nil
}
