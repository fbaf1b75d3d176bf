package expression

import (
	"strconv"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser/utils"
)

// chain ends an optional chain: what it skipped is absent.
func (c *compiler) chain(n *ast.ChainNode) *node {
	inner := c.compile(n.Node)
	eval := inner.eval
	return &node{
		eval: func(s *state) (value, error) {
			v, err := eval(s)
			if v.kind == kindSkipped {
				v.kind = kindAbsent
			}
			return v, err
		},
		kinds: inner.kinds | set(kindAbsent),
		name:  inner.name,
	}
}

// lookup finds what a name stands for in headers or query.
type lookup func(s *state, name string) (value, bool, error)

// collection says whether n is headers or query, which are not values, only looked into.
func (c *compiler) collection(n ast.Node) (name string, find lookup) {
	id, ok := n.(*ast.IdentifierNode)
	if !ok || c.names != nil {
		return "", nil
	}
	switch id.Value { // no variable can have these names
	case "headers":
		return id.Value, (*state).header
	case "query":
		return id.Value, (*state).queryParameter
	}
	return "", nil
}

func (c *compiler) member(n *ast.MemberNode) *node {
	if collection, find := c.collection(n.Node); find != nil {
		return c.memberOfCollection(n, collection, find)
	}
	base := c.compile(n.Node)
	property := c.compile(n.Property)
	name := c.path(base.called(), n.Property, property)
	c.expect(n.Location(), base, set(kindNull, kindAbsent, kindArray, kindObject), "asked for a member")
	c.expect(n.Property.Location(), property, set(kindString, kindNumber), "used as the name or the position of a member")
	var (
		notThere = value{text: name + " is missing"}
		ofNull   = value{text: base.called() + " is null, asked for a member"}
		ofAbsent = value{text: base.called() + " is absent, asked for a member"}
	)
	if n.Optional {
		notThere, ofNull, ofAbsent = value{kind: kindAbsent}, value{kind: kindSkipped}, value{kind: kindSkipped}
	}
	eval := func(s *state) (value, error) {
		b, err := base.eval(s)
		if err != nil {
			return value{}, err
		}
		switch b.kind {
		case kindMissing:
			if n.Optional {
				return value{kind: kindSkipped}, nil
			}
			return b, nil
		case kindSkipped:
			return b, nil
		case kindAbsent:
			return ofAbsent, nil
		case kindNull:
			return ofNull, nil
		case kindArray, kindObject:
		default:
			return value{}, base.is(b, "asked for a member")
		}
		key, err := property.value(s)
		if err != nil {
			return value{}, err
		}
		v, ok, err := memberOf(s, b, key, base, property)
		if err == nil && !ok {
			v = notThere
		}
		return v, err
	}
	return &node{eval: eval, kinds: anyJSON, name: name}
}

// memberOf finds what key names in v, an array or an object; base and property are where they come from.
func memberOf(s *state, v, key value, base, property *node) (found value, ok bool, err error) {
	switch {
	case v.kind == kindObject && key.kind == kindString:
		name, err := s.str(key)
		if err != nil {
			return value{}, false, err
		}
		return s.member(v, name)
	case v.kind == kindArray && key.kind == kindNumber:
		var scratch apd.Decimal
		d, err := s.number(key, &scratch)
		if err != nil {
			return value{}, false, property.fail(err)
		}
		if !integral(d) {
			return value{}, false, evalError(base.called() + " is asked for an element at a position that is no whole number")
		}
		i, err := d.Int64()
		if err != nil {
			return value{}, false, nil //nolint:nilerr // no array is that long
		}
		return s.element(v, i)
	}
	return value{}, false, base.is(v, "asked for a member by "+key.kind.String())
}

func (c *compiler) memberOfCollection(n *ast.MemberNode, collection string, find lookup) *node {
	property := c.compile(n.Property)
	c.expect(n.Property.Location(), property, set(kindString), "used as a name in "+collection)
	name := c.path(collection, n.Property, property)
	notThere := value{text: name + " is missing"}
	if n.Optional {
		notThere = value{kind: kindAbsent}
	}
	return &node{
		eval: func(s *state) (value, error) {
			key, err := property.str(s, "used as a name in "+collection)
			if err != nil {
				return value{}, err
			}
			v, ok, err := find(s, key)
			if err == nil && !ok {
				v = notThere
			}
			return v, err
		},
		kinds: set(kindString),
		name:  name,
	}
}

// path returns what error messages call a member.
func (c *compiler) path(base string, property ast.Node, compiled *node) string {
	step := "[…]"
	switch p := property.(type) {
	case *ast.StringNode:
		step = "." + p.Value
		if !utils.IsValidIdentifier(p.Value) {
			step = "[" + strconv.Quote(p.Value) + "]"
		}
	case *ast.IntegerNode, *ast.UnaryNode:
		if compiled.fixed != nil && compiled.fixed.kind == kindNumber {
			step = "[" + formatNumber(compiled.fixed.decimal) + "]"
		}
	}
	return short(base+step, maxName)
}

// short cuts a text at a number of bytes, between characters.
func short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
