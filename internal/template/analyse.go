package template

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
)

// role is what a template's output becomes: it decides on escaping, and on what may be in it.
type role int

const (
	roleText role = iota
	roleHeader
	roleHTML
)

// unit is one template text of a version.
type unit struct {
	name string // as errors name it: email.zh-CN.html
	role role
	text string
}

// finding is something about a template's text.
type finding struct {
	line    int // from 1; 0 is all of it
	text    string
	warning bool
}

// analysis is a parsed unit, with what was found in it.
type analysis struct {
	unit     unit
	trees    map[string]*parse.Tree
	findings []finding
	uses     map[string]bool // by the variable's name; true where all of it is used, not only what is below
	// texts are variables that are printed without a check: each must be a text.
	texts map[string]bool
}

// wrong returns the first finding that is no warning.
func (a *analysis) wrong() (finding, bool) {
	i := slices.IndexFunc(a.findings, func(f finding) bool { return !f.warning })
	if i < 0 {
		return finding{}, false
	}
	return a.findings[i], true
}

// spot is what is known of a value that a template names.
type spot struct {
	place    place
	name     string // items/*/name; "" is the root, or of no variable
	known    bool   // otherwise nothing is
	optional bool   // it may be absent or null
}

// maxVisits bounds how often one template text is gone through: once for each other dot that it is called with.
const maxVisits = 2000

type analyser struct {
	*analysis

	called   map[string]bool
	assigned map[string]bool // variables that get another value after their first
	seen     map[string]bool // a called template, with the dot it was called with
	stack    []string
	done     map[parse.Node]bool // rewritten
	visits   int
	// plainRoot: nothing stands for the schema's root, or beside it.
	plainRoot bool
}

// frame is where the analyser stands.
type frame struct {
	root, dot spot
	vars      map[string]spot
	guarded   map[string]bool // names that are known to be there
}

func (f frame) inner() frame {
	f.vars, f.guarded = maps.Clone(f.vars), maps.Clone(f.guarded)
	return f
}

var parseError = regexp.MustCompile(`(?s)^template: [^:]*:(\d+):(?:\d+:)? (.*)$`)

// assignment is how a parsed template writes that a variable gets another value.
var assignment = regexp.MustCompile(`(\$\w+(?:, \$\w+)?) = `)

// analyse parses a template's text, finds what is wrong with it, and rewrites it so that it can be executed: each
// output goes through a check, each loop and each call through a count, and a number that is 0 is no truth.
func analyse(u unit, s *schema) *analysis {
	a := &analyser{
		analysis: &analysis{unit: u, uses: map[string]bool{}, texts: map[string]bool{}},
		called:   map[string]bool{}, seen: map[string]bool{}, done: map[parse.Node]bool{},
	}
	trees, err := parse.Parse(u.name, u.text, "", "", functionNames)
	if err != nil {
		line, text := 1, err.Error()
		if m := parseError.FindStringSubmatch(text); m != nil {
			line, _ = strconv.Atoi(m[1])
			text = m[2]
		}
		if strings.HasPrefix(text, "function ") {
			text += "; there are: " + strings.Join(functionList(), ", ")
		}
		a.fail(line, "is no template: %s", text)
		return a.analysis
	}
	a.trees = trees
	if trees[u.name] == nil { // a text of nothing but definitions
		trees[u.name] = &parse.Tree{Name: u.name, ParseName: u.name, Root: &parse.ListNode{NodeType: parse.NodeList}}
	}
	a.assigned = map[string]bool{}
	for _, t := range trees {
		for _, match := range assignment.FindAllStringSubmatch(t.Root.String(), -1) {
			for name := range strings.SplitSeq(match[1], ", ") {
				a.assigned[name] = true
			}
		}
	}
	root := spot{place: place{s.root}.expand(), known: true}
	a.plainRoot = len(root.place) == 1
	a.tree(u.name, root)
	if u.role == roleHTML && strings.Contains(strings.ToLower(u.text), "<script") {
		a.warn(0, "has a script; programs for mail run none")
	}
	for _, name := range slices.Sorted(maps.Keys(trees)) {
		if name != u.name && !a.called[name] {
			a.warn(a.line(trees[name].Root), "defines %q, and never calls it", name)
		}
	}
	return a.analysis
}

