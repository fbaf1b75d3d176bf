package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func orphans(k *kit) {
	k.run("IN-14 work of a dead or unknown owner is orphaned", ownerDead)
	k.run("IN-14 work started longer than orphan_after ago is orphaned while its owner lives", hung)
	k.run("IN-14 orphans come oldest first, at most the limit", orphanOrder)
	k.run("IN-14 alone is who was the only one started when the owner died", alone)
	k.run("IN-14 what was settled or given back is no orphan", notOrphaned)
}

// orphansOf lists the orphans of some queues.
func (k *kit) orphansOf(queues ...model.SourceID) (found []model.Orphan) {
	k.Helper()
	all, err := k.Orphans(k.ctx(), 100_000)
	k.must(err)
	for _, o := range all {
		for _, q := range queues {
			if o.Queue == q {
				found = append(found, o)
			}
		}
	}
	return found
}

// forget removes an instance, as a restored backup may.
func (k *kit) forget(id model.InstanceID) {
	k.Helper()
	_, err := k.raw.ExecContext(k.ctx(), fmt.Sprintf(`DELETE FROM posthouse_instance WHERE id = %d`, id))
	k.must(err)
}

// leave is a stop in good order.
func (k *kit) leave(id model.InstanceID) {
	k.Helper()
	k.must(k.LeaveInstance(k.ctx(), id))
}

// bury lets the lease of an instance run out and has another notice it.
func (k *kit) bury(id model.InstanceID) {
	k.Helper()
	_, err := k.Beat(k.ctx(), model.HeartbeatParams{Instance: id, LeaseFor: 1})
	k.must(err)
	undertaker := k.instance()
	k.eventually("its burial", func() bool {
		k.beat(undertaker, true)
		return k.find(id).Dead
	})
}

func ownerDead(k *kit) {
	spec := model.RetryPolicy{MaxRetry: 7, Backoff: []time.Duration{time.Second, 2 * time.Minute, 36 * time.Hour}, OrphanAfter: 42 * time.Minute}
	for name, die := range map[string]func(*kit, model.InstanceID){"left": (*kit).leave, "forgotten": (*kit).forget, "buried": (*kit).bury} {
		k.run(name, func(k *kit) {
			source, owner := k.sourceWith(spec).ID, k.instance()
			k.put(source, 3)
			started := k.claimStarted(source, owner, 2)
			claimed := k.claim(source, owner, 1)
			if got := k.orphansOf(source); len(got) != 0 {
				k.Fatalf("orphans of a living owner: %+v", got)
			}
			die(k, owner)
			got := k.orphansOf(source)
			if len(got) != 3 {
				k.Fatalf("%d orphans, want 3", len(got))
			}
			for i, o := range got {
				want := append(started, claimed...)[i]
				want.Message = nil
				if diff := cmp.Diff(want, o.Work); diff != "" {
					k.Errorf("orphan %d: %s", i, diff)
				}
				if diff := cmp.Diff(spec, o.Policy); diff != "" {
					k.Errorf("policy of orphan %d: %s", i, diff)
				}
				if !o.OwnerDead || o.Alone || o.Now < started[0].StartedAt || o.Now > started[0].StartedAt+hour {
					k.Errorf("orphan %d: %+v", i, o)
				}
			}
			late, err := k.StartWork(k.ctx(), model.StartParams{Token: claimed[0].Token, Seqs: seqs(claimed)})
			k.must(err)
			if len(late) != 0 {
				k.Error("an instance that is dead started a work")
			}
		})
	}
	k.run("the policy is that of the last registration", func(k *kit) {
		source := k.sourceWith(spec)
		owner := k.instance()
		k.put(source.ID, 1)
		k.claim(source.ID, owner, 1)
		k.must(k.LeaveInstance(k.ctx(), owner))
		for _, want := range []model.RetryPolicy{{}, {MaxRetry: 1, Backoff: []time.Duration{time.Microsecond}, OrphanAfter: time.Microsecond}} {
			_, err := k.Register(k.ctx(), []model.SourceSpec{{Name: source.Name, Policy: want}})
			k.must(err)
			if diff := cmp.Diff(want, k.orphansOf(source.ID)[0].Policy); diff != "" {
				k.Error(diff)
			}
		}
	})
}

