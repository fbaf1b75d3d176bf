package email

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// maxReply is how much a server may say between two things that we say, in
// bytes: a reply that never ends must not fill the memory.
const maxReply = 128 << 10

var errReplyTooLong = errors.New("the server's answer is too long")

// wire is a connection on which each step has a deadline, and which ends with a
// context. Once something failed on it, all fails on it.
type wire struct {
	net.Conn
	mu       sync.Mutex
	ended    bool      // a context has ended: no deadline is set any more
	deadline time.Time // of the step
	read     int       // since the last write
	failed   error
	unsent   bool // a write failed: the other side cannot have got all of it
}

// step gives whatever follows until the next step so much time.
func (w *wire) step(limit time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.deadline = time.Now().Add(limit)
	_ = w.Conn.SetDeadline(w.deadline) // a closed connection says so on the next read
}

// follow ends everything on the wire when ctx ends. The returned function lets
// go of ctx, and says false when it has ended in between.
func (w *wire) follow(ctx context.Context) (release func() bool) {
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended = true
		_ = w.Conn.SetDeadline(time.Unix(1, 0))
	})
	return stop
}

// SetDeadline and its likes do nothing: steps alone decide.
func (*wire) SetDeadline(time.Time) error      { return nil }
func (*wire) SetReadDeadline(time.Time) error  { return nil }
func (*wire) SetWriteDeadline(time.Time) error { return nil }

func (w *wire) Read(p []byte) (int, error) {
	w.mu.Lock()
	failed, read := w.failed, w.read
	w.mu.Unlock()
	switch {
	case failed != nil:
		return 0, failed
	case read >= maxReply:
		return 0, w.fail(errReplyTooLong, false)
	}
	n, err := w.Conn.Read(p)
	w.mu.Lock()
	w.read += n
	w.mu.Unlock()
	if err != nil {
		return n, w.fail(err, false)
	}
	return n, nil
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	failed := w.failed
	w.read = 0
	w.mu.Unlock()
	if failed != nil {
		return 0, w.fail(failed, true)
	}
	n, err := w.Conn.Write(p)
	if err != nil {
		return n, w.fail(err, true)
	}
	return n, nil
}

func (w *wire) fail(err error, writing bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		w.failed = err
	}
	w.unsent = w.unsent || writing
	return w.failed
}

// incomplete says whether something was written that did not go out.
func (w *wire) incomplete() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unsent
}
