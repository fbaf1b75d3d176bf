package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/config"
)

// The generated files are those that the types give now. After a change of the types: go generate ./internal/config.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	t.Chdir("..")
	m, err := readMeanings(typeFiles...)
	if err != nil {
		t.Fatal(err)
	}
	for file, render := range map[string]func(meanings) (string, error){referenceFile: renderReference, exampleFile: renderExample} {
		t.Run(file, func(t *testing.T) {
			want, err := render(m)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("run go generate ./internal/config (-generated +in the file):\n%s", diff)
			}
		})
	}
}

func TestTheReferenceNamesEveryKey(t *testing.T) {
	t.Chdir("..")
	data, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	_, keys, _ := strings.Cut(string(data), "## Keys")
	sections := strings.Split(keys, "\n### ")
	for _, e := range config.Reference() {
		if e.Group {
			continue
		}
		heading := "`" + strings.TrimSuffix(e.Path, "."+e.Name) + "`\n"
		if e.Depth == 0 {
			heading = "At the top\n"
		}
		found := false
		for _, section := range sections {
			found = found || strings.HasPrefix(section, heading) && strings.Contains(section, "- **`"+e.Name+"`**")
		}
		if !found {
			t.Errorf("%s is not in its section", e.Path)
		}
	}
}

// A field whose comment does not begin with its name would give a sentence that makes no sense.
func TestAFieldWithoutAFittingCommentIsRefused(t *testing.T) {
	entry := config.Entry{Path: "drain", Go: "Config.Drain"}
	for comment, want := range map[string]string{
		"Drain is how long to wait.":  "How long to wait.",
		"Drain bounds the wait.":      "Bounds the wait.",
		"":                            "",
		"How long to wait.":           "",
		"Drainage is how long it is.": "",
		"Drain ":                      "",
	} {
		got, err := meanings{"Config.Drain": comment}.of(entry)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q gives %q, %v; want %q", comment, got, err, want)
		}
	}
}
