package sqlite

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
)

// checkpoints move what was committed from the write-ahead log into the
// database. SQLite would do that within a commit, which then takes ten times as
// long as others; here it is done beside the writes, by a goroutine that
// lives for one checkpoint.
type checkpoints struct {
	db      *sql.DB
	written int64 // about how many bytes since the last one; guarded by Store.turn
	running atomic.Bool
	done    sync.WaitGroup
}

const (
	// checkpointAfter is about how long the log may get.
	checkpointAfter = 4 << 20
	// commitSize is about what a commit writes besides bodies.
	commitSize = 16 * 4096
	// autoCheckpoint, in pages of 4 KiB, is when SQLite does it after all:
	// where the goroutine cannot keep up, or a reader was in its way.
	autoCheckpoint = "wal_autocheckpoint(16000)"
)

// wrote is told of each commit, by whoever has the turn.
func (s *Store) wrote(bytes int64) {
	c := &s.checkpoints
	c.written += bytes + commitSize
	if c.written < checkpointAfter || c.running.Swap(true) {
		return
	}
	c.written = 0
	c.done.Go(func() {
		defer c.running.Store(false)
		// Most of it beside the writes …
		c.run()
		// … and what was written meanwhile without them, for only a log that
		// is wholly moved is begun anew.
		s.turn <- struct{}{}
		defer func() { <-s.turn }()
		c.run()
	})
}

// run does not tell of errors: a checkpoint that fails loses nothing, and the
// next one, or SQLite's own, does its work.
func (c *checkpoints) run() {
	_, _ = c.db.ExecContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)")
}
