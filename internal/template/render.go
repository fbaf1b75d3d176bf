package template

import (
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	texttemplate "text/template"
	"text/template/parse"

	"github.com/posthouse/posthouse/internal/model"
)

// The kinds of channel that templates are for.
const (
	KindInApp = "in_app"
	KindEmail = "email"
	KindText  = "text"
)

// Bounds of what is rendered, in bytes.
const (
	MaxSubject = 4 << 10 // a subject or a title; longer lines are folded by whoever sends them
	MaxBody    = 1 << 20
)

// Rendered is what a template came to.
type Rendered struct {
	Subject string // email: the subject; in_app: the title; otherwise empty
	HTML    string // email
	Text    string // in_app: Markdown; email: empty where the template has no plain part; text: the text
}

// RenderError says why a template cannot be rendered. It holds no value.
type RenderError struct {
	Template string // its code
	File     string // email.zh-CN.html
	Line     int    // 0 where it is not known
	Near     string // the piece of the template
	Variable string // empty where it is not known, or it is not one variable's fault
	Problem  string
}

// Error is all of it in one line.
func (e *RenderError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "template %s, %s", e.Template, e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ", line %d", e.Line)
	}
	if e.Near != "" {
		fmt.Fprintf(&b, ", at %s", e.Near)
	}
	b.WriteString(": ")
	if e.Variable != "" {
		fmt.Fprintf(&b, "variable %s ", e.Variable)
	}
	b.WriteString(e.Problem)
	return b.String()
}

// Compiled is one version of a template, ready to be rendered, by any number of goroutines at once.
type Compiled struct {
	version model.TemplateVersion
	schema  *schema
	parts   []*part
	pool    sync.Pool // of *instance
}

// part is one text of a version.
type part struct {
	unit  unit
	trees map[string]*parse.Tree
	texts []string     // variables that must be texts
	size  atomic.Int64 // of what it came to last
}

// executor is a template of either library.
type executor interface {
	ExecuteTemplate(w io.Writer, name string, data any) error
}

// instance is a version's templates, with the meter that their functions count on: one rendering at a time.
type instance struct {
	meter     meter
	executors []executor
}

// units returns a version's template texts.
func units(v model.TemplateVersion) ([]unit, error) {
	name := func(rest string) string {
		if v.Locale == "" {
			return v.Kind + rest
		}
		return v.Kind + "." + v.Locale + rest
	}
	switch v.Kind {
	case KindInApp:
		return []unit{{name(" title"), roleHeader, v.Subject}, {name(".md"), roleText, v.Text}}, nil
	case KindEmail:
		all := []unit{{name(".subject.txt"), roleHeader, v.Subject}, {name(".html"), roleHTML, v.HTML}}
		if v.Text != "" {
			all = append(all, unit{name(".txt"), roleText, v.Text})
		}
		return all, nil
	case KindText:
		return []unit{{name(".txt"), roleText, v.Text}}, nil
	}
	return nil, fmt.Errorf("template %s: unknown kind %q", v.Code, v.Kind)
}

// Compile makes a version ready, as it was loaded or as it was stored.
func Compile(v model.TemplateVersion) (*Compiled, error) {
	s, err := parseSchema(v.Schema)
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", v.Code, err)
	}
	texts, err := units(v)
	if err != nil {
		return nil, err
	}
	c := &Compiled{version: v, schema: s}
	for _, u := range texts {
		a := analyse(u, s)
		if f, wrong := a.wrong(); wrong {
			return nil, &RenderError{Template: v.Code, File: u.name, Line: f.line, Problem: f.text}
		}
		c.parts = append(c.parts, &part{unit: u, trees: a.trees, texts: slices.Sorted(maps.Keys(a.texts))})
	}
	first, err := c.instance()
	if err != nil {
		return nil, err
	}
	c.pool.Put(first)
	return c, nil
}

// Version is what it was compiled from.
func (c *Compiled) Version() model.TemplateVersion { return c.version }

// instance makes one more.
func (c *Compiled) instance() (*instance, error) {
	i := &instance{}
	for _, p := range c.parts {
		e, f := p.executor(&i.meter)
		if f != nil {
			return nil, &RenderError{Template: c.version.Code, File: p.unit.name, Line: f.line, Problem: f.text}
		}
		i.executors = append(i.executors, e)
	}
	return i, nil
}

