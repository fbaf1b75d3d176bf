package notify

import (
	"fmt"
	"strings"
	"testing"

	"github.com/posthouse/posthouse/client"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/test/internal/running"
)

func TestTheFirstKeyIsReplaced(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "NC-02 NC-07", engines, func(t *testing.T, e running.Engine) {
		mail, provider := running.NewMailServer(t, running.MailRules{}), running.NewProvider(t, nil)
		old := everything(t, mail, provider)
		f := launch(t, e, 1, old)
		if _, err := f.api(f.a()).Pause(t.Context(), "text", "the provider asked for it"); err != nil {
			t.Fatal(err)
		}
		request := func(key string) client.Notification {
			n := todo(key, "order.status")
			n.Variables["code"] = "493817"
			return n
		}
		before := f.accept(f.a(), request("order:1:paid"))
		f.await(f.a(), of(t, before, "mail").ID, client.DeliverySucceeded)
		f.a().Terminate()

		renewed := *old
		renewed.Keys = config.GenerateKey("k2") + "," + old.Keys
		s := f.another("renewed", &renewed)
		f.start(s)
		if r := f.accept(s, request("order:1:paid")); !r.Duplicate || r.ID != before.ID {
			t.Errorf("under the new key the same request is %+v", r)
		}
		other := request("order:1:paid")
		other.Variables["code"] = "493818"
		_, err := f.api(s).Notify(t.Context(), other)
		if named := isRefused(t, err, 409); fmt.Sprint(named) != "[variables]" {
			t.Errorf("the fields that differ: %v", named)
		}
		after := f.accept(s, request("order:2:paid"))
		if _, err := f.api(s).Resume(t.Context(), "text", "it may go on"); err != nil {
			t.Fatal(err)
		}
		for _, r := range []client.Receipt{before, after} {
			for _, channel := range []string{"mail", "text"} {
				f.await(s, of(t, r, channel).ID, client.DeliverySucceeded)
			}
			calls := provider.Of(of(t, r, "text").ID)
			if len(calls) != 1 || calls[0].To != phone || !strings.Contains(calls[0].Text, "493817") {
				t.Errorf("the provider got %d calls, not with what was to be sent", len(calls))
			}
			if n := mail.Of(of(t, r, "mail").ID); n != 1 {
				t.Errorf("%d mails", n)
			}
		}
		used := f.count("SELECT count(*) FROM posthouse_delivery WHERE address_key = 'k2'")
		kept := f.count("SELECT count(*) FROM posthouse_delivery WHERE address_key = 'k1'")
		if used != 2 || kept != 2 {
			t.Errorf("%d addresses under the new key and %d under the old one, want two each", used, kept)
		}
		noFaults(t, provider)
	})
}
