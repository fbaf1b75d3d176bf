package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of what is read as JSON. They are of the form, so that what reads it further on need not fear it.
const (
	maxDepth    = 32   // arrays and objects inside of one another
	maxDigits   = 400  // characters of a number
	maxExponent = 1000 // of a number, either way: beyond it an exact fraction would need too much memory
)

// textError says what is wrong with a JSON text, and where: never with which value.
type textError struct {
	name    string // the member, as a pointer without its first slash; "" is the whole
	problem string
}

func (e *textError) Error() string {
	if e.name == "" {
		return e.problem
	}
	return e.name + ": " + e.problem
}

// decode reads one JSON value strictly: no member twice, nothing behind it, no broken text, numbers as they are
// written (json.Number). The error is a *textError.
func decode(text []byte) (any, error) {
	if !utf8.Valid(text) {
		return nil, &textError{"", "is not valid UTF-8"}
	}
	if !json.Valid(text) {
		return nil, &textError{"", "is not JSON"}
	}
	if loneSurrogate(text) {
		return nil, &textError{"", `has half a character: a \u escape of a surrogate without its other half`}
	}
	r := jsonReader{text: text}
	return r.value("", 0)
}

// jsonReader takes apart a text that is valid JSON, and UTF-8.
type jsonReader struct {
	text []byte
	at   int
}

// next skips white space, and returns the character behind it, which it leaves
// there.
func (r *jsonReader) next() byte {
	for r.at < len(r.text) {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return c
		}
	}
	return 0 // not reached in valid JSON
}

// took skips white space and the character c where it comes next.
func (r *jsonReader) took(c byte) bool {
	if r.next() != c {
		return false
	}
	r.at++
	return true
}

func (r *jsonReader) value(at string, depth int) (any, error) {
	switch c := r.next(); c {
	case '{', '[':
		if depth == maxDepth {
			return nil, &textError{at, "is nested too deep"}
		}
		r.at++
		if c == '[' {
			return r.list(at, depth)
		}
		return r.object(at, depth)
	case '"':
		s := r.string()
		if strings.IndexByte(s, 0) >= 0 {
			return nil, &textError{at, "has a NUL character"}
		}
		return s, nil
	case 't':
		r.at += len("true")
		return true, nil
	case 'f':
		r.at += len("false")
		return false, nil
	case 'n':
		r.at += len("null")
		return nil, nil
	default:
		from := r.at
		for r.at < len(r.text) && strings.IndexByte("+-.0123456789Ee", r.text[r.at]) >= 0 {
			r.at++
		}
		n := string(r.text[from:r.at])
		if _, ok := parseDecimal(n); !ok {
			return nil, &textError{at, "is a number too long or too large"}
		}
		return json.Number(n), nil
	}
}

func (r *jsonReader) list(at string, depth int) (any, error) {
	list := []any{}
	for !r.took(']') {
		item, err := r.value(below(at, strconv.Itoa(len(list))), depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, item)
		r.took(',')
	}
	return list, nil
}

func (r *jsonReader) object(at string, depth int) (any, error) {
	object := map[string]any{}
	for !r.took('}') {
		r.next()
		name := r.string()
		if _, twice := object[name]; twice {
			return nil, &textError{below(at, name), "stands there twice"}
		}
		r.took(':')
		var err error
		if object[name], err = r.value(below(at, name), depth+1); err != nil {
			return nil, err
		}
		r.took(',')
	}
	return object, nil
}

// string reads the string that begins here.
func (r *jsonReader) string() string {
	from, escaped := r.at, false
	for r.at++; r.at < len(r.text) && r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			escaped = true
			r.at++
		}
	}
	r.at++
	quoted := r.text[from:r.at]
	if !escaped {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil { // not reached in valid JSON
		return ""
	}
	return s
}

// loneSurrogate says whether a \u escape in the text, which is valid JSON, stands for half a character.
func loneSurrogate(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		if text[i] != 'u' {
			continue
		}
		first := hex4(text[i+1:])
		i += 4
		switch {
		case first >= 0xDC00 && first <= 0xDFFF:
			return true
		case first >= 0xD800 && first <= 0xDBFF:
			rest := text[i+1:]
			if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
				return true
			}
			if second := hex4(rest[2:]); second < 0xDC00 || second > 0xDFFF {
				return true
			}
			i += 6
		}
	}
	return false
}

func hex4(text []byte) int {
	n, err := strconv.ParseUint(string(text[:4]), 16, 32)
	if err != nil {
		return 0 // not reached in valid JSON
	}
	return int(n)
}

