package httpapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

const dashes = "----------\n"

// TestAnswers asks what stands above the dashed line of each file in
// testdata/answers of a store that has one of everything, and compares the
// answer with what stands below.
func TestAnswers(t *testing.T) {
	files, err := filepath.Glob("testdata/answers/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	type golden struct{ asked, want, got string }
	cases := make(map[string]*golden, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		asked, want, _ := strings.Cut(string(text), dashes)
		cases[file] = &golden{asked: asked, want: want}
	}
	// All are asked of one store, first those that change nothing.
	slices.SortStableFunc(files, func(a, b string) int { return strings.Compare(cases[a].asked[:4], cases[b].asked[:4]) })
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		fill(t, s)
		c, _ := testConfig(s)
		h := New(c)
		for _, file := range files {
			cases[file].got = answerTo(t, h, cases[file].asked)
		}
	})
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			c := cases[file]
			if *update {
				must(t, os.WriteFile(file, []byte(c.asked+dashes+c.got), 0o644))
				return
			}
			if diff := cmp.Diff(c.want, c.got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// answerTo asks "METHOD TARGET" with the header lines below it and, after an
// empty line, a body, and writes down what matters of the answer.
func answerTo(t *testing.T, h http.Handler, asked string) string {
	t.Helper()
	first, rest, _ := strings.Cut(asked, "\n")
	method, target, _ := strings.Cut(first, " ")
	header := http.Header{}
	rest, body, _ := strings.Cut("\n"+rest, "\n\n")
	for line := range strings.Lines(strings.TrimPrefix(rest, "\n")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		header.Set(name, value)
	}
	rec := requestBody(t, h, ask{method: method, target: target, header: header, body: body})
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s\n", rec.Code, http.StatusText(rec.Code))
	for _, name := range []string{"Content-Type", "Content-Disposition", "Content-Length", "Allow", "Retry-After"} {
		if value := rec.Header().Get(name); value != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	b.WriteString("\n")
	var indented bytes.Buffer
	if strings.HasSuffix(rec.Header().Get("Content-Type"), "json") && json.Indent(&indented, rec.Body.Bytes(), "", "  ") == nil {
		b.WriteString(strings.TrimSpace(indented.String()) + "\n")
	} else {
		fmt.Fprintf(&b, "%q\n", rec.Body.String())
	}
	return b.String()
}

func TestOpenAPI(t *testing.T) {
	c, _ := testConfig(brokenStore{})
	h := New(c)
	rec := request(t, h, "GET", "/openapi.json", nil)
	if rec.Code != 200 || rec.Header().Get("Content-Type") != "application/openapi+json" {
		t.Fatalf("%d %v", rec.Code, rec.Header())
	}
	const golden = "testdata/openapi.json"
	if *update {
		must(t, os.WriteFile(golden, rec.Body.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if diff := cmp.Diff(string(want), rec.Body.String()); diff != "" {
		t.Errorf("the API has changed (run with -update where that is meant): -want +got\n%s", diff)
	}

	var document struct {
		OpenAPI    string                    `json:"openapi"`
		Paths      map[string]map[string]any `json:"paths"`
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	must(t, json.Unmarshal(rec.Body.Bytes(), &document))
	t.Run("is version 3.1", func(t *testing.T) {
		if !strings.HasPrefix(document.OpenAPI, "3.1.") {
			t.Error(document.OpenAPI)
		}
	})
	t.Run("every reference leads somewhere, and every schema is used", func(t *testing.T) {
		const prefix = "#/components/schemas/"
		used := map[string]bool{}
		for line := range bytes.Lines(rec.Body.Bytes()) {
			if _, ref, found := strings.Cut(string(line), `"$ref": "`); found {
				used[strings.TrimPrefix(strings.TrimRight(ref, "\",\n"), prefix)] = true
			}
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(document.Components.Schemas)), slices.Sorted(maps.Keys(used))); diff != "" {
			t.Errorf("-defined +used\n%s", diff)
		}
	})
	t.Run("every operation is served", func(t *testing.T) {
		for path, operations := range document.Paths {
			for method := range operations {
				path := strings.NewReplacer("{id}", testID(1).String(), "{source}", "erp", "{name}", "mail").Replace(path)
				rec := request(t, h, strings.ToUpper(method), path, nil)
				if (rec.Code == 404 || rec.Code == 405) && !strings.Contains(rec.Body.String(), "There is no delivery") {
					t.Errorf("%s %s: %d", method, path, rec.Code)
				}
			}
		}
	})
	t.Run("the doc comment lists every path", func(t *testing.T) {
		f, err := os.Open("doc.go")
		must(t, err)
		defer func() { _ = f.Close() }()
		listed := map[string]bool{}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			for word := range strings.FieldsSeq(lines.Text()) {
				if path, _, _ := strings.Cut(word, "?"); strings.HasPrefix(path, "/") && path != "//" {
					listed[path] = true
				}
			}
		}
		for path := range document.Paths {
			if !listed[path] {
				t.Errorf("%s is not listed", path)
			}
		}
	})
}
