package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posthouse/posthouse/client"
)

// startDev runs posthouse dev in a folder until the test ends, and returns where
// it listens.
func startDev(t *testing.T, dir string) (url string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "dev", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "POSTHOUSE_TEST_MAIN=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // the test's context ends before its cleanup
	cmd.WaitDelay = 30 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Wait(); err != nil && !errors.Is(err, t.Context().Err()) {
			t.Errorf("dev: %v", err)
		}
	})
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url := address.FindString(lines.Text()); url != "" {
			go func() { // what else it says must not fill the pipe
				for lines.Scan() {
					continue
				}
			}()
			return url
		}
	}
	t.Fatal("dev does not say where it listens")
	return ""
}

// readJSON reads what a command has printed.
func readJSON[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func TestNotificationCommands(t *testing.T) {
	dir := t.TempDir()
	url := startDev(t, dir)
	run := func(args ...string) (out, errOut string, code int) {
		t.Helper()
		return posthouse(t, dir, append(args, "--url", url)...)
	}
	base := []string{"notify", "--key", "approval:1:v1", "--biz-type", "approval.todo", "--template", "approval_todo", "--to", "u1", "--email", "you@example.com",
		"--var", "title=Travel = far; <b>", "--var", "applicant=Li Lei", "--var", "url=https://oa.example.com/approvals/1"}
	var id string
	t.Run("NC-02 notify says what was kept, and that it was kept before", func(t *testing.T) {
		out, e, code := run(append(base, "--var", "amount:=12.50", "--json")...)
		if code != 0 {
			t.Fatal(e)
		}
		receipt := readJSON[client.Receipt](t, out)
		if id = receipt.ID; receipt.Duplicate || len(receipt.Deliveries) != 2 {
			t.Error(out)
		}
		if out, e, code := run(append(base, "--var", "amount:=12.5")...); code != 0 || !strings.Contains(out, "Accepted before: "+id) {
			t.Errorf("12.5 instead of 12.50: %d %s%s", code, out, e)
		}
		_, e, code = run(append(base, "--var", "amount:=13")...)
		oneLine(t, "another amount", e, code, "variables")
	})
	t.Run("what is wrong is one line that repeats no value", func(t *testing.T) {
		_, e, code := run("notify", "--key", "approval:2:v1", "--biz-type", "b", "--template", "approval_todo", "--to", "u1", "--var", "titel=hunter2")
		oneLine(t, "a misspelt variable", e, code, "variables.titel", "variables.title")
		if strings.Contains(e, "hunter2") {
			t.Error(e)
		}
		_, e, code = run("notify", "--key", "k")
		oneLine(t, "flags missing", e, code, "--biz-type", "--template", "--to")
		_, e, code = run("notify", "--key", "k", "--biz-type", "b", "--template", "t", "--to", "u", "--var", "n:=hunter2")
		oneLine(t, "no JSON", e, code, "n:=")
		write(t, dir, "odd.json", `{"idempotency_key":"k","recipent":{}}`)
		_, e, code = run("notify", "--file", "odd.json")
		oneLine(t, "a misspelt member", e, code, "recipent")
		_, e, code = run("notify", "--file", "none.json")
		oneLine(t, "no file", e, code, "none.json")
	})
	t.Run("a file of several is accepted one by one", func(t *testing.T) {
		one := `{"idempotency_key":"%s","biz_type":"b","template":"%s","recipient":{"id":"u2","email":"u2@example.com"},"variables":{"title":"T","applicant":"A","url":"https://example.com","amount":12345678901234567890.12}}`
		write(t, dir, "list.json", "["+fmt.Sprintf(one, "f:1", "approval_todo")+","+fmt.Sprintf(one, "f:2", "none")+"]")
		out, e, code := run("notify", "--file", "list.json", "--json")
		oneLine(t, "one of two", e, code, "1 of 2 notifications")
		results := readJSON[struct {
			Results []struct {
				Notification *client.Receipt
				Error        string
			}
		}](t, out).Results
		if results[0].Notification == nil || !strings.Contains(results[1].Error, "template") {
			t.Error(out)
		}
	})
	var mail string
	t.Run("notification and delivery show what became of it", func(t *testing.T) {
		for deadline := time.Now().Add(20 * time.Second); ; { // another process sends it
			out, e, code := run("notification", "show", id, "--json")
			if code != 0 {
				t.Fatal(e)
			}
			n := readJSON[client.NotificationDetail](t, out)
			if n.Status == client.Succeeded {
				mail = n.Deliveries[1].ID
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("it is not sent: %s", out)
			}
		}
		out, _, _ := run("notification", "show", id)
		for _, want := range []string{"succeeded", "accepted", "policy 1", "1 · success", "y•••@example.com"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s is not in %s", want, out)
			}
		}
		if out, _, code := run("delivery", "show", mail); code != 0 || !strings.Contains(out, "SUCCEEDED") {
			t.Errorf("%d %s", code, out)
		}
		if out, _, code := run("delivery", "list", "--channel", "mail", "--status", "succeeded"); code != 0 || !strings.Contains(out, mail) {
			t.Errorf("%d %s", code, out)
		}
		_, e, code := run("delivery", "show", id)
		oneLine(t, "no such delivery", e, code, "There is no delivery")
	})
	t.Run("NC-13 what was sent is replayed with force alone, and who did it is kept", func(t *testing.T) {
		_, e, code := run("delivery", "replay", mail, "--reason", "lost")
		oneLine(t, "without force", e, code, "not replayed")
		out, _, code := run("delivery", "replay", "--status", "succeeded", "--channel", "mail", "--force", "--dry-run", "--reason", "lost")
		if code != 0 || !strings.Contains(out, "would be replayed") {
			t.Errorf("%d %s", code, out)
		}
		if out, e, code := run("delivery", "replay", mail, "--force", "--reason", "lost it", "--actor", "li", "--json"); code != 0 || readJSON[client.BulkReplayResult](t, out).Replayed != 1 {
			t.Errorf("%d %s%s", code, out, e)
		}
		if out, _, _ := run("notification", "show", id); !strings.Contains(out, "delivery.replay by li: lost it") {
			t.Error(out)
		}
		_, e, code = run("delivery", "resolve", mail, "--outcome", "not-sent", "--reason", "r")
		oneLine(t, "not uncertain", e, code, "Only what is UNCERTAIN")
	})
	t.Run("cancelling says what came of each delivery", func(t *testing.T) {
		out, e, code := run("notify", "--key", "later:1", "--biz-type", "b", "--template", "approval_todo", "--to", "u3", "--email", "u3@example.com", "--not-before", "2099-01-01T00:00:00Z",
			"--var", "title=T", "--var", "applicant=A", "--var", "url=https://example.com", "--json")
		if code != 0 {
			t.Fatal(e)
		}
		out, e, code = run("notification", "cancel", readJSON[client.Receipt](t, out).ID, "--reason", "withdrawn")
		if code != 0 || !strings.Contains(out, "PENDING → CANCELLED") || !strings.Contains(out, "It was sent before.") {
			t.Errorf("%d %s%s", code, out, e)
		}
	})
	t.Run("channels are listed, paused, resumed and tested", func(t *testing.T) {
		for _, step := range [][2]string{{"pause", "paused"}, {"resume", "active"}} {
			if _, e, code := run("channel", step[0], "mail", "--reason", "maintenance"); code != 0 {
				t.Fatal(e)
			}
			out, _, _ := run("channel", "list", "--json")
			for _, c := range readJSON[struct{ Channels []client.Channel }](t, out).Channels {
				if c.Name == "mail" && c.State != step[1] {
					t.Errorf("after %s: %+v", step[0], c)
				}
			}
		}
		if out, e, code := run("channel", "test", "mail", "--address", "me@example.com"); code != 0 || !strings.HasPrefix(out, "success") {
			t.Errorf("%d %s%s", code, out, e)
		}
		_, e, code := run("channel", "test", "mail", "--address", "hunter2")
		oneLine(t, "no address", e, code, "address")
		_, e, code = run("channel", "pause", "fax", "--reason", "r")
		oneLine(t, "no channel", e, code, "no channel")
	})
	t.Run("channels are no sources", func(t *testing.T) {
		out, _, code := posthouse(t, dir, "inbox", "stats", "--store", "sqlite:data/posthouse.db", "--json")
		if code != 0 || strings.Contains(out, "mail") || !strings.Contains(out, "demo") {
			t.Errorf("%d %s", code, out)
		}
	})
}

