package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func instances(k *kit) {
	k.run("IN-14 an instance lives, renews and leaves", lifeOfAnInstance)
	k.run("IN-14 an instance whose lease ran out is buried once, by who may", burying)
	k.run("IN-14 a renewal comes before the burying", renewedIsNotBuried)
	k.run("IN-14 a dead instance buries nobody", deadBuriesNobody)
	k.run("IN-08 a heartbeat brings every source with its switch", heartbeatBringsSources)
	k.run("an instance id is used once", func(k *kit) {
		id := k.instance()
		k.wantCode(k.JoinInstance(k.ctx(), id, "twin", hour, nil), model.CodeRejected)
	})
	k.run("one that has been dead for a week is forgotten, unless it left work", longDeadAreForgotten)
	k.run("registering keeps id and switch, and replaces the policy", registering)
	k.run("switching an unknown source", func(k *kit) {
		k.wantCode(k.SetEnabled(k.ctx(), "nobody", true), model.CodeNotFound)
	})
}

func (k *kit) beat(id model.InstanceID, bury bool) model.Heartbeat {
	k.Helper()
	beat, err := k.Beat(k.ctx(), model.HeartbeatParams{Instance: id, LeaseFor: hour, Bury: bury})
	k.must(err)
	return beat
}

func (k *kit) find(id model.InstanceID) model.Instance {
	k.Helper()
	all, err := k.Instances(k.ctx())
	k.must(err)
	dead := false
	var found model.Instance
	for _, i := range all {
		if dead && !i.Dead {
			k.Error("a living instance is listed after a dead one")
		}
		dead = i.Dead
		if i.ID == id {
			found = i
		}
	}
	if found.ID == 0 {
		k.Fatal("the instance is not listed")
	}
	return found
}

func lifeOfAnInstance(k *kit) {
	id := k.instanceFor(hour)
	joined := k.find(id)
	if joined.Dead || joined.Name != "test" || joined.StartedAt <= 0 || joined.LeaseUntil != joined.StartedAt+hour {
		k.Errorf("joined as %+v", joined)
	}
	beat, err := k.Beat(k.ctx(), model.HeartbeatParams{Instance: id, LeaseFor: 2 * hour})
	k.must(err)
	renewed := k.find(id)
	if !beat.Alive || renewed.LeaseUntil < joined.StartedAt+2*hour || renewed.StartedAt != joined.StartedAt {
		k.Errorf("renewed to %+v, %+v", renewed, beat)
	}
	k.must(k.LeaveInstance(k.ctx(), id))
	k.must(k.LeaveInstance(k.ctx(), id)) // no error
	if !k.find(id).Dead {
		k.Error("it has left and is not dead")
	}
	if k.beat(id, false).Alive {
		k.Error("a dead instance was renewed")
	}
	if !k.find(id).Dead {
		k.Error("the renewal brought it back to life")
	}
	if k.beat(4711, true).Alive {
		k.Error("an unknown instance was renewed")
	}
}

func longDeadAreForgotten(k *kit) {
	empty, withWork := k.instance(), k.instance()
	source := k.source()
	k.put(source, 1)
	k.claim(source, withWork, 1)
	for _, id := range []model.InstanceID{empty, withWork} {
		k.must(k.LeaveInstance(k.ctx(), id))
		_, err := k.raw.ExecContext(k.ctx(), fmt.Sprintf(`UPDATE posthouse_instance SET lease_until = lease_until - 8 * %d WHERE id = %d`, 24*hour, id))
		k.must(err)
	}
	k.instance()
	all, err := k.Instances(k.ctx())
	k.must(err)
	left := map[model.InstanceID]bool{}
	for _, i := range all {
		left[i.ID] = true
	}
	if left[empty] || !left[withWork] {
		k.Errorf("the one that left nothing is there: %v; the one that left work is there: %v", left[empty], left[withWork])
	}
}

func burying(k *kit) {
	id, undertaker, bystander := k.instanceFor(1), k.instance(), k.instanceFor(1)
	k.eventually("the lease's end", func() bool {
		// Read off the store's own clock: renewing is what moves lease_until.
		k.beat(undertaker, false)
		return k.find(undertaker).LeaseUntil-hour > k.find(id).LeaseUntil+1
	})
	if beat := k.beat(undertaker, false); beat.Buried != 0 || k.find(id).Dead || k.find(bystander).Dead {
		k.Errorf("buried %d without leave to", beat.Buried)
	}
	if beat := k.beat(undertaker, true); beat.Buried != 2 || !beat.Alive || !k.find(id).Dead || !k.find(bystander).Dead || k.find(undertaker).Dead {
		k.Errorf("buried %d, want the two whose lease has run out", beat.Buried)
	}
	if beat := k.beat(undertaker, true); beat.Buried != 0 {
		k.Errorf("buried %d again", beat.Buried)
	}
	if k.beat(id, true).Alive {
		k.Error("a buried instance was renewed")
	}
}

