package app

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are pipes, so that they run on a test's clock.
type pipes struct{ conns chan net.Conn }

func (p *pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p *pipes) Close() error   { close(p.conns); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

func TestSlowClients(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	for _, ports := range []string{"one port", "two ports"} {
		for _, path := range []string{"/", "/in", "/in/x", "//in/x", "/v1/inbox/stats", "/healthz"} {
			for name, request := range map[string]string{
				"a body that does not come":                 "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
				"a body that does not end":                  "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
				"a header that does not end":                "GET %s HTTP/1.1\r\nHost: x\r\n",
				"nothing after an answer":                   "GET %s HTTP/1.1\r\nHost: x\r\n\r\n",
				"a second body that does not come":          "GET %[1]s HTTP/1.1\r\nHost: x\r\n\r\nPOST %[1]s HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
				"a body that does not come, Expect":         "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n",
				"a large body that does not come, to close": "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\nConnection: close\r\n\r\n",
			} {
				t.Run(fmt.Sprintf("IN-03 %s, %s: %s is not waited for without end", ports, path, name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						door, admin := &pipes{make(chan net.Conn)}, &pipes{make(chan net.Conn)}
						if ports == "one port" {
							admin = door
						}
						list := servers(answer, answer, door, admin)
						for _, s := range list {
							go func() { _ = s.Serve(s.on) }()
							t.Cleanup(func() { _ = s.Close() })
							client := s.on.(*pipes).dial() //nolint:forcetypeassert // made above
							started := time.Now()
							go func() { _, _ = fmt.Fprintf(client, request, path) }()
							_, err := io.Copy(io.Discard, client)
							if took := time.Since(started); err != nil || took > 130*time.Second ||
								strings.Contains(name, "body") && took > 15*time.Second {
								t.Errorf("held for %s, %v", took, err)
							}
							_ = client.Close()
						}
					})
				})
			}
		}
	}
}

func TestRoute(t *testing.T) {
	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	}
	one := servers(named("door"), named("others"), nil, nil)[0]
	two := servers(named("door"), named("others"), &pipes{}, &pipes{})
	for path, want := range map[string]string{
		"/in": "door", "/in/": "door", "/in/ok": "door", "//in/ok": "door", "/in//ok": "door", "/in/./ok": "door", "/in/../in/ok": "door",
		"/in/../v1": "door", "/./in/ok": "door", "/x/../in/ok": "door", "/%69n/ok": "door", "/in/ok/": "door",
		"/": "others", "/inbox": "others", "/v1/in/ok": "others", "//v1": "others", "/IN/ok": "others",
	} {
		t.Run("IN-01 "+path, func(t *testing.T) {
			if got := ask(t, one.Handler, path); got != want {
				t.Errorf("on one port answered by %q, want %q", got, want)
			}
			want := map[string]string{"door": "door", "others": "404 page not found\n"}[want]
			if got := ask(t, two[0].Handler, path); got != want {
				t.Errorf("on the door's own port answered by %q, want %q", got, want)
			}
			if got := ask(t, two[1].Handler, path); got != "others" {
				t.Errorf("on the admin's own port answered by %q", got)
			}
		})
	}
}

// ask returns what a handler answers to a POST.
func ask(t *testing.T, handler http.Handler, path string) string {
	t.Helper()
	client, server := net.Pipe()
	go func() {
		listener := &pipes{make(chan net.Conn, 1)}
		listener.conns <- server
		_ = (&http.Server{Handler: handler, ReadHeaderTimeout: time.Second}).Serve(listener)
	}()
	defer func() { _ = client.Close() }()
	go func() { _, _ = fmt.Fprintf(client, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path) }()
	response, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 && response.StatusCode != http.StatusNotFound {
		t.Fatalf("%d %q, %v", response.StatusCode, body, err)
	}
	return string(body)
}

func TestLimitConnections(t *testing.T) {
	t.Run("IN-03 door and admin have a bound each", func(t *testing.T) {
		for yaml, want := range map[string][2]int{
			"listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\n": {maxConnections, maxConnections},
			"listen: 127.0.0.1:0\nadmin: {listen: localhost:0}\n": {maxConnections, maxAdminConnections},
		} {
			door, admin, err := listen(t.Context(), parse(t, yaml+"store: sqlite:x.db\nsources: {a: {verify: {kind: none}}}", nil))
			if err != nil {
				t.Fatal(err)
			}
			closeAll(door, admin)
			for i, l := range []net.Listener{door, admin} {
				if bound, ok := l.(*limited); !ok || cap(bound.open) != want[i] {
					t.Errorf("%q: listener %d is not bounded as it should be", yaml, i)
				}
			}
		}
	})
	t.Run("IN-03 a listener has no more connections open than it may", func(t *testing.T) {
		open, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := limitConnections(open, 2)
		accepted, ended := make(chan net.Conn), make(chan error, 1)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				accepted <- c
			}
		}()
		for range 3 {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}
		first, second := <-accepted, <-accepted
		defer func() { _ = second.Close() }()
		select {
		case <-accepted:
			t.Fatal("a third was accepted")
		case <-time.After(50 * time.Millisecond):
		}
		_ = first.Close()
		_ = first.Close() // counts once
		third := <-accepted
		defer func() { _ = third.Close() }()
		_ = l.Close()
		if err := <-ended; err == nil {
			t.Error("Accept does not end with Close")
		}
	})
}
