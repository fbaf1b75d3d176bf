package postgres

import (
	"context"
	"errors"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// settleSuccess ends claims whose work succeeded, of which each seq is given
// once. The seqs ascend, and so a seq tells its place. The server takes them in
// that order, and no row has to be found twice.
const settleSuccess = settleGone + `INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status)
		SELECT ` + settled + settledEnd

// settleAccepted also keeps providers' ids, $8, of deliveries.
const settleAccepted = settleGone + `INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status, provider_id)
		SELECT ` + settled + `, ($8::text[])[place]` + settledEnd

const (
	settleGone = `WITH clock AS MATERIALIZED (
		SELECT ` + now + ` AS t
	), gone AS (
		DELETE FROM posthouse_work
		WHERE seq = ANY ($1::bigint[]) AND state + 0 = 1 AND token = ($2::bigint[])[width_bucket(seq, $1::bigint[])]
		RETURNING seq, width_bucket(seq, $1::bigint[]) AS place
	), outcomes AS (
		`
	settled = `seq, ($4::bigint[])[place], clock.t, ($3::int[])[place], ($5::int[])[place] + 1, ($5::int[])[place],
			($6::int[])[place], ($7::int[])[place]`
	settledEnd = `
		FROM gone, clock
	), counted AS (
		` + count + `SELECT ($3::int[])[place], count(*) FROM gone GROUP BY 1
	)
	SELECT place FROM gone`
)

// settle ends any number of claims of any kind in one statement. The rows are
// locked first, in the order of seq. Kinds are the numbers of
// model.SettleKind: 1 success, 2 retry, 3 failed, 4 release, 5 dead, 6 uncertain.
const settle = `WITH given AS MATERIALIZED (
		SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::bigint[], $5::int[], $6::int[], $7::int[],
			$8::int[], $9::bigint[], $10::bool[], $11::bigint[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[]) WITH ORDINALITY
			AS g (seq, token, queue, started_at, retry_count, replay, http_status, kind, delay, lost, ended_at, outcome, reason, error,
				code, provider_id, place)
	), held AS MATERIALIZED (
		SELECT g.* FROM given g JOIN posthouse_work w ON w.seq = g.seq AND w.state + 0 = 1 AND w.token = g.token
		ORDER BY w.seq FOR UPDATE OF w
	), clock AS MATERIALIZED (
		SELECT ` + now + ` AS t
	), gone AS (
		DELETE FROM posthouse_work w USING held g
		WHERE g.kind = 1 AND w.seq = g.seq AND w.state + 0 = 1 AND w.token = g.token
		RETURNING g.*
	), changed AS (
		UPDATE posthouse_work w SET token = 0, owner = 0, started_at = 0,
			state = CASE g.kind WHEN 3 THEN 2 WHEN 5 THEN 4 WHEN 6 THEN 5 ELSE 0 END,
			due_at = CASE WHEN g.kind = 4 AND g.delay <= 0 THEN w.due_at WHEN g.kind IN (3, 5, 6) THEN clock.t ELSE clock.t + g.delay END,
			retry_count = CASE WHEN g.kind = 4 THEN w.retry_count ELSE g.retry_count + 1 END,
			lost = w.lost + CASE WHEN g.kind <> 4 AND g.lost THEN 1 ELSE 0 END
		FROM held g, clock
		WHERE g.kind <> 1 AND w.seq = g.seq AND w.state + 0 = 1 AND w.token = g.token
		RETURNING g.*
	), outcomes AS (
		INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status, provider_id)
		SELECT g.seq, g.started_at, clock.t, g.queue, g.retry_count + 1, g.retry_count, g.replay, g.http_status, g.provider_id
		FROM gone g, clock
	), attempts AS (
		INSERT INTO posthouse_attempt (seq, started_at, ended_at, replay, n, http_status, outcome, reason, error, code)
		SELECT g.seq, g.started_at, g.ended_at, g.replay, g.retry_count + 1, g.http_status, g.outcome, g.reason, g.error, g.code
		FROM changed g WHERE g.kind <> 4
	), counted AS (
		` + count + `SELECT queue, count(*) FROM gone GROUP BY queue
	)
	SELECT place FROM gone UNION ALL SELECT place FROM changed`

// Settle ends claims.
func (s *Store) Settle(ctx context.Context, settlements []model.Settlement) ([]bool, error) {
	if len(settlements) == 0 {
		return nil, nil
	}
	const op = "settle"
	statement := settleSuccess
	for i := range settlements {
		kind := settlements[i].Kind
		if kind < model.SettleSuccess || kind > model.SettleUncertain {
			return nil, &model.Error{Code: model.CodeInvalid, Op: op, Err: errors.New("a settlement of no known kind")}
		}
		switch {
		case kind != model.SettleSuccess:
			statement = settle
		case settlements[i].ProviderID != "" && statement == settleSuccess:
			statement = settleAccepted
		}
	}
	order := columns.Order(settlements)
	for i, from := range order[1:] {
		if settlements[from].Seq == settlements[order[i]].Seq {
			statement = settle // one row, of which only one of them can be right
		}
	}
	given := takeParams()
	defer given.giveBack()
	given.settlements(settlements, order, statement)
	var applied []bool
	err := s.write(ctx, op, func(ctx context.Context, c conn) error {
		applied = make([]bool, len(settlements))
		return commit(ctx, c, crashpoint.BeforeSettle, func(c conn) error {
			return c.run(ctx, statement, given, func(r *row) error {
				applied[order[r.int()-1]] = true
				return nil
			})
		})
	})
	if err != nil {
		return nil, err
	}
	crashpoint.Hit(crashpoint.AfterSettle)
	s.gatherNowAndThen(ctx)
	return applied, nil
}

// settlements makes the parameters of one of the statements. They begin alike.
func (p *params) settlements(settlements []model.Settlement, order []int, statement string) {
	n := len(order)
	at := func(i int) *model.Settlement { return &settlements[order[i]] }
	p.int8s(n, func(i int) int64 { return int64(at(i).Seq) })
	p.int8s(n, func(i int) int64 { return int64(at(i).Token) })
	p.int4s(n, func(i int) int32 { return int32(at(i).Queue) })
	p.int8s(n, func(i int) int64 { return int64(at(i).StartedAt) })
	p.int4s(n, func(i int) int32 { return int32(at(i).RetryCount) })
	p.int4s(n, func(i int) int32 { return int32(at(i).Replay) })
	p.int4s(n, func(i int) int32 { return int32(at(i).HTTPStatus) })
	if statement == settle {
		tells := func(s *model.Settlement) bool { return s.Kind != model.SettleSuccess && s.Kind != model.SettleRelease }
		p.int4s(n, func(i int) int32 { return int32(at(i).Kind) })
		p.int8s(n, func(i int) int64 { return max(at(i).Delay.Microseconds(), 0) })
		p.bools(n, func(i int) bool { return at(i).Lost })
		p.int8s(n, func(i int) int64 { return int64(at(i).StartedAt.Add(at(i).Duration)) })
		p.texts(n, func(i int) string { return columns.Outcome(at(i)) })
		p.texts(n, func(i int) string {
			if s := at(i); tells(s) {
				return columns.Text(string(s.Reason))
			}
			return ""
		})
		p.texts(n, func(i int) string {
			if s := at(i); tells(s) {
				return model.CleanError(s.Error)
			}
			return ""
		})
		p.texts(n, func(i int) string {
			if s := at(i); tells(s) {
				return columns.Short(s.Code, model.MaxErrorCode)
			}
			return ""
		})
	}
	if statement != settleSuccess {
		p.texts(n, func(i int) string {
			if s := at(i); s.Kind == model.SettleSuccess {
				return columns.Short(s.ProviderID, model.MaxProviderID)
			}
			return ""
		})
	}
	p.done()
}
