package crash

import (
	"fmt"
	"strings"
	"time"
)

// serverConfig is what the tests vary of a configuration.
type serverConfig struct {
	Store   string // URL
	Sources []sourceConfig
}

// sourceConfig is one source; zero values mean the defaults written in yaml.
type sourceConfig struct {
	Name          string
	Order         string // "serial" or "parallel"
	Target        string // URL of the handler
	MaxRetry      int
	Backoff       time.Duration // the same before each retry
	Timeout       time.Duration
	OrphanAfter   time.Duration
	RoundInterval time.Duration
	Concurrency   int
}

// lease is what all servers here run with: how soon others may take over from
// a killed one.
const lease = 2 * time.Second

// answerWithin is what all sources here promise their senders, and grace what
// a sender allows on top.
const (
	answerWithin = 2 * time.Second
	grace        = 500 * time.Millisecond
)

func (c serverConfig) yaml(door, admin string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `listen: %s
admin: {listen: %s}
store: ${POSTHOUSE_STORE}
lock: {backend: store, lease: %v}
log: {format: json}
sources:
`, door, admin, lease)
	for _, s := range c.Sources {
		fmt.Fprintf(&b, `  %s:
    verify: {kind: none}
    answer_within: %v
    handler: {http: {url: %q, allow_private: true}}
    consume: {enabled: true, order: %s, concurrency: %d, round_interval: %v, batch_size: 50, max_retry: %d,
              backoff: [%v], timeout: %v, orphan_after: %v, trip_after: 3}
`, s.Name, answerWithin, s.Target, s.Order, or(s.Concurrency, 64), or(s.RoundInterval, 200*time.Millisecond), s.MaxRetry,
			or(s.Backoff, 300*time.Millisecond), or(s.Timeout, 5*time.Second), or(s.OrphanAfter, 25*time.Second))
	}
	return []byte(b.String())
}

func or[T comparable](value, instead T) T {
	var zero T
	if value == zero {
		return instead
	}
	return value
}
