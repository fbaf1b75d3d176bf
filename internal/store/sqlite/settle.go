package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

var errNoKind = errors.New("a settlement of no known kind")

// Settle ends claims.
func (s *Store) Settle(ctx context.Context, settlements []model.Settlement) ([]bool, error) {
	if len(settlements) == 0 {
		return nil, nil
	}
	applied := make([]bool, len(settlements))
	err := s.write(ctx, "settle", func(t *tx) error {
		var written record
		for i := range settlements {
			var err error
			if applied[i], err = end(t, &settlements[i]); err != nil {
				return err
			}
			if applied[i] {
				written.add(t, &settlements[i])
			}
		}
		if err := written.insert(t); err != nil {
			return err
		}
		crashpoint.Hit(crashpoint.BeforeSettle)
		return nil
	})
	if err != nil {
		return nil, err
	}
	crashpoint.Hit(crashpoint.AfterSettle)
	return applied, nil
}

// end is the guarded statement that ends one claim.
func end(t *tx, s *model.Settlement) (applied bool, err error) {
	var n int64
	switch s.Kind {
	case model.SettleSuccess:
		n, err = t.exec(`DELETE FROM posthouse_work WHERE seq = ? AND state = 1 AND token = ?`, s.Seq, s.Token)
	case model.SettleRetry:
		n, err = t.exec(`UPDATE posthouse_work SET state = 0, due_at = ?, token = 0, owner = 0, started_at = 0, retry_count = ?, lost = lost + ?
			WHERE seq = ? AND state = 1 AND token = ?`, t.now.Add(s.Delay), s.RetryCount+1, s.Lost, s.Seq, s.Token)
	case model.SettleFailed, model.SettleDead, model.SettleUncertain:
		// due_at becomes the time of the failure: lists show the newest first.
		n, err = t.exec(`UPDATE posthouse_work SET state = ?, due_at = ?, token = 0, owner = 0, started_at = 0, retry_count = ?, lost = lost + ?
			WHERE seq = ? AND state = 1 AND token = ?`, endStates[s.Kind], t.now, s.RetryCount+1, s.Lost, s.Seq, s.Token)
	case model.SettleRelease:
		dueAt := model.Micros(0)
		if s.Delay > 0 {
			dueAt = t.now.Add(s.Delay)
		}
		n, err = t.exec(`UPDATE posthouse_work SET state = 0, due_at = coalesce(nullif(?, 0), due_at), token = 0, owner = 0, started_at = 0
			WHERE seq = ? AND state = 1 AND token = ?`, dueAt, s.Seq, s.Token)
	default:
		err = &model.Error{Code: model.CodeInvalid, Op: "settle", Err: errNoKind}
	}
	return n == 1, err
}

// endStates are those of work that ended without success.
var endStates = map[model.SettleKind]model.State{
	model.SettleFailed: model.Failed, model.SettleDead: model.Dead, model.SettleUncertain: model.Uncertain,
}

// record is what settlements leave behind, gathered into few statements.
type record struct {
	outcomes, attempts []any
	succeeded          map[model.SourceID]int64
}

func (r *record) add(t *tx, s *model.Settlement) {
	switch s.Kind {
	case model.SettleSuccess:
		r.outcomes = append(r.outcomes, s.Seq, s.Queue, s.StartedAt, t.now, s.RetryCount+1, s.RetryCount, s.Replay, s.HTTPStatus,
			columns.Short(s.ProviderID, model.MaxProviderID))
		if r.succeeded == nil {
			r.succeeded = map[model.SourceID]int64{}
		}
		r.succeeded[s.Queue]++
	case model.SettleRetry, model.SettleFailed, model.SettleDead, model.SettleUncertain:
		r.attempts = append(r.attempts, s.Seq, s.Replay, s.RetryCount+1, s.StartedAt, s.StartedAt.Add(s.Duration),
			columns.Outcome(s), string(s.Reason), model.CleanError(s.Error), s.HTTPStatus, columns.Short(s.Code, model.MaxErrorCode))
	case model.SettleRelease:
	}
}

func (r *record) insert(t *tx) error {
	err := t.insert(`INSERT INTO posthouse_outcome (seq, source, started_at, finished_at, n, retry_count, replay, http_status, provider_id)
		VALUES %s`, 9, r.outcomes)
	if err != nil {
		return err
	}
	err = t.insert(`INSERT INTO posthouse_attempt (seq, replay, n, started_at, ended_at, outcome, reason, error, http_status, code)
		VALUES %s`, 10, r.attempts)
	if err != nil {
		return err
	}
	return count(t, r.succeeded)
}

// Replay makes failed messages pending again, with force also successful ones.
func (s *Store) Replay(ctx context.Context, ids []uuid.UUID, force bool) ([]model.ReplayResult, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	results := make([]model.ReplayResult, len(ids))
	err := s.write(ctx, "replay", func(t *tx) error {
		for i, id := range ids {
			var err error
			if results[i], err = replay(t, id, force); err != nil {
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

func replay(t *tx, id uuid.UUID, force bool) (model.ReplayResult, error) {
	var seq model.Seq
	err := t.query(func(rows *sql.Rows) error { return rows.Scan(&seq) }, `SELECT seq FROM posthouse_message WHERE id = ?`, id[:])
	if err != nil || seq == 0 {
		return model.ReplayNotFound, err
	}
	n, err := t.exec(`UPDATE posthouse_work SET state = 0, due_at = ?, retry_count = 0, lost = 0, replay = replay + 1
		WHERE seq = ? AND state = 2`, t.now, seq)
	if err != nil {
		return 0, err
	}
	if n == 1 {
		return model.Replayed, nil
	}
	if !force {
		return model.ReplayRefused, nil
	}
	var source model.SourceID
	var last int
	err = t.query(func(rows *sql.Rows) error { return rows.Scan(&source, &last) },
		`DELETE FROM posthouse_outcome WHERE seq = ? RETURNING source, replay`, seq)
	if err != nil || source == 0 {
		return model.ReplayRefused, err
	}
	_, err = t.exec(`INSERT INTO posthouse_work (seq, queue, state, due_at, token, owner, started_at, retry_count, lost, replay)
		VALUES (?, ?, 0, ?, 0, 0, 0, 0, 0, ?)`, seq, source, t.now, last+1)
	if err != nil {
		return 0, err
	}
	return model.Replayed, count(t, map[model.SourceID]int64{source: -1})
}
