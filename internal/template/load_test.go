package template

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAllProblemsAreToldAtOnce: a case is a folder and what is said of it.
func TestAllProblemsAreToldAtOnce(t *testing.T) {
	const names = fileNames
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"an empty folder": {map[string]string{"template.yaml": ""}, []string{"t: has no texts; " + names}},
		"no description":  {map[string]string{"text.txt": "x"}, []string{"t/template.yaml: is missing; write at least variables: {properties: {}}"}},
		"unknown files, keys and places": {
			map[string]string{
				"template.yaml": "descripshun: x\ndefault_locale: en\nfoo: 1\nvariables: {}\n",
				"text.en.txt":   "x", "text.en.md": "x", "sms.txt": "x", "email.en.htm": "x", "in_app.english.md": "# x", "README.md": "x", ".git": "x", "stray.txt/x": "x",
				"README.md/": "x", "Bad Code/template.yaml": "", "file.txt": "x",
			},
			[]string{
				"Bad Code: is no code of a template; name the folder with a-z, 0-9, _, - and ., at most 64 characters",
				"stray.txt/template.yaml: is missing; write at least variables: {properties: {}}",
				"stray.txt/x: unknown file; " + names,
				"t/email.en.htm: unknown file; " + names,
				"t/file.txt: unknown file; " + names,
				"t/in_app.english.md: unknown file; " + names,
				"t/sms.txt: unknown file; " + names,
				"t/template.yaml:1: unknown key descripshun; did you mean description?",
				"t/template.yaml:3: unknown key foo; known keys: description, default_locale, title, variables",
				"t/text.en.md: unknown file; " + names,
			},
		},
		"locales": {
			map[string]string{
				"template.yaml": "default_locale: fr\nvariables: {}\n", "text.en.txt": "x", "text.en-us.txt": "x", "text.EN_us.txt": "x",
				"email.en.html": "x", "email.fr.subject.txt": "x", "in_app.md": "# x", "in_app.fr.md": "# x",
			},
			[]string{
				"t/in_app.md: is for the same locale as in_app.fr.md; keep one",
				"t/text.en-us.txt: is for the same locale as text.EN_us.txt; keep one",
				"t: email.en.subject.txt is missing; the other parts of this mail are there",
				"t: email.fr.html is missing; the other parts of this mail are there",
				"t: has nothing for text in fr, its default_locale; add it, for everybody whose locale has none",
			},
		},
		"no default": {
			map[string]string{"template.yaml": "variables: {}", "text.en.txt": "x"},
			[]string{"t/template.yaml: names no default_locale, and there is nothing for text without a locale; write default_locale: en"},
		},
		"a default that is none": {
			map[string]string{"template.yaml": "default_locale: english\ntitle: 7\ndescription: [x]", "in_app.md": "# x"},
			[]string{"t/template.yaml:1: default_locale: english is no locale; write it as in zh-CN", "t/template.yaml:2: title is no text, nor one for each locale", "t/template.yaml:3: description is no text"},
		},
		"YAML": {
			map[string]string{
				"a/template.yaml": "variables: {\n", "a/text.txt": "x",
				"b/template.yaml": "- x\n", "b/text.txt": "x",
				"c/template.yaml": "x: &a 1\ny: *a\nvariables:\n  properties:\n    n: {type: number, maximum: 0x1F}\n", "c/text.txt": "x",
				"d/template.yaml": "description: a\n---\ndescription: b\n", "d/text.txt": "x",
			},
			[]string{
				"a/template.yaml:1: is no YAML: could not find flow mapping end token '}'",
				"b/template.yaml:1: is no mapping; write keys, as in variables: {…}",
				"c/template.yaml:1: uses a part of YAML that is not read here (Anchor); write the value out",
				"c/template.yaml:2: uses a part of YAML that is not read here (Alias); write the value out",
				"c/template.yaml:5: is no plain number; write it in digits, or quote it if it is a text",
				"d/template.yaml:1: has several documents (---); keep one",
			},
		},
		"the schema": {
			map[string]string{
				"template.yaml": `variables:
  requird: [a]
  required: [titel]
  properties:
    title: {type: text}
    at: {format: datetime}
    n: {type: number, minimum: low}
    secret: {sensitive: yes}
    hidden: {sensitive: true}
    person: {type: object, sensitive: true}
    far: {$ref: "https://example.com/schema"}
    file: {$ref: "file:///etc/passwd"}
    near: {$ref: "#/$defs/nothing"}
    none: 7
    either: {not: {type: string, sensitive: true}}
    pattern: {type: object, patternProperties: {"(": {type: string}}}
`,
				"text.txt": "x {{.title",
			},
			[]string{
				"t/template.yaml:10: variables: properties/person/sensitive: needs properties, and no others beside them: the names of an object's members are shown; declare them, or take a list of objects with a name and a value",
				"t/template.yaml:11: variables: properties/far/$ref: refers to elsewhere; write it as #/$defs/NAME, and NAME under $defs",
				"t/template.yaml:12: variables: properties/file/$ref: refers to elsewhere; write it as #/$defs/NAME, and NAME under $defs",
				"t/template.yaml:13: variables: properties/near/$ref: #/$defs/nothing is not there; write it under $defs",
				"t/template.yaml:14: variables: properties/none: a schema is written as keywords, as in {type: string}",
				"t/template.yaml:15: variables: properties/either/not/sensitive: has no effect below not; write it where the property is declared",
				"t/template.yaml:16: variables: properties/pattern/patternProperties: ( is no regular expression of Go's",
				"t/template.yaml:2: variables: requird: unknown keyword requird; did you mean required?",
				"t/template.yaml:3: variables: required: titel is required and not declared; did you mean title?",
				"t/template.yaml:6: variables: properties/at/format: unknown format; did you mean date-time?",
				"t/template.yaml:8: variables: properties/secret/sensitive: sensitive is true or false",
				"t/template.yaml:9: variables: properties/hidden/sensitive: needs the type of what is sensitive; write type: string, or another",
				"t/text.txt:1: is no template: unclosed action",
			},
		},
		"what only the library knows of a schema": {
			map[string]string{
				"template.yaml": "variables:\n  properties:\n    title: {type: text}\n    n: {type: number, minimum: low}\n    l: {minItems: -1}\n", "text.txt": "x",
			},
			[]string{
				"t/template.yaml:3: variables: properties/title/type: has none of the forms that it may have",
				"t/template.yaml:4: variables: properties/n/minimum: is string, and must be number",
				"t/template.yaml:5: variables: properties/l/minItems: is below 0",
			},
		},
		"templates": {
			map[string]string{
				"template.yaml": "default_locale: en\nvariables:\n  required: [title, user, items, n]\n  properties:\n    title: {type: string}\n    n: {type: number}\n" +
					"    user: {type: object, required: [name], properties: {name: {type: string}}}\n    items: {type: array, items: {type: object, required: [sku], properties: {sku: {type: string}}}}\n",
				"email.en.subject.txt": "Hello\n{{.titel}}\n",
				"email.en.html":        "<p>\n{{.user.nam}}\n{{range .items}}{{.skew}}{{$.title}}{{end}}\n{{with .user}}{{.name}}{{.title}}{{end}}\n<a href=\"{{.title}}\n",
				"email.en.txt":         "{{printf \"%v\" .}}",
				"in_app.en.md":         "\n# T {{.x}}\n\nline\n{{.y}} {{.title.z}} {{.user}} {{range .title}}{{end}}{{range $i, $x := .items}}{{$x.y}}{{end}}\n",
				"text.en.txt":          "{{define \"a\"}}{{template \"b\" .}}{{end}}{{define \"b\"}}{{template \"a\" .}}{{end}}{{template \"a\" .user}}\n{{template \"c\"}}{{index .user \"nme\"}}{{.title 1}}\n{{range .items}}{{template \"d\" .}}{{end}}{{define \"d\"}}{{.nope}}{{end}}",
			},
			[]string{
				"t/email.en.html:2: uses user/nam, which variables does not declare; did you mean name?",
				"t/email.en.html:3: uses items/*/skew, which variables does not declare",
				"t/email.en.html:4: uses user/title, which variables does not declare",
				"t/email.en.subject.txt:1: has a line break or another control character, and becomes a header, which is one line; join the lines, or write {{- and -}} where an action ends one",
				"t/email.en.subject.txt:2: uses titel, which variables does not declare; did you mean title?",
				`t/email.en.txt:1: is no template: function "printf" not defined; there are: and, date, default, eq, ge, gt, index, join, json, le, len, lower, lt, md, ne, not, or, trim, truncate, upper, urlencode`,
				"t/in_app.en.md:2: uses x, which variables does not declare; did you mean n?",
				"t/in_app.en.md:5: prints user, which is object; print its parts, or write {{json .user}}",
				"t/in_app.en.md:5: title is string, and range needs a list",
				"t/in_app.en.md:5: uses items/*/y, which variables does not declare",
				"t/in_app.en.md:5: uses title/z, but title is string and has no members",
				"t/in_app.en.md:5: uses y, which variables does not declare; did you mean n?",
				`t/text.en.txt:1: the template "a" calls itself, and would never end`,
				"t/text.en.txt:2: .title is no function",
				`t/text.en.txt:2: calls the template "c", which it does not define; did you mean a?`,
				"t/text.en.txt:2: uses user/nme, which variables does not declare; did you mean name?",
				"t/text.en.txt:3: uses items/*/nope, which variables does not declare",
			},
		},
		"escaping": {
			map[string]string{
				"template.yaml": "variables: {required: [a], properties: {a: {type: string}}}", "email.subject.txt": "s",
				"email.html": "<p>\n<a href=\"{{.a}}\n",
			},
			[]string{"t/email.html: cannot be escaped: ends in a non-text context; close its tags and quotes, and put values into text or quoted attributes"},
		},
		"titles": {
			map[string]string{
				"template.yaml": "default_locale: en\ntitle:\n  en: \"{{.x}}\"\n", "in_app.en.md": "## no title, and none is needed", "in_app.fr.md": "\n\nno title", "in_app.de.md": "",
			},
			[]string{
				`t/in_app.de.md:1: has no title; begin with a line "# Title", or write title: in template.yaml`,
				`t/in_app.fr.md:3: has no title; begin with a line "# Title", or write title: in template.yaml`,
				"t/template.yaml:3: uses x, which variables does not declare",
			},
		},
		"bytes": {
			map[string]string{
				"template.yaml": "default_locale: en", "text.en.txt": "a\n\x00", "text.fr.txt": "a\nb\xff\n", "text.de.txt": strings.Repeat("x", maxSource+1),
				"text.es.txt": strings.Repeat("x", maxSource),
			},
			[]string{
				"t/text.de.txt: has 262145 bytes; at most 262144 can be used",
				"t/text.en.txt:2: has a NUL byte; save it as UTF-8 text",
				"t/text.fr.txt:2: is not valid UTF-8; save it as UTF-8 text",
			},
		},
	} {
		t.Run("NC-14 "+name, func(t *testing.T) {
			fsys := folderOf(c.files)
			delete(fsys, "README.md/")
			set, problems := Load(fsys)
			if set != nil {
				t.Error("there is a set")
			}
			var got []string
			for _, p := range problems {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(c.want, sorted(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLintSaysWhatShouldBeBetter(t *testing.T) {
	fsys := folderOf(map[string]string{
		"template.yaml": "default_locale: en\nvariables:\n  required: [title, user, ghost]\n  properties:\n    title: {type: string}\n    ghost: {type: string}\n    note: {type: string}\n" +
			"    user:\n      type: object\n      required: [name]\n      properties:\n        name: {type: string}\n        age: {type: number}\n",
		"email.en.subject.txt": "{{.title}}",
		"email.en.html":        "<p>{{.user.name}}</p>\n<p>{{.note}}</p><script></script>",
		"email.fr.subject.txt": "{{with .note}}{{.}}{{end}}{{if .note}}{{upper .note}}{{end}}{{if not .note}}{{.note}}{{end}}",
		"email.fr.html":        "<p>{{.user.name}}</p>{{define \"x\"}}{{end}}",
	})
	set, problems := Load(fsys)
	if set == nil || problems != nil {
		t.Fatal(problems)
	}
	var got []string
	for _, p := range Lint(fsys) {
		got = append(got, p.String())
	}
	const absent = `: warning: note need not be there, and without it nothing can be sent; write {{with .note}}…{{end}} or {{default "…" .note}}, or require it`
	want := []string{
		"t/email.en.html: warning: has a script; programs for mail run none",
		"t/email.en.html:2" + absent,
		`t/email.fr.html:1: warning: defines "x", and never calls it`,
		"t/email.fr.subject.txt:1" + absent,
		"t/template.yaml:13: warning: user/age is declared, and no text uses it",
		"t/template.yaml:6: warning: ghost is declared, and no text uses it",
		"t: warning: email.fr does not use title, which email.en does",
	}
	if diff := cmp.Diff(want, sorted(got)); diff != "" {
		t.Error(diff)
	}
}

func TestVersionsAreInAFixedOrder(t *testing.T) {
	fsys := folderOf(map[string]string{
		"b/template.yaml": "default_locale: en\ndescription: B\n", "b/text.en.txt": "x\r\ny\r\n", "b/in_app.zh_cn.md": "# 你好\n\n正文\n", "b/in_app.md": "\ufeff# Hello\n",
		"a/template.yaml": "title: \" T \"\n", "a/in_app.md": "# body\n", "a/text.txt": "\n x \n",
	})
	set, problems := Load(fsys)
	if set == nil {
		t.Fatal(problems)
	}
	var got []string
	for _, v := range set.Versions() {
		if v.ID != 0 || v.Schema != `{"additionalProperties":false,"properties":{},"type":"object"}` {
			t.Error(v)
		}
		got = append(got, strings.Join([]string{v.Code, v.Kind, v.Locale, v.Subject, v.Text}, "|"))
	}
	want := []string{"a|in_app||T|# body", "a|text|||\n x", "b|in_app|en|Hello|", "b|in_app|zh-CN|你好|\n\n正文", "b|text|en||x\ny"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if tpl, _ := set.Template("b"); tpl.Description() != "B" || tpl.Code() != "b" || len(tpl.Schema()) == 0 {
		t.Error(tpl.Description(), tpl.Code())
	}
	if diff := cmp.Diff([]string{"a", "b"}, set.Codes()); diff != "" {
		t.Error(diff)
	}
}

func TestLinksStayInTheFolder(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret.txt")
	dir := filepath.Join(t.TempDir(), "templates")
	must(t, os.WriteFile(outside, []byte("s3cret"), 0o600))
	must(t, os.MkdirAll(filepath.Join(dir, "..data", "t"), 0o750))
	must(t, os.WriteFile(filepath.Join(dir, "..data", "t", "template.yaml"), []byte("default_locale: en"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "..data", "t", "real.txt"), []byte("x"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "..data", "shared.txt"), []byte("y"), 0o600))
	must(t, os.Symlink(filepath.Join("..data", "t"), filepath.Join(dir, "t")))
	must(t, os.Symlink(filepath.Join("..", "shared.txt"), filepath.Join(dir, "..data", "t", "text.en.txt")))
	must(t, os.Remove(filepath.Join(dir, "..data", "t", "real.txt")))
	tpl := loaded(t, os.DirFS(dir))
	if v, _ := tpl.Version(KindText, "en"); v.Text != "y" {
		t.Errorf("%q", v.Text)
	}
	relative, err := filepath.Rel(filepath.Join(dir, "..data", "t"), outside)
	must(t, err)
	must(t, os.Symlink(outside, filepath.Join(dir, "..data", "t", "text.de.txt")))
	must(t, os.Symlink(relative, filepath.Join(dir, "..data", "t", "text.fr.txt")))
	must(t, os.Symlink("text.it.txt", filepath.Join(dir, "..data", "t", "text.it.txt")))
	must(t, os.Symlink("nowhere.txt", filepath.Join(dir, "..data", "t", "text.es.txt")))
	must(t, os.Mkdir(filepath.Join(dir, "..data", "t", "text.pt.txt"), 0o750))
	_, problems := Load(os.DirFS(dir))
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
	}
	want := []string{
		"t/text.de.txt: is a link that leads out of the folder; put a copy here, or make the link relative",
		"t/text.es.txt: cannot be read: no such file or directory",
		"t/text.fr.txt: is a link that leads out of the folder; put a copy here",
		"t/text.it.txt: is a link of too many links; put a copy here",
		"t/text.pt.txt: is no file",
	}
	if diff := cmp.Diff(want, sorted(got)); diff != "" {
		t.Error(diff)
	}
}
