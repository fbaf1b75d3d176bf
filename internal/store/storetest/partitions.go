package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func partitions(k *kit) {
	k.run("IN-06 many partitions are taken and let go at once", manyPartitions)
	k.run("IN-06 of many who take all at once each partition has one holder", partitionsAtOnce)
	k.run("IN-07 a dead holder's partitions are taken over, and the taker is told", partitionsTakenOver)
	k.run("IN-06 letting go late does not let go of what was taken anew", lateDrop)
	k.run("IN-22 what the agreement does not have cannot be held", partitionsNotAgreed)
	k.run("IN-07 who holds what, and since when", occupancy)
	k.run("IN-14 nobody is declared dead while it claims", buryWhileClaiming)
}

// parts are partitions of a queue.
func parts(queue model.SourceID, numbers ...int) []model.Partition {
	all := make([]model.Partition, len(numbers))
	for i, n := range numbers {
		all[i] = model.Partition{Queue: queue, Number: n}
	}
	return all
}

func (k *kit) takeParts(id model.InstanceID, partitions []model.Partition) (held, takenOver []model.Partition) {
	k.Helper()
	leases, err := k.TakeLeases(k.ctx(), id, partitions)
	k.must(err)
	if len(leases) != len(partitions) {
		k.Fatalf("%d partitions have %d answers", len(partitions), len(leases))
	}
	for i, lease := range leases {
		if lease.Held {
			held = append(held, partitions[i])
		}
		if lease.TakenOver {
			takenOver = append(takenOver, partitions[i])
		}
	}
	return held, takenOver
}

func (k *kit) wantHeld(what string, id model.InstanceID, asked, want []model.Partition) {
	k.Helper()
	held, takenOver := k.takeParts(id, asked)
	if diff := cmp.Diff(want, held); diff != "" || len(takenOver) > 0 {
		k.Errorf("%s: %d were taken over; held: %s", what, len(takenOver), diff)
	}
}

func manyPartitions(k *kit) {
	source, other := k.ordered(keyed(8, false)).ID, k.ordered(keyed(2, false)).ID
	a, b := k.instance(), k.instance()
	mine := append(parts(source, 3, 0, 1), parts(other, 1)...)
	for range 2 {
		k.wantHeld("a takes four", a, mine, mine)
	}
	k.wantHeld("b takes all", b, append(parts(source, 7, 6, 5, 4, 3, 2, 1, 0), parts(other, 0, 1)...), append(parts(source, 7, 6, 5, 4, 2), parts(other, 0)...))
	k.wantHeld("a takes what b has", a, parts(source, 2), nil)
	n, err := k.DropLeases(k.ctx(), a, anySince(append(parts(other, 1, 0), parts(source, 0, 2, 3)...)...))
	k.must(err)
	if n != 3 {
		k.Errorf("a let go of %d, want 3", n)
	}
	k.wantHeld("b takes them", b, append(parts(source, 0, 1, 3), parts(other, 1)...), append(parts(source, 0, 3), parts(other, 1)...))
	if n, err := k.DropLeases(k.ctx(), a, anySince(mine...)); err != nil || n != 1 {
		k.Errorf("a let go of %d, %v, want the one it has left", n, err)
	}
	if held, err := k.TakeLeases(k.ctx(), a, nil); err != nil || len(held) != 0 {
		k.Errorf("nothing to take: %v, %v", held, err)
	}
	if n, err := k.DropLeases(k.ctx(), a, nil); err != nil || n != 0 {
		k.Errorf("nothing to drop: %d, %v", n, err)
	}
}

