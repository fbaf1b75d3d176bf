package expression

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func mustCompileKey(t testing.TB, source string) *Key {
	t.Helper()
	k, err := CompileKey(source)
	if err != nil {
		t.Fatalf("CompileKey(%s): %v", source, err)
	}
	return k
}

// keyOf returns the key, or the error's text after "!".
func keyOf(k *Key, in Input) string {
	key, err := k.Eval(in)
	switch {
	case err != nil && key != nil:
		return "a key together with an error"
	case err != nil:
		return "!" + err.Error()
	case len(key) == 0 || len(key) > MaxKey:
		return fmt.Sprintf("a key of %d bytes", len(key))
	}
	return string(key)
}

// Each line holds values that are one key; all lines differ from each other.
func TestKeysAreTheSameOnlyForEqualValues(t *testing.T) {
	lines := [][]string{
		{`1`, `1.0`, `1e0`, `10e-1`, `0.1E1`, `1.000`},
		{`0`, `-0`, `0.0`, `0e5`},
		{`-1`, `-1.0`},
		{`10`, `1e1`},
		{`1e400`, `10e399`},
		{`123456789012345678901234567890`, `123456789012345678901234567890.0`},
		{`123456789012345678901234567891`},
		{`0.1`}, {`0.10000000000000001`},
		{`"1"`, `"\u0031"`}, {`"1.0"`}, {`"n"`},
		{`true`}, {`false`}, {`"true"`}, {`"t"`},
		{`[""]`}, {`["",""]`},
		{`"a"`, `"\u0061"`}, {`["a"]`, `[ "a" ]`}, {`["a","a"]`}, {`"[\"a\"]"`},
		{`["a","bc"]`}, {`["ab","c"]`}, {`["abc"]`}, {`"abc"`}, {`["abc",""]`}, {`["","abc"]`}, {`["a","b","c"]`},
		{`[1,"2"]`, `[1.0,"2"]`}, {`["1","2"]`}, {`["1",2]`}, {`[12]`}, {`[1,2]`}, {`[2,1]`}, {`[true,1]`},
		{`"A:e"`}, {`"a:É"`, `"a:\u00c9"`}, {`"a:E\u0301"`}, {`"a:e"`}, {`"A:É"`}, {`"a:é"`},
		{`"a "`}, {`"a\u0000"`}, {`"\u0000a"`}, {`["a\u0000","b"]`}, {`["a","\u0000b"]`},
		{`"😀"`, `"\ud83d\ude00"`},
	}
	k := mustCompileKey(t, "body.k")
	seen := map[string]string{}
	for _, line := range lines {
		first := ""
		for i, v := range line {
			got := keyOf(k, Input{Body: []byte(`{"k":` + v + `}`)})
			if strings.HasPrefix(got, "!") {
				t.Errorf("%s: %s", v, got)
			}
			if i == 0 {
				if other, twice := seen[got]; twice {
					t.Errorf("%s and %s are one key: %q", v, other, got)
				}
				first, seen[got] = got, v
			} else if got != first {
				t.Errorf("%s is %q, %s is %q", line[0], first, v, got)
			}
		}
	}
}

