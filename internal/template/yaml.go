package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// jsonNumber is a number that means the same in YAML and in JSON.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// reader turns YAML into what JSON would be, and remembers where each part stands.
type reader struct {
	file     string
	lines    map[string]int // by JSON pointer
	problems []Problem
}

// readYAML reads a file that is one mapping. It takes the part of YAML that says what it means: no anchors, no tags.
func readYAML(file string, data []byte) (map[string]any, *reader) {
	r := &reader{file: file, lines: map[string]int{"": 1}}
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil {
		line, text := 1, "is no YAML"
		if syntax, ok := errors.AsType[yaml.Error](err); ok {
			text += ": " + syntax.GetMessage()
			if t := syntax.GetToken(); t != nil && t.Position != nil {
				line = t.Position.Line
			}
		}
		r.fail(line, "%s", text)
		return nil, r
	}
	switch {
	case len(parsed.Docs) == 0 || len(parsed.Docs) == 1 && parsed.Docs[0].Body == nil:
		return map[string]any{}, r
	case len(parsed.Docs) > 1:
		r.fail(1, "has several documents (---); keep one")
		return nil, r
	}
	v := r.value("", parsed.Docs[0].Body, 0)
	m, ok := v.(map[string]any)
	if !ok && len(r.problems) == 0 {
		r.fail(1, "is no mapping; write keys, as in variables: {…}")
	}
	return m, r
}

func (r *reader) fail(line int, format string, args ...any) {
	r.problems = append(r.problems, Problem{File: r.file, Line: line, Text: fmt.Sprintf(format, args...)})
}

// line of the part at a pointer, or of what it is in.
func (r *reader) line(pointer string) int {
	for {
		if line := r.lines[pointer]; line > 0 {
			return line
		}
		i := len(pointer) - 1
		for i >= 0 && pointer[i] != '/' {
			i--
		}
		if i < 0 {
			return r.lines[""]
		}
		pointer = pointer[:i]
	}
}

func (r *reader) value(at string, n ast.Node, depth int) any {
	if n == nil {
		return nil
	}
	line := 1
	if t := n.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	if r.lines[at] == 0 {
		r.lines[at] = line
	}
	if depth > maxDepth {
		r.fail(line, "is nested too deep")
		return nil
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return nil
	case *ast.BoolNode:
		return n.Value
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode:
		text := n.GetToken().Value
		if _, ok := parseDecimal(text); !ok || !jsonNumber.MatchString(text) {
			r.fail(line, "is no plain number; write it in digits, or quote it if it is a text")
			return nil
		}
		return json.Number(text)
	case *ast.SequenceNode:
		list := make([]any, len(n.Values))
		for i, item := range n.Values {
			list[i] = r.value(at+"/"+strconv.Itoa(i), item, depth+1)
		}
		return list
	case *ast.MappingValueNode:
		return r.mapping(at, []*ast.MappingValueNode{n}, depth)
	case *ast.MappingNode:
		return r.mapping(at, n.Values, depth)
	}
	r.fail(line, "uses a part of YAML that is not read here (%s); write the value out", n.Type())
	return nil
}

func (r *reader) mapping(at string, pairs []*ast.MappingValueNode, depth int) any {
	m := map[string]any{}
	for _, pair := range pairs {
		line := pair.Key.GetToken().Position.Line
		var name string
		switch key := pair.Key.(type) {
		case *ast.StringNode:
			name = key.Value
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			name = key.GetToken().Value
		default:
			r.fail(line, "a key is not plain text; write it as a word")
			continue
		}
		below := at + "/" + pointerStep.Replace(name)
		if _, twice := m[name]; twice {
			r.fail(line, "%s is written twice; keep one", printable(name))
			continue
		}
		r.lines[below] = line
		m[name] = r.value(below, pair.Value, depth+1)
	}
	return m
}
