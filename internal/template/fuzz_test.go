package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var seeds = []string{
	`{}`, `{"code":"493817"}`, `{"plain":1.10,"code":"x"}`, `{"plain":9007199254740993,"list":[{"pin":"1","at":"<"}],"all":["a",null]}`,
	`{"who":{"name":"Li","a/b~c":"x"},"map":{"k":"v","":"~/"}}`, `{"either":true,"pair":["a","b","c"],"linked":"\u00e9\ud83d\ude00"}`,
	`{"plain":"{{.code}}\r\n<script>"}`, `{"plain":1e400,"n":-0.0}`, `{"code":"•••"}`, `{"a":1,"a":2}`, `[[[[]]]]`, `null`, "\xff", `{"plain":"\ud800"}`,
}

// FuzzDecode: what is taken means what encoding/json makes of it, and is the same when it is written and read again.
func FuzzDecode(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := decode(text)
		if err != nil {
			if _, ok := errors.AsType[*textError](err); !ok {
				t.Errorf("%T: %v", err, err)
			}
			return
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var want any
		if err := d.Decode(&want); err != nil {
			t.Fatalf("encoding/json does not take it: %v", err)
		}
		if diff := cmp.Diff(want, v); diff != "" {
			t.Error(diff)
		}
		again, err := decode(encode(v, true))
		if diff := cmp.Diff(v, again); diff != "" || err != nil {
			t.Error(err, diff)
		}
		canonical := encode(v, false)
		if again, err = decode(canonical); err != nil || !bytes.Equal(encode(again, false), canonical) {
			t.Errorf("%s is not canonical: %v", canonical, err)
		}
	})
}

// FuzzCheck: whatever comes, Check comes back, says no value, and what it takes can be taken apart, put together and
// rendered in every kind.
func FuzzCheck(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	tpl := loaded(f, folderOf(map[string]string{
		"template.yaml":     "variables: " + secretSchema,
		"in_app.md":         "# T\n\n{{json .}}{{range .list}}{{default \"\" .pin}}{{end}}{{if gt 1 2}}{{end}}",
		"email.subject.txt": "{{with .plain}}{{.}}{{end}}",
		"email.html":        `<p title="{{with .plain}}{{.}}{{end}}">{{with .plain}}{{.}}{{end}}</p><a href="{{with .plain}}{{.}}{{end}}">{{json .}}</a><i style="color: {{with .plain}}{{.}}{{end}}"></i>`,
		"text.txt":          "{{json .}}{{with .plain}}{{md .}}{{urlencode .}}{{truncate 3 .}}{{end}}",
	}))
	versions := map[string]*Compiled{}
	for _, kind := range tpl.Kinds() {
		versions[kind] = compiled(f, tpl, kind)
	}
	f.Fuzz(func(t *testing.T, variables []byte) {
		values, err := tpl.Check(variables)
		if err != nil {
			var wrong *VariablesError
			if !errors.As(err, &wrong) || len(wrong.Problems) == 0 {
				t.Fatalf("%T: %v", err, err)
			}
			for _, p := range wrong.Problems {
				if p.Problem == "" || strings.ContainsAny(p.Name+p.Problem, "\r\n\x00") {
					t.Errorf("%+q", p)
				}
			}
			return
		}
		kept, err := Join(values.Plain(), values.Sensitive())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(values.Canonical()), string(kept.Canonical())) + cmp.Diff(values.Strings(), kept.Strings()); diff != "" {
			t.Error(diff)
		}
		again, err := tpl.Check(values.Canonical())
		if err != nil || !bytes.Equal(values.Canonical(), again.Canonical()) {
			t.Errorf("the canonical form is another: %v", err)
		}
		for kind, c := range versions {
			r, err := c.Render(values)
			var failed *RenderError
			if err != nil && !errors.As(err, &failed) {
				t.Errorf("%T: %v", err, err)
			}
			if strings.ContainsFunc(r.Subject, headerRefuses) {
				t.Errorf("%s: %q", kind, r.Subject)
			}
			if err == nil && kind == KindEmail && (strings.Count(r.HTML, "<") != 6 || strings.Count(r.HTML, ">") != 6) {
				t.Errorf("a value became a tag: %s", r.HTML)
			}
			if kind == KindInApp {
				for _, secret := range values.sensitive {
					if s, _ := text(secret); len(s) > 20 && strings.Contains(r.Text, s) && !strings.Contains(string(values.Plain()), s) {
						t.Errorf("a sensitive value is shown")
					}
				}
			}
		}
	})
}

// FuzzJoin: whatever was kept, Join comes back, and what it takes can be taken apart again.
func FuzzJoin(f *testing.F) {
	f.Add([]byte(`{"a":"•••","b":[{"c":"•••"}]}`), []byte(`{"/a":"x","/b/0/c":1.50}`))
	f.Add([]byte(`{"a/b":"•••"}`), []byte(`{"/a~1b":{"x":[null]}}`))
	f.Add([]byte(`{"a":1}`), []byte(`{"":1,"/":2,"/a/":3,"/~":4}`))
	f.Fuzz(func(t *testing.T, plain, sensitive []byte) {
		values, err := Join(plain, sensitive)
		if err != nil {
			return
		}
		again, err := Join(values.Plain(), values.Sensitive())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(values.Canonical()), string(again.Canonical())); diff != "" {
			t.Error(diff)
		}
	})
}

// FuzzText: whatever a template says, it is refused, or compiled and rendered or refused then, in a bounded time.
func FuzzText(f *testing.F) {
	for _, s := range []string{
		`{{.s}}`, `{{range .l}}{{.}}{{else}}x{{end}}`, `{{with $x := .s}}{{$x}}{{end}}`, `{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`,
		`{{if and .s (eq .n 1.0)}}{{end}}`, `{{index .l 0 | default "x" | upper}}`, `{{(index . "s").x}}`, `{{$}}{{$.s}}{{break}}`, `{{range $i, $e := .l}}{{$i}}{{end}}`,
		`<a href="{{.s}}" onclick="f({{.s}})"><style>{{.s}}</style><!-- {{.s}} -->`, `{{block "b" .}}{{.s}}{{end}}`, `{{- /* c */ -}}`, `{{nil}}`, `{{1}}{{"x"}}{{true}}{{'c'}}{{1i}}`,
		`{{range 3}}{{.}}{{end}}`, `{{len .l.x}}`, `{{.s.String}}`, `{{json (json .)}}`, `{{"x" | .s}}`, `{{_out "a" .s}}`, `{{$_}}`,
	} {
		f.Add(s)
	}
	const schema = `{"type":"object","additionalProperties":false,"properties":{"s":{"type":"string"},"n":{"type":"number"},"l":{"type":"array","items":{"type":"string"}},"o":{"type":"object"}}}`
	f.Fuzz(func(t *testing.T, source string) {
		values, err := Join([]byte(`{"s":"<s3cret>","n":0,"l":["s3cret"],"o":{"k":1}}`), nil)
		must(t, err)
		for _, v := range []struct{ kind string }{{KindText}, {KindEmail}, {KindInApp}} {
			version := textVersion(schema, source)
			version.Kind, version.HTML, version.Subject = v.kind, source, source
			c, err := Compile(version)
			if err == nil {
				_, err = c.Render(values)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") && !strings.Contains(source, "s3cret") {
				t.Errorf("says a value: %v", err)
			}
		}
	})
}
