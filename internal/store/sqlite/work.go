package sqlite

import (
	"context"
	"database/sql"
	"slices"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// Columns of work, as scanWork wants them.
const workColumns = `seq, queue, slot, key_hash, state, due_at, token, owner, started_at, retry_count, lost, replay`

func workFields(w *model.Work) []any {
	return []any{&w.Seq, &w.Queue, &w.Key.Slot, &w.Key.Hash, &w.State, &w.DueAt, &w.Token, &w.Owner, &w.StartedAt,
		&w.RetryCount, &w.Lost, &w.Replay}
}

func scanWork(works *[]model.Work) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var w model.Work
		if err := rows.Scan(workFields(&w)...); err != nil {
			return err
		}
		*works = append(*works, w)
		return nil
	}
}

// load gives each started work its message.
func load(t *tx, works []model.Work) error {
	bySeq := make(map[model.Seq]*model.Work, len(works))
	started := make([]model.Seq, 0, len(works))
	for i := range works {
		if works[i].StartedAt != 0 {
			bySeq[works[i].Seq] = &works[i]
			started = append(started, works[i].Seq)
		}
	}
	if len(started) == 0 {
		return nil
	}
	return t.query(func(rows *sql.Rows) error {
		m, err := scanMessage(rows)
		if err == nil {
			bySeq[m.Seq].Message = m
		}
		return err
	}, `SELECT `+messageColumns+` FROM posthouse_message m WHERE m.seq IN (SELECT value FROM json_each(?))`, list(started))
}

// StartWork marks claimed work as started. The work of an instance that was
// declared dead is no longer its own, even before it is recovered.
func (s *Store) StartWork(ctx context.Context, p model.StartParams) (started []model.Work, err error) {
	if len(p.Seqs) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "start", func(t *tx) error {
		err := t.query(scanWork(&started), `UPDATE posthouse_work SET started_at = ?
			WHERE seq IN (SELECT value FROM json_each(?)) AND state = 1 AND token = ? AND started_at = 0
			AND EXISTS (SELECT 1 FROM posthouse_instance i WHERE i.id = owner AND NOT i.dead)
			RETURNING `+workColumns, t.now, list(p.Seqs), p.Token)
		if err != nil {
			return err
		}
		place := make(map[model.Seq]int, len(p.Seqs))
		for i, seq := range slices.Backward(p.Seqs) {
			place[seq] = i // the first, where one is there twice
		}
		slices.SortFunc(started, func(a, b model.Work) int { return place[a.Seq] - place[b.Seq] })
		if p.Bare {
			return nil
		}
		return load(t, started)
	})
	if err != nil {
		return nil, err
	}
	return started, nil
}

// UnstartWork takes the mark of StartWork back.
func (s *Store) UnstartWork(ctx context.Context, p model.StartParams) (unstarted int, err error) {
	if len(p.Seqs) == 0 {
		return 0, nil
	}
	err = s.write(ctx, "unstart", func(t *tx) error {
		n, err := t.exec(`UPDATE posthouse_work SET started_at = 0
			WHERE seq IN (SELECT value FROM json_each(?)) AND state = 1 AND token = ? AND started_at <> 0`, list(p.Seqs), p.Token)
		unstarted = int(n)
		return err
	})
	if err != nil {
		return 0, err
	}
	return unstarted, nil
}

// GiveBack returns all work of one claim to pending.
func (s *Store) GiveBack(ctx context.Context, queue model.SourceID, token model.Token) (given int, err error) {
	err = s.write(ctx, "give back", func(t *tx) error {
		n, err := t.exec(`UPDATE posthouse_work SET state = 0, token = 0, owner = 0, started_at = 0
			WHERE queue = ? AND state = 1 AND token = ?`, queue, token)
		given = int(n)
		return err
	})
	if err != nil {
		return 0, err
	}
	return given, nil
}

// Claims lists the claims under which work of this owner is processing.
func (s *Store) Claims(ctx context.Context, owner model.InstanceID) (claims []model.Claim, err error) {
	err = s.read(ctx, "list claims", func(ctx context.Context, snapshot *sql.Tx) error {
		claims = nil
		rows, err := snapshot.QueryContext(ctx, `SELECT DISTINCT w.queue, w.token
			FROM posthouse_source s CROSS JOIN posthouse_work w ON w.queue = s.id AND w.state = 1
			WHERE w.owner = ? ORDER BY w.queue, w.token`, owner)
		return each(rows, err, func(rows *sql.Rows) error {
			var c model.Claim
			if err := rows.Scan(&c.Queue, &c.Token); err != nil {
				return err
			}
			claims = append(claims, c)
			return nil
		})
	})
	return claims, err
}

// Orphans lists processing work that its owner will not finish.
func (s *Store) Orphans(ctx context.Context, limit int) (orphans []model.Orphan, err error) {
	err = s.read(ctx, "list orphans", func(ctx context.Context, snapshot *sql.Tx) error {
		orphans = nil
		now := s.clock.now()
		rows, err := snapshot.QueryContext(ctx, `SELECT w.seq, w.queue, w.slot, w.key_hash, w.state, w.due_at, w.token, w.owner, w.started_at,
				w.retry_count, w.lost, w.replay, i.id IS NULL OR i.dead,
				coalesce(i.dead AND i.left_started = 1 AND w.started_at <> 0, 0), s.max_retry, s.backoff, s.orphan_after, s.jitter, s.on_uncertain
			FROM posthouse_source s CROSS JOIN posthouse_work w ON w.queue = s.id AND w.state = 1
			LEFT JOIN posthouse_instance i ON i.id = w.owner
			WHERE i.id IS NULL OR i.dead OR (w.started_at <> 0 AND w.started_at < ? - s.orphan_after)
			ORDER BY w.seq LIMIT ?`, now, limit)
		return each(rows, err, func(rows *sql.Rows) error {
			o := model.Orphan{Now: now}
			var backoff string
			var orphanAfter, jitter int64
			fields := append(workFields(&o.Work), &o.OwnerDead, &o.Alone, &o.Policy.MaxRetry, &backoff, &orphanAfter, &jitter, &o.Policy.Uncertain)
			if err := rows.Scan(fields...); err != nil {
				return err
			}
			o.Policy.OrphanAfter, o.Policy.Jitter = columns.Duration(orphanAfter), columns.Duration(jitter)
			o.Policy.Backoff, err = columns.ParseBackoff(backoff)
			orphans = append(orphans, o)
			return err
		})
	})
	return orphans, err
}
