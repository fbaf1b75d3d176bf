package workqueue

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

// heartbeat is a little longer than a third of the default lease.
const heartbeat = 10*time.Second + 100*time.Millisecond

func failing(context.Context, model.Work) Result { return Result{Err: errors.New("boom")} }

// untilTimeout returns when its context ends.
func untilTimeout(ctx context.Context, _ model.Work) Result {
	<-ctx.Done()
	return Result{Err: ctx.Err()}
}

func TestRounds(t *testing.T) {
	t.Run("IN-09 a new message wakes the consumer at once", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			e := r.engine()
			defer e.Stop()
			time.Sleep(1100 * time.Millisecond) // between two rounds
			r.put(e, "a")
			synctest.Wait()
			if got := r.calls(); len(got) != 1 || got[0].at != 1100*time.Millisecond {
				t.Errorf("got %v, want one start at 1.1s", got)
			}
		})
	})
	t.Run("IN-09 unwoken, a new message waits at most round_interval", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			e := r.engine()
			defer e.Stop()
			time.Sleep(1100 * time.Millisecond)
			r.put(nil, "a")
			time.Sleep(2 * time.Second)
			if got := r.calls(); len(got) != 1 || got[0].at != 2*time.Second {
				t.Errorf("got %v, want one start at 2s", got)
			}
		})
	})
	t.Run("IN-09 first in, first out, a full batch followed at once by the next round", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) { q.BatchSize = 7 }, func(t *testing.T, r *rig) {
			want := numbered("m", 40)
			r.put(nil, want...)
			e := r.engine()
			defer e.Stop()
			synctest.Wait()
			if diff := cmp.Diff(want, r.bodies()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if s := r.stats(); s.Success != 40 {
				t.Errorf("%d succeeded, want 40", s.Success)
			}
		})
	})
	t.Run("IN-08 while consumption is off a tick runs no statement, and the switch needs no restart", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			r.queue.Enabled = false
			must(t, r.store.SetEnabled(t.Context(), "test", false))
			e := r.engine()
			defer e.Stop()
			r.put(e, "a")
			time.Sleep(10 * time.Minute)
			if n := r.spy.asked.Load(); n != 0 {
				t.Errorf("%d statements while off", n)
			}
			must(t, r.store.SetEnabled(t.Context(), "test", true))
			time.Sleep(heartbeat)
			if got := r.bodies(); !slices.Equal(got, []string{"a"}) {
				t.Errorf("executed %v within a heartbeat of being switched on", got)
			}
			must(t, r.store.SetEnabled(t.Context(), "test", false))
			time.Sleep(heartbeat)
			r.put(e, "b")
			time.Sleep(time.Minute)
			if got := r.bodies(); len(got) != 1 {
				t.Errorf("executed %v after being switched off", got)
			}
		})
	})
	for _, order := range []model.Order{model.Serial, model.Parallel} {
		t.Run("IN-08 switching off starts no more, also of what is claimed or waits for a slot, "+string(order), func(t *testing.T) {
			inBubble(t, func(q *QueueConfig) {
				q.Wants.Order, q.Concurrency = order, 1
				q.Handler = func(context.Context, model.Work) Result { time.Sleep(3 * time.Second); return Result{} }
			}, func(t *testing.T, r *rig) {
				r.put(nil, numbered("m", 40)...)
				e := r.engine()
				defer e.Stop()
				time.Sleep(heartbeat)
				must(t, r.store.SetEnabled(t.Context(), "test", false))
				time.Sleep(10 * time.Second)
				before := len(r.bodies())
				time.Sleep(time.Minute)
				if after := len(r.bodies()); after != before {
					t.Errorf("%d more were started after the switch", after-before)
				}
				if s := r.stats(); s.Processing != 0 {
					t.Errorf("%d are still processing", s.Processing)
				}
			})
		})
	}
	t.Run("IN-08 an idle queue is looked at once per interval", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			e := r.engine()
			defer e.Stop()
			synctest.Wait()
			before := r.spy.asked.Load()
			time.Sleep(time.Minute + time.Millisecond)
			if n := r.spy.asked.Load() - before; n != 30 {
				t.Errorf("%d statements in a minute, want 30", n)
			}
		})
	})
	t.Run("IN-06 two instances on one store never run a serial queue at once, and together in order", func(t *testing.T) {
		var crowd crowd
		inBubble(t, func(q *QueueConfig) {
			q.BatchSize = 3
			q.Handler = func(context.Context, model.Work) Result {
				defer crowd.enter()()
				time.Sleep(10 * time.Millisecond)
				return Result{}
			}
		}, func(t *testing.T, r *rig) {
			want := numbered("m", 30)
			r.put(nil, want...)
			a, b := r.engine(), r.engine()
			defer a.Stop()
			defer b.Stop()
			time.Sleep(time.Minute)
			if most := crowd.most(); most != 1 {
				t.Errorf("%d at once", most)
			}
			if diff := cmp.Diff(want, r.bodies()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	})
}

func TestRetries(t *testing.T) {
	t.Run("IN-11 IN-10 four attempts with their backoff, then failed with the cause", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) { q.Handler = failing }, func(t *testing.T, r *rig) {
			e := r.engine()
			defer e.Stop()
			r.put(e, "a")
			time.Sleep(time.Hour)
			var at []time.Duration
			for _, c := range r.calls() {
				at = append(at, c.at)
			}
			// Each at the first look after it fell due: 30 s, 2 min and 10 min after the one before.
			want := []time.Duration{0, 30 * time.Second, 150 * time.Second, 750 * time.Second}
			if diff := cmp.Diff(want, at); diff != "" {
				t.Errorf("starts (-want +got)\n%s", diff)
			}
			view, attempts := r.view("a")
			if view.State != model.Failed || view.Error != "boom" || len(attempts) != 4 {
				t.Errorf("state %v, error %q, %d attempts", view.State, view.Error, len(attempts))
			}
		})
	})
	t.Run("IN-11 a message that waits for its retry blocks no other", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			q.Handler = func(_ context.Context, w model.Work) Result {
				if string(w.Message.Body) == "bad" {
					return Result{Err: errors.New("boom")}
				}
				return Result{}
			}
		}, func(t *testing.T, r *rig) {
			e := r.engine()
			defer e.Stop()
			r.put(e, "bad", "b", "c")
			synctest.Wait()
			if got := r.stats(); got.Success != 2 || got.Retrying != 1 {
				t.Errorf("success %d, retrying %d", got.Success, got.Retrying)
			}
		})
	})
	t.Run("IN-04 a postponed message keeps its attempt", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			q.Handler = func(_ context.Context, w model.Work) Result {
				return Result{Err: errors.New("later"), Postpone: time.Minute}
			}
		}, func(t *testing.T, r *rig) {
			e := r.engine()
			defer e.Stop()
			r.put(e, "a")
			time.Sleep(10*time.Minute + time.Second)
			calls := r.calls()
			if len(calls) != 11 || calls[10].attempt != 1 {
				t.Errorf("got %v, want 11 starts, all the first attempt", calls)
			}
		})
	})
	t.Run("IN-04 a panic is a failed attempt", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			q.Handler = func(context.Context, model.Work) Result { panic("no") }
		}, func(t *testing.T, r *rig) {
			e := r.engine()
			defer e.Stop()
			r.put(e, "a")
			synctest.Wait()
			_, attempts := r.view("a")
			if len(attempts) != 1 || attempts[0].Reason != model.ReasonPanic {
				t.Errorf("got %+v", attempts)
			}
		})
	})
}

