package sqlite

import (
	"sync/atomic"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// clock is the process's, since SQLite has none of its own. It never steps
// back while the process lives: a stepped-back system clock would make work
// that was put later come first.
type clock struct {
	last atomic.Int64
}

func (c *clock) now() model.Micros {
	now := time.Now().UnixMicro()
	for {
		last := c.last.Load()
		if now <= last {
			return model.Micros(last)
		}
		if c.last.CompareAndSwap(last, now) {
			return model.Micros(now)
		}
	}
}
