package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/model"
)

// Keeper keeps messages durably. PutMessages returns nil once they are
// committed, all or none. Called again with the same ids, it keeps each once.
// CodeRejected: one of them is at fault, now and later. CodeUnavailable: none
// is, and whether they were kept is unknown. It lets go of the messages and of
// what they refer to before it returns, and returns soon after ctx has ended.
// Those of which the same is kept already are not kept; it returns their places.
type Keeper interface {
	PutMessages(ctx context.Context, put model.Put, messages []model.NewMessage) (duplicates []int, err error)
}

// Why Keep did not keep.
var (
	// ErrDuplicate: the same is kept already, durably. Nothing more is to be done.
	ErrDuplicate = errors.New("the same message is kept already")
	// ErrBusy: as much waits already as may wait.
	ErrBusy = errors.New("too many messages wait to be kept")
	// ErrStopped: the Writer has been stopped, or is stopping.
	ErrStopped = errors.New("the writer is stopped")
	// ErrLate: time was up before the message's turn came. It was not kept.
	ErrLate = errors.New("no time left before the message could be kept")
	// ErrHungUp: the caller's context ended before the message's turn came. It was not kept.
	ErrHungUp = errors.New("the caller went away before the message could be kept")
	// ErrUnknown: time was up while the store was at work. It may be kept.
	ErrUnknown = errors.New("no time left while the message was being kept")
	// ErrUnavailable: the store did not answer, or not well, as long as there was time. It may be kept.
	ErrUnavailable = errors.New("the store is unavailable")
)

// WriterConfig configures a Writer.
type WriterConfig struct {
	Keeper Keeper // required
	// OnKept is told after each commit, once per source, how many messages it
	// brought; not of a source of which it brought none. It must return at once.
	OnKept func(source model.SourceID, n int)
	// Log is told when the store becomes unavailable and when it is back.
	// Default: nothing is logged.
	Log *slog.Logger
	// Registerer takes the metrics. Default: none.
	Registerer prometheus.Registerer

	BatchRows   int           // rows in one transaction at most, default 512
	BatchBytes  int           // bytes of payload in one transaction at most, default 4 MiB; a larger message goes alone
	QueueRows   int           // rows that may wait, default 4096; shared fairly between sources
	CallTimeout time.Duration // for one call of the Keeper, default 5 s
	RetryPause  time.Duration // before the next call after CodeUnavailable, default 50 ms
}

func (c WriterConfig) withDefaults() WriterConfig {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.OnKept == nil {
		c.OnKept = func(model.SourceID, int) {}
	}
	c.BatchRows = orDefault(c.BatchRows, 512)
	c.BatchBytes = orDefault(c.BatchBytes, 4<<20)
	c.QueueRows = orDefault(c.QueueRows, 4096)
	c.CallTimeout = orDefault(c.CallTimeout, 5*time.Second)
	c.RetryPause = orDefault(c.RetryPause, 50*time.Millisecond)
	return c
}

func orDefault[T ~int | ~int64](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}

// Writer keeps messages by group commit: one loop takes all that waits, keeps it
// in one transaction, answers, and takes again. It never waits for more to come.
type Writer struct {
	config  WriterConfig
	metrics writerMetrics
	pool    sync.Pool // *row; its own, since a channel belongs to the bubble that made it

	mu       sync.Mutex
	queue    queue
	started  bool
	stopping bool
	idle     bool // the loop waits for wake

	wake    chan struct{} // capacity 1
	quit    chan struct{} // closed when stopping
	stopped chan struct{} // closed when the loop has ended

	// The loop's own.
	batch, gone []*row
	waiting     []*row
	messages    []model.NewMessage
	touched     []*lane
	limit       int  // rows in the next batch, halved by each CodeUnavailable
	strikes     int  // calls in a row that failed neither as unavailable nor as rejected
	unavailable bool // by the last flush
	outage      outage
	refused     throttle

	failed atomic.Pointer[failedFlush] // how the last flush ended; nil: well
}

