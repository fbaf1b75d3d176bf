package postgres

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/posthouse/posthouse/internal/model"
)

const (
	// channel carries signals: the ids of queues, separated by commas.
	channel = "posthouse"
	// maxPayload bounds one signal, in bytes; the server takes less than 8000.
	maxPayload = 7900
	// A listening connection on which nothing is heard for listenQuiet is asked
	// for a sign of life, and has as long again to give it.
	listenQuiet = 10 * time.Second
)

var errPooled = errors.New("there are no signals behind a pooler that gives each transaction another connection")

// CanSignal says whether there are signals: not behind a pooler, since nobody
// can listen there.
func (s *Store) CanSignal() bool { return !s.pooled }

// Notify tells all processes that the queues may have due work. CodeInvalid
// where there are no signals.
func (s *Store) Notify(ctx context.Context, queues []model.SourceID) error {
	const op = "notify"
	if s.pooled {
		return &model.Error{Code: model.CodeInvalid, Op: op, Err: errPooled}
	}
	if len(queues) == 0 {
		return nil
	}
	_, err := s.exec(ctx, op, `SELECT pg_notify('`+channel+`', payload) FROM unnest($1::text[]) payload`, payloads(queues))
	return err
}

// payloads writes ids into as few signals as hold them.
func payloads(queues []model.SourceID) (texts []string) {
	var text []byte
	for _, queue := range queues {
		if len(text) > maxPayload-12 {
			texts = append(texts, string(text))
			text = text[:0]
		}
		if len(text) > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(queue), 10)
	}
	return append(texts, string(text))
}

// readPayload passes over what is no id: anybody may signal.
func readPayload(text string) (queues []model.SourceID) {
	for field := range strings.SplitSeq(text, ",") {
		if id, err := strconv.ParseInt(field, 10, 32); err == nil {
			queues = append(queues, model.SourceID(id))
		}
	}
	return queues
}

// Listen calls heard for every signal until ctx ends or the connection is lost,
// which is noticed within half a minute, and returns why it ended. It has a
// connection of its own, beside those of the pool. CodeInvalid where there are
// no signals.
func (s *Store) Listen(ctx context.Context, heard func([]model.SourceID)) error {
	const op = "listen"
	if s.pooled {
		return &model.Error{Code: model.CodeInvalid, Op: op, Err: errPooled}
	}
	config := s.pool.Config().ConnConfig.Copy()
	// The end of a wait must not cancel anything on the server.
	config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
	}
	config.DialFunc = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: s.quiet, Interval: s.quiet / 4, Count: 4,
	}}).DialContext
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return wrap(ctx, op, err)
	}
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer cancel()
		_ = c.Close(late)
	}()
	if err := within(ctx, connectTimeout, func(ctx context.Context) error {
		_, err := c.Exec(ctx, `LISTEN `+channel)
		return err
	}); err != nil {
		return wrap(ctx, op, err)
	}
	heard(nil)
	for {
		var signal *pgconn.Notification
		err := within(ctx, s.quiet, func(ctx context.Context) (err error) {
			signal, err = c.WaitForNotification(ctx)
			return err
		})
		switch {
		case err == nil:
			if queues := readPayload(signal.Payload); len(queues) > 0 {
				heard(queues)
			}
			continue
		case ctx.Err() == nil && pgconn.Timeout(err) && !c.IsClosed():
			err = within(ctx, s.quiet, c.Ping)
		}
		if err != nil {
			return wrap(ctx, op, err)
		}
	}
}

// within bounds a call in time.
func within(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}
