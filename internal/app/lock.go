package app

import (
	"context"
	"fmt"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/lock"
)

// openLock opens what excludes instances beside the store; nil: nothing does.
// Redis need not answer: receiving goes on without it, and consuming waits.
func openLock(cfg config.Lock) (*lock.Redis, error) {
	if cfg.Backend != config.LockBackendRedis {
		return nil, nil
	}
	redis, err := lock.Open(lock.Config{URL: cfg.URL.Reveal(), Lease: cfg.Lease})
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return redis, nil
}

// lockerOf hands the inbox what it knows as its own; nil for nil.
func lockerOf(redis *lock.Redis) inbox.Locker {
	if redis == nil {
		return nil
	}
	return locker{redis}
}

type locker struct{ redis *lock.Redis }

// TryLock implements inbox.Locker.
func (l locker) TryLock(ctx context.Context, name string) (inbox.Held, bool, error) {
	return l.redis.TryLock(ctx, name)
}