func TestWhichInstance(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"none":                {"", "127.0.0.1:8080"},
		"the default":         {"store: sqlite:x.db\nsources: {a: {verify: {kind: none}}}\n", "127.0.0.1:8081"},
		"one of its own":      {"store: sqlite:x.db\nadmin:\n  listen: 127.0.0.1:1\nsources: {a: {verify: {kind: none}}}\n", "127.0.0.1:1"},
		"secrets are missing": {"store: postgres://x:${NOT_SET_ANYWHERE}@y/z\nadmin: {listen: \"127.0.0.1:1\"}\ncolour: red\n", "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.text != "" {
				write(t, dir, "posthouse.yaml", c.text)
			}
			got, err := apiFlags{configFile: configFile{Config: filepath.Join(dir, "posthouse.yaml")}}.url()
			if err != nil || got != "http://"+c.want {
				t.Errorf("%s %v", got, err)
			}
		})
	}
	_, e, code := posthouse(t, t.TempDir(), "channel", "list", "--url", "http://127.0.0.1:1")
	oneLine(t, "nobody there", e, code, "127.0.0.1:1", "a running instance is needed", "--url")
}

// TestReplayOfWhatWasNotSet: a variable of a shell that is empty must not choose all.
func TestReplayOfWhatWasNotSet(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--status"},
		{[]string{"--status", ""}, "--status"},
		{[]string{"--channel", "mail"}, "--status"},
		{[]string{"--status", "DEAD", "--channel", ""}, "--channel is empty"},
		{[]string{"--status", "DEAD", "--from", ""}, "--from"},
		{[]string{"--status", "DEAD", "--to="}, "--to"},
	} {
		args := append([]string{"delivery", "replay", "--reason", "r", "--url", "http://127.0.0.1:1"}, c.args...)
		if _, e, code := posthouse(t, t.TempDir(), args...); code == 0 || strings.Count(e, "\n") != 1 || !strings.Contains(e, c.want) || strings.Contains(e, "no answer") {
			t.Errorf("%q: %d %q", c.args, code, e)
		}
	}
}

