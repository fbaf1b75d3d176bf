package mysql

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/posthouse/posthouse/internal/model"
)

// rowsRead is how many rows the one connection of s has read.
func rowsRead(t testing.TB, s *Store) (n int64) {
	t.Helper()
	err := s.read(t.Context(), "count", func(c *call) error {
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
	sources, err := s.Register(ctx, []model.SourceSpec{{Name: "a"}, {Name: "b", Wants: model.Ordering{Order: model.Keyed, Partitions: 4, Key: "k", Block: true}}})
	if err != nil {
		t.Fatal(err)
	}
	keyed := sources[1]
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
		`UPDATE posthouse_work SET slot = 256 + seq DIV 4 % 256, key_hash = 1 + seq DIV 4 % 1000 WHERE queue = 2`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	touched := func() int64 { return rowsRead(t, s) }
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
	// Of 64 slots in each of which about as many are due as not.
	a := keyed.Agreed
	check("due work of many slots", 5*crowd+64*16, // some rows of two reads, which are gathered in temporary tables
		func() error {
			due, err := s.DueWork(ctx, model.DueParams{Queue: keyed.ID, KeyID: a.KeyID, Slots: a.SlotsOf(1)})
			if err == nil && len(due.Slots) != 64 {
				err = fmt.Errorf("%d slots are due", len(due.Slots))
			}
			return err
		})
	for _, block := range []bool{false, true} {
		check(fmt.Sprintf("claim of many slots, block %t", block), 3000, func() error {
			claimed, err := s.ClaimWork(ctx, model.ClaimParams{Queue: keyed.ID, Owner: 1, Token: 10, Limit: 10, Generation: a.Generation,
				KeyID: a.KeyID, Slots: a.SlotsOf(1), Block: block})
			if err == nil && len(claimed.Works) == 0 {
				err = fmt.Errorf("claimed %+v", claimed)
			}
			return err
		})
	}
	check("misplaced", 10, func() error { _, err := s.Misplaced(ctx, keyed.ID, a.KeyID, 10); return err })
	check("take leases", 30, func() error {
		leases, err := s.TakeLeases(ctx, 1, []model.Partition{{Queue: keyed.ID, Number: 1}, {Queue: keyed.ID, Number: 3}})
		if err == nil && (!leases[0].Held || !leases[1].Held) {
			err = fmt.Errorf("leases %+v", leases)
		}
		return err
	})
	check("agree", 100, func() error { _, err := s.Agree(ctx, 1); return err })
	explains(t, engine, db, queue, keyed)
	for filter := model.AnyState; filter <= model.OnlyFailed; filter++ {
		if filter == model.OnlyRetrying {
			continue // there are none: all that is pending is looked through
		}
		for _, source := range []model.SourceID{0, queue} {
			most := int64(300)
			if source == 0 {
				most = 8 * few // of the source with many slots
			}
			check(fmt.Sprintf("list %d of %d", filter, source), most, func() error {
				_, err := s.ListMessages(ctx, model.ListParams{Source: source, Filter: filter, Limit: 20})
				return err
			})
		}
	}
}

// explains shows that what looks for work goes by one ordered range of the index.
func explains(t *testing.T, engine engine, db *sql.DB, queue model.SourceID, keyed model.Source) {
	t.Helper()
	slots := keyed.Agreed.SlotsOf(1)
	due := func(queue model.SourceID, slots []model.Slot) string {
		return span{queue: queue, slots: slots, until: "1796060645467346", also: elsewhere(queue, 0)}.query(slots, 500)
	}
	for what, query := range map[string]string{
		"claim of one slot":   due(queue, oneSlot),
		"claim of many slots": due(keyed.ID, slots),
		"list of one slot":    spanOf(model.ListParams{Filter: model.OnlyFailed}, queue, oneSlot).query(oneSlot, 50),
		"list of many slots":  spanOf(model.ListParams{Filter: model.OnlyFailed}, keyed.ID, slots).query(slots, 50),
	} {
		for _, step := range explain(t, engine, db, query) {
			extra := step["Extra"]
			if step["table"] != "" && step["key"] != "posthouse_work_due" || strings.Contains(extra, "filesort") || strings.Contains(extra, "temporary") {
				t.Errorf("%s: key %s, %s", what, step["key"], extra)
			}
			t.Logf("%s: %s %s, type %s, key %s (%s bytes), %s", what, step["select_type"], step["table"], step["type"], step["key"], step["key_len"], extra)
		}
	}
}

// explain are the steps of a query.
func explain(t *testing.T, engine engine, db *sql.DB, query string) (steps []map[string]string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is kept there
	if engine.name == mySQL.name {
		_, err = conn.ExecContext(t.Context(), `SET explain_format = 'TRADITIONAL'`)
	}
	if err != nil {
		t.Fatal(err)
	}
	rows, err := conn.QueryContext(t.Context(), `EXPLAIN `+query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]sql.NullString, len(names))
		fields := make([]any, len(names))
		for i := range values {
			fields[i] = &values[i]
		}
		if err := rows.Scan(fields...); err != nil {
			t.Fatal(err)
		}
		step := map[string]string{}
		for i, name := range names {
			step[name] = values[i].String
		}
		steps = append(steps, step)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}

func seqs(works []model.Work) []model.Seq {
	all := make([]model.Seq, len(works))
	for i, w := range works {
		all[i] = w.Seq
	}
	return all
}
