package ingest

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/sqlite"
)

// openStore returns a real store with n sources called s1, s2, …, and its file.
func openStore(t testing.TB, n int) (*sqlite.Store, []model.Source, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "posthouse.db")
	store, err := sqlite.Open(sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := store.MigrateUp(context.Background()); err != nil {
		t.Fatal(err)
	}
	var specs []model.SourceSpec
	for i := range n {
		specs = append(specs, model.SourceSpec{Name: fmt.Sprintf("s%d", i+1)})
	}
	sources, err := store.Register(context.Background(), specs)
	if err != nil {
		t.Fatal(err)
	}
	return store, sources, path
}

// stored reads all messages back, oldest first.
func stored(t *testing.T, store *sqlite.Store) []model.Message {
	t.Helper()
	var all []model.Message
	p := model.ListParams{Limit: 500}
	for {
		page, err := store.ListMessages(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range page.Items {
			m, err := store.Body(context.Background(), v.ID)
			if err != nil {
				t.Fatal(err)
			}
			all = append([]model.Message{m}, all...)
		}
		if page.Next == nil {
			return all
		}
		p.After = *page.Next
	}
}

func TestDoorOnSQLite(t *testing.T) {
	t.Run("IN-25 what comes out of the store is what went in", func(t *testing.T) {
		store, sources, _ := openStore(t, 2)
		k := openDoor(t, store, DoorConfig{Hash: testHash},
			Source{Name: "s1", ID: sources[0].ID, Accept: compile(t, "body.n == 9007199254740993")}, Source{Name: "s2", ID: sources[1].ID, BodyLimit: 2 << 20})
		bodies := []string{"a NUL \x00", "\xff\xfe\xe4", `{"n":9007199254740993}`, `{}`, `{"lone":"\ud800"}`, strings.Repeat("\x00\xff", 1<<20)}
		for i, body := range bodies {
			path := "/in/s1?n=%00&token=x"
			if i == len(bodies)-1 {
				path = "/in/s2"
			}
			k.push(path, body, "Content-Type: caf\xe9", "Authorization: secret").want(t, 200)
		}
		got := stored(t, store)
		if len(got) != len(bodies) {
			t.Fatalf("%d messages are kept, want %d", len(got), len(bodies))
		}
		for i, m := range got {
			if string(m.Body) != bodies[i] {
				t.Errorf("body %d came out differently", i)
			}
			want := fmt.Sprintf("Authorization: %s\r\nContent-Length: %d\r\nContent-Type: caf\xe9\r\nHost: posthouse.test\r\n", testHash([]byte("secret")), len(bodies[i]))
			if diff := cmp.Diff(want, string(m.Headers)); diff != "" {
				t.Errorf("headers %d (-want +got)\n%s", i, diff)
			}
			if last := i == len(bodies)-1; !last && (string(m.Query) != "n=%00&token=h1%3A8cdc1683" || m.Source != sources[0].ID || m.ContentType != "caf\ufffd") || (m.Check == "") != (last || i == 2) {
				t.Errorf("message %d came out as %+v", i, m)
			}
		}
	})
	t.Run("AC-9 another process holds the database: only 503 meanwhile, in time, and nothing acknowledged is missing", func(t *testing.T) {
		const within, locked = 300 * time.Millisecond, 1500 * time.Millisecond
		store, sources, path := openStore(t, 1)
		k := openDoor(t, store, DoorConfig{}, Source{Name: "s1", ID: sources[0].ID, AnswerWithin: within})
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close() //nolint:errcheck // the test is over
		db.SetMaxOpenConns(1)

		stop := make(chan struct{})
		acknowledged := make(chan []string)
		lockedAt := make(chan time.Time, 16)
		for client := range 16 {
			go func() {
				var mine []string
				var from time.Time
				l := k.dial()
				for n := 0; ; n++ {
					select {
					case <-stop:
						acknowledged <- mine
						return
					case from = <-lockedAt:
					default:
					}
					body := fmt.Sprintf("%d.%d", client, n)
					a := l.push("/in/s1", body)
					answered := time.Now()
					switch {
					case a.took > within+grace:
						t.Errorf("answered after %s", a.took)
					case a.StatusCode == 200:
						mine = append(mine, body)
						if !from.IsZero() && answered.Before(from.Add(locked)) {
							t.Error("answered 200 while the database was locked")
						}
					default:
						a.wantProblem(t, 503)
					}
				}
			}()
		}
		<-time.After(300 * time.Millisecond)
		if _, err := db.Exec("PRAGMA busy_timeout = 30000; BEGIN EXCLUSIVE"); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		for range 16 {
			lockedAt <- now
		}
		<-time.After(locked)
		if _, err := db.Exec("ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		before := k.count("requests_total", "source", "s1", "result", "kept")
		until(t, func() bool { return k.count("requests_total", "source", "s1", "result", "kept") > before+100 })
		close(stop)
		kept := map[string]bool{}
		var all []string
		for range 16 {
			all = append(all, <-acknowledged...)
		}
		rows, err := db.Query("SELECT body FROM posthouse_message")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var body string
			if err := rows.Scan(&body); err != nil {
				t.Fatal(err)
			}
			if kept[body] {
				t.Errorf("%s is kept twice", body)
			}
			kept[body] = true
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		for _, body := range all {
			if !kept[body] {
				t.Errorf("%s was acknowledged and is not kept", body)
			}
		}
		if len(all) < 100 || len(kept) > len(all)+16 {
			t.Errorf("%d were acknowledged, %d are kept", len(all), len(kept))
		}
		if n := strings.Count(k.log.String(), "\n"); n < 2 || n > 4 {
			t.Errorf("%d lines were logged:\n%s", n, k.log.String())
		}
	})
}
