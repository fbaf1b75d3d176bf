package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
)

// Why a request was not kept, or may not have been.
var (
	errBusy    = errors.New("too many notifications wait to be kept")
	errStopped = errors.New("the process is stopping")
	errLate    = errors.New("the notification could not be kept in time")
	errUnknown = errors.New("the store did not say in time whether the notification is kept")
)

// row is a request that waits for its commit.
type row struct {
	request  model.NewRequest
	size     int
	ctx      context.Context //nolint:containedctx // its waiter's: what nobody waits for is not kept
	deadline time.Time
	tried    bool        // the store may have it; the loop's own
	done     chan answer // capacity 1: answering never blocks
}

type answer struct {
	put model.PutRequest
	err error
}

func (r *row) awaited(now time.Time) bool { return r.ctx.Err() == nil && now.Before(r.deadline) }

// writer keeps requests by group commit: one loop takes all that waits, keeps it
// in one transaction, answers, and takes again. It never waits for more to come.
type writer struct {
	cfg     Config
	metrics *metrics

	mu       sync.Mutex
	waiting  []*row // oldest first
	bytes    int    // of what waits, roughly
	started  bool
	stopping bool

	wake    chan struct{} // capacity 1
	quit    chan struct{} // closed when stopping
	stopped chan struct{} // closed when the loop has ended

	// The loop's own.
	limit   int // requests in the next batch, halved by each CodeUnavailable
	strikes int // calls in a row that failed neither as unavailable nor as rejected
	outage  outage
	refused throttle
}

func newWriter(cfg Config, m *metrics) *writer {
	return &writer{
		cfg: cfg, metrics: m, limit: cfg.BatchRows, outage: outage{log: cfg.Logger}, refused: throttle{every: 10 * time.Second},
		wake: make(chan struct{}, 1), quit: make(chan struct{}), stopped: make(chan struct{}),
	}
}

func (w *writer) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.started && !w.stopping {
		w.started = true
		go w.run()
	}
}

// stop takes no more, tries once more to keep what waits, answers all of it, and
// returns when the loop has ended.
func (w *writer) stop() {
	w.mu.Lock()
	if !w.stopping {
		w.stopping = true
		close(w.quit)
		if !w.started {
			go w.run() // for those who wait already
		}
	}
	w.mu.Unlock()
	<-w.stopped
}

// load is what waits.
func (w *writer) load() (rows, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting), w.bytes
}

// keep returns the store's answer, or why there is none.
func (w *writer) keep(ctx context.Context, r model.NewRequest, deadline time.Time) (model.PutRequest, error) {
	entry := &row{request: r, size: sizeOf(&r), ctx: ctx, deadline: deadline, done: make(chan answer, 1)}
	w.mu.Lock()
	switch {
	case w.stopping:
		w.mu.Unlock()
		return model.PutRequest{}, errStopped
	case len(w.waiting) >= w.cfg.QueueRows, w.bytes > 0 && w.bytes+entry.size > w.cfg.QueueBytes:
		w.mu.Unlock()
		return model.PutRequest{}, errBusy
	}
	w.waiting = append(w.waiting, entry)
	w.bytes += entry.size
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case a := <-entry.done:
		return a.put, a.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return w.leave(entry)
}

// leave ends the wait for a request: it is no longer kept if the loop has not
// taken it yet.
func (w *writer) leave(entry *row) (model.PutRequest, error) {
	w.mu.Lock()
	i := slices.Index(w.waiting, entry)
	tried := entry.tried
	if i >= 0 {
		w.waiting = slices.Delete(w.waiting, i, i+1)
		w.bytes -= entry.size
	}
	w.mu.Unlock()
	if i >= 0 && !tried {
		return model.PutRequest{}, errLate
	}
	select {
	case a := <-entry.done: // it was answered meanwhile
		return a.put, a.err
	default:
		return model.PutRequest{}, errUnknown
	}
}

func (w *writer) run() {
	defer close(w.stopped)
	for {
		batch := w.take()
		if batch == nil {
			return
		}
		w.strikes = 0
		if !w.flush(batch) {
			w.limit = min(2*w.limit, w.cfg.BatchRows)
			continue
		}
		// Fewer at once from now on: should one request be what the store cannot
		// bear, it soon stands alone.
		w.limit = max(1, min(w.limit, len(batch))/2)
		w.pause()
	}
}

func (w *writer) pause() {
	timer := time.NewTimer(w.cfg.RetryPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.quit:
	}
}

// take returns what waits, up to the bounds, as soon as something does; nil where
// the writer is stopping and nothing waits.
func (w *writer) take() []*row {
	for {
		w.mu.Lock()
		now := time.Now()
		n, size := 0, 0
		var batch []*row
		for ; n < len(w.waiting) && len(batch) < w.limit; n++ {
			r := w.waiting[n]
			if !r.awaited(now) {
				r.done <- answer{err: givenUp(r)}
				continue
			}
			if len(batch) > 0 && size+r.size > w.cfg.BatchBytes {
				break
			}
			size += r.size
			batch = append(batch, r)
		}
		for _, r := range w.waiting[:n] {
			w.bytes -= r.size
		}
		w.waiting = slices.Delete(w.waiting, 0, n)
		stopping := w.stopping
		w.mu.Unlock()
		switch {
		case len(batch) > 0:
			return batch
		case stopping:
			return nil
		}
		select {
		case <-w.wake:
		case <-w.quit:
		}
	}
}

