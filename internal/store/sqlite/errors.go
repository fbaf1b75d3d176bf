package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/posthouse/posthouse/internal/model"
)

var errClosed = errors.New("the store is closed")

// wrap makes err one of ours. A call whose ctx ended failed for that reason,
// whatever the driver says of it.
func wrap(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ours := errors.AsType[*model.Error](err); ours {
		return err
	}
	code := codeOf(err)
	if ended := ctx.Err(); ended != nil {
		code = model.CodeUnavailable
		if !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
	}
	return &model.Error{Code: code, Op: op, Err: err}
}

func codeOf(err error) model.Code {
	switch {
	case errors.Is(err, errClosed), errors.Is(err, sql.ErrConnDone), errors.Is(err, driver.ErrBadConn),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return model.CodeUnavailable
	}
	switch primary(err) {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL, lib.SQLITE_INTERRUPT, lib.SQLITE_IOERR,
		lib.SQLITE_FULL, lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_NOMEM:
		return model.CodeUnavailable
	case lib.SQLITE_CONSTRAINT, lib.SQLITE_TOOBIG, lib.SQLITE_MISMATCH:
		return model.CodeRejected
	}
	return model.CodeInternal
}

// busy says that another connection holds a lock, and that the statement had
// no effect.
func busy(err error) bool {
	switch primary(err) {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
		return true
	}
	return false
}

// primary is SQLite's result code without its extension, 0 for other errors.
func primary(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return lib.SQLITE_OK
}
