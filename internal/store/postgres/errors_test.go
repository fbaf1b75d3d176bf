package postgres

import "testing"

func TestOnce(t *testing.T) {
	for lines, want := range map[string]string{
		"":                       "",
		"a: refused\na: refused": "a: refused",
		"resolving: lookup x: no host\nlookup x: no host": "resolving: lookup x: no host",
		"a: refused\nb: refused\na: refused":              "a: refused; b: refused",
	} {
		if got := once(lines); got != want {
			t.Errorf("%q became %q, want %q", lines, got, want)
		}
	}
}
