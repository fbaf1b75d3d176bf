package postgres

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// fillDeliveries makes 50,000 requests with two deliveries each: in-app ones, and
// others in all states, of which most have ended.
var fillDeliveries = []string{
	`INSERT INTO posthouse_request (seq, accepted_at, not_before, expires_at, secret, cancelled, id, idem_key, content_key, content,
			biz_type, template, recipient, priority, locale, tags, success, choices, variables)
		SELECT n, n::bigint * 1000000, 0, 0, n % 10 = 0, false, gen_random_uuid(), convert_to('key ' || n, 'UTF8'), 'k', decode(repeat('00', 80), 'hex'),
			'b', 't', 'u', 'normal', 'fr', 'null', '{}', 'null', '{}' FROM generate_series(1, 50000) n`,
	`INSERT INTO posthouse_secret SELECT seq, 'k', '\x00' FROM posthouse_request WHERE secret`,
	`INSERT INTO posthouse_delivery (seq, request, created_at, channel, template, purpose, done, id, locale, reason, masked, address_key, address)
		SELECT 4611686018427387904 + 2 * n + c, n, n::bigint * 1000000, 1 + c, 1, 0, c = 0, gen_random_uuid(), 'fr', 'r', 'm', 'k', '\x00'
		FROM generate_series(1, 50000) n, generate_series(0, 1) c`,
	`INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status, delivered_at)
		SELECT seq, 0, created_at, channel, 1, 0, 0, 0, CASE WHEN request % 1000 = 1 THEN created_at ELSE 0 END
		FROM posthouse_delivery WHERE done OR request % 10 < 8`,
	`INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
		SELECT seq, created_at, 0, 0, 0, channel, request / 10 % 3, 0, 0,
			CASE WHEN request % 10 = 8 THEN 6 WHEN request % 1000 = 9 THEN 1 ELSE (array[0, 0, 0, 2, 4, 5, 6])[1 + request % 7] END
		FROM posthouse_delivery WHERE NOT done AND request % 10 >= 8`,
	`INSERT INTO posthouse_attempt (seq, started_at, ended_at, replay, n, http_status, outcome, reason, error)
		SELECT seq, 1, 2, 0, retry_count, 500, 'failed', 'transient', 'e' FROM posthouse_work WHERE retry_count > 0`,
	`INSERT INTO posthouse_expiry SELECT created_at, seq FROM posthouse_delivery WHERE seq % 20 = 1`,
	`INSERT INTO posthouse_audit (at, actor, action, target, reason, details) SELECT n, 'a', 'b', 'channel/' || n % 5000, '', '{}' FROM generate_series(1, 50000) n`,
}

// arrayOf is an array as a literal.
func arrayOf(n int, value func(int) any) string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprint(value(i))
	}
	return "'{" + strings.Join(values, ",") + "}'"
}

// keyOf is an idempotency key, in such an array.
func keyOf(prefix string, n int) string { return fmt.Sprintf(`"\\\\x%x"`, prefix+strconv.Itoa(n)) }

