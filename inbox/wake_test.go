package inbox_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/inbox/postgres"
	"github.com/posthouse/posthouse/internal/testdb"
)

// One process keeps, another one executes, and would look by itself only in an
// hour.
func TestWhoKeepsWakesWhoExecutes(t *testing.T) {
	t.Run("IN-09", func(t *testing.T) {
		url := testdb.Postgres(t)
		open := func() store {
			s, err := postgres.Open(t.Context(), postgres.Config{URL: url})
			return opened(t, s, err)
		}
		a, b := open(), open()
		if err := a.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		handled := make(chan struct{}, 10_000)
		source := inbox.Source{
			Name: "orders", Verify: inbox.NoVerification(), AnswerWithin: 30 * time.Second,
			Consume: inbox.Consume{RoundInterval: time.Hour},
		}
		keeps := serve(t, inbox.Config{Store: a, Sources: []inbox.Source{source}, Lease: time.Second})
		source.Handler = inbox.HandlerFunc(func(context.Context, *inbox.Message) error {
			handled <- struct{}{}
			return nil
		})
		serve(t, inbox.Config{Store: b, Sources: []inbox.Source{source}, Lease: time.Second})

		// The first are found by the look that it begins with, and one process
		// knows of another from its next heartbeat on. So pushes go on until all that
		// was there is handled and one that came later; and then, after a silence
		// in which the round ends, once more.
		tick, patience := time.NewTicker(50*time.Millisecond), time.After(30*time.Second)
		defer tick.Stop()
		pushed, seen := 0, 0
		for range 3 {
			for silence, upTo := 20, pushed+1; seen < upTo; {
				select {
				case <-handled:
					seen++
				case <-tick.C:
					if silence--; silence >= 0 {
						continue
					}
					if status := pushWith(t, keeps+"/in/orders", "x"); status != http.StatusOK {
						t.Fatalf("answered %d", status)
					}
					pushed++
				case <-patience:
					t.Fatal("nobody was woken within 30 s")
				}
			}
		}
	})
}
