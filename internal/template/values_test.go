package template

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecimals(t *testing.T) {
	for text, want := range map[string]string{
		"1": "1", "1.0": "1", "1e0": "1", "1E+0": "1", "10e-1": "1", "0.1e1": "1", "100": "100", "1e2": "100", "1.10": "1.1",
		"0": "0", "-0": "0", "0.000": "0", "-0e5": "0", "-1.50": "-1.5", "9007199254740993": "9007199254740993",
		"0.1": "0.1", "1e-3": "0.001", "1e100": "1e100", "12e99": "12e99", "-1e-100": "-1e-100",
		"123456789.123456789": "123456789.123456789",
	} {
		d, ok := parseDecimal(text)
		if !ok || d.String() != want {
			t.Errorf("%s: %s, %t; want %s", text, d, ok, want)
		}
		if again, ok := parseDecimal(d.String()); !ok || again != d {
			t.Errorf("%s: read again it is another", text)
		}
	}
	for _, text := range []string{"", "1e1001", "1e-1001", "1e999999999999999999999", strings.Repeat("1", 401), "x"} {
		if _, ok := parseDecimal(text); ok {
			t.Errorf("%.20s is taken", text)
		}
	}
	ordered := []string{"-1e100", "-100", "-1.5", "-1", "-0.001", "0", "1e-100", "0.1", "0.11", "0.2", "1", "1.5", "2", "10", "100.5", "9007199254740992", "9007199254740993", "1e100"}
	for i, a := range ordered {
		for j, b := range ordered {
			x, _ := parseDecimal(a)
			y, _ := parseDecimal(b)
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := x.compare(y); got != want {
				t.Errorf("compare(%s, %s) = %d", a, b, got)
			}
		}
	}
}

// secretSchema has secrets at every kind of place.
const secretSchema = `{
  properties: {
    code: {type: string, sensitive: true},
    n: {type: number, sensitive: true},
    plain: {type: [string, number, "null", boolean]},
    who: {type: object, sensitive: true, properties: {name: {type: string}, "a/b~c": {type: string}}},
    list: {type: array, items: {properties: {pin: {type: string, sensitive: true}, at: {type: string}}}},
    all: {type: array, sensitive: true, items: {type: [string, "null"]}},
    either: {anyOf: [{type: string, sensitive: true}, {type: boolean}]},
    linked: {$ref: "#/$defs/secret"},
    map: {type: object, additionalProperties: {type: string, sensitive: true}},
    pair: {type: array, prefixItems: [{type: string}, {type: string, sensitive: true}]},
  },
  $defs: {secret: {type: string, sensitive: true}},
}`

func secretTemplate(t testing.TB) *Template {
	t.Helper()
	return loaded(t, folderOf(map[string]string{"template.yaml": "variables: " + secretSchema, "text.txt": "{{json .}}"}))
}

