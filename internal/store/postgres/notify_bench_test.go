package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/testdb"
)

// benchRequests is how many requests are put at once.
const benchRequests = 256

// benchCenter is a store with an in-app channel and another one.
func benchCenter(tb testing.TB) (s *Store, inApp, text model.SourceID) {
	s = open(tb, Config{URL: testdb.Postgres(tb)})
	migrated(tb, s)
	var specs []model.SourceSpec
	for _, name := range []string{"in_app", "text"} {
		specs = append(specs, model.SourceSpec{Name: model.ChannelPrefix + name, Tenant: model.TenantDelivery, Enabled: true,
			Wants: model.Ordering{Order: model.Parallel}, Policy: model.RetryPolicy{Uncertain: model.UncertainResend}})
	}
	sources, err := s.Register(context.Background(), specs)
	if err != nil {
		tb.Fatal(err)
	}
	return s, sources[0].ID, sources[1].ID
}

// benchNotifications are n requests with a user message and two deliveries each,
// one of them in-app.
func benchNotifications(n int, inApp, text model.SourceID) []model.NewRequest {
	requests := make([]model.NewRequest, n)
	for i := range requests {
		id := uuid.Must(uuid.NewV7())
		requests[i] = model.NewRequest{
			ID: id, Key: "order:" + id.String() + ":shipped", Content: model.Content{KeyID: "k1"}, BizType: "order.shipped",
			Template: "order_shipped", Recipient: fmt.Sprint("u", i*7919%100_000), Priority: model.PriorityNormal, Locale: "zh-CN",
			Variables: json.RawMessage(`{"carrier":"SF","number":"SF1234567890","order":"2026-0001","title":"Your order is on its way"}`),
			Choices:   []model.Choice{{Channel: "in_app", Reason: "policy 1"}, {Channel: "text", Reason: "policy 1"}},
			Message:   &model.NewUserMessage{ID: uuid.Must(uuid.NewV7()), Title: "Shipped", Body: "Your order 2026-0001 is on its way with SF, number SF1234567890."},
			Deliveries: []model.NewDelivery{
				{ID: uuid.Must(uuid.NewV7()), Channel: inApp, Template: 1, Locale: "zh-CN", Reason: "policy 1", Done: true},
				{ID: uuid.Must(uuid.NewV7()), Channel: text, Template: 2, Locale: "zh-CN", Reason: "policy 1", Masked: "+86•••42",
					Address: model.Sealed{KeyID: "k1", Bytes: make([]byte, 42)}},
			},
		}
	}
	return requests
}

// BenchmarkPutRequests keeps notifications in batches of 256. What rows/s counts
// are rows of requests, user messages, deliveries, work and outcomes.
func BenchmarkPutRequests(b *testing.B) {
	for _, writers := range []int{1, 2} {
		b.Run(fmt.Sprintf("%d at once", writers), func(b *testing.B) {
			s, inApp, text := benchCenter(b)
			work := make(chan []model.NewRequest)
			errs := make(chan error, writers)
			for range writers {
				go func() {
					var err error
					for batch := range work {
						if err == nil {
							_, err = s.PutRequests(b.Context(), batch)
						}
					}
					errs <- err
				}()
			}
			for b.Loop() {
				work <- benchNotifications(benchRequests, inApp, text)
			}
			close(work)
			for range writers {
				if err := <-errs; err != nil {
					b.Fatal(err)
				}
			}
			each := float64(b.N*benchRequests) / b.Elapsed().Seconds()
			b.ReportMetric(each, "notifications/s")
			b.ReportMetric(6*each, "rows/s")
		})
	}
}