func (p *part) executor(m *meter) (executor, *finding) {
	if p.unit.role != roleHTML {
		t := texttemplate.New(p.unit.name).Funcs(m.functions()).Option("missingkey=error")
		for name, tree := range p.trees {
			if _, err := t.AddParseTree(name, tree.Copy()); err != nil {
				return nil, &finding{text: "is no template"}
			}
		}
		return t, nil
	}
	t := htmltemplate.New(p.unit.name).Funcs(m.functions()).Option("missingkey=error")
	for name, tree := range p.trees {
		if _, err := t.AddParseTree(name, tree.Copy()); err != nil {
			return nil, &finding{text: "is no template"}
		}
	}
	// The first execution finds the contexts for escaping, before it writes.
	err := t.ExecuteTemplate(io.Discard, p.unit.name, map[string]any{})
	if escape, ok := errors.AsType[*htmltemplate.Error](err); ok {
		what, _, _ := strings.Cut(escape.Description, ": {") // the escaper's own state
		return nil, &finding{line: escape.Line, text: "cannot be escaped: " + what + "; close its tags and quotes, and put values into text or quoted attributes"}
	}
	*m = meter{}
	return t, nil
}

// Render fills the template in. In-app, sensitive values are shown as [Mask]. The error is a *RenderError.
func (c *Compiled) Render(values Values) (r Rendered, err error) {
	at := c.parts[0]
	defer func() {
		if p := recover(); p != nil {
			r, err = Rendered{}, &RenderError{Template: c.version.Code, File: at.unit.name, Problem: "a function failed"}
		}
	}()
	i, _ := c.pool.Get().(*instance)
	if i == nil {
		if i, err = c.instance(); err != nil {
			return Rendered{}, err
		}
	}
	i.meter = meter{}
	shown := values.full
	if c.version.Kind == KindInApp {
		shown = values.masked
	}
	data := place{c.schema.root}.expand().fill(orEmpty(shown))
	for n, p := range c.parts {
		at = p
		w := &limited{most: MaxBody}
		if p.unit.role == roleHeader {
			w.most = MaxSubject
		}
		for _, name := range p.texts {
			if _, ok := member(data, name).(string); !ok {
				return Rendered{}, &RenderError{Template: c.version.Code, File: p.unit.name, Variable: name, Problem: "is absent, or no text"}
			}
		}
		w.text.Grow(min(int(p.size.Load()), w.most))
		if err := i.executors[n].ExecuteTemplate(w, p.unit.name, data); err != nil {
			return Rendered{}, c.explain(p, err, w)
		}
		s := w.text.String()
		p.size.Store(int64(len(s)))
		switch {
		case p.unit.role == roleHeader:
			r.Subject = strings.TrimPrefix(s, "\ufeff")
		case p.unit.role == roleHTML:
			if strings.Contains(s, unsafe) && !strings.Contains(p.unit.text, unsafe) && !strings.Contains(string(encode(shown, true)), unsafe) {
				return Rendered{}, &RenderError{Template: c.version.Code, File: p.unit.name, Problem: "a variable that becomes a link or a style is none that is safe, such as a javascript: link"}
			}
			r.HTML = s
		case c.version.Kind == KindInApp:
			r.Text = strings.TrimLeft(s, "\n")
		default:
			r.Text = s
		}
	}
	c.pool.Put(i) // not after an error: what it left behind is not worth finding out
	return r, nil
}

// member is a member of an object; nil where there is none.
func member(object any, name string) any {
	m, _ := object.(map[string]any)
	return m[name]
}

// unsafe is what html/template writes in place of a link or a style that it does not trust.
const unsafe = "ZgotmplZ"

var (
	executionError = regexp.MustCompile(`(?s)^template: [^:]*:(\d+):\d*:? executing .*? at <(.*?)>: (.*)$`)
	missingEntry   = regexp.MustCompile(`no entry for key "(\w+)"|nil pointer evaluating interface \{\}\.(\w+)`)
)

// explain makes an error of ours out of the library's, whose text may hold values.
func (c *Compiled) explain(p *part, err error, w *limited) *RenderError {
	e := &RenderError{Template: c.version.Code, File: p.unit.name, Problem: "it cannot be rendered with these variables"}
	if w.full {
		e.Problem = fmt.Sprintf("it comes to more than %d bytes", w.most)
		return e
	}
	if m := executionError.FindStringSubmatch(err.Error()); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
		if !strings.HasPrefix(m[2], "_") {
			e.Near = m[2]
		}
		if key := missingEntry.FindStringSubmatch(m[3]); key != nil {
			e.Variable, e.Problem = key[1]+key[2], "is missing"
		}
	}
	if value, ok := errors.AsType[*valueError](err); ok {
		e.Variable, e.Problem = value.variable, value.problem
	}
	if _, ok := errors.AsType[runtime.Error](err); ok {
		e.Problem = "a function failed"
	}
	return e
}

// limited takes so many bytes and no more.
type limited struct {
	text strings.Builder
	most int
	full bool
}

var errFull = errors.New("too much")

// Write implements io.Writer.
func (w *limited) Write(p []byte) (int, error) {
	if w.text.Len()+len(p) > w.most {
		w.full = true
		return 0, errFull
	}
	return w.text.Write(p)
}
