package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/posthouse/posthouse/internal/app"
	"github.com/posthouse/posthouse/internal/config"
)

// storeFlags say which store a command works on.
type storeFlags struct {
	configFile
	Store string `env:"POSTHOUSE_STORE" help:"The store's URL: sqlite:PATH, postgres://… or mysql://…. Without it the configuration's, and without that what posthouse dev keeps in ./posthouse-data."`
	JSON  bool   `help:"Print JSON."`
}

// What a command does with a store, without becoming its consumer.
var (
	toLook   = app.StoreParams{AllowUnsafe: true, ReadOnly: true}
	toChange = app.StoreParams{AllowUnsafe: true, MustExist: true}
	toCreate = app.StoreParams{AllowUnsafe: true}
)

// devStore is what posthouse dev keeps where nothing else is said.
var devStore = filepath.Join("posthouse-data", "posthouse.db")

// url is the store's. Where the command line does not name it, standard error
// tells which one it is: in one folder there may be two.
func (f storeFlags) url() (string, error) {
	if f.Store != "" {
		return f.Store, nil
	}
	_, err := os.Stat(f.Config)
	_, devErr := os.Stat(devStore)
	if errors.Is(err, fs.ErrNotExist) && devErr == nil {
		_, _ = fmt.Fprintf(os.Stderr, "store: %s, which posthouse dev keeps; --store names another\n", word("sqlite:"+devStore))
		return "sqlite:" + devStore, nil
	}
	url, err := f.configured()
	if err != nil {
		return "", err
	}
	shown, rest, _ := strings.Cut(url, ":") // the rest may hold a password
	if shown == "sqlite" {
		shown = word("sqlite:" + rest)
	}
	other := ""
	if devErr == nil {
		other = fmt.Sprintf("; what posthouse dev keeps is --store %s", word("sqlite:"+devStore))
	}
	_, _ = fmt.Fprintf(os.Stderr, "store: %s, of %s%s\n", shown, f.Config, other)
	return url, nil
}

// configured reads the store's URL from the configuration. What else is wrong
// there is not looked at: whoever asks the store need not have the secrets of
// every source.
func (f storeFlags) configured() (string, error) {
	cfg, found, _ := config.Load(config.ParseParams{File: f.Config})
	if len(found) == 0 {
		return cfg.Store.URL.Reveal(), nil
	}
	var own problems
	for _, p := range found {
		if p.Path == "" || p.Path == "store" || strings.HasPrefix(p.Path, "store.") {
			own = append(own, p.String())
		}
	}
	if len(own) > 0 {
		return "", own
	}
	data, err := os.ReadFile(f.Config)
	if err != nil {
		return "", err
	}
	alone, _, _ := config.Parse(config.ParseParams{Data: storeAlone(data), File: f.Config, LookupEnv: storeEnv})
	if alone == nil { // written in a way that storeAlone does not know
		return "", listed(found)
	}
	return alone.Store.URL.Reveal(), nil
}

// storeEnv is the environment without the keys, which the store does not need.
func storeEnv(name string) (string, bool) {
	if name == config.KeysVariable {
		return "", false
	}
	return os.LookupEnv(name)
}

// storeAlone is a configuration that says nothing but the store.
func storeAlone(data []byte) []byte {
	return append(linesOf(data, "store:"), "\nsources: {any: {verify: {kind: none}}}\n"...)
}

// with runs do on the store.
func (f storeFlags) with(ctx context.Context, p app.StoreParams, do func(app.Store) error) (err error) {
	if p.URL, err = f.url(); err != nil {
		return err
	}
	store, err := app.OpenStore(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return do(store)
}

// withReady is with, on a store whose tables are this binary's.
func (f storeFlags) withReady(ctx context.Context, p app.StoreParams, do func(app.Store) error) error {
	return f.with(ctx, p, func(s app.Store) error {
		if err := s.CheckReady(ctx); err != nil {
			return err
		}
		return do(s)
	})
}
