package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/app"
	"github.com/posthouse/posthouse/internal/httpapi"
	"github.com/posthouse/posthouse/internal/model"
)

// The longest that a command waits for the store.
const lookBound = 15 * time.Second

type inboxCmd struct {
	List   inboxListCmd   `cmd:"" help:"List messages, newest first."`
	Show   inboxShowCmd   `cmd:"" help:"Show one message with its attempts."`
	Stats  inboxStatsCmd  `cmd:"" help:"Count messages by source and state."`
	Pause  inboxPauseCmd  `cmd:"" help:"Switch the handling of a source off. Messages are still received and kept."`
	Resume inboxResumeCmd `cmd:"" help:"Switch the handling of a source on."`
}

type inboxListCmd struct {
	storeFlags
	Source string `help:"Only of this source."`
	State  string `help:"Only in this state: pending, retrying, processing, success or failed."`
	Limit  int    `default:"50" help:"How many, at most 500."`
	Cursor string `help:"Where the page before has ended (next_cursor)."`
}

var filters = map[string]model.Filter{
	"": model.AnyState, "pending": model.OnlyPending, "retrying": model.OnlyRetrying,
	"processing": model.OnlyProcessing, "success": model.OnlySuccess, "failed": model.OnlyFailed,
}

func (c *inboxListCmd) Run(ctx context.Context) error {
	filter, ok := filters[c.State]
	if !ok {
		return fmt.Errorf("--state is pending, retrying, processing, success or failed, not %q", c.State)
	}
	if c.Limit < 1 || c.Limit > 500 {
		return fmt.Errorf("--limit is %d; it must be from 1 to 500", c.Limit)
	}
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	return c.withReady(ctx, toLook, func(s app.Store) error {
		p := model.ListParams{Filter: filter, Limit: c.Limit}
		if c.Source != "" {
			source, err := findSource(ctx, s, c.Source)
			if err != nil {
				return err
			}
			p.Source = source.ID
		}
		if c.Cursor != "" {
			var err error
			if p.After, err = httpapi.DecodeCursor(p, c.Cursor); err != nil {
				return fmt.Errorf("--cursor: %w", err)
			}
		}
		page, err := s.ListMessages(ctx, p)
		if err != nil {
			return err
		}
		list := httpapi.NewMessageList(p, page)
		if c.JSON {
			return printJSON(list)
		}
		return printMessages(page, list)
	})
}

func findSource(ctx context.Context, s app.Store, name string) (model.Source, error) {
	sources, err := s.Sources(ctx)
	if err != nil {
		return model.Source{}, err
	}
	for _, source := range sources {
		if source.Name == name && source.Tenant == model.TenantInbox {
			return source, nil
		}
	}
	return model.Source{}, fmt.Errorf("there is no source %q; %s inbox stats lists them", name, self())
}

func printMessages(page model.MessagePage, list httpapi.MessageList) error {
	if len(page.Items) == 0 {
		_, err := fmt.Println("No messages.")
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "RECEIVED\tID\tSOURCE\tSTATE\tRETRIES\tSIZE\tTYPE\tERROR")
	for _, m := range page.Items {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", m.ReceivedAt.Time().Format(time.RFC3339), m.ID, m.Source, stateOf(m), m.RetryCount, m.Size,
			plain(m.ContentType, 30), plain(m.Error, 60))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if list.NextCursor != nil {
		_, err := fmt.Printf("More: --cursor %s\n", *list.NextCursor)
		return err
	}
	return nil
}

// stateOf is the state as people list it.
func stateOf(m model.MessageView) string {
	if m.State == model.Pending && m.RetryCount > 0 {
		return "retrying"
	}
	return m.State.String()
}

type inboxShowCmd struct {
	storeFlags
	ID   string `arg:"" help:"The message's id."`
	Body bool   `help:"Print the exact body instead, and nothing else. Not together with --json."`
}