// BenchmarkInsertNotifications inserts the same rows in batches, one statement for
// each table, as whoever does no more than that would: what BenchmarkPutRequests
// is measured against.
func BenchmarkInsertNotifications(b *testing.B) {
	s, _, _ := benchCenter(b)
	c, err := s.pool.Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Release()
	n := 0
	for b.Loop() {
		batch := &pgx.Batch{}
		for _, statement := range []string{
			`INSERT INTO posthouse_request SELECT $1 + n, 1, 0, 0, false, false, gen_random_uuid(), convert_to('order:' || ($1 + n) || gen_random_uuid(), 'UTF8'), 'k1',
				decode(repeat('00', 80), 'hex'), 'order.shipped', 'order_shipped', 'u', 'normal', 'zh-CN', 'null', '{}',
				'[{"channel":"in_app","reason":"policy 1"},{"channel":"text","reason":"policy 1"}]',
				'{"carrier":"SF","number":"SF1234567890","order":"2026-0001","title":"Your order is on its way"}' FROM generate_series(1, 256) n`,
			`INSERT INTO posthouse_user_message SELECT 'u' || n * 7919 % 100000, $1 + n, $1 + n, 1, 0, gen_random_uuid(), 'Shipped',
				'Your order 2026-0001 is on its way with SF, number SF1234567890.' FROM generate_series(1, 256) n`,
			`INSERT INTO posthouse_delivery SELECT 4611686018427387904 + 2 * ($1 + n) + c, $1 + n, 1, 1 + c, 1, 0, c = 0, gen_random_uuid(), 'zh-CN', 'policy 1', '+86•••42', 'k1',
				decode(repeat('00', 42), 'hex') FROM generate_series(1, 256) n, generate_series(0, 1) c`,
			`INSERT INTO posthouse_work (seq, due_at, token, owner, started_at, queue, retry_count, lost, replay, state)
				SELECT 4611686018427387904 + 2 * ($1 + n) + 1, 1, 0, 0, 0, 2, 0, 0, 0, 0 FROM generate_series(1, 256) n`,
			`INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status)
				SELECT 4611686018427387904 + 2 * ($1 + n), 0, 1, 1, 0, 0, 0, 0 FROM generate_series(1, 256) n`,
		} {
			batch.Queue(statement, int64(n))
		}
		if err := c.SendBatch(b.Context(), batch).Close(); err != nil {
			b.Fatal(err)
		}
		n += benchRequests
	}
	each := float64(b.N*benchRequests) / b.Elapsed().Seconds()
	b.ReportMetric(each, "notifications/s")
	b.ReportMetric(6*each, "rows/s")
}

// BenchmarkDeliveries claims, loads and settles deliveries in batches.
func BenchmarkDeliveries(b *testing.B) {
	for _, size := range []int{50, 100} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			ctx := b.Context()
			s, inApp, text := benchCenter(b)
			if err := s.JoinInstance(ctx, 1, "bench", 1e12, nil); err != nil {
				b.Fatal(err)
			}
			var claims, loads, settles time.Duration
			token, waiting := model.Token(0), 0
			for b.Loop() {
				if waiting < size {
					b.StopTimer()
					if _, err := s.PutRequests(ctx, benchNotifications(benchRequests, inApp, text)); err != nil {
						b.Fatal(err)
					}
					waiting += benchRequests
					b.StartTimer()
				}
				waiting -= size
				token++
				begun := time.Now()
				claimed, err := s.ClaimWork(ctx, model.ClaimParams{Queue: text, Owner: 1, Token: token, Limit: size, Generation: 1,
					Slots: []model.Slot{0}, Shared: true, Start: true, AloneFrom: 3, Bare: true})
				if err != nil || len(claimed.Works) != size {
					b.Fatal(len(claimed.Works), err)
				}
				claims += time.Since(begun)
				seqs, ends := make([]model.Seq, size), make([]model.Settlement, size)
				for i, w := range claimed.Works {
					seqs[i] = w.Seq
					ends[i] = model.Settlement{Seq: w.Seq, Queue: text, Token: token, Kind: model.SettleSuccess, StartedAt: w.StartedAt, ProviderID: "SM123"}
				}
				begun = time.Now()
				if all, err := s.Outgoing(ctx, seqs); err != nil || len(all) != size {
					b.Fatal(len(all), err)
				}
				loads += time.Since(begun)
				begun = time.Now()
				if _, err := s.Settle(ctx, ends); err != nil {
					b.Fatal(err)
				}
				settles += time.Since(begun)
			}
			each := func(sum time.Duration, unit string) {
				b.ReportMetric(float64(sum.Microseconds())/float64(b.N*size), unit)
			}
			each(claims, "claim-µs/row")
			each(loads, "load-µs/row")
			each(settles, "settle-µs/row")
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
