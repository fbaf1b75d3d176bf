package expression

import (
	"errors"
	"strings"
	"testing"
)

func TestCompileRefuses(t *testing.T) {
	const functions = "all, any, count, filter, float, int, len, lower, map, none, one, split, string, trim, upper"
	const convert = "int(…) makes a number of a string, quotes a string of a number"
	for _, c := range []struct{ source, want string }{
		{``, `1:1: the expression is empty`},
		{"  \n ", `1:1: the expression is empty`},
		{"\xff", `1:1: the expression is not UTF-8`},
		{strings.Repeat(" ", 16<<10) + "true", `1:1: the expression is longer than 16384 bytes`},
		{strings.Repeat("not ", 4000) + "true", ""},
		{"1" + strings.Repeat("+1", 8000) + "==1", `1:10002: compilation failed: expression exceeds maximum allowed nodes`},
		{`body.x ==`, `1:9: unexpected token EOF`},
		{"body.\nx == (", `2:6: unexpected token EOF`},
		{"body.é == bdy.x", `1:11: unknown name "bdy"; known are body, body_hash, headers, query, content_type and size`},
		{`$env.body == 1`, `1:1: unknown name "$env"; known are body, body_hash, headers, query, content_type and size`},
		{`body.x 1008`, `1:8: unexpected number 1008`},
		{`body.x = 1`, `1:8: unexpected token Operator("=")`},
		{`body.x ?? 1 == 2`, `1:13: Operator (==) and coalesce expressions (??) cannot be mixed. Wrap either by parentheses.`},

		{`size`, `1:1: the expression yields a number; it must yield true or false`},
		{`nil`, `1:1: the expression yields nil; it must yield true or false`},
		{`[1]`, `1:1: the expression yields an array; it must yield true or false`},
		{`size > 1 ? 1 : "2"`, `1:1: the expression yields a number or a string; it must yield true or false`},
		{`size > 1 ? 1 : true`, ""}, // may yield a boolean; else it is an error of Eval

		{`1 == "1"`, `1:3: a number is compared with a string, which never can be evaluated; ` + convert},
		{`headers["X"] == 5`, `1:14: a string is compared with a number, which never can be evaluated; ` + convert},
		{`size < "5"`, `1:6: a number is compared with a string, which never can be evaluated; ` + convert},
		{`"a" + 1 == "a1"`, `1:5: a number is added to a string, which never can be evaluated; ` + convert},
		{`not body.x == 1`, `1:12: a boolean is compared with a number, which never can be evaluated; write not (a == b), or a != b`},
		{`true < false`, `1:1: a boolean is used with <`},
		{`nil < 1`, `1:1: nil is used with <`},
		{`size && true`, `1:1: size is a number, used as true or false`},
		{`true || 5`, `1:9: a number is used as true or false`},
		{`not 5`, `1:1: a number is used as true or false`},
		{`-"a" == 1`, `1:1: a string is used in arithmetic`},
		{`headers.X-Y == "a"`, `1:10: a name with a minus sign is written headers["X-Name"]`},
		{`size contains "1"`, `1:1: size is a number, used with contains`},
		{`headers.a.b == 1`, `1:11: headers.a is a string, asked for a member`},
		{`headers[1] == 1`, `1:9: a number is used as a name in headers`},
		{`body.x[true] == 1`, `1:8: a boolean is used as the name or the position of a member`},
		{`5 in headers`, `1:1: a number is looked up in headers`},
		{`"a" in "abc"`, `1:8: a string is used on the right of in, which wants an array or an object`},
		{`len(5) == 1`, `1:1: a number is used with len`},
		{`int(true) == 1`, `1:1: a boolean is used with int`},

		{`headers == 1`, `1:1: headers is used with a name: headers["name"], or "name" in headers`},
		{`len(query) == 1`, `1:5: query is used with a name: query["name"], or "name" in query`},
		{`body.x / 2 == 1`, `1:8: there is no division, whose result may not be exact; multiply the other side instead`},
		{`2 ** 3 == 8`, `1:3: the operator ** is not available`},
		{`2 ^ 3 == 8`, `1:3: the operator ^ is not available`},
		{`body.x in 1..3`, `1:12: ranges are not available; write x >= 1 && x <= 9`},
		{`any(map(1..10000000, # * 2), # == 1)`, `1:10: ranges are not available; write x >= 1 && x <= 9`},
		{`body.x[1:2] == "a"`, `1:7: slices are not available; use startsWith, endsWith, split or an index`},
		{`{"a":1} == body`, `1:1: maps are not available`},
		{`b"abc" == body`, `1:1: byte strings are not available; write it without the b`},
		{`true; false`, `1:1: several expressions are not available; join them with && or ||`},
		{`now() > 1`, `1:1: the function now is not available; available are ` + functions},
		{`foo(1)`, `1:1: the function foo is not available; available are ` + functions},
		{`body | foo()`, `1:8: the function foo is not available; available are ` + functions},
		{`sum(body.x) == 1`, `1:1: the function sum is not available; available are ` + functions},
		{`body.foo()`, `1:6: methods are not available; the functions are ` + functions},
		{`len(1, 2) == 1`, `1:1: the function len takes 1 arguments, not 2`},
		{`trim() == ""`, `1:1: the function trim takes 1 or 2 arguments, not 0`},
		{`count(body.x) == 1`, `1:1: the function count takes 2 arguments, not 1`},
		{`any(body.x)`, `1:11: expected at least 2 arguments`},
		{`any(body.x, 5)`, `1:13: a number is used as true or false`},
		{`any(body.x, #acc == 1)`, `1:13: #acc is not available; only # and #index are`},
		{`let body = 1; true`, `1:5: body cannot be declared anew`},
		{`let a = 1; let a = 2; true`, `1:16: a is declared already`},

		{`body.s matches body.t`, `1:21: the pattern of matches must be a string literal`},
		{`body.s matches 5`, `1:16: the pattern of matches must be a string literal`},
		{`body.s matches "("`, "1:16: the pattern is not a regular expression: missing closing ): `(`"},
		{`body.s matches "` + strings.Repeat("[a-z]{1000}", 11) + `"`, `1:16: the pattern is too large`},

		{`body.x == 1e1000000000`, `1:11: the literal is out of range for a number`},
		{`body.x == 1e-1000000000`, `1:11: the literal is out of range for a number`},
		{`body.x == 0x` + strings.Repeat("F", 9000), `1:11: the literal is out of range for a number`},
		{`body.x == 1e`, `1:11: the literal is not the text of a number`},
		{`body.x == 0x1.8`, `1:11: the literal is not the text of a number`},
		{`body.x == 0x`, `1:11: the literal is not the text of a number`},
		{`body.x == 0b2`, `1:13: bad number syntax: "0b2"`},
		{`1abc`, `1:2: bad number syntax: "1a"`},
		// Numbers that touch what stands beside them must not run together with it.
		{`body.x == 1.5.5`, `1:14: unexpected number .5`},
		{`body.x == 1e5.5`, `1:11: a number is not set apart from what stands beside it`},
		{`x.5`, `1:2: unexpected number .5`},
	} {
		_, err := Compile(c.source)
		if c.want == "" {
			if err != nil {
				t.Errorf("Compile(%.60s): %v", c.source, err)
			}
			continue
		}
		var refused *CompileError
		if !errors.As(err, &refused) || err.Error() != c.want {
			t.Errorf("Compile(%.60s):\n got %v\nwant %s", c.source, err, c.want)
		}
	}
}

