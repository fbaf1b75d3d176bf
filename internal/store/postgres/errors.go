package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthouse/posthouse/internal/model"
)

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
	err = failure{text: textOf(err), cause: err}
	if ended := ctx.Err(); ended != nil {
		code = model.CodeUnavailable
		if !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
	}
	return &model.Error{Code: code, Op: op, Err: err}
}

// failure shows only what may be shown of its cause.
type failure struct {
	text  string
	cause error
}

func (f failure) Error() string { return f.text }
func (f failure) Unwrap() error { return f.cause }

func textOf(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch class(e.Code) {
		case "22", "P0": // they may quote a value
			return "SQLSTATE " + e.Code
		}
		return fmt.Sprintf("%s (SQLSTATE %s)", e.Message, e.Code)
	}
	if e, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		// The outermost text names the user and the database.
		return "connect: " + once(e.Unwrap().Error())
	}
	return err.Error()
}

// once makes one line of many, and says nothing twice: each address is tried
// with TLS and without, and mostly fails for the same reason.
func once(lines string) string {
	said := ""
	for line := range strings.SplitSeq(lines, "\n") {
		switch {
		case said == "":
			said = line
		case !strings.Contains(said, line):
			said += "; " + line
		}
	}
	return said
}

// codeOf classes an error by its SQLSTATE. Without one it is the connection's,
// or ours.
func codeOf(err error) model.Code {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if _, ours := errors.AsType[pgx.ScanArgError](err); ours || errors.Is(err, pgx.ErrNoRows) {
			return model.CodeInternal
		}
		return model.CodeUnavailable
	}
	switch e.Code {
	case "25006", // read only
		"25P02",          // a transaction that has failed before: somebody's else, through a pooler
		"42501",          // no privilege
		"42P05",          // a prepared statement that is there already, through a pooler
		"72000",          // the snapshot is too old
		"25P03", "25P04", // the server ended what took too long
		"55P03", // lock not available
		"55006", // object in use
		"55000", // a server in the wrong state, a standby for one
		"3D000", // no such database
		"0A000", // a cached plan that a migration made void: the next call plans anew
		"26000": // a prepared statement that is not there (any more)
		return model.CodeUnavailable
	case "42P01", "42703": // no such table, no such column
		return model.CodeSchema
	}
	switch class(e.Code) {
	case "08", // connection
		"28", // authorization
		"40", // transaction rolled back
		"53", // insufficient resources
		"57", // operator intervention
		"58", // system error
		"F0", // configuration file
		"XX": // internal, data or an index corrupt: of this server, at this time
		return model.CodeUnavailable
	case "22", "23", "54": // data, constraint, program limit
		return model.CodeRejected
	}
	return model.CodeInternal
}

func class(sqlstate string) string {
	if len(sqlstate) < 2 {
		return ""
	}
	return sqlstate[:2]
}

// again says that the whole transaction had no effect, and that the same may
// succeed when it is repeated.
func again(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code == "40001" || e.Code == "40P01"
	}
	return pgconn.SafeToRetry(err)
}
