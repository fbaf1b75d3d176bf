package testdb

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A Server is a server that one test has to itself, to stop, to start and to wipe it.
type Server struct {
	// URL is that of an empty database on it, or that of the Redis, as a configuration would hold it.
	URL string

	name   string // as scripts/services calls it
	script string
	env    []string
}

// Own starts a server for this test alone: "postgres", "mariadb", "mysql" or "redis", with the settings of the
// shared one, on a free port and with data of its own. It takes a few seconds; a Redis, half of one. The server is
// stopped and its data are deleted when the test ends.
func Own(t testing.TB, name string) *Server {
	t.Helper()
	return OwnAt(t, name, 0)
}

// OwnAt starts a "postgres" or a "mariadb" as Own does, whose clock is that much ahead of ours, or behind.
func OwnAt(t testing.TB, name string, ahead time.Duration) *Server {
	t.Helper()
	// Not t.TempDir: the path of a socket has to be short, and the server's user has to get in.
	dir, err := os.MkdirTemp("", "posthouse-own-") //nolint:usetesting // see above
	if err != nil {
		t.Fatalf("making a folder for a %s: %v", name, err)
	}
	port := freePort(t)
	upper := strings.ToUpper(name)
	_, self, _, _ := runtime.Caller(0)
	s := &Server{name: name, script: filepath.Join(filepath.Dir(self), "..", "..", "scripts", "services")}
	for _, kv := range os.Environ() {
		// A variable that names the shared server would make the script leave this one alone.
		if !strings.HasPrefix(kv, "POSTHOUSE_TEST_"+upper+"=") {
			s.env = append(s.env, kv)
		}
	}
	s.env = append(s.env, "POSTHOUSE_SERVICES_DIR="+dir, "POSTHOUSE_SERVICES_"+upper+"_PORT="+port)
	if ahead != 0 {
		s.env = append(s.env, fmt.Sprintf("POSTHOUSE_SERVICES_CLOCK=%+d", int(ahead.Seconds())))
	}
	t.Cleanup(func() {
		if err := s.run("clean"); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("deleting the folder of a %s: %v", name, err)
		}
	})
	s.Start(t)
	switch name {
	case "redis":
		s.URL = "redis://127.0.0.1:" + port + "/0"
	case "postgres":
		s.URL = "postgres://posthouse:posthouse@127.0.0.1:" + port + "/posthouse"
	default:
		s.URL = "mysql://posthouse:posthouse@127.0.0.1:" + port + "/posthouse"
	}
	return s
}

// Stop ends the server in an orderly way, whoever is connected, and returns when it has ended.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.run("stop"); err != nil {
		t.Fatal(err)
	}
}

// Start starts the server again, on the same port and with its data, and returns when it answers a query.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.run("start"); err != nil {
		t.Fatal(err)
	}
}

// Wipe stops the server, whoever is connected, deletes all of its data and starts it again, on the same port.
func (s *Server) Wipe(t testing.TB) {
	t.Helper()
	if err := s.run("clean"); err != nil {
		t.Fatal(err)
	}
	s.Start(t)
}

func (s *Server) run(command string) error {
	cmd := exec.Command(s.script, command, s.name)
	cmd.Env = s.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("scripts/services %s %s: %w\n%s", command, s.name, err, out.Bytes())
	}
	return nil
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("looking for a free port: %v", err)
	}
	defer l.Close() //nolint:errcheck // nothing was sent
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatalf("looking for a free port: %v", err)
	}
	return port
}
