// Package sqlite keeps an inbox in one SQLite file, for one process at a time.
//
// Import it to link SQLite; no other database comes with it.
package sqlite

import (
	"context"

	"github.com/posthouse/posthouse/inbox/internal/guard"
	"github.com/posthouse/posthouse/internal/store/sqlite"
)

// Config says which file.
type Config struct {
	// Path of the database file. It is created with mode 0600, its folder with
	// 0700, where they are missing.
	Path string
	// AllowUnsafe accepts settings under which a power cut may lose what was
	// answered 2xx. Default: they are refused.
	AllowUnsafe bool
}

// Open opens the file, and locks it against other processes that would consume
// from it: the lock is PATH.lock, held until Close. It fails where another
// process has the lock, or the file cannot be opened.
func Open(_ context.Context, cfg Config) (*Store, error) {
	s, err := sqlite.Open(sqlite.Config{Path: cfg.Path, Consumer: true, AllowUnsafe: cfg.AllowUnsafe})
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
// settings do not lose messages. It may be called every time.
func (s *Store) Migrate(ctx context.Context) error { return s.guarded.Migrate(ctx) }

// Close waits for the write that is under way and lets the file and its lock
// go. Stop the inbox before. Calls after the first do nothing.
func (s *Store) Close() error { return s.guarded.Close() }
