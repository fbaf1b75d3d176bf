package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/sqlite"
)

// TestMain makes the test binary the command itself when a test starts it.
func TestMain(m *testing.M) {
	if os.Getenv("POSTHOUSE_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// posthouse runs the command in a folder.
func posthouse(t *testing.T, dir string, args ...string) (out, errOut string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "POSTHOUSE_TEST_MAIN=1")
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return o.String(), e.String(), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return o.String(), e.String(), 0
}

func TestConfigCommands(t *testing.T) {
	t.Run("init writes a configuration that check finds fine, and overwrites none", func(t *testing.T) {
		dir := t.TempDir()
		if _, e, code := posthouse(t, dir, "init"); code != 0 {
			t.Fatal(e)
		}
		if out, e, code := posthouse(t, dir, "config", "check"); code != 0 || !strings.Contains(out, "is fine") || e != "" {
			t.Errorf("%d %s %s", code, out, e)
		}
		if _, e, code := posthouse(t, dir, "init"); code != 1 || strings.Count(e, "\n") != 1 || !strings.Contains(e, "is there already") {
			t.Errorf("%d %q", code, e)
		}
	})
	t.Run("check tells every problem at once, each with its line", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "posthouse.yaml", "listen: 127.0.0.1:8080\nstore: sqlite:x.db\nsources:\n  a:\n    verify: {kind: nonne}\n    accept: body.(\n    colour: red\n")
		_, e, code := posthouse(t, dir, "config", "check")
		lines := strings.Split(strings.TrimSpace(e), "\n")
		if code != 1 || len(lines) != 3 {
			t.Fatalf("%d\n%s", code, e)
		}
		for i, want := range []string{"posthouse.yaml:5:", "posthouse.yaml:6:", "posthouse.yaml:7:"} {
			if !strings.Contains(lines[i], want) {
				t.Errorf("line %d is %q, want %s", i, lines[i], want)
			}
		}
		out, _, code := posthouse(t, dir, "config", "check", "--json")
		var found struct{ Problems []struct{ Line int } }
		if err := json.Unmarshal([]byte(out), &found); err != nil || code != 1 || len(found.Problems) != 3 {
			t.Errorf("%d %v %s", code, err, out)
		}
	})
	t.Run("serve without a configuration, or on a database of the future, says so in one line", func(t *testing.T) {
		dir := t.TempDir()
		if _, e, code := posthouse(t, dir, "serve"); code != 1 || strings.Count(e, "\n") != 1 || !strings.Contains(e, "posthouse init") {
			t.Errorf("%d %q", code, e)
		}
	})
	t.Run("a wrong flag or command is one line", func(t *testing.T) {
		for _, args := range [][]string{{"serv"}, {"serve", "--confg", "x"}, {"inbox", "list", "--state", "lost", "--store", "sqlite:x.db"}, {"inbox", "show", "7"}} {
			if _, e, code := posthouse(t, t.TempDir(), args...); code == 0 || strings.Count(e, "\n") != 1 {
				t.Errorf("%v: %d %q", args, code, e)
			}
		}
	})
}

func TestInboxCommands(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ph.db")
	id := fill(t, path)
	store := "sqlite:" + path
	t.Run("NC-23 list, show and stats tell the same as the API, and fit a terminal", func(t *testing.T) {
		out, e, code := posthouse(t, dir, "inbox", "list", "--store", store, "--json")
		var list struct{ Items []map[string]any }
		if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list.Items) != 1 || list.Items[0]["id"] != id || list.Items[0]["state"] != "pending" {
			t.Errorf("%d %v %s %s", code, err, out, e)
		}
		out, _, _ = posthouse(t, dir, "inbox", "show", id, "--store", store)
		if !strings.Contains(out, "pending") || strings.ContainsAny(out, "\x1b\x00") {
			t.Errorf("show prints %q", out)
		}
		if out, _, _ = posthouse(t, dir, "inbox", "show", id, "--store", store, "--body"); out != "a\x00\xffb" {
			t.Errorf("the body is %q", out)
		}
		out, _, _ = posthouse(t, dir, "inbox", "stats", "--store", store, "--json")
		if !strings.Contains(out, `"pending": 1`) {
			t.Errorf("stats print %s", out)
		}
	})
	t.Run("IN-20 pause and resume are remembered in the store", func(t *testing.T) {
		for command, want := range map[string]string{"pause": `"enabled": false`, "resume": `"enabled": true`} {
			if _, e, code := posthouse(t, dir, "inbox", command, "odd", "--store", store); code != 0 {
				t.Error(e)
			}
			if out, _, _ := posthouse(t, dir, "inbox", "stats", "--store", store, "--json"); !strings.Contains(out, want) {
				t.Errorf("after %s: %s", command, out)
			}
		}
		if _, e, code := posthouse(t, dir, "inbox", "pause", "none", "--store", store); code != 1 || !strings.Contains(e, `no source "none"`) {
			t.Errorf("%d %q", code, e)
		}
	})
	t.Run("a message that is not there is said so", func(t *testing.T) {
		if _, e, code := posthouse(t, dir, "inbox", "show", uuid.Must(uuid.NewV7()).String(), "--store", store); code != 1 || !strings.Contains(e, "there is no message") {
			t.Errorf("%d %q", code, e)
		}
	})
	t.Run("migrate goes down, up, and tells where it stands", func(t *testing.T) {
		fresh := "sqlite:" + filepath.Join(dir, "fresh.db")
		empty, err := sqlite.Open(sqlite.Config{Path: filepath.Join(dir, "fresh.db")})
		if err != nil {
			t.Fatal(err)
		}
		if err := empty.Close(); err != nil {
			t.Fatal(err)
		}
		if _, e, code := posthouse(t, dir, "inbox", "list", "--store", fresh); code != 1 || strings.Count(e, "\n") != 1 || !strings.Contains(e, "posthouse migrate up") {
			t.Errorf("a store without tables: %d %q", code, e)
		}
		for _, step := range [][2]string{{"status", "not yet"}, {"up", "Applied"}, {"up", "up to date"}, {"down", "Took back"}, {"up", "Applied"}} {
			if out, e, code := posthouse(t, dir, "migrate", step[0], "--store", fresh); code != 0 || !strings.Contains(out, step[1]) {
				t.Errorf("%s: %d %q %q", step[0], code, out, e)
			}
		}
	})
}

// fill makes a store with one odd message.
func fill(t *testing.T, path string) (id string) {
	t.Helper()
	store, err := sqlite.Open(sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if _, err := store.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	sources, err := store.Register(t.Context(), []model.SourceSpec{{Name: "odd", Enabled: true}})
	if err != nil {
		t.Fatal(err)
	}
	m := model.NewMessage{ID: uuid.Must(uuid.NewV7()), Source: sources[0].ID, ContentType: "a\x1b[2Jb", Body: []byte("a\x00\xffb")}
	if _, err := store.PutMessages(t.Context(), model.PutPending, []model.NewMessage{m}); err != nil {
		t.Fatal(err)
	}
	return m.ID.String()
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
