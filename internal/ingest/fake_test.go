package ingest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

type dedupKey struct {
	source model.SourceID
	hash   [32]byte
}

// fakeKeeper keeps in memory, and fails as it is told to.
type fakeKeeper struct {
	// before runs before each call, with its messages; its error is the call's.
	before func(ctx context.Context, messages []model.NewMessage) error
	// after runs when they were kept; its error is the call's.
	after func(messages []model.NewMessage) error

	mu    sync.Mutex
	kept  []model.NewMessage // copies, in order, each id once
	known map[uuid.UUID]bool
	keys  map[dedupKey]uuid.UUID
	calls [][]model.NewMessage
}

func (k *fakeKeeper) PutMessages(ctx context.Context, put model.Put, messages []model.NewMessage) (duplicates []int, err error) {
	if put != model.PutPending {
		return nil, &model.Error{Code: model.CodeInvalid, Op: "put", Err: errors.New("the door keeps as pending")}
	}
	copies := make([]model.NewMessage, len(messages))
	for i, m := range messages {
		m.Headers, m.Query, m.Body = bytes.Clone(m.Headers), bytes.Clone(m.Query), bytes.Clone(m.Body)
		copies[i] = m
	}
	k.mu.Lock()
	k.calls = append(k.calls, copies)
	k.mu.Unlock()
	if k.before != nil {
		if err := k.before(ctx, messages); err != nil {
			return nil, err
		}
	}
	for i, m := range messages { // whoever uses a buffer again too early is caught here
		if !bytes.Equal(m.Body, copies[i].Body) || !bytes.Equal(m.Headers, copies[i].Headers) || !bytes.Equal(m.Query, copies[i].Query) {
			panic("a message changed while it was being kept")
		}
	}
	k.mu.Lock()
	if k.known == nil {
		k.known, k.keys = make(map[uuid.UUID]bool), make(map[dedupKey]uuid.UUID)
	}
	for i, m := range copies {
		if m.Dedup.Window > 0 {
			key := dedupKey{m.Source, m.Dedup.Hash}
			if first, ok := k.keys[key]; ok && first != m.ID {
				duplicates = append(duplicates, i)
				continue
			}
			k.keys[key] = m.ID
		}
		if !k.known[m.ID] {
			k.known[m.ID] = true
			k.kept = append(k.kept, m)
		}
	}
	k.mu.Unlock()
	if k.after != nil {
		if err := k.after(messages); err != nil {
			return nil, err
		}
	}
	return duplicates, nil
}

// all returns what was kept.
func (k *fakeKeeper) all() []model.NewMessage {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]model.NewMessage(nil), k.kept...)
}

// bodies returns the bodies of what was kept.
func (k *fakeKeeper) bodies() []string {
	var list []string
	for _, m := range k.all() {
		list = append(list, string(m.Body))
	}
	return list
}

// sizes returns how many messages each call had.
func (k *fakeKeeper) sizes() []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []int
	for _, c := range k.calls {
		list = append(list, len(c))
	}
	return list
}

func failure(code model.Code) error {
	return &model.Error{Code: code, Op: "put messages", Err: errors.New("told to fail")}
}

// gate is a before that lets calls through one by one.
type gate struct {
	arrived chan int // the number of messages of each call that waits
	pass    chan error
}

func newGate() *gate { return &gate{arrived: make(chan int), pass: make(chan error)} }

func (g *gate) before(ctx context.Context, messages []model.NewMessage) error {
	select {
	case g.arrived <- len(messages):
	case <-ctx.Done():
		return failure(model.CodeUnavailable)
	}
	select {
	case err := <-g.pass:
		return err
	case <-ctx.Done():
		return failure(model.CodeUnavailable)
	}
}

func startWriter(t testing.TB, config WriterConfig) *Writer {
	t.Helper()
	w, err := NewWriter(config)
	if err != nil {
		t.Fatal(err)
	}
	w.Start()
	t.Cleanup(w.Stop)
	return w
}

func message(source model.SourceID, body string) model.NewMessage {
	return model.NewMessage{ID: uuid.Must(uuid.NewV7()), Source: source, Body: []byte(body)}
}

// keepAll keeps messages at once, each with the same time to wait, and returns
// their errors in the same order when all are answered.
func keepAll(w *Writer, within time.Duration, messages ...model.NewMessage) []error {
	errs := make([]error, len(messages))
	var group sync.WaitGroup
	for i, m := range messages {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), within)
			defer cancel()
			errs[i] = w.Keep(ctx, m)
		})
	}
	group.Wait()
	return errs
}

// lines collects what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
