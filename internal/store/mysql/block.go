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

// postponed is work that becomes due with one before it.
type postponed struct {
	seq   model.Seq
	dueAt model.Micros
}

// unblocked chooses due work of which nothing unfinished of its key comes
// before it, but what is chosen with it, and says what is to be postponed. Keys
// that are held are those of which nothing more may be chosen.
func (cl *claim) unblocked(window []place, held map[int64]bool) (chosen []place, late []postponed, err error) {
	keys, err := cl.loadKeys(window)
	if err != nil {
		return nil, nil, err
	}
	for _, at := range window {
		if at.hash == 0 {
			chosen = append(chosen, at)
			continue
		}
		before := keys[at.hash].before(at.seq)
		if before.processing && !held[at.hash] {
			cl.without = append(cl.without, at.hash)
		}
		if before.latest > at.dueAt {
			late = append(late, postponed{seq: at.seq, dueAt: before.latest})
		}
		if before.processing || before.latest > at.dueAt || before.earliest < cl.p.Floor {
			held[at.hash] = true
		}
		if !held[at.hash] {
			chosen = append(chosen, at)
		}
	}
	return chosen, late, nil
}

// sofar sums up the unfinished work of a key up to seq.
type sofar struct {
	seq              model.Seq
	processing       bool
	latest, earliest model.Micros // due_at of what is pending
}

// nothing is what there is before the first.
var nothing = sofar{latest: math.MinInt64, earliest: math.MaxInt64}

// unfinished is the work of one key, by seq.
type unfinished []sofar

// before sums up what comes before seq.
func (u unfinished) before(seq model.Seq) sofar {
	n := sort.Search(len(u), func(i int) bool { return u[i].seq >= seq })
	if n == 0 {
		return nothing
	}
	return u[n-1]
}

// loadKeys loads the first unfinished works of the keys in the window, of each
// key as many at least as it has in there, up to the last of the window. That is
// enough: if none of them holds a candidate up, they are due before it, so they
// are all in the window, and so they are all there is before it.
func (cl *claim) loadKeys(window []place) (map[int64]unfinished, error) {
	wanted := map[int64]int{}
	var last model.Seq
	for _, at := range window {
		if at.hash != 0 {
			wanted[at.hash]++
			last = max(last, at.seq)
		}
	}
	keys := make(map[int64]unfinished, len(wanted))
	rest := slices.Sorted(maps.Keys(wanted))
	for page := 0; len(rest) > 0; page++ {
		var look script
		var scans []func(*sql.Rows) error
		if page == 0 {
			look.add(`SELECT key_hash, min(seq) FROM posthouse_work FORCE INDEX (posthouse_work_key)
				WHERE queue = ? AND key_hash IN (`+list(rest)+`) AND state = 1 AND seq <= ? GROUP BY key_hash`, cl.p.Queue, last)
			scans = append(scans, func(rows *sql.Rows) error {
				var hash int64
				is := sofar{processing: true, latest: nothing.latest, earliest: nothing.earliest}
				err := into(rows, &hash, &is.seq)
				keys[hash] = append(keys[hash], is)
				return err
			})
		}
		// Seldom more than the window and what holds it up.
		most := max(1024, 4*len(window))
		look.add(`SELECT key_hash, seq, due_at FROM posthouse_work FORCE INDEX (posthouse_work_key)
			WHERE queue = ? AND key_hash IN (`+list(rest)+`) AND state = 0 AND seq <= ? ORDER BY key_hash, state, seq LIMIT ?`,
			cl.p.Queue, last, most)
		found, ofLast := 0, 0
		lastHash := int64(0)
		err := cl.c.query(&look, append(scans, func(rows *sql.Rows) error {
			var hash int64
			var is sofar
			err := into(rows, &hash, &is.seq, &is.latest)
			is.earliest = is.latest
			keys[hash] = append(keys[hash], is)
			if hash != lastHash {
				lastHash, ofLast = hash, 0
			}
			found, ofLast = found+1, ofLast+1
			return err
		})...)
		if err != nil {
			return nil, err
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
		rest = rest[next:]
	}
	for _, u := range keys {
		u.sum()
	}
	return keys, nil
}

// sum makes of single works what there is up to each.
func (u unfinished) sum() {
	slices.SortFunc(u, func(a, b sofar) int { return cmp.Compare(a.seq, b.seq) })
	for i := 1; i < len(u); i++ {
		u[i].processing = u[i].processing || u[i-1].processing
		u[i].latest = max(u[i].latest, u[i-1].latest)
		u[i].earliest = min(u[i].earliest, u[i-1].earliest)
	}
}

// postpone lets pending work become due later, in the order of seq.
func postpone(todo *script, late []postponed) {
	if len(late) == 0 {
		return
	}
	slices.SortFunc(late, func(a, b postponed) int { return cmp.Compare(a.seq, b.seq) })
	seqs, dueAt := make([]model.Seq, len(late)), make([]model.Micros, len(late))
	for i := range late {
		seqs[i], dueAt[i] = late[i].seq, late[i].dueAt
	}
	todo.add(`UPDATE posthouse_work w FORCE INDEX (PRIMARY) SET w.due_at = ` + pick(seqs, dueAt) + `
		WHERE @may = 1 AND w.seq IN (` + list(seqs) + `) AND w.state = 0`)
}

// pick is an expression for the value that stands where the seq of work w does
// in the ascending list of seqs.
func pick[T ~int32 | ~int64](seqs []model.Seq, values []T) string {
	return `elt(interval(w.seq, ` + list(seqs) + `), ` + list(values) + `)`
}