func hung(k *kit) {
	short := policy
	short.OrphanAfter = 50 * time.Millisecond
	source, owner := k.sourceWith(short).ID, k.instance()
	k.put(source, 2)
	claimed := k.claim(source, owner, 1) // long before the other
	started := k.claimStarted(source, owner, 1)[0]
	patient := k.source() // whose orphan_after is an hour
	k.processing(patient, owner)
	var got []model.Orphan
	k.eventually("the orphan", func() bool {
		got = k.orphansOf(source, patient)
		return len(got) > 0
	})
	if len(got) != 1 || got[0].Seq != started.Seq || got[0].OwnerDead || got[0].Alone || got[0].Token != started.Token {
		k.Fatalf("orphans %+v, want the started one, with a living owner", got)
	}
	if age := got[0].Now.Sub(got[0].StartedAt); age <= short.OrphanAfter {
		k.Errorf("orphaned after %v", age)
	}
	// The claimed one was not started, and that is what counts.
	again, err := k.StartWork(k.ctx(), model.StartParams{Token: claimed[0].Token, Seqs: seqs(claimed)})
	k.must(err)
	if len(again) != 1 {
		k.Error("the claimed one was lost")
	}
	k.eventually("the second orphan", func() bool { return len(k.orphansOf(source)) == 2 })
	n, err := k.UnstartWork(k.ctx(), model.StartParams{Token: claimed[0].Token, Seqs: seqs(claimed)})
	k.must(err)
	if got := k.orphansOf(source); n != 1 || len(got) != 1 || got[0].Seq != started.Seq {
		k.Errorf("unstarted %d, orphans %+v", n, got)
	}
	k.settle(model.SettleRetry, started)
	if got := k.orphansOf(source); len(got) != 0 {
		k.Errorf("orphans %+v after recovery", got)
	}
}

func orphanOrder(k *kit) {
	k.h.kit(k.T).run("in a store of its own", func(k *kit) {
		a, b, owner := k.source(), k.source(), k.instance()
		var want []model.Seq
		for range 3 {
			k.put(a, 2)
			k.put(b, 1)
		}
		for _, w := range append(k.claim(b, owner, 10), k.claimStarted(a, owner, 10)...) {
			want = append(want, w.Seq)
		}
		k.must(k.LeaveInstance(k.ctx(), owner))
		slices.Sort(want)
		for _, limit := range []int{1, 4, 9, 100} {
			got, err := k.Orphans(k.ctx(), limit)
			k.must(err)
			var found []model.Seq
			for _, o := range got {
				found = append(found, o.Seq)
			}
			if diff := cmp.Diff(want[:min(limit, len(want))], found); diff != "" {
				k.Errorf("limit %d: %s", limit, diff)
			}
		}
	})
}

func alone(k *kit) {
	for name, c := range map[string]struct {
		started, claimed int
		want             int // orphans that were alone
	}{
		"one started":                      {1, 0, 1},
		"one started, others only claimed": {1, 2, 1},
		"two started":                      {2, 0, 0},
		"none started":                     {0, 1, 0},
		"three started, in two queues":     {3, 1, 0},
	} {
		for how, die := range map[string]func(*kit, model.InstanceID){"left": (*kit).leave, "buried": (*kit).bury} {
			k.run(name+", "+how, func(k *kit) {
				source, other, owner := k.source(), k.source(), k.instance()
				// In two queues: alone means alone in the process.
				k.put(source, 1+c.claimed)
				k.put(other, 2)
				var started []model.Work
				if c.started > 0 {
					started = k.claimStarted(source, owner, 1)
				}
				if c.started > 1 {
					k.claimStarted(other, owner, c.started-1)
				}
				if c.claimed > 0 {
					k.claim(source, owner, c.claimed)
				}
				die(k, owner)
				got := 0
				for _, o := range k.orphansOf(source, other) {
					if o.Alone {
						got++
						if o.Seq != started[0].Seq || o.StartedAt == 0 {
							k.Errorf("alone is said to be %+v", o)
						}
					}
				}
				if got != c.want {
					k.Errorf("%d were alone, want %d", got, c.want)
				}
			})
		}
	}
	k.run("what was left is counted at death, not later", func(k *kit) {
		source, owner := k.source(), k.instance()
		k.put(source, 2)
		started := k.claimStarted(source, owner, 2)
		k.must(k.LeaveInstance(k.ctx(), owner))
		k.settle(model.SettleRetry, started[0]) // recovered first
		if got := k.orphansOf(source); len(got) != 1 || got[0].Alone {
			k.Errorf("orphans %+v, want one that was not alone", got)
		}
	})
}

func notOrphaned(k *kit) {
	source, owner := k.source(), k.instance()
	k.put(source, 6)
	work := k.claimStarted(source, owner, 5)
	k.settle(model.SettleSuccess, work[0])
	k.settle(model.SettleRetry, work[1])
	k.settle(model.SettleFailed, work[2])
	k.settle(model.SettleRelease, work[3])
	k.must(k.LeaveInstance(k.ctx(), owner))
	got := k.orphansOf(source)
	if len(got) != 1 || got[0].Seq != work[4].Seq {
		k.Errorf("orphans %+v", got)
	}
	n, err := k.GiveBack(k.ctx(), source, work[4].Token)
	k.must(err)
	if got := k.orphansOf(source); n != 1 || len(got) != 0 {
		k.Errorf("gave back %d, orphans %+v", n, got)
	}
}
