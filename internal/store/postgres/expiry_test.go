package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/testdb"
)

// TestAReplayKeepsItsExpiry has replays between the sweep's snapshot and its locks.
func TestAReplayKeepsItsExpiry(t *testing.T) {
	s := open(t, Config{URL: testdb.Postgres(t)})
	migrated(t, s)
	sources, err := s.Register(t.Context(), []model.SourceSpec{{Name: "channel/x", Tenant: model.TenantDelivery, Enabled: true, Wants: model.Ordering{Order: model.Parallel}}})
	if err != nil {
		t.Fatal(err)
	}
	db := other(t, s)
	for i, ended := range []string{
		`UPDATE posthouse_work SET state = 4`,
		`WITH gone AS (DELETE FROM posthouse_work RETURNING seq, queue)
			INSERT INTO posthouse_outcome (seq, started_at, finished_at, source, n, retry_count, replay, http_status) SELECT seq, 1, 2, queue, 1, 0, 0, 200 FROM gone`,
	} {
		t.Run("NC-21 of what "+[]string{"had failed", "had succeeded"}[i], func(t *testing.T) {
			id := uuid.Must(uuid.NewV7())
			r := model.NewRequest{ID: id, Key: id.String(), Variables: []byte(`{}`), ExpiresAt: 1, Deliveries: []model.NewDelivery{{ID: id, Channel: sources[0].ID}}}
			if _, err := s.PutRequests(t.Context(), []model.NewRequest{r}); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(ended); err != nil {
				t.Fatal(err)
			}
			// The very statement, but it waits between the two.
			gate, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := gate.Exec(`SELECT pg_advisory_xact_lock(77)`); err != nil {
				t.Fatal(err)
			}
			const looks = "w.state IS DISTINCT FROM 1"
			waiting := strings.Replace(expire, looks, looks+" AND pg_advisory_xact_lock(77) IS NOT NULL", 1)
			swept := make(chan error, 1)
			go func() {
				_, err := s.pool.Exec(t.Context(), waiting, pgx.QueryExecModeExec, 500)
				swept <- err
			}()
			eventually(t, "the sweep waits", func() error {
				var n int
				err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
					AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
				if err == nil && n != 1 {
					err = fmt.Errorf("%d do", n)
				}
				return err
			})
			results, err := s.ReplayDeliveries(t.Context(), model.ReplayParams{IDs: []uuid.UUID{id}, Force: true})
			if err != nil || !results[0].Done {
				t.Fatal(results, err)
			}
			if err := gate.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := <-swept; err != nil {
				t.Fatal(err)
			}
			n, err := s.ExpireDeliveries(t.Context(), 500)
			if view, _, _ := s.Delivery(t.Context(), id); err != nil || n != 1 || view.Status != model.DeliveryCancelled {
				t.Errorf("the next sweep cancels %d (%v), and it is %s", n, err, view.Status)
			}
			if _, err := db.Exec(`DELETE FROM posthouse_work`); err != nil {
				t.Fatal(err)
			}
		})
	}
}
