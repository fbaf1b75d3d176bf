package postgres

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthouse/posthouse/internal/model"
)

// A claim is one statement:
//
//	clock    asked in a query of its own, or it would be a filter and not a
//	         bound of the index scan
//	source   the source, if its agreement is what the caller says it is
//	owner    the owner, if it lives
//	strays   whether there is pending work outside of the KeyID's slots
//	found    the rows to take
//	changed  what was taken of them
//
// FOR KEY SHARE waits for whoever begins a drain or declares an instance dead
// (both lock FOR UPDATE), looks again then, and makes them wait for the end of
// this statement. It waits for no other change of these rows, and none for it.
//
// Rows are found by their place in the table, which saves a search for each: a
// row that was moved since it was seen has changed, and is not taken. Where rows
// are not locked when they are found, the whole statement fails then (unmoved),
// has no effect, and is tried again: what stands behind such a row must not be
// taken without it.
//
// Parameters: $1 queue, $2 owner, $3 token, $4 the limit, $5 generation, $6 and $7
// the bounds of the slots, $8 the slot or slots, $9 and $10 the due_at and seq
// that come before the first that is wanted, $11 whether work starts, $12 alone
// from. Where there are many slots, not shared, $13 is how many rows are looked at in each to
// find out how far to go. Where keys block, $4 is how many rows are looked at,
// and the last one the limit.
const (
	claimHead = `WITH clock AS MATERIALIZED (SELECT ` + now + ` AS t), source AS MATERIALIZED (
			SELECT 1 FROM posthouse_source WHERE id = $1 AND generation = $5 AND NOT draining FOR KEY SHARE
		), owner AS MATERIALIZED (
			SELECT 1 FROM posthouse_instance WHERE id = $2 AND NOT dead FOR KEY SHARE
		), strays AS MATERIALIZED (
			SELECT ` + strays + ` AS found
		)`
	// strays says whether there is pending work of queue $1 outside of [$6, $7).
	strays = `(EXISTS (SELECT 1 FROM posthouse_work WHERE queue = $1 AND state = 0 AND slot < $6)
		OR EXISTS (SELECT 1 FROM posthouse_work WHERE queue = $1 AND state = 0 AND slot >= $7))`
	// permitted is known before any work is looked for.
	permitted = `(SELECT NOT found AND EXISTS (SELECT 1 FROM source) AND EXISTS (SELECT 1 FROM owner) FROM strays)`

	// dueOne is what is due in one slot, dueMany in many. Of many, a few of each
	// say how far to go at most: to where there are as many before as are wanted.
	dueOne = `SELECT ctid AS place, due_at, seq, key_hash FROM posthouse_work
		WHERE queue = $1 AND state = 0 AND slot = $8 AND (due_at, seq + 0) > ($9, $10)
		AND due_at <= (SELECT t FROM clock) AND ` + permitted + `
		ORDER BY due_at, seq + 0 LIMIT $4`
	few = `, few AS MATERIALIZED (
			SELECT s.slot, w.due_at, w.seq FROM unnest($8::int[]) AS s (slot) CROSS JOIN LATERAL (
				SELECT due_at, seq FROM posthouse_work
				WHERE queue = $1 AND state = 0 AND slot = s.slot AND (due_at, seq + 0) > ($9, $10)
				AND due_at <= (SELECT t FROM clock) AND ` + permitted + `
				ORDER BY due_at, seq + 0 LIMIT $13) w
		), bound AS MATERIALIZED (
			SELECT coalesce(max(due_at), 9223372036854775807) AS due_at, coalesce(max(seq), 9223372036854775807) AS seq
			FROM (SELECT due_at, seq FROM few ORDER BY due_at, seq LIMIT 1 OFFSET $4::bigint - 1) furthest
		)`
	dueMany = `SELECT w.* FROM (SELECT slot FROM few GROUP BY slot) s CROSS JOIN LATERAL (
			SELECT ctid AS place, due_at, seq, key_hash FROM posthouse_work
			WHERE queue = $1 AND state = 0 AND slot = s.slot AND (due_at, seq + 0) > ($9, $10)
			AND (due_at, seq + 0) <= ((SELECT due_at FROM bound), (SELECT seq FROM bound)) AND due_at <= (SELECT t FROM clock)
			ORDER BY due_at, seq + 0 LIMIT $4) w
		ORDER BY w.due_at, w.seq LIMIT $4`
	// dueManyShared goes no further into each slot than the limit: how many are
	// locked is not known before.
	dueManyShared = `SELECT w.* FROM unnest($8::int[]) AS s (slot) CROSS JOIN LATERAL (
			SELECT ctid AS place, due_at, seq, key_hash FROM posthouse_work
			WHERE queue = $1 AND state = 0 AND slot = s.slot AND (due_at, seq + 0) > ($9, $10)
			AND due_at <= (SELECT t FROM clock) AND ` + permitted + `
			ORDER BY due_at, seq + 0 LIMIT $4` + skipLocked + `) w
		ORDER BY w.due_at, w.seq LIMIT $4`
	skipLocked = ` FOR UPDATE SKIP LOCKED`

	// blocks judges the work that was looked at, together with all that is not
	// finished of the same keys up to it, by seq: each work is held up by one
	// before it that is processing or that this look passed over, and by one that
	// is due later, with which it becomes due.
	blocks = `, keys AS MATERIALIZED (
			SELECT key_hash, max(seq) AS upto FROM looked WHERE key_hash <> 0 GROUP BY key_hash
		), last AS MATERIALIZED (
			SELECT due_at, seq FROM looked ORDER BY due_at DESC, seq DESC LIMIT 1
		), judged AS MATERIALIZED (
			SELECT h.place, h.seq, h.due_at, k.key_hash,
				h.state = 0 AND (h.due_at, h.seq) > ($9, $10)
					AND (h.due_at, h.seq) <= ((SELECT due_at FROM last), (SELECT seq FROM last)) AS candidate,
				coalesce(bool_or(h.state = 1 OR (h.due_at, h.seq) <= ($9, $10)) OVER before, false) AS behind,
				max(h.due_at) FILTER (WHERE h.state = 0) OVER before AS latest
			FROM keys k CROSS JOIN LATERAL (
				SELECT ctid AS place, seq, due_at, state FROM posthouse_work
				WHERE queue = $1 AND key_hash = k.key_hash AND key_hash <> 0 AND state < 2 AND seq <= k.upto OFFSET 0) h
			WINDOW before AS (PARTITION BY k.key_hash ORDER BY h.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
		), found AS MATERIALIZED (
			SELECT place, due_at, seq FROM (
				SELECT place, due_at, seq, bool_or(behind OR coalesce(latest > due_at, false))
					OVER (PARTITION BY key_hash ORDER BY due_at, seq) AS stopped
				FROM judged WHERE candidate
				UNION ALL SELECT place, due_at, seq, false FROM looked WHERE key_hash = 0) c
			WHERE NOT stopped ORDER BY due_at, seq LIMIT %limit
		), deferred AS (
			UPDATE posthouse_work w SET due_at = j.latest FROM judged j
			WHERE j.candidate AND j.latest > j.due_at AND w.seq = j.seq AND w.state + 0 = 0 AND w.due_at = j.due_at
		)`

	changed = `, changed AS (
			UPDATE posthouse_work w SET state = 1, token = $3, owner = $2,
				started_at = CASE WHEN NOT $11 OR (lost > 0 AND retry_count >= $12) THEN 0 ELSE (SELECT t FROM clock) END
			WHERE ctid = ANY (ARRAY(SELECT place FROM found)) AND state + 0 = 0 AND due_at + 0 <= (SELECT t FROM clock)
			RETURNING ` + workColumns + `
		)
		SELECT NOT EXISTS (SELECT 1 FROM source), strays.found, `
	// unmoved is 0, or an error where not all that was found is taken. The text is
	// what the server's log shows.
	unmoved = `(CASE WHEN (SELECT count(*) FROM found) > (SELECT count(*) FROM changed)
			THEN 'work was moved while it was being claimed, and is claimed again' ELSE '0' END)::int, `
	// looks is how many rows were looked at, and the last of them.
	looks        = `(SELECT count(*) FROM looked), (SELECT due_at FROM last), (SELECT seq FROM last), `
	claimEnd     = workColumns + `, ` + messageColumns + ` FROM strays LEFT JOIN (changed w ` + withMessage + `) ON true`
	claimEndBare = workColumns + ` FROM strays LEFT JOIN changed w ON true`
)

