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
