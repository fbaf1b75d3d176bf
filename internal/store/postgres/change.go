package postgres

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// Operators' changes are transactions of a few statements. Rows of work are
// locked in the order of seq, and each statement sees what was committed before it.

// cancelWork cancels those of deliveries $1 that are pending, and says which.
const cancelWork = `UPDATE posthouse_work SET state = 6, due_at = ` + now + `
	WHERE seq = ANY (ARRAY(SELECT seq FROM posthouse_work WHERE seq = ANY ($1::bigint[]) AND state + 0 = 0 ORDER BY seq FOR UPDATE))
	AND state + 0 = 0 RETURNING seq`

// CancelRequest cancels those deliveries of a request that are waiting.
func (s *Store) CancelRequest(ctx context.Context, id uuid.UUID, audit model.Audit) (results []model.ChangeResult, err error) {
	const op = "cancel request"
	err = s.write(ctx, op, func(ctx context.Context, c conn) error {
		return transaction(ctx, c, pgx.TxOptions{}, func(c conn) error {
			results = nil
			request, err := queryNumbers(ctx, c, `SELECT seq FROM posthouse_request WHERE id = $1::uuid FOR NO KEY UPDATE`, id)
			if err == nil && len(request) == 0 {
				err = noRequest(op)
			}
			if err != nil {
				return err
			}
			first, err := c.exec(ctx, `UPDATE posthouse_request SET cancelled = true WHERE seq = $1 AND NOT cancelled`, request[0])
			if err != nil {
				return err
			}
			deliveries, err := queryNumbers(ctx, c, `SELECT seq FROM posthouse_delivery WHERE request = $1 ORDER BY seq`, request[0])
			if err != nil {
				return err
			}
			cancelled, err := queryNumbers(ctx, c, cancelWork, deliveries)
			if err != nil {
				return err
			}
			views, err := queryDeliveries(ctx, c, deliveriesOfSeqs, deliveries)
			if err != nil {
				return err
			}
			for _, v := range views {
				r := model.ChangeResult{ID: v.ID, Found: true, Was: v.Status, Is: v.Status}
				if slices.Contains(cancelled, int64(v.Seq)) {
					r.Done = true
					r.Was = model.StatusOf(model.Pending, v.AttemptCount, false)
				}
				results = append(results, r)
			}
			if first == 0 && len(cancelled) == 0 {
				return nil // somebody has said so before
			}
			_, err = c.exec(ctx, insertAudit, auditArgs(columns.CancelAudit(id, len(cancelled), audit))...)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// expire cancels deliveries whose time has passed, $1 at most. What is being
// worked on stays, and what somebody has locked; what is not waiting any more is
// forgotten. It says how many were cancelled, and how many looked at.
//
// A replay may be committed after this statement's snapshot, in which its delivery
// has ended, and before its locks. It makes a version of the row in another place,
// which is left alone.
const expire = `WITH clock AS MATERIALIZED (
		SELECT ` + now + ` AS t
	), passed AS MATERIALIZED (
		SELECT e.expires_at, e.seq, e.ctid AS place, w.state FROM posthouse_expiry e
		LEFT JOIN LATERAL (SELECT state FROM posthouse_work WHERE seq = e.seq OFFSET 0) w ON true
		WHERE e.expires_at <= (SELECT t FROM clock) AND w.state IS DISTINCT FROM 1
		ORDER BY e.expires_at, e.seq LIMIT $1 FOR UPDATE OF e SKIP LOCKED
	), cancelled AS (
		UPDATE posthouse_work SET state = 6, due_at = (SELECT t FROM clock)
		WHERE seq = ANY (ARRAY(SELECT seq FROM posthouse_work WHERE seq = ANY (ARRAY(SELECT seq FROM passed WHERE state = 0)) AND state + 0 = 0
			ORDER BY seq FOR UPDATE SKIP LOCKED)) AND state + 0 = 0
		RETURNING seq
	), forgotten AS (
		DELETE FROM posthouse_expiry e USING passed p WHERE e.expires_at = p.expires_at AND e.seq = p.seq AND e.ctid = p.place
		AND (p.state IS DISTINCT FROM 0 OR p.seq IN (SELECT seq FROM cancelled))
	)
	SELECT (SELECT count(*) FROM cancelled), (SELECT count(*) FROM passed)`

// ExpireDeliveries cancels waiting deliveries whose time has passed.
func (s *Store) ExpireDeliveries(ctx context.Context, limit int) (expired int, err error) {
	// Of most whose time has passed there is nothing to cancel.
	const maxRounds = 16
	for range maxRounds {
		left, cancelled, looked := limit-expired, 0, 0
		if left <= 0 {
			break
		}
		err = s.write(ctx, "expire deliveries", func(ctx context.Context, c conn) error {
			return c.query(ctx, func(rows pgx.Rows) error { return rows.Scan(&cancelled, &looked) }, expire, left)
		})
		expired += cancelled
		if err != nil || looked < left {
			break
		}
	}
	return expired, err
}

// A delivery that is to be changed, as it was found.
type changing struct {
	seq     int64
	request int64
	done    bool // it had succeeded with the insert
	expires model.Micros
	erased  bool
	view    model.DeliveryView
}

const (
	findChanging = `SELECT d.seq, d.request, d.done, r.expires_at FROM posthouse_delivery d
		CROSS JOIN LATERAL (SELECT expires_at FROM posthouse_request WHERE seq = d.request OFFSET 0) r
		WHERE d.id = ANY ($1::uuid[]) ORDER BY d.seq`
	lockWork     = `SELECT seq FROM posthouse_work WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR UPDATE`
	lockOutcomes = `SELECT seq FROM posthouse_outcome WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR UPDATE`
	erasedOf     = `SELECT seq FROM posthouse_request WHERE seq = ANY ($1::bigint[]) AND secret
		AND NOT EXISTS (SELECT 1 FROM posthouse_secret s WHERE s.request = posthouse_request.seq)`
)

// change locks deliveries, and finds out how they stand. What another has locked
// is waited for.
func change(ctx context.Context, c conn, ids []uuid.UUID) ([]changing, error) {
	var all []changing
	var deliveries, requests []int64
	err := c.query(ctx, func(rows pgx.Rows) error {
		var d changing
		err := rows.Scan(&d.seq, &d.request, &d.done, &d.expires)
		all, deliveries, requests = append(all, d), append(deliveries, d.seq), append(requests, d.request)
		return err
	}, findChanging, ids)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	for _, lock := range []struct {
		sql  string
		rows []int64
	}{{lockSecrets, requests}, {lockWork, deliveries}, {lockOutcomes, deliveries}} {
		if _, err := queryNumbers(ctx, c, lock.sql, lock.rows); err != nil {
			return nil, err
		}
	}
	erased, err := queryNumbers(ctx, c, erasedOf, requests)
	if err != nil {
		return nil, err
	}
	views, err := queryDeliveries(ctx, c, deliveriesOfSeqs, deliveries)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].view, all[i].erased = views[i], slices.Contains(erased, all[i].request)
	}
	return all, nil
}

const (
	replayWork = `UPDATE posthouse_work SET state = 0, due_at = ` + now + `, retry_count = 0, lost = 0, replay = replay + 1
		WHERE seq = ANY ($1::bigint[]) AND state + 0 >= 2`
	// replayOutcomes keeps the attempt that had succeeded.
	replayOutcomes = `WITH succeeded AS (
			DELETE FROM posthouse_outcome WHERE seq = ANY ($1::bigint[])
			RETURNING seq, source, replay, n, started_at, finished_at, http_status
		), attempts AS (
			INSERT INTO posthouse_attempt (seq, started_at, ended_at, replay, n, http_status, outcome, reason, error)
			SELECT seq, started_at, finished_at, replay, n, http_status, 'success', '', '' FROM succeeded WHERE n > 0
		), again AS (
			INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
			SELECT seq, ` + now + `, 0, 0, 0, source, 0, 0, replay + 1, 0 FROM succeeded
		)
		` + count + `SELECT source, -count(*) FROM succeeded GROUP BY source`
	// expireAgain locks what is there, or it might be forgotten at this moment.
	expireAgain = `INSERT INTO posthouse_expiry (expires_at, seq) SELECT * FROM unnest($1::bigint[], $2::bigint[]) ORDER BY 1, 2
		ON CONFLICT (expires_at, seq) DO UPDATE SET seq = excluded.seq`
)

// pendAgain makes deliveries that are locked pending again, each in the next
// replay round.
func pendAgain(ctx context.Context, c conn, all []changing) error {
	var sent, rest, expiries, expiring []int64
	for _, d := range all {
		if d.view.Status.Sent() {
			sent = append(sent, d.seq)
		} else {
			rest = append(rest, d.seq)
		}
		if d.expires != 0 {
			expiries, expiring = append(expiries, int64(d.expires)), append(expiring, d.seq)
		}
	}
	for _, step := range []struct {
		sql  string
		args []any
	}{{replayWork, []any{rest}}, {replayOutcomes, []any{sent}}, {expireAgain, []any{expiries, expiring}}} {
		if numbers, ok := step.args[0].([]int64); ok && len(numbers) == 0 {
			continue
		}
		if _, err := c.exec(ctx, step.sql, step.args...); err != nil {
			return err
		}
	}
	return nil
}

// mayReplay says whether a replay makes such a delivery pending.
func (d *changing) mayReplay(force bool) bool {
	switch d.view.Status {
	case model.DeliveryFailed, model.DeliveryDead:
		return true
	case model.DeliveryUncertain, model.DeliverySucceeded, model.DeliveryDelivered, model.DeliveryCancelled:
		return force && !d.done
	case model.DeliveryPending, model.DeliveryProcessing, model.DeliveryRetryWait:
	}
	return false
}

// ReplayDeliveries makes deliveries pending again.
func (s *Store) ReplayDeliveries(ctx context.Context, p model.ReplayParams) (results []model.ChangeResult, err error) {
	if len(p.IDs) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "replay deliveries", func(ctx context.Context, c conn) error {
		return transaction(ctx, c, pgx.TxOptions{}, func(c conn) error {
			found, err := change(ctx, c, p.IDs)
			if err != nil {
				return err
			}
			of := map[uuid.UUID]model.ChangeResult{}
			var replayed []changing
			for _, d := range found {
				r := model.ChangeResult{ID: d.view.ID, Found: true, Was: d.view.Status, Is: d.view.Status}
				switch may := d.mayReplay(p.Force); {
				case may && d.erased:
					r.Erased = true
				case may:
					r.Done, r.Is = true, model.DeliveryPending
					replayed = append(replayed, d)
				}
				of[r.ID] = r
			}
			results = make([]model.ChangeResult, len(p.IDs))
			for i, id := range p.IDs {
				results[i] = of[id]
				results[i].ID = id
				if r := of[id]; r.Done { // a second time it is pending
					of[id] = model.ChangeResult{ID: id, Found: true, Was: r.Is, Is: r.Is}
				}
			}
			if err := pendAgain(ctx, c, replayed); err != nil {
				return err
			}
			return auditAll(ctx, c, replayed, func(d *changing) model.AuditRecord {
				return columns.ReplayAudit(d.view.ID, d.view.Status, p.Audit)
			})
		})
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// auditAll writes a record for each.
func auditAll(ctx context.Context, c conn, all []changing, record func(*changing) model.AuditRecord) error {
	if len(all) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	for i := range all {
		batch.Queue(insertAudit, auditArgs(record(&all[i]))...)
	}
	return c.batch(ctx, batch)
}

// resolveSent ends work that is uncertain with success. No attempt says so.
const resolveSent = `WITH gone AS (
		DELETE FROM posthouse_work WHERE seq = $1 AND state + 0 = 5 RETURNING seq, queue, retry_count, replay
	), outcomes AS (
		INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status)
		SELECT seq, 0, ` + now + `, queue, 0, retry_count, replay, 0 FROM gone
	)
	` + count + `SELECT queue, 1 FROM gone`

// ResolveDelivery ends an uncertain delivery.
func (s *Store) ResolveDelivery(ctx context.Context, id uuid.UUID, sent bool, audit model.Audit) (result model.ChangeResult, err error) {
	err = s.write(ctx, "resolve delivery", func(ctx context.Context, c conn) error {
		return transaction(ctx, c, pgx.TxOptions{}, func(c conn) error {
			result = model.ChangeResult{ID: id}
			found, err := change(ctx, c, []uuid.UUID{id})
			if err != nil || len(found) == 0 {
				return err
			}
			d := found[0]
			result.Found, result.Was, result.Is = true, d.view.Status, d.view.Status
			switch {
			case d.view.Status != model.DeliveryUncertain:
				return nil
			case sent:
				result.Is = model.DeliverySucceeded
				_, err = c.exec(ctx, resolveSent, d.seq)
			case d.erased:
				result.Erased = true
				return nil
			default:
				result.Is = model.DeliveryPending
				err = pendAgain(ctx, c, found)
			}
			if err != nil {
				return err
			}
			result.Done = true
			return auditAll(ctx, c, found, func(*changing) model.AuditRecord { return columns.ResolveAudit(id, sent, audit) })
		})
	})
	if err != nil {
		return model.ChangeResult{}, err
	}
	return result, nil
}