func (a *analyser) fail(line int, format string, args ...any) {
	a.findings = append(a.findings, finding{line: line, text: fmt.Sprintf(format, args...)})
}

func (a *analyser) warn(line int, format string, args ...any) {
	a.findings = append(a.findings, finding{line, fmt.Sprintf(format, args...), true})
}

// line of a node in the text.
func (a *analyser) line(n parse.Node) int {
	at := min(int(n.Position()), len(a.unit.text))
	return 1 + strings.Count(a.unit.text[:at], "\n")
}

// tree goes through a template that is called with that dot.
func (a *analyser) tree(name string, dot spot) {
	if a.visits++; a.visits > maxVisits {
		if a.visits == maxVisits+1 {
			a.fail(0, "calls its templates too often; make it simpler")
		}
		return
	}
	t := a.trees[name]
	dot.optional = false
	a.stack = append(a.stack, name)
	a.list(t.Root, frame{root: dot, dot: dot, vars: map[string]spot{"$": dot}, guarded: map[string]bool{}})
	a.stack = a.stack[:len(a.stack)-1]
	if !a.done[t.Root] && len(a.stack) > 0 { // the text itself is gone through once
		a.done[t.Root] = true
		t.Root.Nodes = slices.Insert(t.Root.Nodes, 0, parse.Node(countStep(t.Root.Pos)))
	}
}

// list goes through nodes; what they declare is known to the ones behind them.
func (a *analyser) list(l *parse.ListNode, f frame) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		a.node(n, f)
	}
}

func (a *analyser) node(n parse.Node, f frame) {
	switch n := n.(type) {
	case *parse.TextNode:
		a.literal(n)
	case *parse.ActionNode:
		result, first := a.pipe(n.Pipe, f)
		if len(n.Pipe.Decl) == 0 {
			a.output(n, result, first, f)
		}
	case *parse.IfNode:
		a.branch(&n.BranchNode, f, false)
	case *parse.WithNode:
		a.branch(&n.BranchNode, f, true)
	case *parse.RangeNode:
		a.loop(n, f)
	case *parse.TemplateNode:
		a.call(n, f)
	}
}

// literal: a header is one line.
func (a *analyser) literal(n *parse.TextNode) {
	if a.unit.role != roleHeader {
		return
	}
	if i := bytes.IndexFunc(n.Text, headerRefuses); i >= 0 {
		line := a.line(n) + bytes.Count(n.Text[:i], []byte("\n"))
		a.fail(line, `has a line break or another control character, and becomes a header, which is one line; join the lines, or write {{- and -}} where an action ends one`)
	}
}

// branch goes through if and with.
func (a *analyser) branch(n *parse.BranchNode, f frame, isWith bool) {
	inside := f.inner()
	subject, _ := a.pipe(n.Pipe, inside)
	for _, name := range a.namesIn(n.Pipe, inside, true) {
		inside.guarded[name] = true
	}
	if !a.done[n.Pipe] && !a.neverZero(n.Pipe, subject) {
		a.done[n.Pipe] = true
		n.Pipe.Cmds = append(n.Pipe.Cmds, call(n.Pipe.Pos, funcTrue))
	}
	outside := f.inner()
	maps.Copy(outside.vars, inside.vars)
	if isWith {
		subject.optional = false
		inside.dot = subject
	}
	a.list(n.List, inside)
	a.list(n.ElseList, outside)
}

