package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// Settle ends claims. The rows are locked in the order of seq, which also
// tells which settlements can be applied; then all changes are made, and
// committed, in one go.
func (s *Store) Settle(ctx context.Context, settlements []model.Settlement) ([]bool, error) {
	if len(settlements) == 0 {
		return nil, nil
	}
	const op = "settle"
	seqs := make([]model.Seq, len(settlements))
	for i := range settlements {
		if kind := settlements[i].Kind; kind < model.SettleSuccess || kind > model.SettleUncertain {
			return nil, &model.Error{Code: model.CodeInvalid, Op: op, Err: errors.New("a settlement of no known kind")}
		}
		seqs[i] = settlements[i].Seq
	}
	slices.Sort(seqs)
	order := columns.Order(settlements)
	alike := allSucceeded(settlements, order)
	var applied []bool
	err := s.write(ctx, op, func(c *call) error {
		applied = make([]bool, len(settlements))
		if alike {
			switch err := c.settleSuccesses(settlements, order, seqs, s.shard); {
			case err == nil:
				for i := range applied {
					applied[i] = true
				}
				return nil
			case !errors.Is(err, errNotAll):
				return err
			}
			alike = false
			if err := c.rollback(); err != nil {
				return err
			}
		}
		held := map[model.Seq]model.Token{}
		var begin script
		begin.add(`START TRANSACTION`)
		begin.add(setNow)
		begin.add(`SELECT seq, token FROM posthouse_work FORCE INDEX (PRIMARY)
			WHERE seq IN (` + list(seqs) + `) AND state = 1 ORDER BY seq FOR UPDATE`)
		err := c.query(&begin, func(rows *sql.Rows) error {
			var seq model.Seq
			var token model.Token
			err := into(rows, &seq, &token)
			held[seq] = token
			return err
		})
		if err != nil {
			return err
		}
		changes := changes{shard: s.shard}
		for _, i := range order {
			if token, found := held[settlements[i].Seq]; found && token == settlements[i].Token {
				applied[i] = true
				changes.add(&settlements[i])
			}
		}
		return changes.commit(c)
	})
	if err != nil {
		return nil, err
	}
	crashpoint.Hit(crashpoint.AfterSettle)
	return applied, nil
}

// allSucceeded says whether the settlements are of one claim that was handled
// as a whole, each work once.
func allSucceeded(settlements []model.Settlement, order []int) bool {
	return len(order) == len(settlements) && !slices.ContainsFunc(settlements, func(s model.Settlement) bool {
		return s.Kind != model.SettleSuccess || s.Token != settlements[0].Token
	})
}

// errNotAll says that a claim has lost some of its work.
var errNotAll = errors.New("not all work is there")

// settleSuccesses ends the works of one claim in one go, if none of them was
// lost: nothing needs to be read then. Otherwise it is errNotAll, and the
// transaction is to be rolled back.
func (c *call) settleSuccesses(settlements []model.Settlement, order []int, seqs []model.Seq, shard int) error {
	changes := changes{shard: shard}
	for _, i := range order {
		changes.add(&settlements[i])
	}
	var todo script
	todo.add(`START TRANSACTION`)
	todo.add(setNow)
	todo.add(`DELETE FROM posthouse_work WHERE seq IN (`+list(seqs)+`) AND state = 1 AND token = ?`, settlements[0].Token)
	todo.add(`SET @all = if(row_count() = ?, 1, (SELECT 1 UNION ALL SELECT 2))`, len(seqs)) // two rows for one value: the script ends here
	changes.outcomes(&todo)
	err := c.commit(&todo, crashpoint.BeforeSettle)
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == errSubqueryRows {
		return errNotAll
	}
	return err
}

// changes are those of one transaction, on rows that it holds.
type changes struct {
	shard     int
	succeeded []*model.Settlement
	burned    []*model.Settlement // attempts that are kept
	updates   map[update][]model.Seq
}

// update is what happens to rows of work alike.
type update struct {
	kind       model.SettleKind
	delay      int64 // microseconds
	lost       bool
	retryCount int
	delivery   bool
}

