package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schema is the JSON Schema (2020-12) of a template's variables.
type schema struct {
	text     string // canonical
	root     *node
	compiled *jsonschema.Schema
}

// node is one subschema, as far as more is asked of it than whether a value fits.
type node struct {
	at         string // its place in the schema, a JSON pointer
	properties map[string]*node
	required   []string
	patterns   []pattern
	additional *node // nil: as open says
	open       bool  // members that are not declared may come
	items      *node
	prefix     []*node
	branches   []*node // allOf, anyOf, oneOf, then, else, dependentSchemas
	ref        string
	target     *node // of ref
	types      []string
	sensitive  bool
	raw        map[string]any
	expanded   place // it, and what stands for it or beside it
}

type pattern struct {
	name *regexp.Regexp
	node *node
}

// schemaProblem is something wrong in a schema, at a JSON pointer into it.
type schemaProblem struct{ at, text string }

const schemaURL = "variables.json"

// The keywords that may be used, by what stands behind them. What refers to elsewhere ($id, $anchor, $dynamicRef) and
// what asserts nothing here is not among them.
var (
	holdsSchema  = []string{"additionalProperties", "items", "contains", "propertyNames", "not", "if", "then", "else", "unevaluatedProperties"}
	holdsSchemas = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	holdsNamed   = []string{"properties", "patternProperties", "dependentSchemas", "$defs"}
	holdsValue   = []string{"type", "format", "title", "description", "default", "examples", "enum", "const", "required",
		"minProperties", "maxProperties", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains",
		"minLength", "maxLength", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"dependentRequired", "$ref", "$comment", "deprecated", "sensitive"}
	keywords = slices.Concat(holdsSchema, holdsSchemas, holdsNamed, holdsValue)
	formats  = []string{"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uri-reference",
		"iri", "iri-reference", "uri-template", "uuid", "json-pointer", "relative-json-pointer", "period", "semver"}
)

// seal says of each object with declared properties that nothing else may come, where its author did not say otherwise.
// A branch (of allOf and the like) sees only a part of an object, and is left as it is.
func seal(v any, branch bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return
	}
	_, declares := m["properties"]
	_, says := m["additionalProperties"]
	_, saysToo := m["unevaluatedProperties"]
	combined := false
	for _, keyword := range []string{"allOf", "anyOf", "oneOf", "if", "$ref", "dependentSchemas"} {
		_, there := m[keyword]
		combined = combined || there
	}
	if declares && !says && !saysToo && !branch {
		if combined {
			m["unevaluatedProperties"] = false
		} else {
			m["additionalProperties"] = false
		}
	}
	for _, keyword := range holdsSchema {
		seal(m[keyword], slices.Contains([]string{"not", "if", "then", "else"}, keyword))
	}
	for _, keyword := range holdsSchemas {
		if list, ok := m[keyword].([]any); ok {
			for _, item := range list {
				seal(item, keyword != "prefixItems")
			}
		}
	}
	for _, keyword := range holdsNamed {
		if named, ok := m[keyword].(map[string]any); ok {
			for _, item := range named {
				seal(item, keyword == "dependentSchemas")
			}
		}
	}
}

