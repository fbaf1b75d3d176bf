package mysql

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/posthouse/posthouse/internal/model"
)

// TestPlans counts the rows that the server touches for the statements of every
// message, beside many that they are not about, with statistics of an empty
// table.
func TestPlans(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) { plans(t, engine) })
	}
}

func plans(t *testing.T, engine engine) {
	ctx := t.Context()
	url := engine.fresh(t)
	s, queue := ready(t, Config{URL: url, MaxConns: 1}) // the counters are those of a connection
	if _, err := s.Register(ctx, []model.SourceSpec{{Name: "a"}, {Name: "b"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.JoinInstance(ctx, 1, "plans", 1e12, nil); err != nil {
		t.Fatal(err)
	}
	db := other(t, url)
	const ten = `(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
		UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)`
	for _, statement := range []string{
		`ALTER TABLE posthouse_work STATS_AUTO_RECALC = 0`,
		`ALTER TABLE posthouse_message STATS_AUTO_RECALC = 0`,
		`INSERT INTO posthouse_message (received_at, source, put_by, size, id, content_type, check_note, headers, query, body)
			SELECT 1 + a.d, 1 + b.d % 2, 1, 100, unhex(replace(uuid(), '-', '')), 'text/plain', '', '', '', repeat('x', 100)
			FROM ` + ten + ` a JOIN ` + ten + ` b JOIN ` + ten + ` c JOIN ` + ten + ` d JOIN (SELECT 1 UNION ALL SELECT 2) e`,
		// Every fourth is due, the others will be.
		`INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
			SELECT seq, seq + CASE WHEN seq % 4 = 0 THEN 0 ELSE 9000000000000000 END, 0, 0, 0, source, 0, 0, 0, 0 FROM posthouse_message`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	touched := func() (n int64) {
		t.Helper()
		err := s.read(ctx, "count", func(c *call) error {
			var one script
			one.add(`SHOW SESSION STATUS WHERE variable_name IN ('Handler_read_key', 'Handler_read_next', 'Handler_read_prev', 'Handler_read_rnd_next', 'Handler_read_first')`)
			return c.query(&one, func(rows *sql.Rows) error {
				var name string
				var value int64
				err := into(rows, &name, &value)
				n += value
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	check := func(what string, most int64, do func() error) {
		t.Helper()
		before := touched()
		idle := touched() - before
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := touched() - before - 2*idle; n > most {
			t.Errorf("%s read %d rows, want at most %d", what, n, most)
		} else {
			t.Logf("%s read %d rows", what, n)
		}
	}
	var work []model.Work
	claim := func(token model.Token, start, shared bool) func() error {
		return func() error {
			claimed, err := s.ClaimWork(ctx, model.ClaimParams{Queue: queue, Slots: oneSlot, Shared: shared, Owner: 1, Token: token, Limit: 10, Start: start, AloneFrom: 3})
			work = claimed.Works
			if err == nil && len(work) != 10 {
				err = fmt.Errorf("claimed %d", len(work))
			}
			return err
		}
	}
	settlement := func(kind model.SettleKind) func() error {
		return func() error {
			var all []model.Settlement
			for _, w := range work {
				all = append(all, model.Settlement{Seq: w.Seq, Queue: w.Queue, Token: w.Token, Kind: kind})
			}
			_, err := s.Settle(ctx, all)
			return err
		}
	}
	check("due work", 10, func() error {
		_, err := s.DueWork(ctx, model.DueParams{Queue: queue, Slots: oneSlot})
		return err
	})
	check("claim", 200, claim(7, true, true))
	check("settle as success", 200, settlement(model.SettleSuccess))
	check("claim without start", 200, claim(8, false, false))
	check("start", 200, func() error {
		var err error
		work, err = s.StartWork(ctx, model.StartParams{Token: 8, Seqs: seqs(work)})
		return err
	})
	check("orphans", 100, func() error { _, err := s.Orphans(ctx, 100); return err })
	check("claims", 100, func() error { _, err := s.Claims(ctx, 1); return err })
	check("unstart", 200, func() error { _, err := s.UnstartWork(ctx, model.StartParams{Token: 8, Seqs: seqs(work)}); return err })
	check("settle as failed", 200, settlement(model.SettleFailed))
	check("claim again", 200, claim(9, false, true))
	check("give back", 200, func() error { _, err := s.GiveBack(ctx, queue, 9); return err })
	check("put", 100, func() error { return put(ctx, s, message(queue), message(queue)) })
	check("heartbeat", 100, func() error {
		_, err := s.Beat(ctx, model.HeartbeatParams{Instance: 1, LeaseFor: 1e12, Bury: true})
		return err
	})
	for filter := model.AnyState; filter <= model.OnlyFailed; filter++ {
		if filter == model.OnlyRetrying {
			continue // there are none: all that is pending is looked through
		}
		for _, source := range []model.SourceID{0, queue} {
			check(fmt.Sprintf("list %d of %d", filter, source), 300, func() error {
				_, err := s.ListMessages(ctx, model.ListParams{Source: source, Filter: filter, Limit: 20})
				return err
			})
		}
	}
}

func seqs(works []model.Work) []model.Seq {
	all := make([]model.Seq, len(works))
	for i, w := range works {
		all[i] = w.Seq
	}
	return all
}
