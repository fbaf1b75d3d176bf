package config

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// maxMerges bounds how many << are followed in one file: merges of merges could double at every step.
const maxMerges = 1000

// entry is one key of a mapping and what stands behind it.
type entry struct {
	name  string
	at    position
	value ast.Node
}

// entries returns a mapping's keys in their order, with what << brings in last, and reports keys that stand twice or
// are no text. Nothing at all counts as an empty mapping; ok is false for anything else.
func (d *decoder) entries(path string, node ast.Node) (entries []entry, ok bool) {
	node = d.resolve(node)
	if isNull(node) {
		return nil, true
	}
	pairs, ok := mapping(node)
	if !ok {
		return nil, false
	}
	first := map[string]position{}
	var merged []ast.Node
	for _, pair := range pairs {
		at := place(pair.Key)
		if pair.Key.IsMergeKey() {
			merged = append(merged, pair.Value)
			continue
		}
		name, isName := keyName(pair.Key)
		if !isName {
			d.failAt(at, path, "a key below it is not plain text", "write it as a word")
			continue
		}
		if before, twice := first[name]; twice {
			d.failAt(at, join(path, printable(name)), "is written twice, first in line "+strconv.Itoa(before.line), "keep one")
			continue
		}
		first[name] = at
		entries = append(entries, entry{name, at, pair.Value})
	}
	for _, source := range merged {
		entries = d.merge(path, entries, first, source)
	}
	return entries, true
}

// merge adds what << names: a mapping, or several of which earlier ones win. A key that is there already stays.
func (d *decoder) merge(path string, entries []entry, have map[string]position, node ast.Node) []entry {
	sources := []ast.Node{node}
	if sequence, ok := d.resolve(node).(*ast.SequenceNode); ok {
		sources = sequence.Values
	}
	for _, source := range sources {
		if d.merges++; d.merges > maxMerges {
			d.failAt(place(source), path, "<< is used too often, or leads back to itself", "write the keys out")
			return entries
		}
		more, ok := d.entries(path, source)
		if !ok {
			d.failAt(place(source), path, "<< wants the alias of a mapping, found "+d.found(source), "write <<: *name")
			continue
		}
		for _, e := range more {
			if _, there := have[e.name]; !there {
				have[e.name] = e.at
				entries = append(entries, e)
			}
		}
	}
	return entries
}

// mapping returns the pairs of a mapping node.
func mapping(node ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	default:
		return nil, false
	}
}

// keyName returns the text of a key.
func keyName(key ast.MapKeyNode) (string, bool) {
	var node ast.Node = key
	if explicit, ok := node.(*ast.MappingKeyNode); ok {
		node = explicit.Value
	}
	if !isScalar(node) {
		return "", false
	}
	name, isText := scalarText(node)
	if !isText {
		name = node.GetToken().Value
	}
	return name, true
}

// resolve follows anchors and aliases to the node that holds the value. An alias that names nothing is nil.
func (d *decoder) resolve(node ast.Node) ast.Node {
	for range 10 {
		switch n := node.(type) {
		case *ast.AnchorNode:
			node = n.Value
		case *ast.AliasNode:
			node = d.aliases[n]
		default:
			return node
		}
	}
	return nil
}

// bindAliases finds for each alias the latest anchor of its name before it, and reports those without one.
func (d *decoder) bindAliases(root ast.Node) {
	ast.Walk(&aliasBinder{decoder: d, anchors: map[string]ast.Node{}}, root)
}

type aliasBinder struct {
	decoder *decoder
	anchors map[string]ast.Node
}

// Visit implements ast.Visitor.
func (b *aliasBinder) Visit(node ast.Node) ast.Visitor {
	switch n := node.(type) {
	case *ast.AnchorNode:
		b.anchors[n.Name.GetToken().Value] = n.Value
	case *ast.AliasNode:
		target, known := b.anchors[n.Value.GetToken().Value]
		if !known {
			b.decoder.failAt(place(n), "", "the alias here names no anchor that stands before it", "write &name before the value that *name repeats")
		}
		b.decoder.aliases[n] = target
	}
	return b
}

func isNull(node ast.Node) bool {
	_, null := node.(*ast.NullNode)
	return node == nil || null
}

func isScalar(node ast.Node) bool {
	switch node.(type) {
	case *ast.StringNode, *ast.LiteralNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return true
	default:
		return false
	}
}

// scalarText returns a scalar as it is written, and whether YAML takes it for text rather than a number or a truth
// value. Of a number that is whole it is the plain decimal form.
func scalarText(node ast.Node) (raw string, isText bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode:
		return strings.TrimPrefix(fmt.Sprint(n.Value), "+"), false
	case *ast.FloatNode, *ast.BoolNode:
		return node.GetToken().Value, false
	default:
		return "", false
	}
}

// takes tells whether a scalar of the node's YAML type can stand for the key. A text that refers to the environment
// can stand for anything: what it expands to decides.
func (k *key) takes(node ast.Node, refers bool) bool {
	switch node.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return refers || k.kind != kindBool && k.kind != kindInt
	case *ast.BoolNode:
		return k.kind == kindBool
	case *ast.IntegerNode:
		return k.kind == kindInt || k.kind == kindSize
	default:
		return false
	}
}

// mend says how to write a value that is of the wrong YAML type.
func (k *key) mend(node ast.Node) string {
	_, isText := scalarText(node)
	switch {
	case isNull(node):
		return "give it a value, or leave the key out"
	case (k.kind == kindText || k.kind == kindSecret) && isScalar(node):
		return "put it in quotes"
	case k.kind == kindDuration && isScalar(node) && !isText:
		return "give it a unit"
	case (k.kind == kindInt || k.kind == kindBool) && isText:
		return "write it without quotes"
	default:
		return ""
	}
}

// found says in words what stands in the file.
func (d *decoder) found(node ast.Node) string {
	switch d.resolve(node).(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode:
		return "a whole number"
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number that is not whole"
	case *ast.BoolNode:
		return "true or false"
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.TagNode:
		return "a YAML tag, of which none is known"
	default:
		return "something else"
	}
}

// place returns where a node begins.
func place(node ast.Node) position {
	return tokenPlace(node.GetToken())
}

func tokenPlace(t *token.Token) position {
	if t == nil || t.Position == nil {
		return position{1, 1}
	}
	return position{max(t.Position.Line, 1), max(t.Position.Column, 1)}
}

// printable makes a word of the file fit for a message: in one line, not long, quoted where it is odd.
func printable(word string) string {
	odd := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.", r)
	}
	short := cut(word, 64)
	if short == "" || strings.ContainsFunc(short, odd) {
		return strconv.Quote(short)
	}
	return short
}

// cut shortens a text to so many bytes, never within a character, and makes one line of it.
func cut(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}
