package workqueue

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// flaky fails calls that are about who holds what.
type flaky struct {
	Store
	orphansFail atomic.Int64
	swallowTake atomic.Int64 // how many are done, and then said to have failed
	lateDrop    atomic.Int64 // how many are said to have failed, and are done a second later
	slowDrop    atomic.Bool  // they take a while to begin
}

func (f *flaky) Orphans(ctx context.Context, limit int) ([]model.Orphan, error) {
	if f.orphansFail.Add(-1) >= 0 {
		return nil, errDown
	}
	return f.Store.Orphans(ctx, limit)
}

func (f *flaky) TakeLeases(ctx context.Context, id model.InstanceID, partitions []model.Partition) ([]model.Lease, error) {
	leases, err := f.Store.TakeLeases(ctx, id, partitions)
	if err == nil && f.swallowTake.Add(-1) >= 0 {
		return nil, errDown
	}
	return leases, err
}

func (f *flaky) DropLeases(ctx context.Context, id model.InstanceID, held []model.Holding) (int, error) {
	if f.lateDrop.Add(-1) >= 0 {
		go func() {
			time.Sleep(time.Second)
			_, _ = f.Store.DropLeases(context.Background(), id, held) // nobody is told
		}()
		return 0, errDown
	}
	if f.slowDrop.Load() {
		time.Sleep(300 * time.Millisecond)
	}
	return f.Store.DropLeases(ctx, id, held)
}

// flaky puts one between the engine and its store.
func (r *rig) flaky() *flaky {
	f := &flaky{Store: r.spy.Store}
	r.spy.Store = f
	return f
}

// partitions are all of the queue.
func (r *rig) partitions() (all []model.Partition) {
	for i := range max(r.queue.Agreed.Partitions, 1) {
		all = append(all, model.Partition{Queue: r.queue.ID, Number: i})
	}
	return all
}

func TestDoubtfulLeases(t *testing.T) {
	for _, order := range []struct {
		name string
		set  func(*QueueConfig)
	}{{"serial", nil}, {"keyed", keyed(4, false)}} {
		for _, trouble := range []struct {
			name string
			set  func(*flaky)
		}{
			{"recovering fails", func(f *flaky) { f.orphansFail.Store(2) }},
			{"the taking's answer is lost", func(f *flaky) { f.swallowTake.Store(1); f.orphansFail.Store(1) }},
		} {
			t.Run("IN-14 what a dead holder left is not overtaken though "+trouble.name+", "+order.name, func(t *testing.T) {
				inBubble(t, order.set, func(t *testing.T, r *rig) {
					f := r.flaky()
					r.put(nil, "k:1")
					dead := r.deadInstance(time.Minute)
					_, err := r.store.TakeLeases(t.Context(), dead, r.partitions())
					must(t, err)
					for i := range r.partitions() {
						_, err := r.store.ClaimWork(t.Context(), model.ClaimParams{Queue: r.queue.ID, Owner: dead, Token: model.Token(randomID()), Limit: 1,
							AloneFrom: 1 << 20, Generation: r.queue.Agreed.Generation, KeyID: r.queue.Agreed.KeyID, Slots: r.queue.Agreed.SlotsOf(i)})
						must(t, err)
					}
					must(t, r.store.LeaveInstance(t.Context(), dead))
					r.put(nil, "k:2", "k:3")
					trouble.set(f)
					e := r.engine()
					defer e.Stop()
					r.untilDone(5 * time.Minute)
					wantOrderPerKey(t, r.calls(), true)
				})
			})
		}
	}
	t.Run("IN-09 a claim in doubt that could not be given back is not overtaken by another instance", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			a, b := r.engine(), r.engine()
			defer a.Stop()
			defer b.Stop()
			time.Sleep(5 * time.Second)
			r.put(nil, "m:1", "m:2", "m:3")
			r.spy.swallow.Store(2) // a claim that was made, and the giving back that failed
			a.Wake(r.queue.ID)
			synctest.Wait()
			time.Sleep(50 * time.Millisecond)
			b.Wake(r.queue.ID)
			r.untilDone(5 * time.Minute)
			wantOrderPerKey(t, r.calls(), true)
		})
	})
	t.Run("IN-06 a letting go that takes effect late does not take the lease from the next round", func(t *testing.T) {
		var inside crowd
		inBubble(t, func(q *QueueConfig) {
			q.BatchSize = 2
			q.Handler = func(context.Context, model.Work) Result {
				defer inside.enter()()
				time.Sleep(3 * time.Second)
				return Result{}
			}
		}, func(t *testing.T, r *rig) {
			r.put(nil, numbered("m", 12)...)
			r.flaky().lateDrop.Store(1)
			a, b := r.engine(), r.engine()
			defer a.Stop()
			defer b.Stop()
			r.untilDone(5 * time.Minute)
			if inside.most() != 1 {
				t.Errorf("%d of a serial queue ran at once", inside.most())
			}
		})
	})
	t.Run("IN-06 what keyed order lets go slowly does not free the lease of serial order", func(t *testing.T) {
		for range shorter(6, 2) {
			var inside crowd
			inBubble(t, func(q *QueueConfig) {
				keyed(2, false)(q)
				q.RoundInterval = 100 * time.Millisecond
				q.Handler = func(context.Context, model.Work) Result {
					defer inside.enter()()
					time.Sleep(time.Duration(5+rand.IntN(150)) * time.Millisecond)
					return Result{}
				}
			}, func(t *testing.T, r *rig) {
				r.flaky().slowDrop.Store(true)
				old := r.engine()
				time.Sleep(2 * time.Second)
				r.cfg.Wants = model.Ordering{}
				r.register()
				c, d := r.engine(), r.engine()
				defer c.Stop()
				defer d.Stop()
				time.Sleep(12*time.Second + time.Duration(rand.IntN(10000))*time.Millisecond)
				old.Stop()
				// Little is done while the order changes: not all hear of it at once.
				for i, judged := 0, false; i < 300; i++ {
					r.put(c, keyedBodies(4, 1)[i%4])
					d.Wake(r.queue.ID)
					time.Sleep(50 * time.Millisecond)
					if !judged { // until both have heard of it
						judged = c.agreed(r.queue.ID).Order == model.Serial && d.agreed(r.queue.ID).Order == model.Serial
						inside.mu.Lock()
						inside.max = inside.inside // what began before is not judged
						inside.mu.Unlock()
					}
				}
				r.untilDone(10 * time.Minute)
				if n := inside.most(); n > 1 {
					t.Errorf("%d of a serial queue ran at once", n)
				}
			})
		}
	})
	t.Run("IN-07 a partition that was taken without knowing it is worked on, or let go", func(t *testing.T) {
		inBubble(t, keyed(16, false), func(t *testing.T, r *rig) {
			f := r.flaky()
			a, b := r.engine(), r.engine()
			defer a.Stop()
			time.Sleep(30 * time.Second)
			f.swallowTake.Store(1)
			b.Stop()
			for f.swallowTake.Load() > 0 {
				time.Sleep(10 * time.Millisecond)
			}
			c := r.engine()
			defer c.Stop()
			time.Sleep(time.Minute)
			if x, y := len(a.held(r.queue.ID)), len(c.held(r.queue.ID)); x != 8 || y != 8 {
				t.Errorf("the two hold %d and %d of 16", x, y)
			}
		})
	})
	t.Run("IN-22 no partition stays without a lane when there are fewer of them than before", func(t *testing.T) {
		for range shorter(6, 2) {
			inBubble(t, keyed(64, false), func(t *testing.T, r *rig) {
				old := r.engine()
				keyed(16, false)(&r.cfg)
				r.register()
				time.Sleep(100 * time.Millisecond)
				var all []*Engine
				for range 5 {
					all = append(all, r.engine())
					time.Sleep(time.Duration(500+rand.IntN(2500)) * time.Millisecond)
				}
				defer func() {
					for _, e := range all {
						e.Stop()
					}
				}()
				time.Sleep(30*time.Second + time.Duration(rand.IntN(10000))*time.Millisecond)
				old.Stop()
				time.Sleep(time.Minute)
				n := 0
				for _, e := range all {
					n += len(e.held(r.queue.ID))
				}
				if n != 16 {
					t.Errorf("%d of 16 partitions are worked on a minute after the change", n)
				}
			})
		}
	})
}

