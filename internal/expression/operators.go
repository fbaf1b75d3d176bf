package expression

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/cockroachdb/apd/v3"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
)

// maxPattern bounds the compiled form of a regular expression, whose size times the text's is the time that a match may take.
const maxPattern = 10_000 // instructions

// value evaluates n, and makes a missing member an error.
func (n *node) value(s *state) (value, error) {
	v, err := n.eval(s)
	if err == nil && v.kind == kindMissing {
		err = evalError(v.text)
	}
	return v, err
}

func (n *node) boolean(s *state) (bool, error) {
	v, err := n.value(s)
	if err == nil && v.kind != kindBool {
		err = n.is(v, "used as true or false")
	}
	return v.yes, err
}

func (n *node) str(s *state, use string) (string, error) {
	v, err := n.value(s)
	if err != nil {
		return "", err
	}
	if v.kind != kindString {
		return "", n.is(v, use)
	}
	return s.str(v)
}

// is says that n's value is of the wrong type for its use.
func (n *node) is(v value, use string) evalError {
	if n.name == "" {
		return evalError(v.kind.String() + " is " + use)
	}
	return evalError(n.name + " is " + v.kind.String() + ", " + use)
}

// fail says of which part of the expression a number could not be used.
func (n *node) fail(err error) error {
	if number := numberError(""); errors.As(err, &number) {
		return evalError(n.called() + " is " + string(number))
	}
	return err
}

// called returns a name even for what has none.
func (n *node) called() string {
	if n.name == "" {
		return "a value"
	}
	return n.name
}

// expect refuses what can never be of one of the wanted kinds.
func (c *compiler) expect(at file.Location, n *node, wanted kinds, use string) {
	if n.kinds&wanted == 0 {
		is := n.name + " is " + n.kinds.String() + ", " + use
		if n.name == "" {
			is = n.kinds.String() + " is " + use
		}
		c.refuse(at, "%s", is)
	}
}

func (c *compiler) unary(n *ast.UnaryNode) *node {
	operand := c.compile(n.Node)
	switch n.Operator {
	case "!", "not":
		c.expect(n.Location(), operand, set(kindBool), "used as true or false")
		return &node{
			eval: func(s *state) (value, error) {
				yes, err := operand.boolean(s)
				return boolean(!yes), err
			},
			kinds: set(kindBool),
		}
	case "-", "+":
		c.expect(n.Location(), operand, set(kindNumber), "used in arithmetic")
		if operand.fixed != nil {
			d := operand.fixed.decimal
			if n.Operator == "-" {
				d = new(apd.Decimal).Neg(d)
			}
			return fixed(value{kind: kindNumber, decimal: d})
		}
		zero := fixed(value{kind: kindNumber, decimal: new(apd.Decimal)})
		return c.arithmetic(n.Operator, zero, operand)
	}
	c.refuse(n.Location(), "the operator %s is not available", n.Operator)
	return nil
}

func (c *compiler) binary(n *ast.BinaryNode) *node {
	at := n.Location()
	switch n.Operator {
	case "/":
		c.refuse(at, "there is no division, whose result may not be exact; multiply the other side instead")
	case "**", "^":
		c.refuse(at, "the operator %s is not available", n.Operator)
	case "..":
		c.refuse(at, "ranges are not available; write x >= 1 && x <= 9")
	case "in":
		return c.in(n)
	case "-":
		if m, ok := n.Left.(*ast.MemberNode); ok {
			if collection, _ := c.collection(m.Node); collection != "" { // headers.X-Name
				c.refuse(at, "a name with a minus sign is written %s[\"X-Name\"]", collection)
			}
		}
	}
	left, right := c.compile(n.Left), c.compile(n.Right)
	switch n.Operator {
	case "&&", "and", "||", "or":
		c.expect(n.Left.Location(), left, set(kindBool), "used as true or false")
		c.expect(n.Right.Location(), right, set(kindBool), "used as true or false")
		return logical(n.Operator == "||" || n.Operator == "or", left, right)
	case "??":
		return coalesce(left, right)
	case "==", "!=":
		if left.kinds&right.kinds == 0 && !(left.kinds | right.kinds).has(kindAbsent) {
			c.refuse(at, "%s is compared with %s, which never can be evaluated%s", left.kinds, right.kinds, hint(n, left.kinds|right.kinds))
		}
		return equality(n.Operator == "!=", left, right)
	case "<", "<=", ">", ">=":
		c.expect(n.Left.Location(), left, set(kindNumber, kindString), "used with "+n.Operator)
		c.expect(n.Right.Location(), right, set(kindNumber, kindString), "used with "+n.Operator)
		if left.kinds&right.kinds&set(kindNumber, kindString) == 0 {
			c.refuse(at, "%s is compared with %s, which never can be evaluated%s", left.kinds, right.kinds, hint(n, left.kinds|right.kinds))
		}
		return order(n.Operator, left, right)
	case "contains", "startsWith", "endsWith":
		c.expect(n.Left.Location(), left, set(kindString), "used with "+n.Operator)
		c.expect(n.Right.Location(), right, set(kindString), "used with "+n.Operator)
		return stringTest(n.Operator, left, right)
	case "matches":
		return c.matches(n, left, right)
	case "+":
		wanted := set(kindNumber, kindString)
		c.expect(n.Left.Location(), left, wanted, "used with +")
		c.expect(n.Right.Location(), right, wanted, "used with +")
		if left.kinds&right.kinds&wanted == 0 {
			c.refuse(at, "%s is added to %s, which never can be evaluated%s", right.kinds, left.kinds, hint(n, left.kinds|right.kinds))
		}
		return plus(left, right)
	case "-", "*", "%":
		c.expect(n.Left.Location(), left, set(kindNumber), "used in arithmetic")
		c.expect(n.Right.Location(), right, set(kindNumber), "used in arithmetic")
		return c.arithmetic(n.Operator, left, right)
	}
	c.refuse(at, "the operator %s is not available", n.Operator)
	return nil
}

