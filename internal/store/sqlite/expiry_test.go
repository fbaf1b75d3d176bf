package sqlite

import (
	"slices"
	"strings"
	"testing"

	"github.com/posthouse/posthouse/internal/model"
)

// The writer is held for one step of a sweep: it looks at a few rows, by their keys.
func TestExpiringInSmallSteps(t *testing.T) {
	t.Run("NC-21 each row is found by its key", func(t *testing.T) {
		s, _ := ready(t)
		for query, args := range map[string][]any{expireWaiting: {1, "[[1,2]]"}, forgetEnded: {"[[1,2]]"}} {
			for _, step := range plan(t, s, query, args...) {
				if strings.HasPrefix(step, "SCAN") && !strings.HasPrefix(step, "SCAN json_each") {
					t.Errorf("%s: %s", query, step)
				}
			}
		}
		steps := strings.Join(plan(t, s, passedExpiries, 1, 1), "\n")
		if !strings.Contains(steps, "SEARCH e USING PRIMARY KEY (expires_at<?)") || strings.Contains(steps, "TEMP B-TREE") {
			t.Errorf("what has passed is read by\n%s", steps)
		}
	})
	t.Run("NC-21 many that have ended are forgotten few by few, and what waits behind them is cancelled", func(t *testing.T) {
		const ended, processing = 40_000, 700
		s, channel, _ := history(t, processing+1)
		db := other(t, s)
		const waiting = int64(model.DeliverySeqs) + processing
		for _, statement := range []string{
			`WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 40000)
				INSERT INTO posthouse_expiry (expires_at, delivery) SELECT 7, value FROM n`,
			`INSERT INTO posthouse_expiry (expires_at, delivery) SELECT CASE WHEN seq % 10 = 0 THEN 6 ELSE 8 END, seq FROM posthouse_work`,
			`UPDATE posthouse_work SET state = 1 WHERE seq <> (SELECT max(seq) FROM posthouse_work)`,
		} {
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		left := func() (n int) {
			if err := db.QueryRow(`SELECT count(*) FROM posthouse_expiry`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := left()
		if looked, cancelled, err := s.expireSome(t.Context(), expiryStep); looked != expiryStep || cancelled != 0 || err != nil || left() != before-expiryStep {
			t.Errorf("a step looked at %d and cancelled %d (%v), and %d of %d are left", looked, cancelled, err, left(), before)
		}
		var counts []int
		for range 1 + ended/(expiryStep*expirySteps) {
			n, err := s.ExpireDeliveries(t.Context(), 500)
			if err != nil {
				t.Fatal(err)
			}
			counts = append(counts, n)
		}
		if slices.Max(counts) != 1 || left() != processing {
			t.Errorf("the sweeps cancelled %v, and %d expiries are left, want %d", counts, left(), processing)
		}
		var state model.State
		if err := db.QueryRow(`SELECT state FROM posthouse_work WHERE queue = ? AND seq = ?`, channel, waiting).Scan(&state); err != nil || state != model.Cancelled {
			t.Errorf("it is %v (%v)", state, err)
		}
	})
}
