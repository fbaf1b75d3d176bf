package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/posthouse/posthouse/internal/model"
)

// elsewhere says whether the queue (?1) has pending work outside of the slots
// from ?2 to before ?3.
const elsewhere = `EXISTS (SELECT 1 FROM posthouse_work WHERE queue = ?1 AND state = 0 AND slot < ?2)
	OR EXISTS (SELECT 1 FROM posthouse_work WHERE queue = ?1 AND state = 0 AND slot >= ?3)`

// misplaced stands among slots for work that is in none of them.
const misplaced model.Slot = -1

// DueWork says in which slots there is due work.
func (s *Store) DueWork(ctx context.Context, p model.DueParams) (due model.Due, err error) {
	err = s.read(ctx, "look for due work", func(ctx context.Context, snapshot *sql.Tx) error {
		due = model.Due{}
		from, to := p.KeyID.SlotRange()
		rows, err := snapshot.QueryContext(ctx, `SELECT ?6 WHERE `+elsewhere+`
			UNION ALL SELECT asked.value FROM json_each(?4) asked WHERE EXISTS (SELECT 1 FROM posthouse_work
				WHERE queue = ?1 AND state = 0 AND slot = asked.value AND due_at <= ?5)`,
			p.Queue, from, to, list(p.Slots), s.clock.now(), misplaced)
		return each(rows, err, func(rows *sql.Rows) error {
			var slot model.Slot
			if err := rows.Scan(&slot); err != nil {
				return err
			}
			if slot == misplaced {
				due.Misplaced = true
			} else {
				due.Slots = append(due.Slots, slot)
			}
			return nil
		})
	})
	if err != nil {
		return model.Due{}, err
	}
	return due, nil
}

// ClaimWork moves due work to processing. There is one writer, so nobody dies,
// drains or claims meanwhile, and Shared makes no difference.
func (s *Store) ClaimWork(ctx context.Context, p model.ClaimParams) (claimed model.Claimed, err error) {
	err = s.write(ctx, "claim", func(t *tx) error {
		may, err := mayClaim(t, &p, &claimed)
		if err != nil || !may {
			return err
		}
		if len(p.Slots) == 1 && !p.Block {
			claimed.Works, err = take(t, &p, `SELECT seq FROM posthouse_work
				WHERE queue = ? AND state = 0 AND slot = ? AND due_at BETWEEN ? AND ? ORDER BY due_at, seq LIMIT ?`,
				p.Queue, p.Slots[0], p.Floor, t.now, p.Limit)
		} else {
			var seqs []model.Seq
			if seqs, err = choose(t, &p); err != nil || len(seqs) == 0 {
				return err
			}
			claimed.Works, err = take(t, &p, `SELECT value FROM json_each(?)`, list(seqs))
		}
		if err != nil {
			return err
		}
		return load(t, claimed.Works)
	})
	if err != nil {
		return model.Claimed{}, err
	}
	return claimed, nil
}

// mayClaim says in claimed why nothing may be claimed where the caller is to know.
func mayClaim(t *tx, p *model.ClaimParams, claimed *model.Claimed) (may bool, err error) {
	from, to := p.KeyID.SlotRange()
	living, agreed, placed := false, false, false
	err = t.query(func(rows *sql.Rows) error { return rows.Scan(&living, &agreed, &placed) },
		`SELECT EXISTS (SELECT 1 FROM posthouse_instance WHERE id = ?4 AND NOT dead), s.generation = ?5 AND NOT s.draining,
			NOT (`+elsewhere+`) FROM posthouse_source s WHERE s.id = ?1`,
		p.Queue, from, to, p.Owner, p.Generation)
	if err != nil {
		return false, err
	}
	claimed.Outdated = !agreed
	claimed.Misplaced = agreed && !placed
	return living && agreed && placed && p.Limit > 0 && len(p.Slots) > 0, nil
}

// take claims the rows whose seqs the query returns.
func take(t *tx, p *model.ClaimParams, seqs string, args ...any) (works []model.Work, err error) {
	startedAt := model.Micros(0)
	if p.Start {
		startedAt = t.now
	}
	err = t.query(scanWork(&works), `UPDATE posthouse_work
		SET state = 1, token = ?, owner = ?, started_at = CASE WHEN lost > 0 AND retry_count >= ? THEN 0 ELSE ? END
		WHERE seq IN (`+seqs+`) RETURNING `+workColumns,
		append([]any{p.Token, p.Owner, p.AloneFrom, startedAt}, args...)...)
	slices.SortFunc(works, func(a, b model.Work) int {
		return cmp.Or(cmp.Compare(a.DueAt, b.DueAt), cmp.Compare(a.Seq, b.Seq))
	})
	return works, err
}

