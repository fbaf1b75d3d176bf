package sqlite

import (
	"context"
	"database/sql"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// standing is where a delivery stands, for those who would change it.
type standing struct {
	seq       model.Seq
	id        uuid.UUID
	channel   model.SourceID
	done      bool // by the insert: there is nothing to send
	erased    bool
	expiresAt model.Micros
	status    model.DeliveryStatus
}

const showStandings = `SELECT d.seq, d.id, d.channel, d.done, r.secret AND x.request IS NULL, r.expires_at,
		coalesce(w.state, 3), coalesce(w.retry_count, 0), coalesce(o.delivered_at, 0) <> 0
	FROM posthouse_delivery d JOIN posthouse_request r ON r.seq = d.request
	LEFT JOIN posthouse_secret x ON x.request = r.seq
	LEFT JOIN posthouse_work w ON w.seq = d.seq
	LEFT JOIN posthouse_outcome o ON o.seq = d.seq`

func standings(t *tx, where string, args ...any) (found []standing, err error) {
	err = t.query(func(rows *sql.Rows) error {
		var d standing
		var id []byte
		var state model.State
		var retries int
		var delivered bool
		err := rows.Scan(&d.seq, &id, &d.channel, &d.done, &d.erased, &d.expiresAt, &state, &retries, &delivered)
		copy(d.id[:], id)
		d.status = model.StatusOf(state, retries, delivered)
		found = append(found, d)
		return err
	}, showStandings+where, args...)
	return found, err
}

// result is what a change came to that made it what it is now.
func (d *standing) result(done bool, is model.DeliveryStatus) model.ChangeResult {
	r := model.ChangeResult{ID: d.id, Found: true, Was: d.status, Is: d.status}
	if done {
		r.Done, r.Is = true, is
	}
	return r
}

// CancelRequest cancels the deliveries of a request that have not begun.
func (s *Store) CancelRequest(ctx context.Context, id uuid.UUID, audit model.Audit) (results []model.ChangeResult, err error) {
	const op = "cancel request"
	err = s.write(ctx, op, func(t *tx) error {
		results = nil
		var request model.Seq
		err := t.query(func(rows *sql.Rows) error { return rows.Scan(&request) }, `SELECT seq FROM posthouse_request WHERE id = ?`, id[:])
		if err == nil && request == 0 {
			return none(op, "no request has that id")
		}
		if err != nil {
			return err
		}
		asked, err := t.exec(`UPDATE posthouse_request SET cancelled_at = ? WHERE seq = ? AND cancelled_at = 0`, t.now, request)
		if err != nil {
			return err
		}
		found, err := standings(t, ` WHERE d.request = ? ORDER BY d.seq`, request)
		if err != nil {
			return err
		}
		cancelled := 0
		for i := range found {
			// due_at becomes the time of the end, as with what failed.
			n, err := t.exec(`UPDATE posthouse_work SET state = 6, due_at = ? WHERE seq = ? AND state = 0`, t.now, found[i].seq)
			if err != nil {
				return err
			}
			cancelled += int(n)
			results = append(results, found[i].result(n == 1, model.DeliveryCancelled))
		}
		if asked == 0 && cancelled == 0 {
			return nil
		}
		return addAudit(t, columns.CancelAudit(id, cancelled, audit))
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Steps of ExpireDeliveries. How many rows one looks at bounds how long it holds
// the only writer.
const (
	expiryStep  = 250
	expirySteps = 64
)

const (
	// passedExpiries reads past what is processing, which may wait again.
	passedExpiries = `SELECT e.expires_at, e.delivery FROM posthouse_expiry e LEFT JOIN posthouse_work w ON w.seq = e.delivery
		WHERE e.expires_at <= ? AND w.state IS NOT 1 ORDER BY e.expires_at, e.delivery LIMIT ?`
	expireWaiting = `UPDATE posthouse_work SET state = 6, due_at = ?1 WHERE state = 0 AND seq IN (SELECT value ->> 1 FROM json_each(?2))`
	// forgetEnded: a replay brings them back.
	forgetEnded = `DELETE FROM posthouse_expiry WHERE (expires_at, delivery) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))
		AND NOT EXISTS (SELECT 1 FROM posthouse_work w WHERE w.seq = posthouse_expiry.delivery AND w.state < 2)`
)

// ExpireDeliveries cancels deliveries that have not begun in time.
func (s *Store) ExpireDeliveries(ctx context.Context, limit int) (expired int, err error) {
	for range expirySteps {
		size := min(limit-expired, expiryStep)
		if size <= 0 {
			break
		}
		looked, cancelled, err := s.expireSome(ctx, size)
		expired += cancelled
		if err != nil || looked < size {
			return expired, err
		}
	}
	return expired, nil
}

// expireSome looks at some deliveries whose time has passed, and cancels those
// that wait. Which they are it reads beside whoever writes: what has changed since
// is left alone.
func (s *Store) expireSome(ctx context.Context, size int) (looked, cancelled int, err error) {
	const op = "expire deliveries"
	var passed tuples
	err = s.read(ctx, op, func(ctx context.Context, snapshot *sql.Tx) error {
		passed, looked = tuples{}, 0
		return queries(ctx, snapshot)(func(rows *sql.Rows) error {
			var at, delivery int64
			err := rows.Scan(&at, &delivery)
			passed.add(at, delivery)
			looked++
			return err
		}, passedExpiries, s.clock.now(), size)
	})
	if err != nil || looked == 0 {
		return 0, 0, err
	}
	err = s.write(ctx, op, func(t *tx) error {
		n, err := t.exec(expireWaiting, t.now, passed.String())
		if err != nil {
			return err
		}
		cancelled = int(n)
		_, err = t.exec(forgetEnded, passed.String())
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return looked, cancelled, nil
}

// ReplayDeliveries makes deliveries that have ended pending again.
func (s *Store) ReplayDeliveries(ctx context.Context, p model.ReplayParams) (results []model.ChangeResult, err error) {
	if len(p.IDs) == 0 {
		return nil, nil
	}
	err = s.write(ctx, "replay deliveries", func(t *tx) error {
		results = make([]model.ChangeResult, len(p.IDs))
		for i, id := range p.IDs {
			found, err := standings(t, ` WHERE d.id = ?`, id[:])
			if err != nil {
				return err
			}
			if len(found) == 0 {
				results[i] = model.ChangeResult{ID: id}
				continue
			}
			if results[i], err = replayDelivery(t, &found[0], p); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func replayDelivery(t *tx, d *standing, p model.ReplayParams) (model.ChangeResult, error) {
	result := d.result(false, "")
	if !columns.MayReplay(d.status, p.Force) || d.done {
		return result, nil
	}
	if d.erased {
		result.Erased = true
		return result, nil
	}
	var done bool
	var err error
	if d.status.Sent() {
		done, err = sendAgain(t, d)
	} else {
		done, err = again(t, d, `state IN (2, 4, 5, 6)`)
	}
	if err != nil || !done {
		return result, err
	}
	return d.result(true, model.DeliveryPending), addAudit(t, columns.ReplayAudit(d.id, d.status, p.Audit))
}

// again makes work pending in the next replay round where it is in one of the
// states.
func again(t *tx, d *standing, states string) (done bool, err error) {
	n, err := t.exec(`UPDATE posthouse_work SET state = 0, due_at = ?, retry_count = 0, lost = 0, replay = replay + 1
		WHERE seq = ? AND `+states, t.now, d.seq)
	if err != nil || n == 0 {
		return false, err
	}
	return true, mayExpire(t, d)
}

// sendAgain takes an outcome back. The attempt that it was, if any, is kept.
func sendAgain(t *tx, d *standing) (done bool, err error) {
	var startedAt, finishedAt model.Micros
	var attempts, replay, status int
	err = t.query(func(rows *sql.Rows) error {
		done = true
		return rows.Scan(&startedAt, &finishedAt, &attempts, &replay, &status)
	}, `DELETE FROM posthouse_outcome WHERE seq = ? RETURNING started_at, finished_at, n, replay, http_status`, d.seq)
	if err != nil || !done {
		return false, err
	}
	if attempts > 0 {
		_, err = t.exec(`INSERT INTO posthouse_attempt (seq, replay, n, started_at, ended_at, outcome, reason, error, http_status)
			VALUES (?, ?, ?, ?, ?, ?, '', '', ?)`, d.seq, replay, attempts, startedAt, finishedAt, model.OutcomeSuccess, status)
		if err != nil {
			return false, err
		}
	}
	_, err = t.exec(`INSERT INTO posthouse_work (seq, queue, state, due_at, token, owner, started_at, retry_count, lost, replay)
		VALUES (?, ?, 0, ?, 0, 0, 0, 0, 0, ?)`, d.seq, d.channel, t.now, replay+1)
	if err != nil {
		return false, err
	}
	if err := mayExpire(t, d); err != nil {
		return false, err
	}
	return true, count(t, map[model.SourceID]int64{d.channel: -1})
}

// mayExpire lets a delivery that is pending again expire.
func mayExpire(t *tx, d *standing) error {
	if d.expiresAt == 0 {
		return nil
	}
	_, err := t.exec(`INSERT INTO posthouse_expiry (expires_at, delivery) VALUES (?, ?) ON CONFLICT DO NOTHING`, d.expiresAt, d.seq)
	return err
}

// ResolveDelivery ends an uncertain delivery.
func (s *Store) ResolveDelivery(ctx context.Context, id uuid.UUID, sent bool, audit model.Audit) (result model.ChangeResult, err error) {
	err = s.write(ctx, "resolve delivery", func(t *tx) error {
		result = model.ChangeResult{ID: id}
		found, err := standings(t, ` WHERE d.id = ?`, id[:])
		if err != nil || len(found) == 0 {
			return err
		}
		d := &found[0]
		if d.status == model.DeliveryUncertain && d.erased && !sent {
			result = d.result(false, "")
			result.Erased = true
			return nil
		}
		is, change := model.DeliveryPending, func() (bool, error) { return again(t, d, `state = 5`) }
		if sent {
			is, change = model.DeliverySucceeded, func() (bool, error) { return sentAfterAll(t, d) }
		}
		done, err := change()
		if err != nil {
			return err
		}
		result = d.result(done, is)
		if !done {
			return nil
		}
		return addAudit(t, columns.ResolveAudit(id, sent, audit))
	})
	if err != nil {
		return model.ChangeResult{}, err
	}
	return result, nil
}

// sentAfterAll gives an uncertain delivery an outcome. No attempt of it is known
// to have succeeded: its n is 0.
func sentAfterAll(t *tx, d *standing) (done bool, err error) {
	var retries, replay int
	err = t.query(func(rows *sql.Rows) error {
		done = true
		return rows.Scan(&retries, &replay)
	}, `DELETE FROM posthouse_work WHERE seq = ? AND state = 5 RETURNING retry_count, replay`, d.seq)
	if err != nil || !done {
		return false, err
	}
	_, err = t.exec(`INSERT INTO posthouse_outcome (seq, source, started_at, finished_at, n, retry_count, replay, http_status)
		VALUES (?, ?, 0, ?, 0, ?, ?, 0)`, d.seq, d.channel, t.now, retries, replay)
	if err != nil {
		return false, err
	}
	return true, count(t, map[model.SourceID]int64{d.channel: 1})
}

// Secrets lists requests that have sensitive values.
func (s *Store) Secrets(ctx context.Context, after model.Seq, limit int) (requests []model.Seq, err error) {
	err = s.read(ctx, "list secrets", func(ctx context.Context, snapshot *sql.Tx) error {
		requests = nil
		return queries(ctx, snapshot)(func(rows *sql.Rows) error {
			var seq model.Seq
			err := rows.Scan(&seq)
			requests = append(requests, seq)
			return err
		}, `SELECT request FROM posthouse_secret WHERE request > ? ORDER BY request LIMIT ?`, after, limit)
	})
	if err != nil {
		return nil, err
	}
	return requests, nil
}

// EraseSecrets erases the sensitive values of requests whose deliveries are all
// final. An uncertain one is not.
func (s *Store) EraseSecrets(ctx context.Context, requests []model.Seq) (erased int, err error) {
	if len(requests) == 0 {
		return 0, nil
	}
	err = s.write(ctx, "erase secrets", func(t *tx) error {
		n, err := t.exec(`DELETE FROM posthouse_secret WHERE request IN (SELECT value FROM json_each(?))
			AND NOT EXISTS (SELECT 1 FROM posthouse_delivery d JOIN posthouse_work w ON w.seq = d.seq AND w.state IN (0, 1, 5)
				WHERE d.request = posthouse_secret.request)`, list(requests))
		erased = int(n)
		return err
	})
	if err != nil {
		return 0, err
	}
	return erased, nil
}
