package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/posthouse/posthouse/internal/app"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/telemetry"
)

type devCmd struct {
	Listen string `default:"127.0.0.1:8080" help:"Address of the door and of the API."`
	Data   string `default:"./posthouse-data" help:"Folder that keeps everything." type:"path"`
	// Without it the data folder has one.
	Templates string `help:"Folder of the templates. Where it is missing it is made, with some to begin with. Default: templates in the data folder." type:"path"`
}

func (c *devCmd) Run(ctx context.Context) error {
	p, err := app.Dev(app.DevParams{
		Listen: c.Listen, Data: c.Data, Templates: c.Templates, Out: os.Stdout,
		Look: self() + " inbox list --store " + word("sqlite:"+filepath.Join(c.Data, "posthouse.db")),
	})
	if err != nil {
		return err
	}
	p.Registry = telemetry.NewRegistry()
	p.Logger = telemetry.NewLogger(telemetry.Config{Writer: os.Stderr, Level: slog.LevelWarn, Metrics: p.Registry})
	if err := app.Run(ctx, p); err != nil {
		return err
	}
	_, err = fmt.Println("\nStopped. Everything that was received is kept in", c.Data)
	return err
}

// configFile is the flag that names the configuration.
type configFile struct {
	Config string `default:"posthouse.yaml" env:"POSTHOUSE_CONFIG" help:"The configuration." type:"path"`
}

// load reads the configuration. Warnings go to standard error.
func (c configFile) load() (*config.Config, error) {
	cfg, found, warnings := config.Load(app.ParseParams(c.Config))
	for _, w := range warnings {
		_, _ = fmt.Fprintln(os.Stderr, "warning:", w)
	}
	if len(found) > 0 {
		return nil, listed(found)
	}
	return cfg, nil
}

// listed are the problems as an error.
func listed(found []config.Problem) error {
	lines := make(problems, len(found))
	for i, f := range found {
		lines[i] = f.String()
	}
	return lines
}

type serveCmd struct{ configFile }

func (c *serveCmd) Run(ctx context.Context) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		return fmt.Errorf("log.level: %w", err)
	}
	registry := telemetry.NewRegistry()
	log := telemetry.NewLogger(telemetry.Config{Writer: os.Stderr, Level: level, Format: telemetry.Format(cfg.Log.Format), Metrics: registry})
	return app.Run(ctx, app.Params{Config: cfg, Logger: log, Registry: registry})
}

type initCmd struct {
	File string `arg:"" optional:"" default:"posthouse.yaml" help:"Where to write it." type:"path"`
}

func (c *initCmd) Run() error {
	f, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; name another file, or remove it", c.File)
	}
	if err != nil {
		return err
	}
	if _, err := f.Write(config.Example()); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	file := word(c.File)
	_, err = fmt.Printf("Wrote %s. Look through it, then:\n\n  %s config check --config %s && %s serve --config %s\n", c.File, self(), file, self(), file)
	return err
}

type configCmd struct {
	Check checkCmd `cmd:"" help:"Tell every problem at once, each with its line."`
}

type checkCmd struct {
	configFile
	JSON bool `help:"Print JSON."`
}

func (c *checkCmd) Run() error {
	if c.JSON {
		_, found, warnings := config.Load(app.ParseParams(c.Config))
		if err := printJSON(map[string][]problemJSON{"problems": problemsJSON(found), "warnings": problemsJSON(warnings)}); err != nil {
			return err
		}
		if len(found) > 0 {
			return fmt.Errorf("%s has %s", c.Config, count(len(found), "problem"))
		}
		return nil
	}
	cfg, err := c.load()
	if err != nil {
		return err
	}
	what := count(len(cfg.Sources), "source")
	if n := len(cfg.Channels); n > 0 {
		what += " and " + count(n, "channel")
	}
	_, err = fmt.Printf("%s is fine: %s.\n", c.Config, what)
	return err
}

// problemJSON is a config.Problem as JSON shows it.
type problemJSON struct {
	File    string `json:"file"`
	Line    int    `json:"line"` // 0 where there is none
	Column  int    `json:"column"`
	Path    string `json:"path"` // empty for the file as a whole
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

func problemsJSON(list []config.Problem) []problemJSON {
	out := make([]problemJSON, len(list))
	for i, p := range list {
		out[i] = problemJSON(p)
	}
	return out
}

// orEmpty makes JSON print [] for nothing.
func orEmpty[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
