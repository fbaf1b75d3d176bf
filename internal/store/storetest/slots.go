package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func slots(k *kit) {
	k.run("IN-06 each partition's claims take its own slots alone", claimsOfPartitions)
	k.run("IN-09 over many slots claims take the oldest by (due_at, seq)", claimOrderOverSlots)
	k.run("IN-09 work that is due before the floor is passed over", claimFloor)
	k.run("IN-09 due work is told by its slots", dueBySlot)
	k.run("IN-06 a claim that is not shared waits for whoever has a row, and passes over none", claimWaits)
	k.run("IN-22 a claim under another generation is outdated", claimOutdated)
	k.run("IN-22 misplaced work stops claims until it is placed", misplacedWork)
	k.run("IN-22 work is placed only where it is pending, and of that queue", placing)
	k.run("IN-18 a replayed success of a source with keys is placed anew", replayedIsPlaced)
	k.run("lists over many slots are complete and in order", listsOverSlots)
}

func claimsOfPartitions(k *kit) {
	source, owner := k.ordered(keyed(4, false)), k.instance()
	messages := k.put(source.ID, 60)
	want := make([][]model.Seq, 4)
	for _, m := range messages {
		row, _ := k.row(k.seqOf(m.ID))
		if row.Key != m.Key || m.Key.Hash != 0 {
			k.Fatalf("kept with the key %+v, want %+v", row.Key, m.Key)
		}
		part := source.Agreed.Partition(m.Key.Slot)
		want[part] = append(want[part], row.Seq)
	}
	for _, part := range []int{2, 0, 3, 1} {
		p := k.params(source.ID, owner, 100)
		p.Slots = source.Agreed.SlotsOf(part)
		work := k.claimWith(p)
		if diff := gocmp.Diff(want[part], seqs(work)); diff != "" || len(work) == 0 {
			k.Errorf("partition %d: %s", part, diff)
		}
		for _, w := range work {
			if row, _ := k.row(w.Seq); row.Key != w.Key || w.Key.Slot == 0 {
				k.Errorf("claimed with the key %+v, in the table %+v", w.Key, row.Key)
			}
		}
	}
	p := k.params(source.ID, owner, 100)
	p.Slots = nil
	if claimed, err := k.ClaimWork(k.ctx(), p); err != nil || len(claimed.Works) != 0 {
		k.Errorf("of no slots %d were claimed, %v", len(claimed.Works), err)
	}
}

// byDueAt sorts the pending work of a queue as it is to be claimed.
func (k *kit) byDueAt(all []model.Seq) (sorted []model.Seq) {
	k.Helper()
	rows := make([]model.Work, len(all))
	for i, seq := range all {
		rows[i], _ = k.row(seq)
	}
	slices.SortFunc(rows, func(a, b model.Work) int {
		return cmp.Or(cmp.Compare(a.DueAt, b.DueAt), cmp.Compare(a.Seq, b.Seq))
	})
	return seqs(rows)
}

func claimOrderOverSlots(k *kit) {
	for _, partitions := range []int{1, 16} {
		k.run(fmt.Sprintf("%d partitions", partitions), func(k *kit) {
			source, owner := k.ordered(keyed(partitions, false)), k.instance()
			var mine []model.Seq // of partition 0
			for range 3 {
				for _, m := range k.put(source.ID, 90) {
					if source.Agreed.Partition(m.Key.Slot) == 0 {
						mine = append(mine, k.seqOf(m.ID))
					}
				}
			}
			// One slot has more than its share of what is oldest, and others are younger.
			first, _ := k.row(mine[0])
			k.change(`UPDATE posthouse_work SET due_at = due_at - 7000000 WHERE queue = %d AND slot = %d`, source.ID, first.Key.Slot)
			k.change(`UPDATE posthouse_work SET due_at = due_at - 3000000 WHERE queue = %d AND seq = %d`, source.ID, mine[len(mine)-1])
			k.change(`UPDATE posthouse_work SET due_at = due_at + 3600000000 WHERE queue = %d AND seq = %d`, source.ID, mine[len(mine)-2])
			mine = slices.Delete(mine, len(mine)-2, len(mine)-1)
			want := k.byDueAt(mine)
			var got []model.Seq
			for _, limit := range []int{1, 7, 2, 64, 1000} {
				p := k.params(source.ID, owner, limit)
				p.Slots = source.Agreed.SlotsOf(0)
				work := seqs(k.claimWith(p))
				if expect := min(limit, len(want)-len(got)); len(work) != expect {
					k.Errorf("a claim of %d took %d, want %d", limit, len(work), expect)
				}
				got = append(got, work...)
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				k.Error(diff)
			}
		})
	}
}

