package workqueue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/posthouse/posthouse/internal/model"
)

func TestLease(t *testing.T) {
	t.Run("IN-07 the lease is renewed every third of it, and stopping frees it at once", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			e := r.engine()
			for range 100 {
				time.Sleep(9 * time.Second)
				instances, err := r.store.Instances(t.Context())
				must(t, err)
				left := instances[0].LeaseUntil.Sub(model.MicrosOf(time.Now()))
				if instances[0].Dead || left < 19*time.Second || left > 30*time.Second {
					t.Fatalf("dead %v, lease left %v", instances[0].Dead, left)
				}
			}
			e.Stop()
			instances, err := r.store.Instances(t.Context())
			must(t, err)
			if !instances[0].Dead {
				t.Error("stopping did not end the lease")
			}
		})
	})
	t.Run("IN-07 an instance that cannot renew claims nothing after its lease, says so, and comes back", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			e := r.engine()
			defer e.Stop()
			synctest.Wait()
			must(t, e.Check())
			r.spy.down.Store(true)
			time.Sleep(31 * time.Second)
			if _, ok := e.member.current(); ok || e.Check() == nil {
				t.Error("still claims after its lease")
			}
			r.spy.down.Store(false)
			r.put(nil, "a")
			time.Sleep(6 * time.Second)
			if got := r.bodies(); !slices.Equal(got, []string{"a"}) {
				t.Errorf("executed %v within an interval of the store's return", got)
			}
			must(t, e.Check())
		})
	})
	t.Run("IN-12 an instance that was declared dead registers anew and goes on", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			e := r.engine()
			defer e.Stop()
			synctest.Wait()
			id, _ := e.member.current()
			must(t, r.store.LeaveInstance(t.Context(), id))
			time.Sleep(heartbeat)
			if now, ok := e.member.current(); !ok || now == id {
				t.Errorf("goes on as %v (%v), it was %v", now, ok, id)
			}
			r.put(e, "a")
			synctest.Wait()
			if got := r.bodies(); !slices.Equal(got, []string{"a"}) {
				t.Errorf("executed %v", got)
			}
			if n := testutil.ToFloat64(e.metrics.declaredDead); n != 1 {
				t.Errorf("counted %v", n)
			}
		})
	})
}

func TestRecovery(t *testing.T) {
	t.Run("IN-14 what a dead instance left: started is a lost attempt, unstarted keeps its own", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			dead := r.deadInstance(20 * time.Second)
			r.put(nil, "started", "waiting")
			token, works := r.claimAs(dead, 2, false)
			_, err := r.store.StartWork(t.Context(), model.StartParams{Token: token, Seqs: seqsOf(works[:1])})
			must(t, err)
			e := r.engine()
			defer e.Stop()
			time.Sleep(19 * time.Second)
			if got := r.bodies(); len(got) != 0 {
				t.Fatalf("executed %v while their owner lived", got)
			}
			time.Sleep(12 * time.Second)
			if got := r.bodies(); !slices.Equal(got, []string{"waiting"}) {
				t.Fatalf("executed %v", got)
			}
			view, attempts := r.view("started")
			if view.State != model.Pending || view.RetryCount != 1 || len(attempts) != 1 || attempts[0].Outcome != model.OutcomeLost {
				t.Errorf("state %v, %d retries, attempts %+v", view.State, view.RetryCount, attempts)
			}
			if view, _ := r.view("waiting"); view.RetryCount != 0 {
				t.Errorf("the unstarted one has burned %d attempts", view.RetryCount)
			}
			time.Sleep(31 * time.Second)
			if s := r.stats(); s.Success != 2 {
				t.Errorf("%d succeeded", s.Success)
			}
		})
	})
	t.Run("IN-14 one that waits in a living instance's batch is no orphan, however long", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			living := r.deadInstance(10 * time.Hour)
			r.put(nil, "waiting")
			r.claimAs(living, 1, false)
			e := r.engine()
			defer e.Stop()
			time.Sleep(2 * time.Hour)
			if got := r.bodies(); len(got) != 0 {
				t.Errorf("executed %v", got)
			}
		})
	})
	t.Run("IN-14 one that another living instance started longer than orphan_after ago is recovered", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			living := r.deadInstance(10 * time.Hour)
			r.put(nil, "stuck")
			r.claimAs(living, 1, true)
			e := r.engine()
			defer e.Stop()
			time.Sleep(5*time.Minute - time.Second)
			if s := r.stats(); s.Processing != 1 {
				t.Fatalf("recovered before orphan_after: %+v", s)
			}
			time.Sleep(time.Minute)
			if s := r.stats(); s.Success != 1 {
				t.Errorf("not recovered: %+v", s)
			}
		})
	})
	for _, order := range []model.Order{model.Serial, model.Parallel} {
		t.Run("IN-14 the last try of one that was lost before runs alone, "+string(order), func(t *testing.T) {
			var crowd crowd
			var company atomic.Bool
			inBubble(t, func(q *QueueConfig) {
				q.Wants.Order = order
				q.Policy.MaxRetry = 1
				q.Policy.Backoff = []time.Duration{time.Second}
				q.Handler = func(_ context.Context, w model.Work) Result {
					defer crowd.enter()()
					time.Sleep(10 * time.Millisecond)
					if string(w.Message.Body) == "suspect" {
						for range 10 {
							if crowd.now() != 1 {
								company.Store(true)
							}
							time.Sleep(100 * time.Millisecond)
						}
					}
					return Result{}
				}
			}, func(t *testing.T, r *rig) {
				dead := r.deadInstance(time.Second)
				r.put(nil, "suspect")
				r.claimAs(dead, 1, true)
				e := r.engine()
				defer e.Stop()
				time.Sleep(10 * time.Second) // declared dead, recovered
				for range 20 {
					r.put(e, numbered("m", 10)...)
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(30 * time.Second)
				if s := r.stats(); s.Success != 201 || company.Load() {
					t.Errorf("%d succeeded; it had company: %v", s.Success, company.Load())
				}
			})
		})
	}
	t.Run("IN-12 a late worker changes nothing and learns it", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			q.Handler = func(context.Context, model.Work) Result { time.Sleep(10 * time.Second); return Result{} }
		}, func(t *testing.T, r *rig) {
			r.put(nil, "a")
			e := r.engine()
			defer e.Stop()
			time.Sleep(time.Second)
			id, _ := e.member.current()
			claims, err := r.store.Claims(t.Context(), id)
			must(t, err)
			_, err = r.store.GiveBack(t.Context(), r.queue.ID, claims[0].Token) // as a recovery elsewhere would
			must(t, err)
			other := r.deadInstance(time.Hour)
			r.claimAs(other, 1, false)
			time.Sleep(10 * time.Second)
			if s := r.stats(); s.Processing != 1 || s.Success != 0 {
				t.Errorf("the late worker changed it: %+v", s)
			}
			if n := testutil.ToFloat64(e.metrics.fenced.WithLabelValues("test")); n != 1 {
				t.Errorf("fenced %v times, want 1", n)
			}
		})
	})
	t.Run("IN-14 a claim that was made though its call failed is given back", func(t *testing.T) {
		for _, order := range []model.Order{model.Serial, model.Parallel} {
			inBubble(t, func(q *QueueConfig) { q.Wants.Order = order }, func(t *testing.T, r *rig) {
				r.put(nil, "a", "b")
				r.spy.swallow.Store(2) // the claim, and the first try to give it back
				e := r.engine()
				defer e.Stop()
				time.Sleep(21 * time.Second)
				if s := r.stats(); s.Success != 2 {
					t.Errorf("%s: %+v", order, s)
				}
				if view, _ := r.view("a"); view.RetryCount != 0 {
					t.Errorf("%s: an attempt was burned", order)
				}
			})
		}
	})
}

