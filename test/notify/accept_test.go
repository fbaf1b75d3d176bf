package notify

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/posthouse/posthouse/client"
	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/test/internal/running"
)

// everything sends by all channels.
func everything(t *testing.T, mail *running.MailServer, provider *running.Provider) *running.Notify {
	t.Helper()
	return running.NewNotify(t, []running.Channel{
		{Name: "in_app"}, {Name: "mail", Mail: mail}, {Name: "text", Provider: provider.URL},
	}, running.Policy{Send: []string{"in_app", "mail", "text"}})
}

// The same request as clients write it that know nothing of each other.
var writings = []string{
	`{"idempotency_key":"approval:9421:v3","biz_type":"approval.todo","template":"todo","recipient":{"id":"u1","email":"` + address + `","phone":"` + phone + `"},"variables":{"title":"Travel","amount":1}}`,
	`{"variables":{"amount":1.0,"title":"Travel"},"recipient":{"phone":"` + phone + `","id":"u1","email":"` + address + `"},"template":"todo","biz_type":"approval.todo","idempotency_key":"approval:9421:v3"}`,
	"{\n  \"biz_type\": \"approval.todo\",\n\t\"idempotency_key\": \"approval:9421:v3\", \"template\": \"todo\",\n  \"variables\": {\"amount\": 1e0, \"title\": \"\\u0054ravel\"},\n  \"priority\": \"high\", \"tags\": [\"other\"],\n  \"recipient\": {\"id\": \"u1\", \"phone\": \"" + phone + "\", \"email\": \"" + address + "\"} }",
}

func TestOneRequestHoweverOftenItIsSubmitted(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "AC-1 NC-02", engines, func(t *testing.T, e running.Engine) {
		mail, provider := running.NewMailServer(t, running.MailRules{}), running.NewProvider(t, nil)
		f := launch(t, e, 2, everything(t, mail, provider))
		const times = 200
		type answer struct {
			status  int
			receipt client.Receipt
			err     error
		}
		answers := make([]answer, times)
		var group sync.WaitGroup
		gate := make(chan struct{})
		for i := range answers {
			group.Go(func() {
				<-gate
				a := &answers[i]
				var body []byte
				if a.status, body, a.err = post(t.Context(), f.all[i%len(f.all)], "/v1/notifications", writings[i%len(writings)]); a.err == nil {
					a.err = json.Unmarshal(body, &a.receipt)
				}
			})
		}
		close(gate)
		group.Wait()
		var ids []string
		first := 0
		for _, a := range answers {
			switch {
			case a.err != nil:
				t.Fatal(a.err)
			case a.status == http.StatusAccepted && !a.receipt.Duplicate:
				first++
			case a.status != http.StatusOK || !a.receipt.Duplicate:
				t.Fatalf("answered %d %+v", a.status, a.receipt)
			}
			ids = append(ids, a.receipt.ID)
		}
		slices.Sort(ids)
		if ids = slices.Compact(ids); first != 1 || len(ids) != 1 {
			t.Fatalf("%d of %d are no duplicates, and there are %d ids", first, times, len(ids))
		}
		r := answers[0].receipt
		for _, d := range r.Deliveries {
			f.await(f.b(), d.ID, client.DeliverySucceeded)
		}
		if n := f.count("SELECT count(*) FROM posthouse_request"); n != 1 {
			t.Errorf("%d requests are kept", n)
		}
		if n := f.count("SELECT count(*) FROM posthouse_delivery"); n != 3 {
			t.Errorf("%d deliveries are kept, want one for each of 3 channels", n)
		}
		if n := f.count("SELECT count(*) FROM posthouse_user_message"); n != 1 {
			t.Errorf("the user has %d messages", n)
		}
		if mails, calls := len(mail.Letters()), len(provider.Calls()); mails != 1 || calls != 1 {
			t.Errorf("%d mails and %d texts were sent", mails, calls)
		}

		t.Run("NC-02 another value is a conflict that names the field", func(t *testing.T) {
			n := todo("approval:9421:v3", "approval.todo")
			n.Recipient.ID, n.Variables = "u1", map[string]any{"title": "Travel", "amount": 2}
			_, err := f.api(f.b()).Notify(t.Context(), n)
			if named := isRefused(t, err, http.StatusConflict); fmt.Sprint(named) != "[variables]" {
				t.Errorf("the fields that differ: %v", named)
			}
		})
		t.Run("AC-5 without a variable nothing is accepted and nobody called", func(t *testing.T) {
			n := todo("approval:9422:v1", "approval.todo")
			n.Variables = map[string]any{"amount": 2, "titel": "Travel"}
			_, err := f.api(f.a()).Notify(t.Context(), n)
			if named := isRefused(t, err, http.StatusUnprocessableEntity); fmt.Sprint(named) != "[variables.titel variables.title]" {
				t.Errorf("the faults: %v", named)
			}
			if n := f.count("SELECT count(*) FROM posthouse_request"); n != 1 {
				t.Errorf("%d requests are kept", n)
			}
			if mails, calls := len(mail.Letters()), len(provider.Calls()); mails != 1 || calls != 1 {
				t.Errorf("%d mails and %d texts were sent", mails, calls)
			}
		})
		noFaults(t, provider)
	})
}

// Accepting is all or nothing, and the caller who heard nothing repeats it.
func TestACrashWhileARequestIsAccepted(t *testing.T) {
	t.Parallel()
	for _, point := range []struct {
		name string
		kept int
	}{{crashpoint.BeforePutCommit, 0}, {crashpoint.AfterPutCommit, 1}} {
		t.Run(point.name, func(t *testing.T) {
			t.Parallel()
			running.OnEachEngine(t, "AC-1 NC-02", engines, func(t *testing.T, e running.Engine) {
				mail, provider := running.NewMailServer(t, running.MailRules{}), running.NewProvider(t, nil)
				f := ready(t, e, 1, everything(t, mail, provider))
				f.a().Start(point.name + ":1")
				f.a().WaitReady()
				n := todo("order:1:paid", "order.status")
				n.NotBefore = time.Now().Add(2 * time.Second) // so that the process that is killed carries out none of it
				if r, err := f.api(f.a()).Notify(t.Context(), n); err == nil {
					t.Fatalf("a killed server answered %+v", r)
				}
				f.awaitEnd(f.a())
				for _, table := range []struct {
					name string
					each int
				}{{"request", 1}, {"delivery", 3}, {"user_message", 1}, {"work", 2}, {"outcome", 1}} {
					if n := f.count("SELECT count(*) FROM posthouse_" + table.name); n != point.kept*table.each {
						t.Errorf("posthouse_%s has %d rows, want %d", table.name, n, point.kept*table.each)
					}
				}
				f.start(f.a())
				r := f.accept(f.a(), n)
				if r.Duplicate != (point.kept == 1) {
					t.Errorf("the repeated request: duplicate is %v", r.Duplicate)
				}
				for _, d := range r.Deliveries {
					f.await(f.a(), d.ID, client.DeliverySucceeded)
				}
				if mails, calls := len(mail.Letters()), len(provider.Calls()); mails != 1 || calls != 1 {
					t.Errorf("%d mails and %d texts were sent", mails, calls)
				}
				if n := f.count("SELECT count(*) FROM posthouse_request"); n != 1 {
					t.Errorf("%d requests are kept", n)
				}
			})
		})
	}
}
