package expression

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
)

func (c *compiler) conditional(n *ast.ConditionalNode) *node {
	condition, yes, no := c.compile(n.Cond), c.compile(n.Exp1), c.compile(n.Exp2)
	c.expect(n.Cond.Location(), condition, set(kindBool), "used as true or false")
	return &node{
		eval: func(s *state) (value, error) {
			holds, err := condition.boolean(s)
			if err != nil {
				return value{}, err
			}
			if holds {
				return yes.eval(s)
			}
			return no.eval(s)
		},
		kinds: yes.kinds | no.kinds,
	}
}

func (c *compiler) let(n *ast.VariableDeclaratorNode) *node {
	if slices.Contains(c.taken(), n.Name) {
		c.refuse(n.Location(), "%s cannot be declared anew", n.Name)
	}
	for _, v := range c.scope {
		if v.name == n.Name {
			c.refuse(n.Location(), "%s is declared already", n.Name)
		}
	}
	bound := c.compile(n.Value)
	slot := c.slot()
	c.scope = append(c.scope, variable{name: n.Name, slot: slot, node: bound})
	result := c.compile(n.Expr)
	c.scope = c.scope[:len(c.scope)-1]
	return &node{
		eval: func(s *state) (value, error) {
			v, err := bound.value(s)
			if err != nil {
				return value{}, err
			}
			s.vars[slot] = v
			return result.eval(s)
		},
		kinds: result.kinds,
		name:  result.name,
	}
}

func (c *compiler) slot() int {
	c.slots++
	return c.slots - 1
}

func (c *compiler) array(n *ast.ArrayNode) *node {
	elements := make([]*node, len(n.Nodes))
	known := make([]value, 0, len(n.Nodes))
	for i, e := range n.Nodes {
		elements[i] = c.compile(e)
		if elements[i].fixed != nil {
			known = append(known, *elements[i].fixed)
		}
	}
	if len(known) == len(elements) {
		return fixed(value{kind: kindArray, list: &known})
	}
	return &node{
		eval: func(s *state) (value, error) {
			if err := s.charge(workElement * len(elements)); err != nil {
				return value{}, err
			}
			list := make([]value, len(elements))
			for i, e := range elements {
				v, err := e.value(s)
				if err != nil {
					return value{}, err
				}
				list[i] = v
			}
			return value{kind: kindArray, list: &list}, nil
		},
		kinds: set(kindArray),
		parts: elements,
	}
}

// functionNames lists what call knows.
const functionNames = "all, any, count, filter, float, int, len, lower, map, none, one, split, string, trim, upper"

func (c *compiler) call(n ast.Node, name string, arguments []ast.Node) *node {
	at := n.Location()
	count := func(least, most int) {
		if len(arguments) >= least && len(arguments) <= most {
			return
		}
		takes := strconv.Itoa(least)
		if most > least {
			takes += " or " + strconv.Itoa(most)
		}
		c.refuse(at, "the function %s takes %s arguments, not %d", name, takes, len(arguments))
	}
	var compiled *node
	switch name {
	case "all", "any", "none", "one", "count", "filter", "map":
		count(2, 2)
		compiled = c.predicate(name, arguments)
	case "len":
		count(1, 1)
		compiled = c.length(c.compile(arguments[0]), at)
	case "lower", "upper":
		count(1, 1)
		compiled = c.text(name, at, arguments)
	case "trim":
		count(1, 2)
		compiled = c.text(name, at, arguments)
	case "split":
		count(2, 2)
		compiled = c.split(at, c.compile(arguments[0]), c.compile(arguments[1]))
	case "int", "float", "string":
		count(1, 1)
		compiled = c.convert(name, at, c.compile(arguments[0]))
	default:
		c.refuse(at, "the function %s is not available; available are %s", name, functionNames)
	}
	compiled.name = name + "(…)"
	return compiled
}

// predicate compiles the functions that look at each element of an array.
func (c *compiler) predicate(name string, arguments []ast.Node) *node {
	array := c.compile(arguments[0])
	c.expect(arguments[0].Location(), array, set(kindArray), "used with "+name)
	body, ok := arguments[1].(*ast.PredicateNode)
	if !ok {
		c.refuse(arguments[1].Location(), "%s wants a condition on the elements", name)
	}
	slot := c.slot()
	c.elements = append(c.elements, element{slot: slot, kinds: anyJSON})
	each := c.compile(body.Node)
	c.elements = c.elements[:len(c.elements)-1]
	if name != "map" {
		c.expect(body.Node.Location(), each, set(kindBool), "used as true or false")
	}
	// visit calls f with each element, after pointing # at it.
	visit := func(s *state, f func(element value) (bool, error)) error {
		v, err := array.value(s)
		if err != nil {
			return err
		}
		if v.kind != kindArray {
			return array.is(v, "used with "+name)
		}
		return s.each(v, func(i int, element value) (bool, error) {
			if err := s.charge(workVisit + workStep*each.steps); err != nil {
				return true, err
			}
			s.vars[slot], s.positions[slot] = element, i
			return f(element)
		})
	}
	switch name {
	case "filter", "map":
		return &node{
			eval: func(s *state) (value, error) {
				list := []value{}
				err := visit(s, func(element value) (bool, error) {
					var err error
					keep := name == "map"
					if keep {
						element, err = each.value(s)
					} else {
						keep, err = each.boolean(s)
					}
					if err == nil && keep {
						list = append(list, element)
						err = s.charge(workElement)
					}
					return false, err
				})
				return value{kind: kindArray, list: &list}, err
			},
			kinds: set(kindArray),
		}
	case "count":
		return &node{
			eval: func(s *state) (value, error) {
				n, err := countTrue(s, each, visit, -1)
				return value{kind: kindNumber, decimal: apd.New(n, 0)}, err
			},
			kinds: set(kindNumber),
		}
	}
	return &node{
		eval: func(s *state) (value, error) {
			switch name {
			case "any":
				n, err := countTrue(s, each, visit, 1)
				return boolean(n == 1), err
			case "none":
				n, err := countTrue(s, each, visit, 1)
				return boolean(n == 0), err
			case "one":
				n, err := countTrue(s, each, visit, 2)
				return boolean(n == 1), err
			}
			all := true
			err := visit(s, func(value) (bool, error) {
				yes, err := each.boolean(s)
				all = yes
				return !yes, err
			})
			return boolean(all), err
		},
		kinds: set(kindBool),
	}
}

