package expression

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cockroachdb/apd/v3"
)

// kind is the JSON type of a value, or in which way there is none.
type kind uint8

const (
	kindMissing kind = iota // a member that is not there and that nothing excuses: an error as soon as it is used
	kindSkipped             // the rest of an optional chain whose beginning is not there; absent once the chain ends
	kindAbsent              // nil, or a member written with ?. that is not there
	kindNull
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

// kinds is a set of kinds.
type kinds uint16

func set(of ...kind) kinds {
	var s kinds
	for _, k := range of {
		s |= 1 << k
	}
	return s
}

func (s kinds) has(k kind) bool { return s&(1<<k) != 0 }

var anyJSON = set(kindNull, kindBool, kindNumber, kindString, kindArray, kindObject)

// String names a kind as error messages speak of it.
func (k kind) String() string {
	switch k {
	case kindMissing:
		return "missing"
	case kindSkipped, kindAbsent:
		return "absent"
	case kindNull:
		return "null"
	case kindBool:
		return "a boolean"
	case kindNumber:
		return "a number"
	case kindString:
		return "a string"
	case kindArray:
		return "an array"
	case kindObject:
		return "an object"
	}
	return "of an unknown type"
}

// String names what is in the set: "a string or null".
func (s kinds) String() string {
	var names []string
	if s.has(kindAbsent) {
		names = append(names, "nil")
	}
	for k := kindNull; k <= kindObject; k++ {
		if s.has(k) {
			names = append(names, k.String())
		}
	}
	return strings.Join(names, " or ")
}

// value is one value while an expression is evaluated. What comes from the body stays the text that it is there until it is used.
type value struct {
	kind    kind
	raw     bool   // text is JSON
	outer   bool   // it is the whole body
	yes     bool   // a boolean
	text    string // a string; JSON where raw; what is missing
	decimal *apd.Decimal
	list    *[]value // an array that is not raw
}

func boolean(yes bool) value { return value{kind: kindBool, yes: yes} }

// fromJSON returns the value that text, a whole valid JSON value, stands for.
func fromJSON(text string) value {
	v := value{raw: true, text: text}
	switch text[0] {
	case '{':
		v.kind = kindObject
	case '[':
		v.kind = kindArray
	case '"':
		v.kind = kindString
	case 't', 'f':
		return boolean(text[0] == 't')
	case 'n':
		return value{kind: kindNull}
	default:
		v.kind = kindNumber
	}
	return v
}

// evalError is what Eval returns. It is made of names from the expression and of types, never of what the push holds.
type evalError string

// Error begins with "cannot be evaluated: ".
func (e evalError) Error() string { return "cannot be evaluated: " + string(e) }

const errWork evalError = "too much work on this push"

// state is one evaluation.
type state struct {
	in    Input
	body  value
	query url.Values
	hash  string // of the body; empty until it is asked for
	work  int    // what may still be spent, about one a byte looked at
	size  apd.Decimal

	members   []member // of the body, if it is an object of a few members
	vars      []value  // by slot: let variables, and the elements that predicates look at
	positions []int    // by slot: of those elements
}

// Every evaluation ends: what it looks at and what it builds is charged, in units of very roughly a nanosecond. An expression that looks at
// each element of the body's arrays a few times stays within; one that compares each of 10,000 elements with each other does not.
const (
	workBase    = 1 << 20
	workPerByte = 64
	workElement = 256 // an element of an array that the expression builds: four times its memory
	workVisit   = 64  // an element that a predicate looks at, and beside it
	workStep    = 8   // each part of the predicate
)

func (s *state) charge(n int) error {
	s.work -= n
	if s.work < 0 {
		return errWork
	}
	return nil
}

// theBody validates the body on its first use.
func (s *state) theBody() (value, error) {
	if s.body.kind != kindMissing {
		return s.body, nil
	}
	text := textOf(s.in.Body)
	members, valid := validJSON(text, s.members[:0])
	if !valid {
		if strings.Trim(text, jsonSpace) == "" {
			return value{}, evalError("body is empty, not JSON")
		}
		return value{}, evalError("body is not JSON")
	}
	s.body = fromJSON(strings.Trim(text, jsonSpace))
	s.body.outer = members != nil
	if members != nil {
		s.members = members
	}
	return s.body, nil
}

// bodyHash computes the hash on its first use.
func (s *state) bodyHash() (value, error) {
	if s.hash == "" {
		if err := s.charge(2 * len(s.in.Body)); err != nil {
			return value{}, err
		}
		sum := sha256.Sum256(s.in.Body)
		s.hash = hex.EncodeToString(sum[:])
	}
	return value{kind: kindString, text: s.hash}, nil
}

func (s *state) header(name string) (value, bool, error) {
	name = http.CanonicalHeaderKey(name)
	if s.in.Header == nil {
		return s.headerLine(name)
	}
	values := s.in.Header[name]
	if len(values) == 0 {
		return value{}, false, nil
	}
	return value{kind: kindString, text: values[0]}, true, nil
}

// headerLine finds a header in the input's lines.
func (s *state) headerLine(name string) (value, bool, error) {
	lines := textOf(s.in.HeaderLines)
	if err := s.charge(len(lines)); err != nil {
		return value{}, false, err
	}
	for line := range strings.SplitSeq(lines, "\r\n") {
		if field, text, ok := strings.Cut(line, ": "); ok && field == name {
			return value{kind: kindString, text: text}, true, nil
		}
	}
	return value{}, false, nil
}

func (s *state) queryParameter(name string) (value, bool, error) {
	if s.query == nil {
		parsed, err := url.ParseQuery(s.in.RawQuery)
		if err != nil {
			return value{}, false, evalError("query is malformed") // the cause would quote it
		}
		s.query = parsed
	}
	values := s.query[name]
	if len(values) == 0 {
		return value{}, false, nil
	}
	return value{kind: kindString, text: values[0]}, true, nil
}

// str returns a string's content.
func (s *state) str(v value) (string, error) {
	if !v.raw {
		return v.text, nil
	}
	if err := s.charge(len(v.text)); err != nil {
		return "", err
	}
	return unquote(v.text), nil
}

// number returns a number's decimal, read into scratch where it is still text. It is not to be changed.
func (s *state) number(v value, scratch *apd.Decimal) (*apd.Decimal, error) {
	if v.decimal != nil {
		return v.decimal, s.charge(16 + v.decimal.Coeff.BitLen())
	}
	if err := s.charge(8 * len(v.text)); err != nil {
		return nil, err
	}
	return scratch, parseNumber(v.text, scratch)
}

// member finds a member of an object; of several with one name the last counts, as in encoding/json.
func (s *state) member(object value, name string) (value, bool, error) {
	if err := s.charge(len(object.text)); err != nil {
		return value{}, false, err
	}
	found := ""
	if object.outer {
		for _, m := range slices.Backward(s.members) {
			if m.is(name) {
				return fromJSON(m.value), true, nil
			}
		}
		return value{}, false, nil
	}
	for c := walk(object.text); c.next(); {
		if c.is(name) {
			found = c.value
		}
	}
	if found == "" {
		return value{}, false, nil
	}
	return fromJSON(found), true, nil
}

// element finds an element of an array; -1 is the last.
func (s *state) element(array value, index int64) (value, bool, error) {
	if index < 0 {
		n, err := s.length(array)
		if err != nil {
			return value{}, false, err
		}
		index += int64(n)
	}
	if !array.raw {
		if index < 0 || index >= int64(len(*array.list)) {
			return value{}, false, nil
		}
		return (*array.list)[index], true, nil
	}
	if err := s.charge(len(array.text)); err != nil {
		return value{}, false, err
	}
	for c := walk(array.text); index >= 0 && c.next(); index-- {
		if index == 0 {
			return fromJSON(c.value), true, nil
		}
	}
	return value{}, false, nil
}

// each calls f with the elements of an array, in order, until it says stop.
func (s *state) each(array value, f func(i int, element value) (stop bool, err error)) error {
	if err := s.charge(len(array.text)); err != nil {
		return err
	}
	if !array.raw {
		for i, element := range *array.list {
			if stop, err := f(i, element); stop || err != nil {
				return err
			}
		}
		return nil
	}
	c := walk(array.text)
	for i := 0; c.next(); i++ {
		if stop, err := f(i, fromJSON(c.value)); stop || err != nil {
			return err
		}
	}
	return nil
}

// length counts an array's elements or an object's different members.
func (s *state) length(v value) (int, error) {
	if v.kind == kindObject {
		members, err := s.distinct(v)
		return len(members), err
	}
	if !v.raw {
		return len(*v.list), nil
	}
	n := 0
	err := s.each(v, func(int, value) (bool, error) {
		n++
		return false, nil
	})
	return n, err
}

// distinct collects an object's members by name; the last of each name counts.
func (s *state) distinct(object value) (map[string]string, error) {
	if err := s.charge(len(object.text)); err != nil {
		return nil, err
	}
	members := make(map[string]string)
	for c := walk(object.text); c.next(); {
		if err := s.charge(workElement); err != nil {
			return nil, err
		}
		members[unquote(c.key)] = c.value
	}
	return members, nil
}

// verdict is the outcome of a comparison.
type verdict uint8

const (
	same verdict = iota
	different
	incomparable // across JSON types
)

// equal compares two values, deeply. Absent (nil) is comparable to everything and equal to itself and to null. Within arrays and objects
// that agree in length and in names, one pair across types makes the whole incomparable: that outranks different.
func (s *state) equal(a, b value) (verdict, error) {
	if a.kind <= kindAbsent || b.kind <= kindAbsent {
		return verdictOf(a.kind <= kindNull && b.kind <= kindNull), nil
	}
	if a.kind != b.kind {
		return incomparable, nil
	}
	switch a.kind {
	case kindBool:
		return verdictOf(a.yes == b.yes), nil
	case kindNumber:
		order, err := s.compareNumbers(a, b)
		return verdictOf(order == 0), err
	case kindString:
		x, y, err := s.strings(a, b)
		return verdictOf(x == y), err
	case kindArray:
		return s.equalArrays(a, b)
	case kindObject:
		return s.equalObjects(a, b)
	}
	return same, nil // null
}

func verdictOf(equal bool) verdict {
	if equal {
		return same
	}
	return different
}

func (s *state) equalArrays(a, b value) (verdict, error) {
	n, err := s.length(a)
	if err != nil {
		return different, err
	}
	if m, err := s.length(b); err != nil || m != n {
		return different, err
	}
	var other []value
	if !b.raw {
		other = *b.list
	} else {
		if err := s.charge(workElement * n); err != nil {
			return different, err
		}
		other = make([]value, 0, n)
		for c := walk(b.text); c.next(); {
			other = append(other, fromJSON(c.value))
		}
	}
	all := same
	err = s.each(a, func(i int, element value) (bool, error) {
		v, err := s.equalWithin(element, other[i])
		all = max(all, v)
		return false, err
	})
	return all, err
}

func (s *state) equalObjects(a, b value) (verdict, error) {
	ours, err := s.distinct(a)
	if err != nil {
		return different, err
	}
	theirs, err := s.distinct(b)
	if err != nil {
		return different, err
	}
	if len(ours) != len(theirs) {
		return different, nil
	}
	for name := range ours {
		if _, ok := theirs[name]; !ok {
			return different, nil
		}
	}
	all := same
	for c := walk(a.text); c.next(); { // not over the map: what is found first must not change from one run to the next
		name := unquote(c.key)
		v, err := s.equalWithin(fromJSON(ours[name]), fromJSON(theirs[name]))
		if err != nil {
			return different, err
		}
		all = max(all, v)
	}
	return all, nil
}

// equalWithin compares a pair inside arrays or objects. A step is charged, so that a list that holds itself many times over ends, too.
func (s *state) equalWithin(a, b value) (verdict, error) {
	if err := s.charge(16); err != nil {
		return different, err
	}
	return s.equal(a, b)
}

func (s *state) compareNumbers(a, b value) (int, error) {
	var x, y apd.Decimal
	p, err := s.number(a, &x)
	if err != nil {
		return 0, err
	}
	q, err := s.number(b, &y)
	if err != nil {
		return 0, err
	}
	return p.Cmp(q), nil
}

func (s *state) strings(a, b value) (x, y string, err error) {
	if x, err = s.str(a); err == nil {
		y, err = s.str(b)
	}
	if err == nil {
		err = s.charge(min(len(x), len(y)))
	}
	return x, y, err
}
