package notify

import (
	"context"
	"net"
	"testing"

	"github.com/posthouse/posthouse/client"
	"github.com/posthouse/posthouse/test/internal/running"
)

// Nobody listens at the providers' addresses, and then somebody does.
func TestAChannelThatFirstRefusesConnections(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "AC-2", engines, func(t *testing.T, e running.Engine) {
		providerAt, mailAt := running.FreeAddress(t), running.FreeAddress(t)
		port, err := net.ResolveTCPAddr("tcp", mailAt)
		if err != nil {
			t.Fatal(err)
		}
		mail := running.MailServerLater(t, port.Port)
		f := launch(t, e, 2, running.NewNotify(t, []running.Channel{
			{Name: "mail", Mail: mail}, {Name: "text", Provider: "http://" + providerAt},
		}, running.Policy{Send: []string{"mail", "text"}}))
		r := f.accept(f.a(), todo("order:1:paid", "order.status"))
		for _, d := range r.Deliveries {
			waiting := f.await(f.b(), d.ID, client.DeliveryRetryWait)
			if waiting.ErrorClass != "transient" || waiting.ErrorCode != "connect" {
				t.Errorf("%s waits for %s %q", d.Channel, waiting.ErrorClass, waiting.ErrorCode)
			}
		}
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", mailAt)
		if err != nil {
			t.Fatal(err)
		}
		mail.Serve(t, l)
		provider := running.NewProviderAt(t, providerAt, nil)
		for _, d := range r.Deliveries {
			ended := f.await(f.b(), d.ID, client.DeliverySucceeded)
			if last := ended.Attempts[len(ended.Attempts)-1]; last.Outcome != "success" || len(ended.Attempts) < 2 {
				t.Errorf("%s: %d attempts, the last a %s", d.Channel, len(ended.Attempts), last.Outcome)
			}
		}
		if mails, calls := len(mail.Letters()), len(provider.Calls()); mails != 1 || calls != 1 {
			t.Errorf("%d mails and %d texts were sent", mails, calls)
		}
		noFaults(t, provider)
	})
}
