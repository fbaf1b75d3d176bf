package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/testdb"
)

func wantCode(t *testing.T, err error, want model.Code) {
	t.Helper()
	if model.CodeOf(err) != want {
		t.Errorf("error %v has code %q, want %q", err, model.CodeOf(err), want)
	}
}

// ready is a store with one source.
func ready(t *testing.T, cfg Config) (*Store, model.SourceID) {
	t.Helper()
	s := open(t, cfg)
	migrated(t, s)
	sources, err := s.Register(t.Context(), []model.SourceSpec{{Name: "a", Wants: serial}})
	if err != nil {
		t.Fatal(err)
	}
	return s, sources[0].ID
}

var serial = model.Ordering{Order: model.Serial, Partitions: 1}

// claimOf claims one message of a source that was registered as serial.
func claimOf(source model.SourceID, owner model.InstanceID, token model.Token) model.ClaimParams {
	return model.ClaimParams{
		Queue: source, Owner: owner, Token: token, Limit: 1, Generation: 1, Slots: []model.Slot{0}, Start: true, AloneFrom: 1,
	}
}

func message(source model.SourceID) model.NewMessage {
	return model.NewMessage{ID: uuid.Must(uuid.NewV7()), Source: source, ContentType: "text/plain", Body: []byte("x")}
}

