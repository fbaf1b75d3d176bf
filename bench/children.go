package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// childArgument makes this program one of the servers that it measures, or the
// target: `bench child ROLE ADDRESS …`.
const childArgument = "child"

// The roles of a child.
const (
	roleBare   = "bare"   // reads the body and answers 200
	roleTarget = "target" // takes what posthouse hands over, and remembers when
	// These take a database URL and a number of connections.
	roleInsert      = "insert"      // … after one INSERT, which commits itself: one round trip
	roleTransaction = "transaction" // … after BEGIN, one INSERT and COMMIT: three
)

func child(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("a child needs a role and an address")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	switch role, rest := args[0], args[2:]; {
	case role == roleBare:
		mux.HandleFunc("POST /push", bare)
	case role == roleTarget:
		newTarget().routes(mux)
	case (role == roleInsert || role == roleTransaction) && len(rest) == 2:
		handler, closeDatabase, err := inserter(ctx, rest[0], rest[1], role == roleTransaction)
		if err != nil {
			return err
		}
		defer closeDatabase()
		mux.HandleFunc("POST /push", handler)
	default:
		return fmt.Errorf("no such role: %q", args[0])
	}
	return serve(ctx, args[1], mux)
}

func serve(ctx context.Context, address string, handler http.Handler) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func bare(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// insertTable is the least that keeps a body: what a team writes on its first day.
const insertTable = `CREATE TABLE pushes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, received_at timestamptz NOT NULL DEFAULT now(), body bytea NOT NULL)`

func inserter(ctx context.Context, url, connections string, transaction bool) (handler http.HandlerFunc, closeDatabase func(), err error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, nil, err
	}
	n, err := strconv.ParseInt(connections, 10, 32)
	if err != nil {
		return nil, nil, fmt.Errorf("number of connections: %w", err)
	}
	config.MaxConns = int32(n)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	if _, err := pool.Exec(ctx, insertTable); err != nil {
		pool.Close()
		return nil, nil, err
	}
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		const insert = `INSERT INTO pushes (body) VALUES ($1)`
		if transaction {
			err = pgx.BeginFunc(r.Context(), pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(r.Context(), insert, body)
				return err
			})
		} else {
			_, err = pool.Exec(r.Context(), insert, body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
	}, pool.Close, nil
}

// target remembers which pushes it was handed, and when the last new one came.
type target struct {
	mu    sync.Mutex
	seen  map[int]bool
	twice int
	odd   int // bodies that are not as they were pushed
	last  time.Time
	wants int           // how many somebody waits for
	there chan struct{} // closed when there are so many
}

// arrived is what the target tells.
type arrived struct {
	Seen  int   `json:"seen"`
	Twice int   `json:"twice"`
	Odd   int   `json:"odd"`
	Last  int64 `json:"last"` // nanoseconds since 1970
}

func newTarget() *target { return &target{seen: map[int]bool{}} }

func (t *target) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /push", t.take)
	mux.HandleFunc("GET /arrived", t.wait)
}

func (t *target) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	now := time.Now()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	n, ok := numberOf(body)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !ok:
		t.odd++
	case t.seen[n]:
		t.twice++
	default:
		t.seen[n] = true
		t.last = now
		if len(t.seen) == t.wants {
			close(t.there)
		}
	}
}

// wait answers when n different pushes have come. One may wait at a time.
func (t *target) wait(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	there := make(chan struct{})
	t.mu.Lock()
	if len(t.seen) >= n {
		close(there)
	} else {
		t.wants, t.there = n, there
	}
	t.mu.Unlock()
	select {
	case <-there:
	case <-r.Context().Done():
		return
	}
	t.mu.Lock()
	a := arrived{Seen: len(t.seen), Twice: t.twice, Odd: t.odd, Last: t.last.UnixNano()}
	t.mu.Unlock()
	if err := json.NewEncoder(w).Encode(a); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
