package sqlite

import (
	"database/sql"
	"errors"
	"math"
	"sort"

	"github.com/posthouse/posthouse/internal/model"
)

// maxWindows bounds how much blocked work one claim looks at.
const maxWindows = 8

// unblocked chooses due work of which nothing unfinished of its key comes
// before it, but what is chosen with it. It looks at windows of due work, one
// after another, until one has something to choose. What waits for another's
// retry becomes due with that one, so that later claims do not meet it before;
// keys that are being worked on are left out of the windows that follow.
func unblocked(t *tx, p *model.ClaimParams, due *merge) ([]model.Seq, error) {
	size := max(4*p.Limit, 64)
	held := map[int64]bool{} // keys of which nothing more may be chosen
	for range maxWindows {
		window, err := due.next(size)
		if err != nil || len(window) == 0 {
			return nil, err
		}
		keys, err := loadKeys(t, p.Queue, window)
		if err != nil {
			return nil, err
		}
		var chosen []model.Seq
		var deferred []candidate
		for _, c := range window {
			if c.hash == 0 {
				chosen = append(chosen, c.seq)
				continue
			}
			before := keys[c.hash].before(c.seq)
			if before.processing && !held[c.hash] {
				due.without = append(due.without, c.hash)
			}
			if before.latest > c.dueAt {
				deferred = append(deferred, candidate{seq: c.seq, dueAt: before.latest})
			}
			if before.processing || before.latest > c.dueAt || before.earliest < p.Floor {
				held[c.hash] = true
			}
			if !held[c.hash] {
				chosen = append(chosen, c.seq)
			}
		}
		if err := postpone(t, deferred); err != nil {
			return nil, err
		}
		if len(chosen) > 0 || len(window) < size {
			return chosen[:min(len(chosen), p.Limit)], nil
		}
	}
	return nil, nil
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
// key as many pending ones as it has in there. That is enough: if none of them
// holds a candidate up, they are due before it, so they are all in the window,
// and so they are all there is before it.
func loadKeys(t *tx, queue model.SourceID, window []candidate) (map[int64]unfinished, error) {
	counts := map[int64]int{}
	for _, c := range window {
		if c.hash != 0 {
			counts[c.hash]++
		}
	}
	keys := make(map[int64]unfinished, len(counts))
	for hash, n := range counts {
		var u unfinished
		sum := nothing
		err := t.query(func(rows *sql.Rows) error {
			var state model.State
			var dueAt model.Micros
			if err := rows.Scan(&sum.seq, &state, &dueAt); err != nil {
				return err
			}
			if state == model.Processing {
				sum.processing = true
			} else {
				sum.latest, sum.earliest = max(sum.latest, dueAt), min(sum.earliest, dueAt)
				n--
			}
			u = append(u, sum)
			if n == 0 {
				return errEnough
			}
			return nil
		}, headOfKey, queue, hash)
		if err != nil && !errors.Is(err, errEnough) {
			return nil, err
		}
		keys[hash] = u
	}
	return keys, nil
}

// Left alone, SQLite may take the index of what is due for this.
const headOfKey = `SELECT seq, state, due_at FROM posthouse_work INDEXED BY posthouse_work_key
	WHERE queue = ? AND key_hash = ? AND key_hash <> 0 AND state < 2 ORDER BY seq`

// errEnough ends the reading of rows.
var errEnough = errors.New("enough was read")

// postpone gives pending work another due_at.
func postpone(t *tx, deferred []candidate) error {
	if len(deferred) == 0 {
		return nil
	}
	var moves tuples
	for _, c := range deferred {
		moves.add(int64(c.seq), int64(c.dueAt))
	}
	_, err := t.exec(`UPDATE posthouse_work SET due_at = moved.value ->> 1 FROM json_each(?) moved
		WHERE posthouse_work.seq = moved.value ->> 0`, moves.String())
	return err
}
