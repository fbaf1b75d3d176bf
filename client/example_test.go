package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthouse/posthouse/client"
)

// The status of an order changes. The key is the order, the event and its
// version: whoever tells it twice, because a job ran again, tells it once.
func Example_orderStatus() {
	url, stop := startServer() // a running Posthouse's admin address: http://127.0.0.1:8081
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	shipped := client.Notification{
		IdempotencyKey: "order:2026-1187:shipped:v1",
		BizType:        "order.shipped",
		Template:       "order_shipped",
		Recipient:      client.Recipient{ID: "u1008", Email: "zhang@example.com"},
		Variables:      map[string]any{"order": "2026-1187", "carrier": "SF", "parcels": 2},
	}
	for range 2 {
		receipt, err := c.Notify(context.Background(), shipped)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(receipt.Status, receipt.Duplicate)
	}
	// Output:
	// accepted false
	// accepted true
}

// Several people must approve something; each is told by a notification of its
// own, all submitted at once. A reminder carries its round in its key.
func Example_approvalsToDo() {
	url, stop := startServer()
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var list []client.Notification
	for _, assignee := range []string{"u1008", "u1009"} {
		list = append(list, client.Notification{
			IdempotencyKey: fmt.Sprintf("approval:9421:assignee:%s:reminder:%d", assignee, 1),
			BizType:        "approval.todo",
			Template:       "approval_todo",
			Recipient:      client.Recipient{ID: assignee, Email: assignee + "@example.com"},
			Variables:      map[string]any{"title": "Travel request"},
			Locale:         "zh-CN",
			ExpiresAt:      time.Now().Add(24 * time.Hour), // after that a reminder is of no use
		})
	}
	results, err := c.NotifyBatch(context.Background(), list)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, r := range results {
		fmt.Println(list[i].Recipient.ID, r.Receipt.Status, r.Err)
	}
	// Output:
	// u1008 accepted <nil>
	// u1009 accepted <nil>
}

// A device raises an alarm: the policy for high priority sends a text message,
// too. The key is the device and the beginning of the alarm, not of each
// measurement.
func Example_deviceAlarm() {
	url, stop := startServer()
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := c.Notify(context.Background(), client.Notification{
		IdempotencyKey: "alarm:boiler-7:overheat:2026-11-30T12:00:00Z",
		BizType:        "device.alarm",
		Template:       "device_alarm",
		Recipient:      client.Recipient{ID: "on-call", Phone: "+8613800004321"},
		Variables:      map[string]any{"device": "boiler-7", "celsius": 121.5},
		Priority:       client.High,
		Tags:           []string{"plant-2"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range receipt.Deliveries {
		fmt.Println(d.Channel, d.Status)
	}
	// Output:
	// text PENDING
}

// A code to sign in with: the template declares the variable code as sensitive,
// so that it is kept encrypted, shown nowhere and erased when it was sent. What is
// not sent in ten minutes is never sent.
func Example_accountSecurity() {
	url, stop := startServer()
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = c.Notify(context.Background(), client.Notification{
		IdempotencyKey: "signin:u1008:challenge:77120",
		BizType:        "account.code",
		Template:       "unknown",
		Recipient:      client.Recipient{ID: "u1008", Phone: "+8613800004321"},
		Variables:      map[string]any{"code": "493817"},
		ExpiresAt:      time.Now().Add(10 * time.Minute),
	})
	if e, ok := errors.AsType[*client.Error](err); ok && e.Code == client.Invalid {
		for _, f := range e.Fields {
			fmt.Printf("%s: %s\n", f.Field, f.Problem) // names, never values
		}
	}
	// Output:
	// template: there is no such template
}