func claimFloor(k *kit) {
	for _, o := range []model.Ordering{serial, keyed(2, false), keyed(2, true)} {
		source, owner := k.ordered(o), k.instance()
		kept := k.putKeys(source.ID, "a", "b", "c", "d")
		k.change(`UPDATE posthouse_work SET due_at = due_at - 5000000 WHERE seq IN (%d, %d)`, kept[0], kept[2])
		row, _ := k.row(kept[1])
		p := k.params(source.ID, owner, 10)
		p.Floor = row.DueAt
		if diff := gocmp.Diff([]model.Seq{kept[1], kept[3]}, seqs(k.claimWith(p))); diff != "" {
			k.Errorf("%+v: %s", o, diff)
		}
		if diff := gocmp.Diff([]model.Seq{kept[0], kept[2]}, seqs(k.claim(source.ID, owner, 10))); diff != "" {
			k.Errorf("%+v, without a floor: %s", o, diff)
		}
	}
	k.run("but where keys block, nothing passes what is below it", func(k *kit) {
		source, owner := k.ordered(keyed(1, true)), k.instance()
		kept := k.putKeys(source.ID, "a", "a", "b")
		k.change(`UPDATE posthouse_work SET due_at = due_at - 5000000 WHERE seq = %d`, kept[0])
		row, _ := k.row(kept[1])
		p := k.params(source.ID, owner, 10)
		p.Floor = row.DueAt
		if diff := gocmp.Diff([]model.Seq{kept[2]}, seqs(k.claimWith(p))); diff != "" {
			k.Error(diff)
		}
	})
}

func dueBySlot(k *kit) {
	source := k.ordered(keyed(8, false))
	agreed := source.Agreed
	ask := model.DueParams{Queue: source.ID, KeyID: agreed.KeyID, Slots: allSlots(agreed)}
	check := func(want ...model.Slot) {
		k.Helper()
		due, err := k.DueWork(k.ctx(), ask)
		k.must(err)
		slices.Sort(due.Slots)
		slices.Sort(want)
		if diff := gocmp.Diff(slices.Compact(want), slices.Clip(due.Slots)); diff != "" || due.Misplaced {
			k.Errorf("misplaced: %t; %s", due.Misplaced, diff)
		}
	}
	check()
	kept := k.putKeys(source.ID, "a", "a", "b", "c", "d")
	slot := func(key string) model.Slot { return agreed.KeyOf([]byte(key)).Slot }
	check(slot("a"), slot("b"), slot("c"), slot("d"))
	k.change(`UPDATE posthouse_work SET due_at = due_at + 3600000000 WHERE seq = %d`, kept[2])
	check(slot("a"), slot("c"), slot("d"))
	row, _ := k.row(kept[4])
	ask.Floor = row.DueAt // where the others are, too
	check(slot("a"), slot("c"), slot("d"))
	ask.Slots = agreed.SlotsOf(agreed.Partition(slot("a")))
	check(slot("a"))
	ask.Slots = nil
	check()
}

// claimWaits has somebody else hold the oldest row, as a claim or settlement
// under way does. SQLite locks no rows, so there a claim waits for any writer.
func claimWaits(k *kit) {
	for _, c := range []struct {
		name   string
		shared bool
		moved  bool // by whoever held the row
	}{{"not shared", false, false}, {"not shared, and the row is gone then", false, true}, {"shared", true, false}} {
		for _, o := range []model.Ordering{serial, keyed(1, false)} {
			k.run(fmt.Sprintf("%s, %s", c.name, o.Order), func(k *kit) {
				source, owner := k.ordered(o), k.instance()
				kept := k.putKeys(source.ID, "a", "b", "c")
				held, err := k.h.DB(k.T, k.Store).BeginTx(k.ctx(), nil)
				k.must(err)
				defer func() { _ = held.Rollback() }()
				_, err = held.ExecContext(k.ctx(), fmt.Sprintf(`UPDATE posthouse_work SET due_at = due_at + 3600000000 WHERE seq = %d`, kept[0]))
				k.must(err)
				done := make(chan []model.Seq, 1)
				p := k.params(source.ID, owner, 2)
				p.Shared = c.shared
				go func() {
					claimed, err := k.ClaimWork(k.ctx(), p)
					if err != nil {
						k.Error(err)
					}
					done <- seqs(claimed.Works)
				}()
				var got []model.Seq
				if c.shared && k.h.Engine != "SQLite" {
					got = <-done
					if diff := gocmp.Diff(kept[1:], got); diff != "" {
						k.Errorf("beside the row that is held: %s", diff)
					}
					return
				}
				select {
				case got = <-done:
					k.Fatalf("it did not wait, and claimed %v of %v", got, kept)
				case <-time.After(60 * time.Millisecond):
				}
				if c.moved {
					k.must(held.Commit())
				} else {
					k.must(held.Rollback())
				}
				got = <-done
				switch {
				case !c.moved:
					if diff := gocmp.Diff(kept[:2], got); diff != "" {
						k.Error(diff)
					}
				case slices.Contains(got, kept[0]):
					k.Error("it took what was no longer due")
				}
			})
		}
	}
}

