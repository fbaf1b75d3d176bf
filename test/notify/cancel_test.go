package notify

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/posthouse/posthouse/client"
	"github.com/posthouse/posthouse/test/internal/running"
)

func TestCancellingTellsTheTruth(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "NC-21", engines, func(t *testing.T, e running.Engine) {
		gate := newAccepting()
		mail := running.NewMailServer(t, running.MailRules{})
		provider := running.NewProvider(t, func(ctx context.Context, _ running.Call) running.Reply {
			gate.wait(ctx)
			return running.Reply{}
		})
		f := launch(t, e, 2, everything(t, mail, provider))
		cancel := func(s *running.Server, r client.Receipt) (result client.CancelResult, by map[string]client.ChangeResult) {
			t.Helper()
			result, err := f.api(s).Cancel(t.Context(), r.ID, "the order is void")
			if err != nil {
				t.Fatal(err)
			}
			by = map[string]client.ChangeResult{}
			for _, d := range result.Deliveries {
				by[d.Channel] = d
			}
			if len(by) != 3 {
				t.Fatalf("results %+v", result)
			}
			return result, by
		}

		t.Run("before", func(t *testing.T) {
			n := todo("order:1:paid", "order.status")
			n.NotBefore = time.Now().Add(time.Hour)
			r := f.accept(f.a(), n)
			_, by := cancel(f.b(), r)
			for _, channel := range []string{"mail", "text"} {
				if d := by[channel]; !d.Done || d.Is != client.DeliveryCancelled {
					t.Errorf("%s: %+v", channel, d)
				}
			}
			if d := by["in_app"]; d.Done || d.Is != client.DeliverySucceeded || d.Detail == "" {
				t.Errorf("in_app, which is there already: %+v", d)
			}
		})
		t.Run("during and after", func(t *testing.T) {
			r := f.accept(f.a(), todo("order:2:paid", "order.status"))
			f.await(f.b(), of(t, r, "mail").ID, client.DeliverySucceeded)
			running.Eventually(t, patience, "the provider is called", func() error {
				if gate.count() == 0 {
					return fmt.Errorf("it is not")
				}
				return nil
			})
			_, by := cancel(f.b(), r)
			if d := by["text"]; d.Done || d.Is != client.DeliveryProcessing || d.Detail == "" {
				t.Errorf("text, which is being sent: %+v", d)
			}
			if d := by["mail"]; d.Done || d.Is != client.DeliverySucceeded || d.Detail == "" {
				t.Errorf("mail, which was sent: %+v", d)
			}
			close(gate.open)
			f.await(f.b(), of(t, r, "text").ID, client.DeliverySucceeded)
			result, by := cancel(f.b(), r)
			if d := by["text"]; d.Done || d.Is != client.DeliverySucceeded || result.Status != client.Succeeded {
				t.Errorf("when it was sent: %+v", result)
			}
		})
		if mails, calls := len(mail.Letters()), len(provider.Calls()); mails != 1 || calls != 1 {
			t.Errorf("%d mails and %d texts were sent, want those of one notification", mails, calls)
		}
		noFaults(t, provider)
	})
}

func TestOneChannelsTroubleIsNotAnothers(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "NC-13 NC-17", engines, func(t *testing.T, e running.Engine) {
		const tries = 3
		mail := running.NewMailServer(t, running.MailRules{Rcpt: func(string) error {
			return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
		}})
		var healed atomic.Bool
		down := running.NewProvider(t, func(context.Context, running.Call) running.Reply {
			if healed.Load() {
				return running.Reply{}
			}
			return running.Reply{Status: http.StatusInternalServerError}
		})
		text := running.NewProvider(t, nil)
		notify := running.NewNotify(t, []running.Channel{
			{Name: "in_app"}, {Name: "mail", Mail: mail}, {Name: "text", Provider: text.URL}, {Name: "down", Provider: down.URL},
		}, running.Policy{Send: []string{"in_app", "mail", "text", "down"}})
		notify.Retry = fmt.Sprintf("{base: 50ms, cap: 200ms, jitter: 0s, max_attempts: %d}", tries)
		f := launch(t, e, 2, notify)
		r := f.accept(f.a(), todo("order:1:paid", "order.status"))
		f.await(f.b(), of(t, r, "text").ID, client.DeliverySucceeded)
		if d := f.await(f.b(), of(t, r, "mail").ID, client.DeliveryFailed); d.AttemptCount != 1 || d.ErrorCode != "550 5.1.1" {
			t.Errorf("the bad address: %d attempts, %q", d.AttemptCount, d.ErrorCode)
		}
		if d := f.await(f.b(), of(t, r, "down").ID, client.DeliveryDead); d.AttemptCount != tries {
			t.Errorf("the channel that fails: %d attempts", d.AttemptCount)
		}
		mail.Rule(running.MailRules{})
		healed.Store(true)
		for _, channel := range []string{"mail", "down"} {
			id := of(t, r, channel).ID
			done := replayTwice(t, f, id)
			if d := f.await(f.b(), id, client.DeliverySucceeded); d.Replay != 1 || done != 1 {
				t.Errorf("%s: a double click made %d replays, and it is in round %d", channel, done, d.Replay)
			}
		}
		if n := mail.Of(of(t, r, "mail").ID); n != 1 {
			t.Errorf("%d mails", n)
		}
		if n := len(down.Calls()); n != tries+1 {
			t.Errorf("%d calls of the channel that failed", n)
		}
		if n := len(text.Calls()); n != 1 {
			t.Errorf("%d texts by the channel without trouble", n)
		}
		if n := f.count("SELECT count(*) FROM posthouse_user_message"); n != 1 {
			t.Errorf("%d messages in the application", n)
		}
		noFaults(t, text)
		noFaults(t, down)
	})
}

// replayTwice is a double click, on two servers where there are two.
func replayTwice(t *testing.T, f *fleet, id string) (done int) {
	t.Helper()
	results := make([]error, 2)
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() {
			_, results[i] = f.api(f.all[i%len(f.all)]).Replay(t.Context(), id, client.ReplayParams{Reason: "it is mended"})
		})
	}
	group.Wait()
	for _, err := range results {
		if err == nil {
			done++
		} else {
			_ = isRefused(t, err, http.StatusConflict)
		}
	}
	return done
}
