package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// standing is a delivery that is to be changed.
type standing struct {
	seq       model.Seq
	id        uuid.UUID
	request   model.Seq
	channel   model.SourceID
	done      bool
	secret    bool // its request has sensitive values, or had
	erased    bool // they are gone
	expiresAt model.Micros

	state   model.State
	retries int
	replay  int
	status  model.DeliveryStatus
}

// standings are the deliveries of one change, by seq.
type standings []*standing

// stand finds deliveries d by a condition on an index, and locks them: the secrets of their
// requests by request, and then, each in the order of seq, the deliveries, which
// keeps other operators out, their work, and their outcomes. A settlement that is
// under way has the work; it is waited for, and its outcome is seen then.
func (c *call) stand(begin *script, index, condition string, args ...any) (standings, error) {
	var all standings
	bySeq := map[model.Seq]*standing{}
	var seqs []model.Seq
	secrets := map[model.Seq]bool{}
	var find script
	find.add(`SELECT d.seq, d.id, d.request, d.channel, d.done, r.secret, r.expires_at
		FROM posthouse_delivery d FORCE INDEX (`+index+`) STRAIGHT_JOIN posthouse_request r FORCE INDEX (PRIMARY) ON r.seq = d.request WHERE `+condition, args...)
	err := c.query(&find, func(rows *sql.Rows) error {
		d := &standing{}
		var id []byte
		err := into(rows, &d.seq, &id, &d.request, &d.channel, &d.done, &d.secret, &d.expiresAt)
		copy(d.id[:], id)
		d.erased = d.secret
		if d.secret {
			secrets[d.request] = true
		}
		bySeq[d.seq] = d
		seqs = append(seqs, d.seq)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		all = append(all, bySeq[seq])
	}
	var scans []func(*sql.Rows) error
	if len(secrets) > 0 {
		begin.add(`SELECT request FROM posthouse_secret FORCE INDEX (PRIMARY) WHERE request IN (` + list(sorted(secrets)) + `) ORDER BY request FOR UPDATE`)
		scans = append(scans, func(rows *sql.Rows) error {
			var request model.Seq
			err := into(rows, &request)
			for _, d := range all {
				d.erased = d.erased && d.request != request
			}
			return err
		})
	}
	if len(seqs) > 0 {
		which := ` FORCE INDEX (PRIMARY) WHERE seq IN (` + list(seqs) + `) ORDER BY seq FOR UPDATE`
		begin.add(`SELECT seq FROM posthouse_delivery` + which)
		begin.add(`SELECT seq, state, retry_count, replay, 0 FROM posthouse_work` + which)
		begin.add(`SELECT seq, 3, retry_count, replay, delivered_at > 0 FROM posthouse_outcome` + which)
		works, outcomes := scanStanding(bySeq), scanStanding(bySeq)
		scans = append(scans, func(*sql.Rows) error { return nil }, works, outcomes)
	}
	if len(scans) == 0 {
		return nil, c.send(begin)
	}
	err = c.query(begin, scans...)
	*begin = script{}
	return all, err
}

func scanStanding(bySeq map[model.Seq]*standing) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var seq model.Seq
		var is standing
		delivered := false
		err := into(rows, &seq, &is.state, &is.retries, &is.replay, &delivered)
		if d := bySeq[seq]; d != nil {
			d.state, d.retries, d.replay = is.state, is.retries, is.replay
			d.status = model.StatusOf(is.state, is.retries, delivered)
		}
		return err
	}
}

// byIDs is the condition of stand for ids.
func byIDs(ids []uuid.UUID) (condition string, args []any) {
	for i := range ids {
		args = append(args, ids[i][:])
	}
	return `d.id IN (` + repeat("?", len(ids)) + `)`, args
}

