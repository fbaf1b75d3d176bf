package mysql

import (
	"bytes"
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
	sources, err := s.Register(t.Context(), []model.SourceSpec{{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	return s, sources[0].ID
}

func message(source model.SourceID) model.NewMessage {
	return model.NewMessage{ID: uuid.Must(uuid.NewV7()), Source: source, ContentType: "text/plain", Body: []byte("x")}
}

func put(ctx context.Context, s *Store, messages ...model.NewMessage) error {
	_, err := s.PutMessages(ctx, model.PutPending, messages)
	return err
}

// oneSlot are the slots of a partition of a source without keys.
var oneSlot = []model.Slot{0}

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
	for _, engine := range engines {
		t.Run("AC-9 a stopped server is unavailable, and a started one is used again: "+engine.name, func(t *testing.T) {
			server := testdb.Own(t, strings.ToLower(engine.name))
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
			wantDeliverySeq(t, s, "after a start")
			settings(t, server.URL, s, source)
		})
	}
}

// settings changes those of a server that nobody else uses.
func settings(t *testing.T, url string, s *Store, source model.SourceID) {
	db := other(t, url)
	set := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("IN-01 a server that does not write through is refused", func(t *testing.T) {
		for _, value := range []int{0, 2} {
			set(fmt.Sprintf("SET GLOBAL innodb_flush_log_at_trx_commit = %d", value))
			wantCode(t, s.CheckReady(t.Context()), model.CodeUnsafe)
			if err := open(t, Config{URL: url, AllowUnsafe: true}).CheckReady(t.Context()); err != nil {
				t.Errorf("allowed, and refused: %v", err)
			}
		}
		set("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
		if err := s.CheckReady(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("a server that is read only is unavailable", func(t *testing.T) {
		// Whoever may do all may write all the same.
		set("CREATE USER IF NOT EXISTS plain@'127.0.0.1' IDENTIFIED BY 'plain'", "GRANT ALL ON posthouse.* TO plain@'127.0.0.1'", "SET GLOBAL read_only = 1")
		plain := open(t, Config{URL: strings.Replace(url, "posthouse:posthouse@", "plain:plain@", 1)})
		wantCode(t, put(t.Context(), plain, message(source)), model.CodeUnavailable)
		wantCode(t, plain.Ping(t.Context()), model.CodeUnavailable)
		if _, err := plain.Stats(t.Context()); err != nil {
			t.Errorf("it cannot be read either: %v", err)
		}
		set("SET GLOBAL read_only = 0")
		if err := put(t.Context(), plain, message(source)); err != nil {
			t.Error(err)
		}
	})
	t.Run("packets of 1 MiB are filled and not overrun", func(t *testing.T) {
		set("SET GLOBAL max_allowed_packet = 1048576")
		small := open(t, Config{URL: url})
		most, err := small.MaxBody(t.Context())
		if err != nil || most < 300<<10 || most > 512<<10 {
			t.Fatalf("the largest body is %d, %v", most, err)
		}
		var messages []model.NewMessage
		for _, size := range []int64{most, 10, most / 2, most / 2, 1, most, most / 3, most / 3, most / 3, most / 3} {
			m := message(source)
			m.Body = bytes.Repeat([]byte("'"), int(size)) // each is two bytes in a statement
			messages = append(messages, m)
		}
		if err := put(t.Context(), small, messages...); err != nil {
			t.Fatal(err)
		}
		wantBodies(t, s, messages)

		large := message(source)
		large.Body = bytes.Repeat([]byte("a"), 900<<10) // not escaped, it fits
		if err := put(t.Context(), small, large); err != nil {
			t.Error(err)
		}
		for _, body := range [][]byte{bytes.Repeat([]byte("'"), 900<<10), bytes.Repeat([]byte("a"), 1<<20)} {
			large.ID, large.Body = uuid.New(), body
			err := put(t.Context(), small, message(source), large)
			wantCode(t, err, model.CodeRejected)
			if err != nil && !strings.Contains(err.Error(), "max_allowed_packet") {
				t.Errorf("it does not say why: %v", err)
			}
		}

		requestsInPackets(t, small)

		// Many settlements with long errors.
		if err := small.JoinInstance(t.Context(), 1, "x", 1e12, nil); err != nil {
			t.Fatal(err)
		}
		for len(messages) < 1000 {
			messages = append(messages, message(source))
		}
		if err := put(t.Context(), small, messages...); err != nil {
			t.Fatal(err)
		}
		claimed, err := small.ClaimWork(t.Context(), model.ClaimParams{Queue: source, Slots: oneSlot, Shared: true, Owner: 1, Token: 1, Limit: 1000, Start: true, AloneFrom: 9})
		work := claimed.Works
		if err != nil || len(work) != 1000 {
			t.Fatal(len(work), err)
		}
		var settlements []model.Settlement
		for _, w := range work {
			settlements = append(settlements, model.Settlement{Seq: w.Seq, Queue: source, Token: 1, Kind: model.SettleFailed,
				Reason: model.ReasonError, Error: strings.Repeat("'\U0001F3E4", 300)})
		}
		applied, err := small.Settle(t.Context(), settlements)
		if err != nil || slices.Contains(applied, false) {
			t.Error(err)
		}
	})
}

func wantBodies(t *testing.T, s *Store, messages []model.NewMessage) {
	t.Helper()
	for _, m := range messages {
		kept, err := s.Body(t.Context(), m.ID)
		if err != nil || !bytes.Equal(kept.Body, m.Body) {
			t.Errorf("a body of %d bytes came back as %d: %v", len(m.Body), len(kept.Body), err)
		}
	}
}

func TestDefaultPackets(t *testing.T) {
	for _, engine := range engines {
		t.Run("IN-25 64 bodies of 1 MiB at once: "+engine.name, func(t *testing.T) {
			s, source := ready(t, Config{URL: engine.fresh(t)})
			var messages []model.NewMessage
			for i := range 64 {
				m := message(source)
				m.Body = bytes.Repeat([]byte(fmt.Sprintf("{\"n\": %04d, 'x': \x00\xff}\n--------", i)), 1<<20/29+1)[:1<<20]
				messages = append(messages, m)
			}
			if err := put(t.Context(), s, messages...); err != nil {
				t.Fatal(err)
			}
			wantBodies(t, s, messages)
		})
	}
}

// A call that waits for a lock leaves nothing behind on the server.
func TestLockedTables(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			url := engine.fresh(t)
			s, source := ready(t, Config{URL: url, MaxConns: 8})
			if err := s.JoinInstance(t.Context(), 1, "x", 1e12, nil); err != nil {
				t.Fatal(err)
			}
			if err := put(t.Context(), s, message(source)); err != nil {
				t.Fatal(err)
			}
			db := other(t, url)
			lock, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close() //nolint:errcheck // it only goes back to the pool
			if _, err := lock.ExecContext(t.Context(), "LOCK TABLES posthouse_message WRITE"); err != nil {
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
							_, err = s.ClaimWork(ctx, model.ClaimParams{Queue: source, Slots: oneSlot, Shared: true, Owner: 1, Token: 9, Limit: 1, Start: true, AloneFrom: 1})
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
				var n int
				if err := db.QueryRow(`SELECT count(*) FROM information_schema.processlist WHERE db = database() AND info LIKE '%posthouse\_message%'
					AND id <> connection_id()`).Scan(&n); err != nil || n > 0 {
					t.Errorf("%d statements were left behind, %v", n, err)
				}
			}
			var n int
			if err := db.QueryRow(`SELECT count(*) FROM information_schema.processlist WHERE db = database()`).Scan(&n); err != nil || n > 8+2+3 {
				t.Errorf("%d connections, want at most those of the store and of this test: %v", n, err)
			}
			if _, err := lock.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
				t.Fatal(err)
			}
			if err := put(t.Context(), s, message(source)); err != nil {
				t.Error(err)
			}
			stats, err := s.Stats(t.Context())
			if err != nil || stats[0].Pending+stats[0].Processing != 2 {
				t.Errorf("stats %+v, %v: want what was kept before and after the lock", stats, err)
			}
		})
	}
}

// Work is marked before its messages are loaded. Where these cannot be, a call
// that is repeated finds its own mark: it must fail, not take that for someone
// else's, nor take more.
func TestMarkedButNotLoaded(t *testing.T) {
	cases := []struct {
		name string
		do   func(ctx context.Context, s *Store, source model.SourceID, claimed []model.Work) (int, error)
	}{
		{"start", func(ctx context.Context, s *Store, _ model.SourceID, claimed []model.Work) (int, error) {
			started, err := s.StartWork(ctx, model.StartParams{Token: 9, Seqs: seqs(claimed)})
			return len(started), err
		}},
		{"claim", func(ctx context.Context, s *Store, source model.SourceID, _ []model.Work) (int, error) {
			claimed, err := s.ClaimWork(ctx, model.ClaimParams{Queue: source, Slots: oneSlot, Shared: true, Owner: 1, Token: 10, Limit: 1, Start: true, AloneFrom: 1})
			return len(claimed.Works), err
		}},
	}
	for _, engine := range engines {
		for _, c := range cases {
			t.Run("IN-12 "+engine.name+" "+c.name, func(t *testing.T) {
				t.Parallel()
				url := engine.fresh(t)
				s, source := ready(t, Config{URL: url})
				if err := s.JoinInstance(t.Context(), 1, "x", 1e12, nil); err != nil {
					t.Fatal(err)
				}
				if err := put(t.Context(), s, message(source), message(source), message(source)); err != nil {
					t.Fatal(err)
				}
				claimed, err := s.ClaimWork(t.Context(), model.ClaimParams{Queue: source, Slots: oneSlot, Shared: true, Owner: 1, Token: 9, Limit: 1, AloneFrom: 1})
				if err != nil || len(claimed.Works) != 1 {
					t.Fatalf("claimed %v, %v", claimed, err)
				}
				lock, err := other(t, url).Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer lock.Close() //nolint:errcheck // it only goes back to the pool
				if _, err := lock.ExecContext(t.Context(), "LOCK TABLES posthouse_message WRITE"); err != nil {
					t.Fatal(err)
				}
				type result struct {
					n   int
					err error
				}
				done := make(chan result, 1)
				go func() {
					n, err := c.do(t.Context(), s, source, claimed.Works)
					done <- result{n, err}
				}()
				// The server gives up waiting for the lock before the call does: then there
				// would be time for one more try.
				var got result
				select {
				case got = <-done:
				case <-time.After(4500 * time.Millisecond):
				}
				if _, err := lock.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
					t.Fatal(err)
				}
				if got == (result{}) {
					got = <-done
				}
				if got.err != nil {
					wantCode(t, got.err, model.CodeUnavailable)
				} else if got.n != 1 {
					t.Errorf("%d works without an error, want 1", got.n)
				}
				stats, err := s.Stats(t.Context())
				if want := map[string]int64{"start": 1, "claim": 2}[c.name]; err != nil || stats[0].Processing != want {
					t.Errorf("%d are processing, want %d (%v)", stats[0].Processing, want, err)
				}
			})
		}
	}
}

// No error shows the password, or more of the URL than the host.
func TestSecrets(t *testing.T) {
	const secret = "s3cr3t"
	right, err := url.Parse(testdb.MariaDB(t))
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
		"":                                         model.CodeInvalid,
		"mysql://u:" + secret + "@h":               model.CodeInvalid, // no database
		"mysql://u:" + secret + "/x@h:1/db":        model.CodeInvalid,
		"mysql://u:" + secret + "%zz@h/db":         model.CodeInvalid,
		"postgres://u:" + secret + "@h/db":         model.CodeInvalid,
		"mysql://u:" + secret + "@h:port/db":       model.CodeInvalid,
		"mysql://u:" + secret + "@h/db?timeout=x":  model.CodeInvalid,
		"mysql://u:" + secret + "@h/db?tls=custom": model.CodeInvalid,
		wrong.String():                             model.CodeUnavailable,
		nobody.String():                            model.CodeUnavailable,
		missing.String():                           model.CodeUnavailable,
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
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			s, source := ready(t, Config{URL: engine.fresh(t)})
			m := message(source)
			m.ContentType = strings.Repeat("secret", 100)
			err := put(t.Context(), s, m)
			wantCode(t, err, model.CodeRejected)
			if strings.Contains(err.Error(), "secretsecret") {
				t.Error(err)
			}
		})
	}
}

