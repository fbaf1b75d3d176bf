package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/testdb"
)

// Types of the parameters of a claim in one slot; of one in many, that blocks;
// and of a look for due work.
const (
	claimTypes     = "int, bigint, bigint, bigint, bigint, int, int, int, bigint, bigint, bool, int"
	claimManyTypes = "int, bigint, bigint, bigint, bigint, int, int, int[], bigint, bigint, bool, int, bigint, bigint"
	dueTypes       = "int, int[], int, int, bigint"
)

// node is a step of a plan.
type node struct {
	Type  string `json:"Node Type"`
	Table string `json:"Relation Name"`
	Index string `json:"Index Name"`
	Cond  string `json:"Index Cond"`
	Hit   int    `json:"Shared Hit Blocks"`
	Read  int    `json:"Shared Read Blocks"`
	Rows  int    `json:"Actual Rows"`
	Plans []node
}

func (n node) walk(visit func(node)) {
	visit(n)
	for _, child := range n.Plans {
		child.walk(visit)
	}
}

// TestPlans plans the statements of every message when the statistics say that
// there is next to nothing, keeps these plans as a connection does, and runs them
// when there is much: none may read more than what it is about.
func TestPlans(t *testing.T) {
	ctx := t.Context()
	s := open(t, Config{URL: testdb.Postgres(t), MaxConns: 2})
	migrated(t, s)
	sources, err := s.Register(ctx, []model.SourceSpec{
		{Name: "a", Wants: serial}, {Name: "b", Wants: serial},
		{Name: "c", Wants: model.Ordering{Order: model.Keyed, Partitions: 1, Key: "k", Block: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.JoinInstance(ctx, 1, "plans", 1e12, nil); err != nil {
		t.Fatal(err)
	}
	queue := sources[0].ID
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	c := conn.Conn()
	run(ctx, t, c, `SET plan_cache_mode = force_generic_plan`)

	keepOne(t, s, queue)
	run(ctx, t, c, `VACUUM ANALYZE`)
	run(ctx, t, c, `DELETE FROM posthouse_message; DELETE FROM posthouse_work; ALTER SEQUENCE posthouse_message_seq RESTART`)

	prepare := func(name, sql string, types string) {
		run(ctx, t, c, fmt.Sprintf(`PREPARE %s (%s) AS %s`, name, types, sql))
	}
	prepare("claim", claimStatements[claimForm{}], claimTypes)
	prepare("shared", claimStatements[claimForm{shared: true}], claimTypes)
	prepare("many", claimStatements[claimForm{many: true}], strings.TrimSuffix(claimManyTypes, ", bigint"))
	prepare("blocking", claimStatements[claimForm{many: true, block: true}], claimManyTypes)
	prepare("due", dueWork, dueTypes)
	prepare("misplaced", misplaced, "int, int, int, bigint")
	prepare("place", place, "int, bigint[], int[], bigint[]")
	prepare("success", settleSuccess, "bigint[],bigint[],int[],bigint[],int[],int[],int[]")
	prepare("start", start, "bigint[], bigint")
	prepare("settle", settle, "bigint[],bigint[],int[],bigint[],int[],int[],int[],int[],bigint[],bool[],bigint[],text[],text[],text[],text[],text[]")
	prepare("orphans", listOrphans, "bigint")
	prepare("keep", putStatements[putForm{}], "int[],uuid[],int[],text[],text[],bytea[],bytea[],bytea[]")
	// Each is about ten rows and their messages: queue 1 holds the even seqs, of which every second is due.
	first, second := "'{2,6,10,14,18,22,26,30,34,38}'", "'{42,46,50,54,58,62,66,70,74,78}'"
	const (
		doClaim  = `EXECUTE claim(%d, 1, 77, 10, 1, 0, 1, 0, 0, 0, true, 3)`
		doClaimB = `EXECUTE claim(%d, 1, 78, 10, 1, 0, 1, 0, 0, 0, false, 3)`
		doStart  = `EXECUTE start(%s, 78)`
	)
	run(ctx, t, c, fmt.Sprintf(doClaim, queue)) // the plans are made here
	run(ctx, t, c, fmt.Sprintf(doStart, second))

	slots := func(first int) string {
		var all []string
		for i := range 256 {
			all = append(all, strconv.Itoa(first+i))
		}
		return "'{" + strings.Join(all, ",") + "}'"
	}
	// The third source has 200 keys in 256 slots, and as much work.
	doMany := fmt.Sprintf(`EXECUTE many(%d, 1, 79, 10, 1, 256, 512, %s, 0, 0, true, 3, 4)`, sources[2].ID, slots(256))
	doBlocking := fmt.Sprintf(`EXECUTE blocking(%d, 1, 80, 64, 1, 256, 512, %s, 0, 0, true, 3, 4, 10)`, sources[2].ID, slots(256))
	doDue := fmt.Sprintf(`EXECUTE due(%d, %s, 256, 512, 0)`, sources[2].ID, slots(256))
	doPlace := fmt.Sprintf(`EXECUTE place(%d, '{4,8,12}', '{1,1,1}', '{7,7,7}')`, queue)
	doMisplaced := fmt.Sprintf(`EXECUTE misplaced(%d, 0, 1, 10)`, queue)
	for _, sql := range []string{`EXECUTE orphans(100)`, fmt.Sprintf(`EXECUTE shared(%d, 1, 81, 10, 1, 0, 1, 0, 0, 0, true, 3)`, queue),
		doMany, doBlocking, doDue, doPlace, doMisplaced, doSuccess("'{1}'", 1)} {
		run(ctx, t, c, sql)
	}

	run(ctx, t, c, `INSERT INTO posthouse_message (received_at, source, size, id, content_type, check_note, headers, query, body)
		SELECT n, 1 + n % 2, 100, gen_random_uuid(), 'text/plain', '', '', '', decode(repeat('78', 100), 'hex') FROM generate_series(1, 60000) n`)
	run(ctx, t, c, `INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
		SELECT seq, received_at + (CASE WHEN seq % 4 < 2 THEN 9e15 ELSE 0 END)::bigint, 0, 0, 0, source, 0, 0, 0, 0 FROM posthouse_message`)
	run(ctx, t, c, fmt.Sprintf(`INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state, slot, key_hash)
		SELECT 1000000 + n, n + (CASE WHEN n %% 4 < 2 THEN 9e15 ELSE 0 END)::bigint, 0, 0, 0, %d, 0, 0, 0, 0, 256 + n %% 256, 1 + n %% 256
		FROM generate_series(1, 60000) n`, sources[2].ID))

	check := func(name, sql string, most int) {
		t.Helper()
		plan := explain(ctx, t, c, sql)
		plan.walk(func(n node) {
			if strings.Contains(n.Type, "Seq Scan") && strings.HasPrefix(n.Table, "posthouse_") && n.Table != "posthouse_source" {
				t.Errorf("%s scans all of %s", name, n.Table)
			}
		})
		if touched := plan.Hit + plan.Read; touched > most {
			t.Errorf("%s touched %d pages, want at most %d: %+v", name, touched, most, plan)
		} else {
			t.Logf("%s touched %d pages", name, touched)
		}
		if name == "claim" {
			bounded := false
			plan.walk(func(n node) {
				bounded = bounded || n.Index == "posthouse_work_due" && strings.Contains(n.Cond, "due_at")
			})
			if !bounded {
				t.Error("the clock does not bound the claim's index scan")
			}
		}
	}
	check("claim", fmt.Sprintf(doClaim, queue), 600)
	check("claim without start", fmt.Sprintf(doClaimB, queue), 600)
	check("start", fmt.Sprintf(doStart, second), 200)
	// One look into each of 256 slots, and the few rows in each that say how far to go.
	check("claim of many slots", doMany, 3500)
	check("claim that blocks", doBlocking, 6000)
	check("due", doDue, 1500)
	check("place", doPlace, 100)
	check("misplaced", doMisplaced, 100)
	check("success", doSuccess("'{82,86,90}'", 3), 100)
	check("orphans", `EXECUTE orphans(100)`, 100)
	const (
		ints  = `array_fill(0, '{10}')`
		longs = `array_fill(0::bigint, '{10}')`
		texts = `array_fill(''::text, '{10}')`
	)
	check("settle", fmt.Sprintf(`EXECUTE settle(%[1]s, array_fill(77::bigint, '{10}'), array_fill(1, '{10}'), %[2]s, %[3]s, %[3]s, %[3]s,
		'{1,1,1,1,2,2,3,3,4,4}', %[2]s, array_fill(false, '{10}'), %[2]s, %[4]s, %[4]s, %[4]s, %[4]s, %[4]s)`, first, longs, ints, texts), 600)
	if n := number(ctx, t, c, `SELECT count(*) FROM posthouse_outcome`); n != 4 {
		t.Errorf("%d outcomes, want 4", n)
	}
	if n := number(ctx, t, c, `SELECT count(*) FROM posthouse_work WHERE started_at <> 0 AND slot = 0`); n != 10 {
		t.Errorf("%d started works, want 10", n)
	}
	check("keep", `EXECUTE keep('{2,1}', ARRAY[gen_random_uuid(), gen_random_uuid()], '{1,1}', '{a,a}', '{"",""}', '{"",""}', '{"",""}', '{"",""}')`, 200)
}

// doSuccess settles n seqs with success, under a token that they do not have.
func doSuccess(seqs string, n int) string {
	ints, longs := fmt.Sprintf(`array_fill(0, '{%d}')`, n), fmt.Sprintf(`array_fill(0::bigint, '{%d}')`, n)
	return fmt.Sprintf(`EXECUTE success(%s, %s, %s, %s, %s, %s, %s)`, seqs, longs, ints, longs, ints, ints, ints)
}

// TestFloor: while somebody holds on to an old snapshot, what was claimed stays
// in the index. A claim with a floor does not walk over it.
func TestFloor(t *testing.T) {
	ctx := t.Context()
	s, queue := ready(t, Config{URL: testdb.Postgres(t), MaxConns: 2})
	if err := s.JoinInstance(ctx, 1, "floor", 1e12, nil); err != nil {
		t.Fatal(err)
	}
	old, err := other(t, s).BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Rollback()
	if _, err := old.ExecContext(ctx, `SELECT count(*) FROM posthouse_work`); err != nil {
		t.Fatal(err)
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	c := conn.Conn()
	run(ctx, t, c, fmt.Sprintf(`INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
		SELECT n, n, 0, 0, 0, %d, 0, 0, 0, 0 FROM generate_series(1, 20000) n`, queue))
	run(ctx, t, c, `DELETE FROM posthouse_work WHERE seq <= 19980`)
	run(ctx, t, c, "PREPARE claim ("+claimTypes+") AS "+claimStatements[claimForm{}])
	run(ctx, t, c, "PREPARE due ("+dueTypes+") AS "+dueWork)
	touched := func(sql string) int {
		plan := explain(ctx, t, c, sql)
		return plan.Hit + plan.Read
	}
	t.Run("a claim begins at its floor", func(t *testing.T) {
		if n := touched(fmt.Sprintf(`EXECUTE claim(%d, 1, 77, 10, 1, 0, 1, 0, 19900, 0, false, 3)`, queue)); n > 500 {
			t.Errorf("with a floor it touched %d pages", n)
		}
		if n := touched(fmt.Sprintf(`EXECUTE claim(%d, 1, 77, 10, 1, 0, 1, 0, 0, 0, false, 3)`, queue)); n < 500 {
			t.Errorf("without one it touched %d pages: this test proves nothing", n)
		}
		if n := number(ctx, t, c, `SELECT count(*) FROM posthouse_work WHERE state = 1`); n != 20 {
			t.Errorf("%d were claimed, want 20", n)
		}
	})
	t.Run("so does a look for due work", func(t *testing.T) {
		if n := touched(fmt.Sprintf(`EXECUTE due(%d, '{0}', 0, 1, 19900)`, queue)); n > 200 {
			t.Errorf("it touched %d pages", n)
		}
	})
}

func keepOne(t *testing.T, s *Store, source model.SourceID) {
	t.Helper()
	_, err := s.PutMessages(t.Context(), model.PutPending, []model.NewMessage{{ID: uuid.New(), Source: source}})
	if err != nil {
		t.Fatal(err)
	}
}

func run(ctx context.Context, t testing.TB, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

func number(ctx context.Context, t *testing.T, c *pgx.Conn, sql string) (n int) {
	t.Helper()
	if err := c.QueryRow(ctx, sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func explain(ctx context.Context, t testing.TB, c *pgx.Conn, sql string) node {
	t.Helper()
	var text []byte
	err := c.QueryRow(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sql, pgx.QueryExecModeSimpleProtocol).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	var plans []struct{ Plan node }
	if err := json.Unmarshal(text, &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan
}
