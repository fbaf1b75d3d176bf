// Package expression answers one question: what does this expression say of this push? A Program says whether it holds, a Key what it belongs to,
// a Value what it comes to. CompileOver does the same over a document of other names.
//
// The grammar is expr-lang's (https://expr-lang.org), read by its own parser. The evaluation is this package's, since its promise is another:
// where expr answers false or nil for what it cannot know, Eval returns an error, and the caller keeps the push. Nearly every operator
// would have had to be replaced inside expr's machine; evaluating its syntax tree directly is smaller, and several times faster.
//
// # Names
//
//	body          the JSON body: body.a.b, body["a"], body.items[0], body.items[-1]
//	body_hash     the SHA-256 of the exact body, JSON or not, as 64 lower-case hexadecimal digits
//	headers       headers["X-Name"], headers.Host: the first value, a string; the name in any case
//	query         query["name"], query.name: the first value, a string
//	content_type  a string
//	size          the body's length in bytes
//
// # What cannot be evaluated
//
//   - body, where it is not exactly one JSON value (empty and trailing text included), as soon as the expression touches it.
//   - A member, header or query parameter that is missing, or an index out of range. Excused are body?.a (a may be missing, and so may be
//     what stands before ?.), whose value is then nil, and body.a.b ?? 1, which takes the other value if any part of body.a.b is missing or null.
//     "a" in body asks whether there is such a member.
//   - A comparison across JSON types, by == != < <= > >= or in, and contains, startsWith, endsWith, matches on what is no string.
//     Only nil compares with everything: it equals null and what ?. found missing. A JSON null compares with null and nil alone.
//   - Order (<, <=, >, >=) of anything but two numbers or two strings; strings are ordered by their bytes.
//   - A condition, or a result, that is not true or false.
//   - A number beyond 1,000 digits or 10^±10,000, once it is used. Within that all numbers are exact decimals: 0.1 + 0.2 == 0.3, 1 == 1.0.
//   - An expression that does too much work on this push (see workPerByte).
//
// Arrays and objects compare deeply. Of different length, or with other member names, they differ; else one pair of another type inside them makes the whole
// impossible to evaluate, even beside a pair that differs. x in array is true if an element equals x, and only if none does an element of
// another type matters: then it cannot be evaluated.
//
// Evaluation goes from left to right, and && and || stop as soon as the left side decides: what stands right of it may then be impossible to
// evaluate. An error on the left stays an error, whatever stands on the right. The functions that work on arrays stop the same way.
//
// JSON is read as encoding/json reads it: of members with one name the last counts, names are case-sensitive, and invalid UTF-8 and lone
// surrogates in strings are read as U+FFFD.
//
// # Functions
//
//	all any none one count   (array, condition): # is the element, .name its member, #index its position
//	filter map               (array, expression)
//	len                      of an array, an object or a string (in characters)
//	lower upper trim         of a string; trim(text, characters) takes those away
//	split                    (text, separator)
//	int float                the number that a string spells ("1008"), exactly; int takes whole numbers only
//	string                   of a string, a number (1, 1.0 and 10e-1 are all "1") or a boolean
//
// Also: + - * % (exact), + joining two strings, not, ternaries, if/else, let, and the pipe operator. There is no division and no power, whose
// results are not exact decimals, and there are no ranges, slices, maps, dates or methods: Compile refuses them, so that nothing means
// something else than it says.
package expression

import (
	"net/http"
	"sync"
	"unsafe"
)

// Input is a push as an expression sees it.
type Input struct {
	Body        []byte      // must not change while Eval runs
	Header      http.Header // names in canonical form, as net/http delivers them
	HeaderLines []byte      // the same as "Name: value\r\n" lines; looked at where Header is nil, and must not change either
	RawQuery    string      // the encoded query without "?"; parsed only if the expression asks for it
	ContentType string
	Size        int64 // bytes
}

// Program is a compiled expression. It is safe for concurrent use.
type Program struct {
	root     *node
	usesBody bool
	slots    int // variables
	states   sync.Pool
}

// Compile checks an expression and prepares it. Its errors are one line: line and column, what is wrong, and where it helps what to write
// instead.
func Compile(source string) (*Program, error) {
	p, err := compile(source, nil)
	if err != nil {
		return nil, err
	}
	if err := p.condition(); err != nil {
		return nil, err
	}
	return p, nil
}

// condition says what is wrong with an expression that can never be true or false.
func (p *Program) condition() error {
	if !p.root.kinds.has(kindBool) {
		return &CompileError{Line: 1, Column: 1, Message: "the expression yields " + p.root.kinds.String() + "; it must yield true or false"}
	}
	return nil
}

// UsesBody says whether the expression mentions the body anywhere.
func (p *Program) UsesBody() bool { return p.usesBody }

// Eval says whether the expression holds. An error means that this push cannot answer that; its text begins with "cannot be evaluated: " and is
// made of the expression's names and of types, never of anything that the push contains. The same input always gives the same answer.
func (p *Program) Eval(in Input) (bool, error) {
	s := p.begin(in)
	defer p.end(s)
	holds, err := p.root.boolean(s)
	if err != nil {
		return false, err
	}
	return holds, nil
}

func (p *Program) begin(in Input) *state {
	s, ok := p.states.Get().(*state)
	if !ok {
		s = &state{vars: make([]value, p.slots), positions: make([]int, p.slots)}
	}
	s.in = in
	s.work = workBase + workPerByte*len(in.Body)
	return s
}

// end forgets the push before the state is used again.
func (p *Program) end(s *state) {
	clear(s.vars)
	clear(s.members[:cap(s.members)]) // behind its end stand the members of a body that turned out not to be JSON
	*s = state{vars: s.vars, positions: s.positions, members: s.members[:0]}
	p.states.Put(s)
}

// textOf lends b as a string without copying it. Nothing that refers to it outlives Eval, and b does not change meanwhile.
func textOf(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // see above
}
