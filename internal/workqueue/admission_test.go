package workqueue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/posthouse/posthouse/internal/model"
)

// turnstile admits as many as it is told to.
type turnstile struct {
	mu    sync.Mutex
	free  int
	again time.Duration
	asked int
	held  int // admitted, and not given back
}

func (s *turnstile) Admit(n int) (int, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	n = min(n, s.free)
	s.free -= n
	s.held += n
	return n, s.again
}

func (s *turnstile) Unused(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	s.held -= n
}

func (s *turnstile) set(free int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = free
}

func (s *turnstile) get() (asked, held int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.held
}

func TestAdmission(t *testing.T) {
	admitted := func(s *turnstile) func(*QueueConfig) {
		return func(q *QueueConfig) {
			q.Wants, q.Admit = model.Ordering{Order: model.Parallel}, s
		}
	}
	t.Run("NC-11 nothing is claimed, and no statement made, while nothing is admitted", func(t *testing.T) {
		s := &turnstile{again: 7 * time.Second}
		inBubble(t, admitted(s), func(t *testing.T, r *rig) {
			r.put(nil, numbered("a", 5)...)
			e := r.engine()
			defer e.Stop()
			time.Sleep(time.Minute)
			if asked, _ := s.get(); len(r.bodies()) != 0 || r.spy.asked.Load() != 0 || asked != 9 {
				t.Errorf("executed %v, %d statements, asked %d times for admission", r.bodies(), r.spy.asked.Load(), asked)
			}
			s.set(2)
			time.Sleep(7 * time.Second)
			if got := r.bodies(); !slices.Equal(got, []string{"a00", "a01"}) && !slices.Equal(got, []string{"a01", "a00"}) {
				t.Errorf("executed %v", got)
			}
			s.set(100)
			e.Wake(r.queue.ID)
			synctest.Wait()
			if got := r.bodies(); len(got) != 5 {
				t.Errorf("a wake-up does not end the wait: executed %v", got)
			}
			if _, held := s.get(); held != 5 {
				t.Errorf("%d of 5 that were executed are held", held)
			}
		})
	})
	t.Run("NC-11 what is admitted and not used is given back", func(t *testing.T) {
		s := &turnstile{free: 10}
		inBubble(t, admitted(s), func(t *testing.T, r *rig) {
			r.put(nil, "a")
			r.cfg.Load = func(context.Context, []model.Work) error { return errors.New("away") }
			e := r.engine()
			defer e.Stop()
			time.Sleep(time.Second)
			if _, held := s.get(); held != 0 || len(r.bodies()) != 0 {
				t.Errorf("%d held, executed %v", held, r.bodies())
			}
		})
	})
}

func TestLoading(t *testing.T) {
	for _, order := range []model.Order{model.Parallel, model.Serial} {
		t.Run("NC-08 in "+string(order)+" order what is claimed is loaded before it is executed, or given back", func(t *testing.T) {
			var away atomic.Bool
			var loaded atomic.Int64
			inBubble(t, func(q *QueueConfig) {
				q.Wants.Order = order
				q.Load = func(ctx context.Context, works []model.Work) error {
					if away.Load() {
						<-ctx.Done()
						return ctx.Err()
					}
					for i := range works {
						works[i].Outgoing = &model.Outgoing{Seq: works[i].Seq}
						loaded.Add(1)
					}
					return nil
				}
				q.Handler = func(_ context.Context, w model.Work) Result {
					if w.Outgoing == nil || w.Outgoing.Seq != w.Seq {
						return Result{Err: errors.New("not loaded")}
					}
					return Result{}
				}
			}, func(t *testing.T, r *rig) {
				away.Store(true)
				r.put(nil, numbered("a", 8)...)
				e := r.engine()
				defer e.Stop()
				time.Sleep(loadBound + time.Second)
				if s := r.stats(); s.Due != 8 || len(r.bodies()) != 0 {
					t.Fatalf("%d due, executed %v", s.Due, r.bodies())
				}
				away.Store(false)
				time.Sleep(loadBound + 10*time.Second)
				if s := r.stats(); s.Success != 8 || s.Retrying != 0 {
					t.Errorf("%d succeeded, %d retrying, %d loaded", s.Success, s.Retrying, loaded.Load())
				}
			})
		})
	}
}

