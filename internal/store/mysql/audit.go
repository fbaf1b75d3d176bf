package mysql

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// Switch turns consumption of a queue on or off, with an audit record where that
// changes something.
func (s *Store) Switch(ctx context.Context, queue string, enabled bool, audit model.Audit) (changed bool, err error) {
	const op = "switch queue"
	name := []byte(columns.Text(queue))
	record := columns.SwitchAudit(columns.Text(queue), enabled, audit)
	err = s.write(ctx, op, func(c *call) error {
		var was []bool
		var look script
		look.add(`START TRANSACTION`)
		look.add(`SELECT enabled FROM posthouse_source WHERE name = ? FOR UPDATE`, name)
		if err := c.query(&look, scanID(&was)); err != nil {
			return err
		}
		if len(was) == 0 {
			return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no queue has that name")}
		}
		if changed = was[0] != enabled; !changed {
			return c.rollback()
		}
		var change script
		change.add(`UPDATE posthouse_source SET enabled = ? WHERE name = ?`, enabled, name)
		change.audit(record)
		change.add(`COMMIT`)
		_, err := c.exec(&change)
		return err
	})
	return changed && err == nil, err
}

// AddAudit keeps a record.
func (s *Store) AddAudit(ctx context.Context, record model.AuditRecord) error {
	return s.write(ctx, "add audit record", func(c *call) error {
		var one script
		one.audit(record)
		_, err := c.exec(&one)
		return err
	})
}

// audit adds a statement that keeps records.
func (s *script) audit(records ...model.AuditRecord) {
	args := make([]any, 0, 5*len(records))
	for i := range records {
		r := &records[i]
		args = append(args, []byte(r.Action), []byte(r.Target), columns.Text(r.Actor), columns.Text(r.Reason), []byte(columns.Details(r.Details)))
	}
	s.add(`INSERT INTO posthouse_audit (at, action, target, actor, reason, details) VALUES `+repeat(`(`+now+`,?,?,?,?,?)`, len(records)), args...)
}

// Columns of an audit record, as scanAudit wants them.
const auditColumns = `seq, at, actor, action, target, reason, details`

func scanAudit(records *[]model.AuditRecord) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var r model.AuditRecord
		var details []byte
		err := into(rows, &r.Seq, &r.At, &r.Actor, &r.Action, &r.Target, &r.Reason, &details)
		r.Details = details
		*records = append(*records, r)
		return err
	}
}

// Audit lists records, newest first.
func (s *Store) Audit(ctx context.Context, target string, before int64, limit int) (records []model.AuditRecord, err error) {
	if limit < 1 {
		return nil, nil
	}
	if before == 0 {
		before = math.MaxInt64
	}
	err = s.read(ctx, "list audit records", func(c *call) error {
		records = nil
		var one script
		if target == "" {
			one.add(`SELECT `+auditColumns+` FROM posthouse_audit FORCE INDEX (PRIMARY) WHERE seq < ? ORDER BY seq DESC LIMIT ?`, before, limit)
		} else {
			one.add(`SELECT `+auditColumns+` FROM posthouse_audit FORCE INDEX (posthouse_audit_target)
				WHERE target = ? AND seq < ? ORDER BY seq DESC LIMIT ?`, []byte(target), before, limit)
		}
		return c.query(&one, scanAudit(&records))
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}
