package expression

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// The three answers.
const (
	yes  = "true"
	no   = "false"
	open = "cannot be evaluated: " // and why
)

type evalCase struct {
	source string
	body   string
	want   string // yes, no, or the error's whole text
}

func (c evalCase) run(t *testing.T, in Input) {
	t.Helper()
	p, err := Compile(c.source)
	if err != nil {
		t.Errorf("Compile(%s): %v", c.source, err)
		return
	}
	in.Body = []byte(c.body)
	in.Size = int64(len(c.body))
	for range 2 { // the second time on a state that was used before
		if got := answer(p.Eval(in)); got != c.want {
			t.Errorf("%s on %.80s:\n got %s\nwant %s", c.source, c.body, got, c.want)
		}
	}
}

func answer(holds bool, err error) string {
	switch {
	case err != nil && holds:
		return "true together with an error: " + err.Error()
	case err != nil:
		return err.Error()
	case holds:
		return yes
	}
	return no
}

func TestEval(t *testing.T) {
	in := Input{
		Header:      http.Header{"X-Event": {"order", "second"}, "X-Count": {"7"}, "X-Empty": {""}, "X-None": nil},
		RawQuery:    "kind=a&kind=b&empty=&n=1008&sp=a%20b",
		ContentType: "application/json",
	}
	for name, cases := range map[string][]evalCase{
		"IN-03 what the expression says": {
			{`body.msgType == 1008`, `{"msgType":1008}`, yes},
			{`body.msgType == 1008`, `{"msgType":1009}`, no},
			{`body.msgType != 1008`, `{"msgType":1009}`, yes},
			{`1008 == body.msgType`, `{"msgType":1008}`, yes},
			{`body.a.b.c == "x"`, `{"a":{"b":{"c":"x"}}}`, yes},
			{`body["a b"].c`, `{"a b":{"c":true}}`, yes},
			{`body["a"]["b"] == 1`, `{"a":{"b":1}}`, yes},
			{`body`, `true`, yes},
			{`not body`, ` false `, yes},
			{`body == "x"`, `"x"`, yes},
			{`body[1] == 2`, `[1,2]`, yes},
			{`body.items[0].sku == "A"`, `{"items":[{"sku":"A"},{"sku":"B"}]}`, yes},
			{`body.items[-1].sku == "B"`, `{"items":[{"sku":"A"},{"sku":"B"}]}`, yes},
			{`body.items[body.at] == 5`, `{"items":[4,5],"at":1}`, yes},
			{`body[body.key] == 5`, `{"key":"b","b":5}`, yes},
			{`body.items[1.0] == 5`, `{"items":[4,5]}`, yes},
			{`body.ok ? body.a == 1 : body.b == 1`, `{"ok":true,"a":1}`, yes},
			{`if body.ok { body.a == 1 } else { body.b == 1 }`, `{"ok":false,"b":1}`, yes},
			{`let t = body.t; t == 1 || t == 2`, `{"t":2}`, yes},
			{`let t = body.t; let u = t + 1; u == 3`, `{"t":2}`, yes},
			{`size > 10 and size <= 14`, `{"msgType":1}`, yes},
			{`content_type == "application/json"`, ``, yes},
			{`content_type startsWith "text/"`, ``, no},
			{`1 < body.n < 3`, `{"n":2}`, yes},
			{`1 < body.n < 3`, `{"n":3}`, no},
		},
		"IN-03 a body that is not JSON": {
			{`body.msgType == 1008`, ``, open + `body is empty, not JSON`},
			{`body.msgType == 1008`, " \n", open + `body is empty, not JSON`},
			{`body.msgType == 1008`, `msgType=1008`, open + `body is not JSON`},
			{`body.msgType == 1008`, `{"msgType":1009} x`, open + `body is not JSON`},
			{`body.msgType == 1008`, `{"msgType":1009}{}`, open + `body is not JSON`},
			{`body.msgType == 1008`, `{"msgType":1009`, open + `body is not JSON`},
			{`body.msgType == 1008`, `{"msgType":01009}`, open + `body is not JSON`},
			{`body.msgType == 1008`, "\ufeff{\"msgType\":1009}", open + `body is not JSON`},
			{`body.msgType == 1008`, "{\"msgType\":1009,\"x\":\"\n\"}", open + `body is not JSON`},
			{`body?.msgType == 1008`, `<xml/>`, open + `body is not JSON`},
			{`(body.msgType ?? 1) == 1008`, `<xml/>`, open + `body is not JSON`},
			{`"msgType" in body`, `<xml/>`, open + `body is not JSON`},
			{`body == nil`, `<xml/>`, open + `body is not JSON`},
			{`size == 6`, `<xml/>`, yes},
			{`headers["X-Event"] == "order" || body.x == 1`, `<xml/>`, yes},
			{`headers["X-Event"] == "other" && body.x == 1`, `<xml/>`, no},
		},
		"IN-03 a missing member": {
			{`body.msgType == 1008`, `{}`, open + `body.msgType is missing`},
			{`body.msgType != 1008`, `{}`, open + `body.msgType is missing`},
			{`body.msgType == nil`, `{}`, open + `body.msgType is missing`},
			{`not body.flag`, `{}`, open + `body.flag is missing`},
			{`body.msgtype == 1008`, `{"msgType":1008}`, open + `body.msgtype is missing`},
			{`body.a.b == 1`, `{}`, open + `body.a is missing`},
			{`body.a.b == 1`, `{"a":{}}`, open + `body.a.b is missing`},
			{`body.a.b == 1`, `{"a":null}`, open + `body.a is null, asked for a member`},
			{`body.a.b == 1`, `{"a":5}`, open + `body.a is a number, asked for a member`},
			{`body.a == 1`, `[]`, open + `body is an array, asked for a member by a string`},
			{`body[0] == 1`, `{}`, open + `body is an object, asked for a member by a number`},
			{`body[0] == 1`, `[]`, open + `body[0] is missing`},
			{`body.items[2] == 1`, `{"items":[1,2]}`, open + `body.items[2] is missing`},
			{`body.items[-3] == 1`, `{"items":[1,2]}`, open + `body.items[-3] is missing`},
			{`body.items[9223372036854775808] == 1`, `{"items":[1,2]}`, open + `body.items[9223372036854775808] is missing`},
			{`body.items[1e10000] == 1`, `{"items":[1,2]}`, open + `body.items[1e+10000] is missing`},
			{`body.items[0.5] == 1`, `{"items":[1,2]}`, open + `body.items is asked for an element at a position that is no whole number`},
			{`body["a b"] == 1`, `{}`, open + `body["a b"] is missing`},
			{`body[body.key] == 5`, `{"key":"secret"}`, open + `body[…] is missing`},
			{`body.t in [1, 2]`, `{}`, open + `body.t is missing`},
			{`1 in body.list`, `{}`, open + `body.list is missing`},
			{`len(body.list) == 0`, `{}`, open + `body.list is missing`},
			{`let t = body.t; true`, `{}`, open + `body.t is missing`},
			{`any(body.items, .sku == "A")`, `{"items":[{"sku":"B"},{}]}`, open + `#.sku is missing`},
			{`body.a ? true : false`, `{}`, open + `body.a is missing`},
		},
		"IN-03 a missing member that is excused": {
			{`body?.msgType == 1008`, `{}`, no},
			{`body?.msgType != 1008`, `{}`, yes},
			{`body?.msgType == nil`, `{}`, yes},
			{`body?.msgType == nil`, `{"msgType":null}`, yes},
			{`body?.msgType == 1008`, `{"msgType":1008}`, yes},
			{`body?.msgType == 1008`, `{"msgType":"1008"}`, open + `body.msgType is a string, compared with a number`},
			{`body?.msgType == 1008`, `{"msgType":null}`, open + `body.msgType is null, compared with a number`},
			{`body?.msgType in [1, 2]`, `{}`, no},
			{`body?.msgType in [1, nil]`, `{}`, yes},
			{`body?.a == body?.b`, `{}`, yes},
			{`body?.a == body?.b`, `{"a":1}`, no},
			{`body.a?.b == 1`, `{}`, no},
			{`body.a?.b == 1`, `{"a":null}`, no},
			{`body.a?.b == 1`, `{"a":{}}`, no},
			{`body.a?.b.c == 1`, `{}`, no},
			{`body.a?.b.c == 1`, `{"a":{}}`, open + `body.a.b is absent, asked for a member`},
			{`body.a?.b == 1`, `{"a":[]}`, open + `body.a is an array, asked for a member by a string`},
			{`body.a?.b == 1`, `{"a":7}`, open + `body.a is a number, asked for a member`},
			{`body.items?.[2] == 1`, `{"items":[1,2]}`, no},
			{`body.items?.[0] == 1`, `{"items":[1,2]}`, yes},
			{`body.items?.[0] == 1`, `{}`, no},
			{`body?.n < 5`, `{}`, open + `body.n is absent, compared with a number`},
			{`body?.s contains "x"`, `{}`, open + `body.s is absent, used with contains`},
			{`body?.flag`, `{}`, open + `body.flag is absent, used as true or false`},
			{`(body.msgType ?? 0) == 1008`, `{}`, no},
			{`(body.msgType ?? 0) == 1008`, `{"msgType":1008}`, yes},
			{`(body.msgType ?? 0) == 0`, `{"msgType":null}`, yes},
			{`(body.a.b.c ?? 1) == 1`, `{}`, yes},
			{`(body.a.b.c ?? 1) == 1`, `{"a":null}`, yes},
			{`(body.a.b.c ?? 1) == 1`, `{"a":"x"}`, open + `body.a is a string, asked for a member`},
			{`(body.a ?? body.b ?? 3) == 3`, `{}`, yes},
			{`(body.a ?? body.b) == 3`, `{}`, open + `body.b is missing`},
			{`(body.items[3] ?? 0) == 0`, `{"items":[]}`, yes},
			{`(body.a ?? "x") == 1`, `{}`, open + `body.a ?? … is a string, compared with a number`},
			{`body.a ?? false`, `{}`, no},
			{`(body.a + 1 ?? 5) == 1`, `{}`, open + `body.a is missing`}, // ?? belongs to the 1
			{`"msgType" in body`, `{}`, no},
			{`"msgType" in body`, `{"msgType":null}`, yes},
			{`"msgType" not in body`, `{}`, yes},
			{`not ("a" in body) or body.a == 1`, `{}`, yes},
			{`"b" in body.a`, `{"a":{"b":0}}`, yes},
			{`any(body.items, .sku == "A")`, `{"items":[]}`, no},
		},
		"IN-03 a comparison across JSON types": {
			{`body.msgType == 1008`, `{"msgType":"1008"}`, open + `body.msgType is a string, compared with a number`},
			{`body.msgType != 1008`, `{"msgType":"1008"}`, open + `body.msgType is a string, compared with a number`},
			{`1008 == body.msgType`, `{"msgType":"1008"}`, open + `body.msgType is a string, compared with a number`},
			{`body.msgType == "1008"`, `{"msgType":1008}`, open + `body.msgType is a number, compared with a string`},
			{`body.flag == true`, `{"flag":"true"}`, open + `body.flag is a string, compared with a boolean`},
			{`body.flag == true`, `{"flag":1}`, open + `body.flag is a number, compared with a boolean`},
			{`body.a == body.b`, `{"a":1,"b":"1"}`, open + `body.a is a number, compared with body.b, a string`},
			{`body.n == 0`, `{"n":null}`, open + `body.n is null, compared with a number`},
			{`body.n != 0`, `{"n":null}`, open + `body.n is null, compared with a number`},
			{`body.a == body.b`, `{"a":null,"b":1}`, open + `body.a is null, compared with body.b, a number`},
			{`body.a == body.b`, `{"a":null,"b":null}`, yes},
			{`body.n == nil`, `{"n":null}`, yes},
			{`body.n != nil`, `{"n":null}`, no},
			{`body.n == nil`, `{"n":0}`, no},
			{`nil == body.n`, `{"n":""}`, no},
			{`body.n != nil && body.n == 5`, `{"n":null}`, no},
			{`body.n < 5`, `{"n":"4"}`, open + `body.n is a string, compared with a number`},
			{`5 >= body.n`, `{"n":"4"}`, open + `body.n is a string, compared with a number`},
			{`body.n < 5`, `{"n":null}`, open + `body.n is null, compared with a number`},
			{`body.n < body.m`, `{"n":true,"m":false}`, open + `body.n is a boolean, used with <`},
			{`body.n < body.m`, `{"n":[],"m":[]}`, open + `body.n is an array, used with <`},
			{`body.t in [1007, 1008]`, `{"t":1008}`, yes},
			{`body.t in [1007, 1008]`, `{"t":1009}`, no},
			{`body.t in [1007, 1008]`, `{"t":"1008"}`, open + `body.t is a string, looked up in an array, which holds a number`},
			{`1008 in body.ts`, `{"ts":["1008"]}`, open + `a number is looked up in body.ts, which holds a string`},
			{`1008 in body.ts`, `{"ts":["1008",1008]}`, yes},
			{`1008 in body.ts`, `{"ts":[1008,"1008"]}`, yes},
			{`1008 in body.ts`, `{"ts":[1,null]}`, open + `a number is looked up in body.ts, which holds null`},
			{`1008 in body.ts`, `{"ts":[]}`, no},
			{`body.t in body`, `{"t":5}`, open + `body.t is a number, looked up by name in an object`},
			{`"a" in body.s`, `{"s":"abc"}`, open + `body.s is a string, used on the right of in`},
			{`body.s contains "b"`, `{"s":"abc"}`, yes},
			{`body.s contains "b"`, `{"s":["b"]}`, open + `body.s is an array, used with contains`},
			{`body.s startsWith "1"`, `{"s":1008}`, open + `body.s is a number, used with startsWith`},
			{`body.s endsWith "8"`, `{"s":null}`, open + `body.s is null, used with endsWith`},
			{`"abc" endsWith body.s`, `{"s":null}`, open + `body.s is null, used with endsWith`},
			{`body.s not contains "b"`, `{"s":7}`, open + `body.s is a number, used with contains`},
			{`body.s matches "^10\\d+$"`, `{"s":"1008"}`, yes},
			{`body.s matches "^10\\d+$"`, `{"s":1008}`, open + `body.s is a number, used with matches`},
			{`not body.flag`, `{"flag":"false"}`, open + `body.flag is a string, used as true or false`},
			{`body.flag && true`, `{"flag":1}`, open + `body.flag is a number, used as true or false`},
			{`true && body.flag`, `{"flag":1}`, open + `body.flag is a number, used as true or false`},
			{`body.flag ? true : false`, `{"flag":null}`, open + `body.flag is null, used as true or false`},
			{`body.flag`, `{"flag":"yes"}`, open + `body.flag is a string, used as true or false`},
			{`body`, `{}`, open + `body is an object, used as true or false`},
			{`body.a + 1 == 2`, `{"a":"1"}`, open + `body.a is a string, added to a number`},
			{`body.a - 1 == 2`, `{"a":"1"}`, open + `body.a is a string, used in arithmetic`},
			{`-body.a == -1`, `{"a":"1"}`, open + `body.a is a string, used in arithmetic`},
			{`body.a + body.b == 2`, `{"a":true,"b":true}`, open + `body.a is a boolean, used with +`},
		},
		"arrays and objects compare deeply": {
			{`body.a == body.b`, `{"a":[1,{"x":"y"}],"b":[1.0,{"x":"\u0079"}]}`, yes},
			{`body.a == [1, 2]`, `{"a":[1,2]}`, yes},
			{`body.a == [1, 2]`, `{"a":[1,2,"3"]}`, no},
			{`body.a == [1, 2]`, `{"a":[1,"2"]}`, open + `body.a holds a value of another type than what it is compared with`},
			{`body.a == [1, 2]`, `{"a":[0,"2"]}`, open + `body.a holds a value of another type than what it is compared with`},
			{`body.a == [1, nil]`, `{"a":[1,null]}`, yes},
			{`body.a == [1, nil]`, `{"a":[1,5]}`, no},
			{`body.a == []`, `{"a":[]}`, yes},
			{`body.a == body.b`, `{"a":{"x":1,"y":2},"b":{"y":2,"x":1}}`, yes},
			{`body.a == body.b`, `{"a":{"x":1,"x":2},"b":{"x":2}}`, yes},
			{`body.a == body.b`, `{"a":{"x":1},"b":{"x":2}}`, no},
			{`body.a == body.b`, `{"a":{"x":1},"b":{"y":1}}`, no},
			{`body.a == body.b`, `{"a":{"x":1},"b":{"x":1,"y":1}}`, no},
			{`body.a == body.b`, `{"a":{"x":1},"b":{"x":"1"}}`, open + `body.a holds a value of another type than what it is compared with`},
			{`body.a == body.b`, `{"a":{"x":1,"y":1},"b":{"x":"1","y":2}}`, open + `body.a holds a value of another type than what it is compared with`},
			{`body.a == body.b`, `{"a":{},"b":[]}`, open + `body.a is an object, compared with body.b, an array`},
			{`[1, 2] in body.a`, `{"a":[[1,3],[1,2]]}`, yes},
			{`body.a == 1`, `{"a":[1]}`, open + `body.a is an array, compared with a number`},
		},
		"numbers are exact": {
			{`0.1 + 0.2 == 0.3`, ``, yes},
			{`body.a + body.b == 0.3`, `{"a":0.1,"b":0.2}`, yes},
			{`body.n == 9007199254740993`, `{"n":9007199254740993}`, yes},
			{`body.n == 9007199254740993`, `{"n":9007199254740992}`, no},
			{`body.n == 9007199254740993.0`, `{"n":9007199254740992}`, no},
			{`body.n == 9223372036854775809`, `{"n":9223372036854775809}`, yes}, // 2^63+1
			{`body.n == 9223372036854775809`, `{"n":9223372036854775808}`, no},
			{`body.n == -9223372036854775809`, `{"n":-9223372036854775809}`, yes},
			{`body.n == 1`, `{"n":1.0}`, yes},
			{`body.n == 1`, `{"n":10e-1}`, yes},
			{`body.n == 1`, `{"n":1E0}`, yes},
			{`body.n == 1`, `{"n":1.00000000000000000000000000000000000001}`, no},
			{`body.n == 100`, `{"n":1e2}`, yes},
			{`body.n == 0`, `{"n":-0}`, yes},
			{`body.n == 0`, `{"n":-0.0e5}`, yes},
			{`body.n == 0`, `{"n":0e1000000000}`, yes},
			{`body.n == 1e400`, `{"n":1e400}`, yes},
			{`body.n == 1e400`, `{"n":1e401}`, no},
			{`body.n > 1e400`, `{"n":1.1e400}`, yes},
			{`body.n > 1e-400`, `{"n":0}`, no},
			{`body.n == 0.1`, `{"n":0.1}`, yes},
			{`body.n == .1`, `{"n":0.1}`, yes},
			{`body.n == 0.1`, `{"n":0.1000000000000000055511151231257827}`, no},
			{`body.n == 1_000`, `{"n":1000}`, yes},
			{`body.n == 0x1F`, `{"n":31}`, yes},
			{`body.n == 0b11 && body.m == 0o17`, `{"n":3,"m":15}`, yes},
			{`body.n == 010`, `{"n":10}`, yes},
			{`body.n == 0xFFFFFFFFFFFFFFFFFF`, `{"n":4722366482869645213695}`, yes},
			{`body.n % 3 == 1`, `{"n":10}`, yes},
			{`body.n % 3 == -1`, `{"n":-10}`, yes},
			{`body.n % 0.3 == 0.1`, `{"n":1}`, yes},
			{`body.n % 0 == 0`, `{"n":1}`, open + `the result of % is a remainder of a division by zero`},
			{`body.n * body.n == 81129638414606663681390495662081`, `{"n":9007199254740991}`, yes},
			{`body.n * body.n == 81129638414606663681390495662081`, `{"n":9007199254740993}`, no},
			{`body.n * 3 - 1 == 0.5`, `{"n":0.5}`, yes},
			{`-body.n == 5 && +body.n == -5`, `{"n":-5}`, yes},
			{`size + 1 == 9`, `{"n":-5}`, yes},
			{`body.n == 1`, `{"n":1e1000000000}`, open + `body.n is out of range for a number`},
			{`body.n == 1`, `{"n":1e-1000000000}`, open + `body.n is out of range for a number`},
			{`body.n < 1`, `{"n":-1e99999999999999999999999999}`, open + `body.n is out of range for a number`},
			{`1 == body.n`, `{"n":1` + strings.Repeat("0", 20000) + `}`, open + `body.n is out of range for a number`},
			{`body.n == body.m`, `{"n":1e1000000000,"m":1e1000000000}`, open + `body.n or body.m is out of range for a number`},
			{`body.m == 1`, `{"n":1e1000000000,"m":1}`, yes},
			{`body.n + 1e-5000 > 0`, `{"n":1e5000}`, open + `the result of + is out of range for a number`},
			{`body.n * body.n > 0`, `{"n":1e9000}`, open + `the result of * is out of range for a number`},
			{`body.n + 0 == 1e9000`, `{"n":1e9000}`, yes},
			{`0 - body.n == -1e9000`, `{"n":1e9000}`, yes},
		},
		"strings are what encoding/json reads": {
			{`body.s == "a\u0000b"`, `{"s":"a\u0000b"}`, yes},
			{`body.s == "é"`, `{"s":"\u00e9"}`, yes},
			{`body.s == "é"`, `{"s":"é"}`, yes},
			{`body.s == "😀"`, `{"s":"\ud83d\ude00"}`, yes},
			{`body.s == "x\ufffd"`, `{"s":"x\ud800"}`, yes},
			{`body.s == "x\ufffd"`, "{\"s\":\"x\xff\"}", yes},
			{`body.s == "x"`, "{\"s\":\"x\",\"t\":\"\xff\xfe\"}", yes},
			{`body["\ufffd"] == 1`, "{\"\xff\":1}", yes},
			{`body["a/b"] == 1`, `{"a\/b":1}`, yes},
			{`body["\\n"] == 1`, `{"\n":1}`, open + `body["\\n"] is missing`},
			{`body["\\n"] == 1`, `{"\\n":1}`, yes},
			{`body.é == 1`, `{"\u00e9":1}`, yes},
			{`body.a == 2`, `{"a":1,"a":2}`, yes},
			{`body.a == 2`, `{"a":1,"\u0061":2}`, yes},
			{`body.o.a == 2`, `{"o":{"a":1,"a":2}}`, yes},
			{`body[""] == 1`, `{"":1}`, yes},
			{`"b" < "c" && body.s < "b"`, `{"s":"a"}`, yes},
			{`body.s + "!" == "a!"`, `{"s":"a"}`, yes},
			{`"it's" == 'it\'s'`, ``, yes},
		},
		"deep and wide bodies": {
			{`body.x == 1`, `{"d":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `,"x":1}`, yes},
			{`body.x == 1`, `{"d":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `,"x":1}`, open + `body is not JSON`},
			{`body.x == 1`, strings.Repeat("[", 100_000), open + `body is not JSON`},
			{`body.k63 == 1 && body.k0 == 0`, wide(64), yes},
			{`body.k64 == 1 && body.k0 == 0`, wide(65), yes},
			{`body.k199 == 1 && body.k0 == 0`, wide(200), yes},
			{`body.k200 == 1`, wide(200), open + `body.k200 is missing`},
			{`len(body) == 200`, wide(200), yes},
		},
		"headers and query": {
			{`headers["X-Event"] == "order"`, ``, yes},
			{`headers["x-event"] == "order"`, ``, yes},
			{`headers["X-" + "Event"] == "order"`, ``, yes},
			{`headers["X-Empty"] == ""`, ``, yes},
			{`headers["X-Missing"] == "a"`, ``, open + `headers["X-Missing"] is missing`},
			{`headers["X-None"] == "a"`, ``, open + `headers["X-None"] is missing`},
			{`headers.Host == "a"`, ``, open + `headers.Host is missing`},
			{`headers?.Host == "a"`, ``, no},
			{`headers?.["X-Missing"] == "a"`, ``, no},
			{`(headers["X-Missing"] ?? "none") == "none"`, ``, yes},
			{`"X-Event" in headers`, ``, yes},
			{`"x-none" in headers`, ``, no},
			{`int(headers["X-Count"]) == 7`, ``, yes},
			{`headers[body.h] == "order"`, `{"h":"x-event"}`, yes},
			{`headers[body.h] == "order"`, `{"h":1}`, open + `body.h is a number, used as a name in headers`},
			{`query.kind == "a"`, ``, yes},
			{`query["kind"] == "b"`, ``, no},
			{`query.empty == ""`, ``, yes},
			{`query.sp == "a b"`, ``, yes},
			{`query.Kind == "a"`, ``, open + `query.Kind is missing`},
			{`query?.x == "a"`, ``, no},
			{`"kind" in query`, ``, yes},
			{`"x" in query`, ``, no},
			{`int(query.n) == 1008`, ``, yes},
		},
		"IN-03 and and or stop as soon as they are decided": {
			{`false && body.x == 1`, `{}`, no},
			{`true || body.x == 1`, `{}`, yes},
			{`body.x == 1 && false`, `{}`, open + `body.x is missing`},
			{`body.x == 1 || true`, `{}`, open + `body.x is missing`},
			{`false or body.x == 1`, `{}`, open + `body.x is missing`},
			{`"x" in body && body.x == 1`, `{}`, no},
			{`body.kind == "a" && body.a.n == 1 || body.kind == "b" && body.b.n == 1`, `{"kind":"b","b":{"n":1}}`, yes},
		},
		"functions": {
			{`all(body.l, # > 1)`, `{"l":[2,3]}`, yes},
			{`all(body.l, # > 1)`, `{"l":[1,"x"]}`, no},
			{`all(body.l, # > 1)`, `{"l":[2,"x"]}`, open + `# is a string, compared with a number`},
			{`all(body.l, # > 1)`, `{"l":[]}`, yes},
			{`all(body.l, # > 1)`, `{"l":{}}`, open + `body.l is an object, used with all`},
			{`all(body.l, #)`, `{"l":[1]}`, open + `# is a number, used as true or false`},
			{`any(body.l, .a == 1)`, `{"l":[{"a":0},{"a":1},{}]}`, yes},
			{`any(body.l, #.a == 1)`, `{"l":[{"a":0}]}`, no},
			{`any(body.l, {let a = .a; a == 1})`, `{"l":[{"a":1}]}`, yes},
			{`any(body.l, any(.m, # == 1))`, `{"l":[{"m":[]},{"m":[0,1]}]}`, yes},
			{`any(body.l, {let outer = #; any(body.m, # == outer)})`, `{"l":[1,2],"m":[2]}`, yes},
			{`any(body.l, #index == 1 && # == "b")`, `{"l":["a","b"]}`, yes},
			{`any(body.l ?? [], # == 1)`, `{}`, no},
			{`any([nil, 1], # == nil)`, ``, yes},
			{`none(body.l, # == 1)`, `{"l":[2,3]}`, yes},
			{`one(body.l, # == 1)`, `{"l":[1,1]}`, no},
			{`one(body.l, # == 1)`, `{"l":[2,1]}`, yes},
			{`count(body.l, # == 1) == 2`, `{"l":[1,2,1]}`, yes},
			{`len(filter(body.l, # > 1)) == 2`, `{"l":[1,2,3]}`, yes},
			{`map(body.l, .a) == [1, 2]`, `{"l":[{"a":1},{"a":2}]}`, yes},
			{`"B" in map(body.l, upper(#))`, `{"l":["a","b"]}`, yes},
			{`filter(body.l, # > 1)[0] == 2`, `{"l":[1,2,3]}`, yes},
			{`filter(body.l, # > 9)[0] == 2`, `{"l":[1,2,3]}`, open + `filter(…)[0] is missing`},
			{`filter(body.l, # > 1)[-1] == 3`, `{"l":[1,2,3]}`, yes},
			{`body.l | filter(# > 1) | len() == 2`, `{"l":[1,2,3]}`, yes},
			{`any(body.l, let outer = #; any(body.m, # == outer))`, `{"l":[1,2],"m":[2]}`, yes},
			{`(body.l | filter(# > 1) | len()) == 2`, `{"l":[1,2,3]}`, yes},
			{`len(body.s) == 3`, `{"s":"aé😀"}`, yes},
			{`len(body.s) == 3`, `{"s":5}`, open + `body.s is a number, used with len`},
			{`len(body.l) == 3`, `{"l":[1,[2,2],{}]}`, yes},
			{`len(body) == 2`, `{"a":1,"b":{"c":1},"\u0061":3}`, yes},
			{`lower(body.s) == "äbc" && upper(body.s) == "ÄBC"`, `{"s":"ÄbC"}`, yes},
			{`lower(body.s) == "a"`, `{"s":null}`, open + `body.s is null, used with lower`},
			{`trim(body.s) == "a b"`, `{"s":"\t a b \n"}`, yes},
			{`trim(body.s, "x") == "a"`, `{"s":"xxax"}`, yes},
			{`split(body.s, ",")[1] == "b"`, `{"s":"a,b"}`, yes},
			{`len(split(body.s, "")) == 2`, `{"s":"éb"}`, yes},
			{`"b" in split(body.s, ",")`, `{"s":"a,b"}`, yes},
			{`int(body.n) == 1008`, `{"n":"1008"}`, yes},
			{`int(body.n) == 1008`, `{"n":1008}`, yes},
			{`int(body.n) == 9007199254740993`, `{"n":"9007199254740993"}`, yes},
			{`int(body.n) == 7`, `{"n":"007"}`, yes},
			{`int(body.n) == 1008`, `{"n":"1008x"}`, open + `body.n is not the text of a number`},
			{`int(body.n) == 1008`, `{"n":""}`, open + `body.n is not the text of a number`},
			{`int(body.n) == 1008`, `{"n":" 1008"}`, open + `body.n is not the text of a number`},
			{`int(body.n) == 1`, `{"n":1.5}`, open + `body.n is not a whole number`},
			{`int(body.n) == 1`, `{"n":true}`, open + `body.n is a boolean, used with int`},
			{`int(body.n) == 1`, `{"n":"1e1000000000"}`, open + `body.n is out of range for a number`},
			{`float(body.n) == 0.1`, `{"n":"0.1"}`, yes},
			{`float(body.n) == 0.1`, `{"n":"0,1"}`, open + `body.n is not the text of a number`},
			{`float(body.n) == 0.1`, `{"n":"NaN"}`, open + `body.n is not the text of a number`},
			{`string(body.n) == "1008"`, `{"n":1008}`, yes},
			{`string(body.n) == "1008"`, `{"n":"1008"}`, yes},
			{`string(body.n) == "1"`, `{"n":1.0}`, yes},
			{`string(body.n) == "true"`, `{"n":true}`, yes},
			{`string(body.n) == "null"`, `{"n":null}`, open + `body.n is null, used with string`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range cases {
				c.run(t, in)
			}
		})
	}
}

// wide is an object of n members, of which the last is 1 and all others 0.
func wide(n int) string {
	var b strings.Builder
	b.WriteString("{")
	for i := range n {
		b.WriteString(`"k` + strconv.Itoa(i) + `":`)
		if i == n-1 {
			b.WriteString("1}")
		} else {
			b.WriteString("0,")
		}
	}
	return b.String()
}