func partitionsAtOnce(k *kit) {
	const n = 16
	stores := []Store{k.Store, k.h.Again(k.T, k.Store)}
	source := k.ordered(keyed(n, false)).ID
	for round := range 3 {
		var mu sync.Mutex
		holders := map[int]model.InstanceID{}
		var wg sync.WaitGroup
		for i := range 8 {
			id := k.instance()
			var asked []model.Partition
			for j := range n {
				asked = append(asked, model.Partition{Queue: source, Number: (j*5 + i*3) % n})
			}
			wg.Go(func() {
				leases, err := stores[i%2].TakeLeases(k.ctx(), id, asked)
				if err != nil {
					k.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for j, lease := range leases {
					if lease.TakenOver != (lease.Held && round > 0) {
						k.Errorf("round %d: partition %d: %+v", round, asked[j].Number, lease)
					}
					if !lease.Held {
						continue
					}
					if holders[asked[j].Number] != 0 {
						k.Errorf("round %d: partition %d has two holders", round, asked[j].Number)
					}
					holders[asked[j].Number] = id
				}
			})
		}
		wg.Wait()
		if len(holders) != n {
			k.Fatalf("round %d: %d of %d are held", round, len(holders), n)
		}
		for _, id := range holders {
			k.leave(id)
		}
	}
}

func partitionsTakenOver(k *kit) {
	source := k.ordered(keyed(4, false)).ID
	former, living, next := k.instance(), k.instance(), k.instance()
	k.takeParts(former, parts(source, 0, 1, 2))
	k.takeParts(living, parts(source, 3))
	if n, err := k.DropLeases(k.ctx(), former, anySince(parts(source, 0)...)); err != nil || n != 1 {
		k.Fatalf("let go of %d, %v", n, err)
	}
	k.bury(former)
	held, takenOver := k.takeParts(next, parts(source, 3, 2, 1, 0))
	if diff := cmp.Diff(parts(source, 2, 1, 0), held); diff != "" {
		k.Errorf("held: %s", diff)
	}
	if diff := cmp.Diff(parts(source, 2, 1), takenOver); diff != "" {
		k.Errorf("taken over: %s", diff)
	}
	k.wantHeld("taken again", next, parts(source, 0, 1, 2), parts(source, 0, 1, 2))
	k.wantHeld("the dead one", former, parts(source, 0, 1, 2, 3), nil)
	if n, err := k.DropLeases(k.ctx(), former, anySince(parts(source, 1, 2)...)); err != nil || n != 0 {
		k.Errorf("the former holder let go of %d, %v", n, err)
	}
}

func partitionsNotAgreed(k *kit) {
	id := k.instance()
	k.wantHeld("keyed", id, parts(k.ordered(keyed(3, false)).ID, 3, 255, -1), nil)
	k.wantHeld("serial", id, parts(k.source(), 1), nil)
	k.wantHeld("parallel", id, parts(k.ordered(parallel).ID, 0), nil)
	k.wantHeld("unknown", id, parts(1<<30, 0), nil)
}

func occupancy(k *kit) {
	k.h.kit(k.T).run("in a store of its own", func(k *kit) {
		free, err := k.Occupancy(k.ctx())
		k.must(err)
		if len(free.Holdings) != 0 || len(free.Consumers) != 0 {
			k.Errorf("with nobody there: %+v", free)
		}
		first, second, idle := k.ordered(keyed(3, false)), k.source(), k.source()
		wants := []model.Want{{Queue: second, Ordering: serial}, {Queue: first.ID, Ordering: first.Agreed.Ordering}}
		a, b, c := k.joinWanting(wants...), k.joinWanting(wants[1:]...), k.joinWanting(wants...)
		k.takeParts(a, parts(second, 0))
		k.takeParts(b, parts(first.ID, 2, 0))
		k.takeParts(c, parts(first.ID, 1))
		k.leave(c)
		before, err := k.Occupancy(k.ctx())
		k.must(err)
		k.takeParts(b, parts(first.ID, 0, 2)) // holds them on
		got, err := k.Occupancy(k.ctx())
		k.must(err)
		if diff := cmp.Diff(before, got); diff != "" {
			k.Errorf("changed by who holds it already: %s", diff)
		}
		for i, h := range got.Holdings {
			if since := time.Since(h.Since.Time()); h.Since <= 0 || since > time.Hour || since < -time.Hour {
				k.Errorf("%+v", h)
			}
			got.Holdings[i].Since = 0
		}
		want := model.Occupancy{
			Holdings: []model.Holding{
				{Partition: model.Partition{Queue: first.ID, Number: 0}, Holder: b, Alive: true},
				{Partition: model.Partition{Queue: first.ID, Number: 1}, Holder: c},
				{Partition: model.Partition{Queue: first.ID, Number: 2}, Holder: b, Alive: true},
				{Partition: model.Partition{Queue: second, Number: 0}, Holder: a, Alive: true},
			},
			Consumers: map[model.SourceID]int{first.ID: 2, second: 1},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			k.Error(diff)
		}
		if n, err := k.DropLeases(k.ctx(), b, anySince(parts(first.ID, 0)...)); err != nil || n != 1 {
			k.Errorf("let go of %d, %v", n, err)
		}
		got, err = k.Occupancy(k.ctx())
		k.must(err)
		if len(got.Holdings) != 3 || got.Holdings[0].Number != 1 || got.Consumers[idle] != 0 {
			k.Errorf("%+v", got)
		}
	})
}

// buryWhileClaiming has an instance claim and be declared dead at the same
// time. How many started works it left is written down with its death: if a
// claim could come after it, or beside it, there would be more.
func buryWhileClaiming(k *kit) {
	const rounds, each = 24, 12
	second := k.h.Again(k.T, k.Store)
	source, undertaker := k.ordered(parallel).ID, k.instance()
	for round := range rounds {
		k.put(source, each)
		owner := k.instanceFor(1)
		begun := make(chan struct{})
		var taken []model.Work
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range each {
				p := k.params(source, owner, 1)
				p.Start, p.Shared, p.AloneFrom = true, true, 9
				claimed, err := k.ClaimWork(k.ctx(), p)
				if err != nil {
					k.Error(err)
				}
				if i == 0 {
					close(begun)
				}
				if len(claimed.Works) == 0 {
					return
				}
				taken = append(taken, claimed.Works...)
			}
		})
		wg.Go(func() {
			<-begun
			if round%2 == 0 {
				if err := second.LeaveInstance(k.ctx(), owner); err != nil {
					k.Error(err)
				}
				return
			}
			for !k.Failed() {
				if _, err := second.Beat(k.ctx(), model.HeartbeatParams{Instance: undertaker, LeaseFor: hour, Bury: true}); err != nil {
					k.Error(err)
				}
				all, err := second.Instances(k.ctx())
				if err != nil {
					k.Error(err)
				}
				if slices.ContainsFunc(all, func(i model.Instance) bool { return i.ID == owner && i.Dead }) {
					return
				}
			}
		})
		wg.Wait()
		there := 0
		for _, o := range k.orphansOf(source) {
			if o.Owner == owner {
				there++
			}
		}
		left := k.number(fmt.Sprintf(`SELECT left_started FROM posthouse_instance WHERE id = %d`, owner))
		if there != len(taken) || left != int64(there) {
			k.Fatalf("round %d: claims returned %d, %d are processing, and %d were there when it died", round, len(taken), there, left)
		}
		for _, w := range taken {
			k.settle(model.SettleSuccess, w)
		}
	}
}

