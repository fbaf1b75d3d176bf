package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func listing(k *kit) {
	k.run("IN-05 each filter lists its messages, page by page", pages)
	k.run("a list of what was just failed, retried or put begins with the newest", newestFirst)
	k.run("pages neither repeat nor lose a message while others move", pagesWhileMoving)
	k.run("a page without a limit, and a filter that does not exist", func(k *kit) {
		for _, p := range []model.ListParams{{}, {Limit: -1}, {Limit: 1, Filter: 99}} {
			_, err := k.ListMessages(k.ctx(), p)
			k.wantCode(err, model.CodeInvalid)
		}
	})
	k.run("IN-17 stats count every source", counting)
	k.run("NC-23 posthouse_message_log tells the truth in words", messageLog)
}

var filters = map[string]model.Filter{
	"any": model.AnyState, "pending": model.OnlyPending, "retrying": model.OnlyRetrying,
	"processing": model.OnlyProcessing, "success": model.OnlySuccess, "failed": model.OnlyFailed,
}

// everyState makes messages of each kind and returns them by filter.
func (k *kit) everyState(source model.SourceID, owner model.InstanceID, each int) map[string][]uuid.UUID {
	k.Helper()
	made := map[string][]uuid.UUID{}
	keep := func(name string, messages []model.NewMessage) {
		made[name] = append(made[name], ids(messages)...)
		made["any"] = append(made["any"], ids(messages)...)
	}
	for name, kind := range map[string]model.SettleKind{"retrying": model.SettleRetry, "success": model.SettleSuccess, "failed": model.SettleFailed} {
		messages := k.put(source, each)
		keep(name, messages)
		var settlements []model.Settlement
		for _, w := range k.claimStarted(source, owner, each) {
			s := settlement(w, kind)
			if kind == model.SettleRetry {
				s.Delay = time.Hour // else it is claimed again below
			}
			settlements = append(settlements, s)
		}
		_, err := k.Settle(k.ctx(), settlements)
		k.must(err)
	}
	keep("processing", k.put(source, each))
	k.claimStarted(source, owner, each/2)
	k.claim(source, owner, each-each/2)
	keep("pending", k.put(source, each))
	imported := []model.NewMessage{newMessage(source, "old")}
	k.keep(model.PutSuccess, imported)
	keep("success", imported)
	return made
}

// all reads a list to its end.
func (k *kit) all(p model.ListParams) (items []model.MessageView) {
	k.Helper()
	for {
		page, err := k.ListMessages(k.ctx(), p)
		k.must(err)
		items = append(items, page.Items...)
		if len(page.Items) > p.Limit {
			k.Fatalf("a page of %d has %d messages", p.Limit, len(page.Items))
		}
		if page.Next == nil {
			return items
		}
		if len(page.Items) != p.Limit {
			k.Fatalf("a page of %d has %d messages, and there is another", p.Limit, len(page.Items))
		}
		p.After = *page.Next
	}
}

func pages(k *kit) {
	k.h.kit(k.T).run("in a store of its own", func(k *kit) {
		owner := k.instance()
		sources := []model.SourceID{k.source(), k.ordered(keyed(256, false)).ID, k.source(), k.source()} // the last one stays empty
		made := map[model.SourceID]map[string][]uuid.UUID{0: {}}
		for i, source := range sources[:3] {
			made[source] = k.everyState(source, owner, 4+i)
			for name, messages := range made[source] {
				made[0][name] = append(made[0][name], messages...)
			}
		}
		for name, filter := range filters {
			for _, source := range append(sources, 0) {
				for _, limit := range []int{1, 3, 100} {
					items := k.all(model.ListParams{Source: source, Filter: filter, Limit: limit})
					what := fmt.Sprintf("%s of source %d by %d", name, source, limit)
					var got []string
					for i, item := range items {
						got = append(got, item.ID.String())
						if i > 0 {
							k.wantOrder(what, filter, items[i-1], item)
						}
						if limit < 100 {
							continue
						}
						view, _ := k.view(item.ID)
						if diff := cmp.Diff(view, item); diff != "" {
							k.Errorf("%s: shown alone and in the list: %s", what, diff)
						}
					}
					var want []string
					for _, id := range made[source][name] {
						want = append(want, id.String())
					}
					slices.Sort(want)
					slices.Sort(got)
					if diff := cmp.Diff(want, got); diff != "" {
						k.Errorf("%s: %s", what, diff)
					}
				}
			}
		}
	})
}

