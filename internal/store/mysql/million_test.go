package mysql

import (
	"fmt"
	"testing"

	"github.com/posthouse/posthouse/internal/model"
)

// million fills a store with 1,000,000 finished messages of four sources, and
// a few thousand that are not.
func million(b *testing.B, engine engine) (*Store, []model.Source) {
	url := engine.fresh(b)
	s := open(b, Config{URL: url})
	migrated(b, s)
	var specs []model.SourceSpec
	for i := range 4 {
		specs = append(specs, model.SourceSpec{Name: fmt.Sprintf("m%d", i)})
	}
	sources, err := s.Register(b.Context(), specs)
	if err != nil {
		b.Fatal(err)
	}
	db := other(b, url)
	const ten = `(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
		UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)`
	for i := range 101 { // of 10,000 each
		_, err := db.ExecContext(b.Context(), fmt.Sprintf(`INSERT INTO posthouse_message
			(seq, received_at, source, put_by, size, id, content_type, check_note, headers, query, body)
			SELECT n, 1700000000000000 + n * 1000, 1 + n %% 4, 1, 100, unhex(replace(uuid(), '-', '')), 'application/json', '', '', '', repeat('x', 100)
			FROM (SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * %d AS n FROM %s a JOIN %[2]s b JOIN %[2]s c JOIN %[2]s d) n ORDER BY n`, i, ten))
		if err != nil {
			b.Fatal(err)
		}
	}
	for _, statement := range []string{
		`INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status)
			SELECT seq, received_at, received_at + 1000, source, 1, 0, 0, 200 FROM posthouse_message WHERE seq <= 1000000`,
		`INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
			SELECT seq, received_at + CASE WHEN seq % 3 = 1 THEN 1000000000000000 ELSE 0 END, 0, 0, 0, source,
				CASE WHEN seq % 3 = 0 THEN 0 ELSE 1 END, 0, 0, CASE WHEN seq % 3 = 2 THEN 2 ELSE 0 END
			FROM posthouse_message WHERE seq > 1000000`,
		`INSERT INTO posthouse_counter (source, shard, succeeded) SELECT source, 0, count(*) FROM posthouse_outcome GROUP BY source`,
	} {
		if _, err := db.ExecContext(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	return s, sources
}

// BenchmarkTomorrow claims beside 1,000,000 finished messages, then also beside
// 1,000,000 that are due tomorrow in the same slots. It counts what is read.
func BenchmarkTomorrow(b *testing.B) {
	for _, engine := range engines {
		b.Run(engine.name, func(b *testing.B) {
			for _, wants := range []model.Ordering{{Order: model.Serial, Partitions: 1}, {Order: model.Keyed, Partitions: 1, Key: "k", Block: true}} {
				b.Run(string(wants.Order), func(b *testing.B) { tomorrow(b, engine, wants) })
			}
		})
	}
}

func tomorrow(b *testing.B, engine engine, wants model.Ordering) {
	s, _ := million(b, engine)
	s.db.SetMaxOpenConns(1) // the counters are those of a connection
	source := keyed(b, s, wants)
	token := model.Token(0)
	claim := func(b *testing.B) {
		read, n := int64(0), 0
		for b.Loop() {
			b.StopTimer()
			putKeyed(b, s, source, 600, func(i int) string { return fmt.Sprint(i % 300) })
			before := rowsRead(b, s)
			token++
			b.StartTimer()
			claimed, err := s.ClaimWork(b.Context(), claimOf(source, token, 64))
			b.StopTimer()
			read += rowsRead(b, s) - before
			n++
			for len(claimed.Works) > 0 && err == nil { // so that each claim finds the same
				var all []model.Settlement
				for _, w := range claimed.Works {
					all = append(all, model.Settlement{Seq: w.Seq, Queue: w.Queue, Token: token, Kind: model.SettleSuccess})
				}
				if _, err = s.Settle(b.Context(), all); err == nil {
					claimed, err = s.ClaimWork(b.Context(), claimOf(source, token, 600))
				}
			}
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		b.ReportMetric(float64(read)/float64(n), "rows/claim")
	}
	b.Run("before", claim)
	_, err := s.db.ExecContext(b.Context(), fmt.Sprintf(`INSERT INTO posthouse_work
		(seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state, slot, key_hash)
		SELECT seq, 9000000000000000 + seq, 0, 0, 0, %d, 0, 0, 0, 0, %d + if(%t, seq %% 256, 0), if(%[3]t, 1 + seq %% 1000, 0)
		FROM posthouse_message WHERE seq <= 1000000`, source.ID, source.Agreed.SlotsOf(0)[0], wants.HasKeys()))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("after", claim)
}

// BenchmarkMillion reads first and second pages beside 1,000,000 finished
// messages.
func BenchmarkMillion(b *testing.B) {
	for _, engine := range engines {
		b.Run(engine.name, func(b *testing.B) { pages(b, engine) })
	}
}

func pages(b *testing.B, engine engine) {
	s, sources := million(b, engine)
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
	b.Run("due work", func(b *testing.B) {
		for b.Loop() {
			if due, err := s.DueWork(b.Context(), model.DueParams{Queue: sources[0].ID, Slots: oneSlot}); err != nil || len(due.Slots) != 1 {
				b.Fatal(due, err)
			}
		}
	})
}
