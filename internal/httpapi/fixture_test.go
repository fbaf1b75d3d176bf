package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/posthouse/posthouse/internal/ingest"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/sqlite"
	"github.com/posthouse/posthouse/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ Store = (*sqlite.Store)(nil)

// openStore opens a migrated store on a real file.
func openStore(t *testing.T) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(sqlite.Config{Path: filepath.Join(t.TempDir(), "posthouse.db")})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	_, err = s.MigrateUp(t.Context())
	must(t, err)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testID makes the id of the nth message.
func testID(n int) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("01936f00-0000-7000-8000-%012d", n))
}

// fill brings a store into a state in which there is one of everything. Inside
// a synctest bubble its times are always the same.
func fill(t *testing.T, s *sqlite.Store) {
	t.Helper()
	ctx := t.Context()
	sources, err := s.Register(ctx, []model.SourceSpec{
		{Name: "erp", Enabled: true, Wants: model.Ordering{Order: model.Serial, Partitions: 1}},
		{Name: "crm", Wants: model.Ordering{Order: model.Keyed, Partitions: 4, Key: "body.id", Block: true}},
		{Name: "former", Wants: model.Ordering{Order: model.Parallel}},
	})
	must(t, err)
	erp, crm := sources[0].ID, sources[1].ID
	const lease = model.Micros(time.Hour / time.Microsecond)
	must(t, s.JoinInstance(ctx, 1, "test", lease, nil))
	must(t, s.JoinInstance(ctx, 2, "gone", lease, nil))
	must(t, s.LeaveInstance(ctx, 2))
	must(t, s.JoinInstance(ctx, -3, "other", lease, []model.Want{{Queue: crm, Ordering: model.Ordering{Order: model.Parallel}}}))
	take := func(instance model.InstanceID, partitions ...model.Partition) {
		t.Helper()
		leases, err := s.TakeLeases(ctx, instance, partitions)
		must(t, err)
		for _, l := range leases {
			if !l.Held {
				t.Fatalf("%d does not hold %v", instance, partitions)
			}
		}
		time.Sleep(time.Second)
	}

	put := func(source model.SourceID, n int, m model.NewMessage) {
		m.ID, m.Source = testID(n), source
		_, err := s.PutMessages(ctx, model.PutPending, []model.NewMessage{m})
		must(t, err)
		time.Sleep(time.Second)
	}
	push := func(n int) {
		put(erp, n, model.NewMessage{
			ContentType: "application/json; charset=utf-8", Body: fmt.Appendf(nil, `{"n":%d}`, n),
			Headers: []byte("Host: example.com\r\nContent-Type: application/json; charset=utf-8\r\nX-Odd: caf\xe9:\x80\r\n"),
		})
	}
	claim := func() model.Work {
		t.Helper()
		claimed, err := s.ClaimWork(ctx, model.ClaimParams{
			Queue: erp, Owner: 1, Token: 7, Limit: 1, Start: true, Generation: sources[0].Agreed.Generation, Slots: sources[0].Agreed.SlotsOf(0),
		})
		must(t, err)
		if len(claimed.Works) != 1 {
			t.Fatalf("claimed %+v", claimed)
		}
		return claimed.Works[0]
	}
	settle := func(w model.Work, st model.Settlement) {
		t.Helper()
		time.Sleep(250 * time.Millisecond) // as long as the handler ran
		st.Seq, st.Queue, st.Token, st.StartedAt, st.Duration = w.Seq, w.Queue, 7, w.StartedAt, 250*time.Millisecond
		st.RetryCount, st.Replay = w.RetryCount, w.Replay
		done, err := s.Settle(ctx, []model.Settlement{st})
		must(t, err)
		if !done[0] {
			t.Fatal("lost")
		}
		time.Sleep(time.Second)
	}

	push(1) // succeeds at its second attempt
	settle(claim(), model.Settlement{Kind: model.SettleRetry, Reason: model.ReasonTimeout, Error: "no answer in time"})
	settle(claim(), model.Settlement{Kind: model.SettleSuccess, HTTPStatus: 200})

	push(2) // fails, is replayed, fails again
	settle(claim(), model.Settlement{Kind: model.SettleFailed, Lost: true, Reason: model.ReasonWorkerLost, Error: "worker lost"})
	_, err = s.Replay(ctx, []uuid.UUID{testID(2)}, false)
	must(t, err)
	settle(claim(), model.Settlement{Kind: model.SettleFailed, Reason: model.ReasonHTTPStatus, Error: "target answered 410: gone", HTTPStatus: 410})

	push(3) // waits for a retry
	settle(claim(), model.Settlement{Kind: model.SettleRetry, Delay: 2 * time.Minute, Reason: model.ReasonConnect, Error: "connection refused"})

	push(4) // is being handled
	claim()

	push(5) // waits
	put(crm, 6, model.NewMessage{ContentType: "text/html", Headers: []byte("Content-Type: text/html\r\n"),
		Body: []byte("<script>alert(1)</script>\x00\xff"), Check: "body is not JSON"})

	take(1, model.Partition{Queue: erp}, model.Partition{Queue: crm, Number: 3})
	take(1, model.Partition{Queue: crm, Number: 1})
	take(-3, model.Partition{Queue: crm, Number: 0})
}

