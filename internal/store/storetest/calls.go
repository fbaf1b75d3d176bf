package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func calls(k *kit) {
	k.run("a call whose ctx has ended does nothing", endedContext)
	k.run("IN-02 a put that is cut off at any moment keeps all or nothing", cutOffPuts)
	k.run("IN-02 a settlement that is cut off at any moment is applied whole or not", cutOffSettlements)
	k.run("AC-9 a put ends in time while the messages are locked, and works afterwards", lockedPut)
	k.run("a closed store refuses, and closes again", closed)
}

// tries are all calls that change something, and will where they are made
// alone.
func (k *kit) tries() map[string]func(context.Context) error {
	k.Helper()
	source, owner := k.sourceWith(policy), k.instance()
	failed, w := k.processing(source.ID, owner)
	k.settle(model.SettleFailed, w)
	k.put(source.ID, 3)
	started, claimed := k.claimStarted(source.ID, owner, 1)[0], k.claim(source.ID, owner, 1)[0]
	leased := k.source()
	k.take(leased, owner)
	return map[string]func(context.Context) error{
		"register": func(ctx context.Context) error {
			_, err := k.Register(ctx, []model.SourceSpec{{Name: source.Name, Policy: model.RetryPolicy{MaxRetry: 99}}})
			return err
		},
		"switch": func(ctx context.Context) error { return k.SetEnabled(ctx, source.Name, false) },
		"put": func(ctx context.Context) error {
			_, err := k.PutMessages(ctx, model.PutPending, []model.NewMessage{newMessage(source.ID, "x")})
			return err
		},
		"import": func(ctx context.Context) error {
			_, err := k.PutMessages(ctx, model.PutSuccess, []model.NewMessage{newMessage(source.ID, "x")})
			return err
		},
		"join": func(ctx context.Context) error {
			return k.JoinInstance(ctx, model.InstanceID(newToken()), "x", hour, nil)
		},
		"leave": func(ctx context.Context) error { return k.LeaveInstance(ctx, owner) },
		"beat": func(ctx context.Context) error {
			_, err := k.Beat(ctx, model.HeartbeatParams{Instance: owner, LeaseFor: 3 * hour, Bury: true})
			return err
		},
		"take lease": func(ctx context.Context) error {
			_, err := k.TakeLeases(ctx, owner, []model.Partition{{Queue: source.ID}})
			return err
		},
		"drop lease": func(ctx context.Context) error {
			_, err := k.DropLeases(ctx, owner, anySince(model.Partition{Queue: leased}))
			return err
		},
		"claim": func(ctx context.Context) error {
			p := k.params(source.ID, owner, 1)
			p.Token, p.Start = 5, true
			_, err := k.ClaimWork(ctx, p)
			return err
		},
		"start": func(ctx context.Context) error {
			_, err := k.StartWork(ctx, model.StartParams{Token: claimed.Token, Seqs: []model.Seq{claimed.Seq}})
			return err
		},
		"unstart": func(ctx context.Context) error {
			_, err := k.UnstartWork(ctx, model.StartParams{Token: started.Token, Seqs: []model.Seq{started.Seq}})
			return err
		},
		"give back": func(ctx context.Context) error { _, err := k.GiveBack(ctx, source.ID, claimed.Token); return err },
		"settle": func(ctx context.Context) error {
			_, err := k.Settle(ctx, []model.Settlement{settlement(started, model.SettleSuccess)})
			return err
		},
		"replay": func(ctx context.Context) error {
			_, err := k.Replay(ctx, []uuid.UUID{failed.ID}, false)
			return err
		},
	}
}

// reads are all calls that change nothing.
func (k *kit) reads() map[string]func(context.Context) error {
	m := k.put(k.source(), 1)[0]
	return map[string]func(context.Context) error{
		"sources":   func(ctx context.Context) error { _, err := k.Sources(ctx); return err },
		"instances": func(ctx context.Context) error { _, err := k.Instances(ctx); return err },
		"due": func(ctx context.Context) error {
			_, err := k.DueWork(ctx, model.DueParams{Queue: m.Source, Slots: []model.Slot{0}})
			return err
		},
		"claims":  func(ctx context.Context) error { _, err := k.Claims(ctx, 1); return err },
		"orphans": func(ctx context.Context) error { _, err := k.Orphans(ctx, 1); return err },
		"list":    func(ctx context.Context) error { _, err := k.ListMessages(ctx, model.ListParams{Limit: 1}); return err },
		"message": func(ctx context.Context) error { _, _, err := k.Message(ctx, m.ID); return err },
		"body":    func(ctx context.Context) error { _, err := k.Body(ctx, m.ID); return err },
		"stats":   func(ctx context.Context) error { _, err := k.Stats(ctx); return err },
		"ping":    k.Ping,
		"ready":   k.CheckReady,
		"status":  func(ctx context.Context) error { _, err := k.SchemaStatus(ctx); return err },
	}
}

