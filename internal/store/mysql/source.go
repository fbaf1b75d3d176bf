package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// Register makes the sources known, and agrees on what is wanted of those of
// which nothing was agreed yet. It takes them in the order of their names, so
// that processes that start at the same time do not block each other, and
// inserts only what is missing, so that no ids are used up.
func (s *Store) Register(ctx context.Context, specs []model.SourceSpec) ([]model.Source, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	order := make([]int, len(specs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(specs[a].Name, specs[b].Name) })
	sources := make([]model.Source, len(specs))
	err := s.write(ctx, "register sources", func(c *call) error {
		if err := c.begin(); err != nil {
			return err
		}
		for _, i := range order {
			source, err := c.register(&specs[i])
			if err != nil {
				return err
			}
			sources[i] = source
		}
		var end script
		end.add(`COMMIT`)
		_, err := c.exec(&end)
		return err
	})
	if err != nil {
		return nil, err
	}
	return sources, nil
}

func (c *call) register(spec *model.SourceSpec) (source model.Source, err error) {
	name, policy := []byte(columns.Text(spec.Name)), spec.Policy
	backoff, orphanAfter, jitter := columns.FormatBackoff(policy.Backoff), policy.OrphanAfter.Microseconds(), policy.Jitter.Microseconds()
	read := func(one *script) error {
		var found []model.Source
		one.add(selectSources+` WHERE s.name = ?`, name)
		err := c.query(one, scanSource(&found))
		if err == nil && len(found) != 1 {
			return errors.New("a source that was registered is not there")
		}
		if err == nil {
			source = found[0]
		}
		return err
	}
	var one script
	one.add(`INSERT INTO posthouse_source (name, tenant, enabled, max_retry, backoff, orphan_after, jitter, on_uncertain, created_at)
		SELECT v.* FROM (SELECT ? AS name, ? AS tenant, ? AS enabled, ? AS max_retry, ? AS backoff, ? AS orphan_after,
			? AS jitter, ? AS on_uncertain, `+now+` AS created_at) v
		WHERE NOT EXISTS (SELECT 1 FROM posthouse_source WHERE name = ?)
		ON DUPLICATE KEY UPDATE id = posthouse_source.id`,
		name, spec.Tenant, spec.Enabled, policy.MaxRetry, backoff, orphanAfter, jitter, policy.Uncertain, name)
	// The row is locked from here on, whether this changes it or not.
	one.add(`UPDATE posthouse_source SET max_retry = ?, backoff = ?, orphan_after = ?, jitter = ?, on_uncertain = ? WHERE name = ?`,
		policy.MaxRetry, backoff, orphanAfter, jitter, policy.Uncertain, name)
	if err := read(&one); err != nil || spec.Wants.Order == "" {
		return source, err
	}
	keys, err := c.keyIDs([]model.Want{{Queue: source.ID, Ordering: spec.Wants}})
	if err != nil || source.Agreed.Order != "" {
		return source, err
	}
	var agree script
	agree.add(`UPDATE posthouse_source SET ordering = ?, partitions = ?, key_id = ?, generation = generation + 1 WHERE id = ?`,
		string(spec.Wants.Order), spec.Wants.Partitions, keys[0], source.ID)
	addLeases(&agree, map[model.SourceID]int{source.ID: spec.Wants.Partitions})
	err = read(&agree)
	return source, err
}

