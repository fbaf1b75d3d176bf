package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"

	"github.com/posthouse/posthouse/internal/model"
)

// place is where work stands in an index: work of one state by (slot, due_at,
// seq), read in either direction.
type place struct {
	queue model.SourceID
	slot  model.Slot
	dueAt model.Micros
	seq   model.Seq
	hash  int64 // of the key, where it was asked for
}

// compare is the order in which work is handled.
func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.dueAt, other.dueAt), cmp.Compare(p.seq, other.seq))
}

// span is a part of the work of one queue.
type span struct {
	queue      model.SourceID
	state      string       // condition on state and what the rows tell besides
	slots      []model.Slot // ascending; if many, at least one
	after      place        // what follows this place
	until      string       // and is not due later, nor earlier in descending order: a number or a variable
	descending bool
	withHash   bool
	without    []int64 // keys that are passed over
	also       string  // an expression that is read with every row
}

// first returns the first n places of the span, in its order. A statement with
// a branch for each of many slots costs more to parse than to run, so slots are
// read one after another in the order of the index, a few at first and more
// then: with n places known of some slots, others are read no further than the
// last of these. Each statement returns a few times n places at most.
func (c *call) first(sp span, n int) ([]place, error) {
	if len(sp.slots) == 1 {
		return c.readSpan(sp, sp.slots, n)
	}
	var best []place
	order := place.compare
	if sp.descending {
		order = func(a, b place) int { return b.compare(a) }
	}
	rest := sp.slots
	for width := 1; len(rest) > 0; {
		some := rest[:min(width, len(rest))]
		most := max(4*n, 256)
		found, err := c.readSpan(sp, some, most)
		if err != nil {
			return nil, err
		}
		done := len(some)
		if len(found) == most {
			// The last slot may not have been read to its end; that it has n places is enough.
			last := found[most-1].slot
			begin := slices.IndexFunc(found, func(p place) bool { return p.slot == last })
			done = slices.Index(some, last)
			if most-begin >= n {
				done++
			} else {
				found = found[:begin]
			}
		}
		rest = rest[done:]
		best = append(best, found...)
		slices.SortFunc(best, order)
		if len(best) >= n {
			best = best[:n]
			sp.until = strconv.FormatInt(int64(best[n-1].dueAt), 10)
		}
		width = 2 * (len(sp.slots) - len(rest))
		if len(best) < n/2 {
			width *= 4
		}
	}
	return best, nil
}

func (c *call) readSpan(sp span, slots []model.Slot, limit int) (places []place, err error) {
	var one script
	one.add(sp.query(slots, limit))
	err = c.query(&one, scanPlace(&places, sp))
	return places, err
}

// query reads places in the order of the index. It holds numbers only.
func (sp span) query(slots []model.Slot, limit int) string {
	hash, direction, condition := "0", "", "due_at >= %[1]d AND due_at <= %[3]s AND (due_at > %[1]d OR seq > %[2]d)"
	if sp.withHash {
		hash = "key_hash"
	}
	if sp.descending {
		direction, condition = " DESC", "due_at <= %[1]d AND due_at >= %[3]s AND (due_at < %[1]d OR seq < %[2]d)"
	}
	which := "slot IN (" + list(slots) + ")"
	if len(sp.without) > 0 {
		condition += " AND key_hash NOT IN (" + list(sp.without) + ")"
	}
	if sp.also != "" {
		hash += ", " + sp.also
	}
	by := "slot" + direction + ", "
	if len(slots) == 1 {
		which, by = "slot = "+strconv.Itoa(int(slots[0])), ""
	}
	return fmt.Sprintf(`SELECT slot, due_at, seq, `+hash+` FROM posthouse_work FORCE INDEX (posthouse_work_due)
		WHERE queue = %[4]d AND `+sp.state+` AND `+which+` AND `+condition+`
		ORDER BY `+by+`due_at`+direction+`, seq`+direction+` LIMIT %[5]d`,
		sp.after.dueAt, sp.after.seq, sp.until, sp.queue, limit)
}

func scanPlace(places *[]place, sp span) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		p := place{queue: sp.queue}
		err := into(rows, &p.slot, &p.dueAt, &p.seq, &p.hash)
		*places = append(*places, p)
		return err
	}
}

// elsewhere says whether the queue has pending work outside of the slots of the
// KeyID. It holds numbers only.
func elsewhere(queue model.SourceID, id model.KeyID) string {
	from, to := id.SlotRange()
	const probe = `EXISTS (SELECT 1 FROM posthouse_work FORCE INDEX (posthouse_work_due) WHERE queue = %d AND state = 0 AND slot %s %d)`
	return fmt.Sprintf("("+probe+" OR "+probe+")", queue, "<", from, queue, ">=", to)
}

// crowd is how many due works are looked at to see in which slots there are
// any. If there are more, the head of each slot is looked up.
const crowd = 512

// DueWork says in which slots there is due work.
func (s *Store) DueWork(ctx context.Context, p model.DueParams) (due model.Due, err error) {
	slots := slices.Compact(slices.Sorted(slices.Values(p.Slots)))
	err = s.read(ctx, "look for due work", func(c *call) error {
		due = model.Due{}
		var look script
		look.add(setNow)
		look.add(`SELECT ` + elsewhere(p.Queue, p.KeyID))
		misplaced := func(rows *sql.Rows) error { return into(rows, &due.Misplaced) }
		switch len(slots) {
		case 0:
			return c.query(&look, misplaced)
		case 1:
			look.add(`SELECT `+strconv.Itoa(int(slots[0]))+` FROM posthouse_work FORCE INDEX (posthouse_work_due)
				WHERE queue = ? AND state = 0 AND slot = ? AND due_at <= @now LIMIT 1`, p.Queue, slots[0])
			return c.query(&look, misplaced, scanID(&due.Slots))
		}
		seen := 0
		look.add(`SELECT slot, count(*) FROM (SELECT slot FROM posthouse_work FORCE INDEX (posthouse_work_due)
			WHERE queue = ? AND state = 0 AND slot IN (`+list(slots)+`) AND due_at <= @now
			ORDER BY slot, due_at, seq LIMIT ?) some GROUP BY slot ORDER BY slot`, p.Queue, crowd)
		err := c.query(&look, misplaced, func(rows *sql.Rows) error {
			var slot model.Slot
			var n int
			err := into(rows, &slot, &n)
			due.Slots = append(due.Slots, slot)
			seen += n
			return err
		})
		if err != nil || seen < crowd {
			return err
		}
		last, _ := slices.BinarySearch(slots, due.Slots[len(due.Slots)-1])
		if last+1 == len(slots) {
			return nil
		}
		var heads script
		heads.add(`SELECT asked.slot FROM json_table('[`+list(slots[last+1:])+`]', '$[*]' COLUMNS (slot INT PATH '$')) asked
			WHERE (SELECT w.due_at FROM posthouse_work w FORCE INDEX (posthouse_work_due) WHERE w.queue = ? AND w.state = 0
				AND w.slot = asked.slot ORDER BY w.queue, w.state, w.slot, w.due_at, w.seq LIMIT 1) <= @now`, p.Queue)
		return c.query(&heads, scanID(&due.Slots))
	})
	if err != nil {
		return model.Due{}, err
	}
	return due, nil
}