func (ch *changes) add(s *model.Settlement) {
	if s.Kind == model.SettleSuccess {
		ch.succeeded = append(ch.succeeded, s)
		return
	}
	u := update{kind: s.Kind, delay: max(s.Delay.Microseconds(), 0), delivery: s.Seq >= model.DeliverySeqs}
	if s.Kind != model.SettleRelease {
		u.lost, u.retryCount = s.Lost, s.RetryCount+1
		ch.burned = append(ch.burned, s)
	}
	if ch.updates == nil {
		ch.updates = map[update][]model.Seq{}
	}
	ch.updates[u] = append(ch.updates[u], s.Seq)
}

// someRows bounds the rows of one statement: an attempt weighs up to 4000 bytes.
const someRows = 50

func (ch *changes) commit(c *call) error {
	var todo script
	if len(ch.succeeded) > 0 {
		seqs := make([]model.Seq, len(ch.succeeded))
		for i, s := range ch.succeeded {
			seqs[i] = s.Seq
		}
		todo.add(`DELETE FROM posthouse_work WHERE seq IN (` + list(seqs) + `) AND state = 1`)
		ch.outcomes(&todo)
		if err := c.relieve(&todo); err != nil {
			return err
		}
	}
	for u, seqs := range ch.updates {
		u.change(&todo, seqs)
		if err := c.relieve(&todo); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(ch.burned, someRows) {
		attempts(&todo, some)
		if err := c.relieve(&todo); err != nil {
			return err
		}
	}
	return c.commit(&todo, crashpoint.BeforeSettle)
}

// outcomes keeps what succeeded, and counts it.
func (ch *changes) outcomes(todo *script) {
	counts := map[model.SourceID]int64{}
	for some := range slices.Chunk(ch.succeeded, packetRows) {
		args := make([]any, 0, 8*len(some))
		for _, s := range some {
			args = append(args, s.Seq, s.Queue, s.StartedAt, s.RetryCount+1, s.RetryCount, s.Replay, s.HTTPStatus, columns.Short(s.ProviderID, model.MaxProviderID))
			counts[s.Queue]++
		}
		todo.add(`INSERT INTO posthouse_outcome (finished_at, seq, source, started_at, n, retry_count, replay, http_status, provider_id) VALUES `+
			repeat(`(@now,?,?,?,?,?,?,?,?)`, len(some)), args...)
	}
	count(todo, counts, ch.shard)
}

func (u update) change(todo *script, seqs []model.Seq) {
	rows := `, w.token = 0, w.owner = 0, w.started_at = 0 WHERE w.seq IN (` + list(seqs) + `) AND w.state = 1`
	const work = `UPDATE posthouse_work w FORCE INDEX (PRIMARY) SET `
	ended := map[model.SettleKind]model.State{
		model.SettleFailed: model.Failed, model.SettleDead: model.Dead, model.SettleUncertain: model.Uncertain,
	}[u.kind]
	if u.delivery && u.kind != model.SettleRelease {
		rows = fmt.Sprintf(`, w.key_hash = %d`, groupOf(ended, true)) + rows
	}
	switch {
	case u.kind == model.SettleRetry:
		todo.add(work+`w.state = 0, w.due_at = @now + ?, w.retry_count = ?, w.lost = w.lost + ?`+rows, u.delay, u.retryCount, u.lost)
	case ended != 0:
		todo.add(work+`w.state = ?, w.due_at = @now, w.retry_count = ?, w.lost = w.lost + ?`+rows, ended, u.retryCount, u.lost)
	case u.delay > 0: // released
		todo.add(work+`w.state = 0, w.due_at = @now + ?`+rows, u.delay)
	default:
		todo.add(work + `w.state = 0` + rows)
	}
}

func attempts(todo *script, settlements []*model.Settlement) {
	var args []any
	for _, s := range settlements {
		args = append(args, s.Seq, s.Replay, s.RetryCount+1, s.StartedAt, s.StartedAt.Add(s.Duration), s.HTTPStatus,
			columns.Outcome(s), columns.Text(string(s.Reason)), model.CleanError(s.Error), columns.Short(s.Code, model.MaxErrorCode))
	}
	todo.add(`INSERT INTO posthouse_attempt (seq, replay, n, started_at, ended_at, http_status, outcome, reason, error, code) VALUES `+
		repeat(`(?,?,?,?,?,?,?,?,?,?)`, len(settlements)), args...)
}

// Replay makes failed messages pending again, with force also successful ones.
// The rows are locked in the order of seq.
func (s *Store) Replay(ctx context.Context, ids []uuid.UUID, force bool) ([]model.ReplayResult, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var results []model.ReplayResult
	err := s.write(ctx, "replay", func(c *call) error {
		messages, err := c.find(ids)
		if err != nil {
			return err
		}
		seqs := make([]model.Seq, 0, len(messages))
		replayed := map[model.Seq]bool{}
		for _, seq := range messages {
			seqs = append(seqs, seq)
		}
		slices.Sort(seqs)
		if len(seqs) > 0 {
			if replayed, err = c.replay(seqs, force, s.shard); err != nil {
				return err
			}
		}
		results = make([]model.ReplayResult, len(ids))
		for i, id := range ids {
			seq, there := messages[id]
			switch {
			case replayed[seq]:
				results[i] = model.Replayed
				replayed[seq] = false // a second time it is pending
			case there:
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

func (c *call) find(ids []uuid.UUID) (map[uuid.UUID]model.Seq, error) {
	messages := map[uuid.UUID]model.Seq{}
	args := make([]any, len(ids))
	for i := range ids {
		args[i] = ids[i][:]
	}
	var one script
	one.add(`SELECT id, seq FROM posthouse_message FORCE INDEX (posthouse_message_id) WHERE id IN (`+repeat("?", len(ids))+`)`, args...)
	err := c.query(&one, func(rows *sql.Rows) error {
		var id []byte
		var seq model.Seq
		err := into(rows, &id, &seq)
		messages[uuid.UUID(id)] = seq
		return err
	})
	return messages, err
}

// replay says which it made pending.
func (c *call) replay(seqs []model.Seq, force bool, shard int) (map[model.Seq]bool, error) {
	type success struct {
		seq    model.Seq
		source model.SourceID
		replay int
	}
	var failed []model.Seq
	var succeeded []success
	var begin script
	begin.add(`START TRANSACTION`)
	begin.add(setNow)
	begin.add(`SELECT seq FROM posthouse_work FORCE INDEX (PRIMARY) WHERE seq IN (` + list(seqs) + `) AND state = 2 ORDER BY seq FOR UPDATE`)
	begin.add(`SELECT seq, source, replay FROM posthouse_outcome FORCE INDEX (PRIMARY)
		WHERE ? AND seq IN (`+list(seqs)+`) ORDER BY seq FOR UPDATE`, force)
	err := c.query(&begin, func(rows *sql.Rows) error {
		var seq model.Seq
		err := into(rows, &seq)
		failed = append(failed, seq)
		return err
	}, func(rows *sql.Rows) error {
		var s success
		err := into(rows, &s.seq, &s.source, &s.replay)
		succeeded = append(succeeded, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	replayed := map[model.Seq]bool{}
	var todo script
	if len(failed) > 0 {
		todo.add(`UPDATE posthouse_work w FORCE INDEX (PRIMARY) SET w.state = 0, w.due_at = @now, w.retry_count = 0, w.lost = 0,
			w.replay = w.replay + 1 WHERE w.seq IN (` + list(failed) + `) AND w.state = 2`)
		for _, seq := range failed {
			replayed[seq] = true
		}
	}
	if len(succeeded) > 0 {
		var args []any
		var gone []model.Seq
		counts := map[model.SourceID]int64{}
		for _, s := range succeeded {
			args = append(args, s.seq, s.source, s.replay+1)
			gone = append(gone, s.seq)
			counts[s.source]--
			replayed[s.seq] = true
		}
		todo.add(`DELETE FROM posthouse_outcome WHERE seq IN (` + list(gone) + `)`)
		// Its key went with its work: it will be found misplaced.
		todo.add(`INSERT INTO posthouse_work (slot, key_hash, state, due_at, token, owner, started_at, retry_count, lost, seq, queue, replay) VALUES `+
			repeat(`(0,0,0,@now,0,0,0,0,0,?,?,?)`, len(succeeded)), args...)
		count(&todo, counts, shard)
	}
	todo.add(`COMMIT`)
	_, err = c.exec(&todo)
	return replayed, err
}
