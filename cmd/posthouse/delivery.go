package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/posthouse/posthouse/client"
)

type deliveryCmd struct {
	List    deliveryListCmd    `cmd:"" help:"List deliveries, newest first."`
	Show    deliveryShowCmd    `cmd:"" help:"Show one delivery with its attempts."`
	Replay  deliveryReplayCmd  `cmd:"" help:"Send deliveries again: by their ids, or all that a status and what narrows it choose."`
	Resolve deliveryResolveCmd `cmd:"" help:"Say what became of a delivery that is UNCERTAIN."`
}

type deliveryListCmd struct {
	apiFlags
	Status  string    `help:"Only those that stand so: PENDING, PROCESSING, RETRY_WAIT, SUCCEEDED, DELIVERED, FAILED, DEAD, UNCERTAIN or CANCELLED."`
	Channel string    `help:"Only those of this channel."`
	From    time.Time `help:"Only those created at this time or after: 2026-11-30T12:00:00Z."`
	To      time.Time `help:"Only those created before."`
	Limit   int       `default:"50" help:"How many, at most 500."`
	Cursor  string    `help:"Where the page before has ended (next_cursor)."`
}

// Help is printed below the flags.
func (*deliveryListCmd) Help() string { return "A running instance is needed." }

func (c *deliveryListCmd) Run(ctx context.Context) error {
	if c.Limit < 1 || c.Limit > 500 {
		return fmt.Errorf("--limit is %d; it must be from 1 to 500", c.Limit)
	}
	f := client.DeliveryFilter{Status: client.DeliveryStatus(strings.ToUpper(c.Status)), Channel: c.Channel, From: c.From, To: c.To, Limit: c.Limit, Cursor: c.Cursor}
	return c.ask(func(from *client.Client) error {
		page, err := from.DeliveryPage(ctx, f)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(page)
		}
		if len(page.Items) == 0 {
			fmt.Println("No deliveries.")
			return nil
		}
		var rows [][]string
		for _, d := range page.Items {
			rows = append(rows, []string{instant(d.CreatedAt), d.ID, plain(d.Channel, 40), string(d.Status), fmt.Sprint(d.AttemptCount), plain(d.Recipient, 40), plain(d.Destination, 60), plain(errorWords(d), 60)})
		}
		if err := table("CREATED | ID | CHANNEL | STATUS | ATTEMPTS | RECIPIENT | TO | ERROR", rows); err != nil {
			return err
		}
		if page.NextCursor != "" {
			fmt.Println("More: --cursor", page.NextCursor)
		}
		return nil
	})
}

func errorWords(d client.Delivery) string {
	return strings.TrimSpace(strings.Join([]string{d.ErrorClass, d.ErrorCode, d.ErrorText}, " "))
}

type deliveryShowCmd struct {
	apiFlags
	ID string `arg:"" help:"The delivery's id."`
}

// Help is printed below the flags.
func (*deliveryShowCmd) Help() string { return "A running instance is needed." }

func (c *deliveryShowCmd) Run(ctx context.Context) error {
	return c.ask(func(from *client.Client) error {
		d, err := from.Delivery(ctx, c.ID)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(d)
		}
		var rows [][]string
		for _, row := range [][]string{
			{"id", d.ID}, {"notification", d.NotificationID}, {"channel", plain(d.Channel, 40)}, {"why", plain(d.Reason, 100)}, {"purpose", d.Purpose},
			{"recipient", plain(d.Recipient, 128)}, {"to", plain(d.Destination, 60)}, {"locale", plain(d.Locale, 40)}, {"status", string(d.Status)},
			{"created", instant(d.CreatedAt)}, {"next attempt", instant(d.NextAttemptAt)}, {"finished", instant(d.FinishedAt)},
			{"provider's id", plain(d.ProviderID, 255)}, {"error", plain(errorWords(d.Delivery), 600)},
		} {
			if row[1] != "" {
				rows = append(rows, row)
			}
		}
		if err := table("", rows); err != nil || len(d.Attempts) == 0 {
			return err
		}
		rows = nil
		for _, a := range d.Attempts {
			rows = append(rows, []string{attemptNumber(a), instant(a.StartedAt), a.EndedAt.Sub(a.StartedAt).Round(time.Millisecond).String(), a.Outcome, a.Class, plain(a.Code, 64), plain(a.Text, 100)})
		}
		fmt.Println()
		return table("ATTEMPT | STARTED | TOOK | OUTCOME | CLASS | CODE | TEXT", rows)
	})
}

