package template

import (
	"testing"
	"testing/fstest"
)

func load1(t *testing.T, files map[string]string) *Set {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	set, problems := Load(fsys)
	for _, p := range problems {
		t.Error(p)
	}
	if set == nil {
		t.FailNow()
	}
	return set
}

func TestSmoke(t *testing.T) {
	set := load1(t, map[string]string{
		"a/template.yaml":        "default_locale: en\nvariables:\n  required: [title, n]\n  properties:\n    title: {type: string}\n    n: {type: number}\n    code: {type: string, sensitive: true}\n    items: {type: array, items: {type: object, required: [x], properties: {x: {type: number}}}}\n",
		"a/email.en.subject.txt": "Hello {{.title}}\n",
		"a/email.en.html":        "<p title=\"{{.title}}\">{{.title}} {{.n}}</p>{{with .code}}<b>{{.}}</b>{{end}}{{range .items}}{{.x}},{{else}}none{{end}}",
		"a/in_app.en.md":         "\n# T {{.title}}\n\nBody {{.n}} {{default \"-\" .code}}\n{{if .n}}yes{{end}}",
	})
	tpl, _ := set.Template("a")
	for _, variables := range []string{
		`{"title":"<img src=x onerror=alert(1)> & Tom's {{.n}}","n":1.10,"code":"493817","items":[{"x":9007199254740993},{"x":0}]}`,
		`{"title":"x","n":0}`, `{"title":"x\ny","n":0}`, `{"titel":"x","n":null}`,
	} {
		v, err := tpl.Check([]byte(variables))
		t.Log(v.full, string(v.Plain()), string(v.Sensitive()), string(v.Canonical()), err)
		if err != nil {
			continue
		}
		for _, tv := range set.Versions() {
			c, err := Compile(tv)
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.Render(v)
			t.Logf("%q %v", r, err)
		}
	}
}