// countTrue counts the elements for which each holds, and stops at enough of them.
func countTrue(s *state, each *node, visit func(*state, func(value) (bool, error)) error, enough int64) (int64, error) {
	var n int64
	err := visit(s, func(value) (bool, error) {
		yes, err := each.boolean(s)
		if yes {
			n++
		}
		return n == enough, err
	})
	return n, err
}

func (c *compiler) length(of *node, at file.Location) *node {
	const use = "used with len"
	c.expect(at, of, set(kindString, kindArray, kindObject), use)
	return &node{
		eval: func(s *state) (value, error) {
			v, err := of.value(s)
			if err != nil {
				return value{}, err
			}
			n := 0
			switch v.kind {
			case kindString:
				var text string
				if text, err = s.str(v); err == nil {
					n = utf8.RuneCountInString(text)
					err = s.charge(len(text))
				}
			case kindArray, kindObject:
				n, err = s.length(v)
			default:
				err = of.is(v, use)
			}
			return value{kind: kindNumber, decimal: apd.New(int64(n), 0)}, err
		},
		kinds: set(kindNumber),
	}
}

// text compiles the functions from strings to a string.
func (c *compiler) text(name string, at file.Location, arguments []ast.Node) *node {
	use := "used with " + name
	of := make([]*node, len(arguments))
	for i, a := range arguments {
		of[i] = c.compile(a)
		c.expect(at, of[i], set(kindString), use)
	}
	return &node{
		eval: func(s *state) (value, error) {
			var args [2]string
			for i, n := range of {
				var err error
				if args[i], err = n.str(s, use); err != nil {
					return value{}, err
				}
			}
			text := args[0]
			if err := s.charge(4 * len(text) * (1 + len(args[1]))); err != nil {
				return value{}, err
			}
			switch {
			case name == "lower":
				text = strings.ToLower(text)
			case name == "upper":
				text = strings.ToUpper(text)
			case len(of) == 1:
				text = strings.TrimSpace(text)
			default:
				text = strings.Trim(text, args[1])
			}
			return value{kind: kindString, text: text}, nil
		},
		kinds: set(kindString),
	}
}

func (c *compiler) split(at file.Location, of, by *node) *node {
	const use = "used with split"
	c.expect(at, of, set(kindString), use)
	c.expect(at, by, set(kindString), use)
	return &node{
		eval: func(s *state) (value, error) {
			text, err := of.str(s, use)
			if err != nil {
				return value{}, err
			}
			separator, err := by.str(s, use)
			if err != nil {
				return value{}, err
			}
			if err := s.charge(len(text) + len(separator)); err != nil {
				return value{}, err
			}
			if err := s.charge(workElement * (strings.Count(text, separator) + 1)); err != nil {
				return value{}, err
			}
			parts := strings.Split(text, separator)
			list := make([]value, len(parts))
			for i, p := range parts {
				list[i] = value{kind: kindString, text: p}
			}
			return value{kind: kindArray, list: &list}, nil
		},
		kinds: set(kindArray),
	}
}

// convert compiles int, float and string. The first two differ only in that int takes whole numbers alone.
func (c *compiler) convert(name string, at file.Location, of *node) *node {
	use := "used with " + name
	if name == "string" {
		c.expect(at, of, set(kindString, kindNumber, kindBool), use)
		return &node{
			eval: func(s *state) (value, error) {
				v, err := of.value(s)
				if err != nil {
					return value{}, err
				}
				switch v.kind {
				case kindString:
					return v, nil
				case kindBool:
					text := "false"
					if v.yes {
						text = "true"
					}
					return value{kind: kindString, text: text}, nil
				case kindNumber:
					var scratch apd.Decimal
					d, err := s.number(v, &scratch)
					if err != nil {
						return value{}, of.fail(err)
					}
					return value{kind: kindString, text: formatNumber(d)}, nil
				}
				return value{}, of.is(v, use)
			},
			kinds: set(kindString),
		}
	}
	c.expect(at, of, set(kindString, kindNumber), use)
	return &node{
		eval: func(s *state) (value, error) {
			v, err := of.value(s)
			if err != nil {
				return value{}, err
			}
			d := new(apd.Decimal)
			switch v.kind {
			case kindNumber:
				d, err = s.number(v, d)
			case kindString:
				var text string
				if text, err = s.str(v); err == nil {
					err = s.charge(8 * len(text))
				}
				if err == nil {
					err = parseNumber(text, d)
				}
			default:
				err = of.is(v, use)
			}
			if err == nil && name == "int" && !integral(d) {
				err = errWhole
			}
			return value{kind: kindNumber, decimal: d}, of.fail(err)
		},
		kinds: set(kindNumber),
	}
}