func (a *analyser) loop(n *parse.RangeNode, f frame) {
	inside := f.inner()
	decl := n.Pipe.Decl
	n.Pipe.Decl = nil // they are of the items, not of the list
	list, _ := a.pipe(n.Pipe, inside)
	n.Pipe.Decl = decl
	item := spot{}
	if types := list.place.types(); list.known && len(types) > 0 {
		switch {
		case slices.Contains(types, "array"):
			item = spot{place: list.place.item(-1), name: below(list.name, "*"), known: true}
		case slices.Contains(types, "object"):
			a.mark(list, true)
		default:
			a.fail(a.line(n), "%s is %s, and range needs a list", list.name, strings.Join(types, " or "))
		}
	}
	for i, variable := range decl {
		inside.vars[variable.Ident[0]] = spot{}
		if i == len(decl)-1 {
			inside.vars[variable.Ident[0]] = item
		}
	}
	inside.dot = item
	a.list(n.List, inside)
	a.list(n.ElseList, f.inner())
	if !a.done[n] {
		a.done[n] = true
		n.List.Nodes = slices.Insert(n.List.Nodes, 0, parse.Node(countStep(n.List.Pos)))
	}
}

func (a *analyser) call(n *parse.TemplateNode, f frame) {
	var dot spot
	if n.Pipe != nil {
		dot, _ = a.pipe(n.Pipe, f)
	}
	if a.trees[n.Name] == nil {
		a.fail(n.Line, "calls the template %q, which it does not define%s", n.Name, didYouMean(n.Name, slices.Sorted(maps.Keys(a.trees))))
		return
	}
	a.called[n.Name] = true
	if slices.Contains(a.stack, n.Name) {
		a.fail(n.Line, "the template %q calls itself, and would never end", n.Name)
		return
	}
	key := fmt.Sprintf("%s\x00%s\x00%t", n.Name, dot.name, dot.known)
	if a.seen[key] {
		return
	}
	a.seen[key] = true
	a.tree(n.Name, dot)
}

// output checks what is printed, and has it checked again when it is.
func (a *analyser) output(n *parse.ActionNode, result spot, first string, f frame) {
	a.mark(result, true)
	if types := result.place.types(); result.known && len(types) > 0 && !slices.ContainsFunc(types, isScalarType) {
		a.fail(n.Line, "prints %s, which is %s; print its parts, or write {{json .%s}}", nameOf(result), strings.Join(types, " or "), result.name)
	}
	a.present(n.Line, result, f)
	if a.done[n] {
		return
	}
	a.done[n] = true
	name := result.name
	if name == "" {
		name = first
	}
	check := funcOut
	switch {
	case a.unit.role == roleHeader:
		check = funcHead
	case a.isText(result):
		a.texts[result.name] = true
		return
	}
	n.Pipe.Cmds = append(n.Pipe.Cmds, call(n.Pos, check, name))
}

// isText says whether what is printed is a text whenever the variables are sound: calls of functions are what
// rendering takes its time for. Where a template that is called prints it, its dot may be another one each time.
func (a *analyser) isText(s spot) bool {
	return a.always(s) && !s.optional && s.place[0].types[0] == "string"
}

// always says whether the one type that the schema gives to a variable is what it has whenever it is there.
func (a *analyser) always(s spot) bool {
	return s.known && a.plainRoot && len(a.stack) == 1 && s.name != "" && !strings.Contains(s.name, "/") &&
		len(s.place) == 1 && len(s.place[0].types) == 1
}

// isTruth are functions that return true or false.
var isTruth = map[string]bool{"eq": true, "ne": true, "lt": true, "le": true, "gt": true, "ge": true, "not": true}

// neverZero says whether what a condition comes to is no number.
func (a *analyser) neverZero(p *parse.PipeNode, result spot) bool {
	if function, ok := p.Cmds[len(p.Cmds)-1].Args[0].(*parse.IdentifierNode); ok {
		return isTruth[function.Ident]
	}
	return a.always(result) && result.place[0].types[0] != "number" && result.place[0].types[0] != "integer"
}

// present warns of a variable that need not be there and is taken for granted.
func (a *analyser) present(line int, s spot, f frame) {
	if s.known && s.optional && s.name != "" && !f.guarded[s.name] {
		a.warn(line, `%s need not be there, and without it nothing can be sent; write {{with .%s}}…{{end}} or {{default "…" .%s}}, or require it`,
			s.name, s.name, s.name)
	}
}

