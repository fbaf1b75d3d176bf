package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/workqueue"
)

// instruction is an error that tells the engine more than that an attempt
// failed.
type instruction struct {
	err       error
	permanent bool
	after     time.Duration
	postpone  time.Duration
}

func (i *instruction) Error() string { return i.err.Error() }
func (i *instruction) Unwrap() error { return i.err }

// Permanent says that no retry can help: the message fails at once.
func Permanent(err error) error {
	return &instruction{err: err, permanent: true}
}

// RetryAfter says that the next attempt must not come before d has passed. The
// source's own backoff may make it later.
func RetryAfter(d time.Duration, err error) error {
	return &instruction{err: err, after: d}
}

// Postpone gives the attempt back: it does not count, and the message is due
// again after d (at least a second).
func Postpone(d time.Duration) error {
	return &instruction{err: errPostponed, postpone: max(d, time.Second)}
}

var errPostponed = errors.New("postponed")

// Failure is what an error may carry about the target that a handler called;
// errors found in a handler's error by errors.As are asked for it.
type failure interface {
	error
	Failure() (reason model.Reason, httpStatus int, retryAfter time.Duration, permanent bool)
}

// resultOf translates what a handler returned.
func resultOf(err error) workqueue.Result {
	if err == nil {
		return workqueue.Result{}
	}
	r := workqueue.Result{Err: err}
	if f, ok := errors.AsType[failure](err); ok {
		r.Reason, r.HTTPStatus, r.RetryAfter, r.Permanent = f.Failure()
	}
	if i, ok := errors.AsType[*instruction](err); ok {
		r.Permanent = r.Permanent || i.permanent
		r.RetryAfter = max(r.RetryAfter, i.after)
		r.Postpone = i.postpone
	}
	if r.Permanent && r.Reason == model.ReasonNone {
		r.Reason = model.ReasonPermanent
	}
	return r
}

// statusHandler is a Handler that also tells what an HTTP target answered, or 0.
type statusHandler interface {
	HandleStatus(ctx context.Context, message *Message) (status int, err error)
}

// adapt makes a Handler the engine's.
func adapt(source string, h Handler) workqueue.Handler {
	handle := func(ctx context.Context, m *Message) workqueue.Result { return resultOf(h.Handle(ctx, m)) }
	if s, ok := h.(statusHandler); ok {
		handle = func(ctx context.Context, m *Message) workqueue.Result {
			status, err := s.HandleStatus(ctx, m)
			r := resultOf(err)
			r.HTTPStatus = status
			return r
		}
	}
	return func(ctx context.Context, w model.Work) workqueue.Result {
		m := w.Message
		return handle(ctx, &Message{
			ID: m.ID.String(), Source: source, Attempt: w.Attempt(), Replay: w.Replay, ReceivedAt: m.ReceivedAt.Time(),
			ContentType: m.ContentType, Query: string(m.Query), Body: m.Body, raw: m,
		})
	}
}
