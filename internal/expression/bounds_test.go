package expression

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func mustCompile(t testing.TB, source string) *Program {
	t.Helper()
	p, err := Compile(source)
	if err != nil {
		t.Fatalf("Compile(%s): %v", source, err)
	}
	return p
}

// Whatever the sender pushes, an evaluation ends soon and does not take much memory.
func TestEvaluationIsBounded(t *testing.T) {
	elements := "[" + strings.Repeat("1,", 1<<16) + "1]"
	doubled := func(first, step, last string) string { // let a0 = first; let a1 = step(a0) …
		source := "let a0 = " + first + "; "
		for i := range 60 {
			source += fmt.Sprintf("let a%d = %s; ", i+1, strings.ReplaceAll(step, "a", fmt.Sprintf("a%d", i)))
		}
		return source + strings.ReplaceAll(last, "a", "a60")
	}
	work := open + string(errWork)
	for name, c := range map[string]evalCase{
		"each with each":            {`any(body, {let x = #; any(body, # == x + 0.5)})`, elements, work},
		"a long way to each":        {`all(body.l, body.l[#index] == 1)`, `{"l":` + elements + `}`, work},
		"many elements built":       {`len(map(body, #)) > 1`, elements, work},
		"strings joined":            {doubled("body", "a + a", `a == ""`), `"x"`, work},
		"lists that hold the same":  {doubled("[body]", "[a, a]", `a == a`), `"x"`, work},
		"digits multiplied":         {doubled("body", "a * a", `a == 1`), `3`, open + `the result of * is out of range for a number`},
		"a deep value compared":     {`body.a == body.a`, `{"a":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `}`, work},
		"a split into bytes":        {`len(split(body, "")) > 1`, `"` + strings.Repeat("x", 1<<20) + `"`, work},
		"a large pattern":           {`body matches "(x+x+)+y{500}"`, `"` + strings.Repeat("x", 1<<20) + `"`, work},
		"trim with many characters": {`trim(body, body) == ""`, `"` + strings.Repeat("é", 1<<16) + `"`, work},
		"a large body, read once":   {`any(body, # == 2)`, elements, no},
		"a large body, counted":     {`len(body) == 65537`, elements, yes},
	} {
		t.Run(name, func(t *testing.T) {
			c.run(t, Input{})
		})
	}
}

// A number's size is known before anything is computed with it.
func TestHugeExponentsCostNothing(t *testing.T) {
	body := []byte(`{"n":1e1000000000,"m":-1E-999999999999999999999}`)
	for _, source := range []string{
		`body.n == 1`, `body.n < 1`, `body.n + 1 > 0`, `body.n in [1]`, `body.m * 2 == 1`, `body.m % 2 == 1`, `string(body.n) == ""`,
		`int(body.m) == 0`, `-body.n == 1`, `body == body`, `body[body.n] == 1`, `[1][body.n] == 1`,
	} {
		p := mustCompile(t, source)
		allocated := testing.AllocsPerRun(10, func() {
			if _, err := p.Eval(Input{Body: body}); err == nil {
				t.Errorf("%s: no error", source)
			}
		})
		if allocated > 30 {
			t.Errorf("%s: %v allocations", source, allocated)
		}
	}
}

// The operators on the receive path do not allocate.
func TestComparisonsDoNotAllocate(t *testing.T) {
	in := Input{Body: push()}
	for _, source := range []string{`body.msgType == 1008`, `body.source == "erp"`, `body.msgType in [1, 2, 1008]`, `size >= 0 && body.msgType != nil`} {
		p := mustCompile(t, source)
		s := p.begin(in) // not by Eval: the race detector makes pools forget
		if n := testing.AllocsPerRun(100, func() {
			s.body, s.work = value{}, 1<<30
			if ok, err := p.root.boolean(s); !ok || err != nil {
				t.Error(source, ok, err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", source, n)
		}
	}
}

func TestAProgramServesManyAtOnce(t *testing.T) {
	p := mustCompile(t, `let id = body.id; any(body.items, # == id) && headers["X"] == nil || body.id % 2 == 0`)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				n := g*1000 + i
				in := Input{Body: fmt.Appendf(nil, `{"id":%d,"items":[%d]}`, n, n+1)}
				if got, want := answer(p.Eval(in)), answer(n%2 == 0, nil); got != want {
					t.Errorf("%s: %s", in.Body, got)
				}
			}
		})
	}
	wg.Wait()
}

