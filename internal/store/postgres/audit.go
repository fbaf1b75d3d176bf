package postgres

import (
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

const insertAudit = `INSERT INTO posthouse_audit (at, actor, action, target, reason, details) VALUES (` + now + `, $1, $2, $3, $4, $5)`

func auditArgs(r model.AuditRecord) []any {
	return []any{columns.Text(r.Actor), columns.Text(r.Action), columns.Text(r.Target), columns.Text(r.Reason),
		columns.Text(columns.Details(r.Details))}
}

// AddAudit keeps a record.
func (s *Store) AddAudit(ctx context.Context, record model.AuditRecord) error {
	_, err := s.exec(ctx, "add audit record", insertAudit, auditArgs(record)...)
	return err
}

const (
	auditColumns  = `seq, at, actor, action, target, reason, details`
	auditOfAll    = `SELECT ` + auditColumns + ` FROM posthouse_audit WHERE seq < $1 ORDER BY seq DESC LIMIT $2`
	auditOfTarget = `SELECT ` + auditColumns + ` FROM posthouse_audit WHERE seq + 0 < $1 AND target = $3 ORDER BY seq + 0 DESC LIMIT $2`
	// auditOfSome is oldest first.
	auditOfSome = `SELECT ` + auditColumns + ` FROM posthouse_audit WHERE target = ANY ($1::text[]) ORDER BY seq`
)

// Audit lists records, newest first.
func (s *Store) Audit(ctx context.Context, target string, before int64, limit int) (records []model.AuditRecord, err error) {
	if before == 0 {
		before = math.MaxInt64
	}
	sql, args := auditOfAll, []any{before, limit}
	if target != "" {
		sql, args = auditOfTarget, append(args, columns.Text(target))
	}
	err = s.read(ctx, "list audit records", func(ctx context.Context, c conn) error {
		records, err = readAudit(ctx, c, sql, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

func readAudit(ctx context.Context, c conn, sql string, args ...any) (records []model.AuditRecord, err error) {
	err = c.query(ctx, func(rows pgx.Rows) error {
		var r model.AuditRecord
		var details string
		err := rows.Scan(&r.Seq, &r.At, &r.Actor, &r.Action, &r.Target, &r.Reason, &details)
		r.Details = []byte(details)
		records = append(records, r)
		return err
	}, sql, args...)
	return records, err
}

// Switch turns consumption of a queue on or off, and says who did it.
func (s *Store) Switch(ctx context.Context, queue string, enabled bool, audit model.Audit) (changed bool, err error) {
	const op = "switch queue"
	name := columns.Text(queue)
	err = s.write(ctx, op, func(ctx context.Context, c conn) error {
		return transaction(ctx, c, pgx.TxOptions{}, func(c conn) error {
			changed = false
			n, err := c.exec(ctx, `UPDATE posthouse_source SET enabled = $2 WHERE name = $1 AND enabled <> $2`, name, enabled)
			if err == nil && n == 0 {
				n, err = c.exec(ctx, `SELECT 1 FROM posthouse_source WHERE name = $1`, name)
				if err == nil && n == 0 {
					err = &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no queue has that name")}
				}
				return err
			}
			if err != nil {
				return err
			}
			changed = true
			_, err = c.exec(ctx, insertAudit, auditArgs(columns.SwitchAudit(name, enabled, audit))...)
			return err
		})
	})
	return changed && err == nil, err
}
