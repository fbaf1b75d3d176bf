package sqlite

import (
	"cmp"
	"database/sql"
	"slices"

	"github.com/posthouse/posthouse/internal/model"
)

// candidate is due work.
type candidate struct {
	dueAt model.Micros
	seq   model.Seq
	hash  int64 // of its key; read where keys block
}

func (c candidate) compare(other candidate) int {
	return cmp.Or(cmp.Compare(c.dueAt, other.dueAt), cmp.Compare(c.seq, other.seq))
}

// merge reads due work of several slots, oldest (due_at, seq) first, and little
// more of each slot than is wanted.
type merge struct {
	t        *tx
	p        *model.ClaimParams
	branches []branch
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
	m := &merge{t: t, p: p, branches: make([]branch, len(p.Slots))}
	for i, slot := range p.Slots {
		m.branches[i] = branch{slot: slot, last: candidate{dueAt: p.Floor, seq: -1}}
	}
	return m
}

// next returns the next n, or as many as there are.
func (m *merge) next(n int) ([]candidate, error) {
	share := float64(n) / float64(len(m.branches))
	for chunk := min(n, 1+int(1.5*share)); ; chunk = min(n, 2*chunk) {
		var window []candidate
		for i := range m.branches {
			window = append(window, m.branches[i].rows...)
		}
		slices.SortFunc(window, candidate.compare)
		window = window[:min(len(window), n)]
		// Another row of a branch can only belong into the window if the last
		// one that was read does.
		complete := true
		for i := range m.branches {
			b := &m.branches[i]
			if b.ended || len(window) == n && b.last.compare(window[n-1]) >= 0 {
				continue
			}
			complete = false
			if err := m.read(b, chunk); err != nil {
				return nil, err
			}
		}
		if complete {
			m.drop(window)
			return window, nil
		}
	}
}

// drop forgets what is returned.
func (m *merge) drop(window []candidate) {
	if len(window) == 0 {
		return
	}
	last := window[len(window)-1]
	for i := range m.branches {
		b := &m.branches[i]
		n := 0
		for n < len(b.rows) && b.rows[n].compare(last) <= 0 {
			n++
		}
		b.rows = b.rows[n:]
	}
}

// read reads on in one slot.
func (m *merge) read(b *branch, limit int) error {
	n := 0
	add := func(rows *sql.Rows) error {
		n++
		c := candidate{}
		err := rows.Scan(&c.dueAt, &c.seq, &c.hash)
		b.rows = append(b.rows, c)
		b.last = c
		return err
	}
	args := []any{m.p.Queue, b.slot, m.t.now, b.last.dueAt, b.last.seq, limit}
	query := onInSlot
	if m.p.Block {
		query = onInSlotWithKeys
		args = append(args, list(m.without))
	}
	err := m.t.query(add, query, args...)
	b.ended = n < limit
	return err
}

const (
	fromSlot = ` FROM posthouse_work
		WHERE queue = ?1 AND state = 0 AND slot = ?2 AND due_at <= ?3 AND (due_at, seq) > (?4, ?5)`
	inOrder          = ` ORDER BY due_at, seq LIMIT ?6`
	onInSlot         = `SELECT due_at, seq, 0` + fromSlot + inOrder
	onInSlotWithKeys = `SELECT due_at, seq, key_hash` + fromSlot + ` AND key_hash NOT IN (SELECT value FROM json_each(?7))` + inOrder
)