func TestACompiledTreeStaysSmall(t *testing.T) {
	// The parser hands out b twice in a < b < c: nested, that doubles with each level.
	source := "1"
	for range 40 {
		source = "1 < (" + source + " < 2 ? 1 : 0) < 3 ? 1 : 0"
	}
	if _, err := Compile(source + " == 1"); err == nil || !strings.Contains(err.Error(), "more than 10000 parts") {
		t.Errorf("got %v", err)
	}
}

// No source, however it is nested, exhausts the stack or the patience of the one who starts the program.
func TestDeeplyNestedSources(t *testing.T) {
	for _, part := range []string{"(", "[", "-", "not ", "any(", "body[", "true ? ", "if true {", "let a = ", "{", "body?.", "1 < (", "(1 ?? "} {
		source := strings.Repeat(part, maxSource/len(part)-1)
		if _, err := Compile(source + "1"); err == nil {
			t.Errorf("%s…: no error", part)
		}
	}
	closed := strings.Repeat("(", 8000) + "true" + strings.Repeat(")", 8000)
	if ok, err := mustCompile(t, closed).Eval(Input{}); !ok || err != nil {
		t.Error(ok, err)
	}
}

func TestUsesBody(t *testing.T) {
	for source, want := range map[string]bool{
		`true`:                           false,
		`headers["body"] == "body"`:      false,
		`size > 1`:                       false,
		`body.x == 1`:                    true,
		`size > 1 || any(body, # == 1)`:  true,
		`headers[body.h] == "x"`:         true,
		`let x = query.a; x == body`:     true,
		`"a" in body`:                    true,
		`query.body == "" && size > 100`: false,
	} {
		p, err := Compile(source)
		if err != nil {
			t.Errorf("Compile(%s): %v", source, err)
			continue
		}
		if p.UsesBody() != want {
			t.Errorf("UsesBody of %s is %v", source, p.UsesBody())
		}
	}
}
