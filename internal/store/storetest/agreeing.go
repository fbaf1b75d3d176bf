package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func agreeing(k *kit) {
	k.run("IN-22 the first registration agrees, later ones do not", firstAgreement)
	k.run("IN-22 ways to tell keys are numbered, each once, byte for byte", keyNumbers)
	k.run("IN-22 registrations at once give a way to tell keys one number", keyNumbersAtOnce)
	k.run("IN-22 what all living instances want becomes what holds", whoCounts)
	k.run("IN-22 a drain waits for what is being worked on, and nothing is claimed meanwhile", draining)
	k.run("IN-22 the next generation has its partitions, all free", nextPartitions)
	k.run("IN-22 many who agree at once begin one generation", agreeingAtOnce)
	k.run("IN-22 a claim and a drain exclude each other", drainWhileClaiming)
	k.run("IN-22 what instances want is forgotten with them", wantsForgotten)
	k.run("IN-22 what waited for another of its key waits no longer in the next generation", dueAsKept)
}

// joinWanting joins an instance that wants something, which is made known first.
func (k *kit) joinWanting(wants ...model.Want) model.InstanceID {
	k.Helper()
	names := map[model.SourceID]string{}
	all, err := k.Sources(k.ctx())
	k.must(err)
	for _, s := range all {
		names[s.ID] = s.Name
	}
	for _, want := range wants {
		_, err := k.Register(k.ctx(), []model.SourceSpec{{Name: names[want.Queue], Policy: policy, Wants: want.Ordering}})
		k.must(err)
	}
	id := model.InstanceID(newToken())
	k.must(k.JoinInstance(k.ctx(), id, "wanting", hour, wants))
	return id
}

// agree returns what holds for a source after the instance has tried to agree.
func (k *kit) agree(id model.InstanceID, queue model.SourceID) model.Agreed {
	k.Helper()
	sources, err := k.Agree(k.ctx(), id)
	k.must(err)
	all, err := k.Sources(k.ctx())
	k.must(err)
	if diff := cmp.Diff(all, sources); diff != "" {
		k.Errorf("listed and returned: %s", diff)
	}
	k.agreed.set(sources...)
	return k.agreed.get(queue)
}

// agreeTwice is agree, with the time to drain where nothing is to be waited for.
func (k *kit) agreeTwice(id model.InstanceID, queue model.SourceID) model.Agreed {
	k.Helper()
	k.agree(id, queue)
	return k.agree(id, queue)
}

// wantAgreed compares but for the KeyID, which must be there where it must.
func (k *kit) wantAgreed(what string, got model.Agreed, generation int64, o model.Ordering) {
	k.Helper()
	if (got.KeyID != 0) != o.HasKeys() {
		k.Errorf("%s: the key of %+v has number %d", what, o, got.KeyID)
	}
	got.KeyID = 0
	if diff := cmp.Diff(model.Agreed{Ordering: o, Generation: generation}, got); diff != "" {
		k.Errorf("%s: %s", what, diff)
	}
}