// hint helps with the commonest mistakes.
func hint(n *ast.BinaryNode, k kinds) string {
	if u, ok := n.Left.(*ast.UnaryNode); ok && (u.Operator == "not" || u.Operator == "!") {
		return "; write not (a == b), or a != b"
	}
	if k == set(kindString, kindNumber) {
		return "; int(…) makes a number of a string, quotes a string of a number"
	}
	return ""
}

func logical(or bool, left, right *node) *node {
	return &node{
		eval: func(s *state) (value, error) {
			yes, err := left.boolean(s)
			if err == nil && yes != or {
				yes, err = right.boolean(s)
			}
			return boolean(yes), err
		},
		kinds: set(kindBool),
	}
}

func coalesce(left, right *node) *node {
	return &node{
		eval: func(s *state) (value, error) {
			v, err := left.eval(s)
			if err == nil && v.kind <= kindNull {
				return right.eval(s)
			}
			return v, err
		},
		kinds: left.kinds&^set(kindNull, kindAbsent) | right.kinds,
		name:  short(strings.TrimSuffix(left.called(), " ?? …")+" ?? …", maxName),
	}
}

// operands evaluates both sides of an operator, left first.
func operands(s *state, left, right *node) (a, b value, err error) {
	if a, err = left.value(s); err == nil {
		b, err = right.value(s)
	}
	return a, b, err
}

func equality(not bool, left, right *node) *node {
	return &node{
		eval: func(s *state) (value, error) {
			a, b, err := operands(s, left, right)
			if err != nil {
				return value{}, err
			}
			v, err := s.equal(a, b)
			if err != nil {
				return value{}, failed(left, right, err)
			}
			if v == incomparable {
				return value{}, mismatch(left, right, a, b)
			}
			return boolean((v == same) != not), nil
		},
		kinds: set(kindBool),
	}
}

// failed names the sides of a comparison in which a number could not be used.
func failed(left, right *node, err error) error {
	switch {
	case left.name == "":
		return right.fail(err)
	case right.name == "":
		return left.fail(err)
	}
	return (&node{name: left.name + " or " + right.name}).fail(err)
}

// mismatch tells of a comparison across types, in the order in which it reads best.
func mismatch(left, right *node, a, b value) error {
	if left.name == "" && right.name != "" {
		left, right, a, b = right, left, b, a
	}
	if a.kind == b.kind {
		return evalError(left.called() + " holds a value of another type than what it is compared with")
	}
	with := b.kind.String()
	if right.name != "" {
		with = right.name + ", " + with
	}
	return left.is(a, "compared with "+with)
}

func order(operator string, left, right *node) *node {
	holds := map[string]func(int) bool{
		"<":  func(c int) bool { return c < 0 },
		"<=": func(c int) bool { return c <= 0 },
		">":  func(c int) bool { return c > 0 },
		">=": func(c int) bool { return c >= 0 },
	}[operator]
	return &node{
		eval: func(s *state) (value, error) {
			a, b, err := operands(s, left, right)
			if err != nil {
				return value{}, err
			}
			if a.kind != b.kind {
				return value{}, mismatch(left, right, a, b)
			}
			var c int
			switch a.kind {
			case kindNumber:
				c, err = s.compareNumbers(a, b)
			case kindString:
				var x, y string
				x, y, err = s.strings(a, b)
				c = strings.Compare(x, y)
			default:
				return value{}, left.is(a, "used with "+operator)
			}
			if err != nil {
				return value{}, failed(left, right, err)
			}
			return boolean(holds(c)), nil
		},
		kinds: set(kindBool),
	}
}

func stringTest(operator string, left, right *node) *node {
	holds := map[string]func(s, part string) bool{
		"contains":   strings.Contains,
		"startsWith": strings.HasPrefix,
		"endsWith":   strings.HasSuffix,
	}[operator]
	use := "used with " + operator
	return &node{
		eval: func(s *state) (value, error) {
			text, err := left.str(s, use)
			if err != nil {
				return value{}, err
			}
			part, err := right.str(s, use)
			if err == nil {
				err = s.charge(len(text) + len(part))
			}
			return boolean(err == nil && holds(text, part)), err
		},
		kinds: set(kindBool),
	}
}

