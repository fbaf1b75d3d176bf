package template

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// Previewed is what a template looks like, in each kind that it has.
type Previewed struct {
	Template  string          `json:"template"`
	Variables json.RawMessage `json:"variables"` // what it was filled in with
	Kinds     []PreviewedKind `json:"kinds"`
}

// PreviewedKind is one of them.
type PreviewedKind struct {
	Kind    string `json:"kind"`
	Locale  string `json:"locale"` // which one was used; "" is the files without one
	Subject string `json:"subject,omitempty"`
	HTML    string `json:"html,omitempty"`
	Text    string `json:"text,omitempty"`
}

// LoadError is what [Load] told.
type LoadError struct{ Problems []Problem }

// Error is all of it, a line each.
func (e *LoadError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Preview shows what a template of the folder comes to with these variables, or without any with samples that its
// schema suggests. Sensitive variables are shown as [Mask], as they are in-app. The error is a *LoadError, a
// *VariablesError, a *RenderError, or says that there is no such template.
func Preview(dir fs.FS, code, locale string, variables json.RawMessage) (Previewed, error) {
	set, problems := Load(dir)
	if len(problems) > 0 {
		own := slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool {
			return p.File != code && !strings.HasPrefix(p.File, code+"/")
		})
		if len(own) > 0 {
			problems = own
		}
		return Previewed{}, &LoadError{problems}
	}
	t, ok := set.Template(code)
	if !ok {
		return Previewed{}, fmt.Errorf("there is no template %s%s", printable(code), didYouMean(code, set.Codes()))
	}
	if len(variables) == 0 {
		variables = t.Sample()
	}
	values, err := t.Check(variables)
	if err != nil {
		return Previewed{}, err
	}
	p := Previewed{Template: code, Variables: values.Plain()}
	for _, kind := range t.Kinds() {
		v, _ := t.Version(kind, locale)
		c, err := Compile(v)
		if err != nil {
			return Previewed{}, err
		}
		r, err := c.Render(Values{full: values.masked, masked: values.masked})
		if err != nil {
			return Previewed{}, err
		}
		p.Kinds = append(p.Kinds, PreviewedKind{kind, v.Locale, r.Subject, r.HTML, r.Text})
	}
	return p, nil
}

// Sample makes up variables: the schema's first example, its default or constant, otherwise something of the type.
func (t *Template) Sample() json.RawMessage {
	return encode(sample(place{t.schema.root}.expand(), "", 0), true)
}

func sample(p place, name string, depth int) any {
	for _, n := range p {
		for _, keyword := range []string{"examples", "enum"} {
			if list, ok := n.raw[keyword].([]any); ok && len(list) > 0 {
				return list[0]
			}
		}
		for _, keyword := range []string{"const", "default"} {
			if v, there := n.raw[keyword]; there {
				return v
			}
		}
	}
	if depth > maxDepth {
		return nil
	}
	kinds := slices.DeleteFunc(p.types(), func(t string) bool { return t == "null" })
	kind := "string"
	switch {
	case len(kinds) > 0:
		kind = kinds[0]
	case len(p.declared()) > 0:
		kind = "object"
	case slices.Equal(p.types(), []string{"null"}):
		return nil
	}
	switch kind {
	case "object":
		m := map[string]any{}
		for _, member := range p.declared() {
			sub, _, _ := p.member(member)
			m[member] = sample(sub, member, depth+1)
		}
		return m
	case "array":
		return sampleList(p, name, depth)
	case "boolean":
		return true
	case "integer", "number":
		return sampleNumber(p)
	}
	return sampleText(p, name)
}

func sampleList(p place, name string, depth int) []any {
	length := 1
	for _, n := range p {
		if least, ok := number(n.raw["minItems"]); ok {
			length = min(max(length, least), 100)
		}
		length = max(length, len(n.prefix))
	}
	list := make([]any, length)
	for i := range list {
		list[i] = sample(p.item(i), name, depth+1)
	}
	return list
}

func sampleNumber(p place) json.Number {
	for _, n := range p {
		for _, keyword := range []string{"minimum", "maximum", "multipleOf"} {
			if bound, ok := n.raw[keyword].(json.Number); ok {
				return bound
			}
		}
		if bound, ok := number(n.raw["exclusiveMinimum"]); ok {
			return json.Number(strconv.Itoa(bound + 1))
		}
	}
	return "1"
}

var sampleOf = map[string]string{
	"date-time": "2026-01-31T09:30:00Z", "date": "2026-01-31", "time": "09:30:00Z", "duration": "PT15M",
	"email": "someone@example.com", "hostname": "host.example.com", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1",
	"uri": "https://example.com/", "uri-reference": "/path", "iri": "https://example.com/", "iri-reference": "/path",
	"uri-template": "https://example.com/{id}", "uuid": "0190f5c8-0000-7000-8000-000000000000", "json-pointer": "/name",
	"relative-json-pointer": "0", "semver": "1.0.0", "period": "2026-01-31T09:30:00Z/PT15M",
}

func sampleText(p place, name string) string {
	text := name
	for _, n := range p {
		if format, ok := n.raw["format"].(string); ok {
			return sampleOf[format]
		}
		if least, ok := number(n.raw["minLength"]); ok && least > len(text) {
			text += strings.Repeat("x", min(least, 10_000)-len(text))
		}
		if most, ok := number(n.raw["maxLength"]); ok && most >= 0 && most < len(text) {
			text = text[:most]
		}
	}
	return text
}
