package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	startWithin = 20 * time.Second
	stopWithin  = 30 * time.Second
)

// server is a process that answers requests.
type server struct {
	name    string
	push    string // URL that pushes go to
	metrics string // URL of its metrics; empty: it has none
	log     string // file with all that it printed

	cmd    *exec.Cmd
	exited chan error // holds how it ended, once it has
}

// launch starts a command and waits until url answers 2xx.
func launch(ctx context.Context, s *server, cmd *exec.Cmd, ready string) error {
	log, err := os.Create(s.log)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	defer func() { _ = log.Close() }() // the process has its own handle
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.cmd, s.exited = cmd, make(chan error, 1)
	go func() { s.exited <- cmd.Wait() }()
	if err := s.waitFor(ctx, ready); err != nil {
		_ = cmd.Process.Kill() // it may have ended by itself
		return fmt.Errorf("start %s: %w\n%s", s.name, err, s.printed())
	}
	return nil
}

func (s *server) waitFor(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-s.exited:
			return fmt.Errorf("it ended: %w", errors.Join(err, errors.New(s.cmd.ProcessState.String())))
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", url, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// stop ends the process as Ctrl-C does, and says how much processor it used.
func (s *server) stop() (cpu time.Duration, err error) {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, fmt.Errorf("stop %s: %w\n%s", s.name, err, s.printed())
	}
	select {
	case err = <-s.exited:
	case <-time.After(stopWithin):
		_ = s.cmd.Process.Kill()
		err = errors.Join(errors.New("it does not end, and was killed"), <-s.exited)
	}
	if err != nil {
		return 0, fmt.Errorf("stop %s: %w\n%s", s.name, err, s.printed())
	}
	return s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime(), nil
}

// printed is the end of what the process printed.
func (s *server) printed() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4096):])
}

// freeAddress returns an address on which nobody listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return "", fmt.Errorf("look for a free port: %w", err)
	}
	defer func() { _ = l.Close() }() // nothing was sent
	return l.Addr().String(), nil
}

// productConfig is what the bench writes into a posthouse.yaml. The names of
// its sources say what they are for.
const productConfig = `listen: %s
admin: {listen: %s}
store: ${BENCH_STORE}
sources:
  plain:
    verify: {kind: none}
  checked:
    verify: {kind: hmac, header: X-Hub-Signature-256, prefix: "sha256=", encoding: hex, secrets: ["${BENCH_SECRET}"]}
    accept: body.msgType == 1008
`

// handledSource is a source of productConfig whose messages go to a target.
const handledSource = `  handled:
    verify: {kind: none}
    handler: {http: {url: %q, allow_private: true}}
    consume: {enabled: true, order: parallel}
`

// startProduct starts posthouse as a user does.
func (b *bench) startProduct(ctx context.Context, db *database, source, target string) (*server, error) {
	door, err := freeAddress()
	if err != nil {
		return nil, err
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(productConfig, door, admin)
	if target != "" {
		config += fmt.Sprintf(handledSource, target)
	}
	path := filepath.Join(b.work, "posthouse.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	s := &server{
		name: "posthouse", log: filepath.Join(b.work, "posthouse.log"),
		push: "http://" + door + "/in/" + source, metrics: "http://" + admin + "/metrics",
	}
	cmd := exec.CommandContext(ctx, b.binary, "serve", "--config", path) //nolint:gosec // the product
	cmd.Env = append(os.Environ(), "BENCH_STORE="+db.url, "BENCH_SECRET="+secret)
	return s, launch(ctx, s, cmd, "http://"+admin+"/readyz")
}

// startChild starts this very program in one of its other roles.
func (b *bench) startChild(ctx context.Context, role string, args ...string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s := &server{name: role, log: filepath.Join(b.work, role+".log"), push: "http://" + address + "/push"}
	args = append([]string{childArgument, role, address}, args...)
	return s, launch(ctx, s, exec.CommandContext(ctx, self, args...), "http://"+address+"/ready") //nolint:gosec // ourselves
}
