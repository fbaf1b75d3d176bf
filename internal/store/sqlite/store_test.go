package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/posthouse/posthouse/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wantCode(t *testing.T, err error, want model.Code) {
	t.Helper()
	if model.CodeOf(err) != want {
		t.Errorf("error %v has code %q, want %q", err, model.CodeOf(err), want)
	}
	if _, ours := errors.AsType[*model.Error](err); err != nil && !ours {
		t.Errorf("error %v (%T) is no *model.Error", err, err)
	}
}

func ready(t *testing.T) (*Store, model.SourceID) {
	t.Helper()
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "posthouse.db")})
	migrated(t, s)
	return s, source(t, s)
}

func source(t *testing.T, s *Store) model.SourceID {
	t.Helper()
	sources, err := s.Register(t.Context(), []model.SourceSpec{{Name: "erp", Policy: model.RetryPolicy{OrphanAfter: time.Hour},
		Wants: model.Ordering{Order: model.Serial, Partitions: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	return sources[0].ID
}

func message(source model.SourceID, size int) model.NewMessage {
	return model.NewMessage{ID: uuid.Must(uuid.NewV7()), Source: source, Body: make([]byte, size)}
}

func put(s *Store, messages ...model.NewMessage) error {
	_, err := s.PutMessages(context.Background(), model.PutPending, messages)
	return err
}

// claim asks for work of a serial source and starts it.
func claim(queue model.SourceID, owner model.InstanceID, limit int) model.ClaimParams {
	return model.ClaimParams{Queue: queue, Owner: owner, Token: 7, Limit: limit, Generation: 1, Slots: []model.Slot{0}, Start: true, AloneFrom: 9}
}

func TestOpenMakesFilesThatOnlyTheOwnerReads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "a b?c#d%41")
	path := filepath.Join(dir, "x?mode=memory&y.db")
	s := open(t, Config{Path: path, Consumer: true})
	migrated(t, s)
	if err := put(s, message(source(t, s), 10)); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]os.FileMode{dir: 0o700, path: 0o600, path + "-wal": 0o600, path + ".lock": 0o600} {
		info, err := os.Stat(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", file, got, want)
		}
	}
	if stats, err := open(t, Config{Path: path}).Stats(t.Context()); err != nil || len(stats) != 1 || stats[0].Pending != 1 {
		t.Errorf("opened again: %+v, %v", stats, err)
	}
}

func TestOpenRefusesWhatKeepsNothing(t *testing.T) {
	for _, path := range []string{"", ":memory:"} {
		_, err := Open(Config{Path: path})
		wantCode(t, err, model.CodeInvalid)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Config{Path: filepath.Join(file, "posthouse.db")})
	wantCode(t, err, model.CodeUnavailable)
	if err := os.WriteFile(file, []byte(strings.Repeat("this is no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCode(t, open(t, Config{Path: file}).CheckReady(t.Context()), model.CodeInternal)
}

func TestOneConsumer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "posthouse.db")
	first := open(t, Config{Path: path, Consumer: true})
	migrated(t, first)
	_, err := Open(Config{Path: path, Consumer: true})
	wantCode(t, err, model.CodeBusy)
	if err := open(t, Config{Path: path}).Ping(t.Context()); err != nil {
		t.Errorf("who does not consume was refused: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, Config{Path: path, Consumer: true})
	if err := second.CheckReady(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAConsumerBuriesAllWhoWereBeforeIt(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "posthouse.db")
	crashed := open(t, Config{Path: path})
	migrated(t, crashed)
	queue := source(t, crashed)
	const lease = model.Micros(3_600_000_000)
	for id, n := range map[model.InstanceID]int{1: 1, 2: 2, 3: 0} {
		if err := crashed.JoinInstance(ctx, id, "crashed", lease, nil); err != nil {
			t.Fatal(err)
		}
		for range n {
			if err := put(crashed, message(queue, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if n == 0 {
			continue
		}
		claimed, err := crashed.ClaimWork(ctx, claim(queue, id, n))
		if err != nil || len(claimed.Works) != n {
			t.Fatal(claimed, err)
		}
	}
	s := open(t, Config{Path: path, Consumer: true})
	if orphans, err := s.Orphans(ctx, 10); err != nil || len(orphans) != 0 {
		t.Fatalf("orphans before the start: %v, %v", orphans, err)
	}
	if err := s.JoinInstance(ctx, 9, "next", lease, nil); err != nil {
		t.Fatal(err)
	}
	instances, err := s.Instances(ctx)
	if err != nil || len(instances) != 4 {
		t.Fatal(instances, err)
	}
	for _, i := range instances {
		if i.Dead != (i.ID != 9) {
			t.Errorf("%+v", i)
		}
	}
	orphans, err := s.Orphans(ctx, 10)
	if err != nil || len(orphans) != 3 {
		t.Fatal(orphans, err)
	}
	for _, o := range orphans {
		if !o.OwnerDead || o.Alone != (o.Owner == 1) {
			t.Errorf("%+v", o)
		}
	}
	if leases, err := s.TakeLeases(ctx, 1, []model.Partition{{Queue: queue}}); err != nil || leases[0].Held {
		t.Errorf("a former instance takes a lease: %+v, %v", leases, err)
	}
}

func TestCallsEndInTimeWhileAnotherProcessHoldsTheFile(t *testing.T) {
	s, queue := ready(t)
	if err := s.JoinInstance(t.Context(), 1, "x", 1e12, nil); err != nil {
		t.Fatal(err)
	}
	db := other(t, s)
	if _, err := db.Exec("BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func(context.Context) error{
		"put": func(ctx context.Context) error {
			_, err := s.PutMessages(ctx, model.PutPending, []model.NewMessage{message(queue, 1)})
			return err
		},
		"claim": func(ctx context.Context) error {
			_, err := s.ClaimWork(ctx, claim(queue, 1, 1))
			return err
		},
		"settle": func(ctx context.Context) error {
			_, err := s.Settle(ctx, []model.Settlement{{Seq: 1, Queue: queue, Token: 1, Kind: model.SettleSuccess}})
			return err
		},
		"heartbeat": func(ctx context.Context) error {
			_, err := s.Beat(ctx, model.HeartbeatParams{Instance: 1, LeaseFor: 1e12})
			return err
		},
		"ping":    s.Ping,
		"migrate": func(ctx context.Context) error { _, err := s.MigrateUp(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
			defer cancel()
			started := time.Now()
			wantCode(t, try(ctx), model.CodeUnavailable)
			if took := time.Since(started); took < 100*time.Millisecond || took > 1150*time.Millisecond {
				t.Errorf("it took %v", took)
			}
		})
	}
	if _, err := s.Stats(t.Context()); err != nil {
		t.Errorf("reading: %v", err)
	}
	// What is waiting when the lock goes gets through.
	done := make(chan error, 1)
	go func() { done <- put(s, message(queue, 1)) }()
	if _, err := db.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// pragma changes the writing connection, as no configuration can.
func pragma(t *testing.T, s *Store, text string) {
	t.Helper()
	if err := s.Ping(t.Context()); err != nil { // there is a connection now
		t.Fatal(err)
	}
	if _, err := s.writer.conn.ExecContext(t.Context(), "PRAGMA "+text); err != nil {
		t.Fatal(err)
	}
}

func TestErrorsAreToldByCode(t *testing.T) {
	t.Run("IN-02 a full disk is unavailable, and room again is all it needs", func(t *testing.T) {
		s, queue := ready(t)
		pragma(t, s, "max_page_count = 64")
		batch := make([]model.NewMessage, 64)
		for i := range batch {
			batch[i] = message(queue, 10_000)
		}
		for range 3 {
			wantCode(t, put(s, batch...), model.CodeUnavailable)
			pragma(t, s, "max_page_count = 64") // the connection may be another one
		}
		if stats, err := s.Stats(t.Context()); err != nil || stats[0].Pending != 0 {
			t.Errorf("%+v, %v", stats, err)
		}
		pragma(t, s, "max_page_count = 1000000")
		if err := put(s, batch...); err != nil {
			t.Error(err)
		}
		if stats, err := s.Stats(t.Context()); err != nil || stats[0].Pending != 64 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
	t.Run("a database that cannot be written to is unavailable", func(t *testing.T) {
		s, queue := ready(t)
		pragma(t, s, "query_only = 1")
		wantCode(t, put(s, message(queue, 1)), model.CodeUnavailable)
		// The connection was given up, and the next one can write.
		if err := put(s, message(queue, 1)); err != nil {
			t.Error(err)
		}
	})
	t.Run("a row that is too big is rejected, and its neighbours are not", func(t *testing.T) {
		s, queue := ready(t)
		if _, err := sqlite.Limit(s.writer.conn, lib.SQLITE_LIMIT_LENGTH, 100_000); err != nil {
			t.Fatal(err)
		}
		wantCode(t, put(s, message(queue, 10), message(queue, 200_000)), model.CodeRejected)
		if err := put(s, message(queue, 10)); err != nil {
			t.Error(err)
		}
		if stats, err := s.Stats(t.Context()); err != nil || stats[0].Pending != 1 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
	t.Run("a read that is cut off is unavailable", func(t *testing.T) {
		s, _ := ready(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		err := s.read(ctx, "endless", func(ctx context.Context, snapshot *sql.Tx) error {
			var n int
			return snapshot.QueryRowContext(ctx, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n`).Scan(&n)
		})
		wantCode(t, err, model.CodeUnavailable)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v does not say that the time was up", err)
		}
		if _, err := s.Stats(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCheckReadyRefusesWhatMayLoseACommit(t *testing.T) {
	s, _ := ready(t)
	if err := s.CheckReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	pragma(t, s, "synchronous = NORMAL")
	wantCode(t, s.CheckReady(t.Context()), model.CodeUnsafe)
	s.cfg.AllowUnsafe = true
	if err := s.CheckReady(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheClockNeverStepsBack(t *testing.T) {
	var c clock
	before := c.now()
	if after := c.now(); after < before {
		t.Errorf("%d after %d", after, before)
	}
	ahead := model.MicrosOf(time.Now().Add(time.Hour))
	c.last.Store(int64(ahead)) // as if the system's clock had been set back
	for range 3 {
		if got := c.now(); got != ahead {
			t.Errorf("%d, want it to stand at %d", got, ahead)
		}
	}
}

func TestItWorksInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s, queue := ready(t)
		if err := s.JoinInstance(ctx, 1, "bubble", 60_000_000, nil); err != nil {
			t.Fatal(err)
		}
		if err := put(s, message(queue, 100)); err != nil {
			t.Fatal(err)
		}
		claim := func() []model.Work {
			claimed, err := s.ClaimWork(ctx, claim(queue, 1, 1))
			if err != nil {
				t.Fatal(err)
			}
			return claimed.Works
		}
		work := claim()
		if len(work) != 1 || work[0].StartedAt != model.MicrosOf(time.Now()) {
			t.Fatalf("claimed %+v at %d", work, model.MicrosOf(time.Now()))
		}
		_, err := s.Settle(ctx, []model.Settlement{{Seq: work[0].Seq, Queue: queue, Token: 7, Kind: model.SettleRetry, Delay: 10 * time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Minute - time.Microsecond)
		if work := claim(); len(work) != 0 {
			t.Error("claimed too early")
		}
		time.Sleep(time.Microsecond)
		if work := claim(); len(work) != 1 {
			t.Error("not claimed when due")
		}
		stats, err := s.Stats(ctx)
		if err != nil || stats[0].Processing != 1 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}

func TestListsWalkAnIndex(t *testing.T) {
	s, queue := ready(t)
	for filter := model.AnyState; filter <= model.OnlyFailed; filter++ {
		for _, source := range []model.SourceID{0, queue} {
			query, args, err := pageQuery(model.ListParams{Source: source, Filter: filter, Limit: 50})
			if err != nil {
				t.Fatal(err)
			}
			rows, err := s.readers.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query+showPage, args...)
			err = each(rows, err, func(rows *sql.Rows) error {
				var id, parent, unused int
				var step string
				if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
					return err
				}
				// Only the sources are read from end to end, and what was found before.
				table, scans := strings.CutPrefix(step, "SCAN ")
				if scans && !strings.HasPrefix(table, "(subquery") &&
					!slices.Contains([]string{"page", "s", "b", "branch", "bound", "CONSTANT ROW"}, table) {
					return fmt.Errorf("filter %d of source %d: %s", filter, source, step)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

func TestTheLogStaysShort(t *testing.T) {
	for name, run := range map[string]func(*testing.T, func(*testing.T)){
		"in real time": func(t *testing.T, test func(*testing.T)) { test(t) },
		"in a bubble":  synctest.Test,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				s, queue := ready(t)
				longest := int64(0)
				const batches, rows, size = 44, 4, 256 << 10 // 44 MiB
				for range batches {
					batch := make([]model.NewMessage, rows)
					for i := range batch {
						batch[i] = message(queue, size)
					}
					if err := put(s, batch...); err != nil {
						t.Fatal(err)
					}
					info, err := os.Stat(s.cfg.Path + "-wal")
					if err != nil {
						t.Fatal(err)
					}
					longest = max(longest, info.Size())
				}
				if longest > 4*restartAfter {
					t.Errorf("the log grew to %d bytes", longest)
				}
				if err := s.Close(); err != nil { // perhaps in the middle of a checkpoint
					t.Fatal(err)
				}
				stats, err := open(t, s.cfg).Stats(t.Context())
				if err != nil || stats[0].Pending != batches*rows {
					t.Errorf("%+v, %v", stats, err)
				}
			})
		})
	}
}
