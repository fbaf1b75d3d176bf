package config

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// position is a place in the file, both counted from 1.
type position struct{ line, column int }

// decoder fills a Config from a syntax tree and gathers every problem on the way. After it, the checks of pairs ask it
// where a key stands and whether its value can be trusted.
type decoder struct {
	params   ParseParams
	errors   []Problem
	warnings []Problem
	at       map[string]position // where each key that was written stands
	failed   map[string]bool     // keys whose value is not to be gone by
	read     map[string]text     // each scalar that was written
	aliases  map[*ast.AliasNode]ast.Node
	merges   int // how many << have been followed
}

// written tells whether the file holds the key.
func (d *decoder) written(path string) bool {
	_, found := d.at[path]
	return found
}

// sound tells whether the values of these keys, written or default, can be gone by.
func (d *decoder) sound(paths ...string) bool {
	for _, path := range paths {
		for ; path != ""; path = parent(path) {
			if d.failed[path] {
				return false
			}
		}
	}
	return true
}

// where returns the place of a key, or of the closest key above it that was written.
func (d *decoder) where(path string) position {
	for {
		if at, found := d.at[path]; found {
			return at
		}
		if path == "" {
			return position{1, 1}
		}
		path = parent(path)
	}
}

func parent(path string) string {
	if strings.HasSuffix(path, "]") {
		return path[:strings.LastIndexByte(path, '[')]
	}
	if dot := strings.LastIndexByte(path, '.'); dot >= 0 {
		return path[:dot]
	}
	return ""
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (d *decoder) problem(at position, path, message, fix string) Problem {
	return Problem{File: d.params.File, Line: at.line, Column: at.column, Path: path, Message: message, Fix: fix}
}

// fail reports an error at the key's place and marks its value as not to be gone by.
func (d *decoder) fail(path, message, fix string) {
	d.failAt(d.where(path), path, message, fix)
}

func (d *decoder) failAt(at position, path, message, fix string) {
	d.failed[path] = true
	d.errors = append(d.errors, d.problem(at, path, message, fix))
}

func (d *decoder) warn(path, message, fix string) {
	d.warnings = append(d.warnings, d.problem(d.where(path), path, message, fix))
}

// group fills a struct, which holds its defaults already, from a mapping; nothing at all stands for an empty one.
func (d *decoder) group(path string, node ast.Node, v reflect.Value) {
	keys := keysOf(v.Type())
	entries, ok := d.entries(path, node)
	if !ok {
		d.fail(path, "wants "+kindGroup.wants()+", found "+d.found(node), "write "+names(keys)+" below it")
		return
	}
	for _, e := range entries {
		k := find(keys, e.name)
		if k == nil {
			d.failAt(e.at, join(path, printable(e.name)), "unknown key", suggest(e.name, keys))
			continue
		}
		here := join(path, k.name)
		d.at[here] = e.at
		d.value(here, e.value, k, v.FieldByIndex(k.field.Index))
	}
	for _, k := range keys {
		if here := join(path, k.name); k.required != "" && !d.written(here) && (k.unless == "" || !d.written(join(path, k.unless))) {
			d.failed[here] = true
			d.errors = append(d.errors, d.problem(d.where(path), here, "is missing", k.required))
		}
	}
}

// value fills one field from what stands behind its key.
func (d *decoder) value(path string, node ast.Node, k *key, v reflect.Value) {
	switch {
	case k.kind == kindTable:
		d.table(path, node, k, v)
	case k.list:
		d.items(path, node, k, v)
	case k.texts:
		d.texts(path, node, k, v)
	case k.kind == kindGroup && k.short != "" && isScalar(d.resolve(node)):
		short := find(keysOf(k.elem), k.short)
		d.scalar(path, d.resolve(node), short, v.FieldByIndex(short.field.Index))
	case k.kind == kindGroup && k.required != "" && isNull(d.resolve(node)):
		d.fail(path, "is empty", k.required)
	case k.kind == kindGroup:
		if v.Kind() == reflect.Pointer {
			v.Set(reflect.New(k.elem))
			v = v.Elem()
			setDefaults(v)
		}
		d.group(path, node, v)
	default:
		d.scalar(path, d.resolve(node), k, v)
	}
}

// sourceName is what a source may be called: it is one segment of a URL's path.
var sourceName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// table fills a map of structs whose keys the user chooses.
func (d *decoder) table(path string, node ast.Node, k *key, v reflect.Value) {
	entries, ok := d.entries(path, node)
	if !ok {
		d.fail(path, "wants "+kindTable.wants()+", found "+d.found(node), k.required)
		return
	}
	if len(entries) == 0 && k.required != "" {
		d.fail(path, "is empty", k.required)
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range entries {
		here := join(path, printable(e.name))
		d.at[here] = e.at
		if !sourceName.MatchString(e.name) {
			d.fail(here, "is not a name that a URL's path can end with",
				"use a to z, 0 to 9, _ and -, beginning with a letter or digit, at most 63 of them")
		}
		one := reflect.New(k.elem).Elem()
		setDefaults(one)
		d.group(here, e.value, one)
		v.SetMapIndex(reflect.ValueOf(e.name), one)
	}
}

// texts fills a map of scalars whose keys the user chooses.
func (d *decoder) texts(path string, node ast.Node, k *key, v reflect.Value) {
	entries, ok := d.entries(path, node)
	if !ok {
		d.fail(path, "wants "+k.wants()+", found "+d.found(node), "write {name: value}")
		return
	}
	if n := len(entries); n < k.minItems || n > k.maxItems {
		d.fail(path, "has "+strconv.Itoa(n)+" entries", "write "+strconv.Itoa(k.minItems)+" to "+strconv.Itoa(k.maxItems))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range entries {
		here := join(path, printable(e.name))
		d.at[here] = e.at
		if c := nameChecks[k.names](e.name); c.message != "" {
			d.fail(here, c.message, c.fix)
		}
		one := *k
		one.texts = false
		if k.names == "header" && isCredential(e.name) {
			one.check = "credential"
		}
		value := reflect.New(v.Type().Elem()).Elem()
		d.scalar(here, d.resolve(e.value), &one, value)
		v.SetMapIndex(reflect.ValueOf(e.name), value)
	}
}

// items fills a list, of scalars or of groups.
func (d *decoder) items(path string, node ast.Node, k *key, v reflect.Value) {
	sequence, ok := d.resolve(node).(*ast.SequenceNode)
	if !ok {
		d.fail(path, "wants "+k.wants()+", found "+d.found(node), "write [first, second]")
		return
	}
	if n := len(sequence.Values); n < k.minItems || n > k.maxItems {
		d.fail(path, "has "+strconv.Itoa(n)+" entries", "write "+strconv.Itoa(k.minItems)+" to "+strconv.Itoa(k.maxItems))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(sequence.Values), len(sequence.Values)))
	one := *k
	one.list = false
	for i, item := range sequence.Values {
		here := path + "[" + strconv.Itoa(i) + "]"
		d.at[here] = place(item)
		before := len(d.errors)
		if k.kind == kindGroup {
			setDefaults(v.Index(i))
			d.group(here, item, v.Index(i))
			continue
		}
		d.scalar(here, d.resolve(item), &one, v.Index(i))
		d.failed[path] = d.failed[path] || len(d.errors) > before
	}
}

// scalar fills a field from a single value: what it refers to is put in, then it is read as the key's kind has it,
// then its limits are tested.
func (d *decoder) scalar(path string, node ast.Node, k *key, v reflect.Value) {
	raw, isText := scalarText(node)
	if !isScalar(node) || !k.takes(node, isText && strings.Contains(raw, "${")) {
		d.fail(path, "wants "+k.wants()+", found "+d.found(node), k.mend(node))
		return
	}
	t, complaints := text{raw: raw, value: raw}, []complaint(nil)
	if isText && k.kind == kindSecret {
		t, complaints = resolveSecret(raw, d.params.LookupEnv, d.params.ReadFile)
	} else if isText {
		t, complaints = expand(raw, d.params.LookupEnv)
	}
	if (k.check == "store" || k.check == "redis") && hasLiteralPassword(raw) {
		complaints = append(complaints, literalPassword(k.check))
	}
	d.read[path] = t
	for _, c := range complaints {
		d.fail(path, c.message, c.fix)
	}
	if len(complaints) > 0 {
		return
	}
	if err := k.set(v, t.value); err != nil {
		d.fail(path, "wants "+k.wants()+", found other text", "")
		return
	}
	d.limits(path, k, t, v)
}

// limits tests a value that was read: its word, its range, its form.
func (d *decoder) limits(path string, k *key, t text, v reflect.Value) {
	if len(k.oneOf) > 0 {
		if c := k.word(t); c.message != "" {
			d.fail(path, c.message, c.fix)
		}
	}
	if v.CanInt() {
		if message, out := k.outOfRange(v); out {
			d.fail(path, message, "write "+k.limits())
		}
	}
	if sees, isExpression := expressionSees[k.check]; isExpression {
		d.expression(path, t, d.params.compiler(k.check), "it sees "+sees)
		return
	}
	if k.check == "" {
		return
	}
	if c := textChecks[k.check](t); c.message != "" {
		d.fail(path, c.message, c.fix)
	}
}

const (
	pushSees   = "body, body_hash, headers, query, content_type and size"
	answerSees = "status, headers, body and text"
)

// expressionSees says, for each check that is an expression's, what such an expression sees.
var expressionSees = map[string]string{
	"expression":  pushSees,
	"key":         pushSees,
	"value":       pushSees + `; a fixed text stands in quotes of its own, as in '"text"'`,
	"policy":      "biz_type, priority, tags, locale, template and recipient",
	"answer":      answerSees,
	"answervalue": answerSees,
}

// compiler is what the caller compiles the expressions of a check with; nil where they are not tested.
func (p *ParseParams) compiler(check string) func(string) error {
	switch check {
	case "expression":
		return p.CheckExpression
	case "key":
		return p.CheckKey
	case "value":
		return p.CheckValue
	case "policy":
		return p.CheckPolicy
	case "answer":
		return p.CheckAnswer
	default:
		return p.CheckAnswerValue
	}
}

// word tests a text of which only some words are allowed.
func (k *key) word(t text) complaint {
	shown := "the value"
	if !t.outside {
		shown = printable(t.value)
	}
	if slices.Contains(k.oneOf, t.value) {
		return complaint{}
	}
	if near := closest(t.value, k.oneOf); near != "" && !t.outside {
		return complaint{shown + " is not " + k.wants(), "did you mean " + near + "?"}
	}
	return complaint{shown + " is not " + k.wants(), ""}
}

// expression compiles a text by compile, which the caller handed in. The compiler's words are repeated, in one short line, only
// where nothing in the text came from outside the file.
func (d *decoder) expression(path string, t text, compile func(string) error, fix string) {
	if t.value == "" || compile == nil {
		return
	}
	err := compile(t.value)
	if err == nil {
		return
	}
	message := "does not compile"
	if first, _, _ := strings.Cut(err.Error(), "\n"); !t.outside {
		message += ": " + cut(first, 200)
	}
	d.fail(path, message, fix)
}
