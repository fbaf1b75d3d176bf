package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// How long a call may take where its ctx says nothing shorter.
const (
	writeTimeout = 5 * time.Second
	readTimeout  = 10 * time.Second
)

// writer is the one connection that writes, with its prepared statements.
type writer struct {
	conn       *sql.Conn
	statements map[string]*sql.Stmt
}

// close ends the connection; whatever transaction it is in is rolled back.
func (w *writer) close() {
	for _, statement := range w.statements {
		_ = statement.Close() // ending the connection finalizes it anyway
	}
	if w.conn != nil {
		// Close alone would hand it back to the pool, as it is.
		_ = w.conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = w.conn.Close()
	}
	*w = writer{}
}

func (w *writer) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if statement, ok := w.statements[query]; ok {
		return statement, nil
	}
	statement, err := w.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	w.statements[query] = statement
	return statement, nil
}

// tx is a writing transaction. Once it has begun nothing in it waits for a
// lock, so its statements do not watch the caller's ctx (each watch would cost
// a goroutine); write looks at it before the commit.
type tx struct {
	*writer
	ctx context.Context // never ends
	now model.Micros    // one reading, taken when the lock was held
	// bytes that the transaction writes, where they are many
	bytes int64
}

// exec returns how many rows changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	statement, err := t.prepare(t.ctx, query) //nolint:sqlclosecheck // closed with the connection
	if err != nil {
		return 0, err
	}
	result, err := statement.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// maxRows bounds the rows of one insert. What a statement costs besides its
// rows is more than a third of inserting rows one by one; beyond this it is nothing.
const maxRows = 64

// insert runs a statement whose %s stands for rows of so many columns, as often
// as it takes. Numbers of rows are powers of two, so that few statements are
// prepared.
func (t *tx) insert(statement string, columns int, rows []any) error {
	row := "(?" + strings.Repeat(", ?", columns-1) + ")"
	for size := maxRows; len(rows) > 0; {
		if len(rows) < size*columns {
			size /= 2
			continue
		}
		query := fmt.Sprintf(statement, row+strings.Repeat(", "+row, size-1))
		if _, err := t.exec(query, rows[:size*columns]...); err != nil {
			return err
		}
		rows = rows[size*columns:]
	}
	return nil
}

// query calls scan for every row.
func (t *tx) query(scan func(*sql.Rows) error, query string, args ...any) error {
	statement, err := t.prepare(t.ctx, query) //nolint:sqlclosecheck // closed with the connection
	if err != nil {
		return err
	}
	rows, err := statement.QueryContext(t.ctx, args...)
	return each(rows, err, scan)
}

func each(rows *sql.Rows, err error, scan func(*sql.Rows) error) error {
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err says all that there is to say
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// write runs do in a transaction and commits it. It ends with ctx, or after
// writeTimeout, also while another process holds the database.
func (s *Store) write(ctx context.Context, op string, do func(*tx) error) error {
	return s.writeWithin(ctx, writeTimeout, op, do)
}

func (s *Store) writeWithin(ctx context.Context, timeout time.Duration, op string, do func(*tx) error) error {
	if s.cfg.ReadOnly {
		return errReadOnly
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return s.wrap(ctx, op, ctx.Err())
	}
	return s.wrap(ctx, op, s.transact(ctx, do))
}

func (s *Store) transact(ctx context.Context, do func(*tx) error) error {
	if s.closed.Load() {
		return errClosed
	}
	t := &tx{writer: &s.writer, ctx: context.WithoutCancel(ctx)}
	if err := whileBusy(ctx, func() error { return s.begin(t) }); err != nil {
		return err
	}
	t.now = s.clock.now()
	err := do(t)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		_, err = t.exec("COMMIT")
	}
	if err != nil {
		s.rollback(t)
		return err
	}
	s.wrote(t.bytes)
	return nil
}

// begin takes the write lock, over a new connection where there is none.
func (s *Store) begin(t *tx) error {
	if s.writer.conn == nil {
		conn, err := s.writers.Conn(t.ctx)
		if err != nil {
			return err
		}
		s.writer = writer{conn: conn, statements: map[string]*sql.Stmt{}}
	}
	_, err := t.exec("BEGIN IMMEDIATE")
	if err != nil && !busy(err) {
		s.writer.close() // it may still be inside a transaction that failed
	}
	return err
}

// rollback leaves a connection that can begin again.
func (s *Store) rollback(t *tx) {
	if _, err := t.exec("ROLLBACK"); err != nil {
		// SQLite may have rolled back by itself (a full disk), or not at all.
		s.writer.close()
	}
}

// read runs do, which asks the reading connections, and runs it again where
// another process was in the way. It ends with ctx, or after readTimeout.
func (s *Store) read(ctx context.Context, op string, do func(context.Context, *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if s.closed.Load() {
		return s.wrap(ctx, op, errClosed)
	}
	return s.wrap(ctx, op, whileBusy(ctx, func() error {
		snapshot, err := s.readers.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return err
		}
		defer func() { _ = snapshot.Rollback() }() // nothing was written
		return do(ctx, snapshot)
	}))
}

// whileBusy repeats try while another connection holds a lock. SQLite's own
// wait is kept short, since it does not see ctx.
func whileBusy(ctx context.Context, try func() error) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := try()
		if err == nil || !busy(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}
