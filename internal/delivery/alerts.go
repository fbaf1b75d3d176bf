package delivery

import (
	"log/slog"
	"sync"
	"time"
)

// alertEvery is how often deliveries that have died are told of, after the first.
const alertEvery = time.Minute

// alerts groups what has to be told of one account: the first at once, then
// how many there were.
type alerts struct {
	log     *slog.Logger
	channel string

	mu   sync.Mutex
	last time.Time // when something was told
	more int       // since then
	code string    // of the last of them
}

// dead tells of a delivery whose tries are spent.
func (a *alerts) dead(code string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last.IsZero() || time.Since(a.last) >= alertEvery {
		a.last = time.Now()
		n := 1 + a.more
		a.more = 0
		a.log.Error("deliveries are dead: their tries are spent; replay them when the cause is mended", "channel", a.channel, "count", n, "code", code)
		return
	}
	a.more++
	a.code = code
}

// flush tells of those that came soon after the last that was told.
func (a *alerts) flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.more == 0 || time.Since(a.last) < alertEvery {
		return
	}
	a.last = time.Now()
	a.log.Error("more deliveries are dead: their tries are spent", "channel", a.channel, "count", a.more, "code", a.code)
	a.more = 0
}
