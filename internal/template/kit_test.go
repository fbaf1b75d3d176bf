package template

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/posthouse/posthouse/internal/model"
)

// folderOf makes a folder of one template, "t", from its files.
func folderOf(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range files {
		if !strings.Contains(name, "/") {
			name = "t/" + name
		}
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// loaded is the template "t" of the folder, which must be in order.
func loaded(t testing.TB, fsys fs.FS) *Template {
	t.Helper()
	set, problems := Load(fsys)
	for _, p := range problems {
		t.Error(p)
	}
	if set == nil {
		t.FailNow()
	}
	tpl, ok := set.Template("t")
	if !ok {
		t.Fatal("no template t")
	}
	return tpl
}

// compiled is its text for a kind, in the default locale.
func compiled(t testing.TB, tpl *Template, kind string) *Compiled {
	t.Helper()
	v, ok := tpl.Version(kind, "")
	if !ok {
		t.Fatalf("no %s", kind)
	}
	c, err := Compile(v)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// textOf is a template of kind text, without a locale.
func textOf(t testing.TB, schema, text string) (*Template, *Compiled) {
	t.Helper()
	tpl := loaded(t, folderOf(map[string]string{"template.yaml": "variables: " + schema, "text.txt": text}))
	return tpl, compiled(t, tpl, KindText)
}

// rendered checks the variables and renders the text of a kind.
func rendered(t testing.TB, tpl *Template, c *Compiled, variables string) (Rendered, error) {
	t.Helper()
	values, err := tpl.Check([]byte(variables))
	if err != nil {
		t.Fatalf("%s: %v", variables, err)
	}
	return c.Render(values)
}

// textVersion is a version as a store would hold it.
func textVersion(schema, text string) model.TemplateVersion {
	return model.TemplateVersion{Code: "t", Kind: KindText, Schema: schema, Text: text}
}

// mustFail says whether the error names what it should, and nothing that it must not.
func mustFail(t testing.TB, err error, want, secret string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("no error; want %q", want)
	case !strings.Contains(err.Error(), want):
		t.Errorf("%q does not say %q", err, want)
	case secret != "" && strings.Contains(err.Error(), secret):
		t.Errorf("%q says the value", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
