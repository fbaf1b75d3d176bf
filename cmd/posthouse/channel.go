package main

import (
	"context"
	"fmt"

	"github.com/posthouse/posthouse/client"
)

type channelCmd struct {
	List   channelListCmd   `cmd:"" help:"List channels, and how they are doing."`
	Pause  channelPauseCmd  `cmd:"" help:"Stop sending through a channel. Deliveries wait, and burn no attempt."`
	Resume channelResumeCmd `cmd:"" help:"Go on sending."`
	Test   channelTestCmd   `cmd:"" help:"Send a test message, once."`
}

type channelListCmd struct{ apiFlags }

// Help is printed below the flags.
func (*channelListCmd) Help() string { return "A running instance is needed." }

func (c *channelListCmd) Run(ctx context.Context) error {
	return c.ask(func(from *client.Client) error {
		list, err := from.Channels(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(map[string]any{"channels": orEmpty(list)})
		}
		var rows [][]string
		for _, ch := range list {
			why := ch.Reason
			if ch.By != "" {
				why = fmt.Sprintf("%s (by %s)", ch.Reason, ch.By)
			}
			rows = append(rows, []string{
				plain(ch.Name, 40), plain(ch.Type, 20), ch.State, fmt.Sprint(ch.Pending), fmt.Sprint(ch.RetryWait), fmt.Sprint(ch.Succeeded),
				fmt.Sprint(ch.Failed), fmt.Sprint(ch.Dead), fmt.Sprint(ch.Uncertain), instant(ch.Since), plain(why, 100),
			})
		}
		return table("NAME | TYPE | STATE | PENDING | RETRY_WAIT | SUCCEEDED | FAILED | DEAD | UNCERTAIN | SINCE | WHY", rows)
	})
}

type channelSwitchFlags struct {
	apiFlags
	Name   string `arg:"" help:"The channel."`
	Reason string `required:"" help:"Why, for the audit log."`
}

type channelPauseCmd struct{ channelSwitchFlags }

// Help is printed below the flags.
func (*channelPauseCmd) Help() string { return "A running instance is needed." }

func (c *channelPauseCmd) Run(ctx context.Context) error {
	return c.set(ctx, (*client.Client).Pause, "paused")
}

type channelResumeCmd struct{ channelSwitchFlags }

// Help is printed below the flags.
func (*channelResumeCmd) Help() string { return "A running instance is needed." }

func (c *channelResumeCmd) Run(ctx context.Context) error {
	return c.set(ctx, (*client.Client).Resume, "active")
}

func (c channelSwitchFlags) set(ctx context.Context, do func(*client.Client, context.Context, string, string) (client.SwitchResult, error), word string) error {
	return c.ask(func(to *client.Client) error {
		r, err := do(to, ctx, c.Name, c.Reason)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(r)
		}
		fmt.Printf("%s is %s. Other instances follow at their next heartbeat.\n", r.Name, word)
		return nil
	})
}

type channelTestCmd struct {
	apiFlags
	Name    string `arg:"" help:"The channel."`
	Address string `required:"" help:"Yours: it gets a message."`
}

// Help is printed below the flags.
func (*channelTestCmd) Help() string { return "A running instance is needed." }

func (c *channelTestCmd) Run(ctx context.Context) error {
	return c.ask(func(to *client.Client) error {
		r, err := to.Test(ctx, c.Name, c.Address)
		if err != nil {
			return err
		}
		if c.JSON {
			if err := printJSON(r); err != nil {
				return err
			}
		} else {
			fmt.Println(plain(r.Class, 20), plain(r.Code, 64), plain(r.Text, 500), plain(r.ProviderID, 255))
		}
		if r.Class != "success" {
			return fmt.Errorf("the test message was not accepted: %s", plain(r.Class, 20))
		}
		return nil
	})
}