func claimOutdated(k *kit) {
	for _, o := range []model.Ordering{serial, parallel, keyed(3, true)} {
		source, owner := k.ordered(o), k.instance()
		if source.Agreed.Generation < 1 {
			k.Fatalf("the first generation is %d", source.Agreed.Generation)
		}
		k.put(source.ID, 2)
		for _, off := range []int64{-1, 1} {
			p := k.params(source.ID, owner, 10)
			p.Generation += off
			if claimed, err := k.ClaimWork(k.ctx(), p); err != nil || !claimed.Outdated || len(claimed.Works) != 0 {
				k.Errorf("%s: generation %+d: %+v, %v", o.Order, off, claimed, err)
			}
		}
		if work := k.claim(source.ID, owner, 10); len(work) != 2 {
			k.Errorf("%s: claimed %d", o.Order, len(work))
		}
	}
}

func misplacedWork(k *kit) {
	for _, c := range []struct {
		name string
		o    model.Ordering
		slot func(model.Source) model.Slot
	}{
		{"of a source that had no keys", keyed(4, true), func(model.Source) model.Slot { return 0 }},
		{"of a later key", keyed(4, false), func(s model.Source) model.Slot { return model.Slot(s.Agreed.KeyID+1) * model.Slots }},
		{"with a key where there is none", serial, func(model.Source) model.Slot { return model.Slots + 5 }},
		{"of a key that is none now", parallel, func(model.Source) model.Slot { return 3*model.Slots - 1 }},
	} {
		k.run(c.name, func(k *kit) {
			source, owner := k.ordered(c.o), k.instance()
			k.put(source.ID, 3)
			var strangers []model.NewMessage
			for range 3 {
				m := newMessage(source.ID, "stranger")
				m.Key = model.Key{Slot: c.slot(source)}
				strangers = append(strangers, m)
			}
			k.keep(model.PutPending, strangers)
			late := k.seqOf(strangers[2].ID)
			k.change(`UPDATE posthouse_work SET due_at = due_at + 3600000000 WHERE seq = %d`, late)
			from, to := source.Agreed.KeyID.SlotRange()
			check := func(want ...model.NewMessage) {
				k.Helper()
				due, err := k.DueWork(k.ctx(), model.DueParams{Queue: source.ID, KeyID: source.Agreed.KeyID, Slots: allSlots(source.Agreed)})
				k.must(err)
				for _, slot := range due.Slots {
					if slot < from || slot >= to {
						k.Errorf("slot %d is due, and was not asked for", slot)
					}
				}
				claimed := k.tryClaim(model.ClaimParams{Queue: source.ID, Owner: owner, Limit: 1})
				if !claimed.Misplaced || claimed.Outdated || len(claimed.Works) != 0 || !due.Misplaced {
					k.Fatalf("%d are misplaced, and a claim says %+v; told before: %t", len(want), claimed, due.Misplaced)
				}
				for _, limit := range []int{1, 10} {
					got, err := k.Misplaced(k.ctx(), source.ID, source.Agreed.KeyID, limit)
					k.must(err)
					if len(got) != min(limit, len(want)) {
						k.Fatalf("%d are listed, want %d", len(got), min(limit, len(want)))
					}
					for i, m := range got {
						if diff := sameMessage(want[i], m.NewMessage); diff != "" || m.Seq != k.seqOf(m.ID) || m.ReceivedAt == 0 {
							k.Errorf("message %d: %s", i, diff)
						}
					}
				}
			}
			check(strangers...)
			var placed []model.Placed
			for _, m := range strangers[:2] {
				placed = append(placed, model.Placed{Seq: k.seqOf(m.ID), Key: source.Agreed.KeyOf([]byte("z"))})
			}
			k.must(k.Place(k.ctx(), source.ID, placed))
			check(strangers[2])
			k.must(k.Place(k.ctx(), source.ID, []model.Placed{{Seq: late, Key: source.Agreed.KeyOf([]byte("z"))}}))
			if got, err := k.Misplaced(k.ctx(), source.ID, source.Agreed.KeyID, 10); err != nil || len(got) != 0 {
				k.Errorf("%d are listed, %v", len(got), err)
			}
			if work := k.claim(source.ID, owner, 10); len(work) != 5 || work[4].Seq != placed[1].Seq || work[4].Key != placed[1].Key {
				k.Errorf("claimed %+v, want the two that were placed after the three others", work)
			}
		})
	}
}

