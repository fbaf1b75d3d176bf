package storetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// hour is a lease, or a wait, that does not end within a test.
const hour = model.Micros(3_600_000_000)

// patience is how long a test waits for what must come, on a machine with too
// much to do.
const patience = 30 * time.Second

// kit is a store with the shorthands that tests need. Everything that fails
// ends the test.
type kit struct {
	*testing.T
	Store
	h      Harness
	raw    *sql.DB
	agreed *agreements
}

func (h Harness) kit(t *testing.T) *kit {
	t.Helper()
	return h.kitOf(t, h.Open(t))
}

func (h Harness) kitOf(t *testing.T, s Store) *kit {
	t.Helper()
	return &kit{T: t, Store: s, h: h, raw: h.DB(t, s), agreed: &agreements{of: map[model.SourceID]model.Agreed{}}}
}

// run is t.Run with the same store.
func (k *kit) run(name string, test func(*kit)) {
	k.Helper()
	k.T.Run(name, func(t *testing.T) {
		sub := *k
		sub.T = t
		test(&sub)
	})
}

func (k *kit) ctx() context.Context { return k.Context() }

func (k *kit) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

func (k *kit) wantCode(err error, want model.Code) {
	k.Helper()
	if model.CodeOf(err) != want {
		k.Errorf("error %v has code %q, want %q", err, model.CodeOf(err), want)
	}
	if _, ours := errors.AsType[*model.Error](err); err != nil && !ours {
		k.Errorf("error %v (%T) is no *model.Error", err, err)
	}
}

