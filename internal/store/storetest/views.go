package storetest

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// logLine is a row of posthouse_message_log, times as text.
type logLine struct {
	source, status     string
	retries            int
	nextRetry, message sql.NullString
	created, updated   string
}

func (k *kit) logLine(id uuid.UUID) (l logLine) {
	k.Helper()
	k.must(k.raw.QueryRowContext(k.ctx(), fmt.Sprintf(`SELECT source, process_status, retry_count, next_retry_time,
		error_message, create_time, update_time FROM posthouse_message_log WHERE id = '%s'`, id)).
		Scan(&l.source, &l.status, &l.retries, &l.nextRetry, &l.message, &l.created, &l.updated))
	return l
}

// wantTime checks that a person can read text as the day of at, in UTC.
func (k *kit) wantTime(what, text string, at model.Micros) {
	k.Helper()
	want := at.Time()
	// The engines differ in what stands between day and time and after it.
	if !strings.HasPrefix(text, want.Format("2006-01-02")) || !strings.Contains(text, want.Format("15:04:05")) {
		k.Errorf("%s is %q, want %v", what, text, want)
	}
}

func messageLog(k *kit) {
	owner := k.instance()
	for _, state := range stateMakers {
		k.run(state.name, func(k *kit) {
			source := k.sourceWith(policy)
			s := &subject{source: source.ID, owner: owner}
			state.make(k, s)
			view, attempts := k.view(s.m.ID)
			got := k.logLine(s.m.ID)
			if got.source != source.Name || got.status != view.State.String() || got.retries != view.RetryCount {
				k.Errorf("%+v, want source %s and %+v", got, source.Name, view)
			}
			if got.nextRetry.Valid != (view.NextRetryAt != 0) {
				k.Errorf("next_retry_time is %v, next retry at %d", got.nextRetry, view.NextRetryAt)
			}
			if got.nextRetry.Valid {
				k.wantTime("next_retry_time", got.nextRetry.String, view.NextRetryAt)
			}
			if got.message.String != view.Error {
				k.Errorf("error_message is %q, want %q", got.message.String, view.Error)
			}
			k.wantTime("create_time", got.created, view.ReceivedAt)
			updated := view.ReceivedAt
			if row, found := k.row(view.Seq); found {
				updated = max(updated, row.StartedAt)
			}
			for _, a := range attempts {
				updated = max(updated, a.EndedAt)
			}
			k.wantTime("update_time", got.updated, max(updated, view.FinishedAt))
		})
	}
	k.run("by status", func(k *kit) {
		source := k.sourceWith(policy)
		made := k.everyState(source.ID, owner, 2)
		for status, want := range map[string]int{
			"pending": len(made["pending"]) + len(made["retrying"]), "processing": len(made["processing"]),
			"success": len(made["success"]), "failed": len(made["failed"]),
		} {
			got := k.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_message_log WHERE source = '%s' AND process_status = '%s'`, source.Name, status))
			if got != int64(want) {
				k.Errorf("%d are %s, want %d", got, status, want)
			}
		}
	})
}