func TestTimeouts(t *testing.T) {
	t.Run("IN-15 three timeouts in a row end the round, about three minutes, and the lease is let go", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) { q.Handler = untilTimeout; q.RoundInterval = 10 * time.Second }, func(t *testing.T, r *rig) {
			r.put(nil, numbered("m", 10)...)
			e := r.engine()
			defer e.Stop()
			time.Sleep(3*time.Minute + time.Second)
			if got := r.bodies(); len(got) != 3 {
				t.Fatalf("executed %v", got)
			}
			if s := r.stats(); s.Processing != 0 {
				t.Errorf("%d still processing after the trip", s.Processing)
			}
			other := r.deadInstance(time.Minute)
			r.take(other)
			r.drop(other)
			e.Wake(r.queue.ID)
			time.Sleep(8 * time.Second)
			if got := r.bodies(); len(got) != 3 {
				t.Errorf("woken into %v before the interval had passed", got)
			}
			time.Sleep(2 * time.Second)
			if got := r.bodies(); len(got) != 4 {
				t.Errorf("executed %v after the interval", got)
			}
		})
	})
	t.Run("IN-11 what the handler says of its timeout is kept", func(t *testing.T) {
		for said, want := range map[error]string{
			context.DeadlineExceeded:         textTimeout,
			errors.New("the printer is out"): textTimeout + ": the printer is out",
		} {
			inBubble(t, func(q *QueueConfig) {
				q.Handler = func(ctx context.Context, _ model.Work) Result { <-ctx.Done(); return Result{Err: said} }
			}, func(t *testing.T, r *rig) {
				r.put(nil, "a")
				e := r.engine()
				defer e.Stop()
				time.Sleep(61 * time.Second)
				if _, attempts := r.view("a"); len(attempts) != 1 || attempts[0].Error != want || attempts[0].Reason != model.ReasonTimeout {
					t.Errorf("got %+v, want %q", attempts, want)
				}
			})
		}
	})
	t.Run("IN-14 what waits behind a slow message in its group is not marked as started", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			q.Handler = func(_ context.Context, w model.Work) Result {
				if string(w.Message.Body) == "slow" {
					time.Sleep(20 * time.Second)
				}
				return Result{}
			}
		}, func(t *testing.T, r *rig) {
			// Groups of 1, 2 and 4, then one of 8 with the slow one in it.
			r.put(nil, append(append(numbered("q", 9), "slow"), numbered("r", 20)...)...)
			e := r.engine()
			defer e.Stop()
			time.Sleep(time.Second)
			id, _ := e.member.current()
			must(t, r.store.LeaveInstance(t.Context(), id))
			orphans, err := r.store.Orphans(t.Context(), 100)
			must(t, err)
			started := 0
			for _, o := range orphans {
				if o.StartedAt != 0 {
					started++
				}
			}
			if len(orphans) != 6 || started != 1 {
				t.Errorf("%d are processing, %d of them started; want 6 and 1", len(orphans), started)
			}
		})
	})
	t.Run("IN-15 success after the timeout is success, counted as late and for the trip", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			q.Handler = func(ctx context.Context, _ model.Work) Result { <-ctx.Done(); return Result{} }
		}, func(t *testing.T, r *rig) {
			r.put(nil, numbered("m", 10)...)
			e := r.engine()
			defer e.Stop()
			time.Sleep(3*time.Minute + time.Second)
			if s := r.stats(); s.Success != 3 || s.Pending != 7 {
				t.Errorf("success %d, pending %d; want 3 and 7", s.Success, s.Pending)
			}
			if !r.events[0].Late {
				t.Error("not late")
			}
		})
	})
	t.Run("IN-06 a handler that ignores its context is not started beside itself, and the lane waits, until orphan_after", func(t *testing.T) {
		free := make(chan struct{})
		inBubble(t, func(q *QueueConfig) {
			free = make(chan struct{})
			q.Policy.Backoff = []time.Duration{time.Second}
			q.Handler = func(_ context.Context, w model.Work) Result {
				if string(w.Message.Body) == "deaf" && w.Attempt() == 1 {
					<-free
				}
				return Result{}
			}
		}, func(t *testing.T, r *rig) {
			r.put(nil, "deaf", "next")
			e := r.engine()
			defer e.Stop()
			defer close(free)
			time.Sleep(5*time.Minute - time.Second)
			if got := r.bodies(); !slices.Equal(got, []string{"deaf"}) {
				t.Fatalf("executed %v before orphan_after", got)
			}
			time.Sleep(10 * time.Second)
			if got := r.bodies(); !slices.Equal(got, []string{"deaf", "next", "deaf"}) {
				t.Errorf("executed %v after orphan_after", got)
			}
			_, attempts := r.view("deaf")
			if len(attempts) != 2 || attempts[0].Reason != model.ReasonOrphaned {
				t.Errorf("attempts %+v", attempts)
			}
		})
	})
}

