package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// AnyDue says whether the queue has due work.
func (s *Store) AnyDue(ctx context.Context, queue model.SourceID) (due bool, err error) {
	err = s.read(ctx, "look for due work", func(c *call) error {
		var one script
		one.add(`SELECT EXISTS (SELECT 1 FROM posthouse_work FORCE INDEX (posthouse_work_due)
			WHERE queue = ? AND state = 0 AND due_at <= `+now+`)`, queue)
		return c.query(&one, func(rows *sql.Rows) error { return into(rows, &due) })
	})
	return due, err
}

// Columns of work w, as workFields wants them.
const workColumns = `w.seq, w.queue, w.state, w.due_at, w.token, w.owner, w.started_at, w.retry_count, w.lost, w.replay`

func workFields(w *model.Work) []any {
	return []any{&w.Seq, &w.Queue, &w.State, &w.DueAt, &w.Token, &w.Owner, &w.StartedAt, &w.RetryCount, &w.Lost, &w.Replay}
}

func scanWork(works *[]model.Work) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var w model.Work
		err := into(rows, workFields(&w)...)
		*works = append(*works, w)
		return err
	}
}

// loading returns the scan that gives started works their messages, which the
// statement loadStarted returns.
func loading(works *[]model.Work) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		m, err := scanMessage(rows)
		if err != nil {
			return err
		}
		for i := range *works {
			if (*works)[i].Seq == m.Seq {
				(*works)[i].Message = m
				return nil
			}
		}
		return fmt.Errorf("%w: a message that was not asked for", errScan)
	}
}

func loadMessages(seqs []model.Seq) string {
	return `SELECT ` + messageColumns + ` FROM posthouse_message m FORCE INDEX (PRIMARY) WHERE m.seq IN (` + list(seqs) + `)`
}

// claimPages bounds how often a claim looks on for work that nobody else is
// claiming.
const claimPages = 4