func renewedIsNotBuried(k *kit) {
	id := k.instanceFor(1)
	if beat := k.beat(id, true); !beat.Alive || k.find(id).Dead {
		k.Error("an instance that renews in time for nobody to have buried it is alive")
	}
	// Its lease is an hour now: nobody buries it.
	if beat := k.beat(k.instance(), true); beat.Buried != 0 || k.find(id).Dead {
		k.Errorf("buried %d", beat.Buried)
	}
}

func deadBuriesNobody(k *kit) {
	dead, expired := k.instance(), k.instanceFor(1)
	k.must(k.LeaveInstance(k.ctx(), dead))
	time.Sleep(time.Millisecond) // the lease of one microsecond
	if beat := k.beat(dead, true); beat.Alive || beat.Buried != 0 || k.find(expired).Dead {
		k.Errorf("a dead instance found %+v", beat)
	}
	k.must(k.LeaveInstance(k.ctx(), expired))
}

func heartbeatBringsSources(k *kit) {
	id := k.instance()
	source := k.sourceWith(policy)
	for _, enabled := range []bool{false, false, true, true, false} {
		k.must(k.SetEnabled(k.ctx(), source.Name, enabled))
		want, err := k.Sources(k.ctx())
		k.must(err)
		if diff := cmp.Diff(want, k.beat(id, false).Sources); diff != "" {
			k.Error(diff)
		}
		found := false
		for i, s := range want {
			if i > 0 && s.Name <= want[i-1].Name {
				k.Errorf("source %q comes after %q", s.Name, want[i-1].Name)
			}
			if s.ID == source.ID {
				found = s.Name == source.Name && s.Enabled == enabled
			}
		}
		if !found {
			k.Errorf("the source is not listed with its switch at %t", enabled)
		}
	}
}

func registering(k *kit) {
	k.h.kit(k.T).run("in a store of its own", func(k *kit) {
		specs := []model.SourceSpec{
			{Name: "zeta", Enabled: true, Policy: policy, Wants: serial},
			{Name: "Alpha", Policy: policy, Wants: serial},
			{Name: "alpha", Enabled: true, Policy: policy, Wants: serial}, // names are compared byte by byte
			{Name: "bär ", Policy: policy, Wants: serial},
			{Name: "bär", Policy: policy, Wants: serial},
		}
		first, err := k.Register(k.ctx(), specs)
		k.must(err)
		seen := map[model.SourceID]bool{}
		for i, s := range first {
			if s.Name != specs[i].Name || s.Enabled != specs[i].Enabled || s.ID <= 0 || seen[s.ID] {
				k.Errorf("source %d was registered as %+v", i, s)
			}
			seen[s.ID] = true
		}
		k.must(k.SetEnabled(k.ctx(), "alpha", false))
		// The other way round, with the switch turned in the configuration.
		for i, j := 0, len(specs)-1; i < j; i, j = i+1, j-1 {
			specs[i], specs[j] = specs[j], specs[i]
		}
		for i := range specs {
			specs[i].Enabled = !specs[i].Enabled
		}
		for range 2 {
			again, err := k.Register(k.ctx(), specs)
			k.must(err)
			for i, s := range again {
				want := first[len(first)-1-i]
				if want.Name == "alpha" {
					want.Enabled = false
				}
				if diff := cmp.Diff(want, s); diff != "" {
					k.Errorf("registered again: %s", diff)
				}
			}
		}
		if all, err := k.Sources(k.ctx()); err != nil || len(all) != len(specs) {
			k.Errorf("%d sources, %v", len(all), err)
		}
		if none, err := k.Register(k.ctx(), nil); err != nil || len(none) != 0 {
			k.Errorf("no sources: %v, %v", none, err)
		}
	})
}

func leases(k *kit) {
	k.run("IN-06 a queue has one holder, and nobody waits", oneHolder)
	k.run("IN-06 of many who try at once one holds", manyTakers)
	k.run("IN-07 a dead holder's queue is free, and the taker is told", takeover)
	k.run("IN-07 a dead instance takes nothing", func(k *kit) {
		source, dead := k.source(), k.instance()
		k.must(k.LeaveInstance(k.ctx(), dead))
		for _, id := range []model.InstanceID{dead, 4711} {
			if lease := k.take(source, id); lease.Held {
				k.Errorf("instance %d holds the queue", id)
			}
		}
		if lease := k.take(source, k.instance()); !lease.Held || lease.TakenOver {
			k.Errorf("a living one: %+v", lease)
		}
	})
}

