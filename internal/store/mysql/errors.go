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
	errDeadlock      = 1213 // also Galera, where a commit was in conflict with another node's
	errLockTimeout   = 1205
	errRecordChanged = 1020 // MariaDB: a row changed since the snapshot
	errAutoincRead   = 1467 // a deadlock on the way to the next id
	errRolledBack    = 3101 // group replication, as with Galera

	errNetPacketTooLarge = 1153
	errNoSuchTable       = 1146
	errUnknownColumn     = 1054

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

// states are what a server says of itself, not of what it was asked: later, or
// of another server, the same may succeed.
var states = map[uint16]bool{
	// Locks, and what was rolled back.
	errDeadlock: true, errLockTimeout: true, errRecordChanged: true, errAutoincRead: true, errRolledBack: true,
	1015: true, // cannot lock a file
	1206: true, // the table of locks is full
	1223: true, // a read lock of everything
	1613: true, // rolled back for a timeout
	1614: true, // rolled back for a deadlock
	1637: true, // too many transactions
	1689: true, // waiting for a lock was given up
	3177: true, // a storage engine refuses a lock
	3572: true, // lock not available

	// It has no more of something.
	1021: true, // disk full
	1037: true, // out of memory
	1038: true, // out of memory for sorting
	1040: true, // too many connections
	1041: true, // out of memory
	1114: true, // table full
	1135: true, // no more threads
	1197: true, // the binary log's cache is full
	1203: true, // too many connections of a user
	1226: true, // the limit of a user
	1705: true, // the binary log's cache is full
	3015: true, // a storage engine is out of memory
	3019: true, // undo log full
	3170: true, // the limit of memory
	3675: true, // disk full
	3985: true, // no more resources for locks of metadata

	// Files, storage engines, the binary log.
	1016: true, // cannot open a file
	1024: true, // cannot read
	1026: true, // cannot write
	1030: true, // an error from a storage engine
	1034: true, // a key file is corrupt
	1035: true, // an old key file
	1105: true, // unknown: binary logs, replication, Galera, proxies
	1180: true, // during a commit
	1181: true, // during a rollback
	1182: true, // during a flush of logs
	1194: true, // a table is marked as crashed
	1195: true, // and could not be repaired
	1296: true, // an error from somewhere else
	1297: true, // a temporary one
	1534: true, // the binary log
	1593: true,
	1598: true,
	1812: true, // the tablespace is missing
	1814: true, // the tablespace is discarded
	1815: true, // internal error

	// Who may connect.
	1042: true, // no address for the client's host
	1043: true, // bad handshake
	1044: true, // no access to the database
	1045: true, // no access
	1049: true, // no such database
	1129: true, // the host is blocked
	1130: true, // the host is not allowed
	1142: true, // no access to a table
	1143: true, // no access to a column
	1184: true, // a new connection was ended
	3118: true, // the account is locked
	3168: true, // the server is not available
	3955: true, // the account is blocked for a time

	// The network.
	1152: true,                                                                         // the connection was ended
	1154: true, 1156: true, 1157: true, 1158: true, 1159: true, 1160: true, 1161: true, // packets
	1835: true, // malformed packet
	1927: true, // MariaDB: the connection was killed
	4031: true, // the client was idle for too long

	// Going, or not (yet) the one that writes.
	1036: true,                                                             // the table is read only
	1047: true,                                                             // Galera: the node is not of the primary component, or not ready
	1053: true,                                                             // shutting down
	1079: true,                                                             // shut down
	1207: true,                                                             // read only
	1290: true,                                                             // --read-only
	1317: true,                                                             // interrupted
	1792: true,                                                             // the transaction is read only
	1836: true,                                                             // read-only mode
	1874: true,                                                             // InnoDB is in read-only mode
	1969: true,                                                             // MariaDB: max_statement_time
	3024: true,                                                             // max_execution_time
	3032: true,                                                             // offline mode
	3092: true, 3093: true, 3094: true, 3095: true, 3096: true, 3097: true, // group replication is not (yet) at work
	3100: true,                                                             // a replication hook, before a commit
	3169: true,                                                             // the session was killed
	3781: true, 3782: true, 3796: true, 3797: true, 3798: true, 3799: true, // group replication: waiting for the group
	3989: true, // the database is read only
}

// unavailable: numbers from 2000 are clients', which proxies pass on (2006 and
// 2013, gone away), and those from 9000 are proxies' own.
func unavailable(number uint16) bool {
	return states[number] || number >= 2000 && number < 3000 || number >= 9000 && number < 10000
}

// quotes says that the text of a state may be of any kind.
func quotes(number uint16) bool {
	switch number {
	case 1105, 1296, 1297, 1815:
		return true
	}
	return number >= 9000
}

// textOf shows the server's text only where it cannot quote a value: an unknown
// error may be about the statement, which holds them all.
func textOf(err error) string {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return err.Error()
	}
	switch {
	case unavailable(e.Number) && !quotes(e.Number), e.Number == errNoSuchTable, e.Number == errUnknownColumn, e.Number == errDataTooLong, e.Number == errBadNull:
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
		case errDeadlock, errAutoincRead, errLockTimeout, errRecordChanged, errRolledBack:
			return true
		}
		return false
	}
	return errors.Is(err, driver.ErrBadConn) // nothing was sent
}
