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
	"context"
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
	lib "modernc.org/sqlite/lib"

	"github.com/posthouse/posthouse/internal/model"
)

// Config says which file, and what this process may do with it.
type Config struct {
	// Path of the database file, exactly as the file is called: no character of
	// it means anything. The file is created with mode 0600, its folder with
	// 0700, where they are missing.
	Path string
	// MustExist creates nothing: Open fails with CodeUnavailable where the file
	// is missing.
	MustExist bool
	// ReadOnly is for those who only look, with no more than the right to read
	// the file. It implies MustExist; calls that write fail with CodeInvalid.
	ReadOnly bool
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

	writers *sql.DB       // one connection; like checkpoints.db nil where ReadOnly
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

// wrap is the function wrap, and names the file where that is what is wrong.
func (s *Store) wrap(ctx context.Context, op string, err error) error {
	code := primary(err)
	if s.cfg.ReadOnly && (code == lib.SQLITE_CANTOPEN || code == lib.SQLITE_READONLY) {
		err = fmt.Errorf("while no process has it open, reading it needs the right to write in its folder: %w", err)
	}
	switch code {
	case lib.SQLITE_NOTADB, lib.SQLITE_CORRUPT, lib.SQLITE_CANTOPEN, lib.SQLITE_READONLY, lib.SQLITE_PERM, lib.SQLITE_FULL, lib.SQLITE_IOERR:
		err = fmt.Errorf("%s: %w", s.cfg.Path, err)
	}
	return wrap(ctx, op, err)
}

// errReadOnly is a mistake of the caller's.
var errReadOnly = &model.Error{Code: model.CodeInvalid, Op: "write", Err: errors.New("the database was opened for reading only")}

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
	if s.cfg.MustExist || s.cfg.ReadOnly {
		err = exists(path)
	} else {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return err
	}
	if s.cfg.ReadOnly {
		s.readers = pool(path, readOnly, maxReaders)
		return nil
	}
	if s.cfg.Consumer {
		if s.lock, err = lockFile(path); err != nil {
			return err
		}
	}
	if err := create(path); err != nil {
		s.unlock()
		return err
	}
	s.writers = pool(path, readWrite, 1, "journal_mode(WAL)", "synchronous(FULL)", autoCheckpoint, "journal_size_limit(67108864)")
	s.readers = pool(path, readWrite, maxReaders, "query_only(1)")
	s.checkpoints.db = pool(path, readWrite, 1, "synchronous(FULL)")
	return nil
}

// exists refuses what is no file, before anything is made beside it.
func exists(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no database %s: %w", path, fs.ErrNotExist)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", path)
	}
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

// lockFile takes a lock beside path that the kernel drops when the process ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("another process consumes from %s: %w", path, err)
	}
	return f, nil
}

func (s *Store) unlock() {
	if s.lock != nil {
		_ = s.lock.Close() // nothing was written to it
	}
}

// How SQLite opens the file. None creates it.
const (
	readOnly  = "ro"
	readWrite = "rw"
)

// pool opens no connection yet.
func pool(path, mode string, size int, pragmas ...string) *sql.DB {
	pragmas = append(pragmas, busyTimeout)
	query := url.Values{"mode": {mode}, "_pragma": pragmas}
	dsn := url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: query.Encode()}
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
	err := s.readers.Close()
	if !s.cfg.ReadOnly {
		err = errors.Join(err, s.checkpoints.db.Close(), s.writers.Close())
	}
	s.unlock()
	if err != nil {
		return &model.Error{Code: model.CodeInternal, Op: "close sqlite", Err: err}
	}
	return nil
}
