package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/template"
)

// fakeStore keeps in memory, and fails as it is told to.
type fakeStore struct {
	// before runs before each call; its error is the call's.
	before func(ctx context.Context, requests []model.NewRequest) error
	// after runs when they were kept; its error is the call's.
	after func() error

	mu    sync.Mutex
	kept  map[string]model.RequestHead
	calls [][]uuid.UUID
}

func (*fakeStore) PutTemplates(_ context.Context, versions []model.TemplateVersion) ([]model.TemplateID, error) {
	ids := make([]model.TemplateID, len(versions))
	for i := range ids {
		ids[i] = model.TemplateID(i + 1)
	}
	return ids, nil
}

func (f *fakeStore) PutRequests(ctx context.Context, requests []model.NewRequest) ([]model.PutRequest, error) {
	f.mu.Lock()
	var ids []uuid.UUID
	for _, r := range requests {
		ids = append(ids, r.ID)
	}
	f.calls = append(f.calls, ids)
	f.mu.Unlock()
	if f.before != nil {
		if err := f.before(ctx, requests); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	puts := make([]model.PutRequest, len(requests))
	for i, r := range requests {
		first, known := f.kept[r.Key]
		if !known {
			first = model.RequestHead{ID: r.ID, Content: r.Content, Success: r.Success, Choices: r.Choices}
			for _, d := range r.Deliveries {
				first.Deliveries = append(first.Deliveries, model.DeliveryHead{ID: d.ID, Channel: "in_app", Done: d.Done, Reason: d.Reason})
			}
			f.kept[r.Key] = first
		}
		puts[i] = model.PutRequest{Duplicate: first.ID != r.ID, First: first}
	}
	f.mu.Unlock()
	if f.after != nil {
		if err := f.after(); err != nil {
			return nil, err
		}
	}
	return puts, nil
}

func (f *fakeStore) RequestByKey(_ context.Context, key string) (model.RequestHead, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if head, found := f.kept[key]; found {
		return head, nil
	}
	return model.RequestHead{}, &model.Error{Code: model.CodeNotFound, Op: "find", Err: errors.New("no such request")}
}

func storeFault(code model.Code) error {
	return &model.Error{Code: code, Op: "put requests", Err: errors.New("as told")}
}

// newFake returns a Center on a fake store, to be started.
func newFake(t testing.TB, f *fakeStore, change func(*Config)) *Center {
	t.Helper()
	f.kept = map[string]model.RequestHead{}
	set, _ := template.Load(testTemplates)
	ring, err := config.ParseKeys(config.GenerateKey("k1"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Store: f, Templates: set, Ring: ring,
		Channels: []Channel{{Name: "in_app", Queue: 1, Kind: template.KindInApp, InApp: true}},
		Policies: []Policy{{Send: []string{"in_app"}}},
	}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func keyed(key string) Submission {
	return Submission{IdempotencyKey: key, BizType: "b", Template: "todo", Recipient: Recipient{ID: "u"}, Variables: json.RawMessage(`{"title":"x"}`)}
}

// outcome is what became of one submission.
type outcome struct {
	receipt Receipt
	err     error
}

// submit accepts under each key at once, before the Center is started, and
// returns what came of it once done is called.
func submit(c *Center, keys ...string) (done func() map[string]outcome) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	all := map[string]outcome{}
	for _, key := range keys {
		wg.Go(func() {
			r, err := c.Accept(context.Background(), keyed(key))
			mu.Lock()
			defer mu.Unlock()
			all[key] = outcome{r, err}
		})
	}
	synctest.Wait()
	return func() map[string]outcome { wg.Wait(); return all }
}

func keysOf(n int) []string {
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprintf("key-%d", i))
	}
	return keys
}

func codeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

func TestAllThatWaitsIsKeptInOneTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{}
		c := newFake(t, f, func(c *Config) { c.BatchRows = 8 })
		done := submit(c, keysOf(20)...)
		c.Start()
		for key, o := range done() {
			if o.err != nil || o.receipt.Duplicate || o.receipt.Status != StatusSucceeded {
				t.Errorf("%s: %+v", key, o)
			}
		}
		c.Stop()
		if len(f.calls) != 3 || len(f.calls[0]) != 8 || len(f.calls[2]) != 4 {
			t.Errorf("%d calls", len(f.calls))
		}
	})
}

func TestABatchIsBoundedInBytesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{}
		c := newFake(t, f, func(c *Config) { c.BatchBytes = 1 }) // each is too large by itself
		done := submit(c, keysOf(3)...)
		c.Start()
		done()
		c.Stop()
		if len(f.calls) != 3 {
			t.Errorf("%d calls", len(f.calls))
		}
	})
}

func TestARequestThatTheStoreRefusesFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{before: func(_ context.Context, requests []model.NewRequest) error {
			if slices.ContainsFunc(requests, func(r model.NewRequest) bool { return r.Key == "key-5" }) {
				return storeFault(model.CodeRejected)
			}
			return nil
		}}
		c := newFake(t, f, nil)
		done := submit(c, keysOf(20)...)
		c.Start()
		for key, o := range done() {
			if (key == "key-5") != (codeOf(o.err) == Invalid) || key != "key-5" && o.err != nil {
				t.Errorf("%s: %v", key, o.err)
			}
		}
		c.Stop()
	})
}

func TestNC02AfterAnUnknownCommitTheSameIDsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 2
		f := &fakeStore{}
		f.after = func() error { // committed, and the answer was lost
			if failures--; failures >= 0 {
				return storeFault(model.CodeUnavailable)
			}
			return nil
		}
		c := newFake(t, f, nil)
		done := submit(c, "a")
		c.Start()
		o := done()["a"]
		c.Stop()
		if o.err != nil || o.receipt.Duplicate {
			t.Errorf("got %+v, %v", o.receipt, o.err)
		}
		if len(f.calls) != 3 || f.calls[0][0] != f.calls[2][0] || o.receipt.ID != f.calls[0][0] {
			t.Errorf("calls %v", f.calls)
		}
	})
}

func TestEveryAnswerComesInTime(t *testing.T) {
	for name, before := range map[string]func(ctx context.Context, requests []model.NewRequest) error{
		"the store is unavailable": func(context.Context, []model.NewRequest) error { return storeFault(model.CodeUnavailable) },
		"the store does not answer": func(ctx context.Context, _ []model.NewRequest) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"the store answers nonsense": func(context.Context, []model.NewRequest) error { return errors.New("odd") },
		"the store panics":           func(context.Context, []model.NewRequest) error { panic(secretCode) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				f := &fakeStore{before: before}
				c := newFake(t, f, func(c *Config) { c.Logger = textLogger(&log) })
				began := time.Now()
				done := submit(c, "a", "b", "c")
				c.Start()
				for key, o := range done() {
					e, ok := errors.AsType[*Error](o.err)
					if !ok || e.Code != Unavailable || e.RetryAfter <= 0 || !strings.Contains(e.Detail, "same idempotency key") {
						t.Errorf("%s: %v", key, o.err)
					}
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it took %s", took)
				}
				c.Stop()
				if strings.Contains(log.String(), secretCode) || log.Len() == 0 {
					t.Errorf("the log says %q", log.String())
				}
			})
		})
	}
}

func TestNoMoreWaitThanMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{}
		c := newFake(t, f, func(c *Config) { c.QueueRows = 3 })
		done := submit(c, keysOf(5)...)
		if got, _ := c.writer.load(); got != 3 {
			t.Errorf("%d wait", got)
		}
		c.Start()
		busy := 0
		for _, o := range done() {
			if codeOf(o.err) == Unavailable {
				busy++
			}
		}
		c.Stop()
		if busy != 2 {
			t.Errorf("%d were turned away", busy)
		}
		if got := testutil.ToFloat64(c.metrics.requests.WithLabelValues("todo", resultUnavailable)); got != 2 {
			t.Errorf("%v are counted", got)
		}
	})
}

