package lock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// Both compare first. pcall, since a key that was overwritten by a list, say, is another's as well. The second
// argument of one is the lease in milliseconds.
var (
	extendScript = rueidis.NewLuaScript(`if redis.pcall("GET",KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE",KEYS[1],ARGV[2]) end return 0`)
	deleteScript = rueidis.NewLuaScript(`if redis.pcall("GET",KEYS[1]) == ARGV[1] then return redis.call("DEL",KEYS[1]) end return 0`)
)

// hold is a lock that was obtained.
type hold struct {
	redis      *Redis
	key, value string

	ctx     context.Context // ends with Release, and with the Redis
	stop    context.CancelFunc
	lost    chan struct{}
	gone    bool          // the key is known to be no longer ours; read after watched is closed
	watched chan struct{} // closed when watch has ended
	once    sync.Once
}

var _ Held = (*hold)(nil)

func (h *hold) Lost() <-chan struct{} { return h.lost }

// watch renews the key until the lock is released or lost.
func (h *hold) watch(until time.Time) {
	defer close(h.watched)
	third := h.redis.lease / 3
	renew := time.NewTimer(third)
	defer renew.Stop()
	for {
		select {
		case <-h.ctx.Done():
			if h.redis.ctx.Err() != nil {
				close(h.lost)
			}
			return
		case <-renew.C:
		}
		sent := time.Now()
		if !sent.Before(until) { // no renewal came through in time, or we were frozen
			close(h.lost)
			return
		}
		ours, err := h.extend(until)
		switch {
		case err != nil:
			// The key may stand yet. It is tried again several times within what is left, and not after that.
			renew.Reset(min(time.Second, h.redis.lease/20, time.Until(until)))
		case !ours:
			h.gone = true
			close(h.lost)
			return
		default:
			until = h.redis.until(sent)
			renew.Reset(third)
		}
	}
}

func (h *hold) extend(until time.Time) (ours bool, err error) {
	ctx, cancel := context.WithDeadline(h.ctx, until)
	defer cancel()
	return h.redis.run(ctx, extendScript, h.key, h.value)
}

func (h *hold) Release() {
	h.once.Do(func() {
		h.stop()
		<-h.watched // at once: each of its calls ends with the context
		if h.gone {
			return
		}
		if h.redis.Check() == nil {
			if _, err := h.redis.run(context.Background(), deleteScript, h.key, h.value); err == nil {
				return
			}
		}
		h.redis.leave(h.key, h.value)
	})
}