func nameOf(s spot) string {
	if s.name == "" {
		return "all variables"
	}
	return s.name
}

func isScalarType(t string) bool { return t != "object" && t != "array" }

// pipe goes through a pipeline: what it comes to, and the first variable in it.
func (a *analyser) pipe(p *parse.PipeNode, f frame) (result spot, first string) {
	for i, c := range p.Cmds {
		var final *spot
		if i > 0 {
			previous := result
			final = &previous
		}
		result = a.command(c, f, final)
		if i == 0 {
			if names := a.namesIn(p, f, false); len(names) > 0 {
				first = names[0]
			}
		}
	}
	a.mark(result, false)
	for _, variable := range p.Decl {
		if a.assigned[variable.Ident[0]] { // which value it has depends on the way taken
			a.mark(result, true)
			result = spot{}
		}
		f.vars[variable.Ident[0]] = result
	}
	return result, first
}

func (a *analyser) command(c *parse.CommandNode, f frame, final *spot) spot {
	head := c.Args[0]
	function, isFunction := head.(*parse.IdentifierNode)
	if !isFunction {
		result := a.argument(head, f)
		if len(c.Args) > 1 || final != nil {
			a.fail(a.line(head), "%s is no function", head)
		}
		return result
	}
	var args []spot
	for i, arg := range c.Args[1:] {
		s := a.argument(arg, f)
		a.mark(s, true)
		if takesText[function.Ident] {
			a.present(a.line(arg), s, f)
		}
		args = append(args, s)
		if isLogic[function.Ident] && !a.done[arg] {
			wrapped := truth(arg)
			a.done[arg], a.done[wrapped] = true, true
			c.Args[i+1] = wrapped
		}
	}
	if final != nil {
		a.mark(*final, true)
		if takesText[function.Ident] {
			a.present(a.line(head), *final, f)
		}
		args = append(args, *final)
	}
	if function.Ident == "index" && len(args) > 0 {
		return a.index(args[0], c.Args[1:])
	}
	return spot{}
}

// index follows a value's members and items by constant keys.
func (a *analyser) index(s spot, args []parse.Node) spot {
	for _, key := range args[min(1, len(args)):] {
		if !s.known {
			return spot{}
		}
		switch key := key.(type) {
		case *parse.StringNode:
			s = a.member(s, key.Text, a.line(key))
		case *parse.NumberNode:
			s = spot{place: s.place.item(int(key.Int64)), name: below(s.name, key.Text), known: true, optional: true}
		default:
			return spot{}
		}
	}
	return s
}

// argument goes through one operand.
func (a *analyser) argument(n parse.Node, f frame) spot {
	switch n := n.(type) {
	case *parse.DotNode:
		return f.dot
	case *parse.FieldNode:
		return a.members(f.dot, n.Ident, n, f)
	case *parse.VariableNode:
		return a.members(f.vars[n.Ident[0]], n.Ident[1:], n, f)
	case *parse.ChainNode:
		return a.members(a.argument(n.Node, f), n.Field, n, f)
	case *parse.PipeNode:
		result, _ := a.pipe(n, f)
		return result
	case *parse.IdentifierNode: // a function without arguments
		return a.command(&parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{n}}, f, nil)
	}
	return spot{}
}

func (a *analyser) members(s spot, names []string, n parse.Node, f frame) spot {
	for _, name := range names {
		if s.optional && f.guarded[s.name] {
			s.optional = false
		}
		s = a.member(s, name, a.line(n))
	}
	return s
}

