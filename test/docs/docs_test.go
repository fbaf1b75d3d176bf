// Package docs answers whether the documents say what the program does.
package docs

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/expression"
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the fenced blocks of a language.
func blocks(t *testing.T, text, language string) (found []string) {
	t.Helper()
	for _, part := range strings.Split(text, "\n```"+language+"\n")[1:] {
		block, _, closed := strings.Cut(part, "\n```\n")
		if !closed {
			t.Fatalf("a block of %s does not end", language)
		}
		found = append(found, block)
	}
	if len(found) == 0 {
		t.Fatalf("there is no block of %s", language)
	}
	return found
}

func TestAcceptExamples(t *testing.T) {
	page := read(t, "docs", "accept.md")
	body := blocks(t, page, "json")[0]
	in := expression.Input{Body: []byte(body), Size: int64(len(body)), Header: http.Header{}}
	push := strings.Split(blocks(t, page, "http")[0], "\n")
	_, in.RawQuery, _ = strings.Cut(push[0], "?")
	for _, line := range push[1:] {
		name, value, _ := strings.Cut(line, ": ")
		in.Header.Set(name, value)
	}
	in.ContentType = in.Header.Get("Content-Type")
	for line := range strings.SplitSeq(strings.Join(blocks(t, page, "accept"), "\n"), "\n") {
		t.Run("IN-03 "+line, func(t *testing.T) {
			source, want, found := strings.Cut(line, " // ")
			if !found {
				t.Fatal("the line does not say what comes of it")
			}
			program, err := expression.Compile(source)
			if err != nil {
				t.Fatal(err)
			}
			got := "false"
			holds, err := program.Eval(in)
			switch reason, unchecked := strings.CutPrefix(want, "check: "); {
			case err != nil && unchecked:
				if !strings.HasSuffix(err.Error(), reason) {
					t.Errorf("it cannot be evaluated since %v", err)
				}
				return
			case err != nil:
				got = err.Error()
			case holds:
				got = "true"
			}
			if got != want {
				t.Errorf("it is %s", got)
			}
		})
	}
	for source := range strings.SplitSeq(strings.Join(blocks(t, page, "refused"), "\n"), "\n") {
		if _, err := expression.Compile(source); err == nil {
			t.Errorf("%s is not refused", source)
		}
	}
}

func TestTheQuickStartsConfigurationIsSound(t *testing.T) {
	for _, text := range blocks(t, read(t, "docs", "quickstart.md"), "yaml") {
		_, problems, _ := config.Parse(config.ParseParams{
			Data: []byte(text), File: "quickstart.md",
			LookupEnv: func(name string) (string, bool) { return "0123456789abcdef", name != config.KeysVariable },
			CheckExpression: func(source string) error {
				_, err := expression.Compile(source)
				return err
			},
		})
		for _, p := range problems {
			t.Error(p)
		}
	}
}

func TestMetricsExist(t *testing.T) {
	code := map[string]string{
		"ingest": read(t, "internal", "ingest", "metrics.go"),
		"queue":  read(t, "internal", "workqueue", "metrics.go"),
		"inbox":  read(t, "inbox", "backlog.go"),
	}
	page := read(t, "docs", "operations.md")
	names := regexp.MustCompile(`posthouse_(ingest|queue|inbox)_(\w+)`).FindAllStringSubmatch(page, -1)
	if len(names) == 0 {
		t.Fatal("the page names no metric")
	}
	for _, name := range names {
		if !strings.Contains(code[name[1]], `"`+name[2]+`"`) {
			t.Errorf("there is no metric %s", name[0])
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#: ]+)(?:#[^)]*)?\)`)
	for _, page := range append(pages, "../../README.md", "../../README.zh-CN.md") {
		for _, to := range link.FindAllStringSubmatch(read(t, strings.TrimPrefix(page, "../../")), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), to[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
