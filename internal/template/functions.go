package template

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of one rendering.
const (
	maxSteps = 100_000  // turns of loops and calls of templates
	maxSpent = 16 << 20 // bytes that functions make or go through
)

// The functions that rewriting puts in; no template can name them, since the parser does not know them.
const (
	funcOut  = "_out"
	funcHead = "_head"
	funcTrue = "_true"
	funcStep = "_step"
)

// functionNames is what a template may call, for the parser: what is listed in the package's documentation. The
// others that text/template has print what belongs to Go (printf, print, println), escape on their own (html, js,
// urlquery), call (call), or count bytes (len, slice).
var functionNames = func() map[string]any {
	names := map[string]any{"and": true, "or": true, "not": true}
	for name := range new(meter).functions() {
		if !strings.HasPrefix(name, "_") {
			names[name] = true
		}
	}
	return names
}()

func functionList() []string { return slices.Sorted(maps.Keys(functionNames)) }

var (
	isLogic   = map[string]bool{"and": true, "or": true, "not": true}
	takesText = map[string]bool{"upper": true, "lower": true, "trim": true, "truncate": true, "md": true, "urlencode": true, "date": true, "join": true}
)

// valueError says why a value cannot be printed or used. Its text holds no value.
type valueError struct{ variable, problem string }

func (e *valueError) Error() string { return e.problem }

func refuse(problem string) error { return &valueError{problem: problem} }

// meter is what one rendering has used up, and the functions that count on it.
type meter struct{ steps, spent int }

func (m *meter) spend(n int) error {
	if m.spent += n; m.spent > maxSpent {
		return refuse("makes too much text on its way")
	}
	return nil
}

func (m *meter) functions() map[string]any {
	return map[string]any{
		funcOut: out, funcHead: head, funcTrue: isTrue,
		funcStep: func() (bool, error) {
			if m.steps++; m.steps > maxSteps {
				return false, refuse("takes too many steps")
			}
			return true, nil
		},
		"upper":    m.onText(strings.ToUpper),
		"lower":    m.onText(strings.ToLower),
		"trim":     m.onText(strings.TrimSpace),
		"md":       m.onText(markdown.Replace),
		"truncate": m.truncate, "join": m.join, "json": m.json, "urlencode": m.onText(urlEncode),
		"default": byDefault, "date": date, "len": m.length, "index": index,
		"eq": m.equal,
		"ne": func(a, b any) (bool, error) { same, err := m.equal(a, b); return !same, err },
		"lt": func(a, b any) (bool, error) { return m.ordered(a, b, func(c int) bool { return c < 0 }) },
		"le": func(a, b any) (bool, error) { return m.ordered(a, b, func(c int) bool { return c <= 0 }) },
		"gt": func(a, b any) (bool, error) { return m.ordered(a, b, func(c int) bool { return c > 0 }) },
		"ge": func(a, b any) (bool, error) { return m.ordered(a, b, func(c int) bool { return c >= 0 }) },
	}
}

// out is what is printed of a value: its text, exactly.
func out(variable string, v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", &valueError{variable, "is absent or null"}
	case map[string]any:
		return "", &valueError{variable, "is an object; print its members"}
	case []any:
		return "", &valueError{variable, "is a list; print its items"}
	default:
		if s, ok := text(v); ok {
			return s, nil
		}
		return "", &valueError{variable, "cannot be printed"}
	}
}

// head is out for what becomes a header: one line, without characters that turn the order of what follows.
func head(variable string, v any) (string, error) {
	s, err := out(variable, v)
	if err != nil {
		return "", err
	}
	if strings.ContainsFunc(s, headerRefuses) {
		return "", &valueError{variable, "has a line break or another control character, and becomes a header"}
	}
	return strings.Map(func(r rune) rune {
		if r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 {
			return -1
		}
		return r
	}, s), nil
}

// isTrue makes a condition of a value: a number that is 0 counts as nothing. Go's templates see only its text.
func isTrue(v any) any {
	if n, ok := v.(json.Number); ok {
		if d, ok := parseDecimal(string(n)); ok && d.digits == "" {
			return nil
		}
	}
	return v
}

// text is a scalar's text.
func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return string(v), true
	case bool:
		return strconv.FormatBool(v), true
	case int:
		return strconv.Itoa(v), true
	case float64: // a constant in a template
		return strconv.FormatFloat(v, 'g', -1, 64), true
	}
	return "", false
}

// onText makes a function of one text.
func (m *meter) onText(f func(string) string) func(any) (string, error) {
	return func(v any) (string, error) {
		s, ok := text(v)
		if !ok {
			return "", refuse("needs a text")
		}
		if s == Mask {
			return s, nil
		}
		s = f(s)
		return s, m.spend(len(s))
	}
}

