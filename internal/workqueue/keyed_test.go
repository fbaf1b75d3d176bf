package workqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// keyed asks for keyed order, by what stands before the colon of a body.
func keyed(partitions int, block bool) func(*QueueConfig) {
	return func(q *QueueConfig) {
		q.Wants = model.Ordering{Order: model.Keyed, Partitions: partitions, Key: "key", Block: block}
		q.KeyOf = keyOfBody
	}
}

func keyOfBody(a model.Agreed, m *model.Message) (model.Key, error) {
	key, _, _ := strings.Cut(string(m.Body), ":")
	return a.KeyOf([]byte(key)), nil
}

// keyedBodies are n messages of each of so many keys, interleaved: "k03:07".
func keyedBodies(keys, n int) (bodies []string) {
	for i := range n {
		for k := range keys {
			bodies = append(bodies, fmt.Sprintf("k%02d:%03d", k, i))
		}
	}
	return bodies
}

// wantOrderPerKey fails where a message of a key began before one that was put
// before it. Only first attempts count, or all where a key blocks.
func wantOrderPerKey(t *testing.T, starts []start, all bool) {
	t.Helper()
	last := map[string]string{}
	for _, s := range starts {
		if !all && s.attempt > 1 {
			continue
		}
		key, _, _ := strings.Cut(s.body, ":")
		if before := last[key]; s.body < before {
			t.Errorf("%s began after %s", s.body, before)
		}
		last[key] = max(last[key], s.body)
	}
}

func (r *rig) untilDone(limit time.Duration) {
	r.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		s := r.stats()
		if s.Pending+s.Retrying+s.Processing == 0 {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("not done within %v: %+v", limit, s)
		}
	}
}

// shorter is a number of rounds: full, or fewer with -short.
func shorter(full, short int) int {
	if testing.Short() {
		return short
	}
	return full
}

