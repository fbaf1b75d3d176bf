package storetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	h   Harness
	raw *sql.DB
}

func (h Harness) kit(t *testing.T) *kit {
	t.Helper()
	return h.kitOf(t, h.Open(t))
}

func (h Harness) kitOf(t *testing.T, s Store) *kit {
	t.Helper()
	return &kit{T: t, Store: s, h: h, raw: h.DB(t, s)}
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

// source registers a source of its own.
func (k *kit) source() model.SourceID {
	k.Helper()
	return k.sourceWith(policy).ID
}

func (k *kit) sourceWith(p model.RetryPolicy) model.Source {
	k.Helper()
	sources, err := k.Register(k.ctx(), []model.SourceSpec{{Name: "s-" + uuid.NewString(), Enabled: true, Policy: p}})
	k.must(err)
	return sources[0]
}

// instance joins an instance of its own, with a lease that does not run out.
func (k *kit) instance() model.InstanceID {
	k.Helper()
	return k.instanceFor(hour)
}

func (k *kit) instanceFor(lease model.Micros) model.InstanceID {
	k.Helper()
	id := model.InstanceID(rand.Int64() | 1)
	k.must(k.JoinInstance(k.ctx(), id, "test", lease))
	return id
}

func newToken() model.Token { return model.Token(rand.Int64() | 1) }

func newMessage(source model.SourceID, body string) model.NewMessage {
	return model.NewMessage{
		ID: uuid.Must(uuid.NewV7()), Source: source, ContentType: "application/json",
		Headers: []byte("Content-Type: application/json\r\n"), Query: []byte("a=1"), Body: []byte(body),
	}
}

// put keeps n messages and returns them in their order.
func (k *kit) put(source model.SourceID, n int) []model.NewMessage {
	k.Helper()
	messages := make([]model.NewMessage, n)
	for i := range messages {
		messages[i] = newMessage(source, fmt.Sprintf(`{"n":%d}`, i))
	}
	k.must(k.PutMessages(k.ctx(), model.PutPending, messages))
	return messages
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
	if p.Token == 0 {
		p.Token = newToken()
	}
	work, err := k.ClaimWork(k.ctx(), p)
	k.must(err)
	return work
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
		`SELECT seq, queue, state, due_at, token, owner, started_at, retry_count, lost, replay FROM posthouse_work WHERE seq = %d`, seq)).
		Scan(&w.Seq, &w.Queue, &w.State, &w.DueAt, &w.Token, &w.Owner, &w.StartedAt, &w.RetryCount, &w.Lost, &w.Replay)
	if errors.Is(err, sql.ErrNoRows) {
		return w, false
	}
	k.must(err)
	return w, true
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
