package storetest

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func transitions(k *kit) {
	k.run("IN-04 every operation in every state", everyPair)
	k.run("IN-12 a token that is stale after recovery changes nothing", staleToken)
	k.run("IN-12 each settlement of a batch is guarded for itself", mixedBatch)
	k.run("IN-11 a failed attempt waits for its backoff by the store's clock", retryWaits)
	k.run("IN-11 an error text of 1 MB with NULs is kept short and clean", hugeError)
	k.run("IN-13 a failed message keeps its cause and its place", failedFacts)
	k.run("IN-04 a released claim keeps its attempt and its place", releaseKeepsPlace)
	k.run("IN-04 a postponed claim keeps its attempt and waits", releasePostpones)
	k.run("IN-04 a success is written down once, with its attempt", successFacts)
	k.run("a settlement of no kind is refused", func(k *kit) {
		_, w := k.processing(k.source(), k.instance())
		s := settlement(w, model.SettleSuccess)
		s.Kind = 0
		_, err := k.Settle(k.ctx(), []model.Settlement{s})
		k.wantCode(err, model.CodeInvalid)
		if row, _ := k.row(w.Seq); row.State != model.Processing {
			k.Errorf("the work is %v", row.State)
		}
	})
}

// subject is one message with whatever its last claim was.
type subject struct {
	source model.SourceID
	owner  model.InstanceID
	m      model.NewMessage
	work   model.Work // as last claimed; zero before
}

// The states of IN-04, told apart further where the rows differ.
var stateMakers = []struct {
	name string
	make func(k *kit, s *subject)
}{
	{"pending", func(k *kit, s *subject) { s.m = k.put(s.source, 1)[0] }},
	{"retrying", func(k *kit, s *subject) {
		s.m, s.work = k.processing(s.source, s.owner)
		k.settle(model.SettleRetry, s.work)
	}},
	{"claimed", func(k *kit, s *subject) {
		s.m = k.put(s.source, 1)[0]
		s.work = k.claim(s.source, s.owner, 1)[0]
	}},
	{"started", func(k *kit, s *subject) { s.m, s.work = k.processing(s.source, s.owner) }},
	{"failed", func(k *kit, s *subject) {
		s.m, s.work = k.processing(s.source, s.owner)
		k.settle(model.SettleFailed, s.work)
	}},
	{"success", func(k *kit, s *subject) {
		s.m, s.work = k.processing(s.source, s.owner)
		k.settle(model.SettleSuccess, s.work)
	}},
	{"imported", func(k *kit, s *subject) {
		s.m = newMessage(s.source, "import")
		k.keep(model.PutSuccess, []model.NewMessage{s.m})
	}},
}

// operation tries something and says whether the store reports an effect.
type operation struct {
	name string
	try  func(k *kit, s *subject) bool
}

func operations() []operation {
	all := []operation{
		{"put", func(k *kit, s *subject) bool {
			k.keep(model.PutPending, []model.NewMessage{s.m})
			return false
		}},
		{"import", func(k *kit, s *subject) bool {
			k.keep(model.PutSuccess, []model.NewMessage{s.m})
			return false
		}},
		{"claim", func(k *kit, s *subject) bool { return len(k.claim(s.source, s.owner, 5)) > 0 }},
		{"replay", func(k *kit, s *subject) bool { return replayOne(k, s.m.ID, false) == model.Replayed }},
		{"forced replay", func(k *kit, s *subject) bool { return replayOne(k, s.m.ID, true) == model.Replayed }},
	}
	for _, token := range []struct {
		name string
		of   func(*subject) model.Token
	}{
		{"its token", func(s *subject) model.Token { return s.work.Token }},
		{"another token", func(*subject) model.Token { return newToken() }},
		{"no token", func(*subject) model.Token { return 0 }},
	} {
		start := func(s *subject, k *kit) model.StartParams {
			return model.StartParams{Token: token.of(s), Seqs: []model.Seq{k.seqOf(s.m.ID)}}
		}
		all = append(all,
			operation{"start with " + token.name, func(k *kit, s *subject) bool {
				work, err := k.StartWork(k.ctx(), start(s, k))
				k.must(err)
				return len(work) > 0
			}},
			operation{"unstart with " + token.name, func(k *kit, s *subject) bool {
				n, err := k.UnstartWork(k.ctx(), start(s, k))
				k.must(err)
				return n > 0
			}},
			operation{"give back with " + token.name, func(k *kit, s *subject) bool {
				n, err := k.GiveBack(k.ctx(), s.source, token.of(s))
				k.must(err)
				return n > 0
			}})
		for name, kind := range map[string]model.SettleKind{
			"success": model.SettleSuccess, "retry": model.SettleRetry, "fail": model.SettleFailed, "release": model.SettleRelease,
		} {
			all = append(all, operation{name + " with " + token.name, func(k *kit, s *subject) bool {
				end := settlement(s.work, kind)
				end.Seq, end.Queue, end.Token = k.seqOf(s.m.ID), s.source, token.of(s)
				return k.settleOne(end)
			}})
		}
	}
	return all
}

