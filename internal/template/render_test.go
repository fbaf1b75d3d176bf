package template

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// threeKinds prints its one variable everywhere.
func threeKinds(t testing.TB) *Template {
	t.Helper()
	return loaded(t, folderOf(map[string]string{
		"template.yaml":     "variables: {required: [v], properties: {v: {type: [string, number]}}}",
		"in_app.md":         "# {{.v}}\n\n{{.v}}\n",
		"email.subject.txt": "{{.v}}\n",
		"email.html":        `<p title="{{.v}}">{{.v}}</p><a href="https://example.com/?q={{.v}}">x</a>`,
		"email.txt":         "{{.v}}",
		"text.txt":          "{{.v}}\n",
	}))
}

func TestAValueIsPrintedAsItIs(t *testing.T) {
	const tricky = `<img src=x onerror=alert(1)> & Tom's {{.v}} {{"}}`
	tpl := threeKinds(t)
	variables := string(encode(map[string]any{"v": tricky}, true))
	t.Run("NC-14 escaped once in HTML", func(t *testing.T) {
		r, err := rendered(t, tpl, compiled(t, tpl, KindEmail), variables)
		if err != nil {
			t.Fatal(err)
		}
		const escaped = `&lt;img src=x onerror=alert(1)&gt; &amp; Tom&#39;s {{.v}} {{&#34;}}`
		want := `<p title="` + escaped + `">` + escaped + `</p><a href="https://example.com/?q=` +
			`%3cimg%20src%3dx%20onerror%3dalert%281%29%3e%20%26%20Tom%27s%20%7b%7b.v%7d%7d%20%7b%7b%22%7d%7d">x</a>`
		if diff := cmp.Diff(Rendered{Subject: tricky, HTML: want, Text: tricky}, r); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("NC-14 not at all in a text, a title and Markdown", func(t *testing.T) {
		for kind, want := range map[string]Rendered{KindInApp: {Subject: tricky, Text: tricky}, KindText: {Text: tricky}} {
			r, err := rendered(t, tpl, compiled(t, tpl, kind), variables)
			if diff := cmp.Diff(want, r); diff != "" || err != nil {
				t.Error(kind, err, diff)
			}
		}
	})
	t.Run("NC-14 numbers exactly", func(t *testing.T) {
		for _, n := range []string{"1.10", "9007199254740993", "1e3", "-0", "0.000000000000000000001", "123456789012345678901234567890"} {
			for _, kind := range tpl.Kinds() {
				r, err := rendered(t, tpl, compiled(t, tpl, kind), `{"v":`+n+`}`)
				if err != nil || r.Text != n {
					t.Errorf("%s in %s: %+v, %v", n, kind, r, err)
				}
			}
		}
	})
}

func TestAHeaderIsOneLine(t *testing.T) {
	tpl := threeKinds(t)
	for _, c := range []struct{ value, want string }{
		{"tab\there", "tab\there"},
		{"Hello\u2028World", "Hello\u2028World"},
		{"Hello\u0085World", "Hello\u0085World"},
		{"Hello%0d%0aBcc: x@example.com", "Hello%0d%0aBcc: x@example.com"},
		{`Hello\r\nBcc: x@example.com`, `Hello\r\nBcc: x@example.com`},
		{"=?utf-8?q?a=0D=0ABcc:_x@example.com?=", "=?utf-8?q?a=0D=0ABcc:_x@example.com?="},
		{"e\u0301 vs \u00e9", "e\u0301 vs \u00e9"},
		{"\ufeffBOM first", "BOM first"},
		{"Invoice \u202efdp.exe", "Invoice fdp.exe"},
		{"שלום hello", "שלום hello"},
		{strings.Repeat("A", 1200), strings.Repeat("A", 1200)},
		{"", ""},
		{"Hello\r\nBcc: victim@example.com", refused},
		{"Hello\nBcc: victim@example.com", refused},
		{"Hello\rBcc: victim@example.com", refused},
		{"Hello\u000bWorld\f", refused},
		{"Hello\x1b[31m", refused},
		{"Hello\x7f", refused},
		{"Hello\u009b", refused},
		{"Hello\n", refused},
	} {
		t.Run(fmt.Sprintf("NC-14 %.30q", c.value), func(t *testing.T) {
			for _, kind := range []string{KindEmail, KindInApp} {
				r, err := rendered(t, tpl, compiled(t, tpl, kind), string(encode(map[string]any{"v": c.value}, true)))
				if c.want == refused {
					mustFail(t, err, "variable v has a line break or another control character", "Hello")
					continue
				}
				if err != nil || r.Subject != c.want {
					t.Errorf("%q, %v; want %q", r.Subject, err, c.want)
				}
			}
		})
	}
}

const refused = "\x00refused"

func TestNothingAbsentIsPrinted(t *testing.T) {
	const schema = `{properties: {a: {type: [string, "null"]}, o: {properties: {b: {type: string}}}, n: {type: number}, d: {type: string, default: D}, l: {type: array, items: {type: [string, "null"]}}}}`
	for _, c := range []struct{ text, variables, want, fails string }{
		{"{{.a}}", `{}`, "", "variable a is absent or null"},
		{"{{.a}}", `{"a":null}`, "", "variable a is absent or null"},
		{"{{.o.b}}", `{"o":{}}`, "", "variable o/b is absent or null"},
		{"{{.o.b}}", `{}`, "", "line 1, at .o.b: variable b is missing"},
		{"{{upper .a}}", `{}`, "", "at upper .a: needs a text"},
		{"{{range .l}}{{.}},{{end}}", `{"l":["x",null]}`, "", "variable l/* is absent or null"},
		{"{{range .l}}{{.}},{{else}}none{{end}}", `{}`, "none", ""},
		{"{{with .a}}{{.}}{{else}}-{{end}}{{if .o}}{{.o.b}}{{end}}", `{}`, "-", ""},
		{"{{default \"-\" .a}}{{.a | default \"+\"}}", `{"a":""}`, "-+", ""},
		{"{{.d}}", `{}`, "D", ""},
		{"{{.d}}", `{"d":"x"}`, "x", ""},
		{"{{index .l 1}}", `{"l":["x"]}`, "", "is absent or null"},
		{`{{index .l 0}}{{index . "a"}}`, `{"l":["x"],"a":"y"}`, "xy", ""},
		{"{{if .n}}yes{{else}}no{{end}}{{with .n}}{{.}}{{end}}{{if and .n true}}!{{end}}{{if not .n}}0{{end}}", `{"n":0.0}`, "no0", ""},
		{"{{if ne .n nil}}{{.n}}{{end}}", `{"n":0}`, "0", ""},
		{"{{if ne .n nil}}{{.n}}{{end}}", `{}`, "", ""},
	} {
		t.Run("NC-14 "+c.text+" "+c.variables, func(t *testing.T) {
			tpl, compiled := textOf(t, schema, c.text)
			r, err := rendered(t, tpl, compiled, c.variables)
			if c.fails != "" {
				mustFail(t, err, c.fails, "")
				return
			}
			if err != nil || r.Text != c.want {
				t.Errorf("%q, %v; want %q", r.Text, err, c.want)
			}
		})
	}
}

// What the schema makes a text is printed without a check of each output: what was kept, and lacks it all the same, is
// refused as a whole.
func TestWhatMustBeATextIsRefusedWhereItIsNone(t *testing.T) {
	_, c := textOf(t, `{required: [a], properties: {a: {type: string}}}`, "{{.a}}")
	for _, kept := range []string{`{}`, `{"a":null}`, `{"a":1}`, `{"a":["x"]}`} {
		values, err := Join([]byte(kept), nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Render(values)
		mustFail(t, err, "variable a is absent, or no text", "")
		if r.Text != "" {
			t.Errorf("%s: rendered as %q", kept, r.Text)
		}
	}
}

func TestFunctions(t *testing.T) {
	const schema = `{properties: {s: {type: string, default: "Äpfel & Öl"}, n: {type: number, default: 9007199254740993}, l: {type: array, items: {type: [string, number]}, default: [a, 1.10]}, t: {type: string, format: date-time, default: "2026-01-31T23:30:00+01:00"}, d: {type: string, default: "2026-01-31"}, b: {type: boolean, default: true}, o: {additionalProperties: true, default: {z: 1.0, a: "<"}}}}`
	for text, want := range map[string]string{
		`{{upper .s}} {{lower .s}} {{trim " x "}}`:                            "ÄPFEL & ÖL äpfel & öl x",
		`{{truncate 5 .s}} {{truncate 50 .s}} {{.s | truncate 1}}`:            "Äpfe… Äpfel & Öl …",
		`{{len .s}} {{len .l}} {{len .o}}`:                                    "10 2 2",
		`{{join ", " .l}}`:                                                    "a, 1.10",
		`{{json .s}} {{json .l}} {{json .o}} {{json .n}} {{json 1}}`:          `"Äpfel & Öl" ["a",1.10] {"a":"<","z":1.0} 9007199254740993 1`,
		`{{urlencode .s}}`:                                                    "%C3%84pfel%20%26%20%C3%96l",
		`{{md "*x* [y](z) 1.5"}}`:                                             `\*x\* \[y\]\(z\) 1\.5`,
		`{{date "2006-01-02 15:04" .t}}`:                                      "2026-01-31 23:30",
		`{{date "2006-01-02 15:04" "UTC" .t}} {{.t | date "15:04" "+08:00"}}`: "2026-01-31 22:30 06:30",
		`{{date "02.01.2006" .d}}`:                                            "31.01.2026",
		`{{eq .n 9007199254740993}} {{eq .n 9007199254740992}} {{ne .n 1}} {{gt .n 9007199254740992}}`: "true false true true",
		`{{lt 1.5 2}} {{le 2 2}} {{ge -1 0}} {{lt "a" "b"}} {{eq .s "x" "Äpfel & Öl"}} {{eq .b true}}`: "true true false true true true",
		`{{eq .s 1}} {{eq .s nil}}`:                                                     "false false",
		`{{.b}} {{and .b .s}} {{or "" .s}} {{not .b}}`:                                  "true Äpfel & Öl Äpfel & Öl false",
		`{{$x := .s}}{{range $i, $e := .l}}{{$i}}={{$e}} {{end}}{{$x}}`:                 "0=a 1=1.10 Äpfel & Öl",
		`{{define "x"}}<{{.}}>{{end}}{{template "x" .n}}{{block "y" .s}}[{{.}}]{{end}}`: "<9007199254740993>[Äpfel & Öl]",
		`{{range .l}}{{break}}{{end}}{{range $k, $v := .o}}{{$k}}{{$v}}{{end}}`:         "a<z1.0",
		`{{$last := ""}}{{range .l}}{{$last = .}}{{end}}{{$last}}`:                      "1.10",
	} {
		t.Run(text, func(t *testing.T) {
			tpl, compiled := textOf(t, schema, text)
			r, err := rendered(t, tpl, compiled, `{}`)
			if err != nil || r.Text != want {
				t.Errorf("%q, %v; want %q", r.Text, err, want)
			}
		})
	}
	for text, want := range map[string]string{
		`{{join ", " .s}}`:                        "join needs a list",
		`{{date "15:04" .s}}`:                     "date needs a time",
		`{{date "15:04" "x" .t}}`:                 "date's offset is",
		`{{date "15:04"}}`:                        "needs a layout and a time",
		`{{lt .s .n}}`:                            "have no order",
		`{{index .s 0}}`:                          "needs a list or an object",
		`{{len .n}}`:                              "len needs a text",
		`{{truncate 0 .s}}`:                       "length of at least 1",
		`{{range .o}}{{.}}{{end}}{{join "," .o}}`: "join needs a list",
	} {
		t.Run("refuses "+text, func(t *testing.T) {
			tpl, compiled := textOf(t, schema, text)
			_, err := rendered(t, tpl, compiled, `{}`)
			mustFail(t, err, want, "Äpfel")
		})
	}
}

func TestASensitiveValueIsMaskedInApp(t *testing.T) {
	tpl := loaded(t, folderOf(map[string]string{
		"template.yaml": "variables: {required: [code, n], properties: {code: {type: string, sensitive: true}, n: {type: number, sensitive: true}, at: {type: string, format: date-time, sensitive: true}}}",
		"in_app.md":     "# Code {{.code}}\n\n{{upper .code}} {{json .n}} {{if gt .n 5}}large{{end}}{{with .at}}{{date \"15:04\" .}}{{end}}",
		"text.txt":      "{{.code}} {{.n}}",
	}))
	const variables = `{"code":"493817a","n":8.50,"at":"2026-01-31T23:30:00Z"}`
	t.Run("NC-07 in-app", func(t *testing.T) {
		r, err := rendered(t, tpl, compiled(t, tpl, KindInApp), variables)
		if diff := cmp.Diff(Rendered{Subject: "Code •••", Text: `••• "•••" •••`}, r); diff != "" || err != nil {
			t.Error(err, diff)
		}
	})
	t.Run("shown elsewhere", func(t *testing.T) {
		r, err := rendered(t, tpl, compiled(t, tpl, KindText), variables)
		if err != nil || r.Text != "493817a 8.50" {
			t.Error(r, err)
		}
	})
}

// TestRenderingEnds: whatever a template does, it takes a bounded time and memory.
func TestRenderingEnds(t *testing.T) {
	many := `{"l":["` + strings.Repeat(`x","`, 5000) + `x"]}`
	const schema = `{properties: {l: {type: array, default: [], items: {type: string}}, s: {type: string, default: x}}}`
	var calls strings.Builder
	for i := range 40 {
		fmt.Fprintf(&calls, `{{define "t%d"}}{{template "t%d"}}{{template "t%d"}}{{end}}`, i, i+1, i+1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"loops in loops":           {`{{range .l}}{{range $.l}}{{range $.l}}{{end}}{{end}}{{end}}`, "too many steps"},
		"a loop over a constant":   {`{{range 2000000000}}{{end}}`, "too many steps"},
		"calls that double":        {calls.String() + `{{define "t40"}}{{end}}{{template "t0"}}`, "too many steps"},
		"much output":              {`{{range .l}}{{range $.l}}` + strings.Repeat("0123456789", 100) + `{{end}}{{end}}`, "more than 1048576 bytes"},
		"text that doubles":        {`{{$x := .s}}{{range .l}}{{$x = md (join "\\" (index $ "l"))}}{{end}}`, "too much text"},
		"text that doubles itself": {`{{$x := "\\"}}{{range .l}}{{$x = md $x}}{{end}}`, "too much text"},
	} {
		t.Run(name, func(t *testing.T) {
			tpl, compiled := textOf(t, schema, c.text)
			start := time.Now()
			_, err := rendered(t, tpl, compiled, many)
			mustFail(t, err, c.want, "")
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestAnUnsafeLinkIsRefused(t *testing.T) {
	tpl := loaded(t, folderOf(map[string]string{
		"template.yaml":     "variables: {required: [url], properties: {url: {type: string}}}",
		"email.subject.txt": "s", "email.html": `<a href="{{.url}}">x</a>`,
	}))
	c := compiled(t, tpl, KindEmail)
	if r, err := rendered(t, tpl, c, `{"url":"https://example.com/?a=1&b=2"}`); err != nil || r.HTML != `<a href="https://example.com/?a=1&amp;b=2">x</a>` {
		t.Error(r, err)
	}
	_, err := rendered(t, tpl, c, `{"url":"javascript:alert(493817)"}`)
	mustFail(t, err, "none that is safe", "493817")
}

// TestWhatWasStoredIsRenderedAlike: a version is all that is needed later.
func TestWhatWasStoredIsRenderedAlike(t *testing.T) {
	tpl := threeKinds(t)
	values, err := tpl.Check([]byte(`{"v":1.50}`))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := Join(values.Plain(), values.Sensitive())
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range tpl.Kinds() {
		c := compiled(t, tpl, kind)
		first, err := c.Render(values)
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Render(kept)
		if diff := cmp.Diff(first, again); diff != "" || err != nil {
			t.Error(err, diff)
		}
	}
	for _, v := range []struct{ schema, text, want string }{
		{"", "{{.x}}", "does not declare"},
		{"{", "", "the schema"},
		{`{"type":"object"}`, "{{", "is no template"},
		{`{"type":"object","properties":{"a":{"$ref":"https://example.com/x"}}}`, "", "refers to elsewhere"},
	} {
		_, err := Compile(textVersion(v.schema, v.text))
		mustFail(t, err, v.want, "")
	}
	unknown := textVersion("", "")
	unknown.Kind = "fax"
	_, err = Compile(unknown)
	mustFail(t, err, "unknown kind", "")
}

func TestManyRenderAtOnce(t *testing.T) {
	tpl := threeKinds(t)
	c := compiled(t, tpl, KindEmail)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 100 {
				want := fmt.Sprint(i*1000 + n)
				values, err := tpl.Check([]byte(`{"v":"` + want + `"}`))
				if err != nil {
					t.Error(err)
					return
				}
				if r, err := c.Render(values); err != nil || r.Subject != want {
					t.Errorf("%q, %v", r.Subject, err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkRender(b *testing.B) {
	tpl := threeKinds(b)
	values, err := tpl.Check([]byte(`{"v":"Travel to Shenzhen"}`))
	if err != nil {
		b.Fatal(err)
	}
	for _, kind := range tpl.Kinds() {
		c := compiled(b, tpl, kind)
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				if _, err := c.Render(values); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			if _, err := tpl.Check([]byte(`{"v":"Travel to Shenzhen"}`)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
