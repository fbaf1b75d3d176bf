package expression

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/parser/lexer"
)

// The bounds of an expression. Those of its evaluation follow from them.
const (
	maxSource  = 16 << 10 // bytes
	maxNodes   = 10_000   // of the syntax tree, the same as the parser's
	maxName    = 120      // bytes of a path in an error message
	maxMessage = 500      // bytes of a CompileError's
)

// CompileError says where and why an expression was refused.
type CompileError struct {
	Line, Column int // from 1; the column in characters
	Message      string
}

func (e *CompileError) Error() string {
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Message)
}

// node is one compiled part of an expression.
type node struct {
	eval  func(*state) (value, error)
	kinds kinds   // what eval may return, beside kindMissing
	name  string  // what error messages call it: body.msgType; empty for what has no name
	fixed *value  // the value, where it is known from the source
	parts []*node // of an array that the source spells out and that is not fixed
	steps int     // the number of nodes in it
}

type compiler struct {
	source   string
	names    []string            // those of a document; nil: those of a push
	numbers  map[int]lexer.Token // by position: the literals as they were written
	scope    []variable
	elements []element
	slots    int
	nodes    int
	usesBody bool
}

// variable is a let in scope.
type variable struct {
	name string
	slot int
	node *node
}

// element is what # means inside a predicate.
type element struct {
	slot  int
	kinds kinds
}

// refuse stops the compilation; compile turns it into an error. The tree is walked in some thirty places, each of which can refuse.
type refuse struct{ err *CompileError }

func compile(source string, names []string) (p *Program, err error) {
	c := &compiler{source: source, names: names}
	defer func() {
		if r := recover(); r != nil {
			refused, ok := r.(refuse)
			if !ok {
				panic(r)
			}
			p, err = nil, refused.err
		}
	}()
	root := c.compile(c.parse())
	return &Program{root: root, usesBody: c.usesBody, slots: c.slots}, nil
}

func (c *compiler) refuse(at file.Location, format string, args ...any) {
	e := &CompileError{Line: 1, Column: 1, Message: short(fmt.Sprintf(format, args...), maxMessage)}
	for i, r := range []rune(c.source) {
		if i >= at.From {
			break
		}
		e.Column++
		if r == '\n' {
			e.Line, e.Column = e.Line+1, 1
		}
	}
	panic(refuse{e})
}

// parse reads the source. The parser turns numbers into int and float64, which would round 0.1 and refuse 2^63; so it is given zeros of the same
// length in their place, and compile takes the literals from c.numbers.
func (c *compiler) parse() ast.Node {
	start := file.Location{}
	switch {
	case strings.TrimSpace(c.source) == "":
		c.refuse(start, "the expression is empty")
	case len(c.source) > maxSource:
		c.refuse(start, "the expression is longer than %d bytes", maxSource)
	case !utf8.ValidString(c.source):
		c.refuse(start, "the expression is not UTF-8")
	}
	tokens, err := lexer.Lex(file.NewSource(c.source))
	if err != nil {
		c.refuseParsed(err)
	}
	c.numbers = make(map[int]lexer.Token)
	text := []rune(c.source)
	for _, token := range tokens {
		if token.Kind != lexer.Number {
			continue
		}
		c.numbers[token.From] = token
		for i := token.From; i < token.To; i++ {
			if text[i] != '.' {
				text[i] = '0'
			}
		}
	}
	tree, err := parser.Parse(string(text))
	if err != nil {
		c.refuseParsed(err)
	}
	return tree.Node
}

// refuseParsed passes on the parser's error without its picture of the source, which takes several lines.
func (c *compiler) refuseParsed(err error) {
	var parsed *file.Error
	if !errors.As(err, &parsed) {
		c.refuse(file.Location{}, "%s", strings.Join(strings.Fields(err.Error()), " "))
	}
	if token, ok := c.numbers[parsed.From]; ok { // the message would show zeros
		c.refuse(parsed.Location, "unexpected number %s", token.Value)
	}
	c.refuse(parsed.Location, "%s", strings.Join(strings.Fields(parsed.Message), " "))
}

func (c *compiler) compile(n ast.Node) *node {
	// Counted here and not only by the parser: it uses a part of the tree twice in a < b < c and a ?: b.
	before := c.nodes
	if c.nodes++; c.nodes > maxNodes {
		c.refuse(n.Location(), "the expression has more than %d parts", maxNodes)
	}
	compiled := c.compileNode(n)
	compiled.steps = c.nodes - before
	return compiled
}

