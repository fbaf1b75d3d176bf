package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// settle ends any number of claims of any kind in one statement. The rows are
// locked first, in the order of seq. Kinds are the numbers of
// model.SettleKind: 1 success, 2 retry, 3 failed, 4 release.
const settle = `WITH given AS MATERIALIZED (
		SELECT * FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::int[], $5::bigint[], $6::bool[], $7::bigint[], $8::bigint[],
			$9::int[], $10::int[], $11::int[], $12::text[], $13::text[])
			AS g (seq, queue, token, kind, delay, lost, started_at, ended_at, retry_count, replay, http_status, reason, error)
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
			state = CASE WHEN g.kind = 3 THEN 2 ELSE 0 END,
			due_at = CASE WHEN g.kind = 4 AND g.delay <= 0 THEN w.due_at WHEN g.kind = 3 THEN clock.t ELSE clock.t + g.delay END,
			retry_count = CASE WHEN g.kind = 4 THEN w.retry_count ELSE g.retry_count + 1 END,
			lost = w.lost + CASE WHEN g.kind <> 4 AND g.lost THEN 1 ELSE 0 END
		FROM held g, clock
		WHERE g.kind <> 1 AND w.seq = g.seq AND w.state + 0 = 1 AND w.token = g.token
		RETURNING g.*
	), outcomes AS (
		INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status)
		SELECT g.seq, g.started_at, clock.t, g.queue, g.retry_count + 1, g.retry_count, g.replay, g.http_status FROM gone g, clock
	), attempts AS (
		INSERT INTO posthouse_attempt (seq, started_at, ended_at, replay, n, http_status, outcome, reason, error)
		SELECT g.seq, g.started_at, g.ended_at, g.replay, g.retry_count + 1, g.http_status,
			CASE WHEN g.lost THEN 'lost' ELSE 'failed' END, g.reason, g.error
		FROM changed g WHERE g.kind <> 4
	), counted AS (
		` + count + `SELECT queue, $14, count(*) FROM gone GROUP BY queue ORDER BY queue` + counting + `
	)
	SELECT seq, token FROM gone UNION ALL SELECT seq, token FROM changed`

// Settle ends claims.
func (s *Store) Settle(ctx context.Context, settlements []model.Settlement) ([]bool, error) {
	if len(settlements) == 0 {
		return nil, nil
	}
	const op = "settle"
	for i := range settlements {
		if kind := settlements[i].Kind; kind < model.SettleSuccess || kind > model.SettleRelease {
			return nil, &model.Error{Code: model.CodeInvalid, Op: op, Err: errors.New("a settlement of no known kind")}
		}
	}
	type key struct {
		seq   model.Seq
		token model.Token
	}
	order := columns.Order(settlements)
	place := make(map[key]int, len(order))
	for _, i := range order {
		place[key{settlements[i].Seq, settlements[i].Token}] = i
	}
	args := append(settleArgs(settlements, order), s.shard)
	var applied []bool
	err := s.write(ctx, op, func(ctx context.Context, c *pgxpool.Conn) error {
		applied = make([]bool, len(settlements))
		return commit(ctx, c, crashpoint.BeforeSettle, func(e executor) error {
			return query(ctx, e, func(rows pgx.Rows) error {
				var k key
				if err := rows.Scan(&k.seq, &k.token); err != nil {
					return err
				}
				applied[place[k]] = true
				return nil
			}, settle, args...)
		})
	})
	if err != nil {
		return nil, err
	}
	crashpoint.Hit(crashpoint.AfterSettle)
	return applied, nil
}

func settleArgs(settlements []model.Settlement, order []int) []any {
	n := len(order)
	var (
		seqs, tokens, delays, started, ended = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
		queues, kinds, retries, replays      = make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
		statuses                             = make([]int32, n)
		lost                                 = make([]bool, n)
		reasons, errs                        = make([]string, n), make([]string, n)
	)
	for to, from := range order {
		s := &settlements[from]
		seqs[to], tokens[to], queues[to], kinds[to] = int64(s.Seq), int64(s.Token), int32(s.Queue), int32(s.Kind)
		delays[to], lost[to] = max(s.Delay.Microseconds(), 0), s.Lost
		started[to], ended[to] = int64(s.StartedAt), int64(s.StartedAt.Add(s.Duration))
		retries[to], replays[to], statuses[to] = int32(s.RetryCount), int32(s.Replay), int32(s.HTTPStatus)
		if s.Kind == model.SettleRetry || s.Kind == model.SettleFailed {
			reasons[to], errs[to] = columns.Text(string(s.Reason)), model.CleanError(s.Error)
		}
	}
	return []any{seqs, queues, tokens, kinds, delays, lost, started, ended, retries, replays, statuses, reasons, errs}
}

// Replay makes failed messages pending again, with force also successful ones.
func (s *Store) Replay(ctx context.Context, ids []uuid.UUID, force bool) ([]model.ReplayResult, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	wanted := make([][16]byte, len(ids))
	for i, id := range ids {
		wanted[i] = id
	}
	var results []model.ReplayResult
	err := s.write(ctx, "replay", func(ctx context.Context, c *pgxpool.Conn) error {
		// Each id that is there, once, and whether this statement replayed it.
		replayed := map[uuid.UUID]bool{}
		err := query(ctx, c, func(rows pgx.Rows) error {
			var id [16]byte
			var done bool
			if err := rows.Scan(&id, &done); err != nil {
				return err
			}
			replayed[id] = done
			return nil
		}, replay, wanted, force, s.shard)
		if err != nil {
			return err
		}
		results = make([]model.ReplayResult, len(ids))
		for i, id := range ids {
			switch done, found := replayed[id]; {
			case done:
				results[i] = model.Replayed
				replayed[id] = false // a second time it is pending
			case found:
				results[i] = model.ReplayRefused
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// replay takes the rows in the order of seq.
const replay = `WITH clock AS MATERIALIZED (
		SELECT ` + now + ` AS t
	), found AS MATERIALIZED (
		SELECT id, seq FROM posthouse_message WHERE id = ANY ($1::uuid[]) ORDER BY seq
	), failed AS (
		UPDATE posthouse_work SET state = 0, due_at = (SELECT t FROM clock), retry_count = 0, lost = 0, replay = replay + 1
		WHERE seq = ANY (ARRAY(SELECT w.seq FROM posthouse_work w WHERE w.seq = ANY (ARRAY(SELECT seq FROM found)) AND w.state + 0 = 2
			ORDER BY w.seq FOR UPDATE)) AND state + 0 = 2
		RETURNING seq
	), succeeded AS (
		DELETE FROM posthouse_outcome
		WHERE $2 AND seq = ANY (ARRAY(SELECT o.seq FROM posthouse_outcome o WHERE $2 AND o.seq = ANY (ARRAY(SELECT seq FROM found))
			ORDER BY o.seq FOR UPDATE))
		RETURNING seq, source, replay
	), again AS (
		INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
		SELECT seq, (SELECT t FROM clock), 0, 0, 0, source, 0, 0, replay + 1, 0 FROM succeeded
	), counted AS (
		` + count + `SELECT source, $3, -count(*) FROM succeeded GROUP BY source ORDER BY source` + counting + `
	)
	SELECT found.id, found.seq IN (SELECT seq FROM failed UNION ALL SELECT seq FROM succeeded) FROM found`