func TestParallel(t *testing.T) {
	parallel := func(q *QueueConfig) { q.Wants.Order, q.Concurrency = model.Parallel, 8 }
	t.Run("IN-06 parallel executes at most concurrency at once, slow ones delay no other", func(t *testing.T) {
		var crowd crowd
		inBubble(t, func(q *QueueConfig) {
			parallel(q)
			q.Handler = func(_ context.Context, w model.Work) Result {
				defer crowd.enter()()
				if string(w.Message.Body) == "slow" {
					time.Sleep(20 * time.Second)
				} else {
					time.Sleep(100 * time.Millisecond)
				}
				return Result{}
			}
		}, func(t *testing.T, r *rig) {
			r.put(nil, append([]string{"slow", "slow"}, numbered("m", 60)...)...)
			e := r.engine()
			defer e.Stop()
			time.Sleep(1100 * time.Millisecond)
			if s := r.stats(); s.Success != 60 || s.Processing != 2 || crowd.most() != 8 {
				t.Errorf("success %d, processing %d, at most %d at once; want 60, 2, 8", s.Success, s.Processing, crowd.most())
			}
		})
	})
	t.Run("IN-15 a success between two timeouts ends the row", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			parallel(q)
			q.Concurrency = 1
			q.RoundInterval = time.Hour
			q.Handler = func(ctx context.Context, w model.Work) Result {
				if string(w.Message.Body) == "quick" {
					return Result{}
				}
				return untilTimeout(ctx, w)
			}
		}, func(t *testing.T, r *rig) {
			r.put(nil, "a", "b", "quick", "c", "d", "quick", "e")
			e := r.engine()
			defer e.Stop()
			time.Sleep(5*time.Minute + time.Second)
			if got := r.bodies(); !slices.Contains(got, "e") {
				t.Errorf("executed %v", got)
			}
		})
	})
	t.Run("IN-15 timeouts in a row pause a parallel queue for a round", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			parallel(q)
			q.Concurrency = 1
			q.RoundInterval = 10 * time.Second
			q.Handler = untilTimeout
		}, func(t *testing.T, r *rig) {
			r.put(nil, numbered("m", 5)...)
			e := r.engine()
			defer e.Stop()
			time.Sleep(3*time.Minute + 9*time.Second)
			if got := r.bodies(); len(got) != 3 {
				t.Errorf("executed %v", got)
			}
			time.Sleep(2 * time.Second)
			if got := r.bodies(); len(got) != 4 {
				t.Errorf("executed %v after the pause", got)
			}
		})
	})
}
