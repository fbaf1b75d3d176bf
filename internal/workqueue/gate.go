package workqueue

import (
	"sync"
	"time"
)

// gate lets everybody in, or one alone.
type gate struct {
	alone chan struct{} // held by whoever wants to be, or is, alone

	mu      sync.Mutex
	inside  int           // those let in who have not left
	closed  chan struct{} // closed again when the gate opens; nil while it is open
	emptied chan struct{} // closed when inside reaches 0; nil if nobody waits for that
}

func newGate() *gate { return &gate{alone: make(chan struct{}, 1)} }

// enter waits until the gate is open, and goes in.
func (g *gate) enter(stop <-chan struct{}) bool {
	for {
		g.mu.Lock()
		closed := g.closed
		if closed == nil {
			g.inside++
			g.mu.Unlock()
			return true
		}
		g.mu.Unlock()
		select {
		case <-closed:
		case <-stop:
			return false
		}
	}
}

// add lets n more in, on behalf of one who is inside.
func (g *gate) add(n int) {
	g.mu.Lock()
	g.inside += n
	g.mu.Unlock()
}

// leave goes out again.
func (g *gate) leave() {
	g.mu.Lock()
	g.inside--
	if g.inside == 0 && g.emptied != nil {
		close(g.emptied)
		g.emptied = nil
	}
	g.mu.Unlock()
}

// enterAlone closes the gate, waits until nobody is inside, and goes in. It
// keeps the gate closed for at most limit, however long the one inside stays.
// It gives up, false, when the others have not left by then.
func (g *gate) enterAlone(stop <-chan struct{}, limit time.Duration) (leave func(), ok bool) {
	select {
	case g.alone <- struct{}{}:
	case <-stop:
		return nil, false
	}
	opened := make(chan struct{})
	g.mu.Lock()
	g.closed = opened
	var emptied chan struct{}
	if g.inside > 0 {
		emptied = make(chan struct{})
		g.emptied = emptied
	}
	g.mu.Unlock()

	open := sync.OnceFunc(func() {
		g.mu.Lock()
		g.closed, g.emptied = nil, nil
		g.mu.Unlock()
		close(opened)
		<-g.alone
	})
	if emptied != nil {
		quiet := time.NewTimer(limit)
		defer quiet.Stop()
		select {
		case <-emptied:
		case <-quiet.C:
			open()
			return nil, false
		case <-stop:
			open()
			return nil, false
		}
	}
	reopen := time.AfterFunc(limit, open)
	return func() {
		reopen.Stop()
		open()
	}, true
}
