package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/internal/channel/mailbox"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/template/samples"
)

// DevParams says how to run `posthouse dev`.
type DevParams struct {
	Listen string // of door and admin, on one port
	Data   string // folder of the database and the key; created where missing
	Out    io.Writer
	Look   string // the command that lists what was kept, as it is pasted into a shell
	// Templates is the folder of the templates; where it is missing it is made, with
	// some to begin with. Default: templates in the data folder.
	Templates string
}

// Dev returns what to run: SQLite in the data folder, and an open source
// "demo" whose handler prints what it gets.
func Dev(p DevParams) (Params, error) {
	if !config.IsLoopback(p.Listen) {
		return Params{}, fmt.Errorf("dev listens on loopback addresses only, since everybody who reaches it may read and push; --listen %s is none", p.Listen)
	}
	if err := free(p.Listen); err != nil {
		return Params{}, err
	}
	cfg := config.Dev(p.Listen, p.Data)
	keys, err := devKeys(p.Data)
	if err != nil {
		return Params{}, err
	}
	cfg.Keys = keys
	if cfg.Templates, err = devTemplates(p); err != nil {
		return Params{}, err
	}
	screen := &screen{out: p.Out}
	return Params{
		Config:   cfg,
		Handlers: map[string]inbox.Handler{config.DevSource: inbox.HandlerFunc(func(context.Context, *inbox.Message) error { return nil })},
		Observe:  screen.attempt,
		Ready:    func(door, _ net.Addr) { screen.welcome(door.String(), p.Data, p.Look) },
	}, nil
}

// free refuses an address that cannot be listened on, before anything is
// created for it. Another program may still take it afterwards.
func free(address string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("another program (another posthouse dev?) listens on %s; --listen 127.0.0.1:0 takes any port that is free", address)
	}
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return l.Close()
}

// devKeys reads the data folder's key, or makes one.
func devKeys(data string) (*config.KeyRing, error) {
	path := filepath.Join(data, "keys")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(data, 0o700); err != nil {
			return nil, fmt.Errorf("create the data folder: %w", err)
		}
		text = []byte(config.GenerateKey("dev"))
		if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
			return nil, fmt.Errorf("write the data folder's key: %w", err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("read the data folder's key: %w", err)
	}
	keys, err := config.ParseKeys(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("the key in %s is unusable (remove the file, and a new one is made): %w", path, err)
	}
	return keys, nil
}

// devTemplates says where the templates are, and makes the folder where it is
// missing.
func devTemplates(p DevParams) (string, error) {
	folder := p.Templates
	if folder == "" {
		folder = filepath.Join(p.Data, "templates")
	}
	_, err := os.Stat(folder)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.CopyFS(folder, samples.FS())
	}
	if err != nil {
		return "", fmt.Errorf("the folder of the templates: %w", err)
	}
	return folder, nil
}

// screen is the terminal of `posthouse dev`.
type screen struct {
	mu  sync.Mutex
	out io.Writer
}

// devNotification is one that the built-in templates and policy take.
const devNotification = `{"idempotency_key":"approval:1:v1","biz_type":"approval.todo","template":"approval_todo","recipient":{"id":"u1","email":"you@example.com"},"variables":{"title":"Travel to Shenzhen","applicant":"Li Lei","url":"https://oa.example.com/approvals/1"}}`

func (s *screen) welcome(address, data, look string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.out, `
Posthouse is running. Everything it receives is kept in %s.

Push something to it from another terminal:

  curl -i -H 'Content-Type: application/json' -d '{"hello":"world"}' http://%s/in/demo

Look at what was kept:

  curl http://%s/v1/inbox/messages
  %s

Tell somebody something, and open http://%s%s to see the mail:

  curl -i -H 'Content-Type: application/json' http://%s/v1/notifications -d '%s'

Ctrl-C stops it. Each message that is handled appears below.

`, data, address, address, look, address, mailbox.Path, address, devNotification)
}

// attempt shows a message's life in one line.
func (s *screen) attempt(a inbox.Attempt) {
	what := a.Outcome
	switch {
	case a.Fenced:
		what = "fenced"
	case a.Outcome == "retry":
		what = fmt.Sprintf("retry in %s (%s)", a.NextIn.Round(time.Millisecond), a.Reason)
	case a.Outcome == "failed":
		what = fmt.Sprintf("failed (%s)", a.Reason)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.out, "%s  %s  %s  received ▸ kept ▸ handled (attempt %d, %s) ▸ %s  %s\n",
		time.Now().Format(time.TimeOnly), a.MessageID, a.Source, a.N, a.Duration.Round(10*time.Microsecond), what, glance(a.Body))
}

// glance shows the beginning of a body on one line, without anything that a
// terminal would obey.
func glance(body []byte) string {
	const most = 60
	cut := body[:min(len(body), 4*most)]
	var b strings.Builder
	n := 0
	for _, r := range string(cut) {
		if n == most {
			b.WriteRune('…')
			return b.String()
		}
		if r == utf8.RuneError || !unicode.IsGraphic(r) {
			r = '·'
		}
		b.WriteRune(r)
		n++
	}
	if len(cut) < len(body) {
		b.WriteRune('…')
	}
	return b.String()
}