// pending makes deliveries that ended pending again, due now, in the next replay
// round. Of one that had succeeded the attempt is kept.
func (s *script) pending(deliveries standings, shard int) {
	if len(deliveries) == 0 {
		return
	}
	var works, outcomes []model.Seq
	var fresh, expiring []any
	counts := map[model.SourceID]int64{}
	for _, d := range deliveries {
		if d.state == model.Success {
			outcomes = append(outcomes, d.seq)
			fresh = append(fresh, d.seq, d.channel, d.replay+1)
			counts[d.channel]--
		} else {
			works = append(works, d.seq)
		}
		if d.expiresAt != 0 {
			expiring = append(expiring, d.expiresAt, d.seq)
		}
	}
	if len(works) > 0 {
		s.add(`UPDATE posthouse_work w FORCE INDEX (PRIMARY) SET w.state = 0, w.key_hash = 0, w.due_at = @now, w.retry_count = 0, w.lost = 0,
			w.replay = w.replay + 1 WHERE w.seq IN (` + list(works) + `) AND w.state > 1`)
	}
	if len(outcomes) > 0 {
		s.add(`INSERT INTO posthouse_attempt (seq, replay, n, started_at, ended_at, http_status, outcome, reason, error)
			SELECT seq, replay, n, started_at, finished_at, http_status, ?, '', '' FROM posthouse_outcome FORCE INDEX (PRIMARY)
			WHERE seq IN (`+list(outcomes)+`) AND n > 0`, model.OutcomeSuccess)
		s.add(`DELETE FROM posthouse_outcome WHERE seq IN (` + list(outcomes) + `)`)
		s.add(`INSERT INTO posthouse_work (slot, key_hash, state, due_at, token, owner, started_at, retry_count, lost, seq, queue, replay) VALUES `+
			repeat(`(0,0,0,@now,0,0,0,0,0,?,?,?)`, len(outcomes)), fresh...)
		count(s, counts, shard)
	}
	if len(expiring) > 0 {
		s.add(`INSERT INTO posthouse_expiry (expires_at, seq) VALUES `+repeat(`(?,?)`, len(expiring)/2)+
			` ON DUPLICATE KEY UPDATE seq = posthouse_expiry.seq`, expiring...)
	}
}

// cancelled makes pending deliveries cancelled.
func (s *script) cancelled(seqs []model.Seq) {
	s.add(`UPDATE posthouse_work w FORCE INDEX (PRIMARY) SET w.state = ?, w.key_hash = ?, w.due_at = @now
		WHERE w.seq IN (`+list(seqs)+`) AND w.state = 0`, model.Cancelled, groupOf(model.Cancelled, true))
}

// finish ends the transaction of a change with records of what was done.
func (c *call) finish(todo *script, records []model.AuditRecord) error {
	for some := range slices.Chunk(records, someRows) {
		if err := c.relieve(todo); err != nil {
			return err
		}
		todo.audit(some...)
	}
	todo.add(`COMMIT`)
	_, err := c.exec(todo)
	return err
}