func (c *compiler) matches(n *ast.BinaryNode, left, right *node) *node {
	c.expect(n.Left.Location(), left, set(kindString), "used with matches")
	if right.fixed == nil || right.fixed.kind != kindString {
		c.refuse(n.Right.Location(), "the pattern of matches must be a string literal")
	}
	pattern := right.fixed.text
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		c.refuse(n.Right.Location(), "the pattern is not a regular expression: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		c.refuse(n.Right.Location(), "the pattern is not a regular expression: %s", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(program.Inst) > maxPattern {
		c.refuse(n.Right.Location(), "the pattern is too large")
	}
	perByte := 4 + len(program.Inst)/4
	return &node{
		eval: func(s *state) (value, error) {
			text, err := left.str(s, "used with matches")
			if err == nil {
				err = s.charge(perByte * len(text))
			}
			return boolean(err == nil && compiled.MatchString(text)), err
		},
		kinds: set(kindBool),
	}
}

func plus(left, right *node) *node {
	return &node{
		eval: func(s *state) (value, error) {
			a, b, err := operands(s, left, right)
			if err != nil {
				return value{}, err
			}
			if a.kind != b.kind {
				return value{}, left.is(a, "added to "+b.kind.String())
			}
			switch a.kind {
			case kindString:
				x, y, err := s.strings(a, b)
				if err == nil {
					err = s.charge(4 * (len(x) + len(y)))
				}
				if err != nil {
					return value{}, err
				}
				return value{kind: kindString, text: x + y}, nil
			case kindNumber:
				return calculate(s, "+", left, right, a, b)
			}
			return value{}, left.is(a, "used with +")
		},
		kinds: left.kinds & right.kinds & set(kindNumber, kindString),
	}
}

func (c *compiler) arithmetic(operator string, left, right *node) *node {
	return &node{
		eval: func(s *state) (value, error) {
			a, b, err := operands(s, left, right)
			if err != nil {
				return value{}, err
			}
			if a.kind != kindNumber {
				return value{}, left.is(a, "used in arithmetic")
			}
			if b.kind != kindNumber {
				return value{}, right.is(b, "used in arithmetic")
			}
			return calculate(s, operator, left, right, a, b)
		},
		kinds: set(kindNumber),
	}
}

func calculate(s *state, operator string, left, right *node, a, b value) (value, error) {
	var x, y apd.Decimal
	p, err := s.number(a, &x)
	if err != nil {
		return value{}, left.fail(err)
	}
	q, err := s.number(b, &y)
	if err != nil {
		return value{}, right.fail(err)
	}
	d, err := arithmetic(operator, p, q)
	if err != nil {
		return value{}, (&node{name: "the result of " + operator}).fail(err)
	}
	return value{kind: kindNumber, decimal: d}, nil
}

func (c *compiler) in(n *ast.BinaryNode) *node {
	left := c.compile(n.Left)
	if collection, find := c.collection(n.Right); find != nil {
		use := "looked up in " + collection
		c.expect(n.Left.Location(), left, set(kindString), use)
		return &node{
			eval: func(s *state) (value, error) {
				name, err := left.str(s, use)
				if err != nil {
					return value{}, err
				}
				_, ok, err := find(s, name)
				return boolean(ok), err
			},
			kinds: set(kindBool),
		}
	}
	right := c.compile(n.Right)
	c.expect(n.Right.Location(), right, set(kindArray, kindObject), "used on the right of in, which wants an array or an object")
	return &node{
		eval: func(s *state) (value, error) {
			a, b, err := operands(s, left, right)
			if err != nil {
				return value{}, err
			}
			switch b.kind {
			case kindObject:
				if a.kind != kindString {
					return value{}, left.is(a, "looked up by name in an object")
				}
				name, err := s.str(a)
				if err != nil {
					return value{}, err
				}
				_, ok, err := s.member(b, name)
				return boolean(ok), err
			case kindArray:
				return inArray(s, left, right, a, b)
			}
			return value{}, right.is(b, "used on the right of in")
		},
		kinds: set(kindBool),
	}
}

// inArray is true if one element is equal; else an element that could not be compared leaves it open.
func inArray(s *state, left, right *node, a, b value) (value, error) {
	best := different
	var open value
	err := s.each(b, func(_ int, element value) (bool, error) {
		v, err := s.equalWithin(a, element)
		if v == incomparable && best != incomparable {
			open = element
		}
		if v == same || v == incomparable {
			best = v
		}
		return v == same, err
	})
	if err != nil {
		return value{}, failed(left, right, err)
	}
	if best == incomparable {
		return value{}, left.is(a, fmt.Sprintf("looked up in %s, which holds %s", rightName(right), open.kind))
	}
	return boolean(best == same), nil
}

func rightName(n *node) string {
	if n.name == "" {
		return "an array"
	}
	return n.name
}
