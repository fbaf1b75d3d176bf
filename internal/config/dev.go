package config

import (
	_ "embed"
	"path/filepath"
	"reflect"
	"slices"
)

// example is written by go generate, from the types in config.go.
//
//go:embed example.yaml
var example []byte

// Example returns the commented configuration that `posthouse init` writes: every key with its meaning and default.
// It works as it is, with SQLite and one source.
func Example() []byte { return slices.Clone(example) }

// DevSource is the one source of [Dev].
const DevSource = "demo"

// Dev returns the built-in configuration of `posthouse dev`: SQLite in dataDir, one source that takes pushes from
// anyone and is consumed in serial order, door and API on one address. The source has no HTTP handler: the caller
// hands its messages to a function. The caller decides whether it serves the API where [IsLoopback] is false.
func Dev(listen, dataDir string) *Config {
	c, s := &Config{}, Source{}
	setDefaults(reflect.ValueOf(c).Elem())
	setDefaults(reflect.ValueOf(&s).Elem())
	c.Listen, c.Admin.Listen = listen, listen
	c.Store.URL = Secret("sqlite:" + filepath.Join(dataDir, "posthouse.db"))
	s.Verify.Kind = VerifyNone
	s.Consume.Enabled = true
	c.Sources = map[string]Source{DevSource: s}
	return c
}