func TestTakeOver(t *testing.T) {
	t.Run("IN-14 what the former holder left is recovered before anything is claimed", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			e := r.engine()
			defer e.Stop()
			time.Sleep(time.Second) // the next heartbeat is 9 s away
			former := r.deadInstance(time.Hour)
			r.take(former)
			r.put(nil, "old")
			r.claimAs(former, 1, false)
			must(t, r.store.LeaveInstance(t.Context(), former))
			r.put(e, "new")
			synctest.Wait()
			if got := r.bodies(); !slices.Equal(got, []string{"old", "new"}) {
				t.Errorf("executed %v", got)
			}
		})
	})
	t.Run("IN-09 a missed lock waits for the whole interval, even if woken", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) { q.RoundInterval = 10 * time.Second }, func(t *testing.T, r *rig) {
			holder := r.deadInstance(time.Hour)
			r.take(holder)
			e := r.engine()
			defer e.Stop()
			synctest.Wait()
			r.put(e, "a")
			before := r.spy.asked.Load()
			for range 9 {
				time.Sleep(time.Second)
				e.Wake(r.queue.ID)
			}
			synctest.Wait()
			if n := r.spy.asked.Load() - before; n != 0 {
				t.Errorf("%d statements before the interval had passed", n)
			}
			r.drop(holder)
			time.Sleep(2 * time.Second)
			if got := r.bodies(); !slices.Equal(got, []string{"a"}) {
				t.Errorf("executed %v after the interval", got)
			}
		})
	})
	t.Run("IN-14 one that could not renew buries nobody for a whole lease", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			e := r.engine()
			defer e.Stop()
			time.Sleep(15 * time.Second)
			r.spy.down.Store(true)
			time.Sleep(10 * time.Second) // the heartbeat at 20 s fails
			r.spy.down.Store(false)
			r.deadInstance(time.Second) // looks dead from 26 s on
			dead := func() bool {
				instances, err := r.store.Instances(t.Context())
				must(t, err)
				return instances[0].Dead || instances[1].Dead
			}
			time.Sleep(20 * time.Second)
			if dead() {
				t.Error("buried within a lease of its own failure")
			}
			time.Sleep(30 * time.Second)
			if !dead() {
				t.Error("never buried")
			}
		})
	})
	t.Run("IN-06 an instance that was declared dead does not start beside itself what it still runs", func(t *testing.T) {
		for _, order := range []model.Order{model.Serial, model.Parallel} {
			inBubble(t, func(q *QueueConfig) {
				q.Wants.Order = order
				q.Handler = func(context.Context, model.Work) Result { time.Sleep(50 * time.Second); return Result{} }
			}, func(t *testing.T, r *rig) {
				r.put(nil, "a")
				e := r.engine()
				defer e.Stop()
				time.Sleep(time.Second)
				id, _ := e.member.current()
				must(t, r.store.LeaveInstance(t.Context(), id))
				time.Sleep(90 * time.Second)
				if got := r.bodies(); len(got) != 1 {
					t.Errorf("%s: executed %v", order, got)
				}
				if s := r.stats(); s.Success != 1 {
					t.Errorf("%s: %+v", order, s)
				}
			})
		}
	})
}