// anySince are partitions, whenever they were taken.
func anySince(partitions ...model.Partition) []model.Holding {
	all := make([]model.Holding, len(partitions))
	for i, p := range partitions {
		all[i].Partition = p
	}
	return all
}

// lateDrop lets go of what was held before, and not of what was taken anew.
func lateDrop(k *kit) {
	source, a := k.ordered(keyed(2, false)).ID, k.instance()
	take := func() model.Holding {
		leases, err := k.TakeLeases(k.ctx(), a, parts(source, 1))
		k.must(err)
		return model.Holding{Partition: parts(source, 1)[0], Since: leases[0].Since}
	}
	before := take()
	if again := take(); again.Since != before.Since {
		k.Errorf("taken again it is held since %d, want %d", again.Since, before.Since)
	}
	if n, err := k.DropLeases(k.ctx(), a, []model.Holding{before}); err != nil || n != 1 {
		k.Fatalf("let go of %d, %v", n, err)
	}
	anew := take()
	if n, err := k.DropLeases(k.ctx(), a, []model.Holding{before}); err != nil || n != 0 {
		k.Errorf("late it let go of %d, %v", n, err)
	}
	if n, err := k.DropLeases(k.ctx(), a, []model.Holding{anew}); err != nil || n != 1 {
		k.Errorf("let go of %d, %v, want what was taken anew", n, err)
	}
}
