package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func blocking(k *kit) {
	k.run("IN-22 a claim takes several of one key, in order", blockOrder)
	k.run("IN-22 what is being worked on keeps its key back, and no other", blockProcessing)
	k.run("IN-22 what waits keeps its key back, and those behind it wait as long", blockWaiting)
	k.run("IN-22 what has failed keeps nothing back", blockFailed)
	k.run("IN-22 a retry that is due now comes before those behind it", blockRetriedNow)
	k.run("IN-22 in serial order all have one key", blockSerial)
	k.run("IN-22 thousands behind one key do not hold up another", blockCrowd)
	k.run("IN-22 at once, no message passes one of its key", blockAtOnce)
}

// wantClaim claims at most limit of a queue and says which are expected.
func (k *kit) wantClaim(what string, queue model.SourceID, owner model.InstanceID, limit int, want ...model.Seq) []model.Work {
	k.Helper()
	work := k.claimStarted(queue, owner, limit)
	if diff := cmp.Diff(append([]model.Seq{}, want...), seqs(work)); diff != "" {
		k.Fatalf("%s: %s", what, diff)
	}
	return work
}

func blockOrder(k *kit) {
	source, owner := k.ordered(keyed(1, true)), k.instance()
	kept := k.putKeys(source.ID, "a", "b", "a", "c", "a", "b")
	work := k.wantClaim("the first", source.ID, owner, 4, kept[:4]...)
	if work[0].Key != source.Agreed.KeyOf([]byte("a")) || work[0].Key.Hash == 0 {
		k.Errorf("claimed with the key %+v", work[0].Key)
	}
	k.wantClaim("none is free", source.ID, owner, 10)
	k.settle(model.SettleSuccess, work[:3]...)
	k.wantClaim("the rest", source.ID, owner, 10, kept[4:]...)

	source = k.ordered(keyed(256, true)) // so that the key has a partition of its own
	kept = k.putKeys(source.ID, "a", "a", "a")
	p := k.params(source.ID, owner, 10)
	p.Slots = []model.Slot{source.Agreed.KeyOf([]byte("a")).Slot}
	if diff := cmp.Diff(kept, seqs(k.claimWith(p))); diff != "" {
		k.Errorf("of one slot: %s", diff)
	}
}

func blockProcessing(k *kit) {
	source, owner := k.ordered(keyed(2, true)), k.instance()
	kept := k.putKeys(source.ID, "a", "a", "b", "a", "b")
	a := k.wantClaim("the head", source.ID, owner, 1, kept[0])
	k.wantClaim("the other key", source.ID, owner, 10, kept[2], kept[4])
	n, err := k.GiveBack(k.ctx(), source.ID, a[0].Token)
	k.must(err)
	if n != 1 {
		k.Fatalf("gave back %d", n)
	}
	a = k.wantClaim("given back", source.ID, owner, 10, kept[0], kept[1], kept[3])
	k.settle(model.SettleSuccess, a[1]) // as only a fault could have it
	more := k.putKeys(source.ID, "a")
	k.settle(model.SettleSuccess, a[0])
	k.wantClaim("a follower is being worked on", source.ID, owner, 10)
	k.settle(model.SettleSuccess, a[2])
	k.wantClaim("all before it are done", source.ID, owner, 10, more...)
	// The same key of another source is another key.
	other := k.ordered(keyed(2, true))
	first := k.putKeys(other.ID, "a")
	k.wantClaim("the other source", other.ID, owner, 10, first...)
}

func blockWaiting(k *kit) {
	for name, kind := range map[string]model.SettleKind{"a retry": model.SettleRetry, "a release": model.SettleRelease} {
		k.run(name, func(k *kit) {
			source, owner := k.ordered(keyed(2, true)), k.instance()
			kept := k.putKeys(source.ID, "a", "a", "b", "a")
			s := settlement(k.wantClaim("the head", source.ID, owner, 1, kept[0])[0], kind)
			s.Delay = time.Hour
			if !k.settleOne(s) {
				k.Fatal("not applied")
			}
			k.wantClaim("the other key", source.ID, owner, 10, kept[2])
			head, _ := k.row(kept[0])
			for _, seq := range []model.Seq{kept[1], kept[3]} {
				if row, _ := k.row(seq); row.DueAt != head.DueAt || row.State != model.Pending || row.RetryCount != 0 {
					k.Errorf("a follower stands as %+v, its head is due at %d", row, head.DueAt)
				}
			}
			if k.due(source.ID) {
				k.Error("there is due work, and nobody can have it")
			}
			k.change(`UPDATE posthouse_work SET due_at = due_at - 7200000000 WHERE queue = %d`, source.ID)
			k.wantClaim("when it falls due", source.ID, owner, 10, kept[0], kept[1], kept[3])
		})
	}
}

func blockFailed(k *kit) {
	source, owner := k.ordered(keyed(2, true)), k.instance()
	kept := k.putKeys(source.ID, "a", "a")
	k.settle(model.SettleFailed, k.wantClaim("the head", source.ID, owner, 1, kept[0])...)
	work := k.wantClaim("its follower", source.ID, owner, 10, kept[1])
	view, err := k.ListMessages(k.ctx(), model.ListParams{Source: source.ID, Filter: model.OnlyFailed, Limit: 1})
	k.must(err)
	if got := replayOne(k, view.Items[0].ID, false); got != model.Replayed {
		k.Fatalf("replay: %v", got)
	}
	// It is due later than its follower was, and the follower does not pass it.
	k.settle(model.SettleRelease, work...)
	k.claimOneByOne(source.ID, owner, kept...)
}