// choose finds what is to be claimed where that is more than the head of one slot.
func choose(t *tx, p *model.ClaimParams) ([]model.Seq, error) {
	due := newMerge(t, p)
	if p.Block {
		return unblocked(t, p, due)
	}
	window, err := due.next(p.Limit)
	if err != nil {
		return nil, err
	}
	seqs := make([]model.Seq, len(window))
	for i, c := range window {
		seqs[i] = c.seq
	}
	return seqs, nil
}

// candidate is due work.
type candidate struct {
	dueAt model.Micros
	seq   model.Seq
	hash  int64
}

func (c candidate) compare(other candidate) int {
	return cmp.Or(cmp.Compare(c.dueAt, other.dueAt), cmp.Compare(c.seq, other.seq))
}

// merge reads due work of several slots, oldest (due_at, seq) first, and little
// more of each than is wanted.
type merge struct {
	t        *tx
	queue    model.SourceID
	branches []*branch
	without  []int64 // keys that are passed over from the next read on
}

// branch is one slot.
type branch struct {
	slot  model.Slot
	last  candidate   // that was read
	rows  []candidate // read, and not returned yet
	ended bool
}

func newMerge(t *tx, p *model.ClaimParams) *merge {
	m := &merge{t: t, queue: p.Queue, branches: make([]*branch, len(p.Slots))}
	for i, slot := range p.Slots {
		m.branches[i] = &branch{slot: slot, last: candidate{dueAt: p.Floor, seq: -1}}
	}
	return m
}

// next returns the next n, or as many as there are.
func (m *merge) next(n int) ([]candidate, error) {
	window := make([]candidate, 0, n)
	// A slot seldom has twice its share of what comes first.
	for chunk := n / len(m.branches); len(window) < n; {
		if slices.ContainsFunc(m.branches, (*branch).empty) {
			chunk = min(2*chunk+1, n-len(window))
			if err := m.read(chunk); err != nil {
				return nil, err
			}
		}
		var first *branch
		for _, b := range m.branches {
			if len(b.rows) > 0 && (first == nil || b.rows[0].compare(first.rows[0]) < 0) {
				first = b
			}
		}
		if first == nil {
			break
		}
		window = append(window, first.rows[0])
		first.rows = first.rows[1:]
	}
	return window, nil
}

func (b *branch) empty() bool { return len(b.rows) == 0 && !b.ended }

// read reads on in all slots of which nothing is left, in one statement.
func (m *merge) read(chunk int) error {
	bySlot := map[model.Slot]*branch{}
	var ends tuples
	for _, b := range m.branches {
		if b.empty() {
			bySlot[b.slot] = b
			ends.add(int64(b.slot), int64(b.last.dueAt), int64(b.last.seq))
		}
	}
	err := m.t.query(func(rows *sql.Rows) error {
		var slot model.Slot
		var c candidate
		if err := rows.Scan(&slot, &c.dueAt, &c.seq, &c.hash); err != nil {
			return err
		}
		b := bySlot[slot]
		b.rows = append(b.rows, c)
		return nil
	}, readBranches, ends.String(), m.queue, m.t.now, list(m.without), chunk)
	if err != nil {
		return err
	}
	for _, b := range bySlot {
		b.ended = len(b.rows) < chunk
		if len(b.rows) > 0 {
			slices.SortFunc(b.rows, candidate.compare)
			b.last = b.rows[len(b.rows)-1]
		}
	}
	return nil
}

const readBranches = `SELECT w.slot, w.due_at, w.seq, w.key_hash FROM json_each(?1) branch
	CROSS JOIN posthouse_work w ON w.seq IN (SELECT seq FROM posthouse_work
		WHERE queue = ?2 AND state = 0 AND slot = branch.value ->> 0 AND due_at <= ?3
		AND (due_at, seq) > (branch.value ->> 1, branch.value ->> 2)
		AND key_hash NOT IN (SELECT value FROM json_each(?4)) ORDER BY due_at, seq LIMIT ?5)`
