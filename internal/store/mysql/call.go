package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// call is one connection for the time of one call.
type call struct {
	ctx    context.Context
	conn   *sql.Conn
	packet int // the server's max_allowed_packet
}

// script is statements that travel together. The server stops at the first that
// fails.
type script struct {
	text   strings.Builder
	args   []any
	weight int // bytes that it has on the wire, at most
}

// add appends a statement, which holds no semicolon.
func (s *script) add(statement string, args ...any) {
	if s.text.Len() > 0 {
		s.text.WriteString(";\n")
	}
	s.text.WriteString(statement)
	s.args = append(s.args, args...)
	s.weight += len(statement)
	for _, arg := range args {
		switch v := arg.(type) {
		case []byte:
			s.weight += 2 * len(v)
		case string:
			s.weight += 2 * len(v)
		}
		s.weight += 20
	}
}

// enough is a weight at which a script is sent before more is added.
const enough = 128 << 10

// relieve sends what has been added where that is enough for one packet.
func (c *call) relieve(s *script) error {
	if s.weight < enough {
		return nil
	}
	_, err := c.exec(s)
	*s = script{}
	return err
}

// exec runs statements that return no rows, and returns how many rows all of
// them together changed.
func (c *call) exec(s *script) (int64, error) {
	result, err := c.conn.ExecContext(c.ctx, s.text.String(), s.args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// query runs statements of which some return rows, and calls the next of scans
// for every row of the next of those.
func (c *call) query(s *script, scans ...func(*sql.Rows) error) error {
	rows, err := c.conn.QueryContext(c.ctx, s.text.String(), s.args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // on the way out of an error
	for i, scan := range scans {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		if !rows.NextResultSet() {
			if err := rows.Err(); err != nil || i == len(scans)-1 {
				return errors.Join(err, rows.Close())
			}
			return fmt.Errorf("%w: a result is missing", errScan)
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// begin begins a transaction.
func (c *call) begin() error {
	var begin script
	begin.add(`START TRANSACTION`)
	_, err := c.exec(&begin)
	return err
}

// rollback ends a transaction that changed nothing.
func (c *call) rollback() error {
	var end script
	end.add(`ROLLBACK`)
	_, err := c.exec(&end)
	return err
}

// run runs one statement that returns no rows.
func (s *Store) run(ctx context.Context, op, statement string, args ...any) (n int64, err error) {
	err = s.write(ctx, op, func(c *call) error {
		var one script
		one.add(statement, args...)
		n, err = c.exec(&one)
		return err
	})
	return n, err
}

// into reads a row into fields.
func into(rows *sql.Rows, fields ...any) error {
	if err := rows.Scan(fields...); err != nil {
		return fmt.Errorf("%w: %w", errScan, err)
	}
	return nil
}

// list is a list of numbers, for IN.
func list[T ~int | ~int32 | ~int64](numbers []T) string {
	var b strings.Builder
	for i, n := range numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(int64(n), 10))
	}
	return b.String()
}

// sorted are the members of a set of numbers.
func sorted[T cmp.Ordered](set map[T]bool) []T { return slices.Sorted(maps.Keys(set)) }

// repeat is n times what, separated by commas.
func repeat(what string, n int) string {
	return strings.TrimSuffix(strings.Repeat(what+",", n), ",")
}

// scan reads values as the driver gives them, in either protocol.
func scan(row []driver.Value, fields ...any) error {
	for i, field := range fields {
		text := fmt.Sprint(row[i])
		if b, ok := row[i].([]byte); ok {
			text = string(b)
		}
		switch to := field.(type) {
		case *string:
			*to = text
		case *int64:
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return fmt.Errorf("%w: %w", errScan, err)
			}
			*to = n
		}
	}
	return nil
}
