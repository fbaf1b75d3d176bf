package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/posthouse/posthouse/internal/model"
)

// errScan marks what is wrong with our own reading of a row.
var errScan = errors.New("read a row")

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

// The server's error numbers that we know. Those of MySQL and MariaDB differ
// only above 1900.
const (
	errConnectionCount   = 1040 // too many connections
	errOutOfMemory       = 1037
	errOutOfResources    = 1041
	errDBAccessDenied    = 1044
	errAccessDenied      = 1045
	errUnknownDatabase   = 1049
	errServerShutdown    = 1053
	errUnknownColumn     = 1054
	errDiskFull          = 1021
	errFileUsed          = 1016 // cannot open file
	errRecordFileFull    = 1114 // table is full
	errAborted           = 1152
	errNetPacketTooLarge = 1153
	errNetReadError      = 1158
	errNetReadInterrupt  = 1159
	errNetWriteError     = 1160
	errNetWriteInterrupt = 1161
	errTooManyUserConns  = 1203
	errLockWaitTimeout   = 1205
	errLockTableFull     = 1206
	errReadOnlyTx        = 1207
	errDeadlock          = 1213
	errUserLimit         = 1226
	errAutoincRead       = 1467 // a deadlock on the way to the next id
	errOptionPrevents    = 1290 // --read-only
	errQueryInterrupted  = 1317
	errNoSuchTable       = 1146
	errNewAbortedConn    = 1184
	errCantExecReadOnly  = 1792
	errInnoDBReadOnly    = 1874
	errReadOnlyMode      = 1836
	errConnectionKilled  = 1927 // MariaDB
	errStatementTimeout  = 1969 // MariaDB: max_statement_time
	errRecordChanged     = 1020 // MariaDB: a row changed since the snapshot
	errQueryTimeout      = 3024
	errLockNowait        = 3572
	errDisconnecting     = 4031 // the client was idle for too long

	errBadNull          = 1048
	errDupEntry         = 1062
	errRowSizeTooBig    = 1118
	errTruncated        = 1265
	errOutOfRange       = 1264
	errBadDateTime      = 1292
	errWrongValue       = 1366
	errDataTooLong      = 1406
	errInvalidChars     = 1300
	errSubqueryRows     = 1242 // more than one for one value
	errConstraintFailed = 3819
	errCheckFailed      = 4025 // MariaDB
)

// codeOf classes an error by its number. Without one it is the connection's,
// or ours.
func codeOf(err error) model.Code {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		if errors.Is(err, errScan) || errors.Is(err, sql.ErrNoRows) {
			return model.CodeInternal
		}
		return model.CodeUnavailable
	}
	switch e.Number {
	case errBadNull, errDupEntry, errRowSizeTooBig, errTruncated, errOutOfRange, errBadDateTime, errWrongValue, errDataTooLong,
		errInvalidChars, errNetPacketTooLarge, errConstraintFailed, errCheckFailed:
		return model.CodeRejected
	case errNoSuchTable, errUnknownColumn:
		return model.CodeSchema
	}
	if unavailable(e.Number) {
		return model.CodeUnavailable
	}
	return model.CodeInternal
}

func unavailable(number uint16) bool {
	switch number {
	case errConnectionCount, errOutOfMemory, errOutOfResources, errDBAccessDenied, errAccessDenied, errUnknownDatabase, errServerShutdown,
		errDiskFull, errFileUsed, errRecordFileFull, errAborted, errNetReadError, errNetReadInterrupt, errNetWriteError, errNetWriteInterrupt,
		errTooManyUserConns, errLockWaitTimeout, errLockTableFull, errReadOnlyTx, errDeadlock, errAutoincRead, errUserLimit, errOptionPrevents,
		errQueryInterrupted, errNewAbortedConn, errCantExecReadOnly, errInnoDBReadOnly, errReadOnlyMode, errConnectionKilled,
		errStatementTimeout, errRecordChanged, errQueryTimeout, errLockNowait, errDisconnecting:
		return true
	}
	return false
}

// textOf shows the server's text only where it cannot quote a value: an unknown
// error may be about the statement, which holds them all.
func textOf(err error) string {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return err.Error()
	}
	switch {
	case unavailable(e.Number), e.Number == errNoSuchTable, e.Number == errUnknownColumn, e.Number == errDataTooLong, e.Number == errBadNull:
		return fmt.Sprintf("%s (error %d)", e.Message, e.Number)
	}
	return fmt.Sprintf("error %d (SQLSTATE %s)", e.Number, e.SQLState[:])
}

// lasting is an error that came after the call had taken effect: repeated, the
// call would find that as somebody else's.
type lasting struct{ error }

func (l lasting) Unwrap() error { return l.error }

// again says that the whole transaction had no effect (once it is rolled
// back), and that the same may succeed when it is repeated.
func again(err error) bool {
	if _, ok := errors.AsType[lasting](err); ok {
		return false
	}
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		switch e.Number {
		case errDeadlock, errAutoincRead, errLockWaitTimeout, errRecordChanged:
			return true
		}
		return false
	}
	return errors.Is(err, driver.ErrBadConn) // nothing was sent
}
