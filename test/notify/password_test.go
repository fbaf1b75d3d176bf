package notify

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/emersion/go-smtp"

	"github.com/posthouse/posthouse/client"
	"github.com/posthouse/posthouse/test/internal/running"
)

const alertPaused = "the channel is paused: its credentials are refused"

// logged counts the lines of all servers' logs that hold a text.
func (f *fleet) logged(text string) (n int) {
	f.t.Helper()
	for _, s := range f.all {
		log, err := os.ReadFile(s.LogPath)
		if err != nil {
			f.t.Fatal(err)
		}
		n += strings.Count(string(log), text)
	}
	return n
}

// metric sums a metric over all servers.
func (f *fleet) metric(name string, labels ...string) (sum float64) {
	f.t.Helper()
	for _, s := range f.all {
		n, err := s.Metric(name, labels...)
		if err != nil {
			f.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// calm waits until no process holds anything against the channel any more: each
// has to send something for that.
func (f *fleet) calm(prefix, channel string) {
	f.t.Helper()
	n := 0
	running.Eventually(f.t, patience, "each process has sent something", func() error {
		s := f.all[n%len(f.all)]
		n++
		f.await(f.a(), f.accept(s, todo(fmt.Sprintf("%s:%d", prefix, n), "order.status")).Deliveries[0].ID, client.DeliverySucceeded)
		for _, s := range f.all {
			if c := f.channel(s, channel); c.Failures != 0 || c.State != "active" {
				return fmt.Errorf("%s: %+v", s.Name, c)
			}
		}
		return nil
	})
}

func TestAWrongPassword(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "NC-11", engines, func(t *testing.T, e running.Engine) {
		refuse := func(err error) func(string, string) error { return func(string, string) error { return err } }
		mail := running.NewMailServer(t, running.MailRules{Auth: refuse(running.ErrWrongPassword)})
		f := launch(t, e, 2, running.NewNotify(t, []running.Channel{{Name: "mail", Mail: mail}}, running.Policy{Send: []string{"mail"}}))
		const waiting = 20
		var ids []string
		for i := range waiting {
			ids = append(ids, f.accept(f.all[i%len(f.all)], todo(fmt.Sprintf("order:%d:paid", i), "order.status")).Deliveries[0].ID)
		}
		paused := func(c client.Channel) bool { return c.State == "paused" }
		for _, s := range f.all {
			f.awaitChannel(s, "mail", "the channel is paused", paused)
		}
		// Those that were under way when the first was refused are one refusal; then one
		// at a time is tried.
		const atOnce = 8
		if n, most := len(mail.Logins()), len(f.all)*(atOnce+2); n < 3 || n > most {
			t.Errorf("the password was tried %d times, want 3 refusals one after the other, and so %d tries at most", n, most)
		}
		for _, id := range ids {
			if d := f.detail(f.a(), id); d.AttemptCount != 0 || d.Status != client.DeliveryPending && d.Status != client.DeliveryProcessing {
				t.Errorf("a delivery is %s after %d attempts", d.Status, d.AttemptCount)
			}
		}
		page, err := f.api(f.a()).Audit(t.Context(), "channel/mail", "")
		if err != nil || len(page.Items) != 1 || page.Items[0].Action != "channel.pause" || page.Items[0].Actor != "system" {
			t.Errorf("the audit log: %+v, %v", page.Items, err)
		}
		mail.Rule(running.MailRules{})
		if n := len(mail.Letters()); n != 0 {
			t.Errorf("%d mails were sent without a password", n)
		}
		if _, err := f.api(f.b()).Resume(t.Context(), "mail", "the password is right again"); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			d := f.await(f.a(), id, client.DeliverySucceeded)
			if mail.Of(id) != 1 || d.AttemptCount != 1 {
				t.Errorf("%d copies after %d attempts", mail.Of(id), d.AttemptCount)
			}
		}
		lines, metric := f.logged(alertPaused), f.metric("posthouse_channel_pauses_total", `channel="mail"`)
		if lines != 1 || metric != 1 {
			t.Errorf("%d lines of alert, and the metric says %v, want one over all processes", lines, metric)
		}

		for _, trouble := range []struct {
			name  string
			rules running.MailRules
			code  string
		}{
			{"4xx at AUTH", running.MailRules{Auth: refuse(&smtp.SMTPError{Code: 454, EnhancedCode: smtp.EnhancedCode{4, 7, 0}, Message: "try later"})}, "454 4.7.0"},
			{"another mechanism", running.MailRules{Mechanisms: []string{"XOAUTH2"}}, "auth_mechanism"},
		} {
			t.Run("NC-11 no wrong password: "+trouble.name, func(t *testing.T) {
				f.calm(trouble.name, "mail")
				mail.Rule(trouble.rules)
				mail.HangUp() // whoever is logged in must do so again
				id := f.accept(f.a(), todo(trouble.name, "order.status")).Deliveries[0].ID
				var seen client.DeliveryDetail
				running.Eventually(t, patience, "it was tried as often as a wrong password", func() error {
					seen = f.detail(f.a(), id)
					n := 0
					for _, a := range seen.Attempts {
						if a.Code == trouble.code {
							n++
						}
					}
					if n < 3 {
						return fmt.Errorf("%+v", seen.Attempts)
					}
					return nil
				})
				if c := f.channel(f.a(), "mail"); c.State == "paused" {
					t.Errorf("the channel is paused: %s", c.Reason)
				}
				mail.Rule(running.MailRules{})
				f.await(f.a(), id, client.DeliverySucceeded)
			})
		}
		if n := f.logged(alertPaused); n != 1 {
			t.Errorf("%d lines of alert in the end", n)
		}
	})
}
