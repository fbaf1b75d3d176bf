// Package sqlite keeps everything in one SQLite file, for one consuming process.
//
// All writes go through one connection, one transaction at a time (BEGIN
// IMMEDIATE, WAL, synchronous=FULL); reads have connections of their own and
// never wait for a write. Other processes may open the same file; whoever
// consumes holds a lock on PATH.lock besides, so that there is one consumer,
// and so that it may take all former instances for dead when it starts.
//
// The clock is the process's. Nothing runs in the background but checkpoints.
package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"

	"github.com/posthouse/posthouse/internal/model"
)

// Config says which file, and what this process may do with it.
type Config struct {
	// Path of the database file. It is created with mode 0600, its folder with
	// 0700, where they are missing.
	Path string
	// Consumer takes the lock PATH.lock until Close: CodeBusy where another
	// process has it. JoinInstance of a consumer declares every other instance
	// dead, for none can be alive.
	Consumer bool
	// AllowUnsafe lets CheckReady pass although a commit may be lost with the
	// power.
	AllowUnsafe bool
}

// Store is a SQLite file. Its methods may be called at the same time.
type Store struct {
	cfg   Config
	clock clock

	writers *sql.DB       // one connection
	turn    chan struct{} // capacity 1: who has put something in may use writer
	writer  writer

	readers     *sql.DB
	checkpoints checkpoints
	lock        *os.File // held by a consumer, otherwise nil
	closed      atomic.Bool
}

// busyTimeout is how long SQLite itself waits for a lock, in milliseconds. It
// does not see the end of a ctx, so this is how late a call may be.
const busyTimeout = "busy_timeout(50)"

// maxReaders bounds the reading connections. Reads are short, and SQLite's
// are bound by the processor.
const maxReaders = 4

// Open prepares a store. It creates the file, and takes the consumer's lock
// where that is wanted, but neither waits for the database nor looks at it:
// CheckReady and MigrateUp do.
func Open(cfg Config) (*Store, error) {
	s := &Store{cfg: cfg, turn: make(chan struct{}, 1)}
	if err := s.open(); err != nil {
		return nil, &model.Error{Code: openCode(err), Op: "open sqlite", Err: err}
	}
	return s, nil
}

func openCode(err error) model.Code {
	switch {
	case errors.Is(err, errNoPath):
		return model.CodeInvalid
	case errors.Is(err, unix.EWOULDBLOCK):
		return model.CodeBusy
	}
	return model.CodeUnavailable
}

var errNoPath = errors.New("a path is needed: a database in memory keeps nothing")

func init() {
	// As every distribution's SQLite does it: a commit reaches the disk with
	// its data and the file's size, but not its time stamps. An error says
	// that there is no fdatasync here, and changes nothing.
	_, _ = sqlite.Fdatasync(true)
}

func (s *Store) open() error {
	if s.cfg.Path == "" || s.cfg.Path == ":memory:" {
		return errNoPath
	}
	path, err := filepath.Abs(s.cfg.Path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if s.cfg.Consumer {
		if s.lock, err = lockFile(path + ".lock"); err != nil {
			return err
		}
	}
	if err := create(path); err != nil {
		s.unlock()
		return err
	}
	s.writers = pool(path, 1, "journal_mode(WAL)", "synchronous(FULL)", autoCheckpoint, "journal_size_limit(67108864)")
	s.readers = pool(path, maxReaders, "query_only(1)")
	s.checkpoints.db = pool(path, 1, "synchronous(FULL)")
	return nil
}

// create makes an empty file that only its owner reads. An existing one is
// not opened: closing it again would drop the locks that SQLite has on it
// elsewhere in this process.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// lockFile takes a lock that the kernel drops when the process ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("another process consumes from this file: %w", err)
	}
	return f, nil
}

func (s *Store) unlock() {
	if s.lock != nil {
		_ = s.lock.Close() // nothing was written to it
	}
}

// pool opens no connection yet.
func pool(path string, size int, pragmas ...string) *sql.DB {
	pragmas = append(pragmas, busyTimeout)
	dsn := url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: url.Values{"_pragma": pragmas}.Encode()}
	connector, err := sqlite.NewConnector(dsn.String())
	if err != nil {
		panic(err) // it refuses only what a URL cannot be
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

// Close waits for the write that is under way, closes all connections and lets
// the consumer's lock go. Calls after the first do nothing.
func (s *Store) Close() error {
	s.turn <- struct{}{}
	first := !s.closed.Swap(true)
	s.writer.close()
	<-s.turn
	if !first {
		return nil
	}
	s.checkpoints.done.Wait()
	err := errors.Join(s.readers.Close(), s.checkpoints.db.Close(), s.writers.Close())
	s.unlock()
	if err != nil {
		return &model.Error{Code: model.CodeInternal, Op: "close sqlite", Err: err}
	}
	return nil
}
