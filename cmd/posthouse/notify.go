package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/posthouse/posthouse/client"
)

type notifyCmd struct {
	apiFlags
	File string `short:"f" help:"A file with the JSON of one notification, of a list of them, or of {\"notifications\": […]}; - is standard input. Instead of the flags below."`

	Key       string    `help:"The idempotency key: another one with the same key and content is the same one."`
	BizType   string    `help:"What happened, for policies: approval.todo."`
	Template  string    `help:"The code of a template."`
	To        string    `help:"The recipient's id."`
	Email     string    `help:"The recipient's e-mail address."`
	Phone     string    `help:"The recipient's telephone number."`
	Address   []string  `sep:"none" placeholder:"KIND=ADDRESS" help:"A further address, for channels with another kind."`
	Var       []string  `sep:"none" placeholder:"NAME=TEXT" help:"A variable; NAME:=JSON for one that is no text. What stands on a command line is seen by others on this machine: sensitive ones belong into --file."`
	Priority  string    `help:"low, normal or high."`
	Locale    string    `help:"Such as zh-CN."`
	NotBefore time.Time `help:"Send nothing before: 2026-11-30T12:00:00Z."`
	ExpiresAt time.Time `help:"Cancel what is not sent by then."`
	Tag       []string  `sep:"none" help:"For policies."`
}

// Help is printed below the flags.
func (*notifyCmd) Help() string {
	return "A running instance is needed. Submitting once more with the same key and content changes nothing, and says that it is a duplicate."
}

func (c *notifyCmd) Run(ctx context.Context) error {
	if c.File != "" {
		return c.submitFile(ctx)
	}
	n, err := c.notification()
	if err != nil {
		return err
	}
	return c.ask(func(to *client.Client) error {
		receipt, err := to.Notify(ctx, n)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(receipt)
		}
		return printReceipt(receipt)
	})
}

// notification is the one that the flags describe.
func (c *notifyCmd) notification() (client.Notification, error) {
	n := client.Notification{
		IdempotencyKey: c.Key, BizType: c.BizType, Template: c.Template, Recipient: client.Recipient{ID: c.To, Email: c.Email, Phone: c.Phone},
		Variables: map[string]any{}, Priority: client.Priority(c.Priority), Locale: c.Locale, NotBefore: c.NotBefore, ExpiresAt: c.ExpiresAt, Tags: c.Tag,
	}
	var missing []string
	for _, f := range [][2]string{{"--key", c.Key}, {"--biz-type", c.BizType}, {"--template", c.Template}, {"--to", c.To}} {
		if f[1] == "" {
			missing = append(missing, f[0])
		}
	}
	if missing != nil {
		return n, fmt.Errorf("%s missing; or give the whole notification with --file", strings.Join(missing, ", "))
	}
	for _, text := range c.Address {
		kind, address, ok := strings.Cut(text, "=")
		if !ok || kind == "" {
			return n, errors.New("--address is KIND=ADDRESS")
		}
		if n.Recipient.Other == nil {
			n.Recipient.Other = map[string]string{}
		}
		n.Recipient.Other[kind] = address
	}
	for _, text := range c.Var {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return n, errors.New("--var is NAME=TEXT, or NAME:=JSON")
		}
		if name, isJSON := strings.CutSuffix(name, ":"); isJSON {
			if !json.Valid([]byte(value)) {
				return n, fmt.Errorf("--var %s:= is not followed by JSON; %s= takes a text", name, name)
			}
			n.Variables[name] = json.RawMessage(value)
			continue
		}
		n.Variables[name] = value
	}
	return n, nil
}

// maxFile bounds what is read: the server takes no more.
const maxFile = 8 << 20

func (c *notifyCmd) submitFile(ctx context.Context) error {
	list, single, err := readNotifications(c.File)
	if err != nil {
		return err
	}
	return c.ask(func(to *client.Client) error {
		if single {
			receipt, err := to.Notify(ctx, list[0])
			if err != nil {
				return err
			}
			if c.JSON {
				return printJSON(receipt)
			}
			return printReceipt(receipt)
		}
		results, err := to.NotifyBatch(ctx, list)
		if err != nil {
			return err
		}
		return c.printBatch(list, results)
	})
}

