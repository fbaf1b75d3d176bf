// Package mysql keeps an inbox in one MySQL (from 8.0) or MariaDB (from 10.6)
// database, for any number of processes.
//
// Import it to link a driver for MySQL; no other database comes with it.
package mysql

import (
	"context"

	"github.com/posthouse/posthouse/inbox/internal/guard"
	"github.com/posthouse/posthouse/internal/store/mysql"
)

// Config says which database.
type Config struct {
	// URL is mysql://user:password@host:port/database?…, with the parameters of
	// github.com/go-sql-driver/mysql (tls=true, timeout=3s, …); others are
	// taken for variables of the session. socket=PATH replaces host and port.
	URL string
	// MaxConns bounds the connections. Default: 16.
	MaxConns int
	// AllowUnsafe accepts settings under which a power cut may lose what was
	// answered 2xx. Default: they are refused.
	AllowUnsafe bool
}

// Open prepares a store. It fails where the URL is wrong, without showing it.
// It does not connect: Migrate does, and the inbox.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := mysql.Open(ctx, mysql.Config{URL: cfg.URL, MaxConns: cfg.MaxConns, AllowUnsafe: cfg.AllowUnsafe})
	if err != nil {
		return nil, err
	}
	return &Store{guard.New(s)}, nil
}

// Store is an open database: an inbox.Store. inbox.Open refuses one whose
// tables are not those of this version, or whose settings may lose messages.
type Store struct{ guarded }

type guarded = guard.Store

// Migrate makes the tables, or brings them up to date, and then checks that the
// settings do not lose messages. It may be called every time, by several
// processes at once.
func (s *Store) Migrate(ctx context.Context) error { return s.guarded.Migrate(ctx) }

// Close waits for the calls that are under way and closes all connections. Stop
// the inbox before.
func (s *Store) Close() error { return s.guarded.Close() }
