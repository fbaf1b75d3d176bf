// Package lock answers one question: may this process, and no other, do something that has a name, as far as Redis
// knows?
//
// It stands beside the lease that the store keeps, and that lease remains the truth: Redis only excludes in addition.
// A Redis that is wiped, or fails over to a replica that lags, gives one lock to two holders until the first of them
// renews, which is at most a third of the lease later; nothing here is a fence, and nobody's write is judged by it.
//
// A lock is a key that holds a value nobody else can have:
//
//	free ──SET NX PX──▶ held ──compare and extend, each lease/3──▶ held …
//	                     │ │ └──compare and delete (Release)──▶ free
//	                     │ └────the key is gone or another's; or no renewal came through in time──▶ lost
//	                     └──────the holder dies: the key expires, at most one lease after the last renewal──▶ free
//
// A holder judges by its own monotonic clock, from before it sent the last renewal that came through, and gives up a
// tenth of the lease before Redis does. Redis is only ever told durations, so the clocks of the hosts may differ as
// they like. That is one reason why this is not rueidislock, which sends points in time and so loses its locks, or
// keeps them for too long, by as much as the clocks are apart. The others: it needs a reachable server to begin with,
// gives a lock up at the first renewal that fails instead of trying again while the key stands, and may wait for as
// long as a lease when it releases.
//
// What is known about Redis is kept up to date by a probe each second: the same commands as a lock needs, on a key
// that never exists. While Redis is known to be away, TryLock fails at once instead of letting hundreds of sources
// wait one after the other, and whatever could not be deleted meanwhile is deleted when Redis is back.
package lock

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

const (
	// patience bounds every call: two of them never follow each other within one of our functions, so that a caller
	// waits for less than 2 s.
	patience = 1500 * time.Millisecond
	// minLease leaves time for a renewal to fail and to be tried again.
	minLease = time.Second
)

// Config says which Redis, and how its keys are used.
type Config struct {
	// URL is redis://[[user]:password@]host[:port][/number], or rediss://… for TLS. One server: neither a cluster
	// nor sentinels. It needs SET, GET, DEL, PEXPIRE and EVALSHA/EVAL on the keys below Prefix.
	URL string
	// Lease is how long a key is valid without being renewed, which happens each third of it. Default 30 s, at
	// least 1 s.
	Lease time.Duration
	// Prefix begins the name of each key. Default "posthouse:lock:". Instances that are to exclude each other need
	// the same one.
	Prefix string
}

// Held is a lock that was obtained. It is an alias of its literal, so that whoever declares a port of its own
// in these words is served by *Redis as it is.
type Held = interface {
	// Lost is closed when the lock is no longer ours although nobody released it: the key is gone or another's, it
	// could not be renewed in time, or the Redis was closed. Never at a Release.
	Lost() <-chan struct{}
	// Release gives the lock back and returns within 2 s, also when Redis is away: then the key is deleted when
	// Redis is back, or expires. It may be called more than once, and after a loss, and never frees another's lock.
	Release()
}

// Redis gives out locks. Its methods may be called from several goroutines.
type Redis struct {
	lease  time.Duration
	prefix string
	client rueidis.Client

	ctx     context.Context // ends with Close
	end     context.CancelFunc
	kick    chan struct{} // a probe is wanted now
	closing sync.Once

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // of goroutines; added to under mu, while not closed
	trouble error          // nil: the last call went well
	remains []remnant      // oldest first
}

var (
	errClosed   = errors.New("the lock's connection to Redis was closed")
	errStarting = errors.New("Redis was not reached yet")
	errSilent   = fmt.Errorf("Redis gave no answer within %v", patience)
	errOpening  = errors.New("not yet")
)

// Open returns at once, whether Redis answers or not: it is connected to in the background, and again whenever it was
// away. The error is about cfg and shows nothing of the URL.
func Open(cfg Config) (*Redis, error) {
	option, err := parse(cfg.URL)
	if err != nil {
		return nil, err
	}
	r := &Redis{lease: cfg.Lease, prefix: cfg.Prefix, kick: make(chan struct{}, 1), trouble: errStarting}
	if r.lease == 0 {
		r.lease = 30 * time.Second
	}
	if r.lease < minLease {
		return nil, fmt.Errorf("the lease of a lock is %v: at least %v is needed", r.lease, minLease)
	}
	if r.prefix == "" {
		r.prefix = "posthouse:lock:"
	}

	// The client connects when it is made, and again on use when that failed. Nobody shall wait for the server here,
	// so the first time is refused.
	opening := true // read by the client's goroutines only after it was made
	option.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, cfg *tls.Config) (net.Conn, error) {
		if opening {
			return nil, errOpening
		}
		if cfg != nil {
			return (&tls.Dialer{NetDialer: dialer, Config: cfg}).DialContext(ctx, "tcp", address)
		}
		return dialer.DialContext(ctx, "tcp", address)
	}
	r.client, err = rueidis.NewClient(option)
	opening = false
	if r.client == nil {
		return nil, fmt.Errorf("making a client of Redis: %w", err)
	}

	r.ctx, r.end = context.WithCancel(context.Background())
	r.running.Go(r.probe)
	return r, nil
}

