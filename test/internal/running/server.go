package running

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

// How long the tests wait for what should take a moment.
const (
	StartPatience = 30 * time.Second // a start on a busy machine, migrations included
	StopPatience  = 40 * time.Second // drain and what comes after it
)

// binary builds posthouse with its crash points, once per run of the tests.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "posthouse")
	cmd := exec.Command("go", "build", "-tags", "crashpoints", "-o", path, "github.com/posthouse/posthouse/cmd/posthouse") //nolint:gosec // the path is ours
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the binary: %w\n%s", err, out)
	}
	return path, nil
})

// buildDir is where binary builds; Main makes and deletes it.
var buildDir string

// Server is posthouse as a child process that can be killed and started again
// on the same addresses, configuration and database.
type Server struct {
	Name        string
	Door, Admin string // host:port
	LogPath     string

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

// NewServer writes the configuration; it starts nothing yet. The process ends
// with the test.
func NewServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	name := or(cfg.Name, "server")
	s := &Server{
		t: t, binary: bin, Name: name, Door: freeAddress(t), Admin: freeAddress(t),
		config:  filepath.Join(t.TempDir(), "posthouse.yaml"),
		LogPath: filepath.Join(t.ArtifactDir(), name+".log"),
	}
	// The store's URL holds a password, which a configuration's text may not.
	s.env = slices.Concat(os.Environ(), cfg.Notify.env(), cfg.Env, []string{
		envStore + "=" + cfg.Store, envDoor + "=" + s.Door, envAdmin + "=" + s.Admin, envName + "=" + name,
	})
	s.Configure(cfg)
	if s.log, err = os.OpenFile(s.LogPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		s.WaitExit(StopPatience)
		if t.Failed() {
			t.Logf("the end of the server's log, %s (kept with go test -artifacts):\n%s", s.LogPath, tail(s.LogPath, 60))
		}
		if err := s.log.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Configure writes another configuration, for the next start. Name, Store and
// Env stay what they were.
func (s *Server) Configure(cfg Config) {
	s.t.Helper()
	if err := os.WriteFile(s.config, cfg.yaml(), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Start starts the process; crash is the value of POSTHOUSE_CRASH, empty for
// none. It does not wait until the server is ready.
func (s *Server) Start(crash string) {
	s.t.Helper()
	if err := s.launch(crash); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) launch(crash string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts++
	fmt.Fprintf(s.log, "--- start %d, crash at %q\n", s.starts, crash)
	cmd := exec.Command(s.binary, "serve", "--config", s.config) //nolint:gosec,noctx // both are ours, and it outlives every context
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

// Process returns the present process and the channel that its end closes; nil
// and nil before the first start.
func (s *Server) Process() (*exec.Cmd, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd, s.exited
}

// PID is the number of the present process.
func (s *Server) PID() int {
	cmd, _ := s.Process()
	return cmd.Process.Pid
}

// WaitReady waits until /readyz says 200.
func (s *Server) WaitReady() {
	s.t.Helper()
	_, exited := s.Process()
	Eventually(s.t, StartPatience, "the server is ready", func() error {
		select {
		case <-exited:
			s.t.Fatalf("the server ended while it started: %s", s.Ending())
		default:
		}
		_, err := get("http://" + s.Admin + "/readyz")
		return err
	})
}

// Kill sends SIGKILL and does not wait.
func (s *Server) Kill() { s.Signal(syscall.SIGKILL) }

// Signal sends a signal to the process, if there is one.
func (s *Server) Signal(sig os.Signal) {
	if cmd, _ := s.Process(); cmd != nil {
		_ = cmd.Process.Signal(sig) // it fails where the process has ended by itself
	}
}

// WaitExit says whether the process ended in time.
func (s *Server) WaitExit(patience time.Duration) bool {
	_, exited := s.Process()
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

// WasKilled says whether the process, which has ended, was ended by SIGKILL.
func (s *Server) WasKilled() bool {
	cmd, _ := s.Process()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// Ending describes how the process ended.
func (s *Server) Ending() string {
	cmd, _ := s.Process()
	return cmd.ProcessState.String()
}

// Terminate asks the process to stop, and fails the test unless it does so
// cleanly.
func (s *Server) Terminate() {
	s.t.Helper()
	s.Signal(syscall.SIGTERM)
	if !s.WaitExit(StopPatience) {
		s.t.Fatalf("the server did not stop within %v after SIGTERM", StopPatience)
	}
	if cmd, _ := s.Process(); !cmd.ProcessState.Success() {
		s.t.Fatalf("after SIGTERM the server ended with %s", s.Ending())
	}
}

// Supervise starts the process again whenever it was killed, until ctx ends.
// The returned function waits until the supervisor has gone.
func (s *Server) Supervise(ctx context.Context) (wait func()) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			_, exited := s.Process()
			select {
			case <-exited:
			case <-ctx.Done():
				return
			}
			if !s.WasKilled() {
				s.t.Errorf("the server ended by itself: %s", s.Ending())
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
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
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

// Eventually asks every 20 ms until check returns nil, and fails the test with
// its last error when that takes too long.
func Eventually(t *testing.T, patience time.Duration, what string, check func() error) {
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

// ask sends a request without a body, and returns what was answered.
func ask(method, url string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(context.Background(), method, url, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := apiClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// get returns the body of a 200.
func get(url string) ([]byte, error) {
	status, body, err := ask(http.MethodGet, url)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %d: %s", url, status, body)
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
