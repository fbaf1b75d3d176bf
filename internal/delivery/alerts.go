package delivery

import (
	"log/slog"
	"sync"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// alertEvery is how often deliveries that need somebody are told of, after the
// first.
const alertEvery = time.Minute

// alerts groups what has to be told of one account and one status: the first at
// once, then how many there were.
type alerts struct {
	log     *slog.Logger
	channel string
	status  model.DeliveryStatus
	advice  string

	mu   sync.Mutex
	last time.Time // when something was told
	more int       // since then
	code string    // of the last of them
}

const (
	adviceDead      = "their tries are spent; replay them when the cause is mended"
	adviceKey       = "what is sealed cannot be opened: give back the key that is missing in POSTHOUSE_KEYS; they wait, and no attempt is burned"
	adviceUncertain = "the provider may have accepted them; say of each whether it was sent"
)

// add tells of a delivery, or remembers it.
func (a *alerts) add(code string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.more++
	a.code = code
	a.tell()
}

// flush tells of those that came soon after the last that was told.
func (a *alerts) flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.more > 0 {
		a.tell()
	}
}

func (a *alerts) tell() {
	if !a.last.IsZero() && time.Since(a.last) < alertEvery {
		return
	}
	a.last = time.Now()
	a.log.Error("deliveries need an operator", "channel", a.channel, "status", string(a.status), "count", a.more, "code", a.code, "advice", a.advice)
	a.more = 0
}

// A channel that is held back is told of after heldTold, and then every heldAgain.
// Its deliveries wait, and that is all that they do: without a word nobody would
// know.
const (
	heldTold  = 5 * time.Minute
	heldAgain = time.Hour
)

// heldAlert tells of one account that it has been held back for long, and when that
// is over. Only its loop touches it.
type heldAlert struct {
	log     *slog.Logger
	channel string
	waiting bool          // something waits for the channel, as last counted
	told    time.Duration // for how long it had been held when that was told; 0: it was not
}

// look takes in how the account stands.
func (h *heldAlert) look(s standing) {
	if h.told > 0 && s.held < h.told {
		h.told = 0
		h.log.Info("the channel is held back no more", "channel", h.channel)
	}
	if s.held < heldTold || h.told > 0 && s.held-h.told < heldAgain || s.paused || !s.enabled || !h.waiting {
		return
	}
	h.told = s.held
	h.log.Error("the channel is held back for long: its provider accepts nothing; deliveries wait, and one at a time is tried", "channel", h.channel,
		"since", time.Now().Add(-s.held).UTC().Format(time.RFC3339), "why", s.hold.String(), "advice", "see to the provider, or pause the channel; no attempt is burned")
}
