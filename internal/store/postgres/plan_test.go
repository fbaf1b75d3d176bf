package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/testdb"
)

// claimTypes are those of the parameters of a claim in one slot.
const claimTypes = "int, bigint, bigint, bigint, bigint, int, int, int, bigint, bigint, bool, int"

// node is a step of a plan.
type node struct {
	Type  string `json:"Node Type"`
	Table string `json:"Relation Name"`
	Index string `json:"Index Name"`
	Cond  string `json:"Index Cond"`
	Hit   int    `json:"Shared Hit Blocks"`
	Read  int    `json:"Shared Read Blocks"`
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
	sources, err := s.Register(ctx, []model.SourceSpec{{Name: "a", Wants: serial}, {Name: "b", Wants: serial}})
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
	prepare("start", start, "bigint[], bigint")
	prepare("settle", settle, "bigint[],bigint[],int[],bigint[],int[],int[],int[],int[],bigint[],bool[],bigint[],text[],text[]")
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

	run(ctx, t, c, `EXECUTE orphans(100)`)

	run(ctx, t, c, `INSERT INTO posthouse_message (received_at, source, size, id, content_type, check_note, headers, query, body)
		SELECT n, 1 + n % 2, 100, gen_random_uuid(), 'text/plain', '', '', '', decode(repeat('78', 100), 'hex') FROM generate_series(1, 60000) n`)
	run(ctx, t, c, `INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
		SELECT seq, received_at + (CASE WHEN seq % 4 < 2 THEN 9e15 ELSE 0 END)::bigint, 0, 0, 0, source, 0, 0, 0, 0 FROM posthouse_message`)

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
	check("orphans", `EXECUTE orphans(100)`, 100)
	const (
		ints  = `array_fill(0, '{10}')`
		longs = `array_fill(0::bigint, '{10}')`
		texts = `array_fill(''::text, '{10}')`
	)
	check("settle", fmt.Sprintf(`EXECUTE settle(%s, array_fill(77::bigint, '{10}'), array_fill(1, '{10}'), %s, %s, %s, %s,
		'{1,1,1,1,2,2,3,3,4,4}', %s, array_fill(false, '{10}'), %s, %s, %s)`, first, longs, ints, ints, ints, longs, longs, texts, texts), 600)
	if n := number(ctx, t, c, `SELECT count(*) FROM posthouse_outcome`); n != 4 {
		t.Errorf("%d outcomes, want 4", n)
	}
	if n := number(ctx, t, c, `SELECT count(*) FROM posthouse_work WHERE started_at <> 0`); n != 10 {
		t.Errorf("%d started works, want 10", n)
	}
	check("keep", `EXECUTE keep('{2,1}', ARRAY[gen_random_uuid(), gen_random_uuid()], '{1,1}', '{a,a}', '{"",""}', '{"",""}', '{"",""}', '{"",""}')`, 200)
}

func keepOne(t *testing.T, s *Store, source model.SourceID) {
	t.Helper()
	_, err := s.PutMessages(t.Context(), model.PutPending, []model.NewMessage{{ID: uuid.New(), Source: source}})
	if err != nil {
		t.Fatal(err)
	}
}

func run(ctx context.Context, t *testing.T, c *pgx.Conn, sql string) {
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

func explain(ctx context.Context, t *testing.T, c *pgx.Conn, sql string) node {
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
