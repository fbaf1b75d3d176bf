package inbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var wanted = regexp.MustCompile(`\n\t// Output: (.*)`)

// example is the example as a program, and what it prints.
func example(t *testing.T) (program, output string) {
	t.Helper()
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	found := wanted.FindSubmatch(source)
	if found == nil {
		t.Fatal("the example does not say what it prints")
	}
	program = wanted.ReplaceAllString(string(source), "")
	program = strings.Replace(program, "package inbox_test", "package main", 1)
	return strings.Replace(program, "func Example() {", "func main() {", 1), string(found[1])
}

func TestDocumentedProgramIsTheExample(t *testing.T) {
	program, _ := example(t)
	page, err := os.ReadFile("../docs/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```go\n"+program+"```\n") {
		t.Errorf("docs/embedding.md must show this program, which is the example:\n%s", program)
	}
}

// outside is a module of its own that requires this one, with this main.go.
func outside(t *testing.T, main string) (dir string) {
	t.Helper()
	repo, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	mod, err := os.ReadFile(filepath.Join(repo, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(repo, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	const ours = "github.com/posthouse/posthouse"
	own := strings.Replace(string(mod), "module "+ours, "module example.org/outside", 1) +
		"\nrequire " + ours + " v0.0.0\n\nreplace " + ours + " => " + repo + "\n"
	for name, text := range map[string]string{"go.mod": own, "go.sum": string(sum), "main.go": main} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestOutsideProgram(t *testing.T) {
	t.Run("the documented program is built in a module of its own, and works", func(t *testing.T) {
		program, output := example(t)
		dir := outside(t, program)
		run(t, dir, "go", "build", "-o", "program", ".")
		if got := strings.TrimSpace(run(t, dir, filepath.Join(dir, "program"))); got != output {
			t.Errorf("it printed %q, want %q", got, output)
		}
	})

	drivers := map[string]string{"sqlite": "modernc.org/sqlite", "postgres": "github.com/jackc/pgx", "mysql": "github.com/go-sql-driver/mysql"}
	const never = "github.com/danielgtaylor/huma github.com/alecthomas/kong github.com/goccy/go-yaml testing"
	for store, driver := range drivers {
		t.Run("with "+store+" it links that driver, and nothing of the server", func(t *testing.T) {
			dir := outside(t, `package main

import (
	"context"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/inbox/`+store+`"
)

func main() {
	ctx := context.Background()
	store, _ := `+store+`.Open(ctx, `+store+`.Config{AllowUnsafe: true})
	_ = store.Migrate(ctx)
	_, _ = inbox.Open(ctx, inbox.Config{Store: store})
	_ = store.Close()
}
`)
			run(t, dir, "go", "vet", ".") // checks the types
			linked := strings.Fields(run(t, dir, "go", "list", "-deps", "."))
			links := func(lib string) bool {
				return slices.ContainsFunc(linked, func(p string) bool { return p == lib || strings.HasPrefix(p, lib+"/") })
			}
			if !links(driver) {
				t.Errorf("it does not link %s; it links\n%s", driver, strings.Join(linked, "\n"))
			}
			for other, lib := range drivers {
				if other != store && links(lib) {
					t.Errorf("it links %s, which is for %s", lib, other)
				}
			}
			for lib := range strings.FieldsSeq(never) {
				if links(lib) {
					t.Errorf("it links %s", lib)
				}
			}
		})
	}

	t.Run("without a store it links no driver", func(t *testing.T) {
		linked := run(t, ".", "go", "list", "-deps", ".")
		for _, lib := range drivers {
			if strings.Contains(linked, lib) {
				t.Errorf("package inbox links %s", lib)
			}
		}
	})
}