func put(ctx context.Context, s *Store, messages ...model.NewMessage) error {
	_, err := s.PutMessages(ctx, model.PutPending, messages)
	return err
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A server that goes away and comes back needs nobody's help.
func TestOutage(t *testing.T) {
	t.Run("AC-9 a stopped server is unavailable, and a started one is used again", func(t *testing.T) {
		server := testdb.Own(t, "postgres")
		s, source := ready(t, Config{URL: server.URL})
		first, second := message(source), message(source)
		if err := put(t.Context(), s, first); err != nil {
			t.Fatal(err)
		}
		server.Stop(t)
		for range 20 { // more than there are connections
			began := time.Now()
			wantCode(t, put(t.Context(), s, second), model.CodeUnavailable)
			if took := time.Since(began); took > time.Second {
				t.Errorf("it took %v to say so", took)
			}
		}
		wantCode(t, s.Ping(t.Context()), model.CodeUnavailable)
		wantCode(t, s.CheckReady(t.Context()), model.CodeUnavailable)
		server.Start(t)
		eventually(t, "a put after the start", func() error { return put(t.Context(), s, first, second) })
		stats, err := s.Stats(t.Context())
		if err != nil || stats[0].Pending != 2 {
			t.Errorf("stats %+v, %v", stats, err)
		}
	})
	t.Run("IN-01 a server that does not write through is refused", func(t *testing.T) {
		server := testdb.Own(t, "postgres")
		s, _ := ready(t, Config{URL: server.URL + "?synchronous_commit=off"})
		if err := s.CheckReady(t.Context()); err != nil {
			t.Errorf("synchronous_commit was not forced on: %v", err)
		}
		for _, statement := range []string{"ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"} {
			if _, err := other(t, s).Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "a refusal", func() error {
			if err := s.CheckReady(t.Context()); model.CodeOf(err) != model.CodeUnsafe {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
		if err := open(t, Config{URL: server.URL, AllowUnsafe: true}).CheckReady(t.Context()); err != nil {
			t.Errorf("allowed, and refused: %v", err)
		}
	})
}

// A call that waits for a lock leaves nothing behind on the server.
func TestLockedTables(t *testing.T) {
	s, source := ready(t, Config{URL: testdb.Postgres(t), MaxConns: 8})
	if err := s.JoinInstance(t.Context(), 1, "x", 1e12, nil); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), s, message(source)); err != nil {
		t.Fatal(err)
	}
	db := other(t, s)
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("LOCK TABLE posthouse_message IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	const limit = 300 * time.Millisecond
	for range 3 {
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				began := time.Now()
				var err error
				switch i % 3 {
				case 0:
					err = put(ctx, s, message(source))
				case 1:
					_, err = s.ListMessages(ctx, model.ListParams{Limit: 1})
				default:
					_, err = s.ClaimWork(ctx, claimOf(source, 1, 9))
				}
				// Of the claims all but one have nothing to claim.
				if took := time.Since(began); took > limit+500*time.Millisecond || i%3 < 2 && model.CodeOf(err) != model.CodeUnavailable {
					t.Errorf("call %d took %v and ended with %v", i, took, err)
				}
			})
		}
		// Meanwhile the instance goes on living.
		beat, err := s.Beat(t.Context(), model.HeartbeatParams{Instance: 1, LeaseFor: 1e12, Bury: true})
		if err != nil || !beat.Alive {
			t.Errorf("heartbeat %+v, %v", beat, err)
		}
		wg.Wait()
	}
	eventually(t, "an end of all statements", func() error {
		var n int
		err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'posthouse'
			AND state <> 'idle'`).Scan(&n)
		if err == nil && n > 0 {
			return fmt.Errorf("%d are still at work", n)
		}
		return err
	})
	var n int
	if err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'posthouse'`).Scan(&n); err != nil || n > 8 {
		t.Errorf("%d connections, want at most 8: %v", n, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), s, message(source)); err != nil {
		t.Error(err)
	}
	stats, err := s.Stats(t.Context())
	if err != nil || stats[0].Pending != 2 {
		t.Errorf("stats %+v, %v: want what was kept before and after the lock", stats, err)
	}
}

func TestReadOnly(t *testing.T) {
	s, source := ready(t, Config{URL: testdb.Postgres(t)})
	if _, err := other(t, s).Exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`); err != nil {
		t.Fatal(err)
	}
	again := open(t, Config{URL: s.pool.Config().ConnString()})
	wantCode(t, put(t.Context(), again, message(source)), model.CodeUnavailable)
	wantCode(t, again.Ping(t.Context()), model.CodeUnavailable)
	if _, err := again.Stats(t.Context()); err != nil {
		t.Errorf("it cannot be read either: %v", err)
	}
}

// No error shows the password, or more of the URL than the host.
func TestSecrets(t *testing.T) {
	const secret = "s3cr3t"
	right, err := url.Parse(testdb.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	wrong := *right
	wrong.User = url.UserPassword("posthouse", secret)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := *right
	nobody.User, nobody.Host = url.UserPassword("posthouse", secret), closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	missing := *right
	missing.Path = "/nothing_here"
	for text, code := range map[string]model.Code{
		"":                                      model.CodeInvalid,
		"host=h password=" + secret:             model.CodeInvalid,
		"postgres://u:" + secret + "/x@h:1/db":  model.CodeInvalid,
		"postgres://u:" + secret + "%zz@h/db":   model.CodeInvalid,
		"mysql://u:" + secret + "@h/db":         model.CodeInvalid,
		"postgres://u:" + secret + "@h:port/db": model.CodeInvalid,
		wrong.String():                          model.CodeUnavailable,
		nobody.String():                         model.CodeUnavailable,
		missing.String():                        model.CodeUnavailable,
	} {
		s, err := Open(t.Context(), Config{URL: text})
		if err == nil {
			err = s.Ping(t.Context())
			_ = s.Close()
		}
		wantCode(t, err, code)
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("an error shows the password: %v", err)
		}
	}
}

// What the server says of a value is not shown.
func TestErrorsNameNoValues(t *testing.T) {
	s, source := ready(t, Config{URL: testdb.Postgres(t)})
	m := message(source)
	m.ContentType = strings.Repeat("secret", 100)
	err := put(t.Context(), s, m)
	wantCode(t, err, model.CodeRejected)
	if strings.Contains(err.Error(), "secretsecret") {
		t.Error(err)
	}
}

// An instance that has long been dead and left nothing is forgotten.
func TestForgetsTheDead(t *testing.T) {
	s, source := ready(t, Config{URL: testdb.Postgres(t)})
	ctx := t.Context()
	join := func(id model.InstanceID) {
		t.Helper()
		if err := s.JoinInstance(ctx, id, "x", 1e12, nil); err != nil {
			t.Fatal(err)
		}
	}
	for id := range model.InstanceID(4) {
		join(id + 1)
	}
	if err := put(ctx, s, message(source)); err != nil {
		t.Fatal(err)
	}
	if claimed, err := s.ClaimWork(ctx, claimOf(source, 2, 1)); err != nil || len(claimed.Works) != 1 {
		t.Fatal(claimed, err)
	}
	for _, id := range []model.InstanceID{1, 2, 3} {
		if err := s.LeaveInstance(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	// 1 and 2 died long ago, 3 now; 2 has left a work.
	if _, err := other(t, s).Exec(`UPDATE posthouse_instance SET lease_until = 1 WHERE id < 3`); err != nil {
		t.Fatal(err)
	}
	join(5)
	instances, err := s.Instances(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var ids []model.InstanceID
	for _, i := range instances {
		ids = append(ids, i.ID)
	}
	slices.Sort(ids)
	if want := []model.InstanceID{2, 3, 4, 5}; !slices.Equal(ids, want) {
		t.Errorf("instances %v, want %v", ids, want)
	}
}

// A claim whose caller has given it up may still be under way.
func TestGiveBackWaitsForClaims(t *testing.T) {
	ctx := t.Context()
	s, queue := ready(t, Config{URL: testdb.Postgres(t), MaxConns: 4})
	tx, err := other(t, s).BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `SELECT 1 FROM posthouse_source WHERE id = $1 FOR KEY SHARE`, queue); err != nil {
		t.Fatal(err)
	}
	giveBackWaits(ctx, t, s, queue, tx)
}

func giveBackWaits(ctx context.Context, t *testing.T, s *Store, queue model.SourceID, claim *sql.Tx) {
	t.Helper()
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := s.GiveBack(short, queue, 7); model.CodeOf(err) != model.CodeUnavailable {
		t.Errorf("beside a claim: %v, want unavailable", err)
	}
	if err := claim.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.GiveBack(ctx, queue, 7); err != nil || n != 0 {
		t.Errorf("after it: %d, %v", n, err)
	}
}
