package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// dueWork looks into each slot by itself.
const dueWork = `WITH clock AS MATERIALIZED (SELECT ` + now + ` AS t)
	SELECT s.slot, false FROM (SELECT DISTINCT unnest($2::int[])) AS s (slot)
	CROSS JOIN LATERAL (SELECT 1 FROM posthouse_work
		WHERE queue = $1 AND state = 0 AND slot = s.slot AND (due_at, seq + 0) > ($5, 0) AND due_at <= (SELECT t FROM clock)
		ORDER BY due_at, seq + 0 LIMIT 1) w
	UNION ALL SELECT 0, true WHERE EXISTS (SELECT 1 FROM posthouse_work WHERE queue = $1 AND state = 0 AND slot < $3)
		OR EXISTS (SELECT 1 FROM posthouse_work WHERE queue = $1 AND state = 0 AND slot >= $4)`

// DueWork says in which slots there is due work.
func (s *Store) DueWork(ctx context.Context, p model.DueParams) (due model.Due, err error) {
	from, to := p.KeyID.SlotRange()
	given := takeParams()
	defer given.giveBack()
	given.int4(int32(p.Queue))
	given.int4s(len(p.Slots), func(i int) int32 { return int32(p.Slots[i]) })
	given.int4(int32(from))
	given.int4(int32(to))
	given.int8(int64(p.Floor))
	given.done()
	err = s.read(ctx, "look for due work", func(ctx context.Context, c conn) error {
		due = model.Due{}
		return c.run(ctx, dueWork, given, func(r *row) error {
			slot := model.Slot(r.int())
			if r.bool() {
				due.Misplaced = true
			} else {
				due.Slots = append(due.Slots, slot)
			}
			return nil
		})
	})
	if err != nil {
		return model.Due{}, err
	}
	slices.Sort(due.Slots)
	return due, nil
}

// Columns of work w, as row.work wants them.
const workColumns = `w.seq, w.queue, w.slot, w.key_hash, w.state, w.due_at, w.token, w.owner, w.started_at, w.retry_count, w.lost, w.replay`

func workFields(w *model.Work) []any {
	return []any{
		&w.Seq, &w.Queue, &w.Key.Slot, &w.Key.Hash, &w.State, &w.DueAt, &w.Token, &w.Owner, &w.StartedAt,
		&w.RetryCount, &w.Lost, &w.Replay,
	}
}

// withMessage finds the message of work w that was started. OFFSET 0 keeps the
// planner from joining any other way than row by row.
const withMessage = `LEFT JOIN LATERAL (SELECT ` + messageColumns + ` FROM posthouse_message m
	WHERE m.seq = w.seq AND w.started_at <> 0 OFFSET 0) m ON true`

// work reads work, if there is any, and its message, if it is there; bare work
// comes without the columns of one.
func (r *row) work(works *[]model.Work, bare bool) {
	w := model.Work{Seq: model.Seq(r.int())}
	if w.Seq == 0 {
		return
	}
	w.Queue, w.Key.Slot, w.Key.Hash = model.SourceID(r.int()), model.Slot(r.int()), r.int()
	w.State, w.DueAt = model.State(r.int()), model.Micros(r.int())
	w.Token, w.Owner, w.StartedAt = model.Token(r.int()), model.InstanceID(r.int()), model.Micros(r.int())
	w.RetryCount, w.Lost, w.Replay = int(r.int()), int(r.int()), int(r.int())
	if !bare {
		var known *model.Message
		if n := len(*works); n > 0 {
			known = (*works)[n-1].Message
		}
		w.Message = r.message(known)
	}
	*works = append(*works, w)
}

// start and startBare begin with the same change.
const (
	start     = startHead + `SELECT ` + workColumns + `, ` + messageColumns + ` FROM w ` + withMessage
	startBare = startHead + `SELECT ` + workColumns + ` FROM w`
	startHead = `WITH clock AS MATERIALIZED (SELECT ` + now + ` AS t), w AS (
		UPDATE posthouse_work w SET started_at = (SELECT t FROM clock)
		WHERE seq = ANY ($1::bigint[]) AND state + 0 = 1 AND token = $2 AND started_at = 0
		AND EXISTS (SELECT 1 FROM posthouse_instance i WHERE i.id = w.owner AND NOT i.dead)
		RETURNING ` + workColumns + `
	)
	`
)

