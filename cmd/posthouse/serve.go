package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/posthouse/posthouse/internal/app"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/telemetry"
)

type devCmd struct {
	Listen string `default:"127.0.0.1:8080" help:"Address of the door and of the API."`
	Data   string `default:"./posthouse-data" help:"Folder that keeps everything." type:"path"`
}

func (c *devCmd) Run(ctx context.Context) error {
	p, err := app.Dev(app.DevParams{Listen: c.Listen, Data: c.Data, Out: os.Stdout})
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
	cfg, found, warnings := config.Load(config.ParseParams{File: c.Config, CheckExpression: checkExpression})
	for _, w := range warnings {
		_, _ = fmt.Fprintln(os.Stderr, "warning:", w)
	}
	if len(found) > 0 {
		lines := make(problems, len(found))
		for i, f := range found {
			lines[i] = f.String()
		}
		return nil, lines
	}
	return cfg, nil
}

func checkExpression(source string) error {
	_, err := expression.Compile(source)
	return err
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
	_, err = fmt.Printf("Wrote %s. Look through it, then: posthouse config check --config %s && posthouse serve --config %s\n", c.File, c.File, c.File)
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
		_, found, warnings := config.Load(config.ParseParams{File: c.Config, CheckExpression: checkExpression})
		if err := printJSON(map[string][]config.Problem{"problems": orEmpty(found), "warnings": orEmpty(warnings)}); err != nil {
			return err
		}
		if len(found) > 0 {
			return fmt.Errorf("%s has %d problems", c.Config, len(found))
		}
		return nil
	}
	cfg, err := c.load()
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s is fine: %d sources.\n", c.Config, len(cfg.Sources))
	return err
}

// orEmpty makes JSON print [] for nothing.
func orEmpty[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
