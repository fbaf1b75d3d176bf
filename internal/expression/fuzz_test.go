package expression

import (
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
)

var jsonSeeds = []string{
	``, ` `, `null`, `true`, `falsey`, `nul`, `0`, `-0`, `-`, `01`, `1.`, `.5`, `1.5e+3`, `1e`, `1E-`, `1e400`, `+1`, `0x1`, `NaN`, `"`, `""`, `"\`, `"\"`,
	`"\u12"`, `"\u00zz"`, `"\ud83d\ude00"`, `"\ud800"`, `"\ud800\u0041"`, "\"\x00\"", "\"\x1f\"", "\"\x7f\"", "\"\xff\"", `"\x"`, `"a\/b"`, `[`, `]`, `[]`, `[ ]`, `[,]`, `[1,]`, `[1 2]`,
	`[1,2]`, `[[[]]]`, `{`, `{}`, `{ }`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":[{"b":{}}],"a":{"c":[]}}`, `[}`, `{]`, `{"a":1}]`, "\ufeff{}", "[1]\x00",
	`{"a" : [ 1 , {"b" : null} ] , "c" : "x" }`, `{"":0}`, `{"a":1,"\u0061":2}`, `1 `, "\v1", "\u00a01", `{"a":tru}`, `{"a":"` + strings.Repeat(`\\`, 9) + `"}`,
	`{"é":1,"\u00e9":2,"` + "\xff" + `":3,"\ufffd":4}`, `{"msgType":1008,"a":{"b":[1,"2",null,true,{"c":1e5}]}}`,
}

// FuzzJSON holds the scanner to encoding/json: the same texts are JSON, and they mean the same.
func FuzzJSON(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add(s)
	}
	f.Add(wide(maxIndex) + " ")
	f.Add(wide(maxIndex + 1))
	f.Fuzz(func(t *testing.T, s string) {
		members, valid := validJSON(s, nil)
		if want := json.Valid([]byte(s)); valid != want {
			t.Fatalf("valid: %v, want %v", valid, want)
		}
		if !valid || strings.Count(s, "[")+strings.Count(s, "{") > 500 { // reading each level anew takes the square of them
			return
		}
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		var want any
		if err := d.Decode(&want); err != nil {
			t.Fatal(err)
		}
		v := fromJSON(strings.Trim(s, jsonSpace))
		st := &state{work: 1 << 62}
		if got := st.decode(t, v); !reflect.DeepEqual(want, got) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
		object, ok := want.(map[string]any)
		if !ok {
			return
		}
		v.outer, st.members = members != nil, members
		for name, want := range object {
			if !utf8.ValidString(name) {
				t.Fatal("encoding/json gives an invalid name")
			}
			for _, v.outer = range []bool{false, v.outer} {
				got, ok, err := st.member(v, name)
				if err != nil || !ok {
					t.Fatalf("member %q: %v, %v", name, ok, err)
				}
				if got := st.decode(t, got); !reflect.DeepEqual(want, got) {
					t.Fatalf("member %q: got %v\nwant %v", name, got, want)
				}
			}
		}
		if _, ok, err := st.member(v, "no such member of any seed"); ok && object["no such member of any seed"] == nil || err != nil {
			t.Fatal(ok, err)
		}
	})
}

func TestNestingIsBoundedAsInEncodingJSON(t *testing.T) {
	for _, depth := range []int{1, 63, 64, 65, 9_999, 10_000, 10_001, 20_000} {
		for _, s := range []string{
			strings.Repeat("[", depth) + strings.Repeat("]", depth),
			strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth),
			strings.Repeat(`[{"a":`, depth/2) + strings.Repeat("}]", depth/2) + "x",
			strings.Repeat(`[{"a":`, depth/2) + "0" + strings.Repeat("}]", depth/2),
			strings.Repeat(`[{"a":`, depth/2) + "0" + strings.Repeat("]}", depth/2),
		} {
			if _, valid := validJSON(s, nil); valid != json.Valid([]byte(s)) {
				t.Errorf("%.20s, %d deep: %v", s, depth, valid)
			}
		}
	}
}

