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

// readMeanings takes the fields' comments from a Go file.
func readMeanings(file string) (meanings, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("reading the comments: %w", err)
	}
	out := meanings{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if structure, ok := spec.Type.(*ast.StructType); ok {
			for _, field := range structure.Fields.List {
				for _, name := range field.Names {
					out[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
				}
			}
		}
		return false
	})
	return out, nil
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
