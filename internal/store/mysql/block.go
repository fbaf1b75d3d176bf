package mysql

import (
	"cmp"
	"database/sql"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/posthouse/posthouse/internal/model"
)

// maxWindows bounds how much blocked work one claim looks at.
const maxWindows = 8

// takeUnblocked claims those works of the window of which nothing unfinished of
// their key comes before them, but what is claimed with them. The works are
// locked before that is looked up: what is not locked by then is in its own
// state, or in somebody else's hands, and holds up what comes after it.
func (cl *claim) takeUnblocked(window []place, held map[int64]bool) error {
	due, keys, may, err := cl.lockWindow(window)
	if err != nil {
		return err
	}
	var todo script
	if !may {
		return cl.finish(&todo, nil)
	}
	ours := make(map[model.Seq]bool, len(due))
	for _, at := range due {
		ours[at.seq] = true
	}
	for _, u := range keys {
		u.sum(ours)
	}
	var chosen []place
	var late []place
	for _, at := range due {
		if at.hash == 0 {
			chosen = append(chosen, at)
			continue
		}
		before := keys[at.hash].before(at.seq)
		if before.processing && !held[at.hash] {
			cl.without = append(cl.without, at.hash)
		}
		if before.latest > at.dueAt {
			late = append(late, place{seq: at.seq, dueAt: before.latest})
		}
		if before.foreign || before.latest > at.dueAt {
			held[at.hash] = true
		}
		if !held[at.hash] {
			chosen = append(chosen, at)
		}
	}
	seqs := seqsOf(chosen[:min(len(chosen), cl.p.Limit)])
	postpone(&todo, late)
	if len(seqs) > 0 {
		cl.claimThose(&todo, `w.seq IN (`+list(seqs)+`) AND w.state = 0`)
	}
	return cl.finish(&todo, seqs)
}

// sofar sums up the unfinished work of a key up to seq.
type sofar struct {
	seq        model.Seq
	processing bool
	foreign    bool         // some of it is not locked by this claim
	latest     model.Micros // due_at of what is pending
}

// never is due before everything.
const never model.Micros = math.MinInt64 + 1

// unfinished is the work of one key, by seq.
type unfinished []sofar

// before sums up what comes before seq.
func (u unfinished) before(seq model.Seq) sofar {
	n := sort.Search(len(u), func(i int) bool { return u[i].seq >= seq })
	if n == 0 {
		return sofar{latest: never}
	}
	return u[n-1]
}

// sum makes of single works what there is up to each.
func (u unfinished) sum(ours map[model.Seq]bool) {
	slices.SortFunc(u, func(a, b sofar) int { return cmp.Compare(a.seq, b.seq) })
	for i := range u {
		u[i].foreign = u[i].processing || !ours[u[i].seq]
		if i > 0 {
			u[i].processing = u[i].processing || u[i-1].processing
			u[i].foreign = u[i].foreign || u[i-1].foreign
			u[i].latest = max(u[i].latest, u[i-1].latest)
		}
	}
}

// lockWindow locks those of the window that are still as they were seen, and
// loads the first unfinished works of their keys, of each key as many at least
// as it has in the window, up to the last of the window. That is enough: if none
// of them holds a candidate up, they are due before it, so they are all in the
// window, and so they are all there is before it.
func (cl *claim) lockWindow(window []place) (due []place, keys map[int64]unfinished, may bool, err error) {
	wanted := map[int64]int{}
	var last model.Seq
	for _, at := range window {
		last = max(last, at.seq)
		if at.hash != 0 {
			wanted[at.hash]++
		}
	}
	keys = make(map[int64]unfinished, len(wanted))
	rest := slices.Sorted(maps.Keys(wanted))
	var todo script
	cl.lockOwner(&todo)
	todo.add(`SELECT @may`)
	todo.add(`SELECT w.slot, w.due_at, w.seq, w.key_hash FROM posthouse_work w FORCE INDEX (PRIMARY)
		WHERE ` + cl.stillDue(seqsOf(window)) + ` ORDER BY w.seq FOR UPDATE`)
	scans := []func(*sql.Rows) error{
		func(rows *sql.Rows) error { return into(rows, &may) },
		scanPlace(&due, span{queue: cl.p.Queue}),
	}
	for {
		// Seldom more than the window and what holds it up.
		most, found, ofLast, lastHash := max(1024, 4*len(window)), 0, 0, int64(0)
		if len(rest) > 0 {
			todo.add(`SELECT key_hash, seq, state = 1, CASE WHEN state = 0 THEN due_at ELSE ? END
				FROM posthouse_work FORCE INDEX (posthouse_work_key)
				WHERE queue = ? AND key_hash IN (`+list(rest)+`) AND state < 2 AND seq <= ? ORDER BY key_hash, seq LIMIT ?`, never,
				cl.p.Queue, last, most)
			scans = append(scans, func(rows *sql.Rows) error {
				var hash int64
				var is sofar
				err := into(rows, &hash, &is.seq, &is.processing, &is.latest)
				keys[hash] = append(keys[hash], is)
				if hash != lastHash {
					lastHash, ofLast = hash, 0
				}
				found, ofLast = found+1, ofLast+1
				return err
			})
		}
		if err := cl.c.query(&todo, scans...); err != nil {
			return nil, nil, false, err
		}
		if found < most {
			break
		}
		next, _ := slices.BinarySearch(rest, lastHash)
		if ofLast >= wanted[lastHash] {
			next++
		} else { // it is read again, and is the first then
			keys[lastHash] = keys[lastHash][:len(keys[lastHash])-ofLast]
		}
		todo, scans = script{}, nil
		if rest = rest[next:]; len(rest) == 0 {
			break
		}
	}
	slices.SortFunc(due, place.compare)
	return due, keys, may, nil
}

// postpone lets pending work become due later, in the order of seq.
func postpone(todo *script, late []place) {
	if len(late) == 0 {
		return
	}
	slices.SortFunc(late, func(a, b place) int { return cmp.Compare(a.seq, b.seq) })
	seqs, dueAt := make([]model.Seq, len(late)), make([]model.Micros, len(late))
	for i := range late {
		seqs[i], dueAt[i] = late[i].seq, late[i].dueAt
	}
	todo.add(`UPDATE posthouse_work w FORCE INDEX (PRIMARY) SET w.due_at = ` + pick(seqs, dueAt) + `
		WHERE w.seq IN (` + list(seqs) + `) AND w.state = 0`)
}

// pick is an expression for the value that stands where the seq of work w does
// in the ascending list of seqs.
func pick[T ~int32 | ~int64](seqs []model.Seq, values []T) string {
	return `elt(interval(w.seq, ` + list(seqs) + `), ` + list(values) + `)`
}