// parse reads the URL. Its error says nothing of what stands there: a password with a special character may be what
// makes it unreadable.
func parse(raw string) (rueidis.ClientOption, error) {
	unreadable := errors.New("the URL of Redis cannot be read: redis://[[user]:password@]host[:port][/number] is expected, " +
		"or rediss:// for TLS; special characters in a password are written as %XX")
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || (u.Scheme != "redis" && u.Scheme != "rediss") {
		return rueidis.ClientOption{}, unreadable
	}
	if u.Path == "/" {
		u.Path = ""
	}
	option, err := rueidis.ParseURL(u.String())
	if err != nil || option.SelectDB < 0 {
		return rueidis.ClientOption{}, unreadable
	}
	option.ForceSingleClient = true // it is what reconnects by itself when there was no server to begin with
	option.AlwaysPipelining = true  // a call ends with its context and leaves the connection to the others
	option.PipelineMultiplex = -1   // one connection
	option.DisableRetry = true      // a retry is decided on here
	option.DisableCache = true
	option.ClientName = "posthouse"
	option.Dialer.Timeout = patience
	option.ConnWriteTimeout = patience // after which a silent connection is given up
	option.ReadBufferEachConn, option.WriteBufferEachConn = 8<<10, 8<<10
	return option, nil
}

// TryLock takes the lock of that name, or says at once that another holds it (ok is false), be it in this process. An
// error means that Redis could not be asked; it comes within 2 s and names the cause, without the password.
func (r *Redis) TryLock(ctx context.Context, name string) (held Held, ok bool, err error) {
	// Only the answer to a call says that Redis is away; before the first one nobody knows.
	if err := r.Check(); err != nil && !errors.Is(err, errStarting) {
		return nil, false, fmt.Errorf("taking the lock %q: %w", name, err)
	}
	h := &hold{redis: r, key: r.prefix + name, value: rand.Text(), lost: make(chan struct{}), watched: make(chan struct{})}
	sent := time.Now()
	taken, err := r.call(ctx, func(ctx context.Context) (bool, error) {
		command := r.client.B().Set().Key(h.key).Value(h.value).Nx().PxMilliseconds(r.lease.Milliseconds()).Build()
		err := r.client.Do(ctx, command).Error()
		if rueidis.IsRedisNil(err) {
			return false, nil
		}
		return err == nil, err
	}, func() { r.leave(h.key, h.value) })
	until := r.until(sent)
	if err == nil && taken && !time.Now().Before(until) {
		err = fmt.Errorf("the answer took %v, longer than the lease allows", time.Since(sent))
	}
	if err != nil {
		r.leave(h.key, h.value) // it may have been taken all the same
		return nil, false, fmt.Errorf("taking the lock %q: %w", name, err)
	}
	if !taken {
		return nil, false, nil
	}
	h.ctx, h.stop = context.WithCancel(r.ctx)
	if !r.start(func() { h.watch(until) }) {
		h.stop()
		return nil, false, fmt.Errorf("taking the lock %q: %w", name, errClosed)
	}
	return h, true, nil
}

// until says when to give up a lock whose key was set to a whole lease by a command sent at that time.
func (r *Redis) until(sent time.Time) time.Time { return sent.Add(r.lease - r.lease/10) }

// Check says what is wrong with Redis now, without its password; nil when the last call or probe, at most about
// a second ago, went well.
func (r *Redis) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed
	}
	return r.trouble
}

// Close stops everything that runs here. What is still held counts as lost, and its keys are left to expire: whoever
// holds them may be at work yet. It may be called more than once.
func (r *Redis) Close() {
	r.closing.Do(func() {
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		r.end()
		r.running.Wait() // or a connection that is being made would outlive the client
		r.client.Close()
	})
}
