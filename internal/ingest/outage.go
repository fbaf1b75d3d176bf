package ingest

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// outage tells of a fault when it begins and when it is over, and not of each
// call that fails meanwhile. A fault that comes and goes is told of at most
// once a second.
type outage struct {
	log      *slog.Logger
	since    time.Time // zero: all is well
	told     bool      // its beginning
	toldAt   time.Time
	failures int
}

func (o *outage) begins(now time.Time, err error) {
	if o.since.IsZero() {
		o.since, o.failures = now, 0
	}
	o.failures++
	if !o.told && now.Sub(o.toldAt) >= time.Second {
		o.told, o.toldAt = true, now
		o.log.Warn("the store is unavailable; pushes are answered 503", "error", describe(err))
	}
}

func (o *outage) over(now time.Time) {
	if o.since.IsZero() {
		return
	}
	if o.told {
		o.toldAt = now
		o.log.Info("the store is available again", "after", now.Sub(o.since).Round(time.Millisecond), "failed_calls", o.failures)
	}
	o.since, o.told = time.Time{}, false
}

// throttle lets one through per interval, and counts the others.
type throttle struct {
	every  time.Duration
	last   time.Time
	missed int
}

// allow says whether this one may pass, and how many did not since the last.
func (t *throttle) allow(now time.Time) (missed int, ok bool) {
	if !t.last.IsZero() && now.Sub(t.last) < t.every {
		t.missed++
		return 0, false
	}
	missed, t.missed, t.last = t.missed, 0, now
	return missed, true
}

// panicError is a panic that was caught on the way.
type panicError struct{ value any }

func (e *panicError) Error() string { return "panic: " + describePanic(e.value) }

// describe returns a text that is fit for a log: that of our own errors, which
// name no value out of a message, and of others only the type.
func describe(err error) string {
	if _, ok := errors.AsType[*model.Error](err); ok {
		return err.Error()
	}
	if p, ok := errors.AsType[*panicError](err); ok {
		return p.Error()
	}
	return fmt.Sprintf("%T", err)
}

func describePanic(value any) string {
	if err, ok := value.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", value)
}