// failedFlush is a call of the Keeper that failed for another reason than what it was given.
type failedFlush struct {
	at   time.Time
	code model.Code
}

// failedFor is how long a failed flush speaks for the store: nobody may push to
// a process that is not ready, and then nothing would ever prove that it is.
const failedFor = 15 * time.Second

// Check says that pushes cannot be kept: the last commit has failed, in the last
// 15 s, and not because of what was pushed. Its text may be shown to anybody. It
// may be called at any time.
func (w *Writer) Check() error {
	if f := w.failed.Load(); f != nil && time.Since(f.at) < failedFor {
		return fmt.Errorf("pushes are answered 503: the last commit failed (%s)", f.code)
	}
	return nil
}

// NewWriter returns a Writer that is yet to be started. Its errors are those of
// registering the metrics, and a missing Keeper.
func NewWriter(config WriterConfig) (*Writer, error) {
	if config.Keeper == nil {
		return nil, errors.New("writer: Keeper is missing")
	}
	config = config.withDefaults()
	w := &Writer{
		config:  config,
		queue:   newQueue(config.QueueRows),
		wake:    make(chan struct{}, 1),
		quit:    make(chan struct{}),
		stopped: make(chan struct{}),
		limit:   config.BatchRows,
		outage:  outage{log: config.Log},
		refused: throttle{every: 10 * time.Second},
	}
	w.metrics = newWriterMetrics(w.waitingRows, config.QueueRows)
	if err := w.metrics.register(config.Registerer); err != nil {
		return nil, fmt.Errorf("writer: register metrics: %w", err)
	}
	return w, nil
}

func (w *Writer) waitingRows() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.rows
}

// Start starts the loop. Later calls, and calls after Stop, do nothing.
func (w *Writer) Start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started || w.stopping {
		return
	}
	w.started = true
	go w.run()
}

// Stop takes no more, tries once more to keep what waits, answers all of it, and
// returns when the loop has ended. It may be called often, by anyone. A stopped
// Writer stays stopped. The server in front of it is shut down first, or what
// still comes is answered 503.
func (w *Writer) Stop() {
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

// maxWait is how long Keep waits where its context has no deadline.
const maxWait = time.Hour

// Keep returns nil once m is committed, and ErrDuplicate, ErrBusy, ErrStopped, ErrLate,
// ErrHungUp, ErrUnknown, ErrUnavailable or the store's own error otherwise. The
// store may go on reading what m refers to until its call has ended, which
// after ErrUnknown may be later.
func (w *Writer) Keep(ctx context.Context, m model.NewMessage) error {
	r := w.row()
	r.msg = m
	r.ctx = ctx
	now := time.Now()
	r.deadline = now.Add(maxWait)
	if d, ok := ctx.Deadline(); ok && d.Before(r.deadline) {
		r.deadline = d
	}
	mine, err := w.keep(r, w.laneOf(m.Source), ctx.Done())
	if mine {
		w.recycle(r)
	}
	return err
}

func (w *Writer) laneOf(source model.SourceID) *lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.lane(source)
}

// row returns a row to fill and to give to keep.
func (w *Writer) row() *row {
	if r, ok := w.pool.Get().(*row); ok {
		return r
	}
	return &row{done: make(chan error, 1)}
}

// recycle frees what the row holds.
func (w *Writer) recycle(r *row) {
	if r.free != nil {
		r.free(r)
	}
	r.msg = model.NewMessage{}
	r.ctx, r.lane = nil, nil
	r.state, r.tried, r.duplicate = rowIdle, false, false
	w.pool.Put(r)
}

