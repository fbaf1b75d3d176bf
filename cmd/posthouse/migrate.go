package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/posthouse/posthouse/internal/app"
)

// storeFlags say which store a command works on.
type storeFlags struct {
	configFile
	Store string `env:"POSTHOUSE_STORE" help:"The store's URL: sqlite:PATH, postgres://… or mysql://…. Without it the configuration's, and without that what posthouse dev keeps in ./posthouse-data."`
	JSON  bool   `help:"Print JSON."`
}

// open opens the store without becoming its consumer.
func (f storeFlags) open(ctx context.Context) (app.Store, error) {
	url := f.Store
	if url == "" {
		_, err := os.Stat(f.Config)
		dev := filepath.Join("posthouse-data", "posthouse.db")
		if _, devErr := os.Stat(dev); errors.Is(err, fs.ErrNotExist) && devErr == nil {
			url = "sqlite:" + dev
		} else {
			cfg, err := f.load()
			if err != nil {
				return nil, err
			}
			url = cfg.Store.URL.Reveal()
		}
	}
	return app.OpenStore(ctx, app.StoreParams{URL: url, AllowUnsafe: true})
}

// with runs f on the store.
func (f storeFlags) with(ctx context.Context, do func(app.Store) error) (err error) {
	store, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return do(store)
}

// withReady is with, on a store whose tables are this binary's.
func (f storeFlags) withReady(ctx context.Context, do func(app.Store) error) error {
	return f.with(ctx, func(s app.Store) error {
		if err := s.CheckReady(ctx); err != nil {
			return err
		}
		return do(s)
	})
}

type migrateCmd struct {
	Status migrateStatusCmd `cmd:"" help:"List the versions of the tables, applied or not."`
	Up     migrateUpCmd     `cmd:"" help:"Bring the tables to the newest version."`
	Down   migrateDownCmd   `cmd:"" help:"Take one version back. What only that version keeps is lost."`
}

type migrateStatusCmd struct{ storeFlags }

func (c *migrateStatusCmd) Run(ctx context.Context) error {
	return c.with(ctx, func(s app.Store) error {
		versions, err := s.SchemaStatus(ctx)
		if err != nil {
			return err
		}
		type row struct {
			Version   int        `json:"version"`
			Name      string     `json:"name"`
			AppliedAt *time.Time `json:"applied_at"`
		}
		rows := []row{}
		for _, v := range versions {
			r := row{Version: v.Version, Name: v.Name}
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
			_, _ = fmt.Fprintf(w, "%d\t%s\t%s\n", r.Version, r.Name, applied)
		}
		return w.Flush()
	})
}

type migrateUpCmd struct{ storeFlags }

func (c *migrateUpCmd) Run(ctx context.Context) error {
	return c.with(ctx, func(s app.Store) error {
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

type migrateDownCmd struct{ storeFlags }

func (c *migrateDownCmd) Run(ctx context.Context) error {
	return c.with(ctx, func(s app.Store) error {
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
}
