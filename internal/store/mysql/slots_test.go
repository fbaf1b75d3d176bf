package mysql

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// keyed is a source whose work stands in all slots of its first KeyID.
func keyed(t testing.TB, s *Store, wants model.Ordering) model.Source {
	t.Helper()
	sources, err := s.Register(t.Context(), []model.SourceSpec{{Name: "keyed", Enabled: true, Wants: wants}})
	if err == nil {
		err = s.JoinInstance(t.Context(), 1, "x", 1e12, []model.Want{{Queue: sources[0].ID, Ordering: wants}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return sources[0]
}

func claimOf(source model.Source, token model.Token, limit int) model.ClaimParams {
	a := source.Agreed
	return model.ClaimParams{Queue: source.ID, Owner: 1, Token: token, Limit: limit, Generation: a.Generation, KeyID: a.KeyID,
		Slots: a.SlotsOf(0), Block: a.Block, Start: true, AloneFrom: 9}
}

// putKeyed keeps n messages with the keys that key names, and gives them the
// due_at that due says, and slots and seqs for what it made.
func putKeyed(t testing.TB, s *Store, source model.Source, n int, key func(i int) string) {
	t.Helper()
	for from := 0; from < n; from += 500 {
		var messages []model.NewMessage
		for i := from; i < min(from+500, n); i++ {
			m := message(source.ID)
			m.Key = source.Agreed.KeyOf([]byte(key(i)))
			messages = append(messages, m)
		}
		if err := put(t.Context(), s, messages...); err != nil {
			t.Fatal(err)
		}
	}
}

// A claim, or a list, that looks into many slots finds what one sort of
// everything would.
func TestManySlots(t *testing.T) {
	for _, engine := range engines {
		t.Run("IN-09 "+engine.name, func(t *testing.T) {
			url := engine.fresh(t)
			s := open(t, Config{URL: url})
			migrated(t, s)
			source := keyed(t, s, model.Ordering{Order: model.Keyed, Partitions: 1, Key: "k"})
			random := rand.New(rand.NewPCG(1, 2))
			putKeyed(t, s, source, 3000, func(int) string {
				if random.IntN(3) == 0 {
					return "hot"
				}
				return fmt.Sprint(random.IntN(400))
			})
			db := other(t, url)
			// Some fall due together, some not yet.
			for _, statement := range []string{
				`UPDATE posthouse_work SET due_at = due_at - (seq * 7919) % 1009`,
				`UPDATE posthouse_work SET due_at = due_at + 3600000000 WHERE seq % 5 = 0`,
				`UPDATE posthouse_work SET retry_count = 1 WHERE seq % 7 = 0`,
			} {
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
			type row struct{ due, seq, slot int64 }
			var rows []row
			found, err := db.Query(`SELECT due_at, seq, slot FROM posthouse_work`)
			if err != nil {
				t.Fatal(err)
			}
			for found.Next() {
				var r row
				if err := found.Scan(&r.due, &r.seq, &r.slot); err != nil {
					t.Fatal(err)
				}
				rows = append(rows, r)
			}
			if err := errors.Join(found.Err(), found.Close()); err != nil { //nolint:sqlclosecheck // in a loop
				t.Fatal(err)
			}
			slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq)) })

			for _, limit := range []int{7, 400} {
				var listed []int64
				p := model.ListParams{Source: source.ID, Filter: model.OnlyPending, Limit: limit}
				for range 3 {
					page, err := s.ListMessages(t.Context(), p)
					if err != nil || page.Next == nil {
						t.Fatal(err, page.Next)
					}
					for _, item := range page.Items {
						listed = append(listed, int64(item.Seq))
					}
					p.After = *page.Next
				}
				var want []int64
				for _, r := range slices.Backward(rows) {
					if r.seq%7 != 0 && len(want) < 3*limit {
						want = append(want, r.seq)
					}
				}
				if !slices.Equal(listed, want) {
					t.Errorf("listed by %d: %v, want %v", limit, listed, want)
				}
			}

			var want []int64
			slots := map[model.Slot]bool{}
			for _, r := range rows {
				if r.seq%5 != 0 {
					want = append(want, r.seq)
					slots[model.Slot(r.slot)] = true
				}
			}
			due, err := s.DueWork(t.Context(), model.DueParams{Queue: source.ID, KeyID: source.Agreed.KeyID, Slots: source.Agreed.SlotsOf(0)})
			if err != nil || due.Misplaced || !slices.Equal(due.Slots, sorted(slots)) {
				t.Errorf("due %+v, %v, want %v", due, err, sorted(slots))
			}
			var claimed []int64
			for i, limit := range []int{1, 10, 64, 500, 300, 600, 2000} {
				began := time.Now()
				got, err := s.ClaimWork(t.Context(), claimOf(source, model.Token(i+1), limit))
				if err != nil || got.Outdated || got.Misplaced {
					t.Fatal(got, err)
				}
				t.Logf("a claim of %d took %d in %v", limit, len(got.Works), time.Since(began))
				for _, w := range got.Works {
					claimed = append(claimed, int64(w.Seq))
					if w.Message == nil || w.Message.Seq != w.Seq || w.Message.ID == uuid.Nil || w.StartedAt == 0 {
						t.Fatalf("claimed %+v", w)
					}
				}
			}
			if !slices.Equal(claimed, want) {
				t.Errorf("claimed %d in another order, or not all %d", len(claimed), len(want))
			}
		})
	}
}
