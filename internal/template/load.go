package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/posthouse/posthouse/internal/model"
)

// Bounds of the files, in bytes.
const (
	maxSource      = 256 << 10
	maxDescription = 64 << 10 // template.yaml
)

// codePattern is what a template's code, which is its folder's name, looks like.
var codePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,63}$`)

// Set is the templates of a folder. It never changes.
type Set struct {
	templates map[string]*Template
}

// Template is one template: its variables, and its texts by kind and locale.
type Template struct {
	code        string
	description string
	fallback    string // the default locale; "" is the files without one
	schema      *schema
	versions    map[string]map[string]model.TemplateVersion // by kind and locale
}

// Codes returns the templates' codes, sorted.
func (s *Set) Codes() []string { return slices.Sorted(maps.Keys(s.templates)) }

// Template returns the one of that code.
func (s *Set) Template(code string) (*Template, bool) {
	t, ok := s.templates[code]
	return t, ok
}

// Versions returns all versions, by code, kind and locale. Their IDs are 0.
func (s *Set) Versions() []model.TemplateVersion {
	var all []model.TemplateVersion
	for _, code := range s.Codes() {
		t := s.templates[code]
		for _, kind := range t.Kinds() {
			for _, locale := range t.Locales(kind) {
				all = append(all, t.versions[kind][locale])
			}
		}
	}
	return all
}

// Code is the template's code.
func (t *Template) Code() string { return t.code }

// Description is what its author says of it.
func (t *Template) Description() string { return t.description }

// Schema is the JSON Schema of its variables, as its versions have it.
func (t *Template) Schema() json.RawMessage { return json.RawMessage(t.schema.text) }

// Kinds returns the kinds of channel that it has texts for, sorted.
func (t *Template) Kinds() []string { return slices.Sorted(maps.Keys(t.versions)) }

// Locales returns the locales that it has texts in for a kind, sorted; "" is the files without one.
func (t *Template) Locales(kind string) []string { return slices.Sorted(maps.Keys(t.versions[kind])) }

// Version returns the text for a kind of channel in the best locale: fr-CA, otherwise fr, otherwise the template's
// default. Its Locale says which one that is. ok is false where there is no text for the kind.
func (t *Template) Version(kind, locale string) (v model.TemplateVersion, ok bool) {
	for _, locale := range fallbacks(locale) {
		if v, ok := t.versions[kind][locale]; ok {
			return v, true
		}
	}
	v, ok = t.versions[kind][t.fallback]
	return v, ok
}

// Check checks variables against the schema: all that is missing, null, not declared or of another form is in the
// *VariablesError that it returns, by name. Nothing at all counts as no variables.
func (t *Template) Check(variables json.RawMessage) (Values, error) {
	if len(variables) > model.MaxVariables {
		return Values{}, &VariablesError{[]VariableProblem{{"", fmt.Sprintf("are more than %d bytes", model.MaxVariables)}}}
	}
	return t.schema.checked(variables)
}

// Load reads a folder of templates and tells all that is wrong with it. With problems the Set is nil. What only should
// be better is for [Lint] to say.
func Load(fsys fs.FS) (*Set, []Problem) {
	set, problems := load(fsys)
	problems = slices.DeleteFunc(problems, func(p Problem) bool { return p.Warning })
	if len(problems) > 0 {
		return nil, problems
	}
	return set, nil
}

// Lint tells all that is wrong with a folder of templates, and what should be better.
func Lint(fsys fs.FS) []Problem {
	_, problems := load(fsys)
	return problems
}

func load(fsys fs.FS) (*Set, []Problem) {
	l := &loader{fsys: fsys}
	set := &Set{templates: map[string]*Template{}}
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		l.fail(".", 0, "the folder cannot be read: %s", cause(err))
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || isReadme(name) {
			continue
		}
		info, ok := l.stat(name)
		switch {
		case !ok:
		case !info.IsDir():
			l.fail(name, 0, "does not belong here; a template is a folder with a template.yaml in it")
		case !codePattern.MatchString(name):
			l.fail(name, 0, "is no code of a template; name the folder with a-z, 0-9, _, - and ., at most 64 characters")
		default:
			if t, ok := l.template(name); ok {
				set.templates[name] = t
			}
		}
	}
	return set, sortProblems(l.problems)
}

func isReadme(name string) bool { return strings.EqualFold(name, "readme.md") }

type loader struct {
	fsys     fs.FS
	problems []Problem
}

func (l *loader) fail(file string, line int, format string, args ...any) {
	l.problems = append(l.problems, Problem{File: file, Line: line, Text: fmt.Sprintf(format, args...)})
}

func (l *loader) warn(file string, line int, format string, args ...any) {
	l.problems = append(l.problems, Problem{file, line, fmt.Sprintf(format, args...), true})
}

// cause is an error without the path of the machine that it may name.
func cause(err error) string {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return err.Error()
}

// stat follows links, as long as they stay in the folder.
func (l *loader) stat(name string) (fs.FileInfo, bool) {
	if err := l.inside(name); err != nil {
		l.fail(name, 0, "%s", err)
		return nil, false
	}
	info, err := fs.Stat(l.fsys, name)
	if err != nil {
		l.fail(name, 0, "cannot be read: %s", cause(err))
		return nil, false
	}
	return info, true
}

// inside says whether all links on the way to a file lead to somewhere in the folder.
func (l *loader) inside(name string) error {
	left := strings.Split(name, "/")
	at := "."
	for links := 0; len(left) > 0; {
		step := left[0]
		left = left[1:]
		next := path.Join(at, step)
		if !fs.ValidPath(next) {
			return errors.New("is a link that leads out of the folder; put a copy here")
		}
		info, err := fs.Lstat(l.fsys, next)
		if err != nil {
			return fmt.Errorf("cannot be read: %s", cause(err))
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > 10 {
			return errors.New("is a link of too many links; put a copy here")
		}
		target, err := fs.ReadLink(l.fsys, next)
		if err != nil {
			return fmt.Errorf("is a link that cannot be read: %s", cause(err))
		}
		if path.IsAbs(target) || strings.Contains(target, `\`) {
			return errors.New("is a link that leads out of the folder; put a copy here, or make the link relative")
		}
		left = append(strings.Split(path.Clean(target), "/"), left...)
	}
	return nil
}

// read returns a file's text with line ends as \n, without a byte order mark.
func (l *loader) read(file string, most int64) (string, bool) {
	info, ok := l.stat(file)
	switch {
	case !ok:
		return "", false
	case !info.Mode().IsRegular():
		l.fail(file, 0, "is no file")
		return "", false
	case info.Size() > most:
		l.fail(file, 0, "has %d bytes; at most %d can be used", info.Size(), most)
		return "", false
	}
	data, err := fs.ReadFile(l.fsys, file)
	if err != nil {
		l.fail(file, 0, "cannot be read: %s", cause(err))
		return "", false
	}
	text := strings.ReplaceAll(strings.TrimPrefix(string(data), "\ufeff"), "\r\n", "\n")
	switch i := bytes.IndexByte(data, 0); {
	case int64(len(data)) > most:
		l.fail(file, 0, "has more than %d bytes", most)
	case i >= 0:
		l.fail(file, 1+bytes.Count(data[:i], []byte("\n")), "has a NUL byte; save it as UTF-8 text")
	case !utf8.ValidString(text):
		line := 1
		for part := range strings.Lines(text) {
			if !utf8.ValidString(part) {
				break
			}
			line++
		}
		l.fail(file, line, "is not valid UTF-8; save it as UTF-8 text")
	default:
		return text, true
	}
	return "", false
}