func TestTemplateCommands(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "templates", "hello")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, folder, "template.yaml", "default_locale: en\nvariables:\n  required: [name]\n  properties:\n    name: {type: string, examples: [Li]}\n    code: {type: string, sensitive: true}\n")
	write(t, folder, "text.en.txt", "Hello {{.name}}{{with .code}}, {{.}}{{end}}!\n")
	if out, e, code := posthouse(t, dir, "template", "lint"); code != 0 || !strings.Contains(out, "1 template") {
		t.Errorf("%d %s%s", code, out, e)
	}
	if out, e, code := posthouse(t, dir, "template", "preview", "hello", "--json"); code != 0 || !strings.Contains(out, "Hello Li") {
		t.Errorf("%d %s%s", code, out, e)
	}
	write(t, dir, "v.json", `{"name":"<Zhang>","code":"hunter2"}`)
	if out, e, code := posthouse(t, dir, "template", "preview", "hello", "--variables", "v.json"); code != 0 || !strings.Contains(out, "Hello <Zhang>, •••!") || strings.Contains(out, "hunter2") {
		t.Errorf("%d %s%s", code, out, e)
	}
	_, e, code := posthouse(t, dir, "template", "preview", "helo")
	oneLine(t, "another code", e, code, "hello")
	write(t, folder, "text.fr.txt", "Bonjour {{.nom}}!\n")
	_, e, code = posthouse(t, dir, "template", "lint")
	oneLine(t, "an undeclared variable", e, code, "hello/text.fr.txt:1", "nom")
	_, e, code = posthouse(t, t.TempDir(), "template", "lint")
	oneLine(t, "no folder", e, code, "--dir")
}
