package mysql

import (
	"context"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/testdb"
)

// A process that is frozen in a transaction keeps its locks from nobody for long.
func TestAFrozenTransactionEnds(t *testing.T) {
	t.Run("IN-06 MariaDB", func(t *testing.T) {
		s := open(t, Config{URL: testdb.MariaDB(t)})
		ctx := context.Background()
		if _, err := s.MigrateUp(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Register(ctx, []model.SourceSpec{{Name: "one", Enabled: true}}); err != nil {
			t.Fatal(err)
		}
		frozen, err := s.db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { // the server has ended it
			_ = frozen.Raw(func(any) error { return driver.ErrBadConn })
			_ = frozen.Close()
		}()
		for _, statement := range []string{"START TRANSACTION", "UPDATE posthouse_source SET enabled = 0 WHERE name = 'one'"} {
			if _, err := frozen.ExecContext(ctx, statement); err != nil {
				t.Fatal(err)
			}
		}
		deadline := time.Now().Add(15 * time.Second)
		for {
			err := s.SetEnabled(ctx, "one", true)
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the lock is still held: %v", err)
			}
		}
	})
}