// What an error says is kept beside the message and shown: it must not hold anything that was pushed.
func TestErrorsHoldNothingOfThePush(t *testing.T) {
	const secret = "s3cr3t"
	in := Input{
		Body:        []byte(`{"` + secret + `":"` + secret + `","s":"` + secret + `","l":["` + secret + `"],"o":{"` + secret + `":1},"n":3141592653,"b":true}`),
		Header:      map[string][]string{"X": {secret}},
		RawQuery:    "q=" + secret + "&bad=%" + secret,
		ContentType: secret,
	}
	for _, source := range []string{
		`body.s == 1`, `body.n == "x"`, `body.l == 1`, `body.o.x == 1`, `body[body.s].x == 1`, `body.o[body.s] == "1"`, `body.s[body.s] == 1`,
		`body.s < 1`, `body.s + 1 == 2`, `body.s * 1 == 2`, `body.s`, `body.n && true`, `body.s in [1]`, `1 in body.l`, `body.l[9] == 1`,
		`int(body.s) == 1`, `float(headers.X) == 1`, `headers[body.s] == "x"`, `query.q == "x"`, `int(content_type) == 1`,
		`body.l[body.n] == 1`, `all(body.l, # == 1)`, `body.n matches "a"`, `split(body.s, "")[99] == ""`, `string(body.o) == ""`, `body == [1]`,
		`body.l == [1]`, `body.b == body.s`,
	} {
		_, err := mustCompile(t, source).Eval(in)
		if err == nil {
			t.Errorf("%s: no error", source)
			continue
		}
		if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "314159") || strings.Contains(err.Error(), "%") {
			t.Errorf("%s: %v", source, err)
		}
	}
	long := strings.Repeat("é", 500)
	for _, source := range []string{
		`body.` + long + ` == 1`, `body["` + long + `"] == 1`, `let ` + long + ` = 1; ` + long + ` == body`, `(body.` + long + strings.Repeat(" ?? body.x", 500) + ` ?? "x") == 1`,
	} {
		_, err := mustCompile(t, source).Eval(Input{Body: []byte("{}")})
		if err == nil || len(err.Error()) > 300 || strings.ContainsRune(err.Error(), '\uFFFD') {
			t.Errorf("%.30s: %v", source, err)
		}
	}
	if _, err := Compile(long); err == nil || len(err.Error()) > 600 {
		t.Error(err)
	}
}

// A state waits for its next use without the push that it looked at: that buffer may be used again by then.
func TestNothingOfAPushIsHeldAfterwards(t *testing.T) {
	p := mustCompile(t, `let a = body; any(a.l, # == "x") && query.q == "x" && headers.X == "x"`)
	for _, body := range []string{`{"a":1,"b":2,"l":["x"]}`, `{"a":1,"b":2,"l":["x"]`, wide(200), `["x"]`} {
		s := p.begin(Input{Body: []byte(body), RawQuery: "q=x", Header: map[string][]string{"X": {"x"}}})
		_, _ = p.root.boolean(s)
		p.end(s)
		for _, m := range s.members[:cap(s.members)] {
			if m != (member{}) {
				t.Errorf("%.30s: the member %s is held", body, m.key)
			}
		}
		for _, v := range s.vars {
			if v != (value{}) {
				t.Errorf("%.30s: a variable is held", body)
			}
		}
		if s.in.Body != nil || s.in.Header != nil || s.in.RawQuery != "" || s.query != nil || s.body != (value{}) {
			t.Errorf("%.30s: the input is held", body)
		}
	}
}
