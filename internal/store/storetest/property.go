package storetest

import (
	"context"
	"flag"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/posthouse/posthouse/internal/model"
)

// How many random histories are tried where -rapid.checks does not say it.
const (
	propertyChecks      = 20
	propertyChecksShort = 6
)

// property drives random histories against the store and the oracle, and wants
// the same answers and the same lists after every step.
func (h Harness) property(t *testing.T) {
	checks := propertyChecks
	if testing.Short() || h.FewHistories {
		checks = propertyChecksShort
	}
	if testing.Short() {
		checks *= 5 // of which rapid tries one in five then
	}
	unlessAsked(t, "rapid.checks", strconv.Itoa(checks))
	unlessAsked(t, "rapid.nofailfile", "true") // the seed is printed
	s := h.Open(t)
	rapid.Check(t, func(t *rapid.T) { newMachine(t, s).run(t) })
}

// asked are the flags of the command line. They are read before the first of
// them is set here: what was ever set, and be it back to its default, counts as
// given from then on.
var asked = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { names[f.Name] = true })
	return names
})

// unlessAsked sets a flag for this test where the command line does not.
func unlessAsked(t *testing.T, name, value string) {
	t.Helper()
	if asked()[name] {
		return
	}
	former := flag.Lookup(name).Value.String()
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set(name, former) })
}

// machine is one history: a few queues, instances and messages.
type machine struct {
	s         Store
	o         *oracle
	ctx       context.Context
	queues    []model.SourceID
	instances []model.InstanceID // living and dead
	agreed    agreements
	claimed   []model.Work // as they were claimed, long lost ones too
}

func newMachine(t *rapid.T, s Store) *machine {
	m := &machine{s: s, o: newOracle(), ctx: context.Background(), agreed: agreements{of: map[model.SourceID]model.Agreed{}}}
	var specs []model.SourceSpec
	for _, o := range []model.Ordering{serial, keyed(3, false), keyed(2, true)} {
		specs = append(specs, model.SourceSpec{Name: "p-" + uuid.NewString(), Policy: policy, Wants: o})
	}
	sources, err := s.Register(m.ctx, specs)
	m.must(t, err)
	m.agreed.set(sources...)
	for _, source := range sources {
		m.queues = append(m.queues, source.ID)
	}
	m.join(t)
	return m
}

func (m *machine) run(t *rapid.T) {
	t.Repeat(map[string]func(*rapid.T){
		"":            m.compare,
		"put":         m.put,
		"put again":   m.putAgain,
		"claim":       m.claim,
		"claim more":  m.claim, // twice as often as the others
		"crowd":       m.crowd,
		"crowd more":  m.crowd,
		"start":       m.start,
		"unstart":     m.unstart,
		"give back":   m.giveBack,
		"settle":      m.settle,
		"settle more": m.settle,
		"replay":      m.replay,
		"recover":     m.recover,
		"join":        m.join,
		"leave":       m.leave,
		"beat":        m.beat,
		"take":        m.take,
		"drop":        m.drop,
		"list":        m.list,
		"show":        m.show,
	})
}

func (m *machine) must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) same(t *rapid.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s: oracle (-), store (+): %s", what, diff)
	}
}

func (m *machine) queue(t *rapid.T) model.SourceID {
	return rapid.SampledFrom(m.queues).Draw(t, "queue")
}

func (m *machine) instance(t *rapid.T) model.InstanceID {
	return rapid.SampledFrom(m.instances).Draw(t, "instance")
}

// work draws one that was claimed once, more likely a late one.
func (m *machine) work(t *rapid.T) model.Work {
	if len(m.claimed) == 0 {
		t.Skip("nothing was claimed")
	}
	from := max(0, len(m.claimed)-8)
	if rapid.IntRange(0, 4).Draw(t, "long ago") == 0 {
		from = 0
	}
	return rapid.SampledFrom(m.claimed[from:]).Draw(t, "work")
}

func (m *machine) put(t *rapid.T) {
	how := model.PutPending
	if rapid.IntRange(0, 4).Draw(t, "import") == 0 {
		how = model.PutSuccess
	}
	var messages []model.NewMessage
	for range rapid.IntRange(1, 4).Draw(t, "messages") {
		body := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "body")
		messages = append(messages, m.message(t, m.queue(t), string(body)))
	}
	m.keep(t, how, messages)
}