// fakeRejects stands in for a door.
type fakeRejects struct{}

func (fakeRejects) Rejects(source string) []ingest.Reject {
	at := time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)
	switch source {
	case "":
		return []ingest.Reject{{Time: at, Kind: ingest.RejectRefused, Cause: "unknown_source", Status: 404, Size: -1, Name: "epr"}}
	case "erp":
		return []ingest.Reject{
			{Time: at, Kind: ingest.RejectNotKept, Cause: "not_accepted", Status: 200, Size: 12, ContentType: "text/plain", Sample: "hello \ufffd"},
			{Time: at.Add(-time.Second), Kind: ingest.RejectRefused, Cause: "signature", Status: 401, Size: 12, ContentType: "text/plain"},
		}
	}
	return nil
}

// testConfig is a configuration that serves s, and log is where it writes to.
func testConfig(s Store) (c Config, log *bytes.Buffer) {
	log = new(bytes.Buffer)
	return Config{
		Store: s, Rejects: fakeRejects{}, Notifications: fakeNotifier{}, Deliveries: newFakeDeliveries(), Channels: fakeChannels{}, Listen: "127.0.0.1:8081", Version: "v0.0.0-test",
		ChannelTypes: map[string]string{"mail": "email", "in_app": "in_app"},
		Sources:      []SourceInfo{{"erp", model.Ordering{Order: model.Serial, Partitions: 1}}, {"crm", model.Ordering{Order: model.Parallel}}},
		Checks:       []Check{{"consumers", func(context.Context) error { return nil }}},
		Registry:     telemetry.NewRegistry(),
		Logger:       telemetry.NewLogger(telemetry.Config{Writer: log, Level: slog.LevelDebug}),
	}, log
}

// request asks h, as a client on this machine would.
func request(t *testing.T, h http.Handler, method, target string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	return requestBody(t, h, ask{method: method, target: target, header: header})
}

// ask is a request.
type ask struct {
	method, target, body string
	header               http.Header
}

func requestBody(t *testing.T, h http.Handler, a ask) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), a.method, a.target, strings.NewReader(a.body))
	r.Host = "127.0.0.1:8081"
	for name, values := range a.header {
		if name == "Host" {
			r.Host = values[0]
			continue
		}
		r.Header[name] = values
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// brokenStore fails at everything.
type brokenStore struct{ err error }

func (b brokenStore) Sources(context.Context) ([]model.Source, error)     { return nil, b.err }
func (b brokenStore) Instances(context.Context) ([]model.Instance, error) { return nil, b.err }
func (b brokenStore) Occupancy(context.Context) (model.Occupancy, error) {
	return model.Occupancy{}, b.err
}
func (b brokenStore) SetEnabled(context.Context, string, bool) error { return b.err }
func (b brokenStore) Body(context.Context, uuid.UUID) (model.Message, error) {
	return model.Message{}, b.err
}
func (b brokenStore) Stats(context.Context) ([]model.SourceStats, error) { return nil, b.err }
func (b brokenStore) Ping(context.Context) error                         { return b.err }
func (b brokenStore) ListMessages(context.Context, model.ListParams) (model.MessagePage, error) {
	return model.MessagePage{}, b.err
}
func (b brokenStore) Message(context.Context, uuid.UUID) (model.MessageView, []model.AttemptView, error) {
	return model.MessageView{}, nil, b.err
}

func storeError(code model.Code) error {
	return &model.Error{Code: code, Op: "read", Err: errors.New("internal detail: relation posthouse_work")}
}
