package postgres

import (
	"fmt"
	"testing"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/testdb"
)

// million fills a store with 1,000,000 finished messages of four sources, and
// a few thousand that are not.
func million(b *testing.B) (*Store, []model.Source) {
	s := open(b, Config{URL: testdb.Postgres(b)})
	migrated(b, s)
	var specs []model.SourceSpec
	for i := range 4 {
		specs = append(specs, model.SourceSpec{Name: fmt.Sprintf("m%d", i), Wants: serial})
	}
	sources, err := s.Register(b.Context(), specs)
	if err != nil {
		b.Fatal(err)
	}
	db := other(b, s)
	for _, statement := range []string{
		`INSERT INTO posthouse_message (received_at, source, size, id, content_type, check_note, headers, query, body)
			SELECT 1700000000000000 + n * 1000, 1 + n % 4, 100, gen_random_uuid(), 'application/json', '', '', '', decode(repeat('78', 100), 'hex')
			FROM generate_series(1, 1006000) n`,
		`INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status)
			SELECT seq, received_at, received_at + 1000, source, 1, 0, 0, 200 FROM posthouse_message WHERE seq <= 1000000`,
		`INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
			SELECT seq, received_at + (CASE WHEN seq % 3 = 1 THEN 1e15 ELSE 0 END)::bigint, 0, 0, 0, source,
				CASE WHEN seq % 3 = 0 THEN 0 ELSE 1 END, 0, 0, CASE WHEN seq % 3 = 2 THEN 2 ELSE 0 END
			FROM posthouse_message WHERE seq > 1000000`,
		`INSERT INTO posthouse_counter (source, shard, succeeded) SELECT source, 0, count(*) FROM posthouse_outcome GROUP BY source`,
		`ANALYZE`,
	} {
		if _, err := db.ExecContext(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	return s, sources
}

// BenchmarkClaimBesideMillions compares what a claim looks at with and without
// 1,000,000 finished messages, and 1,000,000 that are due tomorrow in the same
// queue.
func BenchmarkClaimBesideMillions(b *testing.B) {
	few, queue := benchStore(b)
	many, sources := million(b)
	for _, s := range []*Store{few, many} {
		if err := s.JoinInstance(b.Context(), 1, "million", 1e12, nil); err != nil {
			b.Fatal(err)
		}
	}
	if sources[0].ID != queue {
		b.Fatal("two queues")
	}
	for _, statement := range []string{
		`TRUNCATE posthouse_work`,
		`INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
			SELECT 10000000 + n, 4000000000000000 + n, 0, 0, 0, 1, 1, 0, 0, 0 FROM generate_series(1, 1000000) n`,
		`VACUUM ANALYZE posthouse_work`,
	} {
		if _, err := other(b, many).ExecContext(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	for range 20 {
		benchPut(b, few, queue)
		benchPut(b, many, queue)
	}
	rows, pages := claimLooks(b, few, queue)
	moreRows, morePages := claimLooks(b, many, queue)
	b.Logf("a claim looks at %d rows in %d pages, and with millions beside them at %d in %d", rows, pages, moreRows, morePages)
	if moreRows != rows || morePages > pages*11/10+3 {
		b.Error("the claim costs more")
	}
}

// claimLooks says how many rows and pages a claim of 1000 looks at, and takes
// nothing.
func claimLooks(b *testing.B, s *Store, queue model.SourceID) (rows, pages int) {
	conn, err := s.pool.Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Release()
	c := conn.Conn()
	run(b.Context(), b, c, `BEGIN`)
	run(b.Context(), b, c, `PREPARE looks (`+claimTypes+`) AS `+claimStatements[claimForm{}])
	explain(b.Context(), b, c, fmt.Sprintf(`EXECUTE looks(%d, 1, 77, 1000, 1, 0, 1, 0, 0, 0, true, 3)`, queue)).walk(func(n node) {
		if n.Index == "posthouse_work_due" && n.Type == "Index Scan" {
			rows, pages = rows+n.Rows, pages+n.Hit+n.Read
		}
	})
	run(b.Context(), b, c, `DEALLOCATE looks`)
	run(b.Context(), b, c, `ROLLBACK`)
	return rows, pages
}

// BenchmarkMillion reads first and second pages beside 1,000,000 finished
// messages.
func BenchmarkMillion(b *testing.B) {
	s, sources := million(b)
	filters := map[string]model.Filter{"any": model.AnyState, "pending": model.OnlyPending, "retrying": model.OnlyRetrying,
		"processing": model.OnlyProcessing, "success": model.OnlySuccess, "failed": model.OnlyFailed}
	for name, filter := range filters {
		for from, source := range map[string]model.SourceID{"one": sources[1].ID, "all": 0} {
			b.Run(name+" of "+from, func(b *testing.B) {
				for b.Loop() {
					p := model.ListParams{Source: source, Filter: filter, Limit: 50}
					page, err := s.ListMessages(b.Context(), p)
					if err == nil && page.Next != nil {
						p.After = *page.Next
						page, err = s.ListMessages(b.Context(), p)
					}
					if err != nil || (len(page.Items) != 50) != (filter == model.OnlyProcessing) {
						b.Fatal(len(page.Items), err)
					}
				}
			})
		}
	}
	b.Run("stats", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Stats(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("any due", func(b *testing.B) {
		for b.Loop() {
			due, err := s.DueWork(b.Context(), model.DueParams{Queue: sources[0].ID, Slots: []model.Slot{0}})
			if err != nil || len(due.Slots) != 1 {
				b.Fatal(due, err)
			}
		}
	})
}