// readNotifications reads a file. Members that are not known are refused, so that
// none is left out for being misspelt.
func readNotifications(file string) (list []client.Notification, single bool, err error) {
	in := os.Stdin
	if file != "-" {
		if in, err = os.Open(file); err != nil {
			return nil, false, err
		}
		defer func() { _ = in.Close() }()
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, false, err
	}
	if len(data) > maxFile {
		return nil, false, errors.New("the file is longer than the 8 MiB that a batch may have; split it")
	}
	var into any = &list
	switch {
	case bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")):
	case hasMember(data, "notifications"):
		into = &struct {
			Notifications *[]client.Notification `json:"notifications"`
		}{&list}
	default:
		single = true
		list = make([]client.Notification, 1)
		into = &list[0]
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	d.UseNumber() // numbers stay exact
	if err := d.Decode(into); err != nil {
		return nil, false, fmt.Errorf("read the notification: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, false, errors.New("read the notification: something follows it")
	}
	if len(list) == 0 || len(list) > client.MaxBatch {
		return nil, false, fmt.Errorf("the file has %s; a batch has 1 to %d", count(len(list), "notification"), client.MaxBatch)
	}
	return list, single, nil
}

func hasMember(data []byte, name string) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(data, &members) == nil && members[name] != nil
}

func (c *notifyCmd) printBatch(list []client.Notification, results []client.BatchResult) error {
	type line struct {
		Key     string          `json:"idempotency_key"`
		Receipt *client.Receipt `json:"notification,omitempty"`
		Error   string          `json:"error,omitempty"`
	}
	lines := make([]line, len(results))
	var rows [][]string
	refused := 0
	for i, r := range results {
		lines[i].Key = list[i].IdempotencyKey
		row := []string{plain(list[i].IdempotencyKey, 60), "", ""}
		if r.Err != nil {
			refused++
			lines[i].Error = r.Err.Error()
			row[2] = plain(r.Err.Error(), 200)
		} else {
			lines[i].Receipt = &results[i].Receipt
			row[1], row[2] = r.Receipt.ID, acceptedWord(r.Receipt)
		}
		rows = append(rows, row)
	}
	var err error
	if c.JSON {
		err = printJSON(map[string]any{"results": lines})
	} else {
		err = table("KEY | ID | RESULT", rows)
	}
	if err == nil && refused > 0 {
		err = fmt.Errorf("%d of %s not accepted", refused, count(len(results), "notification"))
	}
	return err
}

func acceptedWord(r client.Receipt) string {
	if r.Duplicate {
		return "duplicate"
	}
	return "accepted"
}

func printReceipt(r client.Receipt) error {
	word := "Accepted"
	if r.Duplicate {
		word = "Accepted before"
	}
	if _, err := fmt.Printf("%s: %s\n", word, r.ID); err != nil {
		return err
	}
	var rows [][]string
	for _, d := range r.Deliveries {
		rows = append(rows, []string{"  " + plain(d.Channel, 40), string(d.Status), plain(d.Reason, 100), d.ID})
	}
	for _, s := range r.Skipped {
		rows = append(rows, []string{"  " + plain(s.Channel, 40), "skipped", plain(s.Reason, 100), ""})
	}
	return table("", rows)
}

type notificationCmd struct {
	Show   notificationShowCmd   `cmd:"" help:"Show one notification with what happened to it."`
	Cancel notificationCancelCmd `cmd:"" help:"Cancel what has not begun to be sent."`
}

type notificationShowCmd struct {
	apiFlags
	ID string `arg:"" help:"The notification's id."`
}

// Help is printed below the flags.
func (*notificationShowCmd) Help() string { return "A running instance is needed." }

func (c *notificationShowCmd) Run(ctx context.Context) error {
	return c.ask(func(from *client.Client) error {
		n, err := from.Notification(ctx, c.ID)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(n)
		}
		return printNotification(n)
	})
}

func printNotification(n client.NotificationDetail) error {
	rows := [][]string{
		{"id", n.ID}, {"status", string(n.Status)}, {"key", plain(n.IdempotencyKey, 128)}, {"business type", plain(n.BizType, 128)},
		{"template", plain(n.Template, 64)}, {"recipient", plain(n.Recipient, 128)}, {"priority", string(n.Priority)}, {"locale", plain(n.Locale, 40)},
		{"tags", plain(strings.Join(n.Tags, ", "), 200)}, {"accepted", instant(n.AcceptedAt)}, {"not before", instant(n.NotBefore)},
		{"expires", instant(n.ExpiresAt)}, {"sensitive values", n.Sensitive},
	}
	var shown [][]string
	for _, row := range rows {
		if row[1] != "" {
			shown = append(shown, row)
		}
	}
	if err := table("", shown); err != nil {
		return err
	}
	rows = nil
	for _, d := range n.Deliveries {
		rows = append(rows, []string{plain(d.Channel, 40), string(d.Status), fmt.Sprint(d.AttemptCount), plain(d.Destination, 60), d.ID})
	}
	fmt.Println()
	if err := table("CHANNEL | STATUS | ATTEMPTS | TO | DELIVERY", rows); err != nil {
		return err
	}
	rows = nil
	for _, e := range n.Timeline {
		rows = append(rows, []string{instant(e.At), e.Event, plain(e.Channel, 40), plain(whatHappened(e), 160)})
	}
	fmt.Println()
	return table("AT | EVENT | CHANNEL | WHAT", rows)
}

func whatHappened(e client.Event) string {
	switch {
	case e.Attempt != nil:
		return attemptWords(*e.Attempt)
	case e.Action != "":
		return fmt.Sprintf("%s by %s: %s", e.Action, e.Actor, e.Reason)
	}
	return e.Reason
}

func attemptWords(a client.Attempt) string {
	parts := []string{attemptNumber(a), a.Class}
	for _, part := range []string{a.Code, a.Text} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " · ")
}

func attemptNumber(a client.Attempt) string {
	if a.Replay > 0 {
		return fmt.Sprintf("%d (replay %d)", a.N, a.Replay)
	}
	return fmt.Sprint(a.N)
}

type notificationCancelCmd struct {
	apiFlags
	ID     string `arg:"" help:"The notification's id."`
	Reason string `help:"Why, for the audit log."`
}

// Help is printed below the flags.
func (*notificationCancelCmd) Help() string {
	return "A running instance is needed. What was sent, or is being sent, stays so; the answer says for each delivery what came of it."
}

func (c *notificationCancelCmd) Run(ctx context.Context) error {
	return c.ask(func(to *client.Client) error {
		r, err := to.Cancel(ctx, c.ID, c.Reason)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(r)
		}
		fmt.Printf("The notification is %s.\n", r.Status)
		return printChanges(r.Deliveries)
	})
}
