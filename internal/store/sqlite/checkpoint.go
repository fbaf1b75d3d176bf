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
// lives for one checkpoint. Commits wait for the disk meanwhile, so little is
// moved at a time: the slowest answers take as long as one checkpoint.
type checkpoints struct {
	db      *sql.DB
	written int64 // about how many bytes since the last one; guarded by Store.turn
	moved   int64 // about how long the log is; guarded by running
	running atomic.Bool
	done    sync.WaitGroup
}

const (
	// checkpointAfter is about how many bytes are moved at a time.
	checkpointAfter = 1 << 20
	// restartAfter is about how long the log may get.
	restartAfter = 8 << 20
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
	c.moved += c.written
	c.written = 0
	c.done.Go(func() {
		defer c.running.Store(false)
		c.run()
		if c.moved < restartAfter {
			return
		}
		// Only a log that is wholly moved is begun anew, so what was written
		// meanwhile is moved while nobody writes.
		c.moved = 0
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
