package storetest

import (
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func replaying(k *kit) {
	k.run("IN-18 a replay answers for each id, in order", replayAnswers)
	k.run("IN-18 a replay starts anew and keeps the former attempts", replayStartsAnew)
	k.run("IN-18 a forced replay of success takes the outcome back", forcedReplay)
	k.run("IN-14 a replay forgets that the work was lost", replayForgetsLoss)
}

func replayOne(k *kit, id uuid.UUID, force bool) model.ReplayResult {
	k.Helper()
	results, err := k.Replay(k.ctx(), []uuid.UUID{id}, force)
	k.must(err)
	if len(results) != 1 {
		k.Fatalf("one replay has %d answers", len(results))
	}
	return results[0]
}

func replayAnswers(k *kit) {
	source, owner := k.source(), k.instance()
	messages := k.put(source, 5)
	work := k.claimStarted(source, owner, 4)
	k.settle(model.SettleFailed, work[0], work[2])
	k.settle(model.SettleSuccess, work[1])
	// 0 and 2 failed, 1 success, 3 processing, 4 pending.
	asked := []uuid.UUID{messages[4].ID, messages[2].ID, uuid.New(), messages[1].ID, messages[3].ID, messages[2].ID}
	got, err := k.Replay(k.ctx(), asked, false)
	k.must(err)
	want := []model.ReplayResult{model.ReplayRefused, model.Replayed, model.ReplayNotFound,
		model.ReplayRefused, model.ReplayRefused, model.ReplayRefused}
	if diff := cmp.Diff(want, got); diff != "" {
		k.Error(diff)
	}
	got, err = k.Replay(k.ctx(), asked, true)
	k.must(err)
	want = []model.ReplayResult{model.ReplayRefused, model.ReplayRefused, model.ReplayNotFound,
		model.Replayed, model.ReplayRefused, model.ReplayRefused}
	if diff := cmp.Diff(want, got); diff != "" {
		k.Errorf("forced: %s", diff)
	}
	k.wantState(messages[0].ID, model.Failed)
	none, err := k.Replay(k.ctx(), nil, true)
	if err != nil || len(none) != 0 {
		k.Errorf("no ids: %v, %v", none, err)
	}
}

func replayStartsAnew(k *kit) {
	source, owner := k.source(), k.instance()
	m, w := k.processing(source, owner)
	k.settle(model.SettleRetry, w)
	w = k.claimStarted(source, owner, 1)[0]
	k.settle(model.SettleFailed, w)
	failed, _ := k.row(w.Seq)
	k.put(source, 1) // due before the replayed one
	for round := 1; round <= 2; round++ {
		if got := replayOne(k, m.ID, false); got != model.Replayed {
			k.Fatalf("replay %d: %v", round, got)
		}
		row, _ := k.row(w.Seq)
		if row.State != model.Pending || row.RetryCount != 0 || row.Lost != 0 || row.Replay != round || row.DueAt < failed.DueAt {
			k.Fatalf("replay %d: %+v", round, row)
		}
		view, _ := k.view(m.ID)
		if view.Replay != round || view.RetryCount != 0 || view.Error != "" || view.NextRetryAt != 0 || view.FinishedAt != 0 {
			k.Errorf("replay %d is shown as %+v", round, view)
		}
		works := k.claimStarted(source, owner, 2)
		if round == 1 {
			if len(works) != 2 || works[1].Seq != w.Seq {
				k.Fatalf("claimed %+v, want the replayed one after the one that is due longer", works)
			}
			k.settle(model.SettleSuccess, works[0])
			works = works[1:]
		}
		if works[0].Attempt() != 1 || works[0].Replay != round {
			k.Errorf("claimed as %+v", works[0])
		}
		k.settle(model.SettleFailed, works[0])
	}
	_, attempts := k.view(m.ID)
	var got [][2]int
	for _, a := range attempts {
		got = append(got, [2]int{a.Replay, a.N})
	}
	if diff := cmp.Diff([][2]int{{0, 1}, {0, 2}, {1, 1}, {2, 1}}, got); diff != "" {
		k.Errorf("attempts by replay and number: %s", diff)
	}
}

func forcedReplay(k *kit) {
	source, owner := k.source(), k.instance()
	m, w := k.processing(source, owner)
	k.settle(model.SettleSuccess, w)
	for round := 1; round <= 2; round++ {
		if got := k.stats(source); got.Success != 1 {
			k.Errorf("%d successes are counted, want 1", got.Success)
		}
		if got := replayOne(k, m.ID, true); got != model.Replayed {
			k.Fatalf("replay %d: %v", round, got)
		}
		k.wantKept(source, 1, 1, 0)
		got := k.stats(source)
		if got.Success != 0 || got.Pending != 1 || got.Due != 1 {
			k.Errorf("counted as %+v", got)
		}
		again := k.claimStarted(source, owner, 1)
		if len(again) != 1 || again[0].Replay != round || again[0].RetryCount != 0 || again[0].Message.ID != m.ID {
			k.Fatalf("claimed %+v", again)
		}
		k.settle(model.SettleSuccess, again[0])
	}
	view, attempts := k.view(m.ID)
	if view.Replay != 2 || view.State != model.Success {
		k.Errorf("shown as %+v", view)
	}
	// The outcomes of the former rounds went with their replay.
	if len(attempts) != 1 || attempts[0].Replay != 2 || attempts[0].N != 1 || attempts[0].Outcome != model.OutcomeSuccess {
		k.Errorf("attempts %+v", attempts)
	}
}

func replayForgetsLoss(k *kit) {
	source, owner := k.source(), k.instance()
	m, w := k.processing(source, owner)
	lost := settlement(w, model.SettleFailed)
	lost.Lost = true
	if !k.settleOne(lost) || replayOne(k, m.ID, false) != model.Replayed {
		k.Fatal("not replayed")
	}
	work := k.claimWith(model.ClaimParams{Queue: source, Owner: owner, Limit: 1, Start: true})
	if len(work) != 1 || work[0].StartedAt == 0 || work[0].Lost != 0 {
		k.Errorf("claimed %+v, want it started with others", work)
	}
}
