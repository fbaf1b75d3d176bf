package storetest

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/posthouse/posthouse/internal/model"
)

func notificationViews(c *center) {
	c.run("NC-23 posthouse_message_request tells what was asked for", messageRequests)
	c.run("NC-23 posthouse_delivery_task tells the truth in words", deliveryTasks)
}

func messageRequests(c *center) {
	r := c.request("u-ü", c.channel())
	r.Priority, r.Key = model.PriorityHigh, "approval:9421:"+r.ID.String()
	c.accept(r)
	var key, bizType, template, recipient, priority, locale, accepted string
	c.must(c.raw.QueryRowContext(c.ctx(), fmt.Sprintf(`SELECT idempotency_key, biz_type, template, recipient_id, priority, locale, accepted_time
		FROM posthouse_message_request WHERE id = '%s'`, r.ID)).Scan(&key, &bizType, &template, &recipient, &priority, &locale, &accepted))
	got := []string{key, bizType, template, recipient, priority, locale}
	c.same("the request", []string{r.Key, r.BizType, r.Template, r.Recipient, "high", r.Locale}, got)
	c.wantTime("accepted_time", accepted, c.view(r.ID).AcceptedAt)
}

// taskLine is a row of posthouse_delivery_task, times as text.
type taskLine struct {
	request, channel, status          string
	attempts                          int
	next, owner, until                sql.NullString
	destination, provider, code, text sql.NullString
	created, updated                  string
}

func (c *center) taskLine(p *parcel) (l taskLine) {
	c.Helper()
	c.must(c.raw.QueryRowContext(c.ctx(), fmt.Sprintf(`SELECT request_id, channel, status, attempt_count, next_attempt_at, lease_owner, lease_until,
		destination, provider_msg_id, last_error_code, last_error_text, create_time, update_time FROM posthouse_delivery_task WHERE id = '%s'`, p.id)).
		Scan(&l.request, &l.channel, &l.status, &l.attempts, &l.next, &l.owner, &l.until,
			&l.destination, &l.provider, &l.code, &l.text, &l.created, &l.updated))
	return l
}

func deliveryTasks(c *center) {
	owner := c.instance()
	lease := c.find(owner).LeaseUntil
	for _, state := range parcelMakers {
		c.run(state.name, func(c *center) {
			p := &parcel{channel: c.channel(), owner: owner}
			state.make(c, p)
			view, attempts := c.delivery(p.id)
			got := c.taskLine(p)
			if got.request != p.request.ID.String() || got.channel != nameOf(p.channel) || got.status != string(view.Status) || got.attempts != view.AttemptCount {
				c.Errorf("%+v, want %+v", got, view)
			}
			for _, word := range []struct {
				name string
				got  sql.NullString
				want string
			}{
				{"destination", got.destination, view.Masked}, {"provider_msg_id", got.provider, view.ProviderID},
				{"last_error_code", got.code, view.ErrorCode}, {"last_error_text", got.text, view.ErrorText},
			} {
				if word.got.String != word.want {
					c.Errorf("%s is %q, want %q", word.name, word.got.String, word.want)
				}
			}
			c.wantTimeOrNone("next_attempt_at", got.next, view.NextAttemptAt)
			busy := view.Status == model.DeliveryProcessing
			c.wantTimeOrNone("lease_until", got.until, map[bool]model.Micros{true: lease}[busy])
			if got.owner.Valid != busy || busy && got.owner.String != "test" {
				c.Errorf("lease_owner is %+v, want the instance's name: %t", got.owner, busy)
			}
			c.wantTime("create_time", got.created, view.CreatedAt)
			updated := max(view.CreatedAt, view.FinishedAt)
			if row, found := c.row(view.Seq); found && view.FinishedAt == 0 {
				updated = max(updated, row.StartedAt)
				for _, a := range attempts {
					updated = max(updated, a.EndedAt)
				}
			}
			if state.name == "DELIVERED" {
				updated++ // when the receipt came
			}
			c.wantTime("update_time", got.updated, updated)
		})
	}
	c.run("a provider's long texts", func(c *center) {
		p := &parcel{channel: c.channel(), owner: owner}
		p.start(c)
		s := ended(p.work, model.SettleFailed)
		s.Error, s.Code = strings.Repeat("é", 1<<12), strings.Repeat("é", 1<<12)
		if !c.settleOne(s) {
			c.Fatal("not applied")
		}
		view, _ := c.delivery(p.id)
		got := c.taskLine(p)
		if n := len([]rune(got.text.String)); n > model.MaxErrorText || got.text.String != view.ErrorText || got.code.String != view.ErrorCode || len(got.code.String) > model.MaxErrorCode {
			c.Errorf("%+v, want %+v", got, view)
		}
	})
	c.run("a delivery whose owner is forgotten", func(c *center) {
		gone := c.instance()
		p := &parcel{channel: c.channel(), owner: gone}
		p.start(c)
		c.forget(gone)
		if got := c.taskLine(p); got.status != "PROCESSING" || got.until.Valid {
			c.Errorf("%+v", got)
		}
	})
}

// wantTimeOrNone is wantTime, where 0 stands for no time.
func (c *center) wantTimeOrNone(what string, text sql.NullString, at model.Micros) {
	c.Helper()
	if text.Valid != (at != 0) {
		c.Errorf("%s is %+v, want %d", what, text, at)
		return
	}
	if at != 0 {
		c.wantTime(what, text.String, at)
	}
}