func TestOutage(t *testing.T) {
	t.Run("IN-09 nothing overtakes what an outage left claimed in doubt", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) { q.BatchSize = 2 }, func(t *testing.T, r *rig) {
			r.put(nil, "a", "b", "c")
			r.spy.swallow.Store(2) // the claim of a and b, and the first try to give it back
			e := r.engine()
			defer e.Stop()
			time.Sleep(5 * time.Second) // less than a heartbeat needs to find the claim
			if got := strings.Join(r.bodies(), " "); got != "a b c" {
				t.Errorf("executed %q", got)
			}
		})
	})
	for _, order := range []model.Order{model.Serial, model.Parallel} {
		t.Run("AC-9 outcomes wait for the store, and nothing runs twice, "+string(order), func(t *testing.T) {
			inBubble(t, func(q *QueueConfig) {
				q.Wants.Order = order
				q.Handler = func(context.Context, model.Work) Result { time.Sleep(time.Second); return Result{} }
			}, func(t *testing.T, r *rig) {
				r.put(nil, "a", "b", "c")
				e := r.engine()
				defer e.Stop()
				time.Sleep(500 * time.Millisecond)
				r.spy.down.Store(true)
				time.Sleep(10 * time.Minute)
				r.spy.down.Store(false)
				time.Sleep(20 * time.Second)
				if s := r.stats(); s.Success != 3 {
					t.Errorf("%+v", s)
				}
				if got := r.bodies(); len(got) != 3 {
					t.Errorf("executed %v", got)
				}
			})
		})
	}
}

func TestStop(t *testing.T) {
	t.Run("IN-04 stopping waits for running handlers and gives back what has not begun", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			q.Handler = func(context.Context, model.Work) Result { time.Sleep(10 * time.Second); return Result{} }
		}, func(t *testing.T, r *rig) {
			r.put(nil, "a", "b", "c")
			e := r.engine()
			time.Sleep(time.Second)
			e.Stop()
			e.Stop()
			if s := r.stats(); s.Success != 1 || s.Pending != 2 || s.Retrying != 0 || s.Processing != 0 {
				t.Errorf("%+v", s)
			}
		})
	})
	for _, order := range []model.Order{model.Serial, model.Parallel} {
		t.Run("IN-04 an attempt that shutdown cuts short is given back, "+string(order), func(t *testing.T) {
			inBubble(t, func(q *QueueConfig) { q.Wants.Order, q.Handler = order, untilTimeout }, func(t *testing.T, r *rig) {
				r.put(nil, "a", "b")
				e := r.engine()
				time.Sleep(time.Second)
				begun := time.Now()
				e.Stop()
				if took := time.Since(begun); took > 26*time.Second {
					t.Errorf("stopping took %v", took)
				}
				if s := r.stats(); s.Pending != 2 || s.Retrying != 0 || s.Processing != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
		t.Run("IN-04 what still runs at the end is released just before exit, "+string(order), func(t *testing.T) {
			free := make(chan struct{})
			inBubble(t, func(q *QueueConfig) {
				free = make(chan struct{})
				q.Wants.Order = order
				q.Handler = func(context.Context, model.Work) Result { <-free; return Result{Err: errors.New("late")} }
			}, func(t *testing.T, r *rig) {
				r.put(nil, "a")
				e := r.engine()
				time.Sleep(time.Second)
				e.Stop()
				if s := r.stats(); s.Pending != 1 || s.Retrying != 0 || s.Processing != 0 {
					t.Errorf("%+v", s)
				}
				close(free)
			})
		})
	}
	t.Run("AC-9 calls that keep on failing make the instance not ready, until one goes well", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			e := r.engine()
			defer e.Stop()
			synctest.Wait()
			r.spy.lookDown.Store(true)
			time.Sleep(4 * time.Second)
			must(t, e.Check())
			time.Sleep(5 * time.Second)
			if e.Check() == nil {
				t.Error("ready although every look has failed for 8 s")
			}
			r.spy.lookDown.Store(false)
			time.Sleep(3 * time.Second)
			must(t, e.Check())
		})
	})
	t.Run("a loop that stops by itself makes the instance not ready", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			e := r.engineNotStarted()
			e.queues[r.queue.ID].gone.Store(true)
			must(t, e.Start(t.Context()))
			defer e.Stop()
			if e.Check() == nil {
				t.Error("ready although a claim loop has stopped")
			}
		})
	})
}