func (k *kit) take(queue model.SourceID, id model.InstanceID) model.Lease {
	k.Helper()
	leases, err := k.TakeLeases(k.ctx(), id, []model.Partition{{Queue: queue}})
	k.must(err)
	if len(leases) != 1 {
		k.Fatalf("one partition has %d answers", len(leases))
	}
	lease := leases[0]
	if lease.Held == (lease.Since == 0) {
		k.Errorf("the lease is held since %d: %+v", lease.Since, lease)
	}
	lease.Since = 0 // the rest can be compared
	return lease
}

func (k *kit) drop(queue model.SourceID, id model.InstanceID) bool {
	k.Helper()
	n, err := k.DropLeases(k.ctx(), id, anySince(model.Partition{Queue: queue}))
	k.must(err)
	return n == 1
}

func oneHolder(k *kit) {
	source, other, a, b := k.source(), k.source(), k.instance(), k.instance()
	held, free := model.Lease{Held: true}, model.Lease{}
	if k.drop(source, a) {
		k.Error("dropped what nobody held")
	}
	for range 2 { // the second time it holds it already
		if got := k.take(source, a); got != held {
			k.Errorf("a takes it: %+v", got)
		}
	}
	started := time.Now()
	if got := k.take(source, b); got != free {
		k.Errorf("b takes it from a: %+v", got)
	}
	if waited := time.Since(started); waited > 2*time.Second {
		k.Errorf("waited %v", waited)
	}
	if got := k.take(other, b); got != held {
		k.Errorf("b takes another queue: %+v", got)
	}
	if k.drop(source, b) {
		k.Error("b dropped what a holds")
	}
	if !k.drop(source, a) {
		k.Error("a could not drop it")
	}
	if k.drop(source, a) {
		k.Error("a dropped it twice")
	}
	if got := k.take(source, b); got != held {
		k.Errorf("b takes what a let go: %+v", got)
	}
	if got := k.take(source, a); got != free {
		k.Errorf("a takes it from b: %+v", got)
	}
}

func manyTakers(k *kit) {
	source := k.source()
	for round := range 3 { // never held, with one let go, with a dead holder
		var wg sync.WaitGroup
		var mu sync.Mutex
		var holders []model.InstanceID
		for range 8 {
			id := k.instance()
			wg.Go(func() {
				leases, err := k.TakeLeases(k.ctx(), id, []model.Partition{{Queue: source}})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					k.Error(err)
					return
				}
				if leases[0].Held {
					holders = append(holders, id)
				}
				if leases[0].Held && leases[0].TakenOver != (round == 2) {
					k.Errorf("round %d: taken over: %t", round, leases[0].TakenOver)
				}
			})
		}
		wg.Wait()
		if len(holders) != 1 {
			k.Fatalf("round %d: %d hold the queue", round, len(holders))
		}
		if round == 1 {
			k.must(k.LeaveInstance(k.ctx(), holders[0]))
		} else {
			k.drop(source, holders[0])
		}
	}
}

func takeover(k *kit) {
	for name, die := range map[string]func(*kit, model.InstanceID){
		"it left": (*kit).leave, "it is forgotten": (*kit).forget, "it is buried": (*kit).bury,
	} {
		k.run(name, func(k *kit) {
			source, former, next := k.source(), k.instance(), k.instance()
			k.take(source, former)
			die(k, former)
			if got := k.take(source, next); got != (model.Lease{Held: true, TakenOver: true}) {
				k.Errorf("taken over: %+v", got)
			}
			if got := k.take(source, next); got != (model.Lease{Held: true}) {
				k.Errorf("taken again: %+v", got)
			}
			if k.drop(source, former) {
				k.Error("the former holder let it go")
			}
		})
	}
	k.run("its lease ran out but it is not buried", func(k *kit) {
		source, former, next := k.source(), k.instanceFor(1), k.instance()
		if got := k.take(source, former); !got.Held {
			k.Fatal("not taken")
		}
		time.Sleep(time.Millisecond) // the lease of one microsecond
		if got := k.take(source, next); got.Held {
			k.Error("death is written once, by a heartbeat; until then it holds")
		}
		k.must(k.LeaveInstance(k.ctx(), former))
	})
	k.run("it let go before it died", func(k *kit) {
		source, former, next := k.source(), k.instance(), k.instance()
		k.take(source, former)
		k.drop(source, former)
		k.must(k.LeaveInstance(k.ctx(), former))
		if got := k.take(source, next); got != (model.Lease{Held: true}) {
			k.Errorf("%+v", got)
		}
	})
}