type deliveryReplayCmd struct {
	apiFlags
	IDs     []string  `arg:"" optional:"" name:"id" help:"Deliveries' ids. Without any, --status chooses."`
	Reason  string    `required:"" help:"Why, for the audit log."`
	Force   bool      `help:"Also what is UNCERTAIN, SUCCEEDED, DELIVERED or CANCELLED: the recipient may get it twice."`
	Status  string    `help:"All that are FAILED or DEAD; with --force, another status."`
	Channel *string   `help:"With --status: only those of this channel."`
	From    time.Time `help:"With --status: only those created at this time or after."`
	To      time.Time `help:"With --status: only those created before."`
	DryRun  bool      `help:"Only say what would be done."`
}

// Help is printed below the flags.
func (*deliveryReplayCmd) Help() string {
	return "A running instance is needed. A replay keeps the delivery's id and its former attempts. One whose sensitive values are gone cannot be replayed."
}

func (c *deliveryReplayCmd) Run(ctx context.Context) error {
	if (len(c.IDs) == 0) == (c.Status == "") {
		return fmt.Errorf("name deliveries by their ids, or choose them with --status")
	}
	channel := ""
	if c.Channel != nil {
		if channel = *c.Channel; channel == "" {
			return fmt.Errorf("--channel is empty; leave it out where all channels are meant")
		}
	}
	return c.ask(func(to *client.Client) error {
		p := client.BulkReplay{
			IDs: c.IDs, Status: client.DeliveryStatus(strings.ToUpper(c.Status)), Channel: channel, From: c.From, To: c.To,
			DryRun: c.DryRun, Reason: c.Reason, Force: c.Force, Limit: 500,
		}
		all := client.BulkReplayResult{DryRun: c.DryRun, Results: []client.ChangeResult{}}
		for {
			r, err := to.ReplayMany(ctx, p)
			if err != nil {
				if all.Replayed > 0 {
					return fmt.Errorf("%s; before that it replayed %s", err.Error(), countDeliveries(all.Replayed))
				}
				return err
			}
			all.Matched, all.Replayed, all.Results = all.Matched+r.Matched, all.Replayed+r.Replayed, append(all.Results, r.Results...)
			if p.Cursor = r.NextCursor; p.Cursor == "" {
				break
			}
		}
		if c.JSON {
			if err := printJSON(all); err != nil {
				return err
			}
		} else if err := c.print(all); err != nil {
			return err
		}
		if len(c.IDs) > 0 && all.Replayed < len(c.IDs) && !c.DryRun {
			return fmt.Errorf("%d of %s not replayed", len(c.IDs)-all.Replayed, countDeliveries(len(c.IDs)))
		}
		return nil
	})
}

func (c *deliveryReplayCmd) print(all client.BulkReplayResult) error {
	if len(all.Results) > 0 {
		if err := printChanges(all.Results); err != nil {
			return err
		}
	}
	said := "were replayed"
	if c.DryRun {
		said = "would be replayed"
	}
	fmt.Printf("%d of %d %s.\n", all.Replayed, len(all.Results), said)
	return nil
}

type deliveryResolveCmd struct {
	apiFlags
	ID      string `arg:"" help:"The delivery's id."`
	Outcome string `required:"" enum:"sent,not-sent,not_sent" help:"sent: it becomes SUCCEEDED; not-sent: it is sent again."`
	Reason  string `required:"" help:"How you found out, for the audit log."`
}

// Help is printed below the flags.
func (*deliveryResolveCmd) Help() string { return "A running instance is needed." }

func (c *deliveryResolveCmd) Run(ctx context.Context) error {
	return c.ask(func(to *client.Client) error {
		r, err := to.Resolve(ctx, c.ID, client.Outcome(strings.ReplaceAll(c.Outcome, "-", "_")), c.Reason)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(r)
		}
		return printChanges([]client.ChangeResult{r})
	})
}

func printChanges(list []client.ChangeResult) error {
	var rows [][]string
	for _, r := range list {
		change := string(r.Is)
		if r.Done {
			change = string(r.Was) + " → " + string(r.Is)
		}
		rows = append(rows, []string{r.ID, plain(r.Channel, 40), change, plain(r.Detail, 160)})
	}
	return table("DELIVERY | CHANNEL | STATUS | WHY NOT", rows)
}

func countDeliveries(n int) string {
	if n == 1 {
		return "1 delivery"
	}
	return fmt.Sprintf("%d deliveries", n)
}
