package template

import (
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/posthouse/posthouse/internal/model"
)

// The parts that a text of one kind and locale is made of, as their files' names end.
const (
	partInApp   = "md"
	partSubject = "subject.txt"
	partHTML    = "html"
	partText    = "txt"
)

var partsOf = map[string][]string{KindInApp: {partInApp}, KindEmail: {partSubject, partHTML, partText}, KindText: {partText}}

var fileName = regexp.MustCompile(`^(in_app|email|text)(?:\.([A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{1,8})*))?\.(md|html|subject\.txt|txt)$`)

const (
	descriptionFile = "template.yaml"
	fileNames       = "files are template.yaml, in_app.LOCALE.md, email.LOCALE.subject.txt, email.LOCALE.html, email.LOCALE.txt and text.LOCALE.txt, in the default locale also without .LOCALE"
)

// folder is one template's folder while it is read.
type folder struct {
	*loader

	code     string
	yaml     *reader
	doc      map[string]any
	schema   *schema
	fallback string
	texts    map[string]map[string]map[string]string // kind → locale → part → file
	uses     map[string]map[string]map[string]bool   // kind → locale → top-level variable; see analysis.uses
	used     map[string]bool                         // in any of them, and at any depth
}

// template reads one folder; ok is false where something is wrong with it.
func (l *loader) template(code string) (t *Template, ok bool) {
	before := len(l.problems)
	f := &folder{
		loader: l, code: code, doc: map[string]any{}, used: map[string]bool{},
		texts: map[string]map[string]map[string]string{}, uses: map[string]map[string]map[string]bool{},
	}
	f.files()
	f.describe()
	f.localise()
	t = &Template{code: code, fallback: f.fallback, schema: f.schema, versions: map[string]map[string]model.TemplateVersion{}}
	t.description, _ = f.doc["description"].(string)
	for _, kind := range slices.Sorted(maps.Keys(f.texts)) {
		t.versions[kind] = map[string]model.TemplateVersion{}
		for _, locale := range slices.Sorted(maps.Keys(f.texts[kind])) {
			t.versions[kind][locale] = f.version(kind, locale)
		}
		if len(f.texts[kind][f.fallback]) == 0 {
			f.noDefault(kind)
		}
	}
	wrong := slices.ContainsFunc(l.problems[before:], func(p Problem) bool { return !p.Warning })
	if !wrong {
		f.compare()
	}
	return t, !wrong
}

func (f *folder) path(name string) string { return f.code + "/" + name }

// files sorts out what is in the folder.
func (f *folder) files() {
	entries, err := fs.ReadDir(f.fsys, f.code)
	if err != nil {
		f.fail(f.code, 0, "cannot be read: %s", cause(err))
		return
	}
	described := false
	for _, e := range entries {
		name := e.Name()
		match := fileName.FindStringSubmatch(name)
		switch {
		case strings.HasPrefix(name, ".") || isReadme(name):
			continue
		case name == descriptionFile:
			described = true
			continue
		case len(match) == 0 || !slices.Contains(partsOf[match[1]], match[3]):
			f.fail(f.path(name), 0, "unknown file; %s", fileNames)
			continue
		}
		kind, locale, part := match[1], match[2], match[3]
		if locale != "" {
			normal, ok := normalLocale(locale)
			if !ok {
				f.fail(f.path(name), 0, "%s is no locale; write it as in zh-CN", printable(locale))
				continue
			}
			locale = normal
		}
		f.add(kind, locale, part, name)
	}
	switch {
	case !described:
		f.fail(f.path(descriptionFile), 0, "is missing; write at least variables: {properties: {}}")
	case len(f.texts) == 0:
		f.fail(f.code, 0, "has no texts; %s", fileNames)
	}
}

func (f *folder) add(kind, locale, part, name string) {
	if f.texts[kind] == nil {
		f.texts[kind] = map[string]map[string]string{}
	}
	if f.texts[kind][locale] == nil {
		f.texts[kind][locale] = map[string]string{}
	}
	if other, twice := f.texts[kind][locale][part]; twice {
		f.fail(f.path(name), 0, "is for the same locale as %s; keep one", other)
		return
	}
	f.texts[kind][locale][part] = name
}