func (c *compiler) compileNode(n ast.Node) *node {
	switch n := n.(type) {
	case *ast.NilNode:
		return fixed(value{kind: kindAbsent})
	case *ast.BoolNode:
		return fixed(boolean(n.Value))
	case *ast.StringNode:
		if !utf8.ValidString(n.Value) {
			c.refuse(n.Location(), "the string is not UTF-8")
		}
		return fixed(value{kind: kindString, text: n.Value})
	case *ast.IntegerNode:
		return c.literal(n.Location())
	case *ast.FloatNode:
		return c.literal(n.Location())
	case *ast.IdentifierNode:
		return c.identifier(n)
	case *ast.PointerNode:
		return c.pointer(n)
	case *ast.ChainNode:
		return c.chain(n)
	case *ast.MemberNode:
		return c.member(n)
	case *ast.UnaryNode:
		return c.unary(n)
	case *ast.BinaryNode:
		return c.binary(n)
	case *ast.ConditionalNode:
		return c.conditional(n)
	case *ast.VariableDeclaratorNode:
		return c.let(n)
	case *ast.ArrayNode:
		return c.array(n)
	case *ast.BuiltinNode:
		return c.call(n, n.Name, n.Arguments)
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok {
			return c.call(n, callee.Value, n.Arguments)
		}
		c.refuse(n.Location(), "methods are not available; the functions are %s", functionNames)
	case *ast.SliceNode:
		c.refuse(n.Location(), "slices are not available; use startsWith, endsWith, split or an index")
	case *ast.MapNode:
		c.refuse(n.Location(), "maps are not available")
	case *ast.BytesNode:
		c.refuse(n.Location(), "byte strings are not available; write it without the b")
	case *ast.SequenceNode:
		c.refuse(n.Location(), "several expressions are not available; join them with && or ||")
	}
	c.refuse(n.Location(), "%T is not available", n)
	return nil
}

func fixed(v value) *node {
	return &node{
		eval:  func(*state) (value, error) { return v, nil },
		kinds: set(v.kind),
		fixed: &v,
	}
}

func (c *compiler) literal(at file.Location) *node {
	token, ok := c.numbers[at.From]
	if !ok || token.To != at.To {
		c.refuse(at, "a number is not set apart from what stands beside it")
	}
	d, err := parseLiteral(token.Value)
	if err != nil {
		c.refuse(at, "the literal is %s", err)
	}
	return fixed(value{kind: kindNumber, decimal: d})
}

func (c *compiler) identifier(n *ast.IdentifierNode) *node {
	for _, v := range slices.Backward(c.scope) {
		if v.name == n.Value {
			return &node{
				eval:  func(s *state) (value, error) { return s.vars[v.slot], nil },
				kinds: v.node.kinds,
				name:  short(n.Value, maxName),
			}
		}
	}
	if c.names != nil {
		return c.named(n)
	}
	switch n.Value {
	case "body":
		c.usesBody = true
		return &node{eval: (*state).theBody, kinds: anyJSON, name: n.Value}
	case "body_hash":
		c.usesBody = true
		return &node{eval: (*state).bodyHash, kinds: set(kindString), name: n.Value}
	case "content_type":
		return &node{
			eval:  func(s *state) (value, error) { return value{kind: kindString, text: s.in.ContentType}, nil },
			kinds: set(kindString),
			name:  n.Value,
		}
	case "size":
		return &node{
			eval: func(s *state) (value, error) {
				return value{kind: kindNumber, decimal: s.size.SetInt64(s.in.Size)}, nil
			},
			kinds: set(kindNumber),
			name:  n.Value,
		}
	case "headers", "query":
		c.refuse(n.Location(), "%s is used with a name: %[1]s[\"name\"], or \"name\" in %[1]s", n.Value)
	}
	c.refuse(n.Location(), "unknown name %q; known are body, body_hash, headers, query, content_type and size", n.Value)
	return nil
}

func (c *compiler) pointer(n *ast.PointerNode) *node {
	if len(c.elements) == 0 {
		c.refuse(n.Location(), "# has a meaning only inside all, any, none, one, count, filter and map")
	}
	e := c.elements[len(c.elements)-1]
	switch n.Name {
	case "":
		return &node{eval: func(s *state) (value, error) { return s.vars[e.slot], nil }, kinds: e.kinds, name: "#"}
	case "index":
		return &node{
			eval: func(s *state) (value, error) {
				return value{kind: kindNumber, decimal: apd.New(int64(s.positions[e.slot]), 0)}, nil
			},
			kinds: set(kindNumber),
			name:  "#index",
		}
	}
	c.refuse(n.Location(), "#%s is not available; only # and #index are", n.Name)
	return nil
}