// keep waits until r is answered, its deadline has passed or cancel is closed.
// The row is still the caller's if mine.
func (w *Writer) keep(r *row, l *lane, cancel <-chan struct{}) (mine bool, err error) {
	r.lane = l
	r.size = payloadSize(&r.msg)
	w.mu.Lock()
	if w.stopping {
		w.mu.Unlock()
		return true, ErrStopped
	}
	if !w.queue.add(r) {
		w.mu.Unlock()
		return true, ErrBusy
	}
	wake := w.idle
	w.idle = false
	w.mu.Unlock()
	if wake {
		w.wake <- struct{}{}
	}

	if r.timer == nil {
		r.timer = time.NewTimer(time.Until(r.deadline))
	} else {
		r.timer.Reset(time.Until(r.deadline))
	}
	left := ErrLate
	select {
	case err := <-r.done:
		r.timer.Stop()
		return true, err
	case <-r.timer.C:
	case <-cancel:
		r.timer.Stop()
		left = ErrHungUp
	}
	return w.leave(r, left)
}

// leave ends the wait for r.
func (w *Writer) leave(r *row, why error) (mine bool, err error) {
	w.mu.Lock()
	switch r.state {
	case rowWaiting:
		w.queue.remove(r)
		r.state = rowAnswered
		if r.tried {
			why = ErrUnavailable
		}
		w.mu.Unlock()
		return true, why
	case rowTaken:
		r.state = rowAbandoned
		w.mu.Unlock()
		return false, ErrUnknown
	}
	w.mu.Unlock()
	return true, <-r.done
}

func (w *Writer) run() {
	defer close(w.stopped)
	for w.next() {
		w.strikes, w.unavailable = 0, false
		w.flush(w.batch)
		if !w.unavailable {
			w.limit = min(2*w.limit, w.config.BatchRows)
			continue
		}
		// Fewer at once from now on: should one message be what the store
		// cannot bear, it soon stands alone.
		w.limit = max(1, min(w.limit, len(w.batch))/2)
		w.pause()
	}
}

func (w *Writer) pause() {
	timer := time.NewTimer(w.config.RetryPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.quit:
	}
}

// next fills w.batch with what waits, as soon as something does. False: the
// Writer is stopping, and nothing waits.
func (w *Writer) next() bool {
	for {
		now := time.Now()
		w.mu.Lock()
		w.batch, w.gone = w.queue.take(w.batch[:0], w.gone[:0], takeParams{rows: w.limit, bytes: w.config.BatchBytes, now: now})
		for _, r := range w.gone {
			r.state = rowAnswered
		}
		stopping := w.stopping
		w.idle = len(w.batch) == 0 && !stopping
		w.mu.Unlock()

		for _, r := range w.gone {
			switch {
			case r.tried:
				r.done <- ErrUnavailable
			case r.ctx.Err() != nil:
				r.done <- ErrHungUp
			default:
				r.done <- ErrLate
			}
		}
		switch {
		case len(w.batch) > 0:
			return true
		case stopping:
			return false
		}
		select {
		case <-w.wake:
		case <-w.quit:
		}
	}
}

// maxStrikes is how often in a row the store may fail for a reason that blames
// neither a row nor itself, before rows are no longer tried apart. Finding one
// row among 512 takes ten.
const maxStrikes = 32

// flush keeps rows and answers them. Rows that the store refuses fail alone.
func (w *Writer) flush(rows []*row) {
	started := time.Now()
	duplicates, err := w.put(rows, started)
	now := time.Now()
	code := model.CodeOf(err)
	switch {
	case err == nil:
		w.failed.Store(nil)
	case code != model.CodeRejected:
		w.failed.Store(&failedFlush{at: now, code: code})
	}
	switch {
	case err == nil:
		w.strikes = 0
		w.metrics.batchRows.Observe(float64(len(rows) - duplicates))
		w.metrics.flushSeconds.Observe(now.Sub(started).Seconds())
		w.outage.over(now)
		w.answer(rows, nil)
	case code == model.CodeUnavailable:
		w.unavailable = true
		w.outage.begins(now, err)
		w.retryLater(rows)
	case len(rows) == 1, w.strikes >= maxStrikes:
		w.strike(code)
		if missed, ok := w.refused.allow(now); ok {
			w.config.Log.Error("the store refused a message; it was answered 503", "source_id", rows[0].msg.Source, "error", describe(err), "more_since_last_told", missed)
		}
		w.answer(rows, err)
	default:
		w.strike(code)
		half := len(rows) / 2
		if left := w.awaited(rows[:half]); len(left) > 0 {
			w.flush(left)
		}
		if right := w.awaited(rows[half:]); len(right) > 0 {
			w.flush(right)
		}
	}
}