func placing(k *kit) {
	source, other, owner := k.ordered(keyed(2, true)), k.ordered(keyed(2, true)), k.instance()
	kept := k.putKeys(source.ID, "a", "b", "c")
	elsewhere := k.putKeys(other.ID, "a")
	work := k.claimStarted(source.ID, owner, 2)
	k.settle(model.SettleFailed, work[1])
	want := []model.Work{}
	for _, seq := range append(kept[:2:2], elsewhere...) {
		row, _ := k.row(seq)
		want = append(want, row)
	}
	moved := model.Key{Slot: source.Agreed.KeyOf([]byte("q")).Slot, Hash: 42}
	k.must(k.Place(k.ctx(), source.ID, []model.Placed{
		{Seq: 1 << 60, Key: moved}, {Seq: kept[0], Key: moved}, {Seq: kept[1], Key: moved}, {Seq: kept[2], Key: moved}, {Seq: elsewhere[0], Key: moved},
	}))
	for i, seq := range append(kept[:2:2], elsewhere...) {
		row, _ := k.row(seq)
		if diff := gocmp.Diff(want[i], row); diff != "" {
			k.Errorf("work %d was moved: %s", i, diff)
		}
	}
	if row, _ := k.row(kept[2]); row.Key != moved || row.State != model.Pending {
		k.Errorf("the pending one stands as %+v", row)
	}
	k.must(k.Place(k.ctx(), source.ID, nil))
}

func replayedIsPlaced(k *kit) {
	source, owner := k.ordered(keyed(4, true)), k.instance()
	m := k.keyed(source.ID, "a")
	failing := k.keyed(source.ID, "b")
	k.keep(model.PutPending, []model.NewMessage{m, failing})
	work := k.claimStarted(source.ID, owner, 2)
	k.settle(model.SettleSuccess, work[0])
	k.settle(model.SettleFailed, work[1])
	if got := replayOne(k, failing.ID, false); got != model.Replayed {
		k.Fatalf("replay: %v", got)
	}
	if again := k.claimStarted(source.ID, owner, 2); len(again) != 1 || again[0].Key != failing.Key {
		k.Fatalf("the failed one comes back as %+v", again)
	}
	if got := replayOne(k, m.ID, true); got != model.Replayed {
		k.Fatalf("replay: %v", got)
	}
	if claimed := k.tryClaim(model.ClaimParams{Queue: source.ID, Owner: owner, Limit: 1}); !claimed.Misplaced || len(claimed.Works) > 0 {
		k.Fatalf("a claim says %+v", claimed)
	}
	found, err := k.Misplaced(k.ctx(), source.ID, source.Agreed.KeyID, 10)
	k.must(err)
	if len(found) != 1 || found[0].ID != m.ID {
		k.Fatalf("%d are listed", len(found))
	}
	k.must(k.Place(k.ctx(), source.ID, []model.Placed{{Seq: found[0].Seq, Key: m.Key}}))
	if again := k.claimStarted(source.ID, owner, 2); len(again) != 1 || again[0].Key != m.Key || again[0].Replay != 1 || again[0].Message.ID != m.ID {
		k.Errorf("claimed %+v", again)
	}
}

// listsOverSlots walks pages that end within a slot, and pages on which many
// slots meet.
func listsOverSlots(k *kit) {
	source, owner := k.ordered(keyed(16, false)), k.instance()
	made := k.everyState(source.ID, owner, 50)
	for name, filter := range filters {
		for _, limit := range []int{4, 100} {
			items := k.all(model.ListParams{Source: source.ID, Filter: filter, Limit: limit})
			var got, want []string
			for i, item := range items {
				got = append(got, item.ID.String())
				if i > 0 {
					k.wantOrder(name, filter, items[i-1], item)
				}
			}
			for _, id := range made[name] {
				want = append(want, id.String())
			}
			slices.Sort(got)
			slices.Sort(want)
			if diff := gocmp.Diff(want, got); diff != "" {
				k.Errorf("%s by %d: %s", name, limit, diff)
			}
		}
	}
}