// describe reads template.yaml. Whatever it holds, there is a schema afterwards, so that the texts can be read, too.
func (f *folder) describe() {
	f.schema = &schema{root: &node{open: true}}
	file := f.path(descriptionFile)
	f.yaml = &reader{file: file, lines: map[string]int{}}
	if _, err := fs.Lstat(f.fsys, file); err != nil {
		return // told already
	}
	text, ok := f.read(file, maxDescription)
	if !ok {
		return
	}
	f.doc, f.yaml = readYAML(file, []byte(text))
	f.problems = append(f.problems, f.yaml.problems...)
	if len(f.yaml.problems) > 0 {
		f.doc = map[string]any{}
		return
	}
	known := []string{"description", "default_locale", "title", "variables"}
	for _, key := range slices.Sorted(maps.Keys(f.doc)) {
		if !slices.Contains(known, key) {
			hint := didYouMean(key, known)
			if hint == "" {
				hint = "; known keys: " + strings.Join(known, ", ")
			}
			f.fail(file, f.yaml.line("/"+key), "unknown key %s%s", printable(key), hint)
		}
	}
	for _, key := range []string{"description", "default_locale"} {
		if _, isText := f.doc[key].(string); f.doc[key] != nil && !isText {
			f.fail(file, f.yaml.line("/"+key), "%s is no text", key)
		}
	}
	f.variables(file)
}

func (f *folder) variables(file string) {
	doc, ok := f.doc["variables"].(map[string]any)
	if !ok {
		if f.doc["variables"] != nil {
			f.fail(file, f.yaml.line("/variables"), "variables is no JSON Schema; write it as in {required: [title], properties: {title: {type: string}}}")
			return
		}
		doc = map[string]any{}
	}
	if doc["type"] == nil {
		doc["type"] = "object"
	}
	if doc["properties"] == nil {
		doc["properties"] = map[string]any{}
	}
	seal(doc, false)
	s, problems := newSchema(doc)
	for _, p := range problems {
		at := strings.TrimPrefix(p.at, "/")
		if at != "" {
			at += ": "
		}
		f.fail(file, f.yaml.line("/variables"+p.at), "variables: %s%s", at, p.text)
	}
	if s != nil {
		f.schema = s
	}
}

// localise finds the default locale. A file without a locale is for it.
func (f *folder) localise() {
	written, _ := f.doc["default_locale"].(string)
	if written == "" {
		return
	}
	normal, ok := normalLocale(written)
	if !ok {
		f.fail(f.path(descriptionFile), f.yaml.line("/default_locale"), "default_locale: %s is no locale; write it as in zh-CN", printable(written))
		return
	}
	f.fallback = normal
	for kind := range f.texts {
		plain := f.texts[kind][""]
		delete(f.texts[kind], "")
		for _, part := range slices.Sorted(maps.Keys(plain)) {
			f.add(kind, normal, part, plain[part])
		}
	}
}

func (f *folder) noDefault(kind string) {
	if f.fallback != "" {
		f.fail(f.code, 0, "has nothing for %s in %s, its default_locale; add it, for everybody whose locale has none", kind, f.fallback)
		return
	}
	f.fail(f.path(descriptionFile), 0, "names no default_locale, and there is nothing for %s without a locale; write default_locale: %s",
		kind, slices.Sorted(maps.Keys(f.texts[kind]))[0])
}

// version reads one text.
func (f *folder) version(kind, locale string) model.TemplateVersion {
	v := model.TemplateVersion{Code: f.code, Kind: kind, Locale: locale, Schema: f.schema.text}
	texts := map[string]string{}
	for _, part := range partsOf[kind] {
		name, there := f.texts[kind][locale][part]
		if there {
			texts[part], there = f.read(f.path(name), maxSource)
			if !there {
				texts[part] = " " // told already
			}
			continue
		}
		if part == partSubject || part == partHTML {
			f.fail(f.code, 0, "%s is missing; the other parts of this mail are there", f.nameOf(kind, locale, part))
		}
	}
	if kind == KindInApp {
		f.inApp(&v, texts[partInApp])
		return v
	}
	if kind == KindText {
		v.Text = strings.TrimRight(texts[partText], " \t\n")
		f.unit(v, partText, unit{f.texts[kind][locale][partText], roleText, v.Text}, 0)
		return v
	}
	v.Subject = strings.TrimRight(texts[partSubject], " \t\n")
	v.HTML, v.Text = texts[partHTML], texts[partText]
	for part, u := range map[string]unit{
		partSubject: {f.texts[kind][locale][partSubject], roleHeader, v.Subject},
		partHTML:    {f.texts[kind][locale][partHTML], roleHTML, v.HTML},
		partText:    {f.texts[kind][locale][partText], roleText, v.Text},
	} {
		if u.name != "" {
			f.unit(v, part, u, 0)
		}
	}
	return v
}

// nameOf is what a part's file would be called.
func (f *folder) nameOf(kind, locale, part string) string {
	if locale == "" {
		return kind + "." + part
	}
	return kind + "." + locale + "." + part
}

