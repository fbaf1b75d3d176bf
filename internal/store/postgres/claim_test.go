package postgres

import (
	"errors"
	"testing"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/testdb"
)

// A claim that is not shared finds a row, and waits for another who moves it: it
// takes that one, too, and nothing that stands behind it without it.
func TestClaimTakesWhatWasMovedMeanwhile(t *testing.T) {
	for name, database := range map[string]func(testing.TB) string{"direct": testdb.Postgres, "behind a pooler": testdb.PgBouncer} {
		t.Run("IN-06 "+name, func(t *testing.T) {
			ctx := t.Context()
			s, source := ready(t, Config{URL: database(t), MaxConns: 4})
			if err := s.JoinInstance(ctx, 1, "claims", 1e12, nil); err != nil {
				t.Fatal(err)
			}
			if err := put(ctx, s, message(source), message(source), message(source)); err != nil {
				t.Fatal(err)
			}
			tx, err := other(t, s).Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(`UPDATE posthouse_work SET due_at = due_at WHERE seq = (SELECT min(seq) FROM posthouse_work)`); err != nil {
				t.Fatal(err)
			}
			var claimed model.Claimed
			done := make(chan error, 1)
			go func() {
				p := claimOf(source, 1, 7)
				p.Limit = 2
				var err error
				claimed, err = s.ClaimWork(ctx, p)
				done <- err
			}()
			db := other(t, s)
			eventually(t, "the claim waits", func() error {
				var n int
				err := db.QueryRow(`SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
					WHERE NOT l.granted AND a.datname = current_database()`).Scan(&n)
				if err == nil && n == 0 {
					err = errors.New("nobody waits")
				}
				return err
			})
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			var first, n int64
			if err := db.QueryRow(`SELECT min(seq), count(*) FROM posthouse_work WHERE state = 1`).Scan(&first, &n); err != nil {
				t.Fatal(err)
			}
			if w := claimed.Works; len(w) != 2 || int64(w[0].Seq) != first || w[1].Seq != w[0].Seq+1 || n != 2 {
				t.Errorf("claimed %+v, %d are being worked on", w, n)
			}
		})
	}
}
