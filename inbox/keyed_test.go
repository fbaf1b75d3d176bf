package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestKeyed(t *testing.T) {
	t.Run("IN-22 a message that waits for its retry keeps its key back, and no other", func(t *testing.T) {
		got := make(chan string, 10)
		failed := false
		handler := HandlerFunc(func(_ context.Context, m *Message) error {
			if strings.HasSuffix(string(m.Body), `"n":1}`) && !failed && strings.Contains(string(m.Body), `"a"`) {
				failed = true
				got <- "failed"
				return errors.New("not now")
			}
			got <- string(m.Body)
			return nil
		})
		url := serveInbox(t, Config{Store: openStore(t), Sources: []Source{{
			Name: "s", Verify: NoVerification(), Handler: handler,
			Consume: Consume{Order: Keyed, Key: "body.key", Block: true, Backoff: []time.Duration{2 * time.Second}},
		}}})
		const a1, a2, b1 = `{"key":"a","n":1}`, `{"key":"a","n":2}`, `{"key":"b","n":1}`
		push(t, url+"/in/s", "application/json", []byte(a1))
		if first := <-got; first != "failed" {
			t.Fatal(first)
		}
		push(t, url+"/in/s", "application/json", []byte(a2))
		push(t, url+"/in/s", "application/json", []byte(b1))
		for _, want := range []string{b1, a1, a2} {
			if body := <-got; body != want {
				t.Errorf("handled %s, want %s", body, want)
			}
		}
	})
	t.Run("IN-22 what was kept in serial order is placed by its key once keyed is agreed on", func(t *testing.T) {
		const keys, each = 5, 8
		store := openStore(t)
		before := Source{Name: "s", Verify: NoVerification()}
		box, err := Open(t.Context(), Config{Store: store, Sources: []Source{before}})
		if err != nil {
			t.Fatal(err)
		}
		if err := box.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		url := serverOf(t, box)
		for n := range each {
			for k := range keys {
				push(t, fmt.Sprintf("%s/in/s?customer=%d", url, k), "text/plain", fmt.Appendf(nil, "%d", n))
			}
		}
		box.Stop()

		var mu sync.Mutex
		seen := map[string]string{}
		all := make(chan struct{})
		total := 0
		after := before
		after.Consume = Consume{Order: Keyed, Key: "query.customer", Partitions: 4}
		after.Handler = HandlerFunc(func(_ context.Context, m *Message) error {
			mu.Lock()
			defer mu.Unlock()
			seen[m.Query] += string(m.Body)
			if total++; total == keys*each {
				close(all)
			}
			return nil
		})
		serveInbox(t, Config{Store: store, Lease: 3 * time.Second, Sources: []Source{after}})
		select {
		case <-all:
		case <-time.After(30 * time.Second):
			t.Fatal("not all are handled within 30 s")
		}
		mu.Lock()
		defer mu.Unlock()
		for k := range keys {
			if got := seen[fmt.Sprintf("customer=%d", k)]; got != "01234567" {
				t.Errorf("key %d: %s", k, got)
			}
		}
		sources, err := store.Sources(t.Context())
		if err != nil || sources[0].Agreed.Order != "keyed" || sources[0].Agreed.Partitions != 4 || sources[0].Agreed.Key != "query.customer" {
			t.Errorf("%+v %v", sources, err)
		}
	})
}