// A list that is spelled out, one that a variable holds and one that the body brings are the same.
func TestAListIsTheSameFromWhereverItComes(t *testing.T) {
	in := Input{Body: []byte(`{"a":"x","b":2,"l":["x",2.0]}`)}
	want := keyOf(mustCompileKey(t, `[body.a, body.b]`), in)
	for _, source := range []string{`body.l`, `let l = [body.a, body.b]; l`, `size >= 0 ? body.l : 1`, `map(body.l, #)`, `[body.a, 2]`} {
		if got := keyOf(mustCompileKey(t, source), in); got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

func TestWhatHasNoKey(t *testing.T) {
	in := Input{
		Body:        []byte(`{"s":"x","empty":"","null":null,"o":{"x":1},"bad":"a` + "\xff" + `","lone":"\ud800","l":["a",null],"deep":[["a"]],"e":[],"n":1e99999,"long":"` + strings.Repeat("x", MaxKey) + `","flags":[` + strings.Repeat("true,", MaxKey) + `true]}`),
		HeaderLines: []byte("Host: h\r\nX-A: 1\r\n"),
		RawQuery:    "q=1",
	}
	for source, want := range map[string]string{
		`body.x`:                 `body.x is missing`,
		`body?.x`:                `body.x is absent, used as a key`,
		`body.null`:              `body.null is null, used as a key`,
		`body.o`:                 `body.o is an object, used as a key`,
		`body`:                   `body is an object, used as a key`,
		`body.bad`:               `body.bad has bytes in it that are no text, used in a key`,
		`body.empty`:             `body.empty is empty, used as a key`,
		`trim(body.empty)`:       `trim(…) is empty, used as a key`,
		`body.lone`:              `body.lone has bytes in it that are no text, used in a key`,
		`body.l`:                 `an element of body.l is null, used as a key`,
		`body.deep`:              `an element of body.deep is an array, used as a key`,
		`body.e`:                 `body.e is an empty array, used as a key`,
		`filter(body.l, # == 1)`: ``,
		`body.n`:                 `body.n is out of range for a number`,
		`body.long`:              `body.long makes the key too long`,
		`body.flags`:             `an element of body.flags makes the key too long`,
		`[body.s, body.x]`:       `body.x is missing`,
		`[body.s, body.null]`:    `body.null is null, used as a key`,
		`[body.s, body.o]`:       `body.o is an object, used as a key`,
		`[body.s, body.l]`:       `body.l is an array, used as a key`,
		`[body.s, [body.s]]`:     `an array is used as a key`,
		`headers["X-B"]`:         `headers["X-B"] is missing`,
		`query.x`:                `query.x is missing`,
		`size >= 0 ? body.o : 1`: `an object is used as a key`,
	} {
		got := keyOf(mustCompileKey(t, source), in)
		if got != "!"+open+want && (want != "" || !strings.HasPrefix(got, "!"+open)) {
			t.Errorf("%s:\n got %s\nwant %s", source, got, want)
		}
	}
	for _, body := range []string{``, `x`, `{"k":1}x`, "\xff"} {
		if got := keyOf(mustCompileKey(t, `body.k`), Input{Body: []byte(body)}); !strings.HasPrefix(got, "!"+open+"body is ") {
			t.Errorf("%s: %s", body, got)
		}
	}
}

func TestCompileKeyRefuses(t *testing.T) {
	for source, want := range map[string]string{
		``:            `1:1: the expression is empty`,
		`body.`:       `1:5: unexpected end of expression`,
		`nil`:         `1:1: the expression yields nil; a key is a string, a number, a boolean, or a list of these`,
		`"x"`:         `1:1: the expression yields the same key for every push`,
		`1`:           `1:1: the expression yields the same key for every push`,
		`["a", 1]`:    `1:1: the expression yields the same key for every push`,
		`customer.id`: `1:1: unknown name "customer"; known are body, body_hash, headers, query, content_type and size`,
		`headers`:     `1:1: headers is used with a name: headers["name"], or "name" in headers`,
	} {
		if _, err := CompileKey(source); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", source, err, want)
		}
	}
}

func TestBodyHash(t *testing.T) {
	k := mustCompileKey(t, `body_hash`)
	const empty, abc = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	for body, want := range map[string]string{"": empty, "abc": abc} {
		if got := keyOf(k, Input{Body: []byte(body)}); got != "s\x40"+want {
			t.Errorf("%s: %q", body, got)
		}
	}
	p := mustCompile(t, `body_hash == "`+abc+`" && body_hash == body_hash && len(body_hash) == 64`)
	if holds, err := p.Eval(Input{Body: []byte("abc")}); !holds || err != nil {
		t.Error(holds, err)
	}
	if holds, err := p.Eval(Input{Body: []byte("abd")}); holds || err != nil { // on a state that was used before
		t.Error(holds, err)
	}
}

// Headers as net/http has them and as they are kept are the same to an expression.
func TestHeaderLines(t *testing.T) {
	header := http.Header{"X-A": {"1", "2"}, "X-B": {"a: b"}, "X-Empty": {""}, "Host": {"h"}}
	lines := []byte("Host: h\r\nX-A: 1\r\nX-A: 2\r\nX-B: a: b\r\nX-Empty: \r\n")
	for _, source := range []string{`headers["x-a"]`, `headers["X-B"]`, `headers["X-Empty"]`, `headers.Host`, `headers["X"]`, `headers["A"]`, `headers["X-A: 1\r\nX-A"]`, `["X-A" in headers, "X" in headers]`, `headers[""]`} {
		k := mustCompileKey(t, source)
		a, b := keyOf(k, Input{Header: header}), keyOf(k, Input{HeaderLines: lines})
		if a != b {
			t.Errorf("%s: %q from a header, %q from its lines", source, a, b)
		}
	}
}

// Keys are evaluated for each push of a source, and with as much memory as the key takes.
func TestAKeyAllocatesOnlyItself(t *testing.T) {
	k := mustCompileKey(t, `body.source`)
	s := k.program.begin(Input{Body: push()}) // not by Eval: the race detector makes pools forget
	if n := testing.AllocsPerRun(100, func() {
		s.body, s.work = value{}, 1<<30
		if _, err := s.key(k.program.root); err != nil {
			t.Error(err)
		}
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzKey holds keys to what == says of two values: they are the same if and only if it says true.
func FuzzKey(f *testing.F) {
	values := []string{`1`, `1.0`, `"1"`, `"a"`, `["a"]`, `["a","b"]`, `["ab"]`, `[1,"1"]`, `true`, `[true]`, `null`, `{}`, `[]`, `[[1]]`, `"é"`, `"\u00e9"`, `"e\u0301"`, `1e400`, `-0`, `"\ud800"`, "\"\xff\"", `["a\u0000","b"]`}
	for i, v := range values {
		f.Add(v, values[(i+1)%len(values)])
		f.Add(v, v)
	}
	k, both := mustCompileKey(f, "body"), mustCompileKey(f, "[body, size]")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := Input{Body: []byte(a)}, Input{Body: []byte(b)}
		keyX, errX := k.Eval(x)
		keyY, errY := k.Eval(y)
		for _, err := range []error{errX, errY} {
			if err != nil && (!strings.HasPrefix(err.Error(), open) || len(err.Error()) > 300) {
				t.Fatal(err)
			}
		}
		if again, err := k.Eval(x); !bytes.Equal(again, keyX) || (err == nil) != (errX == nil) {
			t.Fatalf("first %q, then %q", keyX, again)
		}
		if errX != nil || errY != nil {
			return
		}
		if len(keyX) == 0 || len(keyX) > MaxKey {
			t.Fatalf("%d bytes", len(keyX))
		}
		s := &state{work: 1 << 62}
		v, err := s.equal(fromJSON(strings.Trim(a, jsonSpace)), fromJSON(strings.Trim(b, jsonSpace)))
		if err != nil {
			t.Fatal(err)
		}
		if equal := v == same; equal != bytes.Equal(keyX, keyY) {
			t.Fatalf("%s and %s: equal is %v, the keys are %q and %q", a, b, equal, keyX, keyY)
		}
		listX, errX := both.Eval(Input{Body: x.Body, Size: 1})
		listY, errY := both.Eval(Input{Body: y.Body, Size: 2})
		if errX == nil && errY == nil && bytes.Equal(listX, listY) {
			t.Fatal("two lists with another last part are one key")
		}
	})
}