// allowed is the whole of IN-04: state and operation to the state that
// follows. Every other pair changes nothing. "started" and "claimed" are both
// processing.
var allowed = map[string]map[string]string{
	"pending":  {"claim": "claimed"},
	"retrying": {"claim": "claimed"},
	"claimed": {
		"start with its token": "started", "give back with its token": "pending", "success with its token": "success",
		"retry with its token": "pending", "fail with its token": "failed", "release with its token": "pending",
	},
	"started": {
		"unstart with its token": "claimed", "give back with its token": "pending", "success with its token": "success",
		"retry with its token": "pending", "fail with its token": "failed", "release with its token": "pending",
	},
	"failed":   {"replay": "pending", "forced replay": "pending"},
	"success":  {"forced replay": "pending"},
	"imported": {"forced replay": "pending"},
}

// facts are all that the store knows of a message.
type facts struct {
	View     model.MessageView
	Attempts []model.AttemptView
	Work     model.Work
	HasWork  bool
	Stats    model.SourceStats
}

func (k *kit) facts(s *subject) (f facts) {
	k.Helper()
	f.View, f.Attempts = k.view(s.m.ID)
	f.Work, f.HasWork = k.row(f.View.Seq)
	f.Stats = k.stats(s.source)
	f.Stats.OldestDueAge = 0
	return f
}

func everyPair(k *kit) {
	owner := k.instance()
	for _, state := range stateMakers {
		// One message that is refused everything, one each for what changes it.
		s := &subject{source: k.source(), owner: owner}
		state.make(k, s)
		before := k.facts(s)
		for _, op := range operations() {
			want, ok := allowed[state.name][op.name]
			if !ok {
				k.run(state.name+" refuses "+op.name, func(k *kit) {
					if op.try(k, s) {
						k.Error("reported as done")
					}
					if diff := cmp.Diff(before, k.facts(s)); diff != "" {
						k.Errorf("changed: %s", diff)
					}
				})
				continue
			}
			k.run(fmt.Sprintf("%s allows %s to %s", state.name, op.name, want), func(k *kit) {
				s := &subject{source: k.source(), owner: owner}
				state.make(k, s)
				if !op.try(k, s) {
					k.Error("reported as not done")
				}
				after := k.facts(s)
				got := after.View.State.String()
				if after.View.State == model.Processing {
					got = map[bool]string{true: "started", false: "claimed"}[after.Work.StartedAt != 0]
				}
				if got != want {
					k.Errorf("it is %s now, want %s", got, want)
				}
				if after.HasWork == (after.View.State == model.Success) {
					k.Errorf("%s, and has work: %t", got, after.HasWork)
				}
				if w := after.Work; after.View.State != model.Processing && (w.Token != 0 || w.Owner != 0 || w.StartedAt != 0) {
					k.Errorf("%s, but its work is %+v", got, w)
				}
			})
		}
	}
}

// seqOf finds the seq behind a public id.
func (k *kit) seqOf(id uuid.UUID) model.Seq {
	k.Helper()
	view, _ := k.view(id)
	return view.Seq
}

