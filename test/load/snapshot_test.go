package load

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/internal/testdb"
	"github.com/posthouse/posthouse/test/internal/running"
)

// While somebody holds on to an old snapshot, PostgreSQL keeps every row that
// was there since, and every entry of an index: whoever looks for the first that
// is due walks over all that were.
//
// The short form counts the blocks of the table of work that are looked at for
// each message, whatever the machine's speed. A keyed claim may walk over what was
// due in its partition within the last ten seconds, which is all of it here. The
// long form compares throughput, side by side.
func TestAnOldSnapshotElsewhere(t *testing.T) {
	if !soak {
		t.Parallel() // it counts, and measures no time
	}
	for _, c := range []struct {
		order inbox.Order
		most  float64 // blocks a message
	}{{inbox.Parallel, 60}, {inbox.Keyed, 1200}, {inbox.Serial, 60}} {
		t.Run("IN-09 PostgreSQL "+string(c.order), func(t *testing.T) {
			if soak {
				compareWithOldSnapshot(t, c.order)
				return
			}
			t.Parallel()
			h := newHeld(t, c.order)
			h.work(1)
			h.hold()
			const segments, messages = 4, 5000
			var blocks float64
			for i := range segments {
				var took time.Duration
				took, blocks = h.measure(messages)
				t.Logf("messages %d to %d: %.1f blocks of the table of work for each, %.0f/s", i*messages, (i+1)*messages, blocks, messages/took.Seconds())
			}
			if blocks > c.most {
				t.Errorf("with an old snapshot open, %.1f blocks are looked at for each message, want %v at most", blocks, c.most)
			}
		})
	}
}

// compareWithOldSnapshot works on two databases in turn. Only one of them has
// somebody who holds on to a snapshot: that concerns no other.
func compareWithOldSnapshot(t *testing.T, order inbox.Order) {
	const messages, lasts = 10_000, 10 * time.Minute
	with, without := newHeld(t, order), newHeld(t, order)
	with.stays, without.stays = true, true
	with.work(messages)
	without.work(messages)
	with.hold()
	type round struct {
		with, without             time.Duration
		blocksWith, blocksWithout float64
	}
	var rounds []round
	for held := time.Duration(0); held < lasts; {
		var r round
		r.without, r.blocksWithout = without.measure(messages)
		r.with, r.blocksWith = with.measure(messages)
		held += r.with
		rounds = append(rounds, r)
		t.Logf("%v: %.0f/s with an old snapshot (%.1f blocks a message), %.0f/s without (%.1f)", held.Round(time.Second),
			messages/r.with.Seconds(), r.blocksWith, messages/r.without.Seconds(), r.blocksWithout)
	}
	var sum round
	for _, r := range rounds[len(rounds)*2/3:] {
		sum.with += r.with
		sum.without += r.without
	}
	ratio := sum.without.Seconds() / sum.with.Seconds()
	t.Logf("over the last third, throughput is %.2f of what it is without the snapshot", ratio)
	if ratio < 0.9 {
		t.Errorf("throughput falls to %.2f of what it is without an old snapshot, want 0.9 at least", ratio)
	}
}

// held is a database on which somebody may hold on to a snapshot.
type held struct {
	t     *testing.T
	url   string
	order inbox.Order
	db    *sql.DB
	// stays: one process does all the work, as it would. What is counted then is
	// up to a second behind.
	stays  bool
	worker *process
	pushed int
}

func newHeld(t *testing.T, order inbox.Order) *held {
	t.Helper()
	h := &held{t: t, url: testdb.Postgres(t), order: order}
	var err error
	if h.db, err = running.Open(h.url, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.db.Close() })
	return h
}

// hold takes a snapshot that is held until the test ends.
func (h *held) hold() {
	h.t.Helper()
	tx, err := h.db.Begin()
	if err == nil {
		_, err = tx.Exec("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
	}
	var n int
	if err == nil {
		err = tx.QueryRow("SELECT count(*) FROM posthouse_work").Scan(&n)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = tx.Rollback() })
}

// measure works n messages, and says how many blocks of the table of work, and
// of its indexes, were looked at for each.
func (h *held) measure(n int) (took time.Duration, blocks float64) {
	h.t.Helper()
	before := h.blocks()
	took = h.work(n)
	return took, float64(h.blocks()-before) / float64(n)
}

// blocks is what servers have looked at for connections that were closed.
func (h *held) blocks() (n int64) {
	h.t.Helper()
	err := h.db.QueryRow(`SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read
		FROM pg_statio_user_tables WHERE relname = 'posthouse_work'`).Scan(&n)
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// work keeps n messages and handles them, in a process of its own as far as the
// database can tell.
func (h *held) work(n int) time.Duration {
	h.t.Helper()
	if h.worker == nil {
		key := map[inbox.Order]string{inbox.Keyed: "body.key"}[h.order]
		h.worker, h.pushed = openInbox(h.t, h.url, inbox.Consume{Order: h.order, Key: key, BatchSize: 1000, Concurrency: 200}), 0
		if h.stays {
			h.t.Cleanup(h.worker.close)
		}
	}
	if !h.stays {
		defer func() {
			h.worker.close()
			h.worker = nil
		}()
	}
	begun := time.Now()
	h.pushed += n
	h.worker.push(n, func(i int) string { return fmt.Sprintf(`{"key":%d}`, i%300) })
	h.worker.wait(h.pushed)
	return time.Since(begun)
}