// message is a new one of a queue and of one of a few keys.
func (m *machine) message(t *rapid.T, queue model.SourceID, body string) model.NewMessage {
	message := newMessage(queue, body)
	message.Key = m.key(t, queue)
	return message
}

func (m *machine) key(t *rapid.T, queue model.SourceID) model.Key {
	return m.agreed.get(queue).KeyOf([]byte(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")))
}

// putAgain mixes messages that are known with a new one.
func (m *machine) putAgain(t *rapid.T) {
	if len(m.o.messages) == 0 {
		t.Skip("nothing was put")
	}
	messages := []model.NewMessage{m.message(t, m.queue(t), "new")}
	for range rapid.IntRange(1, 4).Draw(t, "messages") {
		messages = append(messages, rapid.SampledFrom(m.o.messages).Draw(t, "message").NewMessage)
	}
	m.keep(t, rapid.SampledFrom([]model.Put{model.PutPending, model.PutSuccess}).Draw(t, "how"), messages)
}

func (m *machine) keep(t *rapid.T, how model.Put, messages []model.NewMessage) {
	_, err := m.s.PutMessages(m.ctx, how, messages)
	m.must(t, err)
	for _, kept := range m.o.put(how, messages) {
		got, err := m.s.Body(m.ctx, kept.ID)
		m.must(t, err)
		if diff := sameMessage(kept.NewMessage, got.NewMessage); diff != "" {
			t.Fatalf("kept: %s", diff)
		}
		kept.seq = got.Seq
	}
}

func seqsOf(truths []*truth) []model.Seq {
	all := make([]model.Seq, 0, len(truths))
	for _, t := range truths {
		all = append(all, t.seq)
	}
	return all
}

// sameWork compares what a claim or start returned.
func (m *machine) sameWork(t *rapid.T, want []*truth, got []model.Work) {
	t.Helper()
	m.same(t, "works", seqsOf(want), seqs(got))
	for i, w := range got {
		is := want[i]
		if w.Queue != is.Source || w.Key != is.Key || w.State != model.Processing || w.Token != is.token || w.Owner != is.owner ||
			(w.StartedAt != 0) != is.started || w.RetryCount != is.retries || w.Lost != is.lost || w.Replay != is.replay {
			t.Fatalf("work %+v, oracle %+v", w, is)
		}
		if (w.Message != nil) != is.started || is.started && sameMessage(is.NewMessage, w.Message.NewMessage) != "" {
			t.Fatalf("work with message %+v, oracle %+v", w.Message, is)
		}
	}
}

func (m *machine) claim(t *rapid.T) { m.claimOf(t, m.queue(t)) }

// crowd puts and claims where keys block, so that some are kept back.
func (m *machine) crowd(t *rapid.T) {
	queue := m.queues[len(m.queues)-1]
	var messages []model.NewMessage
	for range rapid.IntRange(1, 3).Draw(t, "messages") {
		messages = append(messages, m.message(t, queue, "crowd"))
	}
	m.keep(t, model.PutPending, messages)
	m.claimOf(t, queue)
}

func (m *machine) claimOf(t *rapid.T, queue model.SourceID) {
	p := model.ClaimParams{Queue: queue, Owner: m.instance(t), Token: newToken(), Limit: rapid.IntRange(1, 4).Draw(t, "limit"),
		Start: rapid.Bool().Draw(t, "start"), AloneFrom: rapid.IntRange(0, 2).Draw(t, "alone from")}
	agreed := m.agreed.get(p.Queue)
	p.Generation, p.KeyID, p.Block, p.Slots = agreed.Generation, agreed.KeyID, agreed.Block, allSlots(agreed)
	if agreed.Partitions > 1 && rapid.Bool().Draw(t, "one partition") {
		p.Slots = agreed.SlotsOf(rapid.IntRange(0, agreed.Partitions-1).Draw(t, "partition"))
	}
	got, err := m.s.ClaimWork(m.ctx, p)
	m.must(t, err)
	if misplaced := m.o.misplaced(p.Queue, p.KeyID); len(misplaced) > 0 {
		m.same(t, "claim", model.Claimed{Misplaced: true}, got)
		m.place(t, p.Queue, p.KeyID, misplaced)
		return
	}
	m.same(t, "claim", model.Claimed{Works: got.Works}, got)
	m.sameWork(t, m.o.claim(p), got.Works)
	m.claimed = append(m.claimed, got.Works...)
}

// place puts work where it belongs that was replayed.
func (m *machine) place(t *rapid.T, queue model.SourceID, id model.KeyID, want []*truth) {
	got, err := m.s.Misplaced(m.ctx, queue, id, 100)
	m.must(t, err)
	var found []model.Seq
	var placed []model.Placed
	for i, message := range got {
		found = append(found, message.Seq)
		placed = append(placed, model.Placed{Seq: message.Seq, Key: m.key(t, queue)})
		if i < len(want) {
			want[i].Key = placed[i].Key
		}
	}
	m.same(t, "misplaced", seqsOf(want), found)
	m.must(t, m.s.Place(m.ctx, queue, placed))
}

// marks draws works of one claim, perhaps with one that is not of it.
func (m *machine) marks(t *rapid.T) model.StartParams {
	first := m.work(t)
	p := model.StartParams{Token: first.Token}
	for _, w := range m.claimed {
		if w.Token == first.Token && (w.Seq == first.Seq || rapid.Bool().Draw(t, "with it")) {
			p.Seqs = append(p.Seqs, w.Seq)
		}
	}
	if stranger := m.work(t); stranger.Token != first.Token && !slices.Contains(p.Seqs, stranger.Seq) {
		p.Seqs = append(p.Seqs, stranger.Seq)
	}
	return p
}

func (m *machine) start(t *rapid.T) {
	p := m.marks(t)
	got, err := m.s.StartWork(m.ctx, p)
	m.must(t, err)
	m.sameWork(t, m.o.mark(p, true), got)
	for _, w := range got {
		for i := range m.claimed {
			if m.claimed[i].Token == w.Token && m.claimed[i].Seq == w.Seq {
				m.claimed[i].StartedAt = w.StartedAt
			}
		}
	}
}

func (m *machine) unstart(t *rapid.T) {
	p := m.marks(t)
	got, err := m.s.UnstartWork(m.ctx, p)
	m.must(t, err)
	m.same(t, "unstarted", len(m.o.mark(p, false)), got)
}

func (m *machine) giveBack(t *rapid.T) {
	w := m.work(t)
	queue := m.queue(t)
	got, err := m.s.GiveBack(m.ctx, queue, w.Token)
	m.must(t, err)
	m.same(t, "given back", m.o.giveBack(queue, w.Token), got)
}

// drawSettlement ends a claim in some way, perhaps with another's token.
func (m *machine) drawSettlement(t *rapid.T, w model.Work) model.Settlement {
	s := settlement(w, rapid.SampledFrom([]model.SettleKind{model.SettleSuccess, model.SettleRetry,
		model.SettleFailed, model.SettleRelease}).Draw(t, "kind"))
	s.Delay = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "delay")
	if m.agreed.get(w.Queue).Block {
		s.Delay = 0 // how long others wait for it is a matter of how far the store looked
	}
	if s.Kind == model.SettleRetry || s.Kind == model.SettleFailed {
		s.Lost = rapid.Bool().Draw(t, "lost")
		s.Reason = rapid.SampledFrom(model.Reasons()).Draw(t, "reason")
		s.Error = rapid.StringN(0, 20, -1).Draw(t, "error")
		s.HTTPStatus = rapid.SampledFrom([]int{0, 503}).Draw(t, "status")
	}
	if rapid.IntRange(0, 9).Draw(t, "wrong token") == 0 {
		s.Token++
	}
	return s
}

func (m *machine) settle(t *rapid.T) {
	var batch []model.Settlement
	seen := map[model.Seq]bool{}
	for range rapid.IntRange(1, 5).Draw(t, "settlements") {
		w := m.work(t)
		if seen[w.Seq] {
			continue
		}
		seen[w.Seq] = true
		batch = append(batch, m.drawSettlement(t, w))
	}
	m.apply(t, batch)
}

func (m *machine) apply(t *rapid.T, batch []model.Settlement) {
	t.Helper()
	if len(batch) == 0 {
		return
	}
	applied, err := m.s.Settle(m.ctx, batch)
	m.must(t, err)
	m.same(t, "applied", m.o.settle(batch), applied)
}

func (m *machine) replay(t *rapid.T) {
	force := rapid.Bool().Draw(t, "force")
	asked := []uuid.UUID{uuid.New()}
	want := []model.ReplayResult{model.ReplayNotFound}
	m.o.now++
	if len(m.o.messages) > 0 {
		for range rapid.IntRange(1, 3).Draw(t, "messages") {
			is := rapid.SampledFrom(m.o.messages).Draw(t, "message")
			asked = append(asked, is.ID)
			want = append(want, m.o.replayOf(is, force))
		}
	}
	got, err := m.s.Replay(m.ctx, asked, force)
	m.must(t, err)
	m.same(t, "replayed", want, got)
}

func (m *machine) list(t *rapid.T) {
	m.compareList(t, m.queue(t), model.Filter(rapid.IntRange(0, int(model.OnlyFailed)).Draw(t, "filter")), rapid.IntRange(1, 5).Draw(t, "limit"))
}

func (m *machine) compareList(t *rapid.T, queue model.SourceID, filter model.Filter, limit int) {
	t.Helper()
	want := m.o.list(queue, filter)
	p := model.ListParams{Source: queue, Filter: filter, Limit: limit}
	for {
		page, err := m.s.ListMessages(m.ctx, p)
		m.must(t, err)
		for _, item := range page.Items {
			if len(want) == 0 {
				t.Fatalf("filter %d lists %+v, which is one too many", filter, item)
			}
			m.sameView(t, want[0], item)
			want = want[1:]
		}
		if page.Next == nil {
			break
		}
		p.After = *page.Next
	}
	if len(want) > 0 {
		t.Fatalf("filter %d does not list %+v and %d more", filter, want[0], len(want)-1)
	}
}

func (m *machine) sameView(t *rapid.T, is *truth, v model.MessageView) {
	t.Helper()
	want := model.MessageView{Seq: is.seq, ID: is.ID, Source: v.Source, State: is.state, RetryCount: is.retries, Replay: is.replay,
		ContentType: is.ContentType, Size: int64(len(is.Body)), ReceivedAt: v.ReceivedAt, FinishedAt: v.FinishedAt, NextRetryAt: v.NextRetryAt}
	if is.retries > 0 && !is.in(model.Success) {
		want.Error = is.attempts[len(is.attempts)-1].Error
	}
	m.same(t, "message", want, v)
	if (v.NextRetryAt != 0) != is.passes(model.OnlyRetrying) || (v.FinishedAt != 0) != (is.in(model.Success) || is.in(model.Failed)) {
		t.Fatalf("next retry at %d and finished at %d, oracle %+v", v.NextRetryAt, v.FinishedAt, is)
	}
}

func (m *machine) show(t *rapid.T) {
	if len(m.o.messages) == 0 {
		t.Skip("nothing was put")
	}
	is := rapid.SampledFrom(m.o.messages).Draw(t, "message")
	view, attempts, err := m.s.Message(m.ctx, is.ID)
	m.must(t, err)
	m.sameView(t, is, view)
	for i := range attempts {
		attempts[i].StartedAt, attempts[i].EndedAt = 0, 0
	}
	m.same(t, "attempts", append([]model.AttemptView{}, is.attempts...), append([]model.AttemptView{}, attempts...))
}

// compare is what must hold after every step.
func (m *machine) compare(t *rapid.T) {
	all, err := m.s.Stats(m.ctx)
	m.must(t, err)
	for _, queue := range m.queues {
		for _, got := range all {
			if got.Source.ID == queue {
				got.Source, got.OldestDueAge = model.Source{}, 0
				m.same(t, "stats", m.o.stats(queue), got)
			}
		}
		agreed := m.agreed.get(queue)
		due, err := m.s.DueWork(m.ctx, model.DueParams{Queue: queue, KeyID: agreed.KeyID, Slots: allSlots(agreed)})
		m.must(t, err)
		slots := map[model.Slot]bool{}
		for _, is := range m.o.dueIn(queue, allSlots(agreed)) {
			slots[is.Key.Slot] = true
		}
		want := model.Due{Slots: slices.Sorted(maps.Keys(slots)), Misplaced: len(m.o.misplaced(queue, agreed.KeyID)) > 0}
		slices.Sort(due.Slots)
		m.same(t, "due", want, due)
		m.compareList(t, queue, model.AnyState, 100)
	}
	for _, id := range m.instances {
		claims, err := m.s.Claims(m.ctx, id)
		m.must(t, err)
		got := map[model.Claim]bool{}
		for _, claim := range claims {
			got[claim] = true
		}
		m.same(t, "claims", m.o.claims(id), got)
	}
	instances, err := m.s.Instances(m.ctx)
	m.must(t, err)
	for _, i := range instances {
		if living, ours := m.o.living[i.ID]; ours && living == i.Dead {
			t.Fatalf("instance %+v, oracle says it lives: %t", i, living)
		}
	}
}