// decode builds what encoding/json would, by the steps that expressions take.
func (s *state) decode(t *testing.T, v value) any {
	switch v.kind {
	case kindBool:
		return v.yes
	case kindNumber:
		return json.Number(v.text)
	case kindString:
		text, err := s.str(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	case kindArray:
		list := []any{}
		if err := s.each(v, func(i int, e value) (bool, error) {
			if again, ok, err := s.element(v, int64(i)); i < 8 && (!ok || err != nil || again.text != e.text) {
				t.Fatalf("element %d: %v, %v", i, ok, err)
			}
			list = append(list, s.decode(t, e))
			return false, nil
		}); err != nil {
			t.Fatal(err)
		}
		return list
	case kindObject:
		members, err := s.distinct(v)
		if err != nil {
			t.Fatal(err)
		}
		object := map[string]any{}
		for name, text := range members {
			object[name] = s.decode(t, fromJSON(text))
		}
		return object
	}
	return nil
}

// FuzzNumber holds the decimals to math/big's rationals.
func FuzzNumber(f *testing.F) {
	for _, s := range []string{"0", "-0", "1", "-1.5", "1e5", "1.50e-3", "123456789012345678", "1234567890123456789", "9223372036854775809", "0.1", "100", "1e20", "1e21", "1e-7", "0.000001", "99999999999999999999999999.5"} {
		f.Add(s, "0.3")
		f.Add("7", s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if scanNumber(a, 0) != len(a) || scanNumber(b, 0) != len(b) || len(a) > 60 || len(b) > 60 {
			return
		}
		var x, y apd.Decimal
		if parseNumber(a, &x) != nil || parseNumber(b, &y) != nil {
			if !strings.ContainsAny(a+b, "eE") {
				t.Fatal("refused without an exponent")
			}
			return
		}
		if x.Exponent > 400 || x.Exponent < -400 || y.Exponent > 400 || y.Exponent < -400 {
			return
		}
		p, q := rational(t, a), rational(t, b)
		if x.Cmp(&y) != p.Cmp(q) {
			t.Fatalf("%s compared with %s is %d", a, b, x.Cmp(&y))
		}
		if got := rational(t, formatNumber(&x)); got.Cmp(p) != 0 {
			t.Fatalf("%s is written %s", a, formatNumber(&x))
		}
		if (x.Cmp(&y) == 0) != (formatNumber(&x) == formatNumber(&y)) {
			t.Fatalf("%s is written %s, %s %s", a, formatNumber(&x), b, formatNumber(&y))
		}
		if integral(&x) != p.IsInt() {
			t.Fatalf("%s integral: %v", a, integral(&x))
		}
		for _, op := range []string{"+", "-", "*", "%"} {
			d, err := arithmetic(op, &x, &y)
			if err != nil {
				if op == "%" && q.Sign() == 0 || errors.Is(err, errRange) && strings.ContainsAny(a+b, "eE") {
					continue
				}
				t.Fatalf("%s %s %s: %v", a, op, b, err)
			}
			want := new(big.Rat)
			switch op {
			case "+":
				want.Add(p, q)
			case "-":
				want.Sub(p, q)
			case "*":
				want.Mul(p, q)
			case "%":
				quotient := new(big.Rat).Quo(p, q)
				whole := new(big.Int).Quo(quotient.Num(), quotient.Denom())
				want.Sub(p, new(big.Rat).Mul(q, new(big.Rat).SetInt(whole)))
			}
			if got := rational(t, formatNumber(d)); got.Cmp(want) != 0 {
				t.Fatalf("%s %s %s is %s", a, op, b, formatNumber(d))
			}
		}
		if rational(t, a).Cmp(p) != 0 || parseNumber(a, new(apd.Decimal)) != nil {
			t.Fatal("an operand has changed")
		}
	})
}

func rational(t *testing.T, s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		t.Fatalf("not a number: %s", s)
	}
	return r
}

// FuzzEval looks for a panic, an endless evaluation, an answer together with an error, an answer that changes, and an error of several lines
// or with what was pushed in it.
func FuzzEval(f *testing.F) {
	sources := []string{
		`body.msgType == 1008`, `body?.a.b == 1 || headers["X"] == "a"`, `(body.a.b ?? 1) in [1, "2", nil]`, `any(body.l, .x > #index)`, `"a" in body`, `map(body.l, # + 1)[0] % 3 == 0`,
		`let a = body.a; a == body && len(split(a, ",")) == 2`, `body == body`, `int(body.a) < float("1.5")`, `body.l[-1] == .5`, `body matches "^a+"`, `query.a + string(size) == trim(upper(body))`,
		`1 < body < 2 ? body.x : not body`, `if body {true} else {false}`, `body | filter(#) | len() == 0`, `count(filter(body, # != nil), {let x = #; one(body, # == x)}) >= 1e3`,
	}
	for i, source := range sources {
		for j := i; j < len(jsonSeeds); j += len(sources) {
			f.Add(source, jsonSeeds[j], "a=b&c")
		}
		f.Add(source, `{"a":"1,2","l":[{"x":1},2],"msgType":1008}`, "a=%zz")
	}
	f.Fuzz(func(t *testing.T, source, body, query string) {
		p, err := Compile(source)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("several lines: %q", err)
			}
			return
		}
		in := Input{Body: []byte(body), Header: map[string][]string{"X": {query}}, RawQuery: query, ContentType: query, Size: int64(len(body))}
		first := answer(p.Eval(in))
		if again := answer(p.Eval(in)); again != first {
			t.Fatalf("first %s, then %s", first, again)
		}
		other := answer(mustCompile(t, source).Eval(in))
		if other != first {
			t.Fatalf("first %s, another program %s", first, other)
		}
		if strings.HasPrefix(first, "true together") || strings.ContainsAny(first, "\n\r") || len(first) > 1000 {
			t.Fatalf("%q", first)
		}
		if string(in.Body) != body {
			t.Fatal("the body has changed")
		}
	})
}