func TestStopInTrouble(t *testing.T) {
	t.Run("IN-04 stopping begins nothing more in any partition", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			keyed(16, false)(q)
			q.Handler = func(context.Context, model.Work) Result { time.Sleep(4 * time.Second); return Result{} }
		}, func(t *testing.T, r *rig) {
			r.put(nil, keyedBodies(16, 10)...)
			e := r.engine()
			time.Sleep(10 * time.Second)
			before := len(r.calls())
			e.Stop()
			if after := len(r.calls()); after > before {
				t.Errorf("%d handlers began after Stop", after-before)
			}
		})
	})
	t.Run("AC-9 stopping ends while the store is away", func(t *testing.T) {
		inBubble(t, func(q *QueueConfig) {
			q.Handler = func(context.Context, model.Work) Result { time.Sleep(time.Second); return Result{} }
		}, func(t *testing.T, r *rig) {
			r.put(nil, "m1", "m2")
			e := r.engine()
			time.Sleep(500 * time.Millisecond)
			r.spy.down.Store(true)
			time.Sleep(5 * time.Second)
			begun := time.Now()
			e.Stop()
			if took := time.Since(begun); took > time.Minute {
				t.Errorf("it took %v", took)
			}
			r.spy.down.Store(false)
		})
	})
	t.Run("IN-06 a lost lock ends the round, and does not spin", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			r.locker = lostLocker{}
			r.put(nil, "m1")
			e := r.engine()
			defer e.Stop()
			time.Sleep(10 * time.Second)
			if n := r.spy.asked.Load(); n > 50 {
				t.Errorf("the store was asked %d times in ten seconds", n)
			}
			if n := len(r.calls()); n != 0 {
				t.Errorf("%d began without the lock", n)
			}
		})
	})
}

// lostLocker gives locks that are lost at once.
type lostLocker struct{}

func (lostLocker) TryLock(context.Context, string) (Held, bool, error) { return lostLock{}, true, nil }

type lostLock struct{}

func (lostLock) Lost() <-chan struct{} {
	lost := make(chan struct{})
	close(lost)
	return lost
}
func (lostLock) Release() {}