func (w *Writer) strike(code model.Code) {
	if code != model.CodeRejected {
		w.strikes++
	}
}

// put calls the Keeper, no longer than somebody waits for one of the rows, and
// says how many of them turned out to be duplicates.
func (w *Writer) put(rows []*row, now time.Time) (duplicates int, err error) {
	until := rows[0].deadline
	w.messages = w.messages[:0]
	for _, r := range rows {
		w.messages = append(w.messages, r.msg)
		r.duplicate = false
		if r.deadline.After(until) {
			until = r.deadline
		}
	}
	if bound := now.Add(w.config.CallTimeout); bound.Before(until) {
		until = bound
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	defer func() {
		clear(w.messages)
		if p := recover(); p != nil {
			err = &panicError{value: p}
		}
		if err != nil && ctx.Err() != nil && model.CodeOf(err) == model.CodeInternal {
			err = &model.Error{Code: model.CodeUnavailable, Op: "put messages", Err: ctx.Err()}
		}
	}()
	places, err := w.config.Keeper.PutMessages(ctx, model.PutPending, w.messages)
	if err != nil {
		return 0, err
	}
	for _, i := range places {
		rows[i].duplicate = true
	}
	return len(places), nil
}

// answer tells those who wait for rows how it ended, and then, where it ended
// well, the hook.
func (w *Writer) answer(rows []*row, err error) {
	w.touched = w.touched[:0]
	w.mu.Lock()
	w.waiting = w.waiting[:0]
	w.gone = w.gone[:0]
	for _, r := range rows {
		if !r.duplicate {
			if r.lane.kept == 0 {
				w.touched = append(w.touched, r.lane)
			}
			r.lane.kept++
		}
		if r.state == rowAbandoned {
			w.gone = append(w.gone, r)
			continue
		}
		r.state = rowAnswered
		w.waiting = append(w.waiting, r)
	}
	w.mu.Unlock()
	for _, r := range w.waiting {
		if err == nil && r.duplicate {
			r.done <- ErrDuplicate
		} else {
			r.done <- err
		}
	}
	w.recycleGone()
	for _, l := range w.touched {
		n := l.kept
		l.kept = 0
		if err == nil {
			w.tellKept(l.source, n)
		}
	}
}

func (w *Writer) tellKept(source model.SourceID, n int) {
	defer func() {
		if p := recover(); p != nil {
			w.config.Log.Error("the hook for kept messages panicked", "panic", describePanic(p))
		}
	}()
	w.config.OnKept(source, n)
}

// retryLater lets rows wait again for which somebody waits.
func (w *Writer) retryLater(rows []*row) {
	w.waiting = w.waiting[:0]
	w.gone = w.gone[:0]
	w.mu.Lock()
	for _, r := range rows {
		switch {
		case r.state == rowAbandoned:
			w.gone = append(w.gone, r)
		case w.stopping:
			r.state = rowAnswered
			w.waiting = append(w.waiting, r)
		default:
			r.tried = true
			w.queue.put(r)
		}
	}
	w.mu.Unlock()
	for _, r := range w.waiting {
		r.done <- ErrUnavailable
	}
	w.recycleGone()
}

// awaited drops the rows for which nobody waits any longer.
func (w *Writer) awaited(rows []*row) []*row {
	w.gone = w.gone[:0]
	kept := rows[:0]
	w.mu.Lock()
	for _, r := range rows {
		if r.state == rowAbandoned {
			w.gone = append(w.gone, r)
		} else {
			kept = append(kept, r)
		}
	}
	w.mu.Unlock()
	w.recycleGone()
	return kept
}

func (w *Writer) recycleGone() {
	for i, r := range w.gone {
		w.gone[i] = nil
		w.recycle(r)
	}
	w.gone = w.gone[:0]
}