func firstAgreement(k *kit) {
	for _, o := range []model.Ordering{serial, parallel, keyed(7, false), keyed(256, true), {Order: model.Serial, Partitions: 1, Block: true}} {
		first := k.ordered(o)
		k.wantAgreed("registered", first.Agreed, first.Agreed.Generation, o)
		if o.HasKeys() && first.Agreed.KeyID != 1 {
			k.Errorf("the first number is %d", first.Agreed.KeyID)
		}
		for _, other := range []model.Ordering{serial, keyed(3, true), parallel} {
			again, err := k.Register(k.ctx(), []model.SourceSpec{{Name: first.Name, Policy: policy, Wants: other}})
			k.must(err)
			if diff := cmp.Diff(first, again[0]); diff != "" {
				k.Errorf("registered again: %s", diff)
			}
		}
		if rows := k.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_lease WHERE queue = %d`, first.ID)); rows != int64(o.Partitions) {
			k.Errorf("%+v has %d partitions", o, rows)
		}
	}
}

// oddExpressions differ in bytes alone.
var oddExpressions = []string{"body.a", "body.A", "body.a ", " body.a", "body.ä", "body.a\u0308", "body.á", "body.'a", `body.\a`, "body.a%", ""}

func keyNumbers(k *kit) {
	source, other := k.source(), k.ordered(keyed(2, false))
	names := map[model.SourceID]string{}
	all, err := k.Sources(k.ctx())
	k.must(err)
	for _, s := range all {
		names[s.ID] = s.Name
	}
	var wants []model.Ordering
	for _, expression := range oddExpressions {
		for _, block := range []bool{false, true} {
			o := model.Ordering{Order: model.Keyed, Partitions: 4, Key: expression, Block: block}
			if expression == "" {
				o = model.Ordering{Order: model.Serial, Partitions: 1, Block: block}
			}
			wants = append(wants, o)
		}
	}
	seen := map[model.KeyID]model.Ordering{}
	for round := range 2 {
		for _, o := range wants {
			o.Partitions += round * min(1, len(o.Key)) // which is no other way to tell keys
			id := k.joinWanting(model.Want{Queue: source, Ordering: o})
			got := k.agreeTwice(id, source)
			k.wantAgreed("agreed", got, got.Generation, o)
			k.leave(id)
			o.Partitions = 0
			if former, known := seen[got.KeyID]; got.KeyID != 0 && known != (round == 1) || known && former != o {
				k.Errorf("round %d: %+v has number %d, as %+v", round, o, got.KeyID, former)
			}
			if got.KeyID != 0 {
				seen[got.KeyID] = o
			}
		}
	}
	for id := range model.KeyID(len(wants) - 1) { // but serial order without block
		if _, known := seen[id+1]; !known {
			k.Errorf("no key has number %d", id+1)
		}
	}
	if other.Agreed.KeyID != 1 {
		k.Errorf("another source's first number is %d", other.Agreed.KeyID)
	}
}

func keyNumbersAtOnce(k *kit) {
	stores := []Store{k.Store, k.h.Again(k.T, k.Store)}
	name := k.ordered(parallel).Name
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			o := keyed(1+i, i%2 == 0)
			o.Key = oddExpressions[i%3]
			got, err := stores[i%2].Register(k.ctx(), []model.SourceSpec{{Name: name, Policy: policy, Wants: o}})
			if err != nil || got[0].Agreed.Order != model.Parallel {
				k.Errorf("%+v, %v", got, err)
			}
		})
	}
	wg.Wait()
	all := `FROM posthouse_key WHERE queue = (SELECT id FROM posthouse_source WHERE name = '` + name + `')`
	if n, last := k.number(`SELECT count(*) `+all), k.number(`SELECT max(id) `+all); n != 6 || last != 6 {
		k.Errorf("6 ways to tell keys have %d numbers, up to %d", n, last)
	}
	// A name that many register at once for the first time.
	spec := model.SourceSpec{Name: name + "-new", Policy: policy, Wants: keyed(5, true)}
	var ids [6]model.Source
	for i := range ids {
		wg.Go(func() {
			got, err := stores[i%2].Register(k.ctx(), []model.SourceSpec{spec})
			if err != nil {
				k.Error(err)
				return
			}
			ids[i] = got[0]
		})
	}
	wg.Wait()
	for i := range ids {
		if diff := cmp.Diff(ids[0], ids[i]); diff != "" {
			k.Error(diff)
		}
	}
	if rows := k.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_lease WHERE queue = %d`, ids[0].ID)); rows != 5 || ids[0].Agreed.KeyID != 1 {
		k.Errorf("%d partitions, key number %d", rows, ids[0].Agreed.KeyID)
	}
}