// below extends a name by one step, as a JSON pointer does.
func below(name, step string) string {
	step = pointerStep.Replace(step)
	if name == "" {
		return step
	}
	return name + "/" + step
}

var pointerStep = strings.NewReplacer("~", "~0", "/", "~1")

// unstep takes a pointer apart.
func unstep(pointer string) []string {
	steps := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, step := range steps {
		steps[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
	}
	return steps
}

// encode writes a value with its members sorted and without white space. exact leaves numbers as they are written;
// otherwise equal ones become the same.
func encode(v any, exact bool) []byte {
	var b bytes.Buffer
	encodeValue(&b, v, exact)
	return b.Bytes()
}

func encodeValue(b *bytes.Buffer, v any, exact bool) {
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			encodeString(b, name)
			b.WriteByte(':')
			encodeValue(b, v[name], exact)
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			encodeValue(b, item, exact)
		}
		b.WriteByte(']')
	case string:
		encodeString(b, v)
	case json.Number:
		if d, ok := parseDecimal(string(v)); ok && !exact {
			b.WriteString(d.String())
			return
		}
		b.WriteString(string(v))
	case bool:
		b.WriteString(strconv.FormatBool(v))
	default:
		b.WriteString("null")
	}
}

func encodeString(b *bytes.Buffer, s string) {
	if !strings.ContainsFunc(s, needsEscape) {
		b.WriteByte('"')
		b.WriteString(s)
		b.WriteByte('"')
		return
	}
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil { // not reached: it is a string
		b.WriteString(`""`)
		return
	}
	b.Truncate(b.Len() - 1) // the newline
}

// needsEscape says whether a character may be written other than as it is.
func needsEscape(r rune) bool {
	return r < ' ' || r == '"' || r == '\\' || r == 0x7F || r == 0x2028 || r == 0x2029 || r == utf8.RuneError
}

// decimal is an exact decimal number: digits × 10^exponent. Digits has no zeros at either end; zero has none at all.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

// parseDecimal reads a number as JSON writes it. It refuses what exceeds the bounds.
func parseDecimal(text string) (d decimal, ok bool) {
	if text == "" || len(text) > maxDigits {
		return decimal{}, false
	}
	text, d.negative = strings.CutPrefix(text, "-")
	mantissa := text
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		e, err := strconv.Atoi(text[i+1:])
		if err != nil || e < -maxExponent || e > maxExponent {
			return decimal{}, false
		}
		mantissa, d.exponent = text[:i], e
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	d.exponent -= len(fraction)
	d.digits = strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(d.digits, "0")
	d.exponent += len(d.digits) - len(trimmed)
	d.digits = trimmed
	if strings.Trim(d.digits, "0123456789") != "" {
		return decimal{}, false
	}
	if d.digits == "" {
		return decimal{}, true // -0 is 0
	}
	return d, true
}

// String is the one form that all equal numbers share.
func (d decimal) String() string {
	if d.digits == "" {
		return "0"
	}
	sign := ""
	if d.negative {
		sign = "-"
	}
	point := len(d.digits) + d.exponent // digits before the point
	switch {
	case d.exponent >= 0 && point <= 40:
		return sign + d.digits + strings.Repeat("0", d.exponent)
	case d.exponent < 0 && point > 0:
		return sign + d.digits[:point] + "." + d.digits[point:]
	case d.exponent < 0 && point > -40:
		return sign + "0." + strings.Repeat("0", -point) + d.digits
	}
	return fmt.Sprintf("%s%se%d", sign, d.digits, d.exponent)
}

// compare is -1, 0 or 1.
func (d decimal) compare(other decimal) int {
	if d.negative != other.negative {
		if d.negative {
			return -1
		}
		return 1
	}
	less := -1
	if d.negative {
		less = 1
	}
	switch {
	case d.digits == "" || other.digits == "":
		if d.digits == other.digits {
			return 0
		}
		if d.digits == "" {
			return less
		}
		return -less
	case len(d.digits)+d.exponent < len(other.digits)+other.exponent:
		return less
	case len(d.digits)+d.exponent > len(other.digits)+other.exponent:
		return -less
	}
	width := max(len(d.digits), len(other.digits))
	return -less * strings.Compare(pad(d.digits, width), pad(other.digits, width))
}

func pad(digits string, width int) string {
	return digits + strings.Repeat("0", width-len(digits))
}
