package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse: whatever the file holds, Parse comes back, says the same twice, gives every problem a place in the file,
// says each once and in order, and shows nothing that came from the environment or from a secret's file.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/problems/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatalf("no golden cases to begin with (%v)", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		text, _, _ := strings.Cut(string(data), "\n----------\n")
		f.Add([]byte(text))
	}
	f.Add(Example())
	f.Add([]byte(strings.ReplaceAll(string(Example()), "#", "")))

	// Seen in no message by chance: no fuzzed file is likely to spell it.
	const sentinel = "\u2620from-outside\u2620"
	f.Fuzz(func(t *testing.T, data []byte) {
		if strings.Contains(string(data), "\u2620") {
			return // the file itself holds it
		}
		params := testParams(string(data))
		params.LookupEnv = func(name string) (string, bool) {
			if name == KeysVariable {
				return testKeys, true
			}
			return sentinel, !strings.HasPrefix(name, "NO")
		}
		params.ReadFile = func(string) ([]byte, error) { return []byte(sentinel), nil }
		c, problems, warnings := Parse(params)
		again, sameProblems, sameWarnings := Parse(params)
		if diff := cmp.Diff(problems, sameProblems) + cmp.Diff(warnings, sameWarnings) + cmp.Diff(c, again, sameRing); diff != "" {
			t.Errorf("the second answer differs:\n%s", diff)
		}
		if (c == nil) != (len(problems) > 0) {
			t.Errorf("Config %v beside problems %v", c, problems)
		}
		lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 1
		for _, list := range [][]Problem{problems, warnings} {
			for i, p := range list {
				if p.File != "posthouse.yaml" || p.Line < 1 || p.Line > lines || p.Column < 1 || p.Message == "" {
					t.Errorf("a problem without its place or words: %+v", p)
				}
				if i > 0 && (p == list[i-1] || p.Line < list[i-1].Line) {
					t.Errorf("out of order or twice: %v, %v", list[i-1], p)
				}
				if said := p.String(); strings.Contains(said, "\u2620") || strings.ContainsAny(said, "\n\r\x00") {
					t.Errorf("not fit to be shown: %q", said)
				}
			}
		}
	})
}