func whoCounts(k *kit) {
	for _, c := range []struct {
		name    string
		others  []model.Ordering // of living instances
		dead    []model.Ordering
		agreeer int // 0: who wants it; 1: one that wants nothing; 2: dead
		changes bool
	}{
		{"one alone", nil, nil, 0, true},
		{"two that differ", []model.Ordering{serial}, nil, 0, false},
		{"two that differ in partitions", []model.Ordering{keyed(5, true)}, nil, 0, false},
		{"two that differ in how keys are told", []model.Ordering{keyed(4, false)}, nil, 0, false},
		{"three of whom two agree", []model.Ordering{keyed(4, true), parallel}, nil, 0, false},
		{"three that agree", []model.Ordering{keyed(4, true), keyed(4, true)}, nil, 0, true},
		{"the dead do not count", []model.Ordering{keyed(4, true)}, []model.Ordering{serial, parallel}, 0, true},
		{"one that wants nothing begins nothing", nil, nil, 1, false},
		{"a dead one begins nothing", nil, nil, 2, false},
	} {
		k.run(c.name, func(k *kit) {
			source, elsewhere := k.ordered(serial), k.source()
			want := keyed(4, true)
			id := k.joinWanting(model.Want{Queue: source.ID, Ordering: want})
			others := []model.InstanceID{k.instance(), k.joinWanting(model.Want{Queue: elsewhere, Ordering: serial})}
			for _, o := range c.others {
				others = append(others, k.joinWanting(model.Want{Queue: source.ID, Ordering: o}))
			}
			for _, o := range c.dead {
				k.leave(k.joinWanting(model.Want{Queue: source.ID, Ordering: o}))
			}
			switch c.agreeer {
			case 1:
				id = others[0]
			case 2:
				k.leave(id)
			}
			got := k.agreeTwice(id, source.ID)
			if !c.changes {
				if diff := cmp.Diff(source.Agreed, got); diff != "" {
					k.Errorf("it changed: %s", diff)
				}
				return
			}
			k.wantAgreed("agreed", got, source.Agreed.Generation+1, want)
			for _, id := range append(others, id) {
				if diff := cmp.Diff(got, k.agreeTwice(id, source.ID)); diff != "" {
					k.Errorf("agreed again: %s", diff)
				}
			}
		})
	}
	k.run("what holds is agreed on already", func(k *kit) {
		source := k.ordered(keyed(3, true))
		id := k.joinWanting(model.Want{Queue: source.ID, Ordering: source.Agreed.Ordering})
		if diff := cmp.Diff(source.Agreed, k.agreeTwice(id, source.ID)); diff != "" {
			k.Error(diff)
		}
	})
	k.run("many sources at once", func(k *kit) {
		var wants []model.Want
		for range 20 {
			wants = append(wants, model.Want{Queue: k.source(), Ordering: keyed(2, false)})
		}
		id := k.joinWanting(wants...)
		k.agreeTwice(id, wants[0].Queue)
		for _, want := range wants {
			k.wantAgreed("each", k.agreed.get(want.Queue), k.agreed.get(wants[0].Queue).Generation, want.Ordering)
		}
	})
}

func draining(k *kit) {
	source, owner := k.ordered(serial), k.instance()
	k.put(source.ID, 4)
	work := k.claimStarted(source.ID, owner, 2)
	id := k.joinWanting(model.Want{Queue: source.ID, Ordering: keyed(4, false)})
	old := k.params(source.ID, owner, 1)
	drained := source.Agreed
	drained.Draining = true
	for range 2 {
		if diff := cmp.Diff(drained, k.agree(id, source.ID)); diff != "" {
			k.Fatalf("while work is being done: %s", diff)
		}
	}
	refused := func() {
		k.Helper()
		if claimed, err := k.ClaimWork(k.ctx(), old); err != nil || !claimed.Outdated || len(claimed.Works) > 0 {
			k.Errorf("a claim of the old generation: %+v, %v", claimed, err)
		}
	}
	refused()
	if beat := k.beat(owner, false); len(beat.Sources) == 0 {
		k.Error("a heartbeat brings nothing")
	}
	k.settle(model.SettleSuccess, work[0])
	if got := k.agree(id, source.ID); !got.Draining {
		k.Fatalf("one work is left, and it is %+v", got)
	}
	// That the one who wanted it is gone does not stop it, and another ends it.
	k.leave(id)
	k.settle(model.SettleRetry, work[1])
	k.wantAgreed("when all are done", k.agree(k.instance(), source.ID), source.Agreed.Generation+1, keyed(4, false))
	refused()
	claimed := k.tryClaim(model.ClaimParams{Queue: source.ID, Owner: owner, Limit: 9})
	if !claimed.Misplaced || claimed.Outdated {
		k.Fatalf("what was kept before has no keys, and a claim says %+v", claimed)
	}
	all, err := k.Misplaced(k.ctx(), source.ID, k.agreed.get(source.ID).KeyID, 100)
	k.must(err)
	var placed []model.Placed
	for _, m := range all {
		placed = append(placed, model.Placed{Seq: m.Seq, Key: k.agreed.get(source.ID).KeyOf(m.Body)})
	}
	k.must(k.Place(k.ctx(), source.ID, placed))
	if again := k.claim(source.ID, owner, 9); len(again) != 3 || again[2].RetryCount != 1 {
		k.Errorf("claimed %+v", again)
	}
}

