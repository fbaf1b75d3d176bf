package client_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/client"
	"github.com/posthouse/posthouse/internal/httpapi"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/notify"
)

// centre accepts all that has what is required, each key once.
type centre struct {
	mu    sync.Mutex
	known map[string]notify.Receipt
}

func (c *centre) Accept(_ context.Context, s notify.Submission) (notify.Receipt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.known[s.IdempotencyKey]; ok {
		r.Duplicate = true
		return r, nil
	}
	if s.Template == "unknown" {
		return notify.Receipt{}, &notify.Error{Code: notify.Invalid, Detail: "The notification is wrong.", Fields: []notify.FieldError{{Field: "template", Problem: "there is no such template"}}}
	}
	r := notify.Receipt{ID: uuid.Must(uuid.NewV7()), Status: notify.StatusAccepted}
	for kind := range s.Recipient.Addresses {
		r.Deliveries = append(r.Deliveries, notify.Delivered{ID: uuid.Must(uuid.NewV7()), Channel: map[string]string{"email": "mail", "phone": "text"}[kind], Status: model.DeliveryPending, Reason: "policy 1"})
	}
	c.known[s.IdempotencyKey] = r
	return r, nil
}

// startServer serves the real API in front of a centre that keeps nothing.
func startServer() (url string, stop func()) {
	server := httptest.NewServer(httpapi.New(httpapi.Config{Notifications: &centre{known: map[string]notify.Receipt{}}, Listen: "127.0.0.1:0"}))
	return server.URL, server.Close
}

func TestAgainstTheAPI(t *testing.T) {
	url, stop := startServer()
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := client.Notification{IdempotencyKey: "order:7:paid", BizType: "order.paid", Template: "order", Recipient: client.Recipient{ID: "u1", Email: "u1@example.com"},
		Variables: map[string]any{"html": "<b>&", "n": 1}, Priority: client.High, Tags: []string{"shop"}}
	first, err := c.Notify(t.Context(), n)
	if err != nil || first.Duplicate || len(first.Deliveries) != 1 {
		t.Fatalf("%+v %v", first, err)
	}
	if again, err := c.Notify(t.Context(), n); err != nil || !again.Duplicate || again.ID != first.ID {
		t.Errorf("NC-02 the same again: %+v %v", again, err)
	}
	bad := n
	bad.IdempotencyKey, bad.Template = "order:8:paid", "unknown"
	results, err := c.NotifyBatch(t.Context(), []client.Notification{n, bad, {}})
	if err != nil || results[0].Receipt.ID != first.ID {
		t.Fatalf("%+v %v", results, err)
	}
	for i, field := range map[int]string{1: "template", 2: "idempotency_key"} {
		if e, ok := errors.AsType[*client.Error](results[i].Err); !ok || e.Code != client.Invalid || e.Fields[0].Field != field {
			t.Errorf("%d: %v", i, results[i].Err)
		}
	}
	_, err = c.Notification(t.Context(), first.ID)
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != client.NotFound || !strings.Contains(e.Detail, "not configured") {
		t.Errorf("what is not configured: %v", err)
	}
}

// members are the names that a type has in JSON, with embedded ones.
func members(of any) []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestSameShapes: what the server writes, the client reads, member by member.
func TestSameShapes(t *testing.T) {
	for _, pair := range [][2]any{
		{httpapi.NotificationRequest{}, client.Notification{}},
		{httpapi.NotificationReceipt{}, client.Receipt{}},
		{httpapi.ReceiptDelivery{}, client.ReceiptDelivery{}},
		{httpapi.ChannelReason{}, client.Choice{}},
		{httpapi.NotificationDetail{}, client.NotificationDetail{}},
		{httpapi.TimelineEvent{}, client.Event{}},
		{httpapi.DeliveryItem{}, client.Delivery{}},
		{httpapi.DeliveryDetail{}, client.DeliveryDetail{}},
		{httpapi.DeliveryList{}, client.DeliveryPage{}},
		{httpapi.DeliveryAttempt{}, client.Attempt{}},
		{httpapi.Change{}, client.ChangeResult{}},
		{httpapi.CancelAnswer{}, client.CancelResult{}},
		{httpapi.BulkReplayAnswer{}, client.BulkReplayResult{}},
		{httpapi.UserMessageItem{}, client.UserMessage{}},
		{httpapi.ChannelItem{}, client.Channel{}},
		{httpapi.ChannelSwitch{}, client.SwitchResult{}},
		{httpapi.TestAnswer{}, client.TestResult{}},
		{httpapi.AuditItem{}, client.AuditRecord{}},
		{httpapi.AuditList{}, client.AuditPage{}},
	} {
		if diff := cmp.Diff(members(pair[0]), members(pair[1])); diff != "" {
			t.Errorf("%T and %T: -server +client\n%s", pair[0], pair[1], diff)
		}
	}
}

func TestSameTableOfCodes(t *testing.T) {
	for status := 200; status < 600; status++ {
		for _, told := range []model.Code{"", "of the future", model.CodeInvalid, model.CodeNotFound, httpapi.CodeConflict, model.CodeBusy, model.CodeRejected,
			model.CodeUnavailable, model.CodeInternal, model.CodeUnsafe, model.CodeSchema} {
			if server, here := httpapi.CodeOf(status, told), client.CodeOf(status, client.Code(told)); string(server) != string(here) {
				t.Errorf("%d with %q: the server means %q, the client %q", status, told, server, here)
			}
			if told != "" && httpapi.StatusOf(told) != client.StatusOf(client.Code(told)) {
				t.Errorf("%q: another status", told)
			}
		}
	}
	words := func(of []model.DeliveryStatus) (list []client.DeliveryStatus) {
		for _, s := range of {
			list = append(list, client.DeliveryStatus(s))
		}
		return list
	}(model.DeliveryStatuses())
	if diff := cmp.Diff([]client.DeliveryStatus{client.DeliveryPending, client.DeliveryProcessing, client.DeliveryRetryWait, client.DeliverySucceeded, client.DeliveryDelivered,
		client.DeliveryFailed, client.DeliveryDead, client.DeliveryUncertain, client.DeliveryCancelled}, words); diff != "" {
		t.Errorf("statuses: -client +server\n%s", diff)
	}
}