// TestNotificationPlans is TestPlans for deliveries.
func TestNotificationPlans(t *testing.T) {
	ctx := t.Context()
	s, _, text := benchCenter(t)
	if err := s.JoinInstance(ctx, 1, "plans", 1e12, nil); err != nil {
		t.Fatal(err)
	}
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer pooled.Release()
	c := pooled.Conn()
	run(ctx, t, c, `SET statement_timeout = 0`)
	run(ctx, t, c, `SET plan_cache_mode = force_generic_plan`)
	for name, statement := range map[string][2]string{
		"outgoing": {outgoing, "bigint[]"},
		"claim":    {claimStatements[claimForm{shared: true, bare: true}], claimTypes},
		"start":    {startBare, "bigint[], bigint"},
		"accepted": {settleAccepted, "bigint[],bigint[],int[],bigint[],int[],int[],int[],text[]"},
		"expire":   {expire, "bigint"},
		"heads":    {selectHeads, "bytea[]"},
		"erase":    {erase, "bigint[]"},
		"cancel":   {cancelWork, "bigint[]"},
		"audit":    {auditOfTarget, "bigint, bigint, text"},
		"put": {putRequests, "int[],uuid[],bytea[],text[],bytea[],text[],text[],text[],text[],text[],text[],text[],text[],text[],bigint[],bigint[],bool[]," +
			"int[],text[],bytea[],int[],text[],uuid[],text[],text[]," +
			"int[],uuid[],int[],int[],int[],bool[],text[],text[],text[],text[],bytea[],bigint[],bigint[]"},
	} {
		run(ctx, t, c, fmt.Sprintf(`PREPARE %s (%s) AS %s`, name, statement[1], statement[0]))
	}
	var all []string
	for n := 9; n < 1009; n += 10 {
		all = append(all, strconv.FormatInt(int64(model.DeliverySeqs)+int64(2*n+1), 10))
	}
	seqs := "'{" + strings.Join(all, ",") + "}'"
	array := func(value, of string, n int) string { return fmt.Sprintf(`array_fill(%s::%s, '{%d}')`, value, of, n) }
	doClaim := fmt.Sprintf(`EXECUTE claim(%d, 1, 77, 100, 1, 0, 1, 0, 0, 0, true, 3)`, text)
	doSettle := fmt.Sprintf(`EXECUTE accepted(%s, %s, %s, %s, %s, %s, %s, %s)`, seqs, array("77", "bigint", 100), array("2", "int", 100),
		array("1", "bigint", 100), array("0", "int", 100), array("0", "int", 100), array("0", "int", 100), array("'SM'", "text", 100))
	// 200 requests with a message of one of few users, and two deliveries each.
	put := func(prefix string) string {
		list := arrayOf
		place := func(i int) any { return i + 1 }
		id := func(int) any { return uuid.New() }
		arguments := []string{list(200, place), list(200, id), list(200, func(i int) any { return keyOf(prefix, i) }),
			array("'k'", "text", 200), array(`'\x00'`, "bytea", 200)}
		for range 9 {
			arguments = append(arguments, array("'{}'", "text", 200))
		}
		arguments = append(arguments, array("0", "bigint", 200), array("0", "bigint", 200), array("false", "bool", 200),
			`'{}'`, `'{}'`, `'{}'`,
			list(200, place), list(200, func(i int) any { return fmt.Sprint("u", i%90) }), list(200, id), array("'t'", "text", 200), array("'b'", "text", 200),
			list(400, func(i int) any { return 1 + i/2 }), list(400, id), list(400, func(i int) any { return 1 + i%2 }),
			array("1", "int", 400), array("0", "int", 400), list(400, func(i int) any { return i%2 == 0 }))
		for range 4 {
			arguments = append(arguments, array("'x'", "text", 400))
		}
		return `EXECUTE put(` + strings.Join(append(arguments, array(`'\x00'`, "bytea", 400), array("0", "bigint", 400), array("0", "bigint", 400)), ", ") + `)`
	}
	doOthers := map[string]string{
		"outgoing": fmt.Sprintf(`EXECUTE outgoing(%s)`, seqs),
		"start":    fmt.Sprintf(`EXECUTE start(%s, 77)`, seqs),
		"expire":   `EXECUTE expire(50)`,
		"heads":    fmt.Sprintf(`EXECUTE heads(%s)`, arrayOf(100, func(i int) any { return keyOf("key ", i+1) })),
		"erase":    `EXECUTE erase('{10,20,30,40,50,60,70,80,90,100}')`,
		"cancel":   fmt.Sprintf(`EXECUTE cancel(%s)`, seqs),
		"audit":    `EXECUTE audit(1000000, 50, 'channel/77')`,
	}
	run(ctx, t, c, doClaim) // the plans are made here
	run(ctx, t, c, doSettle)
	run(ctx, t, c, put("early "))
	for _, sql := range doOthers {
		run(ctx, t, c, sql)
	}
	for _, table := range []string{"request", "secret", "delivery", "outcome", "work", "attempt", "expiry", "user", "user_message"} {
		run(ctx, t, c, `DELETE FROM posthouse_`+table)
	}
	for _, sql := range append(fillDeliveries, `ALTER SEQUENCE posthouse_request_seq RESTART 200000`, `ALTER SEQUENCE posthouse_delivery_seq RESTART 4611686018428387904`,
		`INSERT INTO posthouse_user SELECT 'user ' || n, 1 FROM generate_series(1, 50000) n`) {
		run(ctx, t, c, sql)
	}

	check := func(name, sql string, most int) {
		t.Helper()
		plan := explain(ctx, t, c, sql)
		plan.walk(func(n node) {
			if strings.Contains(n.Type, "Seq Scan") && strings.HasPrefix(n.Table, "posthouse_") && n.Table != "posthouse_source" {
				t.Errorf("%s reads %s with a %s", name, n.Table, n.Type)
			}
		})
		if touched := plan.Hit + plan.Read; touched > most {
			t.Errorf("%s touched %d pages, want at most %d: %+v", name, touched, most, plan)
		} else {
			t.Logf("%s touched %d pages", name, touched)
		}
	}
	check("claim of 100", doClaim, 4000)
	check("success of 100", doSettle, 4000)
	for name, sql := range doOthers {
		check(name, sql, map[string]int{"outgoing": 1500, "heads": 2500, "cancel": 1500}[name]+700)
	}
	// Each row of seven tables, and its places in their indexes.
	check("put of 200 requests", put("late "), 30_000)

	run(ctx, t, c, `SET plan_cache_mode = force_custom_plan`)
	run(ctx, t, c, `SET enable_bitmapscan = off`)
	pages := map[string]string{"": pageOfAllDeliveries}
	for _, status := range model.DeliveryStatuses() {
		pages[string(status)] = pagesByState[status]
	}
	for _, when := range []string{"before", "after"} {
		for status, sql := range pages {
			for _, one := range []bool{false, true} {
				of := ""
				types, more := "bigint, bigint, bigint, bigint, bigint", ""
				if one {
					of, types, more = " AND id = $6", types+", int", fmt.Sprint(", ", text)
					if status == "" {
						sql = pageOfChannel
					}
				}
				name := fmt.Sprintf("list of %q, of one channel %t, %s ANALYZE", status, one, when)
				run(ctx, t, c, fmt.Sprintf(`PREPARE list (%s) AS %s`, types, strings.ReplaceAll(sql, "%channel", of)+showDeliveries))
				check(name, fmt.Sprintf(`EXECUTE list(51, %d, 0, 0, %d%s)`, int64(1<<63-1), int64(1<<62), more), 2000)
				middle := int64(model.DeliverySeqs) + 100_000
				check(name+", in time", fmt.Sprintf(`EXECUTE list(51, %d, %d, 30000000000, 50000000000%s)`, middle+120, middle-40_120, more), 2000)
				run(ctx, t, c, `DEALLOCATE list`)
			}
		}
		run(ctx, t, c, `ANALYZE`)
	}
}
