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
	state      model.State
	filter     string       // a condition besides, or empty
	slots      []model.Slot // ascending, at least one
	after      place        // what follows this place
	until      string       // and is not due later, nor earlier in descending order: a number or a variable
	descending bool
	withHash   bool
	without    []int64 // keys that are passed over
	also       string  // an expression that is read with every row
}

// few is how many rows of a queue are read at least before it is asked by slots.
const few = 256

// first returns the first n places of the span, in its order. A branch of a
// statement for each of many slots costs more to parse than to run. So where the
// queue has few rows in that state, all of them are looked at (begin may hold
// statements before that one, with their scans). Otherwise slots are read one
// after another in the order of the index; with n places known of some slots,
// the others are read no further than the last of these. Each statement returns
// a few times n places at most.
func (c *call) first(sp span, n int, begin *script, scans ...func(*sql.Rows) error) ([]place, error) {
	var best []place
	most := max(4*n, few)
	if len(sp.slots) == 1 {
		begin.add(sp.query(sp.slots, n))
		err := c.query(begin, append(scans, scanPlace(&best, sp))...)
		return best, err
	}
	looked := 0
	begin.add(sp.all(most))
	err := c.query(begin, append(scans, func(rows *sql.Rows) error {
		p, in := place{queue: sp.queue}, false
		err := into(rows, &p.slot, &p.dueAt, &p.seq, &p.hash, &in)
		looked++
		if _, ours := slices.BinarySearch(sp.slots, p.slot); in && ours {
			best = append(best, p)
		}
		return err
	})...)
	if err != nil {
		return nil, err
	}
	if looked < most {
		return best[:sp.sort(best, n)], nil
	}
	best = best[:0]
	rest := slices.Clone(sp.slots)
	if sp.descending {
		slices.Reverse(rest)
	}
	for width := len(rest); len(rest) > 0; {
		some := rest[:min(width, len(rest))]
		var one script
		var found []place
		one.add(sp.query(some, most))
		if err := c.query(&one, scanPlace(&found, sp)); err != nil {
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
		best = best[:sp.sort(best, n)]
		width = len(rest)
		if len(best) == n {
			sp.until = strconv.FormatInt(int64(best[n-1].dueAt), 10)
			most = max(8*n, 4*few)
			// Slots have about as many up to there as those that were read.
			width = (len(sp.slots) - len(rest)) * most / (2 * n)
		}
	}
	return best, nil
}

// sort sorts places and says how many of them are the first n.
func (sp span) sort(places []place, n int) int {
	slices.SortFunc(places, func(a, b place) int {
		if sp.descending {
			a, b = b, a
		}
		return a.compare(b)
	})
	return min(n, len(places))
}

// query reads places in the order of the index. It holds numbers only.
func (sp span) query(slots []model.Slot, limit int) string {
	also, direction, which, by := sp.hash(), "", "slot IN ("+list(slots)+")", "slot, "
	if sp.also != "" {
		also += ", " + sp.also
	}
	if sp.descending {
		direction, by = " DESC", "slot DESC, "
	}
	if len(slots) == 1 {
		which, by = "slot = "+strconv.Itoa(int(slots[0])), ""
	}
	return fmt.Sprintf(`SELECT slot, due_at, seq, %s FROM posthouse_work FORCE INDEX (posthouse_work_due)
		WHERE queue = %d AND state = %d AND %s AND %s ORDER BY %sdue_at%s, seq%[7]s LIMIT %d`,
		also, sp.queue, sp.state, which, sp.condition(), by, direction, limit)
}

// all reads the places of any slot, at most limit of them, and whether each is
// in the span but for its slot.
func (sp span) all(limit int) string {
	also := ""
	if sp.withHash || len(sp.without) > 0 {
		also += ", key_hash"
	}
	if sp.filter != "" {
		also += ", retry_count"
	}
	return fmt.Sprintf(`SELECT slot, due_at, seq, %s, %s FROM (
			SELECT slot, due_at, seq%s FROM posthouse_work FORCE INDEX (posthouse_work_due)
			WHERE queue = %d AND state = %d ORDER BY slot, due_at, seq LIMIT %d) w`,
		sp.hash(), sp.condition(), also, sp.queue, sp.state, limit)
}

func (sp span) hash() string {
	if sp.withHash {
		return "key_hash"
	}
	return "0"
}

func (sp span) condition() string {
	condition := "due_at >= %[1]d AND due_at <= %[3]s AND (due_at > %[1]d OR seq > %[2]d)"
	if sp.descending {
		condition = "due_at <= %[1]d AND due_at >= %[3]s AND (due_at < %[1]d OR seq < %[2]d)"
	}
	condition = fmt.Sprintf(condition, sp.after.dueAt, sp.after.seq, sp.until)
	if sp.filter != "" {
		condition += " AND " + sp.filter
	}
	if len(sp.without) > 0 {
		condition += " AND key_hash NOT IN (" + list(sp.without) + ")"
	}
	return condition
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
			look.add(`SELECT slot FROM posthouse_work FORCE INDEX (posthouse_work_due)
				WHERE queue = ? AND state = 0 AND slot = ? AND due_at BETWEEN ? AND @now LIMIT 1`, p.Queue, slots[0], p.Floor)
			return c.query(&look, misplaced, scanID(&due.Slots))
		}
		// What is pending, if it is little; then what is due, if that is; then each slot.
		seen := 0
		look.add(`SELECT slot, count(*), coalesce(sum(due_at BETWEEN ? AND @now), 0) FROM (SELECT slot, due_at
			FROM posthouse_work FORCE INDEX (posthouse_work_due)
			WHERE queue = ? AND state = 0 ORDER BY slot, due_at, seq LIMIT ?) some GROUP BY slot`, p.Floor, p.Queue, crowd)
		count := func(rows *sql.Rows) error {
			var slot model.Slot
			var n, ofDue int
			err := into(rows, &slot, &n, &ofDue)
			seen += n
			if _, asked := slices.BinarySearch(slots, slot); asked && ofDue > 0 {
				due.Slots = append(due.Slots, slot)
			}
			return err
		}
		if err := c.query(&look, misplaced, count); err != nil || seen < crowd {
			return err
		}
		seen, due.Slots = 0, nil
		look = script{}
		look.add(`SELECT slot, count(*), count(*) FROM (SELECT slot FROM posthouse_work FORCE INDEX (posthouse_work_due)
			WHERE queue = ? AND state = 0 AND slot IN (`+list(slots)+`) AND due_at BETWEEN ? AND @now
			ORDER BY slot, due_at, seq LIMIT ?) some GROUP BY slot ORDER BY slot`, p.Queue, p.Floor, crowd)
		if err := c.query(&look, count); err != nil || seen < crowd {
			return err
		}
		last, _ := slices.BinarySearch(slots, due.Slots[len(due.Slots)-1])
		if last+1 == len(slots) {
			return nil
		}
		look = script{}
		look.add(`SELECT asked.slot FROM json_table('[`+list(slots[last+1:])+`]', '$[*]' COLUMNS (slot INT PATH '$')) asked
			WHERE (SELECT w.due_at FROM posthouse_work w FORCE INDEX (posthouse_work_due) WHERE w.queue = ? AND w.state = 0
				AND w.slot = asked.slot ORDER BY w.queue, w.state, w.slot, w.due_at, w.seq LIMIT 1) <= @now`, p.Queue)
		return c.query(&look, scanID(&due.Slots))
	})
	if err != nil {
		return model.Due{}, err
	}
	return due, nil
}