// member is a member of what is known, or a finding.
func (a *analyser) member(s spot, name string, line int) spot {
	if !s.known {
		return spot{}
	}
	full := below(s.name, name)
	if types := s.place.types(); len(types) > 0 && !slices.Contains(types, "object") {
		a.fail(line, "uses %s, but %s is %s and has no members", full, nameOf(s), strings.Join(types, " or "))
		return spot{}
	}
	p, declared, possible := s.place.member(name)
	if !possible {
		a.fail(line, "uses %s, which variables does not declare%s", full, didYouMean(name, s.place.declared()))
		return spot{}
	}
	required := slices.ContainsFunc(s.place, func(n *node) bool { return slices.Contains(n.required, name) })
	hasDefault := slices.ContainsFunc(p, func(n *node) bool { return n.raw["default"] != nil })
	optional := s.optional || !hasDefault && (!required || slices.Contains(p.types(), "null"))
	s = spot{place: p, name: full, known: declared || len(p) > 0, optional: optional}
	a.mark(s, false)
	return s
}

func (a *analyser) mark(s spot, whole bool) {
	if s.known {
		a.uses[s.name] = a.uses[s.name] || whole
	}
}

// mayBeAbsent are functions that are also true, or not nothing, where their operand is absent.
var mayBeAbsent = map[string]bool{"not": true, "or": true, "ne": true, "default": true}

// isNotNil says whether the command is {{ne .x nil}}.
func isNotNil(c *parse.CommandNode) bool {
	return c.Args[0].String() == "ne" && slices.ContainsFunc(c.Args, func(n parse.Node) bool { return n.Type() == parse.NodeNil })
}

// namesIn returns the variables that a pipeline names, in their order, without saying anything about them; with
// present only those that must be there for it to be true.
func (a *analyser) namesIn(p *parse.PipeNode, f frame, present bool) []string {
	quiet := &analyser{
		analysis: &analysis{unit: a.unit, trees: a.trees, uses: map[string]bool{}},
		called:   map[string]bool{}, seen: map[string]bool{}, done: a.done,
	}
	var names []string
	var collect func(parse.Node)
	collect = func(n parse.Node) {
		switch n := n.(type) {
		case *parse.PipeNode:
			for _, c := range n.Cmds {
				if function, ok := c.Args[0].(*parse.IdentifierNode); ok && present && mayBeAbsent[function.Ident] && !isNotNil(c) {
					continue
				}
				for _, arg := range c.Args {
					collect(arg)
				}
			}
		case *parse.DotNode, *parse.FieldNode, *parse.VariableNode, *parse.ChainNode:
			if s := quiet.argument(n, f.inner()); s.known && s.name != "" {
				names = append(names, s.name)
			}
		}
	}
	collect(p)
	return names
}

// The nodes that a rewritten template has more.

func call(at parse.Pos, function string, args ...string) *parse.CommandNode {
	c := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: at, Args: []parse.Node{parse.NewIdentifier(function).SetPos(at)}}
	for _, arg := range args {
		c.Args = append(c.Args, &parse.StringNode{NodeType: parse.NodeString, Pos: at, Quoted: strconv.Quote(arg), Text: arg})
	}
	return c
}

// truth is the operand as a condition.
func truth(n parse.Node) *parse.PipeNode {
	at := n.Position()
	return &parse.PipeNode{NodeType: parse.NodePipe, Pos: at, Cmds: []*parse.CommandNode{
		{NodeType: parse.NodeCommand, Pos: at, Args: []parse.Node{n}},
		call(at, funcTrue),
	}}
}

// countStep is {{$_ := _step}}: it prints nothing, wherever it stands.
func countStep(at parse.Pos) *parse.ActionNode {
	return &parse.ActionNode{NodeType: parse.NodeAction, Pos: at, Pipe: &parse.PipeNode{
		NodeType: parse.NodePipe, Pos: at,
		Decl: []*parse.VariableNode{{NodeType: parse.NodeVariable, Pos: at, Ident: []string{"$_"}}},
		Cmds: []*parse.CommandNode{call(at, funcStep)},
	}}
}

// headerRefuses says whether a character cannot stand in a header: a control character, but for a tab and for U+0085,
// which is encoded like any other character that is not ASCII.
func headerRefuses(r rune) bool {
	return r < ' ' && r != '\t' || r == 0x7F || r >= 0x80 && r < 0xA0 && r != 0x85
}
