package storetest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func claiming(k *kit) {
	k.run("IN-09 claims take the oldest by (due_at, seq)", claimOrder)
	k.run("IN-09 a claim takes at most its limit, of its own queue", claimLimit)
	k.run("IN-11 what is not yet due is not claimed", claimNotYetDue)
	k.run("IN-06 claimers at once never get the same work", claimersAtOnce)
	k.run("IN-12 workers, replays and heartbeats at once end each message once", everythingAtOnce)
	k.run("IN-14 a dead or unknown instance claims nothing", deadClaimsNothing)
	k.run("IN-14 work that was lost on its last try is claimed without being started", claimAlone)
	k.run("IN-14 starting and unstarting", startAndUnstart)
	k.run("IN-12 giving back takes a whole claim of one queue, and no other", giveBack)
	k.run("IN-12 an instance finds its claims", findClaims)
}

func claimOrder(k *kit) {
	source, owner := k.source(), k.instance()
	k.put(source, 6)
	work := k.claimStarted(source, owner, 6)
	// Due again in another order than that of seq: 4, 1, 3 one after another.
	for _, i := range []int{4, 1, 3} {
		k.settle(model.SettleRetry, work[i])
	}
	k.settle(model.SettleRelease, work[5], work[0], work[2]) // these keep their due_at
	var more []model.Work
	token := newToken()
	for range 3 { // so that each takes the head of what is due, not all of it
		more = append(more, k.claimWith(model.ClaimParams{Queue: source, Owner: owner, Token: token, Limit: 2, Start: true, AloneFrom: 9})...)
	}
	want := []model.Seq{work[0].Seq, work[2].Seq, work[5].Seq, work[4].Seq, work[1].Seq, work[3].Seq}
	if diff := cmp.Diff(want, seqs(more)); diff != "" {
		k.Error(diff)
	}
	for i, w := range more {
		if w.State != model.Processing || w.Owner != owner || w.Queue != source || w.Token != token || w.StartedAt == 0 {
			k.Errorf("work %d was claimed as %+v", i, w)
		}
		row, _ := k.row(w.Seq)
		w.Message = nil
		if diff := cmp.Diff(row, w); diff != "" {
			k.Errorf("work %d, in the table and as claimed: %s", i, diff)
		}
	}
}

func claimLimit(k *kit) {
	source, other, owner := k.source(), k.source(), k.instance()
	k.put(source, 5)
	k.put(other, 2)
	for _, c := range []struct{ limit, want int }{{2, 2}, {10, 3}, {10, 0}} {
		if got := k.claim(source, owner, c.limit); len(got) != c.want {
			k.Errorf("a claim of %d took %d, want %d", c.limit, len(got), c.want)
		}
	}
	if k.due(source) {
		k.Error("all was claimed, and it is due")
	}
	if !k.due(other) {
		k.Error("the other queue is not due")
	}
	if got := k.claim(other, owner, 10); len(got) != 2 {
		k.Errorf("the other queue gave %d", len(got))
	}
}

func claimNotYetDue(k *kit) {
	source, owner := k.source(), k.instance()
	m, w := k.processing(source, owner)
	s := settlement(w, model.SettleRetry)
	s.Delay = 30 * time.Millisecond
	if !k.settleOne(s) {
		k.Fatal("not applied")
	}
	row, _ := k.row(w.Seq)
	var again []model.Work
	k.eventually("the retry", func() bool {
		again = k.claimStarted(source, owner, 1)
		return len(again) == 1
	})
	if again[0].StartedAt < row.DueAt || again[0].Message.ID != m.ID {
		k.Errorf("claimed at %d, due at %d", again[0].StartedAt, row.DueAt)
	}
}

func claimersAtOnce(k *kit) {
	source := k.source()
	k.put(source, 300)
	var mu sync.Mutex
	times := map[model.Seq]int{}
	stores := []Store{k.Store, k.h.Again(k.T, k.Store)}
	var wg sync.WaitGroup
	for i := range 8 {
		owner, store := k.instance(), stores[i%2]
		wg.Go(func() {
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
				p := k.params(source, owner, 7)
				p.Start, p.AloneFrom, p.Shared = true, 3, true
				claimed, err := store.ClaimWork(k.ctx(), p)
				if err != nil {
					k.Error(err)
					return
				}
				mu.Lock()
				for i, w := range claimed.Works {
					times[w.Seq]++
					if i > 0 && w.Seq < claimed.Works[i-1].Seq {
						k.Errorf("seq %d comes after %d", w.Seq, claimed.Works[i-1].Seq)
					}
				}
				all := len(times) == 300
				mu.Unlock()
				if all {
					return
				}
			}
		})
	}
	wg.Wait()
	if len(times) != 300 {
		k.Errorf("%d of 300 were claimed", len(times))
	}
	for seq, n := range times {
		if n != 1 {
			k.Errorf("seq %d was claimed %d times", seq, n)
		}
	}
}

