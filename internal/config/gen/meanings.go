package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"

	"github.com/posthouse/posthouse/internal/config"
)

// meanings is the comment of each field, by Type.Field, as one line without the line breaks of the source.
type meanings map[string]string

// typeFiles hold the types of the configuration.
var typeFiles = []string{"config.go", "notifications.go"}

// readMeanings takes the fields' comments from Go files.
func readMeanings(files ...string) (meanings, error) {
	out := meanings{}
	for _, file := range files {
		if err := out.read(file); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (m meanings) read(file string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("reading the comments: %w", err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if structure, ok := spec.Type.(*ast.StructType); ok {
			for _, field := range structure.Fields.List {
				for _, name := range field.Names {
					m[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
				}
			}
		}
		return false
	})
	return nil
}

// of returns the meaning of a key, which a Go comment begins with the field's name: without
// it, and without is or are, it is a sentence for a reference, as in "How long …" for "Drain is how long …".
func (m meanings) of(e config.Entry) (string, error) {
	_, field, _ := strings.Cut(e.Go, ".")
	rest, found := strings.CutPrefix(m[e.Go], field+" ")
	if !found || rest == "" {
		return "", fmt.Errorf("the comment of %s must begin with %q", e.Go, field)
	}
	for _, verb := range []string{"is ", "are "} {
		rest = strings.TrimPrefix(rest, verb)
	}
	return strings.ToUpper(rest[:1]) + rest[1:], nil
}
