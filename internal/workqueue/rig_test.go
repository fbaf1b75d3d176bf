package workqueue

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an engine on a real SQLite file inside a synctest bubble: its clock,
// and the store's, is the bubble's.
type rig struct {
	t     *testing.T
	store *sqlite.Store
	spy   *spyStore
	queue model.Source
	cfg   QueueConfig
	// locker excludes beside the store, where it is set.
	locker Locker

	mu     sync.Mutex
	starts []start
	events []Event
	begun  time.Time
}

// start is one call of the handler.
type start struct {
	body    string
	attempt int
	at      time.Duration // since the rig was made
}

// inBubble runs f on a fresh rig. change may alter the queue before it is
// registered.
func inBubble(t *testing.T, change func(*QueueConfig), f func(t *testing.T, r *rig)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store, err := sqlite.Open(sqlite.Config{Path: filepath.Join(dir, "test.db")})
		must(t, err)
		defer func() { must(t, store.Close()) }()
		_, err = store.MigrateUp(t.Context())
		must(t, err)
		r := &rig{t: t, store: store, spy: &spyStore{Store: store}, begun: time.Now()}
		r.cfg = QueueConfig{Policy: model.RetryPolicy{MaxRetry: 3}, Handler: func(context.Context, model.Work) Result { return Result{} }}
		if change != nil {
			change(&r.cfg)
		}
		r.register()
		f(t, r)
	})
}

// register makes the queue known, as an instance with this configuration does.
func (r *rig) register() {
	r.t.Helper()
	r.cfg = r.cfg.WithDefaults()
	sources, err := r.store.Register(r.t.Context(), []model.SourceSpec{{Name: "test", Enabled: true, Policy: r.cfg.Policy, Wants: r.cfg.Wants}})
	must(r.t, err)
	r.queue = sources[0]
}

// engine starts an engine on the rig's queue; it is stopped when the bubble ends.
func (r *rig) engine() *Engine {
	r.t.Helper()
	e := r.engineNotStarted()
	must(r.t, e.Start(r.t.Context()))
	return e
}

func (r *rig) engineNotStarted() *Engine {
	r.t.Helper()
	q := r.cfg
	q.Source = r.queue
	handler := q.Handler
	q.Handler = func(ctx context.Context, w model.Work) Result {
		r.mu.Lock()
		r.starts = append(r.starts, start{string(w.Message.Body), w.Attempt(), time.Since(r.begun)})
		r.mu.Unlock()
		return handler(ctx, w)
	}
	e, err := New(Config{Store: r.spy, Locker: r.locker, Queues: []QueueConfig{q}, Observe: func(ev Event) {
		r.mu.Lock()
		r.events = append(r.events, ev)
		r.mu.Unlock()
	}})
	must(r.t, err)
	return e
}

// put keeps messages with these bodies, and wakes e if it is not nil.
func (r *rig) put(e *Engine, bodies ...string) {
	r.t.Helper()
	for _, body := range bodies {
		id, err := uuid.NewV7()
		must(r.t, err)
		_, err = r.store.PutMessages(r.t.Context(), model.PutPending, []model.NewMessage{{ID: id, Source: r.queue.ID, Body: []byte(body), Key: r.key(body)}})
		must(r.t, err)
	}
	if e != nil {
		e.Wake(r.queue.ID)
	}
}

// key is what stands before a colon.
func (r *rig) key(body string) model.Key {
	key, _, _ := strings.Cut(body, ":")
	return r.queue.Agreed.KeyOf([]byte(key))
}

func (r *rig) calls() []start {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]start(nil), r.starts...)
}

func (r *rig) bodies() (bodies []string) {
	for _, c := range r.calls() {
		bodies = append(bodies, c.body)
	}
	return bodies
}

func (r *rig) stats() model.SourceStats {
	r.t.Helper()
	stats, err := r.store.Stats(r.t.Context())
	must(r.t, err)
	return stats[0]
}

// view finds the message with this body.
func (r *rig) view(body string) (model.MessageView, []model.AttemptView) {
	r.t.Helper()
	page, err := r.store.ListMessages(r.t.Context(), model.ListParams{Limit: 500})
	must(r.t, err)
	for _, item := range page.Items {
		m, err := r.store.Body(r.t.Context(), item.ID)
		must(r.t, err)
		if string(m.Body) == body {
			view, attempts, err := r.store.Message(r.t.Context(), item.ID)
			must(r.t, err)
			return view, attempts
		}
	}
	r.t.Fatalf("no message %q", body)
	return model.MessageView{}, nil
}

