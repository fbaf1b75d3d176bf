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

// Columns of work w, as workFields wants them.
const workColumns = `w.seq, w.queue, w.slot, w.key_hash, w.state, w.due_at, w.token, w.owner, w.started_at, w.retry_count, w.lost, w.replay`

func workFields(w *model.Work) []any {
	return []any{&w.Seq, &w.Queue, &w.Key.Slot, &w.Key.Hash, &w.State, &w.DueAt, &w.Token, &w.Owner, &w.StartedAt,
		&w.RetryCount, &w.Lost, &w.Replay}
}

func scanWork(works *[]model.Work) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var w model.Work
		err := into(rows, workFields(&w)...)
		withoutGroup(&w)
		*works = append(*works, w)
		return err
	}
}

// withoutGroup takes the group of a delivery out of the place of its key.
func withoutGroup(w *model.Work) {
	if w.Seq >= model.DeliverySeqs {
		w.Key.Hash = 0
	}
}

// loadWorks is the query of works w with their messages, if those fulfil a
// condition, and its scan; where a claim is bare, without any.
func loadWorks(works *[]model.Work, bare bool, condition string) (query string, scan func(*sql.Rows) error) {
	if bare {
		return `SELECT ` + workColumns + ` FROM posthouse_work w FORCE INDEX (PRIMARY)`, scanWork(works)
	}
	return `SELECT ` + workColumns + `, m.id, m.received_at, m.content_type, m.check_note, m.headers, m.query, m.body
		FROM posthouse_work w FORCE INDEX (PRIMARY) LEFT JOIN posthouse_message m ON m.seq = w.seq` + condition, scanStarted(works)
}

// scanStarted scans works with the columns of their messages after seq and
// source, which are NULL where it was not started.
func scanStarted(works *[]model.Work) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var w model.Work
		var m model.Message
		var id []byte
		var receivedAt sql.NullInt64
		var contentType, check sql.NullString
		err := into(rows, append(workFields(&w), &id, &receivedAt, &contentType, &check, &m.Headers, &m.Query, &m.Body)...)
		withoutGroup(&w)
		if id != nil {
			copy(m.ID[:], id)
			m.Seq, m.Source, m.ReceivedAt, m.ContentType, m.Check = w.Seq, w.Queue, model.Micros(receivedAt.Int64), contentType.String, check.String
			w.Message = &m
		}
		*works = append(*works, w)
		return err
	}
}

// loading returns the scan that gives works their messages.
func loading(works []model.Work) func(*sql.Rows) error {
	bySeq := make(map[model.Seq]*model.Work, len(works))
	for i := range works {
		bySeq[works[i].Seq] = &works[i]
	}
	return func(rows *sql.Rows) error {
		m, err := scanMessage(rows)
		if err != nil {
			return err
		}
		w := bySeq[m.Seq]
		if w == nil {
			return fmt.Errorf("%w: a message that was not asked for", errScan)
		}
		w.Message = m
		return nil
	}
}

// byDueAt is the order in which work is handled.
func byDueAt(a, b model.Work) int {
	return cmp.Or(cmp.Compare(a.DueAt, b.DueAt), cmp.Compare(a.Seq, b.Seq))
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
		marked := 0
		var mark script
		mark.add(setNow)
		mark.add(`UPDATE posthouse_work w FORCE INDEX (PRIMARY) SET w.started_at = @now
			WHERE w.seq IN (`+list(p.Seqs)+`) AND w.state = 1 AND w.token = ? AND w.started_at = 0
			AND EXISTS (SELECT 1 FROM posthouse_instance i WHERE i.id = w.owner AND i.dead = 0)`, p.Token)
		mark.add(`SELECT row_count()`)
		load, scan := loadWorks(&started, p.Bare, "")
		mark.add(load+` WHERE w.seq IN (`+list(p.Seqs)+`) AND w.state = 1 AND w.token = ? AND w.started_at = @now`, p.Token)
		err := c.query(&mark, func(rows *sql.Rows) error { return into(rows, &marked) }, scan)
		if err != nil && marked > 0 {
			err = lasting{err}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	places := make(map[model.Seq]int, len(p.Seqs))
	for i, seq := range slices.Backward(p.Seqs) {
		places[seq] = i // the first, where one is there twice
	}
	slices.SortFunc(started, func(a, b model.Work) int { return places[a.Seq] - places[b.Seq] })
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
		// A claim that is under way, though its caller may have given it up, has
		// the source's row: having it means that there is none.
		var wait script
		wait.add(`SELECT id FROM posthouse_source WHERE id = ? FOR UPDATE`, queue)
		if err := c.query(&wait, func(*sql.Rows) error { return nil }); err != nil {
			return err
		}
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
				s.max_retry, s.backoff, s.orphan_after, s.jitter, s.on_uncertain, @now
			FROM `+processing+` LEFT JOIN posthouse_instance i ON i.id = w.owner
			WHERE i.id IS NULL OR i.dead OR (w.started_at <> 0 AND w.started_at < @now - s.orphan_after)
			ORDER BY w.seq LIMIT ?`, limit)
		return c.query(&one, func(rows *sql.Rows) error {
			var o model.Orphan
			var backoff string
			var orphanAfter, jitter int64
			fields := append(workFields(&o.Work), &o.OwnerDead, &o.Alone, &o.Policy.MaxRetry, &backoff, &orphanAfter, &jitter,
				&o.Policy.Uncertain, &o.Now)
			err := into(rows, fields...)
			if err != nil {
				return err
			}
			withoutGroup(&o.Work)
			o.Policy.OrphanAfter, o.Policy.Jitter = columns.Duration(orphanAfter), columns.Duration(jitter)
			o.Policy.Backoff, err = columns.ParseBackoff(backoff)
			orphans = append(orphans, o)
			return err
		})
	})
	return orphans, err
}
