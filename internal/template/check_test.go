package template

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckNamesWhatIsWrong(t *testing.T) {
	tpl := loaded(t, folderOf(map[string]string{
		"template.yaml": `
variables:
  required: [title, items]
  properties:
    title: {type: string, maxLength: 10, minLength: 2}
    items:
      type: array
      maxItems: 3
      uniqueItems: true
      items: {type: object, required: [name], properties: {name: {type: string}, price: {type: number, minimum: 0.5, maximum: 10, multipleOf: 0.25}}}
    url: {type: string, format: uri}
    mail: {type: string, format: email}
    at: {type: string, format: date-time}
    level: {enum: [low, high]}
    fixed: {const: 7}
    ref: {type: string, pattern: "^[A-Z]{3}$"}
    note: {type: [string, "null"]}
    count: {type: integer}
    either: {anyOf: [{type: string}, {type: boolean}]}
    "odd/name": {type: string}
`,
		"text.txt": "{{json .}}",
	}))
	const fine = `"title":"abc","items":[]`
	for _, c := range []struct {
		variables string
		want      []VariableProblem
	}{
		{`{` + fine + `}`, nil},
		{`{` + fine + `,"note":null,"count":1.0,"at":"2026-01-31T00:00:00Z","mail":"a@example.com","url":"https://example.com/"}`, nil},
		{``, []VariableProblem{{"items", "is missing"}, {"title", "is missing"}}},
		{`{"titel":"s3cret","items":[]}`, []VariableProblem{{"titel", "is not declared; did you mean title?"}, {"title", "is missing"}}},
		{`{` + fine + `,"title2":"s3cret"}`, []VariableProblem{{"title2", "is not declared"}}},
		{`{` + fine + `,"nope":{"s3cret":1}}`, []VariableProblem{{"nope", "is not declared; did you mean note?"}}},
		{`{"title":null,"items":null}`, []VariableProblem{{"items", "is null, and must be array"}, {"title", "is null, and must be string"}}},
		{`{"title":7,"items":"s3cret"}`, []VariableProblem{{"items", "is string, and must be array"}, {"title", "is number, and must be string"}}},
		{`{"title":"s3crets3cret","items":[]}`, []VariableProblem{{"title", "is longer than 10 characters"}}},
		{`{"title":"x","items":[]}`, []VariableProblem{{"title", "is shorter than 2 characters"}}},
		{`{"title":"abc","items":[{"nam":"s3cret"},7,{"name":"a","price":0.25}]}`, []VariableProblem{
			{"items/0/nam", "is not declared; did you mean name?"}, {"items/0/name", "is missing"}, {"items/1", "is number, and must be object"}, {"items/2/price", "is below 0.5"}}},
		{`{"title":"abc","items":[{"name":"a"},{"name":"a"}]}`, []VariableProblem{{"items", "has an item twice"}}},
		{`{"title":"abc","items":[{"name":"a","price":10.25},{"name":"b","price":1.3},{"name":"c"},{"name":"d"}]}`, []VariableProblem{
			{"items", "has more than 3 items"}, {"items/0/price", "is above 10"}, {"items/1/price", "is not a multiple of 0.25"}}},
		{`{` + fine + `,"url":"s3cret","mail":"s3cret","at":"s3cret"}`, []VariableProblem{
			{"at", "is not of the format date-time"}, {"mail", "is not of the format email"}, {"url", "is not of the format uri"}}},
		{`{` + fine + `,"level":"s3cret","fixed":8,"ref":"s3cret","count":1.5,"either":5}`, []VariableProblem{
			{"count", "is number, and must be integer"}, {"either", "has none of the forms that it may have"}, {"fixed", "is not 7"},
			{"level", `is none of ["low","high"]`}, {"ref", "does not match ^[A-Z]{3}$"}}},
		{`{` + fine + `,"odd/name":7,"new\nline":1}`, []VariableProblem{{"new\ufffdline", "is not declared"}, {"odd~1name", "is number, and must be string"}}},
		{`[]`, []VariableProblem{{"", "is not a JSON object"}}},
		{`"s3cret"`, []VariableProblem{{"", "is not a JSON object"}}},
		{`{"title":"s3cret"`, []VariableProblem{{"", "is not JSON"}}},
		{`{"title":"s3cret"}{}`, []VariableProblem{{"", "is not JSON"}}},
		{`{"title":"a","title":"s3cret"}`, []VariableProblem{{"title", "stands there twice"}}},
		{`{"title":"s3cret\u0000"}`, []VariableProblem{{"title", "has a NUL character"}}},
		{`{"items":[{"name":"\ud800s3cret"}]}`, []VariableProblem{{"", `has half a character: a \u escape of a surrogate without its other half`}}},
		{"{\"title\":\"\xff\"}", []VariableProblem{{"", "is not valid UTF-8"}}},
		{`{"count":1e999999999}`, []VariableProblem{{"count", "is a number too long or too large"}}},
		{`{"title":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, []VariableProblem{{"title" + strings.Repeat("/0", 29) + "/…", "is nested too deep"}}},
		{`{"title":"` + strings.Repeat("x", 64<<10) + `"}`, []VariableProblem{{"", "are more than 65536 bytes"}}},
	} {
		t.Run("NC-14 AC-5 "+c.variables[:min(len(c.variables), 40)], func(t *testing.T) {
			_, err := tpl.Check([]byte(c.variables))
			var wrong *VariablesError
			if !errors.As(err, &wrong) {
				if err != nil || c.want != nil {
					t.Fatalf("%v; want %v", err, c.want)
				}
				return
			}
			if diff := cmp.Diff(c.want, wrong.Problems); diff != "" {
				t.Error(diff)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%q says a value", err)
			}
		})
	}
}

// TestAnObjectIsClosedUnlessItSaysOtherwise, at every level, and in branches as their whole.
func TestAnObjectIsClosedUnlessItSaysOtherwise(t *testing.T) {
	tpl := loaded(t, folderOf(map[string]string{
		"template.yaml": `
variables:
  properties:
    open: {type: object, properties: {a: {type: string}}, additionalProperties: true}
    closed: {properties: {a: {type: string}}}
    combined: {properties: {a: {type: string}}, allOf: [{properties: {b: {type: string}}}]}
    any: {type: object}
`,
		"text.txt": "{{json .}}",
	}))
	for variables, want := range map[string]string{
		`{"open":{"x":1},"any":{"x":1},"combined":{"a":"1","b":"2"}}`: "",
		`{"closed":{"x":1}}`:   "variable closed/x: is not declared",
		`{"combined":{"c":1}}`: "variable combined/c: is not declared",
	} {
		_, err := tpl.Check([]byte(variables))
		if want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		mustFail(t, err, want, "")
	}
}

func TestOfManyProblemsSomeAreTold(t *testing.T) {
	tpl, _ := textOf(t, `{}`, "x")
	var b strings.Builder
	for i := range 100 {
		b.WriteString(`,"v` + strconv.Itoa(i) + `":1`)
	}
	_, err := tpl.Check([]byte("{" + b.String()[1:] + "}"))
	var wrong *VariablesError
	if !errors.As(err, &wrong) || len(wrong.Problems) != maxProblems+1 || wrong.Problems[maxProblems].Problem != "have more problems than are told here" {
		t.Error(err)
	}
}
