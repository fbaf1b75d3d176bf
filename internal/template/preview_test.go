package template

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPreview(t *testing.T) {
	fsys := folderOf(map[string]string{
		"template.yaml": `
default_locale: en
variables:
  required: [title, code, at, mail, n, list, level, fixed]
  properties:
    title: {type: string, examples: [Example]}
    code: {type: string, sensitive: true, minLength: 6}
    at: {type: string, format: date-time}
    mail: {type: string, format: email}
    n: {type: integer, minimum: 3}
    list: {type: array, minItems: 2, items: {type: object, required: [x], properties: {x: {type: boolean}}}}
    level: {enum: [low, high]}
    fixed: {const: 7}
    short: {type: string, maxLength: 3}
    deep: {type: object, properties: {a: {type: number, exclusiveMinimum: 0}}}
`,
		"text.en.txt":     "{{json .}}",
		"in_app.en.md":    "# {{.title}}\n\n{{.code}} {{date \"2006\" .at}}",
		"in_app.zh-CN.md": "# 标题 {{.title}}",
		"bad/text.txt":    "x",
	})
	t.Run("says what is wrong with the template itself", func(t *testing.T) {
		_, err := Preview(fsys, "bad", "", nil)
		var problems *LoadError
		if !errors.As(err, &problems) || err.Error() != "bad/template.yaml: is missing; write at least variables: {properties: {}}" {
			t.Error(err)
		}
	})
	delete(fsys, "bad/text.txt")
	t.Run("samples from the schema, sensitive ones masked", func(t *testing.T) {
		p, err := Preview(fsys, "t", "zh_cn", nil)
		if err != nil {
			t.Fatal(err)
		}
		const variables = `{"at":"2026-01-31T09:30:00Z","code":"•••","deep":{"a":1},"fixed":7,"level":"low","list":[{"x":true},{"x":true}],"mail":"someone@example.com","n":3,"short":"sho","title":"Example"}`
		want := Previewed{"t", json.RawMessage(variables), []PreviewedKind{
			{Kind: KindInApp, Locale: "zh-CN", Subject: "标题 Example"}, {Kind: KindText, Locale: "en", Text: variables}}}
		if diff := cmp.Diff(want, p); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("with variables", func(t *testing.T) {
		p, err := Preview(fsys, "t", "", json.RawMessage(`{"title":"A","code":"493817","at":"2027-01-01T00:00:00Z","mail":"a@example.com","n":3,"list":[{"x":true},{"x":true}],"level":"low","fixed":7}`))
		if err != nil || p.Kinds[0].Text != "••• 2027" || p.Kinds[0].Subject != "A" || strings.Contains(p.Kinds[1].Text, "493817") {
			t.Errorf("%+v, %v", p, err)
		}
		_, err = Preview(fsys, "t", "", json.RawMessage(`{"titel":"s3cret"}`))
		mustFail(t, err, "did you mean title?", "s3cret")
	})
	_, err := Preview(fsys, "tt", "", nil)
	mustFail(t, err, "there is no template tt; did you mean t?", "")
}