func endedContext(k *kit) {
	ended, cancel := context.WithCancel(k.ctx())
	cancel()
	passed, cancel := context.WithDeadline(k.ctx(), time.Now().Add(-time.Second))
	defer cancel()
	for name, try := range k.reads() {
		k.run(name, func(k *kit) {
			k.wantCode(try(ended), model.CodeUnavailable)
			k.wantCode(try(passed), model.CodeUnavailable)
			k.must(try(k.ctx()))
		})
	}
	for name := range k.tries() {
		k.run(name, func(k *kit) {
			try := k.tries()[name]
			before := k.dump(tables)
			k.wantCode(try(ended), model.CodeUnavailable)
			k.wantCode(try(passed), model.CodeUnavailable)
			if after := k.dump(tables); after != before {
				k.Error("it changed something")
			}
			k.must(try(k.ctx()))
			if after := k.dump(tables); after == before {
				k.Error("the same call in time changed nothing: this test proves nothing")
			}
		})
	}
}

// cutOff returns a context that ends a little later with every call, from at
// once to well after one batch takes.
func (k *kit) cutOff(i int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(k.ctx(), time.Duration(i*i)*50*time.Microsecond)
}

func cutOffPuts(k *kit) {
	source := k.source()
	kept := 0
	for i := range 24 {
		batch := make([]model.NewMessage, 64)
		for j := range batch {
			batch[j] = newMessage(source, "x")
		}
		ctx, cancel := k.cutOff(i)
		_, err := k.PutMessages(ctx, model.PutPending, batch)
		cancel()
		there := 0
		for _, m := range batch {
			if _, err := k.Body(k.ctx(), m.ID); err == nil {
				there++
			}
		}
		switch {
		case err == nil && there != len(batch):
			k.Fatalf("put %d succeeded and kept %d of %d", i, there, len(batch))
		case err != nil && there != 0 && there != len(batch):
			k.Fatalf("put %d failed and kept %d of %d", i, there, len(batch))
		case err != nil:
			k.wantCode(err, model.CodeUnavailable)
			k.keep(model.PutPending, batch)
		}
		kept += len(batch)
		k.wantKept(source, int64(kept), int64(kept), 0)
	}
}

func cutOffSettlements(k *kit) {
	source, owner := k.source(), k.instance()
	success := int64(0)
	for i := range 24 {
		k.put(source, 32)
		var batch []model.Settlement
		for _, w := range k.claimStarted(source, owner, 32) {
			batch = append(batch, settlement(w, model.SettleSuccess))
		}
		ctx, cancel := k.cutOff(i)
		_, err := k.Settle(ctx, batch)
		cancel()
		if err != nil {
			k.wantCode(err, model.CodeUnavailable)
		}
		switch got := k.stats(source); {
		case got.Success == success+32 && got.Processing == 0:
		case got.Success == success && got.Processing == 32 && err != nil:
			applied, err := k.Settle(k.ctx(), batch)
			k.must(err)
			for _, ok := range applied {
				if !ok {
					k.Fatal("a settlement that had not been applied was refused")
				}
			}
		default:
			k.Fatalf("settlement %d ended with %v and counts %+v after %d", i, err, got, success)
		}
		success += 32
		k.wantKept(source, success, 0, success)
	}
}

func lockedPut(k *kit) {
	source := k.source()
	m := newMessage(source, "locked out")
	release := k.h.Lock(k.T, k.Store)
	var wg sync.WaitGroup
	put := func(limit, slack time.Duration) {
		wg.Go(func() {
			ctx := k.ctx()
			started := time.Now()
			if limit < 5*time.Second { // the store's own bound
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			_, err := k.PutMessages(ctx, model.PutPending, []model.NewMessage{m, newMessage(source, "another")})
			took := time.Since(started)
			k.wantCode(err, model.CodeUnavailable)
			if took > limit+slack {
				k.Errorf("a put that may take %v took %v", limit, took)
			}
		})
	}
	for range 4 {
		put(200*time.Millisecond, time.Second)
	}
	put(5*time.Second, time.Second)
	wg.Wait()
	release()
	k.keep(model.PutPending, []model.NewMessage{m})
	k.wantKept(source, 1, 1, 0)
	if work := k.claimStarted(source, k.instance(), 10); len(work) != 1 {
		k.Errorf("claimed %d", len(work))
	}
}

func closed(k *kit) {
	second := k.h.Again(k.T, k.Store)
	k.must(second.Ping(k.ctx()))
	k.must(second.Close())
	k.must(second.Close())
	k.wantCode(second.Ping(k.ctx()), model.CodeUnavailable)
	_, err := second.Stats(k.ctx())
	k.wantCode(err, model.CodeUnavailable)
	k.must(k.Ping(k.ctx())) // the first one is not touched
}
