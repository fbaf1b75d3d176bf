package mysql

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// TestNotificationPlans counts the rows that the server touches for one page, one
// request, or one batch, beside 50,000 deliveries that they are not about, with
// statistics of empty tables.
func TestNotificationPlans(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) { notificationPlans(t, engine) })
	}
}

func notificationPlans(t *testing.T, engine engine) {
	ctx := t.Context()
	url := engine.fresh(t)
	s, _ := ready(t, Config{URL: url, MaxConns: 1}) // the counters are those of a connection
	var specs []model.SourceSpec
	for _, name := range []string{"mail", "text"} {
		specs = append(specs, model.SourceSpec{Name: model.ChannelPrefix + name, Tenant: model.TenantDelivery,
			Policy: model.RetryPolicy{Uncertain: model.UncertainHold}, Wants: model.Ordering{Order: model.Parallel}})
	}
	channels, err := s.Register(ctx, specs)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.JoinInstance(ctx, 1, "plans", 1e12, nil); err != nil {
		t.Fatal(err)
	}
	db := other(t, url)
	for _, table := range []string{"work", "outcome", "request", "delivery", "secret", "attempt", "audit", "expiry", "user_message"} {
		if _, err := db.ExecContext(ctx, `ALTER TABLE posthouse_`+table+` STATS_AUTO_RECALC = 0`); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, db, channels)
	check := func(what string, most int64, do func() error) {
		t.Helper()
		before := rowsRead(t, s)
		idle := rowsRead(t, s) - before
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := rowsRead(t, s) - before - 2*idle; n > most {
			t.Errorf("%s read %d rows, want at most %d", what, n, most)
		} else {
			t.Logf("%s read %d rows", what, n)
		}
	}
	const limit = 20
	for _, status := range append(model.DeliveryStatuses(), "") {
		for _, channel := range []model.SourceID{0, channels[1].ID} {
			for _, p := range []model.DeliveryListParams{
				{}, {Before: model.DeliverySeqs + 25000}, {From: 20_000e6, To: 30_000e6}, {From: 49_990e6},
			} {
				p.Status, p.Channel, p.Limit = status, channel, limit
				// A row of each table for each delivery, twice as many places with two channels, and
				// where times bound them those of a minute to both sides, of all states.
				most := int64(16 * limit)
				if p.From != 0 || p.To != 0 {
					most += 4 * 120
				}
				check(fmt.Sprintf("list %q of %d from %d to %d before %d", status, channel, p.From, p.To, p.Before), most, func() error {
					page, err := s.ListDeliveries(ctx, p)
					if err == nil && len(page.Items) == 0 && status != model.DeliveryProcessing && p.From < 49_000e6 {
						err = errors.New("nothing is listed")
					}
					return err
				})
			}
		}
	}
	explainDeliveries(t, engine, db, channels)
	var seqs []model.Seq
	for i := range model.Seq(50) {
		seqs = append(seqs, model.DeliverySeqs+1000*i+1)
	}
	check("what is to be sent", 4*50, func() error {
		out, err := s.Outgoing(ctx, seqs)
		if err == nil && len(out) != 50 {
			err = fmt.Errorf("%d are to be sent", len(out))
		}
		return err
	})
	page, err := s.ListDeliveries(ctx, model.DeliveryListParams{Status: model.DeliveryFailed, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	one := page.Items[0]
	check("one delivery", 30, func() error { _, _, err := s.Delivery(ctx, one.ID); return err })
	check("one request", 60, func() error { _, err := s.Request(ctx, one.RequestID); return err })
	check("replay", 60, func() error {
		results, err := s.ReplayDeliveries(ctx, model.ReplayParams{IDs: []uuid.UUID{one.ID}})
		if err == nil && !results[0].Done {
			err = fmt.Errorf("replayed as %+v", results)
		}
		return err
	})
	check("cancel", 60, func() error { _, err := s.CancelRequest(ctx, one.RequestID, model.Audit{}); return err })
	check("expire", 400, func() error {
		n, err := s.ExpireDeliveries(ctx, 20)
		if err == nil && n != 20 {
			err = fmt.Errorf("%d expired", n)
		}
		return err
	})
	check("secrets", 60, func() error {
		requests, err := s.Secrets(ctx, 10, 20)
		if err == nil && len(requests) != 20 {
			err = fmt.Errorf("%d secrets", len(requests))
		}
		return err
	})
	check("erase secrets", 200, func() error { _, err := s.EraseSecrets(ctx, []model.Seq{11, 12, 13, 14, 15}); return err })
	check("audit", 50, func() error { _, err := s.Audit(ctx, "delivery/"+one.ID.String(), 0, 20); return err })
	check("user messages", 60, func() error {
		messages, err := s.UserMessages(ctx, "u1", 500, 20)
		if err == nil && len(messages) != 20 {
			err = fmt.Errorf("%d messages", len(messages))
		}
		return err
	})
	var requests []model.NewRequest
	for i := range 10 {
		r := model.NewRequest{ID: uuid.Must(uuid.NewV7()), Key: fmt.Sprint("new ", i), Recipient: "u1", Message: &model.NewUserMessage{ID: uuid.Must(uuid.NewV7())}}
		for _, channel := range channels {
			r.Deliveries = append(r.Deliveries, model.NewDelivery{ID: uuid.Must(uuid.NewV7()), Channel: channel.ID})
		}
		requests = append(requests, r)
	}
	check("put", 300, func() error { _, err := s.PutRequests(ctx, requests); return err })
	check("put again", 200, func() error { _, err := s.PutRequests(ctx, requests); return err })
}

// fill makes 25,000 requests with two deliveries each, one made each second.
func fill(t *testing.T, db *sql.DB, channels []model.Source) {
	t.Helper()
	const ten = `(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
		UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)`
	const numbers = `(SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d AS n
		FROM ` + ten + ` a JOIN ` + ten + ` b JOIN ` + ten + ` c JOIN ` + ten + ` d JOIN (SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) e) numbers`
	first := fmt.Sprint(int64(model.DeliverySeqs))
	place := `(seq - ` + first + `) DIV 2 % 20 * 5` // of the two deliveries of a request alike
	for _, statement := range []string{
		`INSERT INTO posthouse_request (seq, id, idem_key, put_by, accepted_at, not_before, expires_at, secret, cancelled, content_key, content_fields,
			priority, locale, biz_type, template, recipient, tags, success, choices, variables)
			SELECT n, unhex(lpad(hex(n), 32, '0')), concat('k', n), 1, n * 2000000, 0, 5, 0, 0, '', repeat('x', 80), '', '', '', '', 'u1', 'null', '{}', 'null', '{}'
			FROM ` + numbers + ` WHERE n <= 25000 ORDER BY n`,
		`UPDATE posthouse_request SET secret = 1 WHERE seq > 10`,
		`INSERT INTO posthouse_secret (request, key_id, sealed) SELECT seq, 'k', 'x' FROM posthouse_request WHERE secret = 1`,
		`INSERT INTO posthouse_user_message (user_id, seq, id, request, created_at, read_at, title, body)
			SELECT 'u1', seq, id, seq, accepted_at, 0, '', '' FROM posthouse_request ORDER BY seq`,
		`INSERT INTO posthouse_user (user_id, last_seq) VALUES ('u1', 25000)`,
		`INSERT INTO posthouse_delivery (seq, id, request, channel, purpose, template, done, created_at, locale, reason, masked, address_key, address)
			SELECT ` + first + ` + n - 1, unhex(lpad(hex(n), 32, '0')), (n + 1) DIV 2, CASE n % 2 WHEN 1 THEN ` + fmt.Sprint(channels[0].ID) + ` ELSE ` +
			fmt.Sprint(channels[1].ID) + ` END, 0, 1, 0, n * 1000000, '', '', '', '', '' FROM ` + numbers + ` ORDER BY n`,
		`INSERT INTO posthouse_outcome (seq, source, started_at, finished_at, n, retry_count, replay, http_status, delivered_at)
			SELECT seq, channel, 1, 2, 1, 0, 0, 0, CASE WHEN ` + place + ` < 40 THEN 0 ELSE 9 END FROM posthouse_delivery WHERE ` + place + ` < 45 ORDER BY seq`,
		`INSERT INTO posthouse_work (seq, queue, slot, due_at, token, owner, started_at, lost, replay, retry_count, state, key_hash)
			SELECT seq, channel, 0, 1, 0, 0, 0, 0, 0, CASE WHEN ` + place + ` < 55 THEN 0 ELSE 1 END,
			CASE WHEN ` + place + ` < 65 THEN 0 WHEN ` + place + ` < 75 THEN 2 WHEN ` + place + ` < 85 THEN 4 WHEN ` + place + ` < 95 THEN 5 ELSE 6 END,
			CASE WHEN ` + place + ` < 55 THEN 0 WHEN ` + place + ` < 65 THEN 1 WHEN ` + place + ` < 75 THEN 2 WHEN ` + place + ` < 85 THEN 4 WHEN ` + place + ` < 95 THEN 5 ELSE 6 END
			FROM posthouse_delivery WHERE ` + place + ` >= 45 ORDER BY seq`,
		`INSERT INTO posthouse_attempt (seq, replay, n, started_at, ended_at, http_status, outcome, reason, error)
			SELECT seq, 0, 1, 1, 2, 0, 'failed', 'transient', '' FROM posthouse_work WHERE retry_count = 1 AND seq >= ` + first,
		`INSERT INTO posthouse_expiry (expires_at, seq) SELECT 5, seq FROM posthouse_work WHERE state = 0 AND seq >= ` + first,
		`INSERT INTO posthouse_audit (at, action, target, actor, reason, details)
			SELECT 1, 'delivery.replay', concat('delivery/', seq), '', '', '{}' FROM posthouse_delivery WHERE seq < ` + first + ` + 5000`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// explainDeliveries shows that the places of a page come off ranges of indexes in
// their order: nothing is sorted but what is processing, and what was merged.
func explainDeliveries(t *testing.T, engine engine, db *sql.DB, channels []model.Source) {
	t.Helper()
	for _, status := range append(model.DeliveryStatuses(), "") {
		for _, p := range []model.DeliveryListParams{{}, {From: 20_000e6, To: 30_000e6}} {
			p.Status, p.Limit = status, 20
			l := deliveryPlaces{p: p, channels: []model.SourceID{channels[0].ID}, above: model.DeliverySeqs, below: model.DeliverySeqs + 30000}
			for _, step := range explain(t, engine, db, l.query()) {
				sorts := strings.Contains(step["Extra"], "filesort") || strings.Contains(step["Extra"], "temporary")
				if step["key"] == "" || sorts && status != model.DeliveryProcessing {
					t.Errorf("%s: table %s, key %s, %s", status, step["table"], step["key"], step["Extra"])
				}
				t.Logf("%s: %s, type %s, key %s (%s bytes), %s", status, step["table"], step["type"], step["key"], step["key_len"], step["Extra"])
			}
		}
	}
}
