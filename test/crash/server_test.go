package crash

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// How long the harness waits for what should take a moment.
const (
	startPatience = 30 * time.Second // a start on a busy machine, migrations included
	stopPatience  = 40 * time.Second // drain and what comes after it
)

// binary builds posthouse with its crash points, once per run of the tests.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "posthouse")
	cmd := exec.Command("go", "build", "-tags", "crashpoints", "-o", path, "github.com/posthouse/posthouse/cmd/posthouse")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the binary: %w\n%s", err, out)
	}
	return path, nil
})

// buildDir is where binary builds; TestMain makes and deletes it.
var buildDir string

// server is posthouse as a child process that can be killed and started again
// on the same addresses, configuration and database.
type server struct {
	door, admin string // host:port
	logPath     string

	t      *testing.T
	binary string
	config string
	env    []string
	log    *os.File

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when the present process has ended
	starts int
}

// newServer writes the configuration; it starts nothing yet.
func newServer(t *testing.T, cfg serverConfig) *server {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{
		t: t, binary: bin, door: freeAddress(t), admin: freeAddress(t),
		config:  filepath.Join(t.TempDir(), "posthouse.yaml"),
		logPath: filepath.Join(t.ArtifactDir(), "server.log"),
		// The URL holds a password, which a configuration's text may not.
		env: append(os.Environ(), "POSTHOUSE_STORE="+cfg.Store),
	}
	if err := os.WriteFile(s.config, cfg.yaml(s.door, s.admin), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.log, err = os.OpenFile(s.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		s.waitExit(stopPatience)
		if t.Failed() {
			t.Logf("the end of the server's log, %s (kept with go test -artifacts):\n%s", s.logPath, tail(s.logPath, 60))
		}
		if err := s.log.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start starts the process; crash is the value of POSTHOUSE_CRASH, empty for
// none. It does not wait until the server is ready.
func (s *server) start(crash string) {
	s.t.Helper()
	if err := s.launch(crash); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) launch(crash string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts++
	fmt.Fprintf(s.log, "--- start %d, crash at %q\n", s.starts, crash)
	cmd := exec.Command(s.binary, "serve", "--config", s.config)
	cmd.Env = slices.Concat(s.env, []string{"POSTHOUSE_CRASH=" + crash})
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	exited := make(chan struct{})
	s.cmd, s.exited = cmd, exited
	go func() {
		_ = cmd.Wait() // how it ended is read off cmd.ProcessState
		close(exited)
	}()
	return nil
}

// process returns the present process and the channel that its end closes; nil
// and nil before the first start.
func (s *server) process() (*exec.Cmd, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd, s.exited
}

func (s *server) pid() int {
	cmd, _ := s.process()
	return cmd.Process.Pid
}

// waitReady waits until /readyz says 200.
func (s *server) waitReady() {
	s.t.Helper()
	_, exited := s.process()
	eventually(s.t, startPatience, "the server is ready", func() error {
		select {
		case <-exited:
			s.t.Fatalf("the server ended while it started: %s", s.ending())
		default:
		}
		_, err := get("http://" + s.admin + "/readyz")
		return err
	})
}

// kill sends SIGKILL and does not wait.
func (s *server) kill() { s.signal(syscall.SIGKILL) }

func (s *server) signal(sig os.Signal) {
	if cmd, _ := s.process(); cmd != nil {
		_ = cmd.Process.Signal(sig) // it fails where the process has ended by itself
	}
}

// waitExit says whether the process ended in time.
func (s *server) waitExit(patience time.Duration) bool {
	_, exited := s.process()
	if exited == nil {
		return true
	}
	select {
	case <-exited:
		return true
	case <-time.After(patience):
		return false
	}
}

// wasKilled says whether the process, which has ended, was ended by SIGKILL.
func (s *server) wasKilled() bool {
	cmd, _ := s.process()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// ending describes how the process ended.
func (s *server) ending() string {
	cmd, _ := s.process()
	return cmd.ProcessState.String()
}

// terminate asks the process to stop, and fails the test unless it does so
// cleanly.
func (s *server) terminate() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	if !s.waitExit(stopPatience) {
		s.t.Fatalf("the server did not stop within %v after SIGTERM", stopPatience)
	}
	if cmd, _ := s.process(); !cmd.ProcessState.Success() {
		s.t.Fatalf("after SIGTERM the server ended with %s", s.ending())
	}
}

// supervise starts the process again whenever it was killed, until ctx ends.
// The returned function waits until the supervisor has gone.
func (s *server) supervise(ctx context.Context) (wait func()) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			_, exited := s.process()
			select {
			case <-exited:
			case <-ctx.Done():
				return
			}
			if !s.wasKilled() {
				s.t.Errorf("the server ended by itself: %s", s.ending())
				return
			}
			if ctx.Err() != nil {
				return
			}
			if err := s.launch(""); err != nil {
				s.t.Error(err)
				return
			}
		}
	}()
	return func() { <-gone }
}

// freeAddress finds a port below the range from which the system picks ports
// for outgoing connections: a port out of that range could be taken while the
// server is down.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err == nil {
			address := l.Addr().String()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return address
		}
	}
	t.Fatal("no free port was found")
	return ""
}

// eventually asks every 20 ms until check returns nil, and fails the test with
// its last error when that takes too long.
func eventually(t *testing.T, patience time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s; last: %v", patience, what, err)
		}
	}
}

var apiClient = &http.Client{Timeout: 10 * time.Second}

// get returns the body of a 200.
func get(url string) ([]byte, error) {
	resp, err := apiClient.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
	}
	return body, nil
}

// tail returns the last lines of a file, each cut to a readable length.
func tail(path string, lines int) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close() //nolint:errcheck // only read
	var last []string
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		last = append(last, line[:min(len(line), 400)])
		last = last[max(0, len(last)-lines):]
	}
	return strings.Join(last, "\n")
}
