package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// Switch turns a queue on or off, and keeps a record where that changes something.
func (s *Store) Switch(ctx context.Context, queue string, enabled bool, audit model.Audit) (changed bool, err error) {
	const op = "switch queue"
	err = s.write(ctx, op, func(t *tx) error {
		n, err := t.exec(`UPDATE posthouse_source SET enabled = ?1 WHERE name = ?2 AND enabled <> ?1`, enabled, queue)
		if err != nil {
			return err
		}
		if changed = n == 1; changed {
			return addAudit(t, columns.SwitchAudit(queue, enabled, audit))
		}
		known := false
		err = t.query(func(rows *sql.Rows) error { return rows.Scan(&known) },
			`SELECT EXISTS (SELECT 1 FROM posthouse_source WHERE name = ?)`, queue)
		if err == nil && !known {
			return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no queue has that name")}
		}
		return err
	})
	if err != nil {
		return false, err
	}
	return changed, nil
}

// AddAudit keeps a record.
func (s *Store) AddAudit(ctx context.Context, record model.AuditRecord) error {
	return s.write(ctx, "add audit record", func(t *tx) error {
		record.Actor, record.Reason = columns.Text(record.Actor), columns.Text(record.Reason)
		record.Action, record.Target = columns.Text(record.Action), columns.Text(record.Target)
		return addAudit(t, record)
	})
}

func addAudit(t *tx, r model.AuditRecord) error {
	_, err := t.exec(`INSERT INTO posthouse_audit (at, actor, action, target, reason, details) VALUES (?, ?, ?, ?, ?, ?)`,
		t.now, r.Actor, r.Action, r.Target, r.Reason, columns.Details(r.Details))
	return err
}

// Columns of an audit record, as scanAudit wants them.
const auditColumns = `seq, at, actor, action, target, reason, details`

func scanAudit(records *[]model.AuditRecord) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var r model.AuditRecord
		var details []byte
		err := rows.Scan(&r.Seq, &r.At, &r.Actor, &r.Action, &r.Target, &r.Reason, &details)
		r.Details = details
		*records = append(*records, r)
		return err
	}
}

// Audit lists records, newest first.
func (s *Store) Audit(ctx context.Context, target string, before int64, limit int) (records []model.AuditRecord, err error) {
	if before == 0 {
		before = math.MaxInt64
	}
	query, args := `SELECT `+auditColumns+` FROM posthouse_audit WHERE seq < ? ORDER BY seq DESC LIMIT ?`, []any{before, limit}
	if target != "" {
		query, args = `SELECT `+auditColumns+` FROM posthouse_audit WHERE target = ? AND seq < ? ORDER BY seq DESC LIMIT ?`, []any{target, before, limit}
	}
	err = s.read(ctx, "list audit records", func(ctx context.Context, snapshot *sql.Tx) error {
		records = nil
		return queries(ctx, snapshot)(scanAudit(&records), query, args...)
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}