// inApp takes the title from template.yaml, or from the first line where that is a heading.
func (f *folder) inApp(v *model.TemplateVersion, source string) {
	name := f.texts[KindInApp][v.Locale][partInApp]
	v.Text = strings.TrimRight(source, " \t\n")
	if title, at, given := f.title(v.Locale); given {
		v.Subject = strings.TrimSpace(title)
		f.unitIn(*v, f.path(descriptionFile), unit{name + " title", roleHeader, v.Subject}, f.yaml.line(at)-1)
		f.unit(*v, partInApp, unit{name, roleText, v.Text}, 0)
		return
	}
	blank := len(v.Text) - len(strings.TrimLeft(v.Text, " \t\n"))
	line := strings.Count(v.Text[:blank], "\n")
	heading, rest, _ := strings.Cut(v.Text[blank:], "\n")
	title, isHeading := strings.CutPrefix(heading, "# ")
	if !isHeading {
		if strings.TrimSpace(source) != "" || source == "" {
			f.fail(f.path(name), line+1, `has no title; begin with a line "# Title", or write title: in template.yaml`)
		}
		return
	}
	v.Subject = strings.TrimSpace(title)
	v.Text = ""
	if strings.TrimSpace(rest) != "" {
		v.Text = strings.Repeat("\n", line+1) + rest // lines keep their numbers
	}
	f.unit(*v, partInApp, unit{name + " title", roleHeader, v.Subject}, line)
	f.unit(*v, partInApp, unit{name, roleText, v.Text}, 0)
}

// title is what template.yaml says for the locale: one text for all, or one for each.
func (f *folder) title(locale string) (title, at string, given bool) {
	switch t := f.doc["title"].(type) {
	case string:
		return t, "/title", true
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(t)) {
			normal, _ := normalLocale(name)
			text, isText := t[name].(string)
			if isText && normal == locale {
				return text, "/title/" + name, true
			}
		}
	case nil:
	default:
		f.fail(f.path(descriptionFile), f.yaml.line("/title"), "title is no text, nor one for each locale")
	}
	return "", "", false
}

// unit checks one text, and notes what it uses.
func (f *folder) unit(v model.TemplateVersion, part string, u unit, linesBefore int) {
	f.unitIn(v, f.path(f.texts[v.Kind][v.Locale][part]), u, linesBefore)
}

func (f *folder) unitIn(v model.TemplateVersion, file string, u unit, linesBefore int) {
	a := analyse(u, f.schema)
	if _, wrong := a.wrong(); !wrong {
		if _, finding := (&part{unit: u, trees: a.trees}).executor(&meter{}); finding != nil {
			a.findings = append(a.findings, *finding)
		}
	}
	for _, finding := range a.findings {
		line := finding.line
		if line > 0 {
			line += linesBefore
		}
		f.problems = append(f.problems, Problem{file, line, finding.text, finding.warning})
	}
	if f.uses[v.Kind] == nil {
		f.uses[v.Kind] = map[string]map[string]bool{}
	}
	if f.uses[v.Kind][v.Locale] == nil {
		f.uses[v.Kind][v.Locale] = map[string]bool{}
	}
	for name, whole := range a.uses {
		top, _, _ := strings.Cut(name, "/")
		f.uses[v.Kind][v.Locale][top] = true
		f.used[name] = f.used[name] || whole
	}
}

// compare warns of what the texts use otherwise than one another, and of what none of them uses.
func (f *folder) compare() {
	for _, kind := range slices.Sorted(maps.Keys(f.uses)) {
		standard := f.uses[kind][f.fallback]
		for _, locale := range slices.Sorted(maps.Keys(f.uses[kind])) {
			for _, name := range slices.Sorted(maps.Keys(standard)) {
				if name != "" && !f.uses[kind][locale][name] {
					f.warn(f.code, 0, "%s does not use %s, which %s does", label(kind, locale), name, label(kind, f.fallback))
				}
			}
			for _, name := range slices.Sorted(maps.Keys(f.uses[kind][locale])) {
				if name != "" && !standard[name] {
					f.warn(f.code, 0, "%s uses %s, which %s does not", label(kind, locale), name, label(kind, f.fallback))
				}
			}
		}
	}
	f.unused(place{f.schema.root}.expand(), "", 0)
}

func label(kind, locale string) string {
	if locale == "" {
		return kind
	}
	return kind + "." + locale
}

// unused warns of declared variables that no text uses, and goes into those that are used in parts.
func (f *folder) unused(p place, name string, depth int) {
	if whole := f.used[name]; whole || depth > maxDepth {
		return
	}
	for _, member := range p.declared() {
		sub, _, _ := p.member(member)
		full := below(name, member)
		if _, used := f.used[full]; !used {
			at := f.path(descriptionFile)
			line := f.yaml.line("/variables")
			if len(sub) > 0 {
				line = f.yaml.line("/variables" + sub[0].at)
			}
			f.warn(at, line, "%s is declared, and no text uses it", full)
			continue
		}
		f.unused(sub, full, depth+1)
		f.unused(sub.item(-1), below(full, "*"), depth+1)
	}
}
