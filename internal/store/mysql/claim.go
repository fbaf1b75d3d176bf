package mysql

import (
	"context"
	"database/sql"
	"slices"

	"github.com/posthouse/posthouse/internal/model"
)

// claimPages bounds how often a claim looks on for work that nobody else is
// claiming.
const claimPages = 4

// ClaimWork moves due work to processing. What is due is read without locks;
// only those very rows are locked then: InnoDB locks the first row behind a
// range, too, which may be the head of another queue. Locks are taken in the
// order source, instance, work by seq.
func (s *Store) ClaimWork(ctx context.Context, p model.ClaimParams) (claimed model.Claimed, err error) {
	p.Slots = slices.Compact(slices.Sorted(slices.Values(p.Slots)))
	err = s.write(ctx, "claim", func(c *call) error {
		claimed = model.Claimed{}
		cl := &claim{c: c, p: &p, claimed: &claimed, after: place{dueAt: p.Floor, seq: -1}}
		if err := cl.run(); err != nil || !cl.reading {
			return err
		}
		return c.rollback()
	})
	if err != nil {
		return model.Claimed{}, err
	}
	return claimed, nil
}

// claim is one try of a claim.
type claim struct {
	c       *call
	p       *model.ClaimParams
	claimed *model.Claimed
	after   place   // what was looked at already
	without []int64 // keys that are being worked on
	reading bool    // in a transaction that only reads
}

// spare is how many works more than its limit a shared claim reads, in place of
// those that others are claiming.
const spare = 64

// run looks at windows of due work until one has something to take.
func (cl *claim) run() error {
	p := cl.p
	size, windows := p.Limit, 1
	switch {
	case p.Block:
		size, windows = max(4*p.Limit, 64), maxWindows
	case p.Shared && p.Limit > 0:
		size, windows = p.Limit+min(max(p.Limit, 8), spare), claimPages
	}
	held := map[int64]bool{} // keys of which nothing more may be chosen
	for range windows {
		window, err := cl.window(size)
		if err != nil || len(window) == 0 {
			return err
		}
		cl.after = window[len(window)-1]
		switch {
		case p.Block:
			err = cl.takeUnblocked(window, held)
		case p.Shared:
			err = cl.takeUnlocked(window)
		default:
			err = cl.take(seqsOf(window))
		}
		if err != nil || len(cl.claimed.Works) > 0 || cl.claimed.Outdated || len(window) < size {
			return err
		}
	}
	return nil
}

func seqsOf(places []place) []model.Seq {
	seqs := make([]model.Seq, len(places))
	for i, p := range places {
		seqs[i] = p.seq
	}
	slices.Sort(seqs)
	return seqs
}