func nextPartitions(k *kit) {
	source, holder := k.source(), k.instance()
	current := serial
	for _, next := range []model.Ordering{keyed(4, false), keyed(2, true), parallel, serial, keyed(256, true), serial} {
		if current.Partitions > 0 {
			k.takeParts(holder, parts(source, 0, 1, 2, 3, 255))
		}
		id := k.joinWanting(model.Want{Queue: source, Ordering: next})
		k.agreeTwice(id, source)
		k.leave(id)
		rows := k.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_lease WHERE queue = %d AND holder = 0`, source))
		all := k.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_lease WHERE queue = %d`, source))
		if rows != int64(next.Partitions) || all != rows {
			k.Errorf("%+v has %d partitions of which %d are free", next, all, rows)
		}
		if next.Partitions > 0 {
			last := parts(source, next.Partitions-1)
			k.wantHeld("the last", holder, append(last, parts(source, next.Partitions)...), last)
		}
		current = next
	}
}

func agreeingAtOnce(k *kit) {
	stores := []Store{k.Store, k.h.Again(k.T, k.Store)}
	source := k.ordered(serial)
	for round := range int64(4) {
		o := keyed(2+int(round), round%2 == 0)
		var wg sync.WaitGroup
		var ids []model.InstanceID
		for i := range 6 {
			id := k.joinWanting(model.Want{Queue: source.ID, Ordering: o})
			ids = append(ids, id)
			wg.Go(func() {
				for range 3 {
					if _, err := stores[i%2].Agree(k.ctx(), id); err != nil {
						k.Error(err)
					}
				}
			})
		}
		wg.Wait()
		k.wantAgreed("after all", k.agree(ids[0], source.ID), source.Agreed.Generation+1+round, o)
		if rows := k.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_lease WHERE queue = %d`, source.ID)); rows != int64(o.Partitions) {
			k.Errorf("%+v has %d partitions", o, rows)
		}
		for _, id := range ids {
			k.leave(id)
		}
	}
}

// drainWhileClaiming has workers claim as long as their generation holds, while
// it changes. When the next generation is seen, nothing of the old one may be
// processing any more, nor be claimed.
func drainWhileClaiming(k *kit) {
	source := k.ordered(serial).ID
	k.put(source, 40)
	for round := range 6 {
		wants := []model.Ordering{parallel, serial}[round%2]
		agreed := k.agreed.get(source)
		var drains, next atomic.Bool
		var claims atomic.Int32
		id := k.joinWanting(model.Want{Queue: source, Ordering: wants})
		var wg sync.WaitGroup
		wg.Go(func() {
			for deadline := time.Now().Add(patience); claims.Load() < 12 && time.Now().Before(deadline) && !k.Failed(); {
				if _, err := k.Sources(k.ctx()); err != nil {
					k.Error(err)
				}
			}
			for deadline := time.Now().Add(patience); !next.Load() && time.Now().Before(deadline); {
				sources, err := k.Agree(k.ctx(), id)
				if err != nil {
					k.Error(err)
					next.Store(true)
				}
				for _, s := range sources {
					if s.ID != source {
						continue
					}
					drains.Store(s.Agreed.Draining || s.Agreed.Generation > agreed.Generation)
					next.Store(s.Agreed.Generation > agreed.Generation)
				}
			}
		})
		k.workers(4, func(store Store, owner model.InstanceID) bool {
			p := k.params(source, owner, 2)
			p.Generation, p.Shared, p.Start, p.AloneFrom = agreed.Generation, true, true, 9
			before := drains.Load()
			claimed, err := store.ClaimWork(k.ctx(), p)
			if err != nil {
				k.Error(err)
				return false
			}
			if before && (!claimed.Outdated || len(claimed.Works) > 0) {
				k.Errorf("round %d: claimed after the drain was seen: %+v", round, claimed)
			}
			claims.Add(1)
			if len(claimed.Works) > 0 {
				over := next.Load()
				var batch []model.Settlement
				for _, w := range claimed.Works {
					batch = append(batch, settlement(w, model.SettleRelease))
				}
				applied, err := store.Settle(k.ctx(), batch)
				if err != nil || over {
					k.Errorf("round %d: settled %v after the next generation was seen: %t, %v", round, applied, over, err)
				}
			}
			return !claimed.Outdated
		})
		wg.Wait()
		k.wantAgreed("at last", k.agree(id, source), agreed.Generation+1, wants)
		k.leave(id)
	}
	if got := k.stats(source); got.Pending != 40 || got.Processing != 0 {
		k.Errorf("counted as %+v", got)
	}
}

func wantsForgotten(k *kit) {
	source := k.source()
	id := k.joinWanting(model.Want{Queue: source, Ordering: parallel})
	k.leave(id)
	count := func() int64 {
		return k.number(fmt.Sprintf(`SELECT count(*) FROM posthouse_want WHERE instance = %d`, id))
	}
	k.change(`UPDATE posthouse_instance SET lease_until = lease_until - 6 * %d WHERE id = %d`, 24*hour, id)
	k.instance()
	if count() != 1 {
		k.Error("forgotten too early")
	}
	k.change(`UPDATE posthouse_instance SET lease_until = lease_until - 3 * %d WHERE id = %d`, 24*hour, id)
	k.instance()
	if count() != 0 {
		k.Error("what it wanted is still there")
	}
}

func dueAsKept(k *kit) {
	source, owner := k.ordered(keyed(4, true)), k.instance()
	kept := k.putKeys(source.ID, "a", "a", "a", "b")
	work := k.wantClaim("the head", source.ID, owner, 1, kept[0])
	if !k.settleOne(model.Settlement{Seq: kept[0], Queue: source.ID, Token: work[0].Token, Kind: model.SettleRetry, Delay: time.Hour,
		StartedAt: work[0].StartedAt, Reason: model.ReasonError}) {
		k.Fatal("the head could not be settled")
	}
	k.settle(model.SettleSuccess, k.wantClaim("the other key; those behind the head wait with it", source.ID, owner, 10, kept[3])...)
	k.wantClaim("nothing", source.ID, owner, 10)

	k.leave(owner)
	skip := k.joinWanting(model.Want{Queue: source.ID, Ordering: keyed(4, false)})
	agreed := k.agreeTwice(skip, source.ID)
	if agreed.Block || agreed.Draining {
		k.Fatalf("agreed: %+v", agreed)
	}
	misplaced, err := k.Misplaced(k.ctx(), source.ID, agreed.KeyID, 10)
	k.must(err)
	var placed []model.Placed
	for _, m := range misplaced {
		placed = append(placed, model.Placed{Seq: m.Seq, Key: agreed.KeyOf([]byte("a"))})
	}
	k.must(k.Place(k.ctx(), source.ID, placed))
	late := k.putKeys(source.ID, "a")
	k.wantClaim("those behind the head, before what came later", source.ID, skip, 10, kept[1], kept[2], late[0])
	if head, _ := k.row(kept[0]); head.DueAt < work[0].DueAt+hour/2 {
		k.Errorf("the head itself is due at %d", head.DueAt)
	}
}