// everythingAtOnce has two processes work on the same queue until all is done.
// No call may fail: whatever deadlocks or conflicts is the store's to repeat.
func everythingAtOnce(k *kit) {
	const messages = 150
	source := k.source()
	all := k.put(source, messages)
	stores := []Store{k.Store, k.h.Again(k.T, k.Store)}
	ctx, cancel := context.WithTimeout(k.ctx(), 2*patience)
	defer cancel()
	var succeeded atomic.Int64
	done := func() bool { return succeeded.Load() == messages || ctx.Err() != nil || k.Failed() }
	check := func(err error) {
		if err != nil && ctx.Err() == nil {
			k.Error(err)
		}
	}
	var wg sync.WaitGroup
	for i := range 6 {
		owner, store := k.instance(), stores[i%2]
		wg.Go(func() {
			for n := i; !done(); n++ {
				p := k.params(source, owner, 5)
				p.Start, p.AloneFrom, p.Shared = n%2 == 0, 9, true
				claimed, err := store.ClaimWork(ctx, p)
				check(err)
				var batch []model.Settlement
				for _, w := range claimed.Works {
					kinds := []model.SettleKind{model.SettleSuccess, model.SettleRetry, model.SettleSuccess, model.SettleFailed, model.SettleRelease}
					batch = append(batch, settlement(w, kinds[n%len(kinds)]))
					n++
				}
				slices.Reverse(batch)
				applied, err := store.Settle(ctx, batch)
				check(err)
				for j, ok := range applied {
					if !ok {
						k.Error("a settlement of a claim that nobody else touches was refused")
					}
					if batch[j].Kind == model.SettleSuccess {
						succeeded.Add(1)
					}
				}
				_, err = store.Beat(ctx, model.HeartbeatParams{Instance: owner, LeaseFor: hour, Bury: true})
				check(err)
			}
		})
	}
	for i := range 2 {
		wg.Go(func() {
			for !done() {
				_, err := stores[i].Replay(ctx, ids(all), false)
				check(err)
				_, err = stores[i].Orphans(ctx, 10)
				check(err)
				_, err = stores[i].PutMessages(ctx, model.PutPending, all[i*10:i*10+20])
				check(err)
			}
		})
	}
	wg.Wait()
	if n := succeeded.Load(); n != messages {
		k.Fatalf("%d of %d succeeded", n, messages)
	}
	k.wantKept(source, messages, 0, messages)
	if got := k.stats(source).Success; got != messages {
		k.Errorf("%d are counted as success", got)
	}
	for _, m := range all {
		view, attempts := k.view(m.ID)
		perReplay := map[int]int{}
		for _, a := range attempts {
			perReplay[a.Replay]++
		}
		if view.State != model.Success || perReplay[view.Replay] != view.RetryCount+1 {
			k.Errorf("%+v with attempts %+v", view, attempts)
		}
	}
}

func deadClaimsNothing(k *kit) {
	source, dead := k.source(), k.instance()
	k.put(source, 1)
	k.must(k.LeaveInstance(k.ctx(), dead))
	for name, owner := range map[string]model.InstanceID{"dead": dead, "unknown": 12345} {
		if work := k.claim(source, owner, 1); len(work) != 0 {
			k.Errorf("a %s instance claimed", name)
		}
	}
	if work := k.claim(source, k.instance(), 1); len(work) != 1 {
		k.Error("a living one did not")
	}
}

func claimAlone(k *kit) {
	source, owner := k.source(), k.instance()
	k.put(source, 4)
	work := k.claimStarted(source, owner, 4)
	settlements := []model.Settlement{
		settlement(work[0], model.SettleRetry), // failed, but never lost
		settlement(work[1], model.SettleRetry), // lost
		settlement(work[2], model.SettleRelease),
		settlement(work[3], model.SettleRetry), // lost
	}
	settlements[1].Lost = true
	settlements[3].Lost = true
	_, err := k.Settle(k.ctx(), settlements)
	k.must(err)
	claim := func(aloneFrom int) []model.Work {
		return k.claimWith(model.ClaimParams{Queue: source, Owner: owner, Limit: 10, Start: true, AloneFrom: aloneFrom})
	}
	for aloneFrom, wantAlone := range map[int][]model.Seq{1: {work[1].Seq, work[3].Seq}, 0: {work[1].Seq, work[3].Seq}, 2: nil} {
		got := claim(aloneFrom)
		if len(got) != 4 {
			k.Fatalf("claimed %d", len(got))
		}
		var alone []model.Seq
		for _, w := range got {
			row, _ := k.row(w.Seq)
			if row.StartedAt != w.StartedAt {
				k.Errorf("started at %d, in the table at %d", w.StartedAt, row.StartedAt)
			}
			if (w.StartedAt == 0) != (w.Message == nil) {
				k.Errorf("started at %d, with its message: %t", w.StartedAt, w.Message != nil)
			}
			if w.StartedAt == 0 {
				alone = append(alone, w.Seq)
			}
		}
		if diff := cmp.Diff(wantAlone, alone); diff != "" {
			k.Errorf("alone from %d: %s", aloneFrom, diff)
		}
		k.settle(model.SettleRelease, got...)
	}
	for _, w := range k.claim(source, owner, 10) {
		if w.StartedAt != 0 || w.Message != nil {
			k.Errorf("claimed without start as %+v", w)
		}
	}
}