func givenUp(r *row) error {
	if r.tried {
		return errUnknown
	}
	return errLate
}

// maxStrikes is how often in a row the store may fail for a reason that blames
// neither a request nor itself, before requests are no longer tried apart.
const maxStrikes = 32

// flush keeps requests and answers them. Those that the store refuses fail alone;
// where it is unavailable they wait again, with the same ids.
func (w *writer) flush(rows []*row) (unavailable bool) {
	started := time.Now()
	puts, err := w.put(rows, started)
	now := time.Now()
	switch code := model.CodeOf(err); {
	case err == nil:
		crashpoint.Hit(crashpoint.AfterPutCommit)
		w.strikes = 0
		w.metrics.batchRows.Observe(float64(len(rows)))
		w.metrics.flushSeconds.Observe(now.Sub(started).Seconds())
		w.outage.over(now)
		w.answer(rows, puts, now)
	case code == model.CodeUnavailable:
		w.outage.begins(now, err)
		w.retryLater(rows, err)
		return true
	case len(rows) == 1, w.strikes >= maxStrikes:
		w.strike(code)
		if missed, ok := w.refused.allow(now); ok {
			w.cfg.Logger.Error("the store refused a notification", "error", describe(err), "requests", len(rows), "more_since_last_told", missed)
		}
		for _, r := range rows {
			r.done <- answer{err: err}
		}
	default:
		w.strike(code)
		half := len(rows) / 2
		for _, part := range [][]*row{rows[:half], rows[half:]} {
			if part = w.stillAwaited(part); len(part) > 0 && w.flush(part) {
				unavailable = true
			}
		}
	}
	return unavailable
}

func (w *writer) strike(code model.Code) {
	if code != model.CodeRejected {
		w.strikes++
	}
}

func (w *writer) stillAwaited(rows []*row) []*row {
	now := time.Now()
	var left []*row
	for _, r := range rows {
		if r.awaited(now) {
			left = append(left, r)
			continue
		}
		r.done <- answer{err: givenUp(r)}
	}
	return left
}

// put calls the store, no longer than somebody waits for one of the requests.
func (w *writer) put(rows []*row, now time.Time) (puts []model.PutRequest, err error) {
	until := rows[0].deadline
	requests := make([]model.NewRequest, len(rows))
	for i, r := range rows {
		requests[i] = r.request
		if r.deadline.After(until) {
			until = r.deadline
		}
	}
	if bound := now.Add(w.cfg.CallTimeout); bound.Before(until) {
		until = bound
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p}
		}
		if err != nil && ctx.Err() != nil && model.CodeOf(err) == model.CodeInternal {
			err = &model.Error{Code: model.CodeUnavailable, Op: "put requests", Err: ctx.Err()}
		}
	}()
	puts, err = w.cfg.Store.PutRequests(ctx, requests)
	if err == nil && len(puts) != len(rows) {
		err = fmt.Errorf("the store answered for %d of %d requests", len(puts), len(rows))
	}
	return puts, err
}

// answer tells those who wait, and then whoever carries out what is new.
func (w *writer) answer(rows []*row, puts []model.PutRequest, now time.Time) {
	var queues []model.SourceID
	for i, r := range rows {
		r.done <- answer{put: puts[i]}
		if !puts[i].Duplicate {
			queues = append(queues, due(&r.request, model.MicrosOf(now))...)
		}
	}
	if slices.Sort(queues); len(queues) > 0 {
		w.tell(slices.Compact(queues))
	}
}

func (w *writer) tell(queues []model.SourceID) {
	defer func() {
		if p := recover(); p != nil {
			w.cfg.Logger.Error("the hook for new deliveries panicked", "panic", describePanic(p))
		}
	}()
	w.cfg.OnPut(queues)
}

// retryLater lets requests wait again, before all others, for which somebody
// waits.
func (w *writer) retryLater(rows []*row, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range rows {
		r.tried = true
	}
	if w.stopping {
		for _, r := range rows {
			r.done <- answer{err: err}
		}
		return
	}
	w.waiting = slices.Concat(rows, w.waiting)
	for _, r := range rows {
		w.bytes += r.size
	}
}

// outage tells of a fault when it begins and when it is over, and not of each
// call that fails meanwhile.
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
		o.log.Warn("the store is unavailable; notifications are answered 503", "error", describe(err))
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

// panicError is a panic that was caught on the way.
type panicError struct{ value any }

func (e *panicError) Error() string { return "panic: " + describePanic(e.value) }

// describe returns a text that is fit for a log: that of our own errors, which
// name no value of a notification, and of others only the type.
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
