package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/testdb"
)

// TestPooler is about what is particular behind a pooler; that everything works
// there is what TestStoreBehindAPooler shows.
func TestPooler(t *testing.T) {
	ctx := t.Context()
	through := testdb.PgBouncer(t)
	// What a pooler would refuse at startup, and what must not be believed.
	s, source := ready(t, Config{URL: through + "&synchronous_commit=off&work_mem=5MB&lock_timeout=3s", MaxConns: 4})
	aside := other(t, open(t, Config{URL: through}))
	setting := func(c conn, name string) (value string) {
		t.Helper()
		err := c.query(ctx, func(rows pgx.Rows) error { return rows.Scan(&value) }, `SELECT current_setting($1)`, name)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	want := map[string]string{"synchronous_commit": "on", "enable_seqscan": "off", "jit": "off", "work_mem": "5MB", "lock_timeout": "3s"}
	t.Run("IN-25 settings hold in each transaction, and end with it", func(t *testing.T) {
		check := func(c conn) {
			for name, value := range want {
				if got := setting(c, name); got != value {
					t.Errorf("%s is %s, want %s", name, got, value)
				}
			}
		}
		for _, how := range []func(context.Context, string, func(context.Context, conn) error) error{s.read, s.write} {
			err := how(ctx, "test", func(ctx context.Context, c conn) error {
				check(c)
				return transaction(ctx, c, pgx.TxOptions{}, func(c conn) error {
					check(c)
					return nil
				})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for name := range want {
			var got string
			if err := aside.QueryRow("SELECT current_setting('" + name + "')").Scan(&got); err != nil {
				t.Fatal(err)
			}
			if name != "synchronous_commit" && got == want[name] {
				t.Errorf("%s is still %s for the next client of the connection", name, got)
			}
		}
	})
	t.Run("nothing is prepared", func(t *testing.T) {
		if err := put(ctx, s, message(source)); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := aside.QueryRow(`SELECT count(*) FROM pg_prepared_statements`).Scan(&n); err != nil || n > 0 {
			t.Errorf("%d statements are, %v", n, err)
		}
	})
	t.Run("IN-02 calls that are cut off change nothing, and do no harm to others", func(t *testing.T) {
		before, err := s.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := aside.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("LOCK TABLE posthouse_message IN ACCESS EXCLUSIVE MODE"); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				limited, cancel := context.WithTimeout(ctx, time.Duration(100+10*i)*time.Millisecond)
				defer cancel()
				if i%2 == 0 { // without a deadline that the server could be told of
					limited, cancel = context.WithCancel(ctx)
					defer cancel()
					time.AfterFunc(100*time.Millisecond, cancel)
				}
				wantCode(t, put(limited, s, message(source)), model.CodeUnavailable)
			})
		}
		wg.Wait()
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the end of all statements", func() error {
			var n int
			err := aside.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
				AND query LIKE '%posthouse_message%' AND state <> 'idle' AND pid <> pg_backend_pid()`).Scan(&n)
			if err == nil && n > 0 {
				return fmt.Errorf("%d are at work", n)
			}
			return err
		})
		after, err := s.Stats(ctx)
		if err != nil || after[0].Pending != before[0].Pending {
			t.Errorf("%d were kept before, %d after: %v", before[0].Pending, after[0].Pending, err)
		}
	})
}
