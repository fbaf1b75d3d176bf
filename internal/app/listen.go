package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/internal/config"
)

// How many connections an address has open at once. A connection costs some
// 10 KiB, and a file; more wait in the kernel until one is closed, and the
// servers' time limits close each that does nothing.
const (
	maxConnections      = 8192
	maxAdminConnections = 512
)

// listen opens the door's address, and the admin's where it is another one.
func listen(ctx context.Context, cfg *config.Config) (door, admin net.Listener, err error) {
	var lc net.ListenConfig
	door, err = lc.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("listen: %w", err)
	}
	door = limitConnections(door, maxConnections)
	if cfg.Admin.Listen == cfg.Listen {
		return door, door, nil
	}
	admin, err = lc.Listen(ctx, "tcp", cfg.Admin.Listen)
	if err != nil {
		_ = door.Close()
		return nil, nil, fmt.Errorf("admin.listen: %w", err)
	}
	return door, limitConnections(admin, maxAdminConnections), nil
}

func closeAll(listeners ...net.Listener) {
	for _, l := range listeners {
		_ = l.Close() // closed already where a server has used it
	}
}

// limited is a listener that has at most so many connections open.
type limited struct {
	net.Listener
	open   chan struct{} // holds one for each open connection
	closed chan struct{}
	once   sync.Once
}

func limitConnections(l net.Listener, most int) net.Listener {
	return &limited{Listener: l, open: make(chan struct{}, most), closed: make(chan struct{})}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.open <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.open
		return nil, err
	}
	return &counted{Conn: c, release: sync.OnceFunc(func() { <-l.open })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// counted is a connection of a limited listener.
type counted struct {
	net.Conn
	release func()
}

func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// served is a server and where it serves.
type served struct {
	*http.Server
	on net.Listener
}

// servers makes one server, or two where the admin has an address of its own.
func servers(box, api http.Handler, door, admin net.Listener) []served {
	if door == admin {
		return []served{{inbox.Server(route(box, api)), door}}
	}
	return []served{{inbox.Server(route(box, http.NotFoundHandler())), door}, {inbox.Server(api), admin}}
}

// route gives the door all that was meant for it, and others the rest. An
// http.ServeMux would answer a path like //in/name with a redirect, which
// senders take for a success or follow without the body: the door answers 404,
// and remembers it.
func route(door, others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if forDoor(r.URL.Path) || forDoor(path.Clean("/"+r.URL.Path)) {
			door.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}

func forDoor(path string) bool { return path == "/in" || strings.HasPrefix(path, "/in/") }
