package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/posthouse/posthouse/internal/app"
	"github.com/posthouse/posthouse/internal/model"
)

type migrateCmd struct {
	Status migrateStatusCmd `cmd:"" help:"List the versions of the tables, applied or not."`
	Up     migrateUpCmd     `cmd:"" help:"Bring the tables to the newest version."`
	Down   migrateDownCmd   `cmd:"" help:"Take one version of the tables back, with all that is kept in what it brought. Refused on a store in use."`
}

type migrateStatusCmd struct{ storeFlags }

func (c *migrateStatusCmd) Run(ctx context.Context) error {
	return c.with(ctx, toLook, func(s app.Store) error {
		versions, err := s.SchemaStatus(ctx)
		if err != nil {
			return err
		}
		type row struct {
			Version   int        `json:"version"`
			Name      string     `json:"name"`
			AppliedAt *time.Time `json:"applied_at"`
			// Unknown is a version that a newer binary has applied.
			Unknown bool `json:"unknown"`
		}
		rows := []row{}
		for _, v := range versions {
			r := row{Version: v.Version, Name: v.Name, Unknown: v.Unknown}
			if v.AppliedAt != 0 {
				at := v.AppliedAt.Time()
				r.AppliedAt = &at
			}
			rows = append(rows, r)
		}
		if c.JSON {
			return printJSON(rows)
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "VERSION\tNAME\tAPPLIED")
		for _, r := range rows {
			applied := "not yet"
			if r.AppliedAt != nil {
				applied = r.AppliedAt.Format(time.RFC3339)
			}
			if r.Unknown {
				applied += " (unknown to this posthouse: a newer one made it)"
			}
			_, _ = fmt.Fprintf(w, "%d\t%s\t%s\n", r.Version, r.Name, applied)
		}
		return w.Flush()
	})
}

type migrateUpCmd struct{ storeFlags }

func (c *migrateUpCmd) Run(ctx context.Context) error {
	return c.with(ctx, toCreate, func(s app.Store) error {
		applied, err := s.MigrateUp(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(map[string][]int{"applied": orEmpty(applied)})
		}
		if len(applied) == 0 {
			_, err = fmt.Println("The tables are up to date.")
			return err
		}
		_, err = fmt.Println("Applied:", applied)
		return err
	})
}

type migrateDownCmd struct {
	storeFlags
	Force bool `help:"Do it although the store is in use, and something is lost."`
}

func (c *migrateDownCmd) Run(ctx context.Context) error {
	p := toChange
	p.Consumer = !c.Force // on SQLite nobody can consume meanwhile
	err := c.with(ctx, p, func(s app.Store) error {
		if !c.Force {
			if err := unused(ctx, s); err != nil {
				return err
			}
		}
		undone, err := s.MigrateDown(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(map[string]int{"undone": undone})
		}
		if undone == 0 {
			_, err = fmt.Println("There is nothing to take back.")
			return err
		}
		_, err = fmt.Println("Took back version", undone)
		return err
	})
	if model.CodeOf(err) == model.CodeBusy {
		return fmt.Errorf("%w; stop it first", err)
	}
	return err
}

// losses says of each version what goes where it is taken back.
var losses = map[int]string{
	1: "all messages that were received are lost, with what became of them",
	2: "no message is lost, but which pushes are duplicates is forgotten, and what order the instances have agreed on",
	3: "no message is lost that was received, but all notifications are, with their deliveries, what users read in the application and the audit log; " +
		"what is waiting is not sent, and since the idempotency keys are forgotten, what is submitted again is sent again",
}

// loss is what goes with a version, also with one of a newer binary.
func loss(version int) string {
	what, known := losses[version]
	if !known {
		what = "all is lost that is kept in what it brought"
	}
	return fmt.Sprintf("without version %d %s", version, what)
}

// unused refuses a store that was ever served from. An instance registers its
// sources and channels before anything else, so where there are none, none lives
// either.
func unused(ctx context.Context, s app.Store) error {
	versions, err := s.SchemaStatus(ctx)
	if err != nil {
		return err
	}
	newest, complete := 0, true
	for _, v := range versions {
		if v.AppliedAt != 0 {
			newest = max(newest, v.Version)
		} else {
			complete = false
		}
	}
	const mend = "stop every instance, and say --force if that is meant"
	switch {
	case newest == 0:
		return nil
	case !complete: // these tables cannot be read
		return fmt.Errorf("whether this store is in use cannot be told, since its tables are older than this posthouse: %s; %s", loss(newest), mend)
	}
	queues, err := s.Sources(ctx)
	if err != nil {
		return fmt.Errorf("whether this store is in use cannot be told (--force does it all the same): %w", err)
	}
	if len(queues) == 0 {
		return nil
	}
	return fmt.Errorf("this store is in use by %s: %s; %s", users(queues), loss(newest), mend)
}

// users counts sources and channels.
func users(queues []model.Source) string {
	var sources, channels int
	for _, q := range queues {
		if q.Tenant == model.TenantInbox {
			sources++
		} else {
			channels++
		}
	}
	switch {
	case channels == 0:
		return count(sources, "source")
	case sources == 0:
		return count(channels, "channel")
	}
	return count(sources, "source") + " and " + count(channels, "channel")
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