func startAndUnstart(k *kit) {
	source, owner := k.source(), k.instance()
	messages := k.put(source, 4)
	work := k.claim(source, owner, 4)
	token := work[0].Token
	asked := []model.Seq{work[2].Seq, work[0].Seq, work[3].Seq, 1 << 60}
	started, err := k.StartWork(k.ctx(), model.StartParams{Token: token, Seqs: asked})
	k.must(err)
	if diff := cmp.Diff(asked[:3], seqs(started)); diff != "" {
		k.Fatalf("in the order asked for: %s", diff)
	}
	for i, w := range started {
		row, _ := k.row(w.Seq)
		if w.StartedAt == 0 || row.StartedAt != w.StartedAt || w.Token != token || w.Owner != owner || w.State != model.Processing {
			k.Errorf("started as %+v, in the table %+v", w, row)
		}
		if want := messages[[]int{2, 0, 3}[i]]; w.Message == nil || sameMessage(want, w.Message.NewMessage) != "" || w.Message.Seq != w.Seq {
			k.Errorf("work %d has the message %+v", i, w.Message)
		}
	}
	again, err := k.StartWork(k.ctx(), model.StartParams{Token: token, Seqs: seqs(work)})
	k.must(err)
	if diff := cmp.Diff([]model.Seq{work[1].Seq}, seqs(again)); diff != "" {
		k.Errorf("started once more: %s", diff)
	}
	n, err := k.UnstartWork(k.ctx(), model.StartParams{Token: token, Seqs: []model.Seq{work[3].Seq, work[2].Seq}})
	k.must(err)
	if n != 2 {
		k.Errorf("unstarted %d, want 2", n)
	}
	n, err = k.UnstartWork(k.ctx(), model.StartParams{Token: token, Seqs: seqs(work)})
	k.must(err)
	if n != 2 {
		k.Errorf("unstarted the remaining %d, want 2", n)
	}
	for _, w := range work {
		if row, _ := k.row(w.Seq); row.StartedAt != 0 || row.State != model.Processing || row.Token != token {
			k.Errorf("unstarted as %+v", row)
		}
	}
	none, err := k.StartWork(k.ctx(), model.StartParams{Token: token})
	if err != nil || len(none) != 0 {
		k.Errorf("nothing to start: %v, %v", none, err)
	}
}

func giveBack(k *kit) {
	source, other, owner := k.source(), k.source(), k.instance()
	k.put(source, 5)
	k.put(other, 1)
	token := newToken()
	mine := k.claimWith(model.ClaimParams{Queue: source, Owner: owner, Token: token, Limit: 3})
	k.claimWith(model.ClaimParams{Queue: other, Owner: owner, Token: token, Limit: 1})
	k.claim(source, owner, 1) // of another claim
	_, err := k.StartWork(k.ctx(), model.StartParams{Token: token, Seqs: seqs(mine[:1])})
	k.must(err)
	n, err := k.GiveBack(k.ctx(), source, token)
	k.must(err)
	if n != 3 {
		k.Errorf("gave back %d, want 3", n)
	}
	if got := k.stats(source); got.Pending != 4 || got.Processing != 1 {
		k.Errorf("counted as %+v", got)
	}
	if got := k.stats(other); got.Processing != 1 {
		k.Errorf("the other queue counts %+v", got)
	}
	n, err = k.GiveBack(k.ctx(), source, token)
	k.must(err)
	if n != 0 {
		k.Errorf("gave back %d once more", n)
	}
	if again := k.claim(source, owner, 10); len(again) != 4 || again[0].Seq != mine[0].Seq || again[0].RetryCount != 0 {
		k.Errorf("claimed again: %+v", again)
	}
}

func findClaims(k *kit) {
	first, second, owner, neighbour := k.source(), k.source(), k.instance(), k.instance()
	k.put(first, 6)
	k.put(second, 2)
	a := k.claim(first, owner, 2)
	b := k.claimStarted(first, owner, 2)
	c := k.claim(second, owner, 1)
	k.claim(first, neighbour, 1)
	check := func(want ...model.Work) {
		k.Helper()
		got, err := k.Claims(k.ctx(), owner)
		k.must(err)
		found := map[model.Claim]int{}
		for _, claim := range got {
			found[claim]++
		}
		expected := map[model.Claim]int{}
		for _, w := range want {
			expected[model.Claim{Queue: w.Queue, Token: w.Token}] = 1
		}
		if diff := cmp.Diff(expected, found); diff != "" {
			k.Error(diff)
		}
	}
	check(a[0], b[0], c[0])
	k.settle(model.SettleSuccess, b[0])
	check(a[0], b[0], c[0]) // one of two is left
	k.settle(model.SettleRetry, b[1])
	k.settle(model.SettleFailed, c[0])
	check(a[0])
	k.settle(model.SettleRelease, a...)
	check()
}
