package expression

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// The body is validated once and never decoded as a whole: a value is a piece of its text, and only what the expression reaches is read.
// For 1 KiB that is a tenth of what a decode into maps costs, and it needs no memory, however the body is built. What is accepted, and what
// a string means, is what encoding/json says; the differential fuzz target holds the two together.

// maxDepth is how deep a body may nest before it counts as not JSON; the bound of encoding/json.
const maxDepth = 10_000

// jsonSpace is what may stand between the parts of a JSON text.
const jsonSpace = " \n\t\r"

// member is a member of an object, both parts as they stand in the text.
type member struct{ key, value string }

// maxIndex is how many members of the outermost object are remembered.
const maxIndex = 64

// validJSON says whether s is one JSON value and nothing else. If it is an object of at most maxIndex members, they are returned, appended to index,
// so that nearly every expression finds what it asks for without reading the body a second time; with more of them members is nil.
func validJSON(s string, index []member) (members []member, valid bool) {
	var (
		objects [maxDepth/64 + 1]uint64 // one bit a level: set where it is an object
		depth   int
		outer   member // the member of the outermost object that is being read
		start   int    // of its value
		full    bool   // there were too many members
	)
	i := 0
	for { // a value begins at i
		i = skipSpace(s, i)
		if i >= len(s) {
			return nil, false
		}
		if depth == 1 {
			start = i
		}
		switch c := s[i]; c {
		case '{', '[':
			depth++
			if depth > maxDepth {
				return nil, false
			}
			i = skipSpace(s, i+1)
			if c == '[' {
				objects[depth/64] &^= 1 << (depth % 64)
				if i < len(s) && s[i] == ']' {
					break // closed below
				}
				continue
			}
			objects[depth/64] |= 1 << (depth % 64)
			if i < len(s) && s[i] == '}' {
				break
			}
			key, end := scanKey(s, i)
			if end < 0 {
				return nil, false
			}
			if depth == 1 {
				outer.key = key
			}
			i = end
			continue
		case '"':
			i = scanString(s, i)
		case 't':
			i = scanWord(s, i, "true")
		case 'f':
			i = scanWord(s, i, "false")
		case 'n':
			i = scanWord(s, i, "null")
		default:
			i = scanNumber(s, i)
		}
		if i < 0 {
			return nil, false
		}
		for { // a value has ended at i, or an empty array or object is about to
			if depth == 1 && outer.key != "" {
				outer.value = s[start:i]
				if len(index) == maxIndex {
					index, full = index[:0], true
				}
				index = append(index, outer)
				outer.key = ""
			}
			i = skipSpace(s, i)
			if depth == 0 {
				if full {
					index = nil
				}
				return index, i == len(s)
			}
			if i >= len(s) {
				return nil, false
			}
			object := objects[depth/64]&(1<<(depth%64)) != 0
			c := s[i]
			i++
			if c == ',' {
				if object {
					key, end := scanKey(s, skipSpace(s, i))
					if end < 0 {
						return nil, false
					}
					if depth == 1 {
						outer.key = key
					}
					i = end
				}
				break
			}
			if object && c != '}' || !object && c != ']' {
				return nil, false
			}
			depth--
		}
	}
}

func skipSpace(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\n' || s[i] == '\t' || s[i] == '\r') {
		i++
	}
	return i
}

// scanKey reads a member's name and the colon behind it. Like its siblings it returns where that ended, or -1.
func scanKey(s string, i int) (key string, end int) {
	if i >= len(s) || s[i] != '"' {
		return "", -1
	}
	if end = scanString(s, i); end < 0 {
		return "", -1
	}
	key = s[i:end]
	end = skipSpace(s, end)
	if end >= len(s) || s[end] != ':' {
		return "", -1
	}
	return key, end + 1
}

func scanString(s string, i int) int {
	for i++; i < len(s); i++ {
		c := s[i]
		if c == '"' {
			return i + 1
		}
		if c < ' ' {
			return -1
		}
		if c != '\\' {
			continue
		}
		i++
		if i >= len(s) {
			return -1
		}
		switch s[i] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			if i+4 >= len(s) {
				return -1
			}
			for _, h := range []byte(s[i+1 : i+5]) {
				if (h < '0' || h > '9') && (h|0x20 < 'a' || h|0x20 > 'f') {
					return -1
				}
			}
			i += 4
		default:
			return -1
		}
	}
	return -1
}

func scanWord(s string, i int, word string) int {
	if !strings.HasPrefix(s[i:], word) {
		return -1
	}
	return i + len(word)
}

func scanNumber(s string, i int) int {
	if i < len(s) && s[i] == '-' {
		i++
	}
	switch {
	case i >= len(s):
		return -1
	case s[i] == '0':
		i++
	default:
		if i = scanDigits(s, i); i < 0 {
			return -1
		}
	}
	if i < len(s) && s[i] == '.' {
		if i = scanDigits(s, i+1); i < 0 {
			return -1
		}
	}
	if i < len(s) && s[i]|0x20 == 'e' {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		return scanDigits(s, i)
	}
	return i
}

// scanDigits reads one digit or more.
func scanDigits(s string, i int) int {
	start := i
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// What follows walks a text that validJSON has accepted, and relies on it.

// skipValue returns the end of the value that begins at i.
func skipValue(s string, i int) int {
	switch s[i] {
	case '"':
		end, _ := skipString(s, i)
		return end
	case '{', '[':
		for depth := 0; ; i++ {
			switch s[i] {
			case '"':
				end, _ := skipString(s, i)
				i = end - 1
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return i + 1
				}
			}
		}
	case 't', 'n':
		return i + len("true")
	case 'f':
		return i + len("false")
	}
	return scanNumber(s, i)
}

// skipString returns the end of the string that begins at i, and whether its text is plain: ASCII without an escape.
func skipString(s string, i int) (end int, plain bool) {
	plain = true
	for i++; s[i] != '"'; i++ {
		if s[i] == '\\' {
			plain = false
			i++
		} else if s[i] >= utf8.RuneSelf {
			plain = false
		}
	}
	return i + 1, plain
}

// is says whether the member's name is name, which is valid UTF-8.
func (m member) is(name string) bool {
	if end, plain := skipString(m.key, 0); plain {
		return m.key[1:end-1] == name
	}
	return unquote(m.key) == name
}

// cursor walks the elements of an array or the members of an object.
type cursor struct {
	text   string
	i      int
	member // where it stands; an element has no key
}

// walk begins at an array's or object's text.
func walk(text string) cursor {
	return cursor{text: text, i: 1}
}

// next moves to the next element or member, and says whether there is one.
func (c *cursor) next() bool {
	c.i = skipSpace(c.text, c.i)
	if c.text[c.i] == ',' {
		c.i = skipSpace(c.text, c.i+1)
	}
	if c.i >= len(c.text)-1 {
		return false
	}
	if c.text[0] == '{' {
		end, _ := skipString(c.text, c.i)
		c.key = c.text[c.i:end]
		c.i = skipSpace(c.text, skipSpace(c.text, end)+1)
	}
	end := skipValue(c.text, c.i)
	c.value = c.text[c.i:end]
	c.i = end
	return true
}

// unquote returns what a JSON string means: invalid UTF-8 and lone surrogates become U+FFFD, as in encoding/json.
func unquote(text string) string {
	inner := text[1 : len(text)-1]
	if strings.IndexByte(inner, '\\') < 0 && utf8.ValidString(inner) {
		return inner
	}
	var s string
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return strings.ToValidUTF8(inner, "\uFFFD") // not reached with a validated text
	}
	return s
}
