package workqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// errStopping is the cause with which handlers' contexts end at shutdown.
var errStopping = errors.New("the process is stopping")

// ended is how an execution came out.
type ended struct {
	Result
	duration  time.Duration
	timedOut  bool // it took longer than its timeout, whatever it returned
	stopped   bool // it failed after its context had ended for shutdown
	abandoned bool // it was still running when the process could wait no longer
	orphaned  bool // it was still running when orphan_after had passed
}

// execution is one handler at work.
type execution struct {
	begun   time.Time
	timeout time.Duration
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan Result
	orphan  *time.Timer
	abandon <-chan struct{}
	// delivers: a delivery, whose attempt keeps the reason that its handler gives
	delivers bool
}

// execute starts the handler of work. wait must be called until it is over.
func (e *Engine) execute(q *QueueConfig, work model.Work) *execution {
	ctx, cancel := context.WithTimeout(e.handlers, q.Timeout)
	x := &execution{
		begun: time.Now(), timeout: q.Timeout, ctx: ctx, cancel: cancel,
		done: make(chan Result, 1), orphan: time.NewTimer(q.Policy.OrphanAfter), abandon: e.abandon,
		delivers: q.Policy.Delivers(),
	}
	go func() {
		result := Result{Err: errors.New("the handler ended its goroutine"), Reason: model.ReasonPanic, Uncertain: x.delivers}
		defer func() {
			if r := recover(); r != nil {
				result = panicked(r, x.delivers)
			}
			x.done <- result
		}()
		result = q.Handler(ctx, work)
	}()
	return x
}

// panicked is the result of a handler that panicked. What a delivery's handler
// says may hold an address, and nobody knows whether it had sent.
func panicked(value any, delivers bool) Result {
	if delivers {
		return Result{Err: errors.New("the handler panicked"), Reason: model.ReasonPanic, Uncertain: true}
	}
	return Result{Err: fmt.Errorf("the handler panicked: %v", value), Reason: model.ReasonPanic}
}

// timeoutIsTheCause names the timeout as the reason, and keeps what the handler
// said of it.
func (e *ended) timeoutIsTheCause() {
	if e.Reason == model.ReasonTimeout {
		return // the handler has told so itself
	}
	e.Reason = model.ReasonTimeout
	if errors.Is(e.Err, context.DeadlineExceeded) && e.Err.Error() == context.DeadlineExceeded.Error() {
		e.Err = errors.New(textTimeout)
		return
	}
	e.Err = fmt.Errorf("%s: %w", textTimeout, e.Err)
}

// wait waits for the end of the execution, or for early; then it returns
// false, and may be called again.
func (x *execution) wait(early <-chan time.Time) (ended, bool) {
	e := ended{}
	select {
	case e.Result = <-x.done:
	case <-x.orphan.C:
		e.orphaned = true
		e.Result = Result{Err: errors.New(textOrphaned), Reason: model.ReasonOrphaned}
	case <-x.abandon:
		e.abandoned = true
	case <-early:
		return ended{}, false
	}
	e.duration = time.Since(x.begun)
	e.timedOut = e.orphaned || e.duration >= x.timeout
	if e.Err != nil {
		e.stopped = !e.orphaned && errors.Is(context.Cause(x.ctx), errStopping)
		if e.Reason == model.ReasonNone {
			e.Reason = model.ReasonError
		}
		if !e.orphaned && !x.delivers && errors.Is(context.Cause(x.ctx), context.DeadlineExceeded) && e.Reason != model.ReasonPanic {
			e.timeoutIsTheCause()
		}
	}
	x.orphan.Stop()
	x.cancel()
	return e, true
}