// What waits is bounded in bytes as well, and what was kept or given up frees
// them.
func TestNoMoreBytesWaitThanMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := true
		f := &fakeStore{after: func() error {
			if away {
				away = false
				return storeFault(model.CodeUnavailable) // what waits again counts again
			}
			return nil
		}}
		c := newFake(t, f, func(c *Config) { c.QueueBytes = 1 })
		done := submit(c, "a") // where nothing waits, any may
		_, one := c.writer.load()
		if one < 500 {
			t.Fatalf("one takes %d bytes", one)
		}
		c.writer.cfg.QueueBytes = 3*one + one/2
		more := submit(c, keysOf(4)...)
		if rows, bytes := c.writer.load(); rows != 3 || bytes > c.writer.cfg.QueueBytes {
			t.Errorf("%d of %d bytes wait", rows, bytes)
		}
		c.Start()
		busy := 0
		for _, o := range more() {
			if codeOf(o.err) == Unavailable {
				busy++
			}
		}
		if o := done()["a"]; busy != 2 || o.err != nil {
			t.Errorf("%d were turned away; the first: %v", busy, o.err)
		}
		if _, bytes := c.writer.load(); bytes != 0 {
			t.Errorf("%d bytes are still counted", bytes)
		}
		c.Stop()
	})
	synctest.Test(t, func(t *testing.T) {
		c := newFake(t, &fakeStore{}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = c.Accept(ctx, keyed("left")) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if rows, bytes := c.writer.load(); rows != 0 || bytes != 0 {
			t.Errorf("%d of %d bytes wait for nobody", rows, bytes)
		}
		c.Stop()
	})
}

func TestWhatNobodyWaitsForIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{}
		c := newFake(t, f, nil)
		ctx, cancel := context.WithCancel(context.Background())
		var err error
		go func() { _, err = c.Accept(ctx, keyed("gone")) }()
		done := submit(c, "here")
		cancel()
		synctest.Wait()
		c.Start()
		if o := done()["here"]; o.err != nil {
			t.Error(o.err)
		}
		c.Stop()
		if codeOf(err) != Unavailable || len(f.kept) != 1 {
			t.Errorf("%v, %d kept", err, len(f.kept))
		}
	})
}

func TestStopKeepsWhatWaitsAndThenNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{}
		c := newFake(t, f, nil)
		done := submit(c, "a", "b")
		c.Stop() // it was never started
		for key, o := range done() {
			if o.err != nil {
				t.Errorf("%s: %v", key, o.err)
			}
		}
		c.Start()
		c.Stop()
		if _, err := c.Accept(context.Background(), keyed("late")); codeOf(err) != Unavailable {
			t.Errorf("got %v", err)
		}
	})
}

func TestAStopDuringAnOutageAnswersEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{before: func(context.Context, []model.NewRequest) error { return storeFault(model.CodeUnavailable) }}
		c := newFake(t, f, nil)
		done := submit(c, keysOf(4)...)
		c.Start()
		synctest.Wait()
		began := time.Now()
		c.Stop()
		for key, o := range done() {
			if codeOf(o.err) != Unavailable {
				t.Errorf("%s: %v", key, o.err)
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestConfigurationsThatMakeNoSense(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no store":               func(c *Config) { c.Store = nil },
		"no templates":           func(c *Config) { c.Templates = nil },
		"no ring":                func(c *Config) { c.Ring = nil },
		"a channel twice":        func(c *Config) { c.Channels = append(c.Channels, c.Channels[0]) },
		"a channel without kind": func(c *Config) { c.Channels[0].Kind = "" },
		"two are in-app": func(c *Config) {
			c.Channels = append(c.Channels, Channel{Name: "b", Queue: 2, Kind: "in_app", InApp: true})
		},
		"no check of addresses": func(c *Config) {
			c.Channels = append(c.Channels, Channel{Name: "b", Queue: 2, Kind: "text", AddressKind: "phone"})
		},
		"a policy to nowhere": func(c *Config) { c.Policies[0].Send = []string{"nowhere"} },
		"success elsewhere":   func(c *Config) { c.Policies[0].Success.Any = []string{"mail"} },
	} {
		t.Run(name, func(t *testing.T) {
			set, _ := template.Load(testTemplates)
			ring, _ := config.ParseKeys(config.GenerateKey("k1"))
			cfg := Config{
				Store: &fakeStore{}, Templates: set, Ring: ring,
				Channels: []Channel{{Name: "in_app", Queue: 1, Kind: "in_app", InApp: true}}, Policies: []Policy{{Send: []string{"in_app"}}},
			}
			change(&cfg)
			if _, err := New(cfg); err == nil {
				t.Error("it was taken")
			}
		})
	}
}
