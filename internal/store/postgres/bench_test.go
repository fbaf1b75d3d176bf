package postgres

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/testdb"
)

const benchBatch = 64

func benchStore(b *testing.B) (*Store, model.SourceID) {
	s := open(b, Config{URL: testdb.Postgres(b)})
	migrated(b, s)
	sources, err := s.Register(b.Context(), []model.SourceSpec{{Name: "bench", Wants: model.Ordering{Order: model.Parallel}}})
	if err != nil {
		b.Fatal(err)
	}
	return s, sources[0].ID
}

func benchPut(b *testing.B, s *Store, source model.SourceID) {
	messages := make([]model.NewMessage, benchBatch)
	for i := range messages {
		messages[i] = model.NewMessage{
			ID: uuid.Must(uuid.NewV7()), Source: source, ContentType: "application/json",
			Headers: []byte("Content-Type: application/json\r\nUser-Agent: bench\r\n"), Body: bytes.Repeat([]byte("x"), 1024),
		}
	}
	if _, err := s.PutMessages(b.Context(), model.PutPending, messages); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPut keeps messages of 1 KiB in batches of 64.
func BenchmarkPut(b *testing.B) {
	s, source := benchStore(b)
	for b.Loop() {
		benchPut(b, s, source)
	}
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkWork claims, starts and settles in batches, and says what each takes
// for one message.
func BenchmarkWork(b *testing.B) {
	for _, size := range []int{64, 1000} {
		b.Run(fmt.Sprintf("claim started, %d", size), func(b *testing.B) { benchWork(b, size, true) })
	}
	b.Run("claim and start, 64", func(b *testing.B) { benchWork(b, 64, false) })
}

func benchWork(b *testing.B, size int, atOnce bool) {
	ctx := b.Context()
	s, source := benchStore(b)
	if err := s.JoinInstance(ctx, 1, "bench", 1e9, nil); err != nil {
		b.Fatal(err)
	}
	var claims, starts, settles time.Duration
	took := func(sum *time.Duration, begun time.Time) { *sum += time.Since(begun) }
	token := model.Token(1)
	for b.Loop() {
		b.StopTimer()
		for range (size + benchBatch - 1) / benchBatch {
			benchPut(b, s, source)
		}
		b.StartTimer()
		token++
		begun := time.Now()
		claimed, err := s.ClaimWork(ctx, model.ClaimParams{
			Queue: source, Owner: 1, Token: token, Limit: size, Generation: 1, Slots: []model.Slot{0}, Shared: true,
			Start: atOnce, AloneFrom: 3,
		})
		work := claimed.Works
		took(&claims, begun)
		if err == nil && !atOnce {
			begun = time.Now()
			all := make([]model.Seq, len(work))
			for i, w := range work {
				all[i] = w.Seq
			}
			work, err = s.StartWork(ctx, model.StartParams{Token: token, Seqs: all})
			took(&starts, begun)
		}
		if err != nil || len(work) != size {
			b.Fatal(err, len(work))
		}
		begun = time.Now()
		settlements := make([]model.Settlement, len(work))
		for i, w := range work {
			settlements[i] = model.Settlement{Seq: w.Seq, Queue: source, Token: token, Kind: model.SettleSuccess, StartedAt: w.StartedAt, Duration: 1000}
		}
		if _, err := s.Settle(ctx, settlements); err != nil {
			b.Fatal(err)
		}
		took(&settles, begun)
	}
	each := func(sum time.Duration, unit string) {
		b.ReportMetric(float64(sum.Microseconds())/float64(b.N*size), unit)
	}
	each(claims, "claim-µs/row")
	each(starts, "start-µs/row")
	each(settles, "settle-µs/row")
	b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "rows/s")
}
