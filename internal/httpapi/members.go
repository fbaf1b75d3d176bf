package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/posthouse/posthouse/internal/model"
)

// members reads one JSON object of a request, member by member, and gathers what
// is wrong with it. A member that nobody asks for is a fault: a misspelt key must
// not be a key that is ignored. Null counts as absent. Faults name members and
// never repeat a value.
type members struct {
	at     string // where the object stands: "body", "body.recipient"
	values map[string]json.RawMessage
	asked  []string
	broken bool // it is no object, or not well-formed: what is missing then is nobody's fault
	faults *[]ProblemError
}

// readBody reads a request's body, which must be one object.
func readBody(body []byte) (*members, *[]ProblemError) {
	faults := new([]ProblemError)
	if !utf8.Valid(body) {
		*faults = append(*faults, ProblemError{"body", "expected UTF-8"})
		return &members{at: "body", broken: true, faults: faults}, faults
	}
	return readMembers("body", body, faults), faults
}

// readMembers reads an object; what is none is a fault and has no members.
func readMembers(at string, raw []byte, faults *[]ProblemError) *members {
	m := &members{at: at, values: map[string]json.RawMessage{}, faults: faults}
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return m.unread("expected one JSON object")
	}
	for d.More() {
		key, err := d.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return m.unread("expected well-formed JSON")
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return m.unread("expected well-formed JSON")
		}
		if _, twice := m.values[name]; twice {
			m.fault(name, "expected at most once")
		}
		m.values[name] = value
	}
	if _, err := d.Token(); err != nil {
		return m.unread("expected well-formed JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		m.fault("", "expected one JSON object, and nothing after it")
	}
	return m
}

func (m *members) unread(message string) *members {
	m.fault("", message)
	m.broken = true
	return m
}

// maxName is how much of a member's name a fault repeats, in bytes.
const maxName = 64

func (m *members) fault(name, message string) {
	at := m.at
	if name != "" {
		at += "." + cut(name, maxName)
	}
	switch told := len(*m.faults); {
	case told < maxFaults:
		*m.faults = append(*m.faults, ProblemError{at, message})
	case told == maxFaults:
		*m.faults = append(*m.faults, moreFaults)
	}
}

// get returns a member's value; nil where it is absent or null.
func (m *members) get(name string) json.RawMessage {
	m.asked = append(m.asked, name)
	value := m.values[name]
	if string(value) == "null" {
		return nil
	}
	return value
}

// text returns a text; "" where there is none.
func (m *members) text(name string) string {
	value := m.get(name)
	if value == nil {
		return ""
	}
	text, ok := textOfJSON(value)
	if !ok {
		m.fault(name, "expected a text")
	}
	return text
}

// textOfJSON reads a JSON text. One with a lone surrogate is none: two that
// differ would be read as the same.
func textOfJSON(value json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return "", false
	}
	if strings.ContainsRune(text, utf8.RuneError) && !bytes.ContainsRune(value, utf8.RuneError) && !bytes.Contains(bytes.ToLower(value), []byte(`\ufffd`)) {
		return "", false
	}
	return text, true
}

// required is text, which must be there.
func (m *members) required(name string) string {
	text := m.text(name)
	if value := m.values[name]; value == nil || string(value) == "null" || string(value) == `""` {
		m.missing(name)
	}
	return text
}

// missing says that a member must be there.
func (m *members) missing(name string) {
	if !m.broken {
		m.fault(name, "is required")
	}
}

// oneOf is text, which must be one of the words where it is there.
func (m *members) oneOf(name string, words ...string) string {
	text := m.named(name)
	if text != "" && !slices.Contains(words, text) {
		m.fault(name, "expected one of "+strings.Join(words, ", "))
	}
	return text
}

// named is text, which must not be empty where it is there: what a caller had
// nothing to fill in for must not be taken for what he left out.
func (m *members) named(name string) string {
	if string(m.values[name]) == `""` {
		m.fault(name, "expected a text that is not empty; leave it out where it is not meant")
	}
	return m.text(name)
}

// texts returns a list of texts.
func (m *members) texts(name string, limit int) []string {
	value := m.get(name)
	if value == nil {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil {
		m.fault(name, "expected a list of texts")
		return nil
	}
	if len(list) > limit {
		m.fault(name, fmt.Sprintf("expected at most %d", limit))
		return nil
	}
	texts := make([]string, len(list))
	for i, item := range list {
		text, ok := textOfJSON(item)
		if !ok {
			m.fault(fmt.Sprintf("%s[%d]", name, i), "expected a text")
		}
		texts[i] = text
	}
	return texts
}

// time returns a time; the zero one where there is none.
func (m *members) time(name string) time.Time {
	text := m.named(name)
	if text == "" {
		return time.Time{}
	}
	at, ok := parseTime(text)
	if !ok {
		m.fault(name, expectedTime)
	}
	return at
}

const expectedTime = "expected a time such as 2026-11-30T12:00:00Z"

// parseTime reads a time after the first microsecond of 1970, which stands for
// none.
func parseTime(text string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.Year() < 1970 || model.MicrosOf(at) <= 0 {
		return time.Time{}, false
	}
	return at, true
}

// flag returns a boolean; false where there is none.
func (m *members) flag(name string) bool {
	value := m.get(name)
	switch string(value) {
	case "true":
		return true
	case "", "false":
		return false
	}
	m.fault(name, "expected true or false")
	return false
}

// number returns a whole number from low to high; absent where there is none.
func (m *members) number(name string, absent, low, high int) int {
	value := m.get(name)
	if value == nil {
		return absent
	}
	var n int
	if json.Unmarshal(value, &n) != nil || n < low || n > high {
		m.fault(name, fmt.Sprintf("expected a whole number from %d to %d", low, high))
		return absent
	}
	return n
}

// object returns the members of an object; one without any where there is none.
func (m *members) object(name string) *members {
	at := m.at + "." + name
	if value := m.get(name); value != nil {
		return readMembers(at, value, m.faults)
	}
	return &members{at: at, faults: m.faults}
}

// names lists the members that are there.
func (m *members) names() []string { return slices.Sorted(maps.Keys(m.values)) }

const (
	notKnown = "is not known"
	knownAre = "; known are "
)

// end says that no further member is expected. Those that are known are listed
// once.
func (m *members) end() {
	known := slices.Compact(slices.Sorted(slices.Values(m.asked)))
	message := notKnown + knownAre + strings.Join(known, ", ")
	for _, name := range m.names() {
		if !slices.Contains(known, name) {
			m.fault(name, message)
			message = notKnown
		}
	}
}

// reason reads why an operator does something.
func (m *members) reason(required bool) string {
	var reason string
	if required {
		reason = m.required("reason")
	} else {
		reason = m.text("reason")
	}
	if utf8.RuneCountInString(reason) > maxReason || !printable(reason) {
		m.fault("reason", fmt.Sprintf("expected at most %d printable characters", maxReason))
	}
	return reason
}