func TestQueuesOfTheirOwn(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		sources, err := r.store.Register(t.Context(), []model.SourceSpec{{Name: "second", Enabled: true, Policy: r.cfg.Policy, Wants: r.cfg.Wants}})
		must(t, err)
		var mu sync.Mutex
		var events []Event
		var enabled []bool
		var consumers []int
		second := QueueConfig{
			Source: sources[0], Policy: r.cfg.Policy,
			Handler:     func(context.Context, model.Work) Result { return Result{} },
			Observe:     func(ev Event) { mu.Lock(); events = append(events, ev); mu.Unlock() },
			OnSource:    func(s model.Source) { mu.Lock(); enabled = append(enabled, s.Enabled); mu.Unlock() },
			OnConsumers: func(n int) { mu.Lock(); consumers = append(consumers, n); mu.Unlock() },
		}
		e := r.engineNotStarted()
		must(t, e.Add(second))
		if err := e.Add(second); err == nil {
			t.Error("a queue was added twice")
		}
		must(t, e.Start(t.Context()))
		defer e.Stop()
		if err := e.Add(QueueConfig{Source: model.Source{ID: 99, Name: "late"}, Handler: second.Handler}); err == nil {
			t.Error("a queue was added to an engine that runs")
		}
		first := r.queue
		r.put(nil, "mine")
		r.queue = sources[0]
		r.put(e, "other")
		time.Sleep(5 * time.Second)
		must(t, r.store.SetEnabled(t.Context(), "second", false))
		e.Hurry()
		time.Sleep(5 * time.Second)
		r.queue = first
		mu.Lock()
		defer mu.Unlock()
		if len(events) != 1 || events[0].Queue.Name != "second" || len(r.events) != 1 {
			t.Errorf("the queue's own observer saw %d events, the engine's %d", len(events), len(r.events))
		}
		if len(enabled) < 2 || enabled[len(enabled)-1] {
			t.Errorf("heard of the switch: %v", enabled)
		}
		if len(consumers) == 0 || consumers[len(consumers)-1] != 1 {
			t.Errorf("heard of consumers: %v", consumers)
		}
	})
}

// A process that was frozen (stopped, swapped out) between its claim and the
// handler, for longer than its lease, must not send what others have by now.
func TestNothingBeginsAfterTheLease(t *testing.T) {
	for _, order := range []model.Order{model.Parallel, model.Serial} {
		t.Run("NC-09 in "+string(order)+" order a frozen worker that thaws begins nothing", func(t *testing.T) {
			inBubble(t, func(q *QueueConfig) {
				q.Wants.Order = order
			}, func(t *testing.T, r *rig) {
				var e *Engine
				var froze atomic.Bool
				r.cfg.Load = func(context.Context, []model.Work) error {
					if froze.CompareAndSwap(false, true) {
						// As if everything had stopped for a minute.
						e.member.set(e.member.id, time.Now().Add(-time.Minute))
					}
					return nil
				}
				e = r.engineNotStarted()
				must(t, e.Start(t.Context()))
				defer e.Stop()
				time.Sleep(time.Second) // no heartbeat is under way
				r.put(e, "a", "b")
				time.Sleep(time.Second)
				if got := r.bodies(); len(got) != 0 {
					t.Fatalf("executed %v after the lease", got)
				}
				if n := testutil.ToFloat64(e.metrics.notBegun.WithLabelValues("test")); n == 0 && order == model.Parallel {
					t.Error("it was not counted")
				}
				time.Sleep(20 * time.Second)
				if s := r.stats(); s.Success != 2 || len(r.bodies()) != 2 {
					t.Errorf("%d succeeded, executed %v", s.Success, r.bodies())
				}
			})
		})
	}
}