// keyIDs tells the numbers of the keys that are wanted, and gives one to those
// that have none, with their sources' rows locked.
func (c *call) keyIDs(wants []model.Want) ([]model.KeyID, error) {
	ids := make([]model.KeyID, len(wants))
	queues := map[model.SourceID]bool{} // with keys
	for i := range wants {
		if wants[i].HasKeys() {
			queues[wants[i].Queue] = true
		}
	}
	if len(queues) == 0 {
		return ids, nil
	}
	type key struct {
		queue      model.SourceID
		expression string
		blocks     bool
	}
	known := map[key]model.KeyID{}
	last := map[model.SourceID]model.KeyID{}
	load := func(look *script, before ...func(*sql.Rows) error) error {
		look.add(`SELECT queue, id, expression, blocks FROM posthouse_key WHERE queue IN (` + list(sorted(queues)) + `)`)
		return c.query(look, append(before, func(rows *sql.Rows) error {
			var k key
			var id model.KeyID
			err := into(rows, &k.queue, &id, &k.expression, &k.blocks)
			known[k] = id
			last[k.queue] = max(last[k.queue], id)
			return err
		})...)
	}
	var look script
	if err := load(&look); err != nil {
		return nil, err
	}
	missing := func() map[model.SourceID]bool {
		without := map[model.SourceID]bool{}
		for i := range wants {
			if !wants[i].HasKeys() {
				continue
			}
			if ids[i] = known[key{wants[i].Queue, wants[i].Key, wants[i].Block}]; ids[i] == 0 {
				without[wants[i].Queue] = true
			}
		}
		return without
	}
	without := missing()
	if len(without) == 0 {
		return ids, nil
	}
	var lock script
	lock.add(`SELECT id FROM posthouse_source FORCE INDEX (PRIMARY) WHERE id IN (` + list(sorted(without)) + `) ORDER BY id FOR UPDATE`)
	if err := load(&lock, func(*sql.Rows) error { return nil }); err != nil {
		return nil, err
	}
	if len(missing()) == 0 {
		return ids, nil
	}
	var add script
	for i := range wants {
		if !wants[i].HasKeys() || ids[i] != 0 {
			continue
		}
		k := key{wants[i].Queue, wants[i].Key, wants[i].Block}
		if known[k] == 0 {
			last[k.queue]++
			known[k] = last[k.queue]
			add.add(`INSERT INTO posthouse_key (queue, id, expression, blocks) VALUES (?, ?, ?, ?)`, k.queue, known[k], []byte(k.expression), k.blocks)
		}
		ids[i] = known[k]
	}
	_, err := c.exec(&add)
	return ids, err
}

// Sources lists all sources by name.
func (s *Store) Sources(ctx context.Context) (sources []model.Source, err error) {
	err = s.read(ctx, "list sources", func(c *call) error {
		sources = nil
		var one script
		one.add(selectSources + byName)
		return c.query(&one, scanSource(&sources))
	})
	return sources, err
}

// Columns of a source s with its key k, as sourceFields wants them.
const (
	sourceColumns = `s.id, s.name, s.tenant, s.enabled, s.ordering, s.partitions, s.key_id, s.generation, s.draining,
		coalesce(k.expression, ''), coalesce(k.blocks, 0), if(s.hold_until = 0, 0, greatest(s.hold_until - ` + now + `, 0))`
	withKeys      = ` LEFT JOIN posthouse_key k ON k.queue = s.id AND k.id = s.key_id`
	selectSources = `SELECT ` + sourceColumns + ` FROM posthouse_source s` + withKeys
	byName        = ` ORDER BY s.name`
)

func sourceFields(s *model.Source) []any {
	a := &s.Agreed
	return []any{&s.ID, &s.Name, &s.Tenant, &s.Enabled, &a.Order, &a.Partitions, &a.KeyID, &a.Generation, &a.Draining, &a.Key, &a.Block, (*columns.Micros)(&s.HoldFor)}
}

func scanSource(sources *[]model.Source) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var source model.Source
		err := into(rows, sourceFields(&source)...)
		*sources = append(*sources, source)
		return err
	}
}

// SetEnabled turns consumption of a source on or off.
func (s *Store) SetEnabled(ctx context.Context, source string, enabled bool) error {
	const op = "switch source"
	found := false
	err := s.write(ctx, op, func(c *call) error {
		name := []byte(columns.Text(source))
		var change script
		change.add(`UPDATE posthouse_source SET enabled = ? WHERE name = ?`, enabled, name)
		change.add(`SELECT count(*) FROM posthouse_source WHERE name = ?`, name)
		return c.query(&change, func(rows *sql.Rows) error { return into(rows, &found) })
	})
	if err == nil && !found {
		return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no source has that name")}
	}
	return err
}

// HoldQueue notes for how long a provider wants to be left alone.
func (s *Store) HoldQueue(ctx context.Context, queue model.SourceID, wait time.Duration) error {
	return s.write(ctx, "hold queue", func(c *call) error {
		var one script
		one.add(`UPDATE posthouse_source SET hold_until = greatest(hold_until, `+now+` + ?) WHERE id = ?`, max(wait, 0).Microseconds(), queue)
		return c.query(&one)
	})
}
