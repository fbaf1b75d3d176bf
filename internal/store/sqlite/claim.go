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

const dueSlots = `SELECT ?6 WHERE ` + elsewhere + `
	UNION ALL SELECT asked.value FROM json_each(?4) asked WHERE EXISTS (SELECT 1 FROM posthouse_work
		WHERE queue = ?1 AND state = 0 AND slot = asked.value AND due_at BETWEEN ?7 AND ?5)`

// DueWork says in which slots there is due work.
func (s *Store) DueWork(ctx context.Context, p model.DueParams) (due model.Due, err error) {
	err = s.read(ctx, "look for due work", func(ctx context.Context, snapshot *sql.Tx) error {
		due = model.Due{}
		from, to := p.KeyID.SlotRange()
		rows, err := snapshot.QueryContext(ctx, dueSlots, p.Queue, from, to, list(p.Slots), s.clock.now(), misplaced, p.Floor)
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
			claimed.Works, err = take(t, &p, headOfSlot, p.Queue, p.Slots[0], p.Floor, t.now, p.Limit)
		} else {
			var seqs []model.Seq
			if seqs, err = choose(t, &p); err != nil || len(seqs) == 0 {
				return err
			}
			claimed.Works, err = take(t, &p, `SELECT value FROM json_each(?)`, list(seqs))
		}
		if err != nil || p.Bare {
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

const headOfSlot = `SELECT seq FROM posthouse_work
	WHERE queue = ? AND state = 0 AND slot = ? AND due_at BETWEEN ? AND ? ORDER BY due_at, seq LIMIT ?`

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
