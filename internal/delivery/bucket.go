package delivery

import (
	"math"
	"time"
)

// bucket lets so many a second through. What was taken and not used can be put
// back, which the limiters of libraries do not offer once it could be used.
type bucket struct {
	rate   float64 // a second; 0: no bound
	tokens float64
	filled time.Time // when tokens was right
}

// burstOf is how many may go at once after a pause: what 50 ms let through.
const burstOf = 50 * time.Millisecond

func (b *bucket) burst() float64 { return max(1, b.rate*burstOf.Seconds()) }

// setRate changes the rate; what is in it stays.
func (b *bucket) setRate(rate float64, now time.Time) {
	b.fill(now)
	b.rate = rate
	b.tokens = min(b.tokens, b.burst())
}

func (b *bucket) fill(now time.Time) {
	if b.filled.IsZero() {
		b.tokens = b.burst()
	} else if passed := now.Sub(b.filled).Seconds(); passed > 0 {
		b.tokens = min(b.burst(), b.tokens+passed*b.rate)
	}
	b.filled = now
}

// take takes at most n, and says after what time it is worth asking again where
// there is none: when half of a burst has come together, so that a fast channel
// is not claimed for one by one.
func (b *bucket) take(n int, now time.Time) (taken int, again time.Duration) {
	if b.rate == 0 {
		return n, 0
	}
	b.fill(now)
	if taken = min(n, int(b.tokens+1e-9)); taken > 0 {
		b.tokens -= float64(taken)
		return taken, 0
	}
	missing := max(1, math.Floor(b.burst()/2)) - b.tokens
	return 0, time.Duration(missing/b.rate*float64(time.Second)) + time.Millisecond
}

// putBack puts n back.
func (b *bucket) putBack(n int) { b.tokens = min(b.burst(), b.tokens+float64(n)) }
