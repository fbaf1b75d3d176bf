package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/posthouse/posthouse/internal/app"
	"github.com/posthouse/posthouse/internal/model"
)

type migrateCmd struct {
	Status migrateStatusCmd `cmd:"" help:"List the versions of the tables, applied or not."`
	Up     migrateUpCmd     `cmd:"" help:"Bring the tables to the newest version."`
	Down   migrateDownCmd   `cmd:"" help:"Take one version of the tables back, with all that is kept in them. Refused on a store in use."`
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
	Force bool `help:"Do it although sources and messages are lost."`
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

// unused refuses a store that was ever served from. An instance registers its
// sources before anything else, so where there is none, none lives either.
func unused(ctx context.Context, s app.Store) error {
	versions, err := s.SchemaStatus(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(versions, func(v model.SchemaVersion) bool { return v.AppliedAt != 0 }) {
		return nil
	}
	stats, err := s.Stats(ctx)
	if err != nil {
		return fmt.Errorf("what would be lost cannot be counted (--force does it all the same): %w", err)
	}
	if len(stats) == 0 {
		return nil
	}
	var all, open int64
	for _, source := range stats {
		unfinished := source.Pending + source.Retrying + source.Processing
		open += unfinished
		all += unfinished + source.Success + source.Failed
	}
	return fmt.Errorf("this store is in use: %s with %s, %d of them unfinished, would be lost; stop every instance, and say --force if that is meant",
		count(len(stats), "source"), count(all, "message"), open)
}

// count is a number with its noun.
func count[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
