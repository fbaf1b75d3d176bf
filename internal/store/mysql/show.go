package mysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// Request finds one request with all that hangs on it, as it stood at one time.
func (s *Store) Request(ctx context.Context, id uuid.UUID) (view model.RequestView, err error) {
	const op = "show request"
	err = s.read(ctx, op, func(c *call) error {
		view = model.RequestView{}
		var show script
		show.snapshot()
		show.add(`SELECT r.seq, r.id, r.idem_key, r.accepted_at, r.not_before, r.expires_at, r.secret, r.secret AND x.request IS NULL, r.cancelled,
				r.priority, r.locale, r.biz_type, r.template, r.recipient, r.tags, r.success, r.choices, r.variables
			FROM posthouse_request r FORCE INDEX (posthouse_request_id) LEFT JOIN posthouse_secret x FORCE INDEX (PRIMARY) ON x.request = r.seq
			WHERE r.id = ?`, id[:])
		show.add(`SELECT `+deliveryColumns+` FROM posthouse_delivery d FORCE INDEX (posthouse_delivery_purpose)`+ofDelivery+`
			WHERE d.request = (SELECT seq FROM posthouse_request q FORCE INDEX (posthouse_request_id) WHERE q.id = ?) ORDER BY d.seq`, id[:])
		if err := c.query(&show, scanRequest(&view), scanDelivery(&view.Deliveries)); err != nil {
			return err
		}
		if view.Seq == 0 {
			return &model.Error{Code: model.CodeNotFound, Op: op, Err: errors.New("no request has that id")}
		}
		targets := []any{[]byte(columns.RequestTarget(id))}
		var seqs []model.Seq
		for i := range view.Deliveries {
			targets = append(targets, []byte(columns.DeliveryTarget(view.Deliveries[i].ID)))
			seqs = append(seqs, view.Deliveries[i].Seq)
		}
		view.Attempts = map[model.Seq][]model.AttemptView{}
		var more script
		scans := []func(*sql.Rows) error{scanAudit(&view.Audit)}
		more.add(`SELECT `+auditColumns+` FROM posthouse_audit FORCE INDEX (posthouse_audit_target)
			WHERE target IN (`+repeat("?", len(targets))+`) ORDER BY seq`, targets...)
		if len(seqs) > 0 {
			more.attemptsOf(seqs)
			scans = append(scans, scanAttempts(view.Attempts))
		}
		more.add(`COMMIT`)
		return c.query(&more, scans...)
	})
	if err != nil {
		return model.RequestView{}, err
	}
	return view, nil
}

func scanRequest(view *model.RequestView) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		r := &view.Request
		var id, tags, success, choices, variables []byte
		err := into(rows, &view.Seq, &id, &r.Key, &view.AcceptedAt, &r.NotBefore, &r.ExpiresAt, &view.Secret, &view.Erased, &view.Cancelled,
			&r.Priority, &r.Locale, &r.BizType, &r.Template, &r.Recipient, &tags, &success, &choices, &variables)
		copy(r.ID[:], id)
		r.Variables = variables
		for _, column := range []struct {
			text []byte
			into any
		}{{tags, &r.Tags}, {success, &r.Success}, {choices, &r.Choices}} {
			if err == nil {
				err = columns.ParseJSON(column.text, column.into)
			}
		}
		return err
	}
}

// UserMessages lists a user's messages, ascending.
func (s *Store) UserMessages(ctx context.Context, user string, after int64, limit int) (messages []model.UserMessage, err error) {
	if limit < 1 {
		return nil, nil
	}
	err = s.read(ctx, "list user messages", func(c *call) error {
		messages = nil
		var one script
		one.add(`SELECT m.id, m.seq, r.id, m.title, m.body, m.created_at, m.read_at
			FROM posthouse_user_message m FORCE INDEX (PRIMARY) STRAIGHT_JOIN posthouse_request r FORCE INDEX (PRIMARY) ON r.seq = m.request
			WHERE m.user_id = ? AND m.seq > ? ORDER BY m.seq LIMIT ?`, []byte(user), after, limit)
		return c.query(&one, func(rows *sql.Rows) error {
			var m model.UserMessage
			var id, request []byte
			err := into(rows, &id, &m.Seq, &request, &m.Title, &m.Body, &m.CreatedAt, &m.ReadAt)
			copy(m.ID[:], id)
			copy(m.RequestID[:], request)
			messages = append(messages, m)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return messages, nil
}

// Secrets lists requests that have sensitive values.
func (s *Store) Secrets(ctx context.Context, after model.Seq, limit int) (requests []model.Seq, err error) {
	if limit < 1 {
		return nil, nil
	}
	err = s.read(ctx, "list secrets", func(c *call) error {
		requests = nil
		var one script
		one.add(`SELECT request FROM posthouse_secret FORCE INDEX (PRIMARY) WHERE request > ? ORDER BY request LIMIT ?`, after, limit)
		return c.query(&one, scanID(&requests))
	})
	if err != nil {
		return nil, err
	}
	return requests, nil
}

// EraseSecrets erases the sensitive values of requests whose deliveries are all
// final. Only a replay makes a delivery that was final not so: it has the row of
// the secret locked, and is passed over.
func (s *Store) EraseSecrets(ctx context.Context, requests []model.Seq) (erased int, err error) {
	if len(requests) == 0 {
		return 0, nil
	}
	err = s.write(ctx, "erase secrets", func(c *call) error {
		erased = 0
		var held []model.Seq
		var lock script
		lock.add(`START TRANSACTION`)
		lock.add(`SELECT request FROM posthouse_secret FORCE INDEX (PRIMARY) WHERE request IN (` + list(requests) + `)
			ORDER BY request FOR UPDATE SKIP LOCKED`)
		if err := c.query(&lock, scanID(&held)); err != nil {
			return err
		}
		if len(held) == 0 {
			return c.rollback()
		}
		var open []model.Seq
		var look script
		look.add(`SELECT DISTINCT d.request FROM posthouse_delivery d FORCE INDEX (posthouse_delivery_purpose)
			STRAIGHT_JOIN posthouse_work w FORCE INDEX (PRIMARY) ON w.seq = d.seq AND w.state IN (0, 1, 5) WHERE d.request IN (` + list(held) + `)`)
		if err := c.query(&look, scanID(&open)); err != nil {
			return err
		}
		over := without(held, open)
		if len(over) == 0 {
			return c.rollback()
		}
		var erase script
		erase.add(`DELETE FROM posthouse_secret WHERE request IN (` + list(over) + `)`)
		erase.add(`COMMIT`)
		_, err := c.exec(&erase)
		erased = len(over)
		return err
	})
	if err != nil {
		return 0, err
	}
	return erased, nil
}

// without are the members of all that are none of some.
func without(all, some []model.Seq) []model.Seq {
	gone := make(map[model.Seq]bool, len(some))
	for _, seq := range some {
		gone[seq] = true
	}
	var rest []model.Seq
	for _, seq := range all {
		if !gone[seq] {
			rest = append(rest, seq)
		}
	}
	return rest
}
