package template

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// emailCase is one of a file of tricky input for e-mail and what is right for it.
type emailCase struct {
	ID, Kind, Outcome, Why string
	Input                  struct{ Field, Value, Text string }
	Expect                 struct{ Subject *string }
}

// ownCases are the ones that rendering decides on, always run.
var ownCases = []emailCase{
	caseOf("subject", "accept", "Subject", "Hello", ""),
	caseOf("subject", "encode", "Subject", strings.Repeat("【重要通知】您的订单已发货，", 12), ""),
	caseOf("subject", "encode", "Subject", strings.Repeat("A", 1200), ""),
	caseOf("subject", "encode", "Subject", strings.Repeat("word ", 60)+"word", ""),
	caseOf("subject", "accept", "Subject", "tab\there", ""),
	caseOf("subject", "encode", "Subject", "Re: =?utf-8?q?x?=", ""),
	caseOf("subject", "policy", "Subject", "Invoice \u202efdp.exe", "Invoice fdp.exe"),
	caseOf("subject", "encode", "Subject", "e\u0301 vs \u00e9", ""),
	caseOf("subject", "encode", "Subject", "\ufeffBOM first", "BOM first"),
	caseOf("header_injection", "sanitize_or_reject", "Subject", "Hello\r\n\r\n<h1>new body</h1>", ""),
	caseOf("header_injection", "sanitize_or_reject", "Subject", "Hello\u000bWorld\f", ""),
	caseOf("header_injection", "accept", "Subject", "Hello\u0085World", ""),
	caseOf("header_injection", "encode", "Subject", "=?utf-8?q?a=0D=0ABcc:_x@example.com?=", ""),
	caseOf("header_injection", "accept_normalized", "template Subject", "Line one\n", "Line one"),
	caseOf("body", "encode", "", ".\r\n", ""),
	caseOf("body", "encode", "", "a\n.\nb", ""),
	caseOf("body", "encode", "", "", ""),
	caseOf("body", "encode", "", "\ufefftext\r\n", ""),
	caseOf("body", "encode", "", strings.Repeat("中", 400)+"\r\n", ""),
}

func caseOf(kind, outcome, field, value, expect string) emailCase {
	c := emailCase{ID: value[:min(len(value), 20)], Kind: kind, Outcome: outcome}
	c.Input.Field, c.Input.Value, c.Input.Text = field, value, value
	if expect != "" {
		c.Expect.Subject = &expect
	}
	return c
}

// TestConformanceOfRendering: the cases of the folder that CASES names, and our own, printed as kind × right and wrong.
// What becomes of a subject on the wire is for the e-mail channel to show.
func TestConformanceOfRendering(t *testing.T) {
	cases := ownCases
	if dir := os.Getenv("CASES"); dir != "" {
		data, err := os.ReadFile(filepath.Join(dir, "email_cases.json"))
		must(t, err)
		var file struct{ Cases []emailCase }
		must(t, json.Unmarshal(data, &file))
		cases = append(cases, file.Cases...)
	}
	type tally struct{ right, wrong int }
	tallies := map[string]*tally{}
	for _, c := range cases {
		var wrong string
		switch {
		case c.Kind == "body":
			wrong = bodyCase(t, c)
		case c.Kind == "subject", c.Kind == "header_injection" && c.Input.Field == "Subject":
			wrong = subjectCase(t, c)
		case c.Kind == "header_injection" && c.Input.Field == "template Subject":
			wrong = subjectFileCase(c)
		default:
			continue
		}
		n := tallies[c.Kind]
		if n == nil {
			n = &tally{}
			tallies[c.Kind] = n
		}
		if wrong == "" {
			n.right++
			continue
		}
		n.wrong++
		t.Errorf("%s (%s: %s): %s", c.ID, c.Outcome, c.Why, wrong)
	}
	for _, kind := range []string{"subject", "header_injection", "body"} {
		if n := tallies[kind]; n != nil {
			t.Logf("%-18s right %d, wrong %d", kind, n.right, n.wrong)
		}
	}
}

// subjectCase takes the input for the value of a variable in a subject.
func subjectCase(t *testing.T, c emailCase) string {
	tpl := threeKinds(t)
	got, err := render1(t, tpl, KindEmail, c.Input.Value)
	want := c.Input.Value
	if c.Expect.Subject != nil {
		want = *c.Expect.Subject
	}
	if strings.HasPrefix(want, "\ufeff") && strings.Contains(c.Why, "strip") {
		want = strings.TrimPrefix(want, "\ufeff")
	}
	switch c.Outcome {
	case "reject":
		if err == nil {
			return "it is taken"
		}
	case "sanitize_or_reject", "policy":
		if err == nil && strings.ContainsFunc(got.Subject, headerRefuses) {
			return "it comes out with control characters"
		}
	default:
		if err != nil {
			return err.Error()
		}
		if got.Subject != want {
			return "it comes out as " + got.Subject
		}
	}
	return ""
}

// subjectFileCase takes the input for a subject's file.
func subjectFileCase(c emailCase) string {
	set, problems := Load(folderOf(map[string]string{"template.yaml": "", "email.subject.txt": c.Input.Value, "email.html": "x"}))
	if c.Outcome == "reject" {
		if set != nil {
			return "it is taken"
		}
		return ""
	}
	if set == nil {
		return problems[0].String()
	}
	if got := set.Versions()[0].Subject; c.Expect.Subject != nil && got != *c.Expect.Subject {
		return "it comes out as " + got
	}
	return ""
}

// bodyCase takes the input for the value of a variable that is all of a text.
func bodyCase(t *testing.T, c emailCase) string {
	tpl := loaded(t, folderOf(map[string]string{
		"template.yaml":     "variables: {required: [v], properties: {v: {type: string}}}",
		"email.subject.txt": "s", "email.html": "<pre>{{.v}}</pre>", "email.txt": "{{.v}}", "text.txt": "{{.v}}",
	}))
	for _, kind := range tpl.Kinds() {
		got, err := render1(t, tpl, kind, c.Input.Text)
		if err != nil {
			if c.Outcome == "reject" || c.Outcome == "sanitize_or_reject" {
				continue
			}
			return err.Error()
		}
		if got.Text != c.Input.Text && c.Outcome != "policy" {
			return kind + " is another text"
		}
	}
	return ""
}

func render1(t *testing.T, tpl *Template, kind, value string) (Rendered, error) {
	t.Helper()
	encoded, err := json.Marshal(map[string]string{"v": value})
	must(t, err)
	values, err := tpl.Check(encoded)
	if err != nil {
		return Rendered{}, err
	}
	return compiled(t, tpl, kind).Render(values)
}