// claimOneByOne claims until all are done, each before the next. A claim may
// only put right what is due when, and take nothing.
func (k *kit) claimOneByOne(queue model.SourceID, owner model.InstanceID, want ...model.Seq) {
	k.Helper()
	var got []model.Seq
	for tries := 0; len(got) < len(want) && tries < 3*len(want)+3; tries++ {
		for _, w := range k.claimStarted(queue, owner, 1) {
			got = append(got, w.Seq)
			k.settle(model.SettleSuccess, w)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		k.Error(diff)
	}
}

func blockRetriedNow(k *kit) {
	source, owner := k.ordered(keyed(1, true)), k.instance()
	kept := k.putKeys(source.ID, "a", "a", "b", "a")
	k.settle(model.SettleRetry, k.wantClaim("the head", source.ID, owner, 1, kept[0])...)
	// The followers have been due for longer.
	k.wantClaim("the other key", source.ID, owner, 1, kept[2])
	k.claimOneByOne(source.ID, owner, kept[0], kept[1], kept[3])
}

func blockSerial(k *kit) {
	source, owner := k.ordered(model.Ordering{Order: model.Serial, Partitions: 1, Block: true}), k.instance()
	kept := k.putKeys(source.ID, "a", "b", "c")
	work := k.wantClaim("two", source.ID, owner, 2, kept[:2]...)
	if work[0].Key != work[1].Key || work[0].Key.Hash == 0 {
		k.Errorf("the keys are %+v and %+v", work[0].Key, work[1].Key)
	}
	k.wantClaim("they are being worked on", source.ID, owner, 10)
	s := settlement(work[0], model.SettleRetry)
	s.Delay = time.Hour
	if !k.settleOne(s) {
		k.Fatal("not applied")
	}
	k.settle(model.SettleSuccess, work[1])
	k.wantClaim("the first waits", source.ID, owner, 10)
	k.change(`UPDATE posthouse_work SET due_at = due_at - 7200000000 WHERE queue = %d`, source.ID)
	k.wantClaim("when it falls due", source.ID, owner, 10, kept[0], kept[2])
}

// blockCrowd has one key with many followers, before the first of another key.
func blockCrowd(k *kit) {
	const followers = 2000
	for name, wait := range map[string]bool{"its head waits": true, "its head is being worked on": false} {
		k.run(name, func(k *kit) {
			source, owner := k.ordered(keyed(1, true)), k.instance()
			crowd := make([]model.NewMessage, 1+followers)
			for i := range crowd {
				crowd[i] = k.keyed(source.ID, "a")
			}
			for part := range slices.Chunk(crowd, 500) {
				k.keep(model.PutPending, part)
			}
			head := k.claimStarted(source.ID, owner, 1)[0]
			if wait {
				s := settlement(head, model.SettleRetry)
				s.Delay = time.Hour
				if !k.settleOne(s) {
					k.Fatal("not applied")
				}
			}
			other := k.putKeys(source.ID, "b")
			for claims := 1; ; claims++ {
				work := k.claimStarted(source.ID, owner, 8)
				if len(work) == 1 && work[0].Seq == other[0] {
					break
				}
				if len(work) > 0 || claims == 16 {
					k.Fatalf("claim %d took %v, want the one of the other key", claims, seqs(work))
				}
			}
			if n := k.stats(source.ID).Pending + k.stats(source.ID).Retrying; wait && n != 1+followers || !wait && n != followers {
				k.Errorf("%d wait", n)
			}
		})
	}
}

// blockAtOnce has several workers take from the same slots, with retries.
func blockAtOnce(k *kit) {
	source := k.ordered(keyed(1, true)).ID
	var keys []string
	for i := range 60 {
		keys = append(keys, fmt.Sprint("key ", i%7))
	}
	kept := k.putKeys(source, keys...)
	keyOf := map[model.Seq]string{}
	for i, seq := range kept {
		keyOf[seq] = keys[i]
	}
	var mu sync.Mutex
	finished := map[model.Seq]bool{} // said before it is settled
	check := func(work []model.Work) {
		mu.Lock()
		defer mu.Unlock()
		taken := seqs(work)
		for _, w := range work {
			for _, before := range kept {
				if before < w.Seq && keyOf[before] == keyOf[w.Seq] && !finished[before] && !slices.Contains(taken, before) {
					k.Errorf("seq %d was claimed before %d, which is of the same key and not finished", w.Seq, before)
				}
			}
		}
	}
	k.workers(4, func(store Store, owner model.InstanceID) bool {
		p := k.params(source, owner, 3)
		p.Start, p.AloneFrom = true, 9
		claimed, err := store.ClaimWork(k.ctx(), p)
		if err != nil {
			k.Error(err)
			return false
		}
		check(claimed.Works)
		var batch []model.Settlement
		held := map[string]bool{}
		for _, w := range claimed.Works {
			kind := model.SettleSuccess
			switch key := keyOf[w.Seq]; {
			case held[key]:
				kind = model.SettleRelease
			case w.RetryCount < 2 && (int(w.Seq)+w.RetryCount)%3 == 0:
				kind, held[key] = model.SettleRetry, true
			}
			batch = append(batch, settlement(w, kind))
			mu.Lock()
			finished[w.Seq] = kind == model.SettleSuccess
			mu.Unlock()
		}
		applied, err := store.Settle(k.ctx(), batch)
		if err != nil || slices.Contains(applied, false) {
			k.Errorf("settled %v: %v", applied, err)
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		done := 0
		for _, ok := range finished {
			if ok {
				done++
			}
		}
		return done < len(kept)
	})
	k.wantKept(source, int64(len(kept)), 0, int64(len(kept)))
}
