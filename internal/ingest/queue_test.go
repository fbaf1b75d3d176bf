package ingest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func TestQueue(t *testing.T) {
	now := time.Now()
	queued := func(q *queue, source model.SourceID, size int) *row {
		r := &row{ctx: context.Background(), deadline: now.Add(time.Second), size: size, lane: q.lane(source)}
		q.put(r)
		return r
	}
	take := func(q *queue, rows, bytes int) []string {
		batch, _ := q.take(nil, nil, takeParams{rows: rows, bytes: bytes, now: now})
		names := []string{}
		for _, r := range batch {
			names = append(names, fmt.Sprintf("%d:%d", r.lane.source, r.size))
		}
		return names
	}
	check := func(t *testing.T, got []string, want ...string) {
		t.Helper()
		if want == nil {
			want = []string{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}

	t.Run("IN-16 a batch takes one row of each source in turn, and goes on where the last one ended", func(t *testing.T) {
		q := newQueue(100)
		for i := range 5 {
			queued(&q, 1, 10+i)
		}
		queued(&q, 2, 20)
		queued(&q, 2, 21)
		queued(&q, 3, 30)
		check(t, take(&q, 4, 1000), "1:10", "2:20", "3:30", "1:11")
		check(t, take(&q, 1, 1000), "2:21")
		check(t, take(&q, 9, 1000), "1:12", "1:13", "1:14")
		check(t, take(&q, 9, 1000))
		queued(&q, 3, 31)
		check(t, take(&q, 9, 1000), "3:31")
	})
	t.Run("a row too large for what is left is the first of the next batch, and others fill this one", func(t *testing.T) {
		q := newQueue(100)
		queued(&q, 1, 60)
		queued(&q, 1, 61)
		queued(&q, 2, 10)
		queued(&q, 2, 11)
		queued(&q, 2, 12)
		check(t, take(&q, 9, 100), "1:60", "2:10", "2:11", "2:12")
		queued(&q, 2, 13)
		check(t, take(&q, 9, 100), "1:61", "2:13")
	})
	t.Run("a row too large for any batch goes alone", func(t *testing.T) {
		q := newQueue(100)
		queued(&q, 1, 10)
		queued(&q, 2, 500)
		queued(&q, 1, 11)
		check(t, take(&q, 9, 100), "1:10", "1:11")
		queued(&q, 1, 12)
		check(t, take(&q, 9, 100), "2:500")
		check(t, take(&q, 9, 100), "1:12")
	})
	t.Run("IN-02 rows for which nobody waits are skipped", func(t *testing.T) {
		q := newQueue(100)
		hungUp, cancel := context.WithCancel(context.Background())
		cancel()
		queued(&q, 1, 10).ctx = hungUp
		queued(&q, 1, 11).deadline = now
		queued(&q, 2, 20).deadline = now
		queued(&q, 1, 12)
		batch, gone := q.take(nil, nil, takeParams{rows: 9, bytes: 1000, now: now})
		if len(batch) != 1 || batch[0].size != 12 || len(gone) != 3 || q.rows != 0 {
			t.Errorf("took %d, skipped %d, %d left; want 1, 3, 0", len(batch), len(gone), q.rows)
		}
	})
	t.Run("rows can leave from anywhere", func(t *testing.T) {
		q := newQueue(100)
		var rows []*row
		for i := range 5 {
			rows = append(rows, queued(&q, 1, 10+i))
		}
		q.remove(rows[0])
		q.remove(rows[2])
		q.remove(rows[4])
		check(t, take(&q, 9, 1000), "1:11", "1:13")
		if q.rows != 0 {
			t.Errorf("%d rows are counted in an empty queue", q.rows)
		}
	})
}

func TestFairShare(t *testing.T) {
	t.Run("IN-16 one flooding source gets half, k of them 1/(k+1) each, and as much stays free", func(t *testing.T) {
		const bound = 1200
		for k := 1; k <= 5; k++ {
			held := make([]int64, k)
			var all int64
			for progress := true; progress; {
				progress = false
				for i := range held {
					if fairShare(held[i], all, 1, bound) {
						held[i]++
						all++
						progress = true
					}
				}
			}
			want := int64(bound / (k + 1))
			for i, h := range held {
				if h != want {
					t.Errorf("%d sources: the %d. holds %d, want %d", k, i+1, h, want)
				}
			}
			if !fairShare(0, all, want, bound) {
				t.Errorf("%d sources flood: a newcomer does not get %d", k, want)
			}
		}
	})
}
