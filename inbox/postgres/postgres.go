// Package postgres keeps an inbox in one PostgreSQL database, for any number of
// processes.
//
// Import it to link a driver for PostgreSQL; no other database comes with it.
package postgres

import (
	"context"

	"github.com/posthouse/posthouse/inbox/internal/guard"
	"github.com/posthouse/posthouse/internal/store/postgres"
)

// Config says which database.
type Config struct {
	// URL is postgres://user:password@host:port/database?…, with the
	// parameters that libpq and pgx know.
	URL string
	// MaxConns bounds the connections. Default: pool_max_conns of the URL, or 16.
	MaxConns int
	// AllowUnsafe accepts settings under which a power cut may lose what was
	// answered 2xx. Default: they are refused.
	AllowUnsafe bool
}

// Open prepares a store. It fails where the URL is wrong, without showing it.
// It does not connect: Migrate does, and the inbox.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := postgres.Open(ctx, postgres.Config{URL: cfg.URL, MaxConns: cfg.MaxConns, AllowUnsafe: cfg.AllowUnsafe})
	if err != nil {
		return nil, err
	}
	return &Store{guard.New(s), s}, nil
}

// Store is an open database: an inbox.Store. inbox.Open refuses one whose
// tables are not those of this version, or whose settings may lose messages.
type Store struct {
	guarded
	signals // what wakes other processes at once
}

type (
	guarded = guard.Store
	signals = guard.Signals
)

// Migrate makes the tables, or brings them up to date, and then checks that the
// settings do not lose messages. It may be called every time, by several
// processes at once.
func (s *Store) Migrate(ctx context.Context) error { return s.guarded.Migrate(ctx) }

// Close waits for the calls that are under way and closes all connections. Stop
// the inbox before.
func (s *Store) Close() error { return s.guarded.Close() }
