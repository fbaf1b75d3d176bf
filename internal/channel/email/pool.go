package email

import (
	"context"
	"slices"
	"sync"
	"time"
)

// pool keeps connections that nobody uses, and bounds how many are open. A
// connection of which it has heard nothing for the idle time it closes.
type pool struct {
	slots chan struct{}
	keep  time.Duration

	mu     sync.Mutex
	idle   []*session // the last one used is the last
	closed bool
}

func newPool(size int, keep time.Duration) *pool {
	return &pool{slots: make(chan struct{}, size), keep: keep}
}

// acquire waits until one more connection may be open.
func (p *pool) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pool) release() { <-p.slots }

// take returns an idle connection, nil where there is none.
func (p *pool) take() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	c := p.idle[last]
	p.idle = p.idle[:last]
	c.idle.Stop()
	return c
}

// put keeps a connection for the next one.
func (p *pool) put(c *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.close(true)
		return
	}
	p.idle = append(p.idle, c)
	c.idle = time.AfterFunc(p.keep, func() { p.expire(c) })
}

func (p *pool) expire(c *session) {
	p.mu.Lock()
	i := slices.Index(p.idle, c)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		c.close(true)
	}
}

func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, c := range idle {
		c.idle.Stop()
		c.close(true)
	}
}