func TestKeyed(t *testing.T) {
	t.Run("IN-22 keys run side by side, each in order, at most one partition at once", func(t *testing.T) {
		var inside crowd
		perKey := map[string]*crowd{}
		for k := range 8 {
			perKey[fmt.Sprintf("k%02d", k)] = &crowd{}
		}
		inBubble(t, func(q *QueueConfig) {
			keyed(16, false)(q)
			q.Handler = func(_ context.Context, w model.Work) Result {
				defer inside.enter()()
				key, _, _ := strings.Cut(string(w.Message.Body), ":")
				defer perKey[key].enter()()
				time.Sleep(time.Second)
				return Result{}
			}
		}, func(t *testing.T, r *rig) {
			r.put(nil, keyedBodies(8, 5)...)
			e := r.engine()
			defer e.Stop()
			r.untilDone(time.Minute)
			wantOrderPerKey(t, r.calls(), false)
			if inside.most() < 4 {
				t.Errorf("at most %d ran at once: keys should run side by side", inside.most())
			}
			for key, c := range perKey {
				if c.most() != 1 {
					t.Errorf("%d of key %s ran at once", c.most(), key)
				}
			}
			if last := r.calls()[len(r.calls())-1].at; last > 20*time.Second {
				t.Errorf("40 messages of 8 keys took until %v", last)
			}
		})
	})
	t.Run("IN-22 two instances share the partitions, and one takes all when the other stops", func(t *testing.T) {
		inBubble(t, keyed(16, false), func(t *testing.T, r *rig) {
			a := r.engine()
			defer a.Stop()
			time.Sleep(2 * time.Second)
			if n := len(a.held(r.queue.ID)); n != 16 {
				t.Fatalf("one instance holds %d of 16", n)
			}
			b := r.engine()
			time.Sleep(2 * heartbeat)
			if x, y := len(a.held(r.queue.ID)), len(b.held(r.queue.ID)); x != 8 || y != 8 {
				t.Errorf("two instances hold %d and %d of 16", x, y)
			}
			b.Stop()
			time.Sleep(2 * heartbeat)
			if n := len(a.held(r.queue.ID)); n != 16 {
				t.Errorf("the one that is left holds %d of 16", n)
			}
		})
	})
	t.Run("IN-22 fifty hand-overs lose nothing, double nothing and keep the order", func(t *testing.T) {
		var perKey sync.Map
		inBubble(t, func(q *QueueConfig) {
			keyed(4, false)(q)
			q.Handler = func(_ context.Context, w model.Work) Result {
				key, _, _ := strings.Cut(string(w.Message.Body), ":")
				c, _ := perKey.LoadOrStore(key, &crowd{})
				defer c.(*crowd).enter()()
				time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
				return Result{}
			}
		}, func(t *testing.T, r *rig) {
			bodies := keyedBodies(12, shorter(40, 12))
			a := r.engine()
			times := shorter(50, 15)
			for i := range times {
				some := bodies[i*len(bodies)/times : (i+1)*len(bodies)/times]
				r.put(a, some...)
				b := r.engine()
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
				a.Stop()
				a = b
			}
			defer a.Stop()
			r.untilDone(5 * time.Minute)
			wantOrderPerKey(t, r.calls(), false)
			if len(r.calls()) != len(bodies) {
				t.Errorf("%d executions of %d messages", len(r.calls()), len(bodies))
			}
			perKey.Range(func(key, c any) bool {
				if n := c.(*crowd).most(); n != 1 {
					t.Errorf("%d of key %v ran at once", n, key)
				}
				return true
			})
		})
	})
	t.Run("IN-22 a message that waits for its retry blocks its key alone", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			keyed(4, true)(q)
			if testing.Short() { // not the minutes of the defaults
				q.Policy.Backoff = []time.Duration{15 * time.Second}
			}
			q.Handler = func(_ context.Context, w model.Work) Result {
				if string(w.Message.Body) == "k00:000" && w.Attempt() < 4 {
					return Result{Err: errors.New("not yet")}
				}
				return Result{}
			}
		}, func(t *testing.T, r *rig) {
			r.put(nil, keyedBodies(12, 10)...)
			e := r.engine()
			defer e.Stop()
			time.Sleep(10 * time.Second)
			if s := r.stats(); s.Success != 110 {
				t.Errorf("%d succeeded while one key waited, want 110", s.Success)
			}
			r.untilDone(20 * time.Minute)
			wantOrderPerKey(t, r.calls(), true)
		})
	})
	t.Run("IN-22 a message that has failed for good blocks its key no longer", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			keyed(4, true)(q)
			q.Handler = func(_ context.Context, w model.Work) Result {
				if strings.HasSuffix(string(w.Message.Body), ":000") {
					return Result{Err: errors.New("never"), Permanent: true}
				}
				return Result{}
			}
		}, func(t *testing.T, r *rig) {
			r.put(nil, keyedBodies(3, 5)...)
			e := r.engine()
			defer e.Stop()
			r.untilDone(time.Minute)
			if s := r.stats(); s.Failed != 3 || s.Success != 12 {
				t.Errorf("%d failed and %d succeeded, want 3 and 12", s.Failed, s.Success)
			}
		})
	})
	t.Run("IN-22 random failures and retries with block keep every key in order", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			keyed(8, true)(q)
			q.Policy = model.RetryPolicy{MaxRetry: 50, Backoff: []time.Duration{time.Second, 5 * time.Second}}
			q.Handler = func(context.Context, model.Work) Result {
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
				switch rand.IntN(6) {
				case 0:
					return Result{Err: errors.New("now and then")}
				case 1:
					return Result{Postpone: time.Duration(1+rand.IntN(3)) * time.Second}
				}
				return Result{}
			}
		}, func(t *testing.T, r *rig) {
			r.put(nil, keyedBodies(20, shorter(15, 5))...)
			a, b := r.engine(), r.engine()
			defer a.Stop()
			defer b.Stop()
			r.untilDone(time.Hour)
			wantOrderPerKey(t, r.calls(), true)
		})
	})
	t.Run("IN-06 serial with block waits for the retry of the first", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			q.Wants.Block = true
			q.Handler = func(_ context.Context, w model.Work) Result {
				if w.Attempt() == 1 && string(w.Message.Body) == "m00" {
					return Result{Err: errors.New("once")}
				}
				return Result{}
			}
		}, func(t *testing.T, r *rig) {
			r.put(nil, numbered("m", 5)...)
			e := r.engine()
			defer e.Stop()
			time.Sleep(20 * time.Second)
			if n := len(r.calls()); n != 1 {
				t.Errorf("%d began while the first waits", n)
			}
			r.untilDone(time.Minute)
			wantOrderPerKey(t, r.calls(), true)
		})
	})
	t.Run("IN-22 who cannot tell keys claims nothing until another has", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			keyed(8, false)(&r.cfg)
			r.register()
			first := r.engine()
			time.Sleep(time.Second)
			first.Stop()
			r.put(nil, keyedBodies(4, 4)...) // by the agreement before
			r.cfg.KeyOf = func(model.Agreed, *model.Message) (model.Key, error) { return model.Key{}, errors.New("cannot") }
			a := r.engine()
			defer a.Stop()
			time.Sleep(30 * time.Second)
			if n := len(r.calls()); n != 0 {
				t.Errorf("%d began", n)
			}
			if err := a.Check(); err == nil {
				t.Error("the instance says that it is ready")
			}
			r.cfg.KeyOf = keyOfBody
			b := r.engine()
			defer b.Stop()
			r.untilDone(time.Minute)
			wantOrderPerKey(t, r.calls(), false)
		})
	})
	t.Run("IN-15 timeouts trip one partition and not the others", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			keyed(16, false)(q)
			q.Policy.MaxRetry = 0
			q.Handler = func(ctx context.Context, w model.Work) Result {
				if strings.HasPrefix(string(w.Message.Body), "k00:") {
					<-ctx.Done()
					return Result{Err: ctx.Err()}
				}
				return Result{}
			}
		}, func(t *testing.T, r *rig) {
			r.put(nil, keyedBodies(16, 6)...)
			e := r.engine()
			defer e.Stop()
			time.Sleep(10 * time.Second)
			// Keys that share the partition of k00 wait with it.
			if s := r.stats(); s.Success < 60 {
				t.Errorf("%d succeeded beside a stuck key", s.Success)
			}
			r.untilDone(time.Hour)
		})
	})
}