func staleToken(k *kit) {
	source, owner := k.source(), k.instance()
	_, stale := k.processing(source, owner)
	k.must(k.LeaveInstance(k.ctx(), owner))
	lost := settlement(stale, model.SettleRetry)
	lost.Lost, lost.Reason = true, model.ReasonWorkerLost
	if !k.settleOne(lost) {
		k.Fatal("not recovered")
	}
	before, _ := k.row(stale.Seq)
	for _, kind := range []model.SettleKind{model.SettleSuccess, model.SettleRetry, model.SettleFailed, model.SettleRelease} {
		if k.settleOne(settlement(stale, kind)) {
			k.Errorf("a late settlement of kind %d was applied to pending work", kind)
		}
	}
	again := k.claimStarted(source, k.instance(), 1)
	if len(again) != 1 || again[0].RetryCount != 1 || again[0].Lost != 1 {
		k.Fatalf("claimed again: %+v (it was %+v)", again, before)
	}
	for _, kind := range []model.SettleKind{model.SettleSuccess, model.SettleRetry, model.SettleFailed, model.SettleRelease} {
		if k.settleOne(settlement(stale, kind)) {
			k.Errorf("a late settlement of kind %d was applied to another's claim", kind)
		}
	}
	k.settle(model.SettleSuccess, again[0])
}

func mixedBatch(k *kit) {
	source, other, owner := k.source(), k.source(), k.instance()
	k.put(source, 5)
	k.put(other, 1)
	work := append(k.claimStarted(source, owner, 5), k.claimStarted(other, owner, 1)...)
	batch := []model.Settlement{
		settlement(work[4], model.SettleSuccess),
		settlement(work[1], model.SettleRetry),
		settlement(work[0], model.SettleSuccess),
		settlement(work[2], model.SettleFailed),
		settlement(work[3], model.SettleRelease),
		settlement(work[5], model.SettleSuccess),
		{Seq: 1 << 60, Queue: source, Token: 5, Kind: model.SettleSuccess},
	}
	batch[2].Token++
	applied, err := k.Settle(k.ctx(), batch)
	k.must(err)
	if diff := cmp.Diff([]bool{true, true, false, true, true, true, false}, applied); diff != "" {
		k.Error(diff)
	}
	got := k.stats(source)
	got.Source, got.OldestDueAge = model.Source{}, 0
	want := model.SourceStats{Pending: 1, Retrying: 1, Due: 2, Processing: 1, Success: 1, Failed: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		k.Error(diff)
	}
	if got := k.stats(other).Success; got != 1 {
		k.Errorf("the other source counts %d successes", got)
	}
}

func retryWaits(k *kit) {
	source, owner := k.source(), k.instance()
	m, w := k.processing(source, owner)
	s := settlement(w, model.SettleRetry)
	s.Delay = 90 * time.Minute
	if !k.settleOne(s) {
		k.Fatal("not applied")
	}
	row, _ := k.row(w.Seq)
	wait := row.DueAt.Sub(w.StartedAt)
	if wait < s.Delay || wait > s.Delay+time.Minute {
		k.Errorf("due %v after the start, want %v after the settlement", wait, s.Delay)
	}
	view, attempts := k.view(m.ID)
	if view.State != model.Pending || view.RetryCount != 1 || view.NextRetryAt != row.DueAt || view.Error != s.Error || view.FinishedAt != 0 {
		k.Errorf("shown as %+v", view)
	}
	want := []model.AttemptView{{N: 1, StartedAt: w.StartedAt, EndedAt: w.StartedAt.Add(s.Duration), Outcome: model.OutcomeFailed,
		Reason: s.Reason, Error: s.Error, HTTPStatus: s.HTTPStatus}}
	if diff := cmp.Diff(want, attempts); diff != "" {
		k.Error(diff)
	}
	if k.due(source) {
		k.Error("it is due at once")
	}
	if work := k.claim(source, owner, 1); len(work) != 0 {
		k.Error("claimed before it fell due")
	}
	if got := k.stats(source); got.Retrying != 1 || got.Pending != 0 || got.Due != 0 || got.OldestDueAge != 0 {
		k.Errorf("counted as %+v", got)
	}
}

func hugeError(k *kit) {
	source, owner := k.source(), k.instance()
	m, w := k.processing(source, owner)
	s := settlement(w, model.SettleFailed)
	s.Error = strings.Repeat("\x00é\xff'", 1<<20/5)
	if !k.settleOne(s) {
		k.Fatal("not applied")
	}
	view, attempts := k.view(m.ID)
	if view.Error != model.CleanError(s.Error) || len(attempts) != 1 || attempts[0].Error != view.Error {
		k.Errorf("kept as %q", view.Error)
	}
	if n := utf8.RuneCountInString(view.Error); n != model.MaxErrorRunes {
		k.Errorf("%d characters were kept", n)
	}
}

