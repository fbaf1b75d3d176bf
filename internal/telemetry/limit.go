package telemetry

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	repeatAfter   = 5 * time.Second // the same text is written once in this time
	linesASecond  = 8               // at Warn or above, in any second
	belowError    = 6               // of those, how many may be below Error
	rememberTexts = 256             // texts that are told apart; beyond, the one longest unseen is forgotten
)

// limitHandler holds back what the limiter refuses, and adds to the next line
// how much that was.
type limitHandler struct {
	next  slog.Handler
	limit *limiter
}

func (h limitHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h limitHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.next.Handle(ctx, r)
	}
	v := h.limit.judge(r.Level, r.Message, time.Now())
	if !v.write {
		return nil
	}
	if v.suppressed > 0 || v.others > 0 {
		r = r.Clone()
		if v.suppressed > 0 {
			r.AddAttrs(slog.Int("suppressed", v.suppressed))
		}
		if v.others > 0 {
			r.AddAttrs(slog.Int("suppressed_others", v.others))
		}
	}
	return h.next.Handle(ctx, r)
}

func (h limitHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return limitHandler{h.next.WithAttrs(attrs), h.limit}
}

func (h limitHandler) WithGroup(name string) slog.Handler {
	return limitHandler{h.next.WithGroup(name), h.limit}
}

// limiter decides which lines are written. Its memory is bounded: texts are
// kept as hashes, and at most rememberTexts of them.
type limiter struct {
	seed  maphash.Seed
	count prometheus.Counter // of lines held back

	mu     sync.Mutex
	texts  map[textKey]*textState
	recent [linesASecond]time.Time // when the last lines were written, oldest at next
	next   int
	others int // held back, and their text was forgotten
}

type textKey struct {
	level slog.Level
	hash  uint64
}

type textState struct {
	written    time.Time // zero: never
	seen       time.Time
	suppressed int // since then
}

type verdict struct {
	write              bool
	suppressed, others int
}

func newLimiter(count prometheus.Counter) *limiter {
	return &limiter{seed: maphash.MakeSeed(), count: count, texts: make(map[textKey]*textState)}
}

func (l *limiter) judge(level slog.Level, text string, now time.Time) verdict {
	key := textKey{level, maphash.String(l.seed, text)}
	l.mu.Lock()
	defer l.mu.Unlock()

	s, known := l.texts[key]
	if !known {
		if len(l.texts) >= rememberTexts {
			l.forgetOldest()
		}
		s = &textState{}
		l.texts[key] = s
	}
	s.seen = now
	repeats := !s.written.IsZero() && now.Sub(s.written) < repeatAfter
	if repeats || !l.roomFor(level, now) {
		s.suppressed++
		l.count.Inc()
		return verdict{}
	}
	v := verdict{write: true, suppressed: s.suppressed, others: l.others}
	s.written, s.suppressed, l.others = now, 0, 0
	l.recent[l.next] = now
	l.next = (l.next + 1) % len(l.recent)
	return v
}

// roomFor says whether one more line keeps the last second within its bound.
func (l *limiter) roomFor(level slog.Level, now time.Time) bool {
	written := 0
	for _, t := range l.recent {
		if !t.IsZero() && now.Sub(t) < time.Second {
			written++
		}
	}
	if level < slog.LevelError {
		return written < belowError
	}
	return written < linesASecond
}

func (l *limiter) forgetOldest() {
	var oldest textKey
	var state *textState
	for k, s := range l.texts {
		if state == nil || s.seen.Before(state.seen) {
			oldest, state = k, s
		}
	}
	l.others += state.suppressed
	delete(l.texts, oldest)
}

// suppressedCounter makes the counter of lines held back, or takes the one
// that another logger has registered before.
func suppressedCounter(reg prometheus.Registerer) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "posthouse_log_lines_suppressed_total",
		Help: "Warnings and errors that were not written to the log, because the same text had just been written or the log was full for this second.",
	})
	if reg == nil {
		return c
	}
	if err := reg.Register(c); err != nil {
		if dup, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
			if existing, ok := dup.ExistingCollector.(prometheus.Counter); ok {
				return existing
			}
		}
	}
	return c
}
