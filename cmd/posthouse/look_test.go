package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/posthouse/posthouse/internal/store/sqlite"
)

func oneLine(t *testing.T, what, errOut string, code int, wants ...string) {
	t.Helper()
	if code != 1 || strings.Count(errOut, "\n") != 1 {
		t.Errorf("%s: code %d, and %q is not one line", what, code, errOut)
	}
	for _, want := range wants {
		if !strings.Contains(errOut, want) {
			t.Errorf("%s: %q does not tell %q", what, errOut, want)
		}
	}
}

func TestMigrateDownKeepsWhatIsInUse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ph.db")
	id := fill(t, path)
	store := "sqlite:" + path
	_, e, code := posthouse(t, dir, "migrate", "down", "--store", store)
	oneLine(t, "down", e, code, "this store is in use by 1 source", "no message is lost", "--force")
	if out, e, code := posthouse(t, dir, "inbox", "show", id, "--store", store); code != 0 || !strings.Contains(out, id) {
		t.Errorf("after the refusal: %d %s%s", code, out, e)
	}
	t.Run("and while a process consumes", func(t *testing.T) {
		path := filepath.Join(dir, "live.db")
		s, err := sqlite.Open(sqlite.Config{Path: path, Consumer: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		if _, err := s.MigrateUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, e, code := posthouse(t, dir, "migrate", "down", "--store", "sqlite:"+path)
		oneLine(t, "down", e, code, path, "stop it first")
	})
	t.Run("unless it is forced", func(t *testing.T) {
		for _, version := range []string{"3", "2", "1"} {
			_, e, code := posthouse(t, dir, "migrate", "down", "--store", store)
			oneLine(t, "down", e, code, "--force")
			if out, e, code := posthouse(t, dir, "migrate", "down", "--force", "--store", store); code != 0 || !strings.Contains(out, "Took back version "+version) {
				t.Errorf("%d %s%s", code, out, e)
			}
		}
	})
}

func TestLookingCreatesNothing(t *testing.T) {
	for _, args := range [][]string{{"inbox", "list"}, {"inbox", "stats"}, {"inbox", "show", "0190a5c2-7b1e-7cc3-98c4-dc0c0c07398f"},
		{"inbox", "pause", "a"}, {"inbox", "resume", "a"}, {"migrate", "status"}, {"migrate", "down"}} {
		dir := t.TempDir()
		path := filepath.Join(dir, "typo", "y.db")
		_, e, code := posthouse(t, dir, append(args, "--store", "sqlite:"+path)...)
		oneLine(t, strings.Join(args, " "), e, code, "there is no database "+path)
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%v made %s", args, left[0].Name())
		}
	}
}

func TestWhichStore(t *testing.T) {
	dir := t.TempDir()
	fill(t, filepath.Join(dir, "posthouse-data", "posthouse.db"))
	if out, e, code := posthouse(t, dir, "inbox", "list", "--json"); code != 0 || !strings.Contains(e, "posthouse-data") || strings.Contains(out, "store:") {
		t.Errorf("what dev keeps: %d %q %q", code, out, e)
	}
	t.Run("of a configuration whose secrets are not set, without its warnings", func(t *testing.T) {
		id := fill(t, filepath.Join(dir, "other one.db"))
		write(t, dir, "posthouse.yaml", `
store:
  # the one of this machine
  url: "sqlite:./${NAME_OF_DB}.db"
colour: red
sources:
  shop: {verify: {kind: hmac, header: X-Sig, secrets: ["${NOT_SET_ANYWHERE}"]}, accept: "body.("}
  open: {verify: {kind: none}}
`)
		t.Setenv("NAME_OF_DB", "other one")
		out, e, code := posthouse(t, dir, "inbox", "list")
		if code != 0 || !strings.Contains(out, id) {
			t.Errorf("%d %s%s", code, out, e)
		}
		if strings.Count(e, "\n") != 1 || !strings.Contains(e, "'sqlite:./other one.db'") || !strings.Contains(e, "posthouse-data") {
			t.Errorf("standard error is %q", e)
		}
	})
	t.Run("what is wrong with the store itself is told", func(t *testing.T) {
		write(t, dir, "posthouse.yaml", "store: sqlite:${NOT_SET_ANYWHERE}\nsources: {a: {verify: {kind: none}}}\n")
		_, e, code := posthouse(t, dir, "inbox", "list")
		oneLine(t, "list", e, code, "posthouse.yaml:1:", "NOT_SET_ANYWHERE")
	})
	t.Run("what cannot be told apart is told in full", func(t *testing.T) {
		write(t, dir, "posthouse.yaml", `{store: "sqlite:x.db", sources: {a: {verify: {kind: hmac, header: X-Sig, secrets: ["${NOT_SET_ANYWHERE}"]}}}}`)
		_, e, code := posthouse(t, dir, "inbox", "list")
		oneLine(t, "list", e, code, "NOT_SET_ANYWHERE")
	})
	t.Run("a password is not shown", func(t *testing.T) {
		write(t, dir, "posthouse.yaml", "store: postgres://me:${PW}@127.0.0.1:1/x\nsources: {a: {verify: {kind: none}}}\n")
		t.Setenv("PW", "hunter2")
		if _, e, code := posthouse(t, dir, "inbox", "list"); code != 1 || strings.Contains(e, "hunter2") || !strings.Contains(e, "store: postgres, of ") {
			t.Errorf("%d %q", code, e)
		}
	})
}

func TestDevOnAPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dir := t.TempDir()
	_, e, code := posthouse(t, dir, "dev", "--listen", l.Addr().String())
	oneLine(t, "dev", e, code, l.Addr().String(), "--listen")
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("it left %s", left[0].Name())
	}
}

func TestJSONKeys(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "posthouse.yaml", "store: sqlite:x.db\nsources:\n  a:\n    colour: red\n")
	snake := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	var look func(v any)
	look = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, inner := range v {
				if !snake.MatchString(key) {
					t.Errorf("key %q", key)
				}
				look(inner)
			}
		case []any:
			for _, inner := range v {
				look(inner)
			}
		}
	}
	for _, args := range [][]string{{"version"}, {"config", "check"}, {"migrate", "status", "--store", "sqlite:ph.db"}, {"inbox", "stats", "--store", "sqlite:ph.db"}} {
		fill(t, filepath.Join(dir, "ph.db"))
		out, _, _ := posthouse(t, dir, append(args, "--json")...)
		var v any
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Errorf("%v: %v in %s", args, err, out)
		}
		look(v)
	}
	if out, _, code := posthouse(t, dir, "--version"); code != 0 || !strings.HasPrefix(out, "posthouse ") {
		t.Errorf("--version: %d %q", code, out)
	}
	_, e, code := posthouse(t, dir, "inbox", "show", "0190a5c2-7b1e-7cc3-98c4-dc0c0c07398f", "--body", "--json", "--store", "sqlite:ph.db")
	oneLine(t, "show --body --json", e, code, "--body")
}

func TestCommandsToPaste(t *testing.T) {
	for executable, want := range map[string]string{
		"/tmp/go-build12/b001/exe/posthouse":         "go run ./cmd/posthouse",
		"/root/.cache/go-build/a7/a79-d/posthouse":   "go run ./cmd/posthouse",
		"/home/me/my tools/posthouse":                "'./my tools/posthouse'",
		"/home/me/src/go/builds/posthouse/posthouse": "'./my tools/posthouse'",
	} {
		if got := selfOf("./my tools/posthouse", func() (string, error) { return executable, nil }); got != want {
			t.Errorf("%s: %s", executable, got)
		}
	}
	if got := selfOf("posthouse", func() (string, error) { return "", errors.New("no /proc") }); got != "posthouse" {
		t.Error(got)
	}
	if got := word(`sqlite:/it's $HOME`); got != `'sqlite:/it'\''s $HOME'` {
		t.Error(got)
	}
	dir := filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, _, _ := posthouse(t, dir, "init"); !strings.Contains(out, "--config '"+dir+"/posthouse.yaml'") || !strings.Contains(out, "go run ./cmd/posthouse config check") {
		t.Errorf("init prints %s", out)
	}
}
