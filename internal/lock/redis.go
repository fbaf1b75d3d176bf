package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

const (
	probeInterval = time.Second
	// maxRemnants bounds what is remembered to be deleted; what does not find room expires by itself.
	maxRemnants = 1000
)

// remnant is a key that may still be there although nobody counts on it.
type remnant struct {
	key, value string
	expires    time.Time // when it has gone by itself
}

// start runs f in a goroutine that Close waits for; false when it is closed.
func (r *Redis) start(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.running.Go(f)
	return true
}

// call has Redis asked, and returns when it has answered, when ctx ends or when patience is spent, whichever is
// first. What is asked has a context of its own: it may be the one that connects, for which others wait, too. If its
// answer is yes and nobody waits for it any more, late is called.
func (r *Redis) call(ctx context.Context, ask func(context.Context) (bool, error), late func()) (bool, error) {
	type answer struct {
		yes bool
		err error
	}
	answers, abandoned := make(chan answer), make(chan struct{})
	asking, cancel := context.WithTimeout(r.ctx, patience)
	if !r.start(func() {
		defer cancel()
		yes, err := ask(asking)
		err = r.note(err)
		select {
		case answers <- answer{yes, err}:
		case <-abandoned:
			if yes {
				late()
			}
		}
	}) {
		cancel()
		return false, errClosed
	}
	select {
	case a := <-answers:
		return a.yes, a.err
	case <-ctx.Done():
		close(abandoned)
		return false, ctx.Err()
	case <-asking.Done():
		close(abandoned)
		return false, r.note(asking.Err())
	}
}

// run calls one of the scripts.
func (r *Redis) run(ctx context.Context, script *rueidis.Lua, key, value string) (bool, error) {
	return r.call(ctx, func(ctx context.Context) (bool, error) {
		n, err := script.Exec(ctx, r.client, []string{key}, []string{value, strconv.FormatInt(r.lease.Milliseconds(), 10)}).AsInt64()
		return n == 1, err
	}, func() {}) // an answer that comes late changes nothing: all scripts compare first
}

// note remembers how a call went, for Check, and returns its error as it may be shown. When Redis has just gone, a
// probe is wanted at once: it may have been one connection only.
func (r *Redis) note(err error) error {
	switch {
	case err == nil:
	case r.ctx.Err() != nil:
		return errClosed
	case errors.Is(err, context.DeadlineExceeded):
		err = errSilent
	default:
		err = showable(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && r.trouble == nil {
		r.wake()
	}
	r.trouble = err
	return err
}

// showable takes out of an error what may hold the password: a server that does not know AUTH repeats what it was given.
func showable(err error) error {
	if before, _, repeats := strings.Cut(err.Error(), ", with args beginning with"); repeats {
		return errors.New("Redis: " + before)
	}
	if reply, ok := errors.AsType[*rueidis.RedisError](err); ok {
		return errors.New("Redis: " + reply.Error())
	}
	return errors.New("Redis does not answer: " + err.Error())
}

// leave remembers a key to be deleted as soon as Redis answers.
func (r *Redis) leave(key, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.remains) == maxRemnants {
		r.remains = r.remains[1:]
	}
	// A command that is under way may yet set it to a whole lease.
	r.remains = append(r.remains, remnant{key: key, value: value, expires: time.Now().Add(patience + r.lease)})
	if r.trouble == nil {
		r.wake()
	}
}

// wake has the probe run now.
func (r *Redis) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// probe keeps what is known about Redis up to date until Close.
func (r *Redis) probe() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-timer.C:
		case <-r.kick:
		}
		if r.try() == nil {
			r.sweep()
		}
		timer.Reset(probeInterval)
	}
}

// try does what a lock needs, on a key that does not exist, and changes nothing: it meets whatever keeps Redis from
// giving locks, be it that it is read-only, full or forbidden to us.
func (r *Redis) try() error {
	key := r.prefix + rand.Text()
	_, err := r.call(r.ctx, func(ctx context.Context) (bool, error) {
		command := r.client.B().Set().Key(key).Value("probe").Xx().PxMilliseconds(1).Build()
		if err := r.client.Do(ctx, command).Error(); err != nil && !rueidis.IsRedisNil(err) {
			return false, err
		}
		return false, extendScript.Exec(ctx, r.client, []string{key}, []string{"probe", "1"}).Error()
	}, func() {})
	return err
}

// sweep deletes what was left.
func (r *Redis) sweep() {
	for {
		r.mu.Lock()
		for len(r.remains) > 0 && time.Now().After(r.remains[0].expires) {
			r.remains = r.remains[1:]
		}
		if len(r.remains) == 0 {
			r.remains = nil
			r.mu.Unlock()
			return
		}
		next := r.remains[0]
		r.remains = r.remains[1:]
		r.mu.Unlock()
		if _, err := r.run(r.ctx, deleteScript, next.key, next.value); err != nil {
			r.mu.Lock()
			r.remains = append([]remnant{next}, r.remains...)
			r.mu.Unlock()
			return
		}
	}
}
