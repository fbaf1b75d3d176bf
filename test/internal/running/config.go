package running

import (
	"fmt"
	"strings"
	"time"
)

// Config is what the tests vary of a configuration.
type Config struct {
	Store   string // URL
	Redis   string // URL of the lock's backend; empty: the store excludes
	Sources []Source
	// Notify is what is written of notifications; nil: nothing.
	Notify *Notify
	// LogLevel is "debug", "info", …; empty: the default.
	LogLevel string

	// Name tells instances of one configuration apart: in the target's memory and
	// in the name of the log's file. Default "server".
	Name string
	// Env is added to the environment of the process, each as NAME=value.
	Env []string
}

// Source is one source; zero values mean the defaults written in yaml.
type Source struct {
	Name          string
	Order         string // "serial", "keyed" or "parallel"
	Key           string // expression, for keyed order
	Partitions    int    // of keyed order
	Block         bool   // on_retry
	Dedup         string // the section dedup, in YAML's flow style; empty: none
	Target        string // URL of the handler
	MaxRetry      int
	Backoff       time.Duration // the same before each retry
	Timeout       time.Duration
	OrphanAfter   time.Duration
	RoundInterval time.Duration
	Concurrency   int
}

// Lease is what all servers here run with: how soon others may take over from
// a killed one.
const Lease = 2 * time.Second

// Freed is when, at the latest, a dead instance's leases are free for others.
const Freed = Lease + Lease/3

// AnswerWithin is what all sources here promise their senders, and Grace what
// a sender allows on top.
const (
	AnswerWithin = 2 * time.Second
	Grace        = 500 * time.Millisecond
)

// The environment that a server's file refers to.
const (
	envStore = "POSTHOUSE_STORE"
	envDoor  = "POSTHOUSE_TEST_DOOR"
	envAdmin = "POSTHOUSE_TEST_ADMIN"
	envName  = "POSTHOUSE_TEST_NAME"
)

func (c Config) yaml() []byte {
	var b strings.Builder
	lock := "backend: store"
	if c.Redis != "" {
		lock = fmt.Sprintf("backend: redis, url: %q", c.Redis)
	}
	fmt.Fprintf(&b, `listen: ${%s}
admin: {listen: "${%s}"}
store: ${%s}
lock: {%s, lease: %v}
log: {format: json, level: %s}
sources:
`, envDoor, envAdmin, envStore, lock, Lease, or(c.LogLevel, "info"))
	for _, s := range c.Sources {
		fmt.Fprintf(&b, `  %s:
    verify: {kind: none}
    answer_within: %v
    handler: {http: {url: "%s/${%s}", allow_private: true}}
    consume: {enabled: true, order: %s, concurrency: %d, round_interval: %v, batch_size: 50, max_retry: %d,
              backoff: [%v], timeout: %v, orphan_after: %v, trip_after: 3%s}
`, s.Name, AnswerWithin, s.Target, envName, s.Order, or(s.Concurrency, 64), or(s.RoundInterval, 200*time.Millisecond), s.MaxRetry,
			or(s.Backoff, 300*time.Millisecond), or(s.Timeout, 5*time.Second), or(s.OrphanAfter, 25*time.Second), s.ordering())
		if s.Dedup != "" {
			fmt.Fprintf(&b, "    dedup: %s\n", s.Dedup)
		}
	}
	if len(c.Sources) == 0 {
		b.WriteString("  idle: {verify: {kind: none}, handler: {http: {url: \"http://127.0.0.1:9/\", allow_private: true}}}\n")
	}
	if c.Notify != nil {
		c.Notify.write(&b)
	}
	return []byte(b.String())
}

// ordering writes what only some orders have.
func (s Source) ordering() string {
	var b strings.Builder
	if s.Key != "" {
		fmt.Fprintf(&b, ", key: %q", s.Key)
	}
	if s.Partitions > 0 {
		fmt.Fprintf(&b, ", partitions: %d", s.Partitions)
	}
	if s.Block {
		b.WriteString(", on_retry: block")
	}
	return b.String()
}

func or[T comparable](value, instead T) T {
	var zero T
	if value == zero {
		return instead
	}
	return value
}