// eventually repeats try until it says true.
func (k *kit) eventually(what string, try func() bool) {
	k.Helper()
	deadline := time.Now().Add(patience)
	for !try() {
		if time.Now().After(deadline) {
			k.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// policy is what sources of these tests want, unless they say otherwise.
var policy = model.RetryPolicy{MaxRetry: 3, Backoff: []time.Duration{time.Second, time.Minute}, OrphanAfter: time.Hour}

// keyed is an ordering with keys.
func keyed(partitions int, block bool) model.Ordering {
	return model.Ordering{Order: model.Keyed, Partitions: partitions, Key: "body.customer", Block: block}
}

// parallel is an ordering without order.
var parallel = model.Ordering{Order: model.Parallel}

// serial is the ordering that sources of these tests have, unless they say
// otherwise.
var serial = model.Ordering{Order: model.Serial, Partitions: 1}

// tables are all that a store has, without the prefix of their names.
var tables = []string{"source", "instance", "lease", "key", "want", "dedup", "message", "work", "outcome", "attempt", "counter"}

// source registers a source of its own.
func (k *kit) source() model.SourceID {
	k.Helper()
	return k.sourceWith(policy).ID
}

func (k *kit) sourceWith(p model.RetryPolicy) model.Source {
	k.Helper()
	return k.register(model.SourceSpec{Policy: p, Wants: serial})
}

// ordered registers a source of its own with an ordering.
func (k *kit) ordered(o model.Ordering) model.Source {
	k.Helper()
	return k.register(model.SourceSpec{Policy: policy, Wants: o})
}

// register makes a source under a new name, switched on.
func (k *kit) register(spec model.SourceSpec) model.Source {
	k.Helper()
	spec.Name, spec.Enabled = "s-"+uuid.NewString(), true
	sources, err := k.Register(k.ctx(), []model.SourceSpec{spec})
	k.must(err)
	if got := sources[0].Agreed; got.Ordering != spec.Wants || got.Draining {
		k.Fatalf("registered with %+v, agreed on %+v", spec.Wants, got)
	}
	k.agreed.set(sources[0])
	return sources[0]
}

// agreements are what holds, as these tests last heard of it.
type agreements struct {
	mu sync.Mutex
	of map[model.SourceID]model.Agreed
}

func (a *agreements) set(sources ...model.Source) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range sources {
		a.of[s.ID] = s.Agreed
	}
}

func (a *agreements) get(queue model.SourceID) model.Agreed {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[queue]
}

// params ask for work of all slots of a queue, under a fresh token.
func (k *kit) params(queue model.SourceID, owner model.InstanceID, limit int) model.ClaimParams {
	p := model.ClaimParams{Queue: queue, Owner: owner, Limit: limit}
	k.fill(&p)
	return p
}

// fill says in p what the test leaves open.
func (k *kit) fill(p *model.ClaimParams) {
	agreed := k.agreed.get(p.Queue)
	if p.Token == 0 {
		p.Token = newToken()
	}
	if p.Generation == 0 {
		p.Generation, p.KeyID, p.Block = agreed.Generation, agreed.KeyID, agreed.Block
	}
	if p.Slots == nil {
		p.Slots = allSlots(agreed)
	}
}

// allSlots are those of all partitions.
func allSlots(a model.Agreed) (slots []model.Slot) {
	for partition := range max(a.Partitions, 1) {
		slots = append(slots, a.SlotsOf(partition)...)
	}
	return slots
}

// due says whether the queue has due work.
func (k *kit) due(queue model.SourceID) bool {
	k.Helper()
	agreed := k.agreed.get(queue)
	due, err := k.DueWork(k.ctx(), model.DueParams{Queue: queue, KeyID: agreed.KeyID, Slots: allSlots(agreed)})
	k.must(err)
	if due.Misplaced {
		k.Fatal("work is said to be misplaced")
	}
	return len(due.Slots) > 0
}

// instance joins an instance of its own, with a lease that does not run out.
func (k *kit) instance() model.InstanceID {
	k.Helper()
	return k.instanceFor(hour)
}

func (k *kit) instanceFor(lease model.Micros) model.InstanceID {
	k.Helper()
	id := model.InstanceID(rand.Int64() | 1)
	k.must(k.JoinInstance(k.ctx(), id, "test", lease, nil))
	return id
}

// workers repeat work until it says false, n at once, as two processes would,
// each worker under an instance of its own.
func (k *kit) workers(n int, work func(store Store, owner model.InstanceID) bool) {
	k.Helper()
	stores := []Store{k.Store, k.h.Again(k.T, k.Store)}
	deadline := time.Now().Add(patience)
	var wg sync.WaitGroup
	for i := range n {
		store, owner := stores[i%2], k.instance()
		wg.Go(func() {
			for work(store, owner) {
				if time.Now().After(deadline) {
					k.Errorf("not done within %v", patience)
					return
				}
			}
		})
	}
	wg.Wait()
}

func newToken() model.Token { return model.Token(rand.Int64() | 1) }

func newMessage(source model.SourceID, body string) model.NewMessage {
	return model.NewMessage{
		ID: uuid.Must(uuid.NewV7()), Source: source, ContentType: "application/json",
		Headers: []byte("Content-Type: application/json\r\n"), Query: []byte("a=1"), Body: []byte(body),
	}
}

// keep wants messages kept, and none to be told a duplicate.
func (k *kit) keep(how model.Put, messages []model.NewMessage) {
	k.Helper()
	duplicates, err := k.PutMessages(k.ctx(), how, messages)
	k.must(err)
	if len(duplicates) > 0 {
		k.Fatalf("of %d messages without keys %v are said to be duplicates", len(messages), duplicates)
	}
}

// put keeps n messages, each of a key of its own, and returns them in their
// order.
func (k *kit) put(source model.SourceID, n int) []model.NewMessage {
	k.Helper()
	agreed := k.agreed.get(source)
	messages := make([]model.NewMessage, n)
	for i := range messages {
		messages[i] = newMessage(source, fmt.Sprintf(`{"n":%d}`, i))
		messages[i].Key = agreed.KeyOf([]byte(strconv.Itoa(i)))
	}
	k.keep(model.PutPending, messages)
	return messages
}

// putKeys keeps one message for each key and returns their seqs.
func (k *kit) putKeys(source model.SourceID, keys ...string) []model.Seq {
	k.Helper()
	messages := make([]model.NewMessage, len(keys))
	for i, key := range keys {
		messages[i] = k.keyed(source, key)
	}
	k.keep(model.PutPending, messages)
	kept := make([]model.Seq, len(keys))
	for i, m := range messages {
		kept[i] = k.seqOf(m.ID)
	}
	return kept
}

// keyed is a message of a key, placed as the source's agreement says.
func (k *kit) keyed(source model.SourceID, key string) model.NewMessage {
	m := newMessage(source, key)
	m.Key = k.agreed.get(source).KeyOf([]byte(key))
	return m
}

// claim claims under a fresh token.
func (k *kit) claim(queue model.SourceID, owner model.InstanceID, limit int) []model.Work {
	k.Helper()
	return k.claimWith(model.ClaimParams{Queue: queue, Owner: owner, Limit: limit})
}

// claimStarted claims and starts under a fresh token.
func (k *kit) claimStarted(queue model.SourceID, owner model.InstanceID, limit int) []model.Work {
	k.Helper()
	return k.claimWith(model.ClaimParams{Queue: queue, Owner: owner, Limit: limit, Start: true, AloneFrom: 1000})
}

func (k *kit) claimWith(p model.ClaimParams) []model.Work {
	k.Helper()
	claimed := k.tryClaim(p)
	if claimed.Outdated || claimed.Misplaced {
		k.Fatalf("nothing was claimed: outdated %t, misplaced %t", claimed.Outdated, claimed.Misplaced)
	}
	return claimed.Works
}

// tryClaim claims, and leaves it to the test whether that may be refused.
func (k *kit) tryClaim(p model.ClaimParams) model.Claimed {
	k.Helper()
	k.fill(&p)
	claimed, err := k.ClaimWork(k.ctx(), p)
	k.must(err)
	return claimed
}

// processing keeps a message and starts it.
func (k *kit) processing(source model.SourceID, owner model.InstanceID) (model.NewMessage, model.Work) {
	k.Helper()
	m := k.put(source, 1)[0]
	work := k.claimStarted(source, owner, 1)
	if len(work) != 1 || work[0].Message == nil || work[0].Message.ID != m.ID {
		k.Fatalf("claimed %+v, want the message just put", work)
	}
	return m, work[0]
}

// settlement is how the attempt of w ended.
func settlement(w model.Work, kind model.SettleKind) model.Settlement {
	s := model.Settlement{
		Seq: w.Seq, Queue: w.Queue, Token: w.Token, Kind: kind, StartedAt: w.StartedAt,
		Duration: 1500 * time.Microsecond, RetryCount: w.RetryCount, Replay: w.Replay,
	}
	switch kind {
	case model.SettleRetry, model.SettleFailed:
		s.Reason, s.Error, s.HTTPStatus = model.ReasonHTTPStatus, "503 from the target", 503
	case model.SettleSuccess:
		s.HTTPStatus = 204
	}
	return s
}

// settleOne says whether the settlement was applied.
func (k *kit) settleOne(s model.Settlement) bool {
	k.Helper()
	applied, err := k.Settle(k.ctx(), []model.Settlement{s})
	k.must(err)
	if len(applied) != 1 {
		k.Fatalf("one settlement has %d answers", len(applied))
	}
	return applied[0]
}

// settle ends claims and wants each applied.
func (k *kit) settle(kind model.SettleKind, work ...model.Work) {
	k.Helper()
	settlements := make([]model.Settlement, len(work))
	for i, w := range work {
		settlements[i] = settlement(w, kind)
	}
	applied, err := k.Settle(k.ctx(), settlements)
	k.must(err)
	for i, ok := range applied {
		if !ok {
			k.Fatalf("settlement %d of %d was not applied", i+1, len(applied))
		}
	}
}

func (k *kit) view(id uuid.UUID) (model.MessageView, []model.AttemptView) {
	k.Helper()
	view, attempts, err := k.Message(k.ctx(), id)
	k.must(err)
	return view, attempts
}

func (k *kit) wantState(id uuid.UUID, want model.State) model.MessageView {
	k.Helper()
	view, _ := k.view(id)
	if view.State != want {
		k.Errorf("the message is %v, want %v", view.State, want)
	}
	return view
}

// row reads the work of a message as it stands in the table.
func (k *kit) row(seq model.Seq) (w model.Work, found bool) {
	k.Helper()
	err := k.raw.QueryRowContext(k.ctx(), fmt.Sprintf(
		`SELECT seq, queue, slot, key_hash, state, due_at, token, owner, started_at, retry_count, lost, replay FROM posthouse_work WHERE seq = %d`, seq)).
		Scan(&w.Seq, &w.Queue, &w.Key.Slot, &w.Key.Hash, &w.State, &w.DueAt, &w.Token, &w.Owner, &w.StartedAt, &w.RetryCount, &w.Lost, &w.Replay)
	if errors.Is(err, sql.ErrNoRows) {
		return w, false
	}
	k.must(err)
	return w, true
}

// change runs raw SQL.
func (k *kit) change(statement string, args ...any) {
	k.Helper()
	_, err := k.raw.ExecContext(k.ctx(), fmt.Sprintf(statement, args...))
	k.must(err)
}

// number asks for one number by raw SQL.
func (k *kit) number(query string) (n int64) {
	k.Helper()
	k.must(k.raw.QueryRowContext(k.ctx(), query).Scan(&n))
	return n
}

// dump is the content of tables as text, to compare.
func (k *kit) dump(tables []string) string {
	k.Helper()
	var text strings.Builder
	for _, table := range tables {
		lines := k.lines(table)
		slices.Sort(lines)
		fmt.Fprintln(&text, table, strings.Join(lines, "\n"))
	}
	return text.String()
}

// lines are the rows of a table as text.
func (k *kit) lines(table string) (lines []string) {
	k.Helper()
	rows, err := k.raw.QueryContext(k.ctx(), "SELECT * FROM posthouse_"+table)
	k.must(err)
	defer rows.Close()
	columns, err := rows.Columns()
	k.must(err)
	fields := make([]any, len(columns))
	for rows.Next() {
		for i := range fields {
			fields[i] = new(any)
		}
		k.must(rows.Scan(fields...))
		texts := make([]string, len(fields))
		for i, field := range fields {
			value, _ := field.(*any)
			texts[i] = fmt.Sprint(*value)
		}
		lines = append(lines, strings.Join(texts, "|"))
	}
	k.must(rows.Err())
	return lines
}

// stats are those of one source.
func (k *kit) stats(source model.SourceID) model.SourceStats {
	k.Helper()
	all, err := k.Stats(k.ctx())
	k.must(err)
	for _, s := range all {
		if s.Source.ID == source {
			return s
		}
	}
	k.Fatalf("no stats of source %d", source)
	return model.SourceStats{}
}

func ids(messages []model.NewMessage) []uuid.UUID {
	all := make([]uuid.UUID, len(messages))
	for i, m := range messages {
		all[i] = m.ID
	}
	return all
}

func seqs(work []model.Work) []model.Seq {
	all := make([]model.Seq, len(work))
	for i, w := range work {
		all[i] = w.Seq
	}
	return all
}
