package postgres

import (
	"context"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// conn is a connection that a call has to itself.
type conn struct {
	pgx *pgx.Conn
	// prepares says whether it may hold prepared statements.
	prepares bool
	// local is what every transaction begins with: it sets what could not be set
	// for the whole connection, which a pooler gives to another client after each
	// transaction. Empty where nothing is to be set.
	local string
	// writes says that the call is to change something.
	writes bool
}

// checksClients is the first version of PostgreSQL that can notice in the middle
// of a statement that its client is gone.
const checksClients = 14

// begin is the statement that a transaction begins with. It says when the
// server gives up, a little before ctx ends, of which nobody tells it.
func (c conn) begin(ctx context.Context) string {
	sql := c.local
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		left -= min(left/4, cancelTimeout)
		sql += ", " + setLocal("statement_timeout", strconv.FormatInt(max(left.Milliseconds(), 1), 10))
	}
	major, _, _ := strings.Cut(c.pgx.PgConn().ParameterStatus("server_version"), ".")
	if n, err := strconv.Atoi(major); err == nil && n >= checksClients {
		sql += ", " + setLocal("client_connection_check_interval", strconv.FormatInt(cancelTimeout.Milliseconds(), 10))
	}
	return sql
}

// query calls scan for every row.
func (c conn) query(ctx context.Context, scan func(pgx.Rows) error, sql string, args ...any) error {
	if !c.prepares {
		plain(args)
	}
	if c.local == "" {
		return each(scan)(c.pgx.Query(ctx, sql, args...))
	}
	batch := c.opening(ctx)
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) error { return each(scan)(rows, nil) })
	return c.finish(ctx, c.pgx.SendBatch(ctx, batch).Close())
}

func each(scan func(pgx.Rows) error) func(pgx.Rows, error) error {
	return func(rows pgx.Rows, err error) error {
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// exec returns how many rows the statement changed.
func (c conn) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if !c.prepares {
		plain(args)
	}
	if c.local == "" {
		tag, err := c.pgx.Exec(ctx, sql, args...)
		return tag.RowsAffected(), err
	}
	var n int64
	batch := c.opening(ctx)
	batch.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
		n = tag.RowsAffected()
		return nil
	})
	err := c.finish(ctx, c.pgx.SendBatch(ctx, batch).Close())
	return n, err
}

// opening is what is sent ahead of a statement, in one packet with it. Without
// BEGIN all of the packet is one transaction.
func (c conn) opening(ctx context.Context) *pgx.Batch {
	batch := &pgx.Batch{}
	if c.writes {
		batch.Queue(`BEGIN`)
	}
	batch.Queue(c.begin(ctx))
	return batch
}

// finish commits what was written, once its result is here: nobody can call
// back a COMMIT that was sent along with a statement which takes too long.
func (c conn) finish(ctx context.Context, err error) error {
	if !c.writes {
		return err
	}
	if err == nil {
		_, err = c.pgx.Exec(ctx, `COMMIT`)
		return err
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	_, _ = c.pgx.Exec(late, `ROLLBACK`)
	return err
}

// batch sends many statements at once, within a transaction.
func (c conn) batch(ctx context.Context, batch *pgx.Batch) error {
	if !c.prepares {
		for _, queued := range batch.QueuedQueries {
			plain(queued.Arguments)
		}
	}
	return c.pgx.SendBatch(ctx, batch).Close()
}

// run runs a statement with parameters in binary form, and calls scan for every
// row of its result.
func (c conn) run(ctx context.Context, sql string, p *params, scan func(*row) error) error {
	values, formats := p.values, binaries[:len(p.values)]
	switch {
	case c.prepares:
		prepared, err := c.pgx.Prepare(ctx, sql, sql) // once for each connection
		if err != nil {
			return err
		}
		return eachRow(c.pgx.PgConn().ExecPrepared(ctx, prepared.Name, values, formats, binaries[:1]), scan)
	case c.local == "":
		return eachRow(c.pgx.PgConn().ExecParams(ctx, sql, values, p.oids, formats, binaries[:1]), scan)
	}
	batch := &pgconn.Batch{}
	ahead := 1 // statements before this one
	if c.writes {
		batch.ExecParams(`BEGIN`, nil, nil, nil, nil)
		ahead = 2
	}
	batch.ExecParams(c.begin(ctx), nil, nil, nil, nil)
	batch.ExecParams(sql, values, p.oids, formats, binaries[:1])
	results := c.pgx.PgConn().ExecBatch(ctx, batch)
	var err error
	for n := 0; err == nil && results.NextResult(); n++ {
		if n < ahead {
			_, err = results.ResultReader().Close()
		} else {
			err = eachRow(results.ResultReader(), scan)
		}
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	return c.finish(ctx, err)
}

func eachRow(results *pgconn.ResultReader, scan func(*row) error) error {
	var r row
	var err error
	for err == nil && results.NextRow() {
		r = row{values: results.Values()}
		err = scan(&r)
	}
	if _, closed := results.Close(); closed != nil {
		return closed
	}
	return err
}

// transaction runs do in a transaction and commits it.
func transaction(ctx context.Context, c conn, options pgx.TxOptions, do func(conn) error) error {
	tx, err := c.pgx.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	inner := c
	inner.local, inner.writes = "", false
	if c.local != "" {
		_, err = inner.exec(ctx, c.begin(ctx))
	}
	if err == nil {
		err = do(inner)
	}
	if err != nil {
		// Also after ctx has ended. Where it fails the connection is given up,
		// and the server rolls back.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer cancel()
		_ = tx.Rollback(late)
		return err
	}
	return tx.Commit(ctx)
}

// plain makes arguments such that their types can be told without asking the
// server for them.
func plain(args []any) {
	for i, arg := range args {
		switch arg := arg.(type) {
		case uuid.UUID:
			args[i] = arg.String()
		case []uuid.UUID:
			texts := make([]string, len(arg))
			for j, id := range arg {
				texts[j] = id.String()
			}
			args[i] = texts
		default:
			switch v := reflect.ValueOf(arg); v.Kind() {
			case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
				args[i] = v.Int()
			case reflect.String:
				args[i] = v.String()
			}
		}
	}
}