// claimForm says what claims differ in.
type claimForm struct{ many, shared, block, bare bool }

// few says whether the claim finds out first how far to go.
func (f claimForm) few() bool { return f.many && !f.shared }

var claimStatements = func() map[claimForm]string {
	all := map[claimForm]string{}
	for _, many := range []bool{false, true} {
		for _, shared := range []bool{false, true} {
			for _, block := range []bool{false, true} {
				for _, bare := range []bool{false, true} {
					f := claimForm{many, shared, block, bare}
					all[f] = f.statement()
				}
			}
		}
	}
	return all
}()

func (f claimForm) statement() string {
	sql, due := claimHead, dueOne
	switch {
	case f.few():
		sql, due = claimHead+few, dueMany
	case f.many:
		due = dueManyShared
	case f.shared:
		due = dueOne + skipLocked
	}
	end := claimEnd
	if f.bare {
		end = claimEndBare
	}
	if !f.shared {
		end = unmoved + end
	}
	if f.block {
		limit := "$13"
		if f.few() {
			limit = "$14"
		}
		blocks := strings.ReplaceAll(blocks, "%limit", limit)
		return sql + `, looked AS MATERIALIZED (` + due + `)` + blocks + changed + looks + end
	}
	return sql + `, found AS MATERIALIZED (` + due + `)` + changed + end
}