// deadInstance joins an instance that will never renew.
func (r *rig) deadInstance(leaseFor time.Duration) model.InstanceID {
	r.t.Helper()
	id := model.InstanceID(randomID())
	must(r.t, r.store.JoinInstance(r.t.Context(), id, "doomed", model.Micros(leaseFor.Microseconds()), nil))
	return id
}

func (r *rig) claimAs(owner model.InstanceID, limit int, start bool) (model.Token, []model.Work) {
	r.t.Helper()
	token := model.Token(randomID())
	claimed, err := r.store.ClaimWork(r.t.Context(), model.ClaimParams{Queue: r.queue.ID, Owner: owner, Token: token, Limit: limit, Start: start, AloneFrom: 1 << 20,
		Generation: r.queue.Agreed.Generation, KeyID: r.queue.Agreed.KeyID, Slots: r.queue.Agreed.SlotsOf(0)})
	must(r.t, err)
	return token, claimed.Works
}

func (r *rig) take(id model.InstanceID) {
	r.t.Helper()
	leases, err := r.store.TakeLeases(r.t.Context(), id, []model.Partition{{Queue: r.queue.ID}})
	must(r.t, err)
	if !leases[0].Held {
		r.t.Fatal("the lease could not be taken")
	}
}

func (r *rig) drop(id model.InstanceID) {
	r.t.Helper()
	_, err := r.store.DropLeases(r.t.Context(), id, []model.Holding{{Partition: model.Partition{Queue: r.queue.ID}}})
	must(r.t, err)
}

// spyStore counts the calls of a store, and makes them fail when told to.
type spyStore struct {
	Store
	asked    atomic.Int64 // DueWork, TakeLeases and ClaimWork
	down     atomic.Bool
	lookDown atomic.Bool  // DueWork alone
	swallow  atomic.Int64 // how many claims are made, and then said to have failed
	refuse   atomic.Int64 // how many settlings are refused for good
}

var errDown = &model.Error{Code: model.CodeUnavailable, Op: "test", Err: errors.New("down")}

func (s *spyStore) check() error {
	if s.down.Load() {
		return errDown
	}
	return nil
}

func (s *spyStore) DueWork(ctx context.Context, p model.DueParams) (model.Due, error) {
	s.asked.Add(1)
	if err := s.check(); err != nil || s.lookDown.Load() {
		return model.Due{}, errDown
	}
	return s.Store.DueWork(ctx, p)
}

func (s *spyStore) TakeLeases(ctx context.Context, id model.InstanceID, partitions []model.Partition) ([]model.Lease, error) {
	s.asked.Add(1)
	if err := s.check(); err != nil {
		return nil, err
	}
	return s.Store.TakeLeases(ctx, id, partitions)
}

func (s *spyStore) ClaimWork(ctx context.Context, p model.ClaimParams) (model.Claimed, error) {
	s.asked.Add(1)
	if err := s.check(); err != nil {
		return model.Claimed{}, err
	}
	claimed, err := s.Store.ClaimWork(ctx, p)
	if err == nil && s.swallow.Add(-1) >= 0 {
		return model.Claimed{}, errDown
	}
	return claimed, err
}

func (s *spyStore) GiveBack(ctx context.Context, q model.SourceID, token model.Token) (int, error) {
	if s.swallow.Add(-1) >= 0 {
		return 0, errDown
	}
	return s.Store.GiveBack(ctx, q, token)
}

func (s *spyStore) Beat(ctx context.Context, p model.HeartbeatParams) (model.Heartbeat, error) {
	if err := s.check(); err != nil {
		return model.Heartbeat{}, err
	}
	return s.Store.Beat(ctx, p)
}

func (s *spyStore) Settle(ctx context.Context, settlements []model.Settlement) ([]bool, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if s.refuse.Add(-1) >= 0 {
		return nil, &model.Error{Code: model.CodeInternal, Op: "test", Err: errors.New("refused")}
	}
	return s.Store.Settle(ctx, settlements)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func numbered(prefix string, n int) (bodies []string) {
	for i := range n {
		bodies = append(bodies, fmt.Sprintf("%s%02d", prefix, i))
	}
	return bodies
}

// crowd counts who is inside at once.
type crowd struct {
	mu          sync.Mutex
	inside, max int
}

func (c *crowd) enter() (leave func()) {
	c.mu.Lock()
	c.inside++
	c.max = max(c.max, c.inside)
	c.mu.Unlock()
	return func() {
		c.mu.Lock()
		c.inside--
		c.mu.Unlock()
	}
}

func (c *crowd) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inside
}

func (c *crowd) most() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.max
}
