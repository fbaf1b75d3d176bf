package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/posthouse/posthouse/internal/model"
)

// TakeLeases makes the instance the holder of those partitions that nobody
// living holds. Who holds them is read first; each change is guarded by that,
// and the dead do not come back.
func (s *Store) TakeLeases(ctx context.Context, instance model.InstanceID, partitions []model.Partition) (leases []model.Lease, err error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "take leases", func(c *call) error {
		leases = make([]model.Lease, len(partitions))
		free := map[model.Partition]model.InstanceID{} // and who held it
		held := map[model.Partition]model.Micros{}     // since when
		wanted := where(partitions)
		var look script
		look.add(`SELECT l.queue, l.part, l.holder, l.since FROM posthouse_instance i
			STRAIGHT_JOIN posthouse_lease l FORCE INDEX (PRIMARY)
			LEFT JOIN posthouse_instance other ON other.id = l.holder AND other.id <> i.id AND other.dead = 0
			WHERE i.id = ? AND i.dead = 0 AND other.id IS NULL AND (`+wanted+`)`, instance)
		err := c.query(&look, func(rows *sql.Rows) error {
			var p model.Partition
			var holder model.InstanceID
			var since model.Micros
			err := into(rows, &p.Queue, &p.Number, &holder, &since)
			free[p] = holder
			if holder == instance {
				held[p] = since
			}
			return err
		})
		if err != nil || len(free) == 0 {
			return err
		}
		var take script
		if take.free(instance, free) {
			clear(held)
			take.add(`SELECT l.queue, l.part, l.since FROM posthouse_lease l FORCE INDEX (PRIMARY) WHERE (`+wanted+`) AND l.holder = ?`, instance)
			take.add(`COMMIT`)
			err = c.query(&take, func(rows *sql.Rows) error {
				var p model.Partition
				var since model.Micros
				err := into(rows, &p.Queue, &p.Number, &since)
				held[p] = since
				return err
			})
		}
		for i, p := range partitions {
			former := free[p]
			if since, ok := held[p]; ok {
				leases[i] = model.Lease{Held: true, Since: since, TakenOver: former != 0 && former != instance}
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return leases, nil
}

// free adds a transaction's beginning that takes what is free, in the order of
// the rows, and says whether there is any that is not held already.
func (s *script) free(instance model.InstanceID, free map[model.Partition]model.InstanceID) bool {
	var guards []string
	var taken []model.Partition
	for p, former := range free {
		if former != instance {
			taken = append(taken, p)
		}
	}
	if len(taken) == 0 {
		return false
	}
	for _, p := range byPartition(taken) {
		guards = append(guards, fmt.Sprintf(`l.queue = %d AND l.part = %d AND l.holder = %d`, p.Queue, p.Number, free[p]))
	}
	s.add(`START TRANSACTION`)
	s.add(`UPDATE posthouse_lease l FORCE INDEX (PRIMARY) SET l.holder = ?, l.since = `+now+` WHERE (`+strings.Join(guards, " OR ")+`)
		AND EXISTS (SELECT 1 FROM posthouse_instance WHERE id = ? AND dead = 0)`, instance, instance)
	return true
}

// DropLeases lets go of partitions.
func (s *Store) DropLeases(ctx context.Context, instance model.InstanceID, held []model.Holding) (int, error) {
	if len(held) == 0 {
		return 0, nil
	}
	held = slices.Clone(held)
	slices.SortFunc(held, func(a, b model.Holding) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Number, b.Number))
	})
	var which []string
	for _, h := range held {
		which = append(which, fmt.Sprintf(`l.queue = %d AND l.part = %d AND %d IN (0, l.since)`, h.Queue, h.Number, h.Since))
	}
	n, err := s.run(ctx, "drop leases", `UPDATE posthouse_lease l FORCE INDEX (PRIMARY) SET l.holder = 0
		WHERE (`+strings.Join(which, ` OR `)+`) AND l.holder = ?`, instance)
	return int(n), err
}

// Occupancy says who holds what.
func (s *Store) Occupancy(ctx context.Context) (o model.Occupancy, err error) {
	err = s.read(ctx, "list leases", func(c *call) error {
		o = model.Occupancy{Consumers: map[model.SourceID]int{}}
		var look script
		look.add(`SELECT l.queue, l.part, l.holder, l.since, i.id IS NOT NULL
			FROM posthouse_lease l LEFT JOIN posthouse_instance i ON i.id = l.holder AND i.dead = 0
			WHERE l.holder <> 0 ORDER BY l.queue, l.part`)
		look.add(`SELECT w.queue, count(*) FROM posthouse_want w JOIN posthouse_instance i ON i.id = w.instance AND i.dead = 0 GROUP BY w.queue`)
		return c.query(&look, func(rows *sql.Rows) error {
			var h model.Holding
			err := into(rows, &h.Queue, &h.Number, &h.Holder, &h.Since, &h.Alive)
			o.Holdings = append(o.Holdings, h)
			return err
		}, func(rows *sql.Rows) error {
			var queue model.SourceID
			var n int
			err := into(rows, &queue, &n)
			o.Consumers[queue] = n
			return err
		})
	})
	if err != nil {
		return model.Occupancy{}, err
	}
	return o, nil
}

// where is the condition that a lease l is that of one of the partitions.
func where(partitions []model.Partition) string {
	var all []string
	var parts []int
	ordered := byPartition(partitions)
	for i, p := range ordered {
		parts = append(parts, p.Number)
		if i == len(ordered)-1 || ordered[i+1].Queue != p.Queue {
			all = append(all, fmt.Sprintf(`l.queue = %d AND l.part IN (%s)`, p.Queue, list(parts)))
			parts = parts[:0]
		}
	}
	return strings.Join(all, " OR ")
}

func byPartition(partitions []model.Partition) []model.Partition {
	return slices.SortedFunc(slices.Values(partitions), func(a, b model.Partition) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Number, b.Number))
	})
}