const (
	// maxWindows bounds how many times a claim looks further, where all that it
	// saw was held up by others of the same keys. Each time it looks at more.
	maxWindows = 8
	minWindow  = 64
	maxWindow  = 4096
	// maxMoved bounds how many times a claim is made that had no effect, since
	// others moved what it found. Each time, one of them went on.
	maxMoved = 32
)

// ClaimWork moves due work to processing.
func (s *Store) ClaimWork(ctx context.Context, p model.ClaimParams) (claimed model.Claimed, err error) {
	form := claimForm{many: len(p.Slots) != 1, shared: p.Shared, block: p.Block, bare: p.Bare}
	look := claimLook{after: model.Cursor{DueAt: p.Floor}, rows: p.Limit}
	if p.Block {
		look.rows = max(min(4*p.Limit, p.Limit+256), minWindow)
	}
	err = s.write(ctx, "claim", func(ctx context.Context, c conn) error {
		for range maxWindows {
			more, err := look.claim(ctx, c, form, &p, &claimed)
			if err != nil || !more || len(claimed.Works) > 0 {
				return err
			}
			look.rows = max(look.rows, min(2*look.rows, maxWindow))
		}
		return nil
	})
	if err != nil {
		return model.Claimed{}, err
	}
	slices.SortFunc(claimed.Works, func(a, b model.Work) int {
		return cmp.Or(cmp.Compare(a.DueAt, b.DueAt), cmp.Compare(a.Seq, b.Seq))
	})
	return claimed, nil
}

// claimLook is where a claim looks, and at how many rows.
type claimLook struct {
	after model.Cursor
	rows  int
}

var errMoved = errors.New("others claim from the same slots all the time; one at a time must")

// moved says that a claim had no effect since unmoved was an error.
func moved(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "22P02" // not a number
}

// claim claims what it sees, goes to where the next look begins, and says
// whether there may be more.
func (l *claimLook) claim(ctx context.Context, c conn, form claimForm, p *model.ClaimParams, claimed *model.Claimed) (more bool, err error) {
	given := takeParams()
	defer given.giveBack()
	given.int4(int32(p.Queue))
	given.int8(int64(p.Owner))
	given.int8(int64(p.Token))
	given.int8(int64(l.rows))
	given.int8(p.Generation)
	from, to := p.KeyID.SlotRange()
	given.int4(int32(from))
	given.int4(int32(to))
	if form.many {
		given.int4s(len(p.Slots), func(i int) int32 { return int32(p.Slots[i]) })
	} else {
		given.int4(int32(p.Slots[0]))
	}
	given.int8(int64(l.after.DueAt))
	given.int8(int64(l.after.Seq))
	given.bool(p.Start)
	given.int4(int32(min(p.AloneFrom, math.MaxInt32)))
	if form.few() {
		given.int8(int64(l.rows/max(len(p.Slots), 1) + 4))
	}
	if form.block {
		given.int8(int64(p.Limit))
	}
	given.done()
	looked := 0
	after := l.after
	run := func() error {
		*claimed = model.Claimed{}
		return c.run(ctx, claimStatements[form], given, func(r *row) error {
			claimed.Outdated, claimed.Misplaced = r.bool(), r.bool()
			if form.block {
				looked = int(r.int())
				after.DueAt, after.Seq = model.Micros(r.int()), model.Seq(r.int())
			}
			if !form.shared {
				r.next() // unmoved
			}
			r.work(&claimed.Works, form.bare)
			return nil
		})
	}
	for try := 1; ; try++ {
		if err = run(); !moved(err) || ctx.Err() != nil {
			break
		}
		if try == maxMoved {
			return false, &model.Error{Code: model.CodeUnavailable, Op: "claim", Err: errMoved}
		}
		pause(ctx, rand.N(time.Duration(try)*time.Millisecond))
	}
	more = err == nil && looked >= l.rows && looked > 0
	if more {
		l.after = after
	}
	return more, err
}
