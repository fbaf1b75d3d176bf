// Command gen writes what is derived from the configuration's types: the reference docs/configuration.md and the
// commented file that `posthouse init` writes. It is run by `go generate ./internal/config`, from that directory.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// The files, seen from internal/config.
const (
	referenceFile = "../../docs/configuration.md"
	exampleFile   = "example.yaml"
)

func run() error {
	m, err := readMeanings(typeFiles...)
	if err != nil {
		return err
	}
	for file, render := range map[string]func(meanings) (string, error){
		referenceFile: renderReference,
		exampleFile:   renderExample,
	} {
		text, err := render(m)
		if err != nil {
			return fmt.Errorf("rendering %s: %w", file, err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", file, err)
		}
	}
	return nil
}