// newSchema reads a schema that [seal] has sealed, or tells all that is wrong with it.
func newSchema(doc map[string]any) (*schema, []schemaProblem) {
	b := builder{}
	root := b.node("", doc)
	b.resolve()
	if len(b.problems) == 0 && !slices.Equal(root.types, []string{"object"}) {
		b.fail("/type", "the variables are an object; write type: object, or leave it out")
	}
	for _, n := range b.nodes {
		n.expanded = place{n}.expand()
	}
	b.sensitive()
	if len(b.problems) > 0 {
		return nil, slices.Compact(b.problems)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(refuseAll{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, []schemaProblem{{"", "is no JSON Schema"}}
	}
	compiled, err := c.Compile(schemaURL)
	if err != nil {
		return nil, compileProblems(err)
	}
	return &schema{text: string(encode(doc, true)), root: root, compiled: compiled}, nil
}

// parseSchema reads the text of a schema that was loaded before.
func parseSchema(text string) (*schema, error) {
	if text == "" {
		text = `{"type":"object","additionalProperties":false}`
	}
	doc, err := decodeObject([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("the schema: %w", err)
	}
	s, problems := newSchema(doc)
	if len(problems) > 0 {
		return nil, fmt.Errorf("the schema: %s: %s", problems[0].at, problems[0].text)
	}
	return s, nil
}

// refuseAll loads nothing: a schema refers to itself alone.
type refuseAll struct{}

func (refuseAll) Load(string) (any, error) { return nil, errors.New("a schema refers to itself alone") }

// compileProblems takes the library's error apart.
func compileProblems(err error) []schemaProblem {
	var invalid *jsonschema.SchemaValidationError
	var validation *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &validation) {
		var problems []schemaProblem
		leaves(validation, func(e *jsonschema.ValidationError) {
			at := ""
			for _, step := range e.InstanceLocation {
				at = at + "/" + pointerStep.Replace(step)
			}
			problems = append(problems, schemaProblem{at, misfit(e.ErrorKind)})
		})
		return problems
	}
	return []schemaProblem{{"", "is no JSON Schema: " + strings.ReplaceAll(err.Error(), "\n", " ")}}
}

type builder struct {
	nodes    map[string]*node // by place
	problems []schemaProblem
}

func (b *builder) fail(at, format string, args ...any) {
	b.problems = append(b.problems, schemaProblem{at, fmt.Sprintf(format, args...)})
}

func (b *builder) node(at string, v any) *node {
	n := &node{at: at}
	if b.nodes == nil {
		b.nodes = map[string]*node{}
	}
	b.nodes[at] = n
	m, ok := v.(map[string]any)
	if !ok {
		if open, isBool := v.(bool); isBool {
			n.open = open
		} else {
			b.fail(at, "a schema is written as keywords, as in {type: string}")
		}
		return n
	}
	n.raw, n.open = m, true
	for _, keyword := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(keywords, keyword) {
			b.fail(at+"/"+pointerStep.Replace(keyword), "unknown keyword %s%s", printable(keyword), didYouMean(keyword, keywords))
		}
	}
	n.types = texts(m["type"])
	n.required = texts(m["required"])
	n.sensitive = b.flag(at, m, "sensitive")
	if format, there := m["format"]; there {
		if name, _ := format.(string); !slices.Contains(formats, name) {
			b.fail(at+"/format", "unknown format%s", didYouMean(name, formats))
		}
	}
	if ref, there := m["$ref"]; there {
		n.ref, _ = ref.(string)
		if !strings.HasPrefix(n.ref, "#/") {
			b.fail(at+"/$ref", "refers to elsewhere; write it as #/$defs/NAME, and NAME under $defs")
		}
	}
	b.members(n)
	return n
}

// members reads what is below a schema.
func (b *builder) members(n *node) {
	m := n.raw
	for _, keyword := range holdsSchema {
		v, there := m[keyword]
		if !there {
			continue
		}
		sub := b.node(n.at+"/"+keyword, v)
		switch keyword {
		case "additionalProperties", "unevaluatedProperties":
			n.additional, n.open = sub, sub.open
		case "items":
			n.items = sub
		case "then", "else":
			n.branches = append(n.branches, sub)
		}
	}
	for _, keyword := range holdsSchemas {
		list, _ := m[keyword].([]any)
		for i, v := range list {
			sub := b.node(n.at+"/"+keyword+"/"+strconv.Itoa(i), v)
			if keyword == "prefixItems" {
				n.prefix = append(n.prefix, sub)
			} else {
				n.branches = append(n.branches, sub)
			}
		}
	}
	for _, keyword := range holdsNamed {
		named, _ := m[keyword].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(named)) {
			sub := b.node(n.at+"/"+keyword+"/"+pointerStep.Replace(name), named[name])
			switch keyword {
			case "properties":
				if n.properties == nil {
					n.properties = map[string]*node{}
				}
				n.properties[name] = sub
			case "patternProperties":
				expression, err := regexp.Compile(name)
				if err != nil {
					b.fail(n.at+"/patternProperties", "%s is no regular expression of Go's", printable(name))
					continue
				}
				n.patterns = append(n.patterns, pattern{expression, sub})
			case "dependentSchemas":
				n.branches = append(n.branches, sub)
			}
		}
	}
	for _, name := range n.required {
		if _, declared := n.properties[name]; !declared && n.properties != nil && n.raw["additionalProperties"] == false {
			b.fail(n.at+"/required", "%s is required and not declared%s", printable(name), didYouMean(name, slices.Sorted(maps.Keys(n.properties))))
		}
	}
}

func (b *builder) flag(at string, m map[string]any, keyword string) bool {
	v, there := m[keyword]
	if !there {
		return false
	}
	set, ok := v.(bool)
	if !ok {
		b.fail(at+"/"+keyword, "%s is true or false", keyword)
	}
	return set
}

// sensitive looks after subschemas that ask for secrecy: it must be clear what is masked, and what is not.
func (b *builder) sensitive() {
	for _, at := range slices.Sorted(maps.Keys(b.nodes)) {
		n := b.nodes[at]
		switch {
		case !n.sensitive:
		case len(n.types) == 0:
			b.fail(at+"/sensitive", "needs the type of what is sensitive; write type: string, or another")
		case slices.Contains(n.types, "object") && !(place{n}).closed():
			b.fail(at+"/sensitive", "needs properties, and no others beside them: the names of an object's members are shown; declare them, or take a list of objects with a name and a value")
		}
		for _, keyword := range []string{"contains", "propertyNames", "not", "if"} {
			if _, there := n.raw[keyword]; !there {
				continue
			}
			for below, sub := range b.nodes {
				if sub.sensitive && (below == at+"/"+keyword || strings.HasPrefix(below, at+"/"+keyword+"/")) {
					b.fail(below+"/sensitive", "has no effect below %s; write it where the property is declared", keyword)
				}
			}
		}
	}
}