// An instance that has long been dead and left nothing is forgotten.
func TestForgetsTheDead(t *testing.T) {
	url := mariaDB.fresh(t)
	s, source := ready(t, Config{URL: url})
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
	if work, err := s.ClaimWork(ctx, model.ClaimParams{Queue: source, Slots: oneSlot, Shared: true, Owner: 2, Token: 1, Limit: 1}); err != nil || len(work.Works) != 1 {
		t.Fatal(work, err)
	}
	for _, id := range []model.InstanceID{1, 2, 3} {
		if err := s.LeaveInstance(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	// 1 and 2 died long ago, 3 now; 2 has left a work.
	if _, err := other(t, url).Exec(`UPDATE posthouse_instance SET lease_until = 1 WHERE id < 3`); err != nil {
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
	for name, url := range map[string]string{"MariaDB": testdb.MariaDB(t), "MySQL": testdb.MySQL(t)} {
		t.Run("IN-09 "+name, func(t *testing.T) {
			ctx := t.Context()
			s, queue := ready(t, Config{URL: url, MaxConns: 4})
			tx, err := other(t, url).BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(ctx, `SELECT 1 FROM posthouse_source WHERE id = ? LOCK IN SHARE MODE`, queue); err != nil {
				t.Fatal(err)
			}
			giveBackWaits(ctx, t, s, queue, tx)
		})
	}
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
