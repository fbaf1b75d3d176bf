package expression

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/apd/v3"
	"github.com/expr-lang/expr/ast"
)

// pushNames are what an expression over a push sees.
var pushNames = []string{"body", "body_hash", "headers", "query", "content_type", "size"}

// taken are the names that no variable can have.
func (c *compiler) taken() []string {
	if c.names != nil {
		return c.names
	}
	return pushNames
}

// named is a name of a document: a member of the object that is the whole body.
func (c *compiler) named(n *ast.IdentifierNode) *node {
	if !slices.Contains(c.names, n.Value) {
		known := slices.Clone(c.names)
		slices.Sort(known)
		c.refuse(n.Location(), "unknown name %q; known are %s", n.Value, strings.Join(known, ", "))
	}
	c.usesBody = true
	notThere := value{text: n.Value + " is missing"}
	return &node{
		eval: func(s *state) (value, error) {
			whole, err := s.theBody()
			if err != nil {
				return value{}, err
			}
			if whole.kind != kindObject {
				return notThere, nil
			}
			v, ok, err := s.member(whole, n.Value)
			if err == nil && !ok {
				v = notThere
			}
			return v, err
		},
		kinds: anyJSON,
		name:  n.Value,
	}
}

// CompileOver is Compile for an expression over a document instead of a push: a JSON object, given as Input.Body, whose members are the only
// names that it sees. Which there can be is said here; one that a document lacks is missing, as a member is.
func CompileOver(source string, names ...string) (*Program, error) {
	p, err := compile(source, names)
	if err != nil {
		return nil, err
	}
	if err := p.condition(); err != nil {
		return nil, err
	}
	return p, nil
}

// CompileValueOver is CompileValue over a document; see CompileOver.
func CompileValueOver(source string, names ...string) (*Value, error) {
	return compileValue(source, names)
}

// Value is a compiled expression that answers a third question: what does this come to? It is safe for concurrent use.
type Value struct{ program Program }

// CompileValue checks an expression that may yield anything, and prepares it. Its errors are like those of Compile.
func CompileValue(source string) (*Value, error) { return compileValue(source, nil) }

func compileValue(source string, names []string) (*Value, error) {
	p, err := compile(source, names)
	if err != nil {
		return nil, err
	}
	return &Value{program: Program{root: p.root, usesBody: p.usesBody, slots: p.slots}}, nil
}

// Eval returns the value as JSON, and nil where it is absent (a member written with ?. that is not there). Numbers keep all their digits.
// Its errors are like those of Program.Eval. Nothing that it returns refers to the input.
func (e *Value) Eval(in Input) (json.RawMessage, error) {
	s := e.program.begin(in)
	defer e.program.end(s)
	root := e.program.root
	v, err := root.value(s)
	if err != nil || v.kind <= kindAbsent {
		return nil, err
	}
	return s.appendJSON(nil, root, v)
}

// appendJSON appends a value as JSON. What it writes is charged, so that a list that holds itself many times over ends.
func (s *state) appendJSON(out []byte, from *node, v value) ([]byte, error) {
	if err := s.charge(workElement + len(v.text)); err != nil {
		return nil, err
	}
	switch {
	case v.kind <= kindNull:
		return append(out, "null"...), nil
	case v.kind == kindBool:
		return fmt.Appendf(out, "%t", v.yes), nil
	case v.raw:
		return append(out, strings.ToValidUTF8(v.text, "\uFFFD")...), nil
	case v.kind == kindNumber:
		var scratch apd.Decimal
		d, err := s.number(v, &scratch)
		if err != nil {
			return nil, from.fail(err)
		}
		return append(out, formatNumber(d)...), nil
	case v.kind == kindString:
		var b bytes.Buffer
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(v.text); err != nil {
			return nil, evalError(from.called() + " cannot be written as JSON")
		}
		return append(out, bytes.TrimRight(b.Bytes(), "\n")...), nil
	case v.kind == kindArray:
		out = append(out, '[')
		err := s.each(v, func(i int, element value) (bool, error) {
			if i > 0 {
				out = append(out, ',')
			}
			var err error
			out, err = s.appendJSON(out, from, element)
			return false, err
		})
		return append(out, ']'), err
	}
	return nil, from.is(v, "used as a value")
}