// resolve finds what each $ref names.
func (b *builder) resolve() {
	for _, at := range slices.Sorted(maps.Keys(b.nodes)) {
		n := b.nodes[at]
		if n.ref == "" || !strings.HasPrefix(n.ref, "#/") {
			continue
		}
		if n.target = b.nodes[n.ref[1:]]; n.target == nil {
			b.fail(n.at+"/$ref", "%s is not there; write it under $defs", printable(n.ref))
		}
	}
}

// texts returns the texts of a list, or the one text.
func texts(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var all []string
		for _, item := range v {
			if s, ok := item.(string); ok {
				all = append(all, s)
			}
		}
		return all
	}
	return nil
}

// place is all that the schema says of one spot of the variables: several subschemas may speak of it. An empty place
// is one of which nothing is known.
type place []*node

// expand returns the subschemas and all those that stand for them or beside them.
func (p place) expand() place {
	if len(p) == 1 && p[0].expanded != nil {
		return p[0].expanded
	}
	var all place
	seen := map[*node]bool{}
	var add func(*node)
	add = func(n *node) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		all = append(all, n)
		add(n.target)
		for _, branch := range n.branches {
			add(branch)
		}
	}
	for _, n := range p {
		add(n)
	}
	return all
}

// member returns what is said of the member of that name, whether it is declared, and whether it may be there at all.
func (p place) member(name string) (below place, declared, possible bool) {
	closed := false
	for _, n := range p {
		found := false
		if sub := n.properties[name]; sub != nil {
			below, declared, found = append(below, sub), true, true
		}
		for _, pattern := range n.patterns {
			if pattern.name.MatchString(name) {
				below, declared, found = append(below, pattern.node), true, true
			}
		}
		switch {
		case found:
		case n.additional != nil && n.additional.open:
			if n.additional.raw != nil {
				below = append(below, n.additional)
			}
		case !n.open:
			closed = true
		}
	}
	return below.expand(), declared, declared || !closed
}

// item returns what is said of an item at that index; -1 is any.
func (p place) item(index int) place {
	var below place
	for _, n := range p {
		if index >= 0 && index < len(n.prefix) {
			below = append(below, n.prefix[index])
			continue
		}
		if index < 0 {
			below = append(below, n.prefix...)
		}
		if n.items != nil {
			below = append(below, n.items)
		}
	}
	return below.expand()
}

// declared returns the names of the members that are declared.
func (p place) declared() []string {
	names := map[string]bool{}
	for _, n := range p {
		for name := range n.properties {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// types returns the JSON types that it may have; none where nothing is said.
func (p place) types() []string {
	var all []string
	for _, n := range p {
		for _, t := range n.types {
			if !slices.Contains(all, t) {
				all = append(all, t)
			}
		}
	}
	return all
}

// closed says whether the members of an object are all known by name.
func (p place) closed() bool {
	return len(p.declared()) > 0 && slices.ContainsFunc(p, func(n *node) bool {
		return !n.open && len(n.patterns) == 0 && (n.additional == nil || n.additional.raw == nil)
	})
}

func (p place) sensitive() bool {
	return slices.ContainsFunc(p, func(n *node) bool { return n.sensitive })
}

// split returns the value with each sensitive leaf masked, and gathers those under their pointers.
func (p place) split(v any, pointer string, sensitive bool, gathered map[string]any) any {
	sensitive = sensitive || p.sensitive()
	switch v := v.(type) {
	case nil:
		return nil
	case map[string]any:
		if sensitive && !p.closed() { // its members' names tell something
			break
		}
		masked := make(map[string]any, len(v))
		for name, member := range v {
			sub, _, _ := p.member(name)
			masked[name] = sub.split(member, pointer+"/"+pointerStep.Replace(name), sensitive, gathered)
		}
		return masked
	case []any:
		masked := make([]any, len(v))
		for i, item := range v {
			masked[i] = p.item(i).split(item, pointer+"/"+strconv.Itoa(i), sensitive, gathered)
		}
		return masked
	}
	if sensitive {
		gathered[pointer] = v
		return Mask
	}
	return v
}

// fill returns the value as a template sees it: what is declared and absent is there, with its default or as nothing.
func (p place) fill(v any) any {
	switch v := v.(type) {
	case map[string]any:
		filled := make(map[string]any, len(v))
		for name, member := range v {
			sub, _, _ := p.member(name)
			filled[name] = sub.fill(member)
		}
		for _, n := range p {
			for name := range n.properties {
				if _, there := filled[name]; there {
					continue
				}
				sub, _, _ := p.member(name)
				filled[name] = nil
				if i := slices.IndexFunc(sub, func(n *node) bool { return n.raw["default"] != nil }); i >= 0 {
					filled[name] = sub.fill(sub[i].raw["default"])
				}
			}
		}
		return filled
	case []any:
		filled := make([]any, len(v))
		for i, item := range v {
			filled[i] = p.item(i).fill(item)
		}
		return filled
	}
	return v
}

// check says whether the value fits, or what does not.
func (s *schema) check(v map[string]any) []VariableProblem {
	err := s.compiled.Validate(v)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return []VariableProblem{{"", "cannot be checked"}}
	}
	return s.explain(invalid, v)
}

// number returns a keyword's value where it is a whole number.
func number(v any) (int, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := strconv.Atoi(string(n))
	return i, err == nil
}
