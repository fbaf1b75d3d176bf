package main

import (
	"context"
	"errors"
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

// unused refuses a store that was ever served from. An instance registers its
// sources before anything else, so where there is none, none lives either.
func unused(ctx context.Context, s app.Store) error {
	versions, err := s.SchemaStatus(ctx)
	if err != nil {
		return err
	}
	newest := 0
	for _, v := range versions {
		if v.AppliedAt != 0 {
			newest = max(newest, v.Version)
		}
	}
	switch newest {
	case 0:
		return nil
	case 1: // these tables cannot be read: they are older than this program
		return errors.New("version 1 is all there is: whatever was received would be lost; stop every instance, and say --force if that is meant")
	}
	sources, err := s.Sources(ctx)
	if err != nil {
		return fmt.Errorf("whether this store is in use cannot be told (--force does it all the same): %w", err)
	}
	if len(sources) == 0 {
		return nil
	}
	return fmt.Errorf("this store is in use by %s: without version %d no message is lost, but which pushes are duplicates is forgotten, and what order the instances have agreed on; stop every instance, and say --force if that is meant",
		count(len(sources), "source"), newest)
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