func failedFacts(k *kit) {
	source, owner := k.source(), k.instance()
	m, w := k.processing(source, owner)
	k.settle(model.SettleRetry, w)
	w = k.claimStarted(source, owner, 1)[0]
	if w.RetryCount != 1 || w.Attempt() != 2 {
		k.Errorf("claimed again as %+v", w)
	}
	s := settlement(w, model.SettleFailed)
	s.Lost, s.Reason, s.Error, s.HTTPStatus = true, model.ReasonWorkerLost, "worker lost", 0
	if !k.settleOne(s) {
		k.Fatal("not applied")
	}
	view, attempts := k.view(m.ID)
	if view.State != model.Failed || view.RetryCount != 2 || view.NextRetryAt != 0 || view.Error != "worker lost" ||
		view.FinishedAt != w.StartedAt.Add(s.Duration) {
		k.Errorf("shown as %+v", view)
	}
	if len(attempts) != 2 || attempts[0].N != 1 || attempts[0].Outcome != model.OutcomeFailed || attempts[1].N != 2 ||
		attempts[1].Outcome != model.OutcomeLost || attempts[1].Reason != model.ReasonWorkerLost || attempts[1].HTTPStatus != 0 {
		k.Errorf("attempts %+v", attempts)
	}
	row, _ := k.row(w.Seq)
	if row.DueAt < w.StartedAt || row.Lost != 1 || row.RetryCount != 2 {
		k.Errorf("the work is %+v; due_at is to be the time of the failure", row)
	}
}

func releaseKeepsPlace(k *kit) {
	source, owner := k.source(), k.instance()
	k.put(source, 3)
	first := k.claimStarted(source, owner, 1)[0]
	k.settle(model.SettleRelease, first)
	row, _ := k.row(first.Seq)
	if row.DueAt != first.DueAt || row.RetryCount != 0 || row.State != model.Pending {
		k.Errorf("released as %+v, claimed as %+v", row, first)
	}
	if again := k.claimStarted(source, owner, 1); again[0].Seq != first.Seq {
		k.Errorf("seq %d is claimed before the released %d", again[0].Seq, first.Seq)
	}
	second := k.claimStarted(source, owner, 1)[0]
	n, err := k.GiveBack(k.ctx(), source, second.Token)
	k.must(err)
	row, _ = k.row(second.Seq)
	if n != 1 || row.DueAt != second.DueAt || row.RetryCount != 0 || row.State != model.Pending {
		k.Errorf("given back as %+v, claimed as %+v", row, second)
	}
}

func releasePostpones(k *kit) {
	source, owner := k.source(), k.instance()
	m, w := k.processing(source, owner)
	s := settlement(w, model.SettleRelease)
	s.Delay = time.Hour
	if !k.settleOne(s) {
		k.Fatal("not applied")
	}
	view, attempts := k.view(m.ID)
	if view.State != model.Pending || view.RetryCount != 0 || view.NextRetryAt != 0 || len(attempts) != 0 {
		k.Errorf("shown as %+v with attempts %v", view, attempts)
	}
	row, _ := k.row(w.Seq)
	if wait := row.DueAt.Sub(w.StartedAt); wait < time.Hour || wait > time.Hour+time.Minute {
		k.Errorf("due after %v", wait)
	}
}

func successFacts(k *kit) {
	source, owner := k.source(), k.instance()
	m, w := k.processing(source, owner)
	k.settle(model.SettleRetry, w)
	w = k.claimStarted(source, owner, 1)[0]
	k.settle(model.SettleSuccess, w)
	view, attempts := k.view(m.ID)
	if view.State != model.Success || view.RetryCount != 1 || view.Error != "" || view.NextRetryAt != 0 || view.FinishedAt < w.StartedAt {
		k.Errorf("shown as %+v", view)
	}
	if len(attempts) != 2 || attempts[0].Outcome != model.OutcomeFailed {
		k.Fatalf("attempts %+v", attempts)
	}
	want := model.AttemptView{N: 2, StartedAt: w.StartedAt, EndedAt: view.FinishedAt, Outcome: model.OutcomeSuccess, HTTPStatus: 204}
	if diff := cmp.Diff(want, attempts[1]); diff != "" {
		k.Error(diff)
	}
	k.wantKept(source, 1, 0, 1)
}