// StartWork marks claimed work as started. The work of an instance that was
// declared dead is no longer its own, even before it is recovered.
func (s *Store) StartWork(ctx context.Context, p model.StartParams) (started []model.Work, err error) {
	given := startParams(p)
	defer given.giveBack()
	statement := start
	if p.Bare {
		statement = startBare
	}
	err = s.write(ctx, "start", func(ctx context.Context, c conn) error {
		started = nil
		return c.run(ctx, statement, given, func(r *row) error {
			r.work(&started, p.Bare)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	place := make(map[model.Seq]int, len(p.Seqs))
	for i, seq := range p.Seqs {
		place[seq] = i
	}
	slices.SortFunc(started, func(a, b model.Work) int { return place[a.Seq] - place[b.Seq] })
	return started, nil
}

// UnstartWork takes the mark of StartWork back.
func (s *Store) UnstartWork(ctx context.Context, p model.StartParams) (int, error) {
	n, err := s.exec(ctx, "unstart", `UPDATE posthouse_work SET started_at = 0
		WHERE seq = ANY ($1::bigint[]) AND state + 0 = 1 AND token = $2 AND started_at <> 0`, seqs(p.Seqs), p.Token)
	return int(n), err
}

func startParams(p model.StartParams) *params {
	given := takeParams()
	given.int8s(len(p.Seqs), func(i int) int64 { return int64(p.Seqs[i]) })
	given.int8(int64(p.Token))
	given.done()
	return given
}

func seqs(all []model.Seq) []int64 {
	numbers := make([]int64, len(all))
	for i, seq := range all {
		numbers[i] = int64(seq)
	}
	return numbers
}

// GiveBack returns all work of one claim to pending. What is being settled at
// this moment is passed over. A claim that is under way, though its caller may
// have given it up, has the source's row, so that having it means that there is none.
func (s *Store) GiveBack(ctx context.Context, queue model.SourceID, token model.Token) (int, error) {
	if _, err := s.exec(ctx, "give back", `SELECT 1 FROM posthouse_source WHERE id = $1 FOR UPDATE`, queue); err != nil {
		return 0, err
	}
	n, err := s.exec(ctx, "give back", `UPDATE posthouse_work SET state = 0, token = 0, owner = 0, started_at = 0
		WHERE seq = ANY (ARRAY(SELECT seq FROM posthouse_work WHERE queue = $1 AND state = 1 AND token = $2 FOR UPDATE SKIP LOCKED))
		AND state + 0 = 1 AND token = $2`, queue, token)
	return int(n), err
}

// Misplaced lists pending work outside of the slots of a KeyID.
func (s *Store) Misplaced(ctx context.Context, queue model.SourceID, id model.KeyID, limit int) (messages []model.Message, err error) {
	from, to := id.SlotRange()
	given := takeParams()
	defer given.giveBack()
	given.int4(int32(queue))
	given.int4(int32(from))
	given.int4(int32(to))
	given.int8(int64(limit))
	given.done()
	err = s.read(ctx, "list misplaced work", func(ctx context.Context, c conn) error {
		messages = nil
		return c.run(ctx, misplaced, given, func(r *row) error {
			key := model.Key{Slot: model.Slot(r.int()), Hash: r.int()}
			if m := r.message(nil); m != nil {
				m.Key = key
				messages = append(messages, *m)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return messages, nil
}

const misplaced = `WITH w AS MATERIALIZED (
		SELECT seq, slot, key_hash, 1 AS started_at FROM (
			SELECT seq, slot, key_hash FROM posthouse_work WHERE queue = $1 AND state = 0 AND slot < $2
			UNION ALL SELECT seq, slot, key_hash FROM posthouse_work WHERE queue = $1 AND state = 0 AND slot >= $3) w
		ORDER BY seq LIMIT $4
	)
	SELECT w.slot, w.key_hash, ` + messageColumns + ` FROM w ` + withMessage + ` ORDER BY w.seq`

// Place moves pending work to where it belongs. Rows are taken in the order of
// seq, which tells the place of each.
func (s *Store) Place(ctx context.Context, queue model.SourceID, placed []model.Placed) error {
	if len(placed) == 0 {
		return nil
	}
	placed = slices.Clone(placed)
	slices.SortStableFunc(placed, func(a, b model.Placed) int { return cmp.Compare(a.Seq, b.Seq) })
	given := takeParams()
	defer given.giveBack()
	given.int4(int32(queue))
	given.int8s(len(placed), func(i int) int64 { return int64(placed[i].Seq) })
	given.int4s(len(placed), func(i int) int32 { return int32(placed[i].Key.Slot) })
	given.int8s(len(placed), func(i int) int64 { return placed[i].Key.Hash })
	given.done()
	return s.write(ctx, "place work", func(ctx context.Context, c conn) error {
		return c.run(ctx, place, given, func(*row) error { return nil })
	})
}

// place leaves alone what stands where it belongs: others may have placed it
// meanwhile, and a claim that has seen it there must find it there.
const (
	place = `UPDATE posthouse_work SET slot = ` + newSlot + `, key_hash = ` + newHash + `
		WHERE seq = ANY (ARRAY(SELECT seq FROM posthouse_work WHERE seq = ANY ($2::bigint[]) AND state + 0 = 0 AND queue + 0 = $1
			AND (slot + 0 <> ` + newSlot + ` OR key_hash + 0 <> ` + newHash + `)
			ORDER BY seq FOR UPDATE)) AND state + 0 = 0`
	newSlot = `($3::int[])[width_bucket(seq, $2::bigint[])]`
	newHash = `($4::bigint[])[width_bucket(seq, $2::bigint[])]`
)

// processing is all work w that is processing, with its source s: one look at
// the index for each source.
const processing = `posthouse_source s
	CROSS JOIN LATERAL (SELECT * FROM posthouse_work WHERE queue = s.id AND state = 1 OFFSET 0) w`

// Claims lists the claims under which work of this owner is processing.
func (s *Store) Claims(ctx context.Context, owner model.InstanceID) (claims []model.Claim, err error) {
	err = s.read(ctx, "list claims", func(ctx context.Context, c conn) error {
		claims = nil
		return c.query(ctx, func(rows pgx.Rows) error {
			var claim model.Claim
			if err := rows.Scan(&claim.Queue, &claim.Token); err != nil {
				return err
			}
			claims = append(claims, claim)
			return nil
		}, `SELECT DISTINCT w.queue, w.token FROM `+processing+`
			WHERE w.owner = $1 ORDER BY w.queue, w.token`, owner)
	})
	return claims, err
}

const listOrphans = `WITH clock AS MATERIALIZED (SELECT ` + now + ` AS t)
	SELECT ` + workColumns + `, i.id IS NULL OR i.dead,
		coalesce(i.dead AND i.left_started = 1 AND w.started_at <> 0
			AND count(*) FILTER (WHERE w.started_at <> 0) OVER (PARTITION BY w.owner) = 1, false),
		s.max_retry, s.backoff, s.orphan_after, s.jitter, s.on_uncertain, clock.t
	FROM clock, ` + processing + ` LEFT JOIN posthouse_instance i ON i.id = w.owner
	WHERE i.id IS NULL OR i.dead OR (w.started_at <> 0 AND w.started_at < clock.t - s.orphan_after)
	ORDER BY w.seq LIMIT $1`

// Orphans lists processing work that its owner will not finish. A work was
// alone when its owner had started one when it died, and has no other now (one
// whose start was under way at that moment).
func (s *Store) Orphans(ctx context.Context, limit int) (orphans []model.Orphan, err error) {
	err = s.read(ctx, "list orphans", func(ctx context.Context, c conn) error {
		orphans = nil
		return c.query(ctx, func(rows pgx.Rows) error {
			var o model.Orphan
			var backoff string
			var orphanAfter, jitter int64
			fields := append(workFields(&o.Work), &o.OwnerDead, &o.Alone, &o.Policy.MaxRetry, &backoff, &orphanAfter,
				&jitter, &o.Policy.Uncertain, &o.Now)
			err := rows.Scan(fields...)
			if err != nil {
				return err
			}
			o.Policy.OrphanAfter, o.Policy.Jitter = columns.Duration(orphanAfter), columns.Duration(jitter)
			o.Policy.Backoff, err = columns.ParseBackoff(backoff)
			orphans = append(orphans, o)
			return err
		}, listOrphans, limit)
	})
	return orphans, err
}
