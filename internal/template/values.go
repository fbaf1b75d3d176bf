package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Mask stands where a sensitive value is not to be shown.
const Mask = "•••"

// Values are a template's variables, checked. The zero Values has none.
type Values struct {
	full      map[string]any // masked where the sensitive ones are not known
	masked    map[string]any
	sensitive map[string]any // by JSON pointer; nil where there are none, or they are not known
}

// Plain returns the variables without the sensitive ones' values: in their place stands [Mask]. Members are sorted and
// white space is gone, numbers are written as they came: 1.10 is printed as 1.10.
func (v Values) Plain() json.RawMessage { return encode(orEmpty(v.masked), true) }

// Sensitive returns the sensitive variables' values, each under its JSON pointer; nil where there are none.
func (v Values) Sensitive() json.RawMessage {
	if len(v.sensitive) == 0 {
		return nil
	}
	return encode(v.sensitive, true)
}

// Canonical returns all of the variables in the one form that is the same for what is equal: members sorted, no white
// space, and 1, 1.0 and 1e0 the same. Numbers stay exact. It holds the sensitive values.
func (v Values) Canonical() json.RawMessage { return encode(orEmpty(v.full), false) }

// Masked returns the variables as they may be shown to everybody: what [Join] makes of [Values.Plain] alone.
func (v Values) Masked() Values { return Values{full: v.masked, masked: v.masked} }

// Strings returns each text and number in it, sensitive ones first, without empty ones, and each once: what must not
// be seen elsewhere. Truth values are left out, since hiding them would hide every "true".
func (v Values) Strings() []string {
	var all []string
	seen := map[string]bool{"": true, Mask: true}
	var add func(any)
	add = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(value)) {
				add(value[name])
			}
		case []any:
			for _, item := range value {
				add(item)
			}
		case string:
			if !seen[value] {
				seen[value] = true
				all = append(all, value)
			}
		case json.Number:
			if !seen[string(value)] {
				seen[string(value)] = true
				all = append(all, string(value))
			}
		}
	}
	add(v.sensitive)
	add(v.full)
	return all
}

// String hides what it holds, so that it can stand in no log.
func (v Values) String() string { return "variables" }

// GoString is String.
func (v Values) GoString() string { return v.String() }

// MarshalJSON gives what may be shown: Plain.
func (v Values) MarshalJSON() ([]byte, error) { return v.Plain(), nil }

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// Join puts together what [Values.Plain] and [Values.Sensitive] took apart. Without sensitive the masked ones stay
// masked. The error names what does not fit, and no value.
func Join(plain, sensitive json.RawMessage) (Values, error) {
	masked, err := decodeObject(plain)
	if err != nil {
		return Values{}, fmt.Errorf("the kept variables: %w", err)
	}
	v := Values{full: masked, masked: masked}
	if len(sensitive) == 0 {
		return v, nil
	}
	if v.sensitive, err = decodeObject(sensitive); err != nil {
		return Values{}, fmt.Errorf("the kept sensitive variables: %w", err)
	}
	v.full = cloneObject(masked)
	for _, pointer := range slices.Sorted(maps.Keys(v.sensitive)) {
		if err := replace(v.full, pointer, v.sensitive[pointer]); err != nil {
			return Values{}, fmt.Errorf("the kept sensitive variables: %q: %w", pointer, err)
		}
	}
	return v, nil
}

func decodeObject(text []byte) (map[string]any, error) {
	if len(text) == 0 {
		return map[string]any{}, nil
	}
	v, err := decode(text)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return map[string]any{}, nil
	case map[string]any:
		return v, nil
	}
	return nil, &textError{"", "is not a JSON object"}
}

// replace puts a value where the pointer leads to a mask.
func replace(root any, pointer string, value any) error {
	steps := unstep(pointer)
	for i, step := range steps {
		last := i == len(steps)-1
		switch at := root.(type) {
		case map[string]any:
			if last {
				if at[step] != Mask {
					return errors.New("nothing masked stands there")
				}
				at[step] = value
			}
			root = at[step]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(at) {
				return errors.New("it leads nowhere")
			}
			if last {
				if at[n] != Mask {
					return errors.New("nothing masked stands there")
				}
				at[n] = value
			}
			root = at[n]
		default:
			return errors.New("it leads nowhere")
		}
	}
	return nil
}

func cloneObject(m map[string]any) map[string]any {
	c := make(map[string]any, len(m))
	for name, member := range m {
		c[name] = clone(member)
	}
	return c
}

// clone copies a value's arrays and objects.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return cloneObject(v)
	case []any:
		c := make([]any, len(v))
		for i, item := range v {
			c[i] = clone(item)
		}
		return c
	}
	return v
}