// window reads due work, oldest first, and whether it may be claimed, by what is
// known so far. All that it reads of work it sees at one time: work that is put
// in its place meanwhile would otherwise be overlooked in both.
func (cl *claim) window(size int) (window []place, err error) {
	p, c := cl.p, cl.c
	agreed := `SELECT count(*) FROM posthouse_source WHERE id = ? AND generation = ? AND draining = 0`
	sp := span{queue: p.Queue, slots: p.Slots, after: cl.after, until: "@now", withHash: p.Block, without: cl.without}
	scans := []func(*sql.Rows) error{
		func(rows *sql.Rows) error {
			agreed := false
			err := into(rows, &agreed)
			cl.claimed.Outdated = !agreed
			return err
		},
		func(rows *sql.Rows) error { return into(rows, &cl.claimed.Misplaced) },
	}
	var look script
	switch {
	case size < 1 || len(p.Slots) == 0:
		look.add(agreed, p.Queue, p.Generation)
		look.add(`SELECT ` + elsewhere(p.Queue, p.KeyID))
		err = c.query(&look, scans...)
	case len(p.Slots) == 1:
		misplaced := false
		look.add(setNow)
		look.add(agreed, p.Queue, p.Generation)
		look.add(`SELECT ` + elsewhere(p.Queue, p.KeyID))
		sp.also = elsewhere(p.Queue, p.KeyID)
		look.add(sp.query(sp.slots, size))
		err = c.query(&look, append(scans, func(rows *sql.Rows) error {
			at := place{queue: p.Queue}
			err := into(rows, &at.slot, &at.dueAt, &at.seq, &at.hash, &misplaced)
			window = append(window, at)
			return err
		})...)
		cl.claimed.Misplaced = cl.claimed.Misplaced || misplaced
	default:
		if cl.reading {
			look.add(`COMMIT`)
		}
		look.add(`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
		look.add(`START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY`)
		look.add(setNow)
		look.add(agreed, p.Queue, p.Generation)
		look.add(`SELECT ` + elsewhere(p.Queue, p.KeyID))
		cl.reading = true
		window, err = c.first(sp, size, &look, scans...)
	}
	if cl.claimed.Outdated {
		cl.claimed.Misplaced = false
	}
	if cl.claimed.Outdated || cl.claimed.Misplaced {
		window = nil
	}
	return window, err
}

// lockOwner begins a transaction in which the agreement cannot change and the
// owner cannot die. @may says whether both are as they must be; the statements
// that follow do nothing where it is not.
func (cl *claim) lockOwner(begin *script) {
	p := cl.p
	if cl.reading { // what was set for that transaction would hold for this one
		begin.add(`COMMIT`)
		cl.reading = false
	}
	begin.add(`START TRANSACTION`)
	begin.add(`SET @now = ` + now + `, @agreed = 0, @living = 0`)
	begin.add(`SELECT generation = ? AND draining = 0 INTO @agreed FROM posthouse_source WHERE id = ? LOCK IN SHARE MODE`, p.Generation, p.Queue)
	begin.add(`SELECT dead = 0 INTO @living FROM posthouse_instance WHERE id = ? LOCK IN SHARE MODE`, p.Owner)
	begin.add(`SET @may = @agreed AND @living`)
}

// stillDue is what work w must be to be taken.
func (cl *claim) stillDue(seqs []model.Seq) string {
	return `@may = 1 AND w.seq IN (` + list(seqs) + `) AND w.state = 0 AND w.due_at <= @now AND w.slot IN (` + list(cl.p.Slots) + `)`
}

// take claims those of the works that are still as they were seen, and waits for
// whoever has one locked.
func (cl *claim) take(seqs []model.Seq) error {
	var take script
	cl.lockOwner(&take)
	cl.claimThose(&take, cl.stillDue(seqs))
	return cl.finish(&take, seqs)
}

func (cl *claim) claimThose(take *script, which string) {
	p := cl.p
	take.add(`UPDATE posthouse_work w FORCE INDEX (PRIMARY) SET w.state = 1, w.token = ?, w.owner = ?,
		w.started_at = CASE WHEN ? = 0 OR (w.lost > 0 AND w.retry_count >= ?) THEN 0 ELSE @now END
		WHERE `+which, p.Token, p.Owner, p.Start, p.AloneFrom)
}

// takeUnlocked claims the first of the works that are still as they were seen
// and that nobody else is claiming.
func (cl *claim) takeUnlocked(window []place) error {
	var free []model.Work
	var at model.Micros
	may := false
	var todo script
	cl.lockOwner(&todo)
	for len(window) > 0 && len(free) < cl.p.Limit {
		some := window[:min(cl.p.Limit-len(free), len(window))]
		window = window[len(some):]
		todo.add(`SELECT ` + workColumns + ` FROM posthouse_work w FORCE INDEX (PRIMARY) WHERE ` + cl.stillDue(seqsOf(some)) + ` FOR UPDATE SKIP LOCKED`)
		todo.add(`SELECT @may, @now`)
		err := cl.c.query(&todo, scanWork(&free), func(rows *sql.Rows) error { return into(rows, &may, &at) })
		if err != nil {
			return err
		}
		todo = script{}
		if !may {
			break
		}
	}
	if len(free) == 0 {
		return cl.finish(&todo, nil)
	}
	slices.SortFunc(free, byDueAt)
	var seqs, started []model.Seq
	for i := range free {
		w := &free[i]
		seqs = append(seqs, w.Seq)
		w.State, w.Token, w.Owner = model.Processing, cl.p.Token, cl.p.Owner
		if cl.p.Start && (w.Lost == 0 || w.RetryCount < cl.p.AloneFrom) {
			w.StartedAt = at
			started = append(started, w.Seq)
		}
	}
	slices.Sort(seqs)
	cl.claimThose(&todo, `w.seq IN (`+list(seqs)+`) AND w.state = 0`)
	todo.add(`COMMIT`)
	committed := false
	todo.add(`SELECT 1`)
	scans := []func(*sql.Rows) error{func(*sql.Rows) error { committed = true; return nil }}
	if len(started) > 0 && !cl.p.Bare {
		todo.add(`SELECT ` + messageColumns + ` FROM posthouse_message m FORCE INDEX (PRIMARY) WHERE m.seq IN (` + list(started) + `)`)
		scans = append(scans, loading(free))
	}
	if err := cl.c.query(&todo, scans...); err != nil {
		if committed {
			err = lasting{err}
		}
		return err
	}
	cl.claimed.Works = free
	return nil
}

// finish sends what ends the transaction, and reads back what was claimed: from
// then on the claim must not be tried again.
func (cl *claim) finish(take *script, seqs []model.Seq) error {
	committed := false
	take.add(`COMMIT`)
	take.add(`SELECT @agreed`)
	scans := []func(*sql.Rows) error{func(rows *sql.Rows) error {
		agreed := false
		committed = true
		err := into(rows, &agreed)
		cl.claimed.Outdated = !agreed
		return err
	}}
	if len(seqs) > 0 {
		load, scan := loadWorks(&cl.claimed.Works, cl.p.Bare, ` AND w.started_at <> 0`)
		take.add(load+` WHERE w.seq IN (`+list(seqs)+`) AND w.state = 1 AND w.token = ?`, cl.p.Token)
		scans = append(scans, scan)
	}
	if err := cl.c.query(take, scans...); err != nil {
		if committed && !cl.claimed.Outdated && len(seqs) > 0 {
			err = lasting{err}
		}
		return err
	}
	slices.SortFunc(cl.claimed.Works, byDueAt)
	return nil
}