// markdown escapes what Markdown would take for its own.
var markdown = strings.NewReplacer(func() []string {
	var pairs []string
	for _, c := range "\\`*_{}[]()<>#+-.!|~&" {
		pairs = append(pairs, string(c), `\`+string(c))
	}
	return pairs
}()...)

func urlEncode(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

func (m *meter) truncate(most int, v any) (string, error) {
	s, ok := text(v)
	if !ok {
		return "", refuse("needs a text")
	}
	if most < 1 {
		return "", refuse("truncate needs a length of at least 1")
	}
	if err := m.spend(len(s)); err != nil || utf8.RuneCountInString(s) <= most {
		return s, err
	}
	n := 0
	for i := range s {
		if n == most-1 {
			return s[:i] + "…", nil
		}
		n++
	}
	return s, nil
}

func (m *meter) join(separator string, v any) (string, error) {
	list, ok := v.([]any)
	if !ok {
		return "", refuse("join needs a list")
	}
	parts, length := make([]string, len(list)), 0
	for i, item := range list {
		if parts[i], ok = text(item); !ok {
			return "", refuse("join needs a list of texts or numbers")
		}
		length += len(parts[i]) + len(separator)
	}
	if err := m.spend(length); err != nil {
		return "", err
	}
	return strings.Join(parts, separator), nil
}

func (m *meter) json(v any) (string, error) {
	switch n := v.(type) {
	case int, float64:
		s, _ := text(n)
		return s, nil
	}
	s := string(encode(v, true))
	return s, m.spend(len(s))
}

func byDefault(instead, v any) any {
	if v == nil || v == "" {
		return instead
	}
	return v
}

func (m *meter) length(v any) (int, error) {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), m.spend(len(v))
	case []any:
		return len(v), nil
	case map[string]any:
		return len(v), nil
	case nil:
		return 0, nil
	}
	return 0, refuse("len needs a text, a list or an object")
}

func index(v any, keys ...any) (any, error) {
	for _, key := range keys {
		switch at := v.(type) {
		case map[string]any:
			name, ok := key.(string)
			if !ok {
				return nil, refuse("index needs the name of a member")
			}
			v = at[name]
		case []any:
			s, _ := text(key)
			i, err := strconv.Atoi(s)
			if err != nil {
				return nil, refuse("index needs a whole number")
			}
			v = nil
			if i >= 0 && i < len(at) {
				v = at[i]
			}
		default:
			return nil, refuse("index needs a list or an object")
		}
	}
	return v, nil
}

// date writes a point in time: date LAYOUT TIME, or date LAYOUT OFFSET TIME. A layout is Go's, as in "2006-01-02
// 15:04"; an offset is +08:00 or UTC; without it the time's own is kept.
func date(layout string, rest ...any) (string, error) {
	if len(rest) < 1 || len(rest) > 2 {
		return "", refuse(`date needs a layout and a time, as in date "2006-01-02 15:04" .at`)
	}
	s, ok := rest[len(rest)-1].(string)
	if !ok {
		return "", refuse("date needs a text")
	}
	if s == Mask {
		return Mask, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		if t, err = time.Parse(time.DateOnly, s); err != nil {
			return "", refuse("date needs a time as in 2026-01-31T12:00:00Z, or a day as in 2026-01-31")
		}
	}
	if len(rest) == 2 {
		offset, _ := rest[0].(string)
		zone, err := time.Parse("Z07:00", strings.Replace(offset, "UTC", "Z", 1))
		if err != nil {
			return "", refuse("date's offset is UTC, or as in +08:00")
		}
		t = t.In(zone.Location())
	}
	return t.Format(layout), nil
}

// equal compares numbers by value and everything else by its text; the first with each of the others.
func (m *meter) equal(a any, others ...any) (bool, error) {
	for _, b := range others {
		if alike, c := compare(a, b); alike && c == 0 {
			return true, nil
		}
		if err := m.spend(sizeOf(a)); err != nil {
			return false, err
		}
	}
	return false, nil
}

// ordered compares two numbers or two texts.
func (m *meter) ordered(a, b any, is func(int) bool) (bool, error) {
	if a == Mask || b == Mask {
		return false, nil
	}
	alike, c := compare(a, b)
	if _, aBool := a.(bool); !alike || aBool {
		return false, refuse("compares two that have no order: it needs two numbers, or two texts")
	}
	return is(c), m.spend(sizeOf(a))
}

func sizeOf(v any) int {
	if s, ok := v.(string); ok {
		return len(s)
	}
	return 0
}

// compare says whether two values are of one kind, and which is less.
func compare(a, b any) (alike bool, c int) {
	if x, ok := decimalOf(a); ok {
		y, ok := decimalOf(b)
		return ok, x.compare(y)
	}
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return ok, strings.Compare(a, b)
	case bool:
		b, ok := b.(bool)
		if a == b {
			return ok, 0
		}
		return ok, 1
	case nil:
		return b == nil, 0
	}
	return false, 0
}

func decimalOf(v any) (decimal, bool) {
	switch v.(type) {
	case json.Number, int, float64:
		s, _ := text(v)
		return parseDecimal(s)
	}
	return decimal{}, false
}
