package notify

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/posthouse/posthouse/client"
	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/test/internal/running"
)

// accepting holds back the answers to what was accepted, until it is opened.
type accepting struct {
	mu   sync.Mutex
	seen int
	open chan struct{}
}

func newAccepting() *accepting { return &accepting{open: make(chan struct{})} }

// wait counts one that was accepted and must not be answered yet.
func (a *accepting) wait(ctx context.Context) {
	a.mu.Lock()
	a.seen++
	a.mu.Unlock()
	select {
	case <-a.open:
	case <-ctx.Done():
	}
}

func (a *accepting) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen
}

// A server is killed when providers have accepted, and have not answered.
func TestKilledBetweenTheProvidersAcceptanceAndOurRecord(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "AC-3 NC-10", engines, func(t *testing.T, e running.Engine) {
		gate := newAccepting()
		mail := running.NewMailServer(t, running.MailRules{Accepted: func(running.Letter) error { gate.wait(t.Context()); return nil }})
		provider := running.NewProvider(t, func(ctx context.Context, _ running.Call) running.Reply {
			gate.wait(context.WithoutCancel(ctx))
			return running.Reply{Accepted: true}
		})
		f := ready(t, e, 2, running.NewNotify(t, []running.Channel{
			{Name: "mail_resend", Mail: mail, OnUncertain: "resend"}, {Name: "mail_hold", Mail: mail, OnUncertain: "hold"},
			{Name: "text_resend", Provider: provider.URL, OnUncertain: "resend"}, {Name: "text_hold", Provider: provider.URL, OnUncertain: "hold"},
		}, running.Policy{BizType: "again", Send: []string{"text_hold"}}, running.Policy{Send: []string{"mail_resend", "mail_hold", "text_resend", "text_hold"}}))
		f.start(f.a())
		r := f.accept(f.a(), todo("order:1:paid", "order.status"))
		running.Eventually(t, patience, "all four are accepted", func() error {
			if n := gate.count(); n != 4 {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
		f.a().Kill()
		f.awaitEnd(f.a())
		close(gate.open)
		mail.Rule(running.MailRules{})
		f.start(f.b()) // another process takes over, or the same one comes back
		copies := func(channel string) int {
			id := of(t, r, channel).ID
			return mail.Of(id) + len(provider.Of(id))
		}
		for _, channel := range []string{"mail_resend", "text_resend"} {
			f.await(f.b(), of(t, r, channel).ID, client.DeliverySucceeded)
			if n := copies(channel); n != 2 {
				t.Errorf("%s: the provider got %d with the delivery's id, want two", channel, n)
			}
		}
		for _, channel := range []string{"mail_hold", "text_hold"} {
			d := f.await(f.b(), of(t, r, channel).ID, client.DeliveryUncertain)
			if d.ErrorClass != "uncertain" || d.ErrorText == "" {
				t.Errorf("%s: why it is uncertain: %q %q", channel, d.ErrorClass, d.ErrorText)
			}
			if n := copies(channel); n != 1 {
				t.Errorf("%s: the provider got %d, want nothing sent again", channel, n)
			}
		}

		t.Run("NC-10 an operator says that it was sent", func(t *testing.T) {
			d := of(t, r, "mail_hold")
			resolve(t, f, r.ID, d.ID, client.Sent)
			if got := f.detail(f.b(), d.ID); got.Status != client.DeliverySucceeded || copies("mail_hold") != 1 {
				t.Errorf("it is %s, and the server has %d copies", got.Status, copies("mail_hold"))
			}
		})
		t.Run("NC-10 an operator says that it was not sent", func(t *testing.T) {
			d := of(t, r, "text_hold")
			resolve(t, f, r.ID, d.ID, client.NotSent)
			f.await(f.b(), d.ID, client.DeliverySucceeded)
			if n := copies("text_hold"); n != 2 {
				t.Errorf("the provider got %d with the delivery's id, want two", n)
			}
			_, err := f.api(f.b()).Resolve(t.Context(), d.ID, client.NotSent, "once more")
			_ = isRefused(t, err, 409)
		})
		if e.Own != "" {
			f.b().Terminate()
		} else {
			f.a().Terminate()
		}
		t.Run("AC-3 killed when the answer has come", func(t *testing.T) { killedWithTheAnswer(t, f, provider) })
		noFaults(t, provider)
	})
}

// resolve ends the uncertainty, and looks for what is written of that.
func resolve(t *testing.T, f *fleet, notification, delivery string, outcome client.Outcome) {
	t.Helper()
	api := f.api(f.b())
	if r, err := api.Resolve(t.Context(), delivery, outcome, "asked the provider"); err != nil || !r.Done {
		t.Fatalf("resolve: %+v, %v", r, err)
	}
	page, err := api.Audit(t.Context(), "delivery/"+delivery, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Items) != 1 || page.Items[0].Action != "delivery.resolve" || page.Items[0].Actor != "tester" || page.Items[0].Reason != "asked the provider" {
		t.Errorf("the audit log: %+v", page.Items)
	}
	detail, err := api.Notification(t.Context(), notification)
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range detail.Timeline {
		if event.Event == "operator" && event.DeliveryID == delivery && event.Action == "delivery.resolve" && event.Actor == "tester" {
			return
		}
	}
	t.Errorf("the timeline does not tell of it: %+v", detail.Timeline)
}

func killedWithTheAnswer(t *testing.T, f *fleet, provider *running.Provider) {
	t.Helper()
	f.a().Start(crashpoint.AfterSend + ":1")
	f.a().WaitReady()
	r := f.accept(f.a(), soon(todo("order:2:paid", "again")))
	f.awaitEnd(f.a())
	f.start(f.b())
	id := r.Deliveries[0].ID
	f.await(f.b(), id, client.DeliveryUncertain)
	if n := len(provider.Of(id)); n != 1 {
		t.Errorf("the provider got %d, want nothing sent again", n)
	}
}

// Wherever it is killed on the way, what is held is sent once at most, and shown
// as what it is.
func TestKilledAroundSending(t *testing.T) {
	t.Parallel()
	for _, point := range []struct {
		name string
		sent int
		want client.DeliveryStatus
	}{
		{crashpoint.BeforeSend, 0, client.DeliveryUncertain}, // it cannot be told apart from the next one
		{crashpoint.BeforeSettle, 1, client.DeliveryUncertain},
		{crashpoint.AfterSettle, 1, client.DeliverySucceeded},
	} {
		t.Run(point.name, func(t *testing.T) {
			t.Parallel()
			running.OnEachEngine(t, "AC-3 NC-10", engines, func(t *testing.T, e running.Engine) {
				provider := running.NewProvider(t, nil)
				f := ready(t, e, 1, running.NewNotify(t, []running.Channel{{Name: "text", Provider: provider.URL, OnUncertain: "hold"}},
					running.Policy{Send: []string{"text"}}))
				f.a().Start(point.name + ":1")
				f.a().WaitReady()
				id := f.accept(f.a(), soon(todo("order:1:paid", "order.status"))).Deliveries[0].ID
				f.awaitEnd(f.a())
				f.start(f.a())
				f.await(f.a(), id, point.want)
				if n := len(provider.Of(id)); n != point.sent {
					t.Errorf("the provider got %d, want %d", n, point.sent)
				}
			})
		})
	}
}