func (c *inboxShowCmd) Run(ctx context.Context) error {
	if c.Body && c.JSON {
		return fmt.Errorf("--body prints the exact bytes, which JSON cannot hold; leave --json out")
	}
	id, err := uuid.Parse(c.ID)
	if err != nil {
		return fmt.Errorf("%q is no message id; it looks like 0190a5c2-7b1e-7cc3-98c4-dc0c0c07398f", c.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	return c.withReady(ctx, toLook, func(s app.Store) error {
		if c.Body {
			m, err := s.Body(ctx, id)
			if err != nil {
				return notThere(err, c.ID)
			}
			_, err = os.Stdout.Write(m.Body)
			return err
		}
		view, attempts, err := s.Message(ctx, id)
		if err != nil {
			return notThere(err, c.ID)
		}
		if c.JSON {
			return printJSON(httpapi.NewMessageDetail(view, attempts))
		}
		return printMessage(view, attempts)
	})
}

func notThere(err error, id string) error {
	if model.CodeOf(err) == model.CodeNotFound {
		return fmt.Errorf("there is no message %s", id)
	}
	return err
}

func printMessage(m model.MessageView, attempts []model.AttemptView) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	line("id", m.ID.String())
	line("source", m.Source)
	line("state", stateOf(m))
	line("received", moment(m.ReceivedAt))
	line("next attempt", moment(m.NextRetryAt))
	line("finished", moment(m.FinishedAt))
	line("content type", plain(m.ContentType, 200))
	line("size", fmt.Sprint(m.Size))
	line("not checked", plain(m.Check, 500))
	line("error", plain(m.Error, 500))
	if len(attempts) > 0 {
		_, _ = fmt.Fprintln(w, "\nATTEMPT\tSTARTED\tTOOK\tOUTCOME\tREASON\tERROR")
	}
	for _, a := range attempts {
		n := fmt.Sprint(a.N)
		if a.Replay > 0 {
			n += fmt.Sprintf(" (replay %d)", a.Replay)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", n, moment(a.StartedAt), a.EndedAt.Sub(a.StartedAt).Round(time.Millisecond), a.Outcome, a.Reason, plain(a.Error, 100))
	}
	return w.Flush()
}

func moment(m model.Micros) string {
	if m == 0 {
		return ""
	}
	return m.Time().Format("2006-01-02T15:04:05.000Z07:00")
}

type inboxStatsCmd struct{ storeFlags }

func (c *inboxStatsCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	return c.withReady(ctx, toLook, func(s app.Store) error {
		stats, err := s.Stats(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(httpapi.NewStats(stats))
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "SOURCE\tPENDING\tRETRYING\tPROCESSING\tSUCCESS\tFAILED\tOLDEST DUE\tHANDLING")
		for _, s := range stats {
			if s.Source.Tenant != model.TenantInbox {
				continue
			}
			handling := "on"
			if !s.Source.Enabled {
				handling = "off"
			}
			_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", s.Source.Name, s.Pending, s.Retrying, s.Processing, s.Success, s.Failed,
				s.OldestDueAge.Round(time.Millisecond), handling)
		}
		return w.Flush()
	})
}

type inboxPauseCmd struct{ switchFlags }

func (c *inboxPauseCmd) Run(ctx context.Context) error { return c.set(ctx, false) }

type inboxResumeCmd struct{ switchFlags }

func (c *inboxResumeCmd) Run(ctx context.Context) error { return c.set(ctx, true) }

type switchFlags struct {
	storeFlags
	Source string `arg:"" help:"The source."`
}

func (c switchFlags) set(ctx context.Context, enabled bool) error {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	return c.withReady(ctx, toChange, func(s app.Store) error {
		if strings.HasPrefix(c.Source, model.ChannelPrefix) {
			return fmt.Errorf("%q is no source; %s channel pause and resume switch channels", c.Source, self())
		}
		if err := s.SetEnabled(ctx, c.Source, enabled); model.CodeOf(err) == model.CodeNotFound {
			return fmt.Errorf("there is no source %q; %s inbox stats lists them", c.Source, self())
		} else if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(map[string]any{"source": c.Source, "enabled": enabled})
		}
		word := "off"
		if enabled {
			word = "on"
		}
		_, err := fmt.Printf("Handling of %s is switched %s. Running instances follow at their next heartbeat.\n", c.Source, word)
		return err
	})
}

func printJSON(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