func TestSensitiveValuesAreKeptApart(t *testing.T) {
	tpl := secretTemplate(t)
	values, err := tpl.Check([]byte(`{"code":"493817","n":1.50,"plain":2.50,"who":{"name":"Li","a/b~c":"x"},"list":[{"pin":"1111","at":"door"},{"at":"gate"}],
		"all":["s1",null],"either":"s2","linked":"s3","map":{"k":"s4"},"pair":["open","s5"]}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("NC-07 masked at any depth", func(t *testing.T) {
		const plain = `{"all":["•••",null],"code":"•••","either":"•••","linked":"•••","list":[{"at":"door","pin":"•••"},{"at":"gate"}],` +
			`"map":{"k":"•••"},"n":"•••","pair":["open","•••"],"plain":2.50,"who":{"a/b~c":"•••","name":"•••"}}`
		if diff := cmp.Diff(plain, string(values.Plain())); diff != "" {
			t.Error(diff)
		}
		const sensitive = `{"/all/0":"s1","/code":"493817","/either":"s2","/linked":"s3","/list/0/pin":"1111","/map/k":"s4","/n":1.50,"/pair/1":"s5","/who/a~1b~0c":"x","/who/name":"Li"}`
		if diff := cmp.Diff(sensitive, string(values.Sensitive())); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("put together again they are the same", func(t *testing.T) {
		again, err := Join(values.Plain(), values.Sensitive())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(values.Canonical()), string(again.Canonical())) + cmp.Diff(string(values.Plain()), string(again.Plain())) +
			cmp.Diff(string(values.Sensitive()), string(again.Sensitive())) + cmp.Diff(values.Strings(), again.Strings()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("without them they stay masked", func(t *testing.T) {
		again, err := Join(values.Plain(), nil)
		if err != nil || string(again.Canonical()) != strings.ReplaceAll(string(values.Plain()), "2.50", "2.5") || again.Sensitive() != nil {
			t.Error(string(again.Canonical()), err)
		}
	})
	t.Run("all texts and numbers are told, sensitive ones first", func(t *testing.T) {
		want := []string{"s1", "493817", "s2", "s3", "1111", "s4", "1.50", "s5", "x", "Li", "door", "gate", "open", "2.50"}
		if diff := cmp.Diff(want, values.Strings()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("NC-07 printed by mistake they hide themselves", func(t *testing.T) {
		encoded, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{fmt.Sprint(values), fmt.Sprintf("%+v %#v %s", values, values, values), string(encoded)} {
			if strings.Contains(s, "493817") {
				t.Error(s)
			}
		}
	})
}

func TestEqualVariablesAreCanonicallyTheSame(t *testing.T) {
	tpl := secretTemplate(t)
	canonical := func(variables string) string {
		values, err := tpl.Check([]byte(variables))
		if err != nil {
			t.Fatal(err)
		}
		return string(values.Canonical())
	}
	t.Run("NC-02", func(t *testing.T) {
		first := canonical(`{"plain":1,"code":"Ä<"}`)
		for _, same := range []string{`{"code":"\u00c4\u003c","plain":1.0}`, "{ \"plain\" :\n 1e0, \"code\": \"Ä<\" }", `{"code":"Ä<","plain":10E-1}`} {
			if got := canonical(same); got != first {
				t.Errorf("%s is %s, not %s", same, got, first)
			}
		}
		for _, other := range []string{`{"plain":1.0000000000000000000001,"code":"Ä<"}`, `{"plain":"1","code":"Ä<"}`, `{"plain":1}`, `{"plain":1,"code":"Ä<","list":[]}`, `{"plain":null,"code":"Ä<"}`} {
			if got := canonical(other); got == first {
				t.Errorf("%s is the same", other)
			}
		}
	})
	if got := canonical(""); got != "{}" || canonical("null") != "{}" {
		t.Errorf("nothing is %s", got)
	}
}

func TestJoinRefusesWhatDoesNotFit(t *testing.T) {
	for _, c := range []struct{ plain, sensitive, want string }{
		{`[]`, ``, "the kept variables: is not a JSON object"},
		{`{`, ``, "the kept variables: is not JSON"},
		{`{"a":"•••"}`, `[]`, "the kept sensitive variables: is not a JSON object"},
		{`{"a":"•••"}`, `{"/b":"s3cret"}`, `"/b": nothing masked stands there`},
		{`{"a":"x"}`, `{"/a":"s3cret"}`, `"/a": nothing masked stands there`},
		{`{"a":["•••"]}`, `{"/a/1":"s3cret"}`, `"/a/1": it leads nowhere`},
		{`{"a":["•••"]}`, `{"/a/x":"s3cret"}`, `"/a/x": it leads nowhere`},
		{`{"a":"•••"}`, `{"/a/b":"s3cret"}`, `"/a/b": it leads nowhere`},
	} {
		_, err := Join([]byte(c.plain), []byte(c.sensitive))
		mustFail(t, err, c.want, "s3cret")
	}
}

func TestLocalesFallBack(t *testing.T) {
	files := map[string]string{"template.yaml": "default_locale: EN\nvariables: {}"}
	for _, locale := range []string{"en", "fr", "zh_hant_tw", "pt-BR"} {
		files["text."+locale+".txt"] = locale
	}
	files["in_app.md"] = "# Default"
	tpl := loaded(t, folderOf(files))
	for asked, want := range map[string]string{
		"fr-CA": "fr", "fr": "fr", "FR_ca": "fr", "fr-x-private": "fr", "zh-Hant-TW": "zh-Hant-TW", "ZH_hANT_tw_x": "zh-Hant-TW", "zh-Hant": "en", "zh": "en",
		"pt_br": "pt-BR", "pt": "en", "": "en", "en-GB-oed": "en", "de": "en", "../fr": "en", strings.Repeat("fr-", 20) + "fr": "en",
	} {
		t.Run("NC-14 "+asked, func(t *testing.T) {
			v, ok := tpl.Version(KindText, asked)
			if !ok || v.Locale != want {
				t.Errorf("%q, %t; want %q", v.Locale, ok, want)
			}
		})
	}
	if v, ok := tpl.Version(KindInApp, "fr"); !ok || v.Locale != "en" || v.Subject != "Default" {
		t.Error(v, ok)
	}
	if _, ok := tpl.Version(KindEmail, "en"); ok {
		t.Error("an e-mail that is not there")
	}
	plain := loaded(t, folderOf(map[string]string{"template.yaml": "", "text.txt": "x", "text.de.txt": "y"}))
	if v, ok := plain.Version(KindText, "fr"); !ok || v.Locale != "" || v.Text != "x" {
		t.Error(v, ok)
	}
}