// CancelRequest cancels those deliveries of a request that wait.
func (s *Store) CancelRequest(ctx context.Context, id uuid.UUID, audit model.Audit) (results []model.ChangeResult, err error) {
	const op = "cancel request"
	err = s.write(ctx, op, func(c *call) error {
		results = nil
		var request model.Seq
		before := false
		var todo script
		todo.add(`START TRANSACTION`)
		todo.add(setNow)
		todo.add(`SELECT seq, cancelled FROM posthouse_request FORCE INDEX (posthouse_request_id) WHERE id = ? FOR UPDATE`, id[:])
		if err := c.query(&todo, func(rows *sql.Rows) error { return into(rows, &request, &before) }); err != nil {
			return err
		}
		if request == 0 {
			return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no request has that id")}
		}
		todo = script{}
		todo.add(`UPDATE posthouse_request SET cancelled = 1 WHERE seq = ?`, request)
		deliveries, err := c.stand(&todo, `posthouse_delivery_purpose`, `d.request = ?`, request)
		if err != nil {
			return err
		}
		var waiting []model.Seq
		for _, d := range deliveries {
			r := model.ChangeResult{ID: d.id, Found: true, Was: d.status, Is: d.status}
			if d.state == model.Pending {
				r.Done, r.Is = true, model.DeliveryCancelled
				waiting = append(waiting, d.seq)
			}
			results = append(results, r)
		}
		if len(waiting) == 0 && before {
			return c.rollback()
		}
		if len(waiting) > 0 {
			todo.cancelled(waiting)
		}
		return c.finish(&todo, []model.AuditRecord{columns.CancelAudit(id, len(waiting), audit)})
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// ReplayDeliveries makes deliveries pending again.
func (s *Store) ReplayDeliveries(ctx context.Context, p model.ReplayParams) (results []model.ChangeResult, err error) {
	if len(p.IDs) == 0 {
		return nil, nil
	}
	condition, args := byIDs(p.IDs)
	err = s.write(ctx, "replay deliveries", func(c *call) error {
		var todo script
		todo.add(`START TRANSACTION`)
		todo.add(setNow)
		deliveries, err := c.stand(&todo, `posthouse_delivery_id`, condition, args...)
		if err != nil {
			return err
		}
		found := make(map[uuid.UUID]*standing, len(deliveries))
		for _, d := range deliveries {
			found[d.id] = d
		}
		results = make([]model.ChangeResult, len(p.IDs))
		var replayed standings
		var records []model.AuditRecord
		for i, id := range p.IDs {
			results[i].ID = id
			d := found[id]
			if d == nil {
				continue
			}
			r := model.ChangeResult{ID: id, Found: true, Was: d.status, Is: d.status}
			switch {
			case !replayable(d, p.Force):
			case d.erased:
				r.Erased = true
			default:
				r.Done, r.Is = true, model.DeliveryPending
				replayed = append(replayed, d)
				records = append(records, columns.ReplayAudit(id, d.status, p.Audit))
				d.status = model.DeliveryPending // for whoever names it twice
			}
			results[i] = r
		}
		if len(replayed) == 0 {
			return c.rollback()
		}
		slices.SortFunc(replayed, func(a, b *standing) int { return cmp.Compare(a.seq, b.seq) })
		todo.pending(replayed, s.shard)
		return c.finish(&todo, records)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// replayable says whether a delivery may be sent again, or for the first time.
func replayable(d *standing, force bool) bool {
	switch d.status {
	case model.DeliveryFailed, model.DeliveryDead:
		return true
	case model.DeliverySucceeded, model.DeliveryDelivered, model.DeliveryUncertain, model.DeliveryCancelled:
		return force && !d.done
	case model.DeliveryPending, model.DeliveryProcessing, model.DeliveryRetryWait:
	}
	return false
}

// ResolveDelivery ends an uncertain delivery.
func (s *Store) ResolveDelivery(ctx context.Context, id uuid.UUID, sent bool, audit model.Audit) (result model.ChangeResult, err error) {
	condition, args := byIDs([]uuid.UUID{id})
	err = s.write(ctx, "resolve delivery", func(c *call) error {
		result = model.ChangeResult{ID: id}
		var todo script
		todo.add(`START TRANSACTION`)
		todo.add(setNow)
		deliveries, err := c.stand(&todo, `posthouse_delivery_id`, condition, args...)
		if err != nil {
			return err
		}
		if len(deliveries) == 0 {
			return c.rollback()
		}
		d := deliveries[0]
		result.Found, result.Was, result.Is = true, d.status, d.status
		if d.status != model.DeliveryUncertain {
			return c.rollback()
		}
		if d.erased && !sent {
			result.Erased = true
			return c.rollback()
		}
		result.Done = true
		if sent {
			result.Is = model.DeliverySucceeded
			todo.add(`DELETE FROM posthouse_work WHERE seq = ? AND state = ?`, d.seq, model.Uncertain)
			// None of its attempts is known to have succeeded.
			todo.add(`INSERT INTO posthouse_outcome (seq, source, started_at, finished_at, n, retry_count, replay, http_status)
				VALUES (?, ?, 0, @now, 0, ?, ?, 0)`, d.seq, d.channel, d.retries, d.replay)
			count(&todo, map[model.SourceID]int64{d.channel: 1}, s.shard)
		} else {
			result.Is = model.DeliveryPending
			todo.pending(deliveries, s.shard)
		}
		return c.finish(&todo, []model.AuditRecord{columns.ResolveAudit(id, sent, audit)})
	})
	if err != nil {
		return model.ChangeResult{}, err
	}
	return result, nil
}

// expiry is the primary key of posthouse_expiry.
type expiry struct {
	at  model.Micros
	seq model.Seq
}

// ExpireDeliveries cancels deliveries that wait though their time has passed, in
// transactions of their own.
func (s *Store) ExpireDeliveries(ctx context.Context, limit int) (cancelled int, err error) {
	var last expiry
	for more := true; more && cancelled < limit; {
		n := 0
		size := limit - cancelled
		err = s.write(ctx, "expire deliveries", func(c *call) (err error) {
			after := last
			n, more, err = c.expire(&after, size)
			if err == nil {
				last = after
			}
			return err
		})
		if err != nil {
			return cancelled, err
		}
		cancelled += n
	}
	return cancelled, nil
}

// expire looks at some deliveries whose time has passed, after a place, and says
// how many it cancelled, and whether there may be more. The rows of what has ended
// go; what is processing may wait again. A replay writes its row anew, after it has
// locked the work: here nothing is waited for in the other order.
func (c *call) expire(after *expiry, size int) (cancelled int, more bool, err error) {
	var expired []expiry
	var seqs []model.Seq
	var look script
	look.add(`START TRANSACTION`)
	look.add(setNow)
	look.add(`SELECT expires_at, seq FROM posthouse_expiry FORCE INDEX (PRIMARY)
		WHERE expires_at <= @now AND expires_at >= ? AND (expires_at > ? OR seq > ?)
		ORDER BY expires_at, seq LIMIT ? FOR UPDATE SKIP LOCKED`, after.at, after.at, after.seq, size)
	err = c.query(&look, func(rows *sql.Rows) error {
		var e expiry
		err := into(rows, &e.at, &e.seq)
		expired = append(expired, e)
		seqs = append(seqs, e.seq)
		return err
	})
	if err != nil || len(expired) == 0 {
		return 0, false, errors.Join(err, c.rollback())
	}
	slices.Sort(seqs)
	var waiting, open []model.Seq
	var lock script
	lock.add(`SELECT seq FROM posthouse_work FORCE INDEX (PRIMARY) WHERE seq IN (` + list(seqs) + `) AND state = 0 ORDER BY seq FOR UPDATE SKIP LOCKED`)
	lock.add(`SELECT seq FROM posthouse_work FORCE INDEX (PRIMARY) WHERE seq IN (` + list(seqs) + `) AND state IN (0, 1)`)
	if err := c.query(&lock, scanID(&waiting), scanID(&open)); err != nil {
		return 0, false, err
	}
	open = without(open, waiting)
	var todo script
	if len(waiting) > 0 {
		todo.cancelled(waiting)
	}
	var over []string
	for _, e := range expired {
		if !slices.Contains(open, e.seq) {
			over = append(over, fmt.Sprintf(`e.expires_at = %d AND e.seq = %d`, e.at, e.seq))
		}
	}
	if len(over) > 0 {
		todo.add(`DELETE e FROM posthouse_expiry e FORCE INDEX (PRIMARY) WHERE (` + strings.Join(over, " OR ") + `)`)
	}
	todo.add(`COMMIT`)
	_, err = c.exec(&todo)
	*after = expired[len(expired)-1]
	return len(waiting), len(expired) == size, err
}