// ClaimWork moves due work to processing. What is due is read without locks,
// and only those very rows are locked: InnoDB locks the first row behind a range,
// too, which may be the head of another queue.
func (s *Store) ClaimWork(ctx context.Context, p model.ClaimParams) (claimed []model.Work, err error) {
	if p.Limit < 1 {
		return nil, nil
	}
	err = s.write(ctx, "claim", func(c *call) error {
		claimed = nil
		var after model.Cursor
		for range claimPages {
			due, err := c.due(p, after)
			if err != nil || len(due) == 0 {
				return err
			}
			if claimed, err = c.claim(p, due); err != nil || len(claimed) > 0 || len(due) < p.Limit {
				return err
			}
			last := due[len(due)-1]
			after = model.Cursor{DueAt: last.DueAt, Seq: last.Seq}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

// due lists due work behind a place.
func (c *call) due(p model.ClaimParams, after model.Cursor) (due []model.Work, err error) {
	var one script
	one.add(`SELECT `+workColumns+` FROM posthouse_work w FORCE INDEX (posthouse_work_due)
		WHERE w.queue = ? AND w.state = 0 AND w.due_at <= `+now+`
		AND w.due_at >= ? AND (w.due_at > ? OR w.seq > ?)
		AND EXISTS (SELECT 1 FROM posthouse_instance i WHERE i.id = ? AND i.dead = 0)
		ORDER BY w.due_at, w.seq LIMIT ?`, p.Queue, after.DueAt, after.DueAt, after.Seq, p.Owner, p.Limit)
	err = c.query(&one, scanWork(&due))
	return due, err
}

// claim takes those of the due works that nobody else is claiming.
func (c *call) claim(p model.ClaimParams, due []model.Work) ([]model.Work, error) {
	seqs := make([]model.Seq, 0, len(due))
	for _, w := range due {
		seqs = append(seqs, w.Seq)
	}
	var works []model.Work
	var at model.Micros
	var begin script
	begin.add(`START TRANSACTION`)
	begin.add(setNow)
	begin.add(`SELECT ` + workColumns + ` FROM posthouse_work w FORCE INDEX (PRIMARY)
		WHERE w.seq IN (` + list(seqs) + `) AND w.state = 0 AND w.due_at <= @now FOR UPDATE SKIP LOCKED`)
	begin.add(`SELECT @now`)
	err := c.query(&begin, scanWork(&works), func(rows *sql.Rows) error { return into(rows, &at) })
	if err != nil {
		return nil, err
	}
	if len(works) == 0 {
		return nil, c.rollback()
	}
	slices.SortFunc(works, byDueAt)
	seqs = seqs[:0]
	var now []model.Seq // those that start with the claim
	for i := range works {
		w := &works[i]
		seqs = append(seqs, w.Seq)
		w.State, w.Token, w.Owner = model.Processing, p.Token, p.Owner
		if p.Start && (w.Lost == 0 || w.RetryCount < p.AloneFrom) {
			w.StartedAt = at
			now = append(now, w.Seq)
		}
	}
	var take script
	take.add(`UPDATE posthouse_work w FORCE INDEX (PRIMARY) SET w.state = 1, w.token = ?, w.owner = ?,
		w.started_at = CASE WHEN ? = 0 OR (w.lost > 0 AND w.retry_count >= ?) THEN 0 ELSE @now END
		WHERE w.seq IN (`+list(seqs)+`) AND w.state = 0
		AND EXISTS (SELECT 1 FROM posthouse_instance i WHERE i.id = ? AND i.dead = 0)`,
		p.Token, p.Owner, p.Start, p.AloneFrom, p.Owner)
	take.add(`SELECT row_count()`)
	take.add(`COMMIT`)
	taken := 0
	scans := []func(*sql.Rows) error{func(rows *sql.Rows) error { return into(rows, &taken) }}
	if len(now) > 0 {
		take.add(loadMessages(now))
		scans = append(scans, loading(&works))
	}
	if err := c.query(&take, scans...); err != nil {
		if taken > 0 { // and committed, maybe
			err = lasting{err}
		}
		return nil, err
	}
	if taken == 0 { // the instance was declared dead at this moment
		return nil, nil
	}
	return works, nil
}

// byDueAt is the order in which work is handled.
func byDueAt(a, b model.Work) int {
	return cmp.Or(cmp.Compare(a.DueAt, b.DueAt), cmp.Compare(a.Seq, b.Seq))
}

// rollback ends a transaction that changed nothing.
func (c *call) rollback() error {
	var end script
	end.add(`ROLLBACK`)
	_, err := c.exec(&end)
	return err
}

// StartWork marks claimed work as started. The work of an instance that was
// declared dead is no longer its own, even before it is recovered. What this call
// marked is told by the time: nobody else has marked the same claim in the same
// microsecond.
func (s *Store) StartWork(ctx context.Context, p model.StartParams) (started []model.Work, err error) {
	if len(p.Seqs) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "start", func(c *call) error {
		started = nil
		var mark script
		mark.add(setNow)
		mark.add(`UPDATE posthouse_work w FORCE INDEX (PRIMARY) SET w.started_at = @now
			WHERE w.seq IN (`+list(p.Seqs)+`) AND w.state = 1 AND w.token = ? AND w.started_at = 0
			AND EXISTS (SELECT 1 FROM posthouse_instance i WHERE i.id = w.owner AND i.dead = 0)`, p.Token)
		mark.add(`SELECT `+workColumns+` FROM posthouse_work w FORCE INDEX (PRIMARY)
			WHERE w.seq IN (`+list(p.Seqs)+`) AND w.state = 1 AND w.token = ? AND w.started_at = @now`, p.Token)
		mark.add(`SELECT `+messageColumns+` FROM posthouse_work w FORCE INDEX (PRIMARY)
			STRAIGHT_JOIN posthouse_message m FORCE INDEX (PRIMARY) ON m.seq = w.seq
			WHERE w.seq IN (`+list(p.Seqs)+`) AND w.state = 1 AND w.token = ? AND w.started_at = @now`, p.Token)
		err := c.query(&mark, scanWork(&started), loading(&started))
		if err != nil && len(started) > 0 {
			err = lasting{err}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	// What was lost between the two reads has no message.
	started = slices.DeleteFunc(started, func(w model.Work) bool { return w.Message == nil })
	slices.SortStableFunc(started, func(a, b model.Work) int {
		return slices.Index(p.Seqs, a.Seq) - slices.Index(p.Seqs, b.Seq)
	})
	return started, nil
}

// UnstartWork takes the mark of StartWork back.
func (s *Store) UnstartWork(ctx context.Context, p model.StartParams) (int, error) {
	if len(p.Seqs) == 0 {
		return 0, nil
	}
	n, err := s.run(ctx, "unstart", `UPDATE posthouse_work w FORCE INDEX (PRIMARY) SET w.started_at = 0
		WHERE w.seq IN (`+list(p.Seqs)+`) AND w.state = 1 AND w.token = ? AND w.started_at <> 0`, p.Token)
	return int(n), err
}

// GiveBack returns all work of one claim to pending. What is being settled at
// this moment is passed over.
func (s *Store) GiveBack(ctx context.Context, queue model.SourceID, token model.Token) (given int, err error) {
	err = s.write(ctx, "give back", func(c *call) error {
		given = 0
		var seqs []model.Seq
		scan := func(rows *sql.Rows) error {
			var seq model.Seq
			err := into(rows, &seq)
			seqs = append(seqs, seq)
			return err
		}
		var look script
		look.add(`SELECT seq FROM posthouse_work FORCE INDEX (posthouse_work_due) WHERE queue = ? AND state = 1 AND token = ?`, queue, token)
		if err := c.query(&look, scan); err != nil || len(seqs) == 0 {
			return err
		}
		slices.Sort(seqs)
		var begin script
		begin.add(`START TRANSACTION`)
		begin.add(`SELECT seq FROM posthouse_work FORCE INDEX (PRIMARY)
			WHERE seq IN (`+list(seqs)+`) AND state = 1 AND token = ? FOR UPDATE SKIP LOCKED`, token)
		seqs = nil
		if err := c.query(&begin, scan); err != nil {
			return err
		}
		if len(seqs) == 0 {
			return c.rollback()
		}
		var give script
		give.add(`UPDATE posthouse_work w FORCE INDEX (PRIMARY) SET w.state = 0, w.token = 0, w.owner = 0, w.started_at = 0
			WHERE w.seq IN (`+list(seqs)+`) AND w.state = 1 AND w.token = ?`, token)
		give.add(`COMMIT`)
		_, err := c.exec(&give)
		given = len(seqs)
		return err
	})
	if err != nil {
		return 0, err
	}
	return given, nil
}

// processing is all work that is processing, with its source.
const processing = `posthouse_source s STRAIGHT_JOIN posthouse_work w FORCE INDEX (posthouse_work_due) ON w.queue = s.id AND w.state = 1`

// Claims lists the claims under which work of this owner is processing.
func (s *Store) Claims(ctx context.Context, owner model.InstanceID) (claims []model.Claim, err error) {
	err = s.read(ctx, "list claims", func(c *call) error {
		claims = nil
		var one script
		one.add(`SELECT DISTINCT w.queue, w.token FROM `+processing+` WHERE w.owner = ? ORDER BY w.queue, w.token`, owner)
		return c.query(&one, func(rows *sql.Rows) error {
			var claim model.Claim
			err := into(rows, &claim.Queue, &claim.Token)
			claims = append(claims, claim)
			return err
		})
	})
	return claims, err
}

// Orphans lists processing work that its owner will not finish. A work was
// alone when its owner had started one when it died, and has no other now (one
// whose start was under way at that moment).
func (s *Store) Orphans(ctx context.Context, limit int) (orphans []model.Orphan, err error) {
	err = s.read(ctx, "list orphans", func(c *call) error {
		orphans = nil
		var one script
		one.add(setNow)
		one.add(`SELECT `+workColumns+`, i.id IS NULL OR i.dead,
				coalesce(i.dead AND i.left_started = 1 AND w.started_at <> 0
					AND sum(w.started_at <> 0) OVER (PARTITION BY w.owner) = 1, 0),
				s.max_retry, s.backoff, s.orphan_after, @now
			FROM `+processing+` LEFT JOIN posthouse_instance i ON i.id = w.owner
			WHERE i.id IS NULL OR i.dead OR (w.started_at <> 0 AND w.started_at < @now - s.orphan_after)
			ORDER BY w.seq LIMIT ?`, limit)
		return c.query(&one, func(rows *sql.Rows) error {
			var o model.Orphan
			var backoff string
			var orphanAfter int64
			fields := append(workFields(&o.Work), &o.OwnerDead, &o.Alone, &o.Policy.MaxRetry, &backoff, &orphanAfter, &o.Now)
			err := into(rows, fields...)
			if err != nil {
				return err
			}
			o.Policy.OrphanAfter = columns.Duration(orphanAfter)
			o.Policy.Backoff, err = columns.ParseBackoff(backoff)
			orphans = append(orphans, o)
			return err
		})
	})
	return orphans, err
}