func TestAgreement(t *testing.T) {
	orders := map[string]func(*QueueConfig){
		"serial":   func(q *QueueConfig) { q.Wants = model.Ordering{} },
		"keyed":    keyed(16, false),
		"keyed 32": keyed(32, false),
		"block":    keyed(16, true),
		"parallel": func(q *QueueConfig) { q.Wants = model.Ordering{Order: model.Parallel} },
	}
	for _, change := range [][2]string{{"serial", "keyed"}, {"keyed", "keyed 32"}, {"keyed 32", "serial"}, {"keyed", "parallel"}, {"keyed", "block"}, {"parallel", "serial"}} {
		t.Run("IN-22 a rolling change from "+change[0]+" to "+change[1]+" keeps the order and doubles nothing", func(t *testing.T) {
			perKey := sync.Map{}
			inBubble(t, func(q *QueueConfig) {
				orders[change[0]](q)
				q.Handler = func(_ context.Context, w model.Work) Result {
					key, _, _ := strings.Cut(string(w.Message.Body), ":")
					c, _ := perKey.LoadOrStore(key, &crowd{})
					defer c.(*crowd).enter()()
					time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
					return Result{}
				}
				q.KeyOf = keyOfBody
			}, func(t *testing.T, r *rig) {
				bodies := keyedBodies(10, 60)
				r.put(nil, bodies[:200]...)
				a, b := r.engine(), r.engine()
				time.Sleep(5 * time.Second)
				orders[change[1]](&r.cfg)
				r.register()
				c := r.engine() // wants the new order; the others do not
				defer c.Stop()
				r.put(c, bodies[200:400]...)
				time.Sleep(3 * heartbeat)
				if got := c.agreed(r.queue.ID).Order; got == r.cfg.Wants.Order && change[0] != "keyed" {
					t.Errorf("the order changed to %s while others want another", got)
				}
				a.Stop()
				b.Stop()
				r.put(c, bodies[400:]...)
				r.untilDone(10 * time.Minute)
				time.Sleep(2 * heartbeat)
				if got := c.agreed(r.queue.ID).Ordering; got != r.cfg.Wants {
					t.Errorf("the ordering is %+v, want %+v", got, r.cfg.Wants)
				}
				if n := len(r.calls()); n != len(bodies) {
					t.Errorf("%d executions of %d messages", n, len(bodies))
				}
				if change[0] != "parallel" && change[1] != "parallel" {
					wantOrderPerKey(t, r.calls(), false)
					perKey.Range(func(key, c any) bool {
						if n := c.(*crowd).most(); n != 1 {
							t.Errorf("%d of key %v ran at once", n, key)
						}
						return true
					})
				}
			})
		})
	}
	t.Run("IN-22 a restart with another order takes effect at once", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			r.engine().Stop()
			r.put(nil, keyedBodies(4, 4)...)
			keyed(8, false)(&r.cfg)
			r.register()
			e := r.engine()
			defer e.Stop()
			time.Sleep(time.Second)
			if got := e.agreed(r.queue.ID); got.Order != model.Keyed || got.Partitions != 8 {
				t.Errorf("agreed is %+v", got)
			}
			r.untilDone(10 * time.Second)
			wantOrderPerKey(t, r.calls(), false)
		})
	})
}

func (e *Engine) held(queue model.SourceID) []int {
	q := e.queues[queue]
	q.mu.Lock()
	s := q.shares
	q.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.parts()
}

func (e *Engine) agreed(queue model.SourceID) model.Agreed {
	a, _ := e.queues[queue].agreed.get()
	return a
}
