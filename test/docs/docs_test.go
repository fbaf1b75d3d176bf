// Package docs answers whether the documents say what the program does.
package docs

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/posthouse/posthouse/internal/channel/gateway"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/notify"
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

// push is the one that the page of expressions takes its examples from.
func push(t *testing.T, page string) expression.Input {
	t.Helper()
	body := blocks(t, page, "json")[0]
	in := expression.Input{Body: []byte(body), Size: int64(len(body)), Header: http.Header{}}
	head := strings.Split(blocks(t, page, "http")[0], "\n")
	_, in.RawQuery, _ = strings.Cut(head[0], "?")
	for _, line := range head[1:] {
		name, value, _ := strings.Cut(line, ": ")
		in.Header.Set(name, value)
	}
	in.ContentType = in.Header.Get("Content-Type")
	return in
}

// examples calls f with every line of the blocks of a language, each cut into
// an expression and what the page says of it.
func examples(t *testing.T, page, language string, f func(t *testing.T, source, want string)) {
	t.Helper()
	for line := range strings.SplitSeq(strings.Join(blocks(t, page, language), "\n"), "\n") {
		t.Run(line, func(t *testing.T) {
			source, want, found := strings.Cut(line, " // ")
			if !found {
				t.Fatal("the line does not say what comes of it")
			}
			f(t, source, want)
		})
	}
}

// wantRefused checks that no line of the blocks of a language compiles.
func wantRefused(t *testing.T, page, language string, compile func(source string) error) {
	t.Helper()
	for source := range strings.SplitSeq(strings.Join(blocks(t, page, language), "\n"), "\n") {
		if compile(source) == nil {
			t.Errorf("%s is not refused", source)
		}
	}
}

func compileAccept(source string) error {
	_, err := expression.Compile(source)
	return err
}

func compileKey(source string) error {
	_, err := expression.CompileKey(source)
	return err
}

func TestAcceptExamples(t *testing.T) {
	page := read(t, "docs", "accept.md")
	in := push(t, page)
	t.Run("IN-03", func(t *testing.T) {
		examples(t, page, "accept", func(t *testing.T, source, want string) {
			program, err := expression.Compile(source)
			if err != nil {
				t.Fatal(err)
			}
			holds, err := program.Eval(in)
			got := strconv.FormatBool(holds)
			if reason, unchecked := strings.CutPrefix(want, "check: "); err != nil {
				if got = err.Error(); unchecked && strings.HasSuffix(got, reason) {
					return
				}
			}
			if got != want {
				t.Errorf("it is %s", got)
			}
		})
	})
	wantRefused(t, page, "refused", compileAccept)
}

func TestKeyExamples(t *testing.T) {
	page := read(t, "docs", "accept.md")
	in := push(t, page)
	t.Run("IN-24", func(t *testing.T) {
		examples(t, page, "key", func(t *testing.T, source, want string) {
			key, err := expression.CompileKey(source)
			if err != nil {
				t.Fatal(err)
			}
			got := "a key"
			if _, err := key.Eval(in); err != nil {
				got = "no key: " + strings.TrimPrefix(err.Error(), "cannot be evaluated: ")
			}
			if got != want {
				t.Errorf("it is %s", got)
			}
		})
	})
	wantRefused(t, page, "refused-key", compileKey)
}

// Every configuration in the documents is one that posthouse takes without a
// word: as it stands, or, where it is a part, as a part of the smallest whole.
func TestConfigurationsAreSound(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		for _, text := range strings.Split(read(t, strings.TrimPrefix(page, "../../")), "\n```yaml\n")[1:] {
			text, _, _ = strings.Cut(text, "\n```\n")
			if strings.HasPrefix(text, "groups:") {
				continue // rules for Prometheus
			}
			found++
			t.Run(filepath.Base(page)+" "+strings.SplitN(text, "\n", 2)[0], func(t *testing.T) { wantSound(t, text) })
		}
	}
	if found == 0 {
		t.Fatal("there is no configuration in the documents")
	}
}

func wantSound(t *testing.T, text string) {
	for _, missing := range []struct{ key, whole string }{
		{"store:", "store: sqlite:posthouse.db\n"},
		{"sources:", "sources: {any: {verify: {kind: none}}}\n"},
		{"templates:", "templates: ./templates\n"},
	} {
		if missing.key == "templates:" && !strings.Contains(text, "channels:") {
			continue
		}
		if !strings.HasPrefix(text, missing.key) && !strings.Contains(text, "\n"+missing.key) {
			text = missing.whole + text
		}
	}
	_, problems, warnings := config.Parse(config.ParseParams{
		Data: []byte(text), File: "example",
		LookupEnv: func(name string) (string, bool) {
			if name == config.KeysVariable {
				return "k1:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", strings.Contains(text, "channels:")
			}
			return "0123456789abcdef", true
		},
		CheckExpression: compileAccept,
		CheckKey:        compileKey,
		CheckPolicy:     func(source string) error { _, err := notify.CompileWhen(source); return err },
		CheckAnswer:     func(source string) error { _, err := gateway.CompileRule(source, model.ClassPermanent); return err },
		CheckAnswerValue: func(source string) error {
			_, _, err := gateway.CompileProviderID(source)
			return err
		},
	})
	for _, p := range append(problems, warnings...) {
		t.Error(p)
	}
}

func TestMetricsExist(t *testing.T) {
	code := map[string]string{
		"ingest": read(t, "internal", "ingest", "metrics.go"),
		"queue":  read(t, "internal", "workqueue", "metrics.go"),
		"inbox":  read(t, "inbox", "backlog.go") + read(t, "inbox", "forget.go"),
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
	link := regexp.MustCompile(`\]\(([^)#: ]*)(?:#([^)]*))?\)`)
	for _, page := range append(pages, "../../README.md", "../../README.zh-CN.md", "../../CONTRIBUTING.md") {
		for _, to := range link.FindAllStringSubmatch(read(t, strings.TrimPrefix(page, "../../")), -1) {
			target := page
			if to[1] != "" {
				target = filepath.Join(filepath.Dir(page), to[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if to[2] != "" && !anchors(t, target)[to[2]] {
				t.Errorf("%s: %s has no heading #%s", page, target, to[2])
			}
		}
	}
}

// anchors are what the headings of a page are known by in links.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		known[strings.ReplaceAll(name, " ", "-")] = true
	}
	return known
}
