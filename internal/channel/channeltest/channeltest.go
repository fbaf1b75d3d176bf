// Package channeltest is the contract of a sender as tests: every sender runs
// them against a provider that the caller plays.
package channeltest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/model"
)

// soon is how long a sender may take to notice that its context has ended.
const soon = time.Second

// Harness makes senders, each with a provider of its own that lives as long as
// the test. All are required. Credentials is what the senders were given to log
// in with; it must not come back.
type Harness struct {
	Credentials []string
	// Accepting is a sender whose provider accepts everything.
	Accepting func(t *testing.T) channel.Sender
	// Echoing is a sender whose provider refuses everything, and repeats in its answer
	// the address, the text and the credentials that it was given, and those of echo.
	Echoing func(t *testing.T, echo []string) channel.Sender
	// Hanging is a sender whose provider takes the connection and says nothing, with
	// timeouts of a minute and more; reached is called as soon as it was reached.
	Hanging func(t *testing.T, reached func()) channel.Sender
	// Unreachable is a sender whose provider takes no connection.
	Unreachable func(t *testing.T) channel.Sender
	// Address is one that the sender can use.
	Address string
}

// Message returns a message to the harness's address, with values that must not
// come back.
func (h Harness) Message() channel.Message {
	return channel.Message{
		ID: uuid.Must(uuid.NewV7()), RequestID: uuid.Must(uuid.NewV7()), BizType: "approval.todo", Recipient: "u1008", Locale: "en",
		Address: h.Address, Subject: "Your code 493817", HTML: "<p>Your code is 493817, Zephyrine</p>", Text: "Your code is 493817, Zephyrine",
		Hidden: []string{"493817", "Zephyrine"},
	}
}

// Run tests what every sender owes.
func Run(t *testing.T, h Harness) {
	t.Run("SaysThatItWasAccepted", func(t *testing.T) {
		s := h.Accepting(t)
		for range 2 {
			got := s.Send(t.Context(), h.Message())
			if got.Class != model.ClassSuccess {
				t.Fatalf("got %+v", got)
			}
			h.leaksNothing(t, got, nil)
		}
		closes(t, s)
	})
	t.Run("AC-7 RepeatsNoSecretThatTheProviderEchoes", func(t *testing.T) {
		echo := []string{"https://example.com/hook?token=tkn-Abc123", "+49 30 1234567"}
		s := h.Echoing(t, echo)
		got := s.Send(t.Context(), h.Message())
		if got.Class == model.ClassSuccess || got.Class == "" || got.Text == "" {
			t.Fatalf("got %+v", got)
		}
		h.leaksNothing(t, got, echo)
		closes(t, s)
	})
	t.Run("NC-11 AProviderThatCannotBeReachedIsTransient", func(t *testing.T) {
		s := h.Unreachable(t)
		got := s.Send(t.Context(), h.Message())
		if got.Class != model.ClassTransient || got.Code == "" || got.Text == "" {
			t.Fatalf("got %+v", got)
		}
		h.leaksNothing(t, got, nil)
		closes(t, s)
	})
	t.Run("ReturnsSoonAfterItsContextEnds", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var ended time.Time
		s := h.Hanging(t, sync.OnceFunc(func() {
			ended = time.Now()
			cancel()
		}))
		got := s.Send(ctx, h.Message())
		if took := time.Since(ended); took > soon {
			t.Errorf("it took %v", took)
		}
		if got.Class != model.ClassTransient && got.Class != model.ClassUncertain {
			t.Errorf("got %+v", got)
		}
		h.leaksNothing(t, got, nil)
		closes(t, s)
	})
	t.Run("SendsNothingWhenItsContextHasEnded", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s := h.Accepting(t)
		if got := s.Send(ctx, h.Message()); got.Class != model.ClassTransient {
			t.Errorf("got %+v", got)
		}
		closes(t, s)
	})
	t.Run("SendsAtTheSameTime", func(t *testing.T) {
		s := h.Accepting(t)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 5 {
					if got := s.Send(t.Context(), h.Message()); got.Class != model.ClassSuccess {
						t.Errorf("got %+v", got)
					}
				}
			})
		}
		group.Wait()
		closes(t, s)
	})
	t.Run("PanicsOnNoMessage", func(t *testing.T) {
		s := h.Accepting(t)
		whole := h.Message()
		for _, m := range []channel.Message{
			{}, {Address: h.Address}, {ID: whole.ID, Address: "\x00\r\n", Subject: "\xff\r\nBcc: x", HTML: "<\xff<<!--", Text: "\xff\r"},
			{ID: whole.ID, Address: h.Address, Subject: "\xff\xfe", HTML: strings.Repeat("<div>", 2000), Text: "", Hidden: []string{"", "\xff", "a"}},
		} {
			if got := s.Send(t.Context(), m); !slices.Contains(model.Classes(), got.Class) {
				t.Errorf("class %q", got.Class)
			}
		}
		closes(t, s)
	})
}

// leaksNothing fails the test when a result holds what it must not.
func (h Harness) leaksNothing(t *testing.T, got channel.Result, more []string) {
	t.Helper()
	text := strings.ToLower(strings.Join([]string{got.Code, got.Text, got.ProviderID}, "\n"))
	for _, secret := range slices.Concat(h.Message().Hidden, h.Credentials, more, []string{h.Address}) {
		if secret != "" && strings.Contains(text, strings.ToLower(secret)) {
			t.Errorf("a secret came back: %s", cmp.Diff(secret, text))
		}
	}
	if len(got.Code) > 64 || len(got.Text) > 512 || strings.ContainsAny(got.Code+got.Text+got.ProviderID, "\r\n\x00") {
		t.Errorf("not short, or not on one line: %+v", got)
	}
	if got.RetryAfter < 0 || got.RetryAfter > time.Hour {
		t.Errorf("RetryAfter is %v", got.RetryAfter)
	}
}

func closes(t *testing.T, s channel.Sender) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
}