// wantOrder checks that a comes before b in a list.
func (k *kit) wantOrder(what string, filter model.Filter, a, b model.MessageView) {
	k.Helper()
	var before, after model.Micros
	if filter != model.AnyState && filter != model.OnlySuccess {
		first, _ := k.row(a.Seq)
		second, _ := k.row(b.Seq)
		before, after = first.DueAt, second.DueAt
	}
	if before < after || before == after && a.Seq <= b.Seq {
		k.Errorf("%s: (%d, %d) comes before (%d, %d)", what, before, a.Seq, after, b.Seq)
	}
}

func newestFirst(k *kit) {
	source, owner := k.source(), k.instance()
	messages := k.put(source, 3)
	work := k.claimStarted(source, owner, 3)
	for _, i := range []int{1, 2, 0} {
		k.settle(model.SettleFailed, work[i])
	}
	check := func(filter model.Filter, want ...uuid.UUID) {
		k.Helper()
		var got []uuid.UUID
		for _, item := range k.all(model.ListParams{Source: source, Filter: filter, Limit: 2}) {
			got = append(got, item.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			k.Error(diff)
		}
	}
	check(model.OnlyFailed, messages[0].ID, messages[2].ID, messages[1].ID)
	check(model.AnyState, messages[2].ID, messages[1].ID, messages[0].ID)
	for _, i := range []int{2, 0, 1} {
		replayOne(k, messages[i].ID, false)
	}
	check(model.OnlyPending, messages[1].ID, messages[0].ID, messages[2].ID)
}

func pagesWhileMoving(k *kit) {
	source, owner := k.source(), k.instance()
	k.put(source, 20)
	seen := map[uuid.UUID]int{}
	p := model.ListParams{Source: source, Limit: 4}
	for {
		page, err := k.ListMessages(k.ctx(), p)
		k.must(err)
		for _, item := range page.Items {
			seen[item.ID]++
		}
		if page.Next == nil {
			break
		}
		p.After = *page.Next
		k.put(source, 3)
		k.settle(model.SettleSuccess, k.claimStarted(source, owner, 2)...)
	}
	if len(seen) != 20 {
		k.Errorf("%d messages were seen, want the 20 that were there", len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			k.Errorf("%v was seen %d times", id, n)
		}
	}
}

func counting(k *kit) {
	k.h.kit(k.T).run("in a store of its own", func(k *kit) {
		owner := k.instance()
		busy, idle := k.sourceWith(policy), k.sourceWith(policy)
		k.must(k.SetEnabled(k.ctx(), idle.Name, false))
		k.everyState(busy.ID, owner, 6)
		var got []model.SourceStats
		k.eventually("an age", func() bool {
			stats, err := k.Stats(k.ctx())
			k.must(err)
			got = stats
			return len(got) == 2 && max(got[0].OldestDueAge, got[1].OldestDueAge) > 20*time.Millisecond
		})
		idle.Enabled = false
		want := []model.SourceStats{
			{Source: busy, Pending: 6, Due: 6, Retrying: 6, Processing: 6, Success: 7, Failed: 6},
			{Source: idle},
		}
		slices.SortFunc(want, func(a, b model.SourceStats) int {
			return slices.Compare([]byte(a.Source.Name), []byte(b.Source.Name))
		})
		for i := range got {
			if age := got[i].OldestDueAge; (got[i].Due == 0) != (age == 0) || age > time.Minute {
				k.Errorf("the oldest of %d due fell due %v ago", got[i].Due, age)
			}
			got[i].OldestDueAge = 0
		}
		if diff := cmp.Diff(want, got); diff != "" {
			k.Error(diff)
		}
	})
}
