package workqueue

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// What was done, and could not be written down.
func TestAnOutcomeThatCannotBeWritten(t *testing.T) {
	holding := func(order model.Order) func(*QueueConfig) {
		return func(q *QueueConfig) {
			q.Wants.Order = order
			q.Policy = model.RetryPolicy{MaxRetry: 3, Uncertain: model.UncertainHold}
		}
	}
	for _, order := range []model.Order{model.Parallel, model.Serial} {
		t.Run("NC-10 a delivery that may have been sent is uncertain after orphan_after, and not made anew, "+string(order), func(t *testing.T) {
			inBubble(t, holding(order), func(t *testing.T, r *rig) {
				r.spy.refuse.Store(1)
				r.put(nil, "a")
				e := r.engine()
				defer e.Stop()
				time.Sleep(4 * time.Minute)
				if v, _ := r.view("a"); v.State != model.Processing {
					t.Errorf("it is %v before orphan_after has passed", v.State)
				}
				time.Sleep(2 * time.Minute)
				if v, _ := r.view("a"); v.State != model.Uncertain {
					t.Errorf("it is %v", v.State)
				}
				if got := r.bodies(); !slices.Equal(got, []string{"a"}) {
					t.Errorf("executed %v", got)
				}
				time.Sleep(time.Minute)
				if n := len(e.running.left); n != 0 {
					t.Errorf("%d claims are remembered when it is over", n)
				}
			})
		})
	}
	t.Run("NC-10 its neighbours of the same claim, which have not begun, are executed", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			holding(model.Serial)(q)
			q.Handler = func(context.Context, model.Work) Result { time.Sleep(100 * time.Millisecond); return Result{} }
		}, func(t *testing.T, r *rig) {
			r.spy.refuse.Store(1)
			r.put(nil, "a", "b", "c")
			e := r.engine()
			defer e.Stop()
			time.Sleep(time.Minute)
			got := r.bodies()
			slices.Sort(got)
			if !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Errorf("executed %v", got)
			}
		})
	})
	for _, order := range []model.Order{model.Parallel, model.Serial} {
		t.Run("NC-10 nor is one made anew whose outcome was given up at shutdown, "+string(order), func(t *testing.T) {
			inBubble(t, func(q *QueueConfig) {
				holding(order)(q)
				q.Handler = func(context.Context, model.Work) Result { time.Sleep(time.Second); return Result{} }
			}, func(t *testing.T, r *rig) {
				r.put(nil, "a")
				e := r.engine()
				time.Sleep(500 * time.Millisecond)
				r.spy.down.Store(true)
				e.Stop()
				r.spy.down.Store(false)
				other := r.engine()
				defer other.Stop()
				time.Sleep(7 * time.Minute)
				if v, _ := r.view("a"); v.State != model.Uncertain || len(r.calls()) != 1 {
					t.Errorf("it is %v, executed %v", v.State, r.bodies())
				}
			})
		})
	}
	t.Run("AC-8 a message of the inbox is executed again: at least once", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) { q.Wants.Order = model.Parallel }, func(t *testing.T, r *rig) {
			r.spy.refuse.Store(1)
			r.put(nil, "a")
			e := r.engine()
			defer e.Stop()
			time.Sleep(time.Minute)
			if got := r.bodies(); !slices.Equal(got, []string{"a", "a"}) {
				t.Errorf("executed %v", got)
			}
		})
	})
	t.Run("NC-11 a panic while what was claimed is loaded is an error, and ends no loop", func(t *testing.T) {
		panics := 2
		inBubble(t, func(q *QueueConfig) {
			q.Wants.Order = model.Parallel
			q.Load = func(context.Context, []model.Work) error {
				if panics--; panics >= 0 {
					panic("a value")
				}
				return nil
			}
		}, func(t *testing.T, r *rig) {
			r.put(nil, "a")
			e := r.engine()
			defer e.Stop()
			time.Sleep(30 * time.Second)
			must(t, e.Check())
			if got := r.bodies(); !slices.Equal(got, []string{"a"}) {
				t.Errorf("executed %v", got)
			}
		})
	})
}
