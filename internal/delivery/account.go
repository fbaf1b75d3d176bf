package delivery

import (
	"sync"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// hold is why an account waits.
type hold int

const (
	open        hold = iota // it does not
	holdBreaker             // the provider failed several times in a row
	holdRate                // the provider asked for less
	holdAuth                // the provider refused the credentials, not yet often enough to pause
)

// String is the word that logs use.
func (h hold) String() string {
	switch h {
	case holdBreaker:
		return "breaker_open"
	case holdRate:
		return "rate_limited"
	case holdAuth:
		return "credentials_refused"
	case open:
	}
	return "open"
}

const (
	firstHold = time.Second
	// A provider that is down is asked again at least this often, unless its first cool-down is longer,
	longestCoolDown = time.Minute
	// and one that limits without saying until when.
	longestRateHold = 5 * time.Minute
	longestAuthHold = time.Minute
	// longestRetryAfter bounds what a provider may ask for.
	longestRetryAfter = time.Hour
	// pausedAgain is how often a paused account is asked; resuming it wakes the queue.
	pausedAgain = time.Minute
	// trialAgain is how often one is asked that is on trial; the trial's end wakes the queue.
	trialAgain = 5 * time.Second
	// trialGrace is how long after the timeout of its attempt a trial that has not
	// ended counts as failed: its sender does not come back.
	trialGrace = 5 * time.Second
	// hearing is how long after pausing a heartbeat that says otherwise may still
	// have been on its way.
	hearing = 10 * time.Second
)

// account says whether anything may be sent through one channel now. It is the
// breaker, the rate limit and the pause in one: they share one rule (after a
// failure nobody, then one alone, then everybody), and one that is not let
// through because of one of them must cost the others nothing. Breakers of
// libraries wrap a call that is already being made; this one is asked before
// there is anything to call for, and must be able to take back what it let in.
//
// Its methods are short, never block, and may be called at the same time.
type account struct {
	breakerAfter, pauseAfter int
	coolDown                 time.Duration // the breaker's first
	timeout                  time.Duration // of one attempt
	rate                     float64       // of all processes together
	wake                     func()        // something may be admitted again
	now                      func() time.Time

	mu        sync.Mutex
	bucket    bucket
	consumers int

	hold   hold
	holds  int       // in a row, for this reason
	since  time.Time // when it was open last; zero while it is
	until  time.Time // nothing begins before
	trying bool      // on trial, and one was admitted
	tried  time.Time // when it was admitted, or has begun
	begun  bool      // and that one has begun
	epoch  int       // counts holds: what began before one says nothing of what came after it

	failures int // in a row that a breaker counts
	refusals int // of the credentials, in a row
	paused   bool
	pausedAt time.Time
	enabled  bool // as the last heartbeat said

	rateWaits int // how often nothing was admitted for the rate
}

func newAccount(c *Channel, wake func()) *account {
	return &account{
		breakerAfter: c.BreakerAfter, coolDown: c.BreakerCooldown, pauseAfter: c.PauseAfter, timeout: c.Timeout, rate: c.Rate, wake: wake, now: time.Now,
		bucket: bucket{rate: c.Rate}, consumers: 1, enabled: c.Queue.Enabled,
	}
}

// Admit lets at most n begin; see workqueue.Admission.
func (a *account) Admit(n int) (admitted int, again time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	switch {
	case a.paused:
		return 0, pausedAgain
	case a.trying && now.Sub(a.tried) > a.timeout+trialGrace:
		d := a.holdFor(a.hold, longestCoolDown, now)
		return 0, d
	case now.Before(a.until):
		return 0, a.until.Sub(now)
	case a.hold != open && a.trying:
		return 0, trialAgain
	case a.hold != open:
		n = min(n, 1)
	}
	if admitted, again = a.bucket.take(n, now); admitted == 0 {
		a.rateWaits++
		return 0, again
	}
	if a.hold != open {
		a.trying, a.begun, a.tried = true, false, now
	}
	return admitted, 0
}

// Unused takes back n that were admitted.
func (a *account) Unused(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unused(n)
}

// notMade takes back one that was admitted and whose attempt is not made, and
// lets the next come at once.
func (a *account) notMade() {
	a.Unused(1)
	a.wake()
}

func (a *account) unused(n int) {
	a.bucket.putBack(n)
	if a.trying && !a.begun {
		a.trying = false
	}
}

// ticket goes with one attempt.
type ticket struct {
	epoch int
	trial bool
}

// begin says whether the attempt for which one was admitted may be made now;
// otherwise it is to be given back for as long as it says.
func (a *account) begin() (t ticket, wait time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	switch {
	case a.paused:
		wait = firstHold // Admit keeps it from coming again before the account is resumed, and then it must not wait
	case now.Before(a.until):
		wait = a.until.Sub(now)
	case a.hold != open && (!a.trying || a.begun):
		wait = firstHold
	default:
		if a.hold != open {
			a.begun, a.tried = true, now
		}
		return ticket{epoch: a.epoch, trial: a.hold != open}, 0, true
	}
	a.unused(1)
	return ticket{}, max(wait, time.Second), false
}

// verdict is what the end of an attempt means for it.
type verdict struct {
	// unburned: it is no fault of this delivery, which is given back for giveBack.
	unburned bool
	giveBack time.Duration
	floor    time.Duration // the account waits for so long
	pause    bool          // the channel is to be paused, by whoever is told so
	opened   bool          // the breaker has opened
}

// end takes in how an attempt ended.
func (a *account) end(t ticket, class model.Class, retryAfter time.Duration) (v verdict) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	current := t.epoch == a.epoch
	if t.trial && current {
		a.trying = false
		defer a.wake()
	}
	switch class {
	case model.ClassSuccess:
		if current {
			a.failures, a.refusals = 0, 0
			a.hold, a.holds, a.since = open, 0, time.Time{}
		}
	case model.ClassPermanent:
		// The message is at fault, and it may never have reached the provider.
	case model.ClassAuth:
		v = a.refused(current, now)
	case model.ClassRateLimited:
		v = a.limited(current, min(retryAfter, longestRetryAfter), now)
	case model.ClassTransient, model.ClassUncertain:
		v = a.failed(t, current, now)
		v.unburned = v.unburned && class == model.ClassTransient // what may have been sent is not sent anew as if nothing had been
	}
	return v
}

// holdFor lets nobody begin for d, and then one alone. Counted again from the
// start where it is for another reason than before.
func (a *account) holdFor(why hold, longest time.Duration, now time.Time) time.Duration {
	if a.hold == open {
		a.since = now
	}
	if a.hold == why {
		a.holds++
	} else {
		a.hold, a.holds = why, 0
	}
	first := firstHold
	if why == holdBreaker {
		first = a.coolDown
	}
	d := doubled(first, a.holds, max(longest, first))
	a.holdUntil(now.Add(d))
	return d
}

func (a *account) holdUntil(until time.Time) {
	if until.After(a.until) {
		a.until = until
	}
	a.trying, a.begun = false, false
	a.epoch++
}

// failed counts a failure that a breaker counts. The one that opens it has
// burned its attempt; those that were under way then have not, nor has a trial.
// A trial stays away for longer than the cool-down, so that the next one is of
// another delivery, where there is one.
func (a *account) failed(t ticket, current bool, now time.Time) verdict {
	if !current {
		return verdict{unburned: true, giveBack: max(a.until.Sub(now), firstHold)}
	}
	if t.trial {
		d := a.holdFor(a.hold, longestCoolDown, now)
		return verdict{unburned: true, giveBack: 2 * d}
	}
	if a.failures++; a.failures < a.breakerAfter {
		return verdict{}
	}
	a.holdFor(holdBreaker, longestCoolDown, now)
	return verdict{opened: true}
}

// limited lets the whole account wait for as long as the provider asks, or
// longer each time.
func (a *account) limited(current bool, retryAfter time.Duration, now time.Time) verdict {
	switch {
	case current:
		a.failures = 0 // it answers
		d := a.holdFor(holdRate, longestRateHold, now)
		if retryAfter > 0 { // as it says, which may be sooner
			a.until = now.Add(retryAfter)
			d = retryAfter
		}
		return verdict{floor: d}
	case a.hold == open:
		return verdict{floor: retryAfter} // its hold is over
	}
	if until := now.Add(retryAfter); until.After(a.until) {
		a.until = until
	}
	return verdict{floor: max(a.until.Sub(now), 0)}
}

// refused counts a refusal of the credentials. No attempt is burned by one. Those
// of attempts that were under way together are one finding, and count once.
func (a *account) refused(current bool, now time.Time) verdict {
	switch {
	case a.paused:
		return verdict{unburned: true, giveBack: firstHold}
	case current:
		if a.refusals++; a.refusals >= a.pauseAfter {
			a.paused, a.pausedAt = true, now
			a.epoch++
			return verdict{unburned: true, giveBack: firstHold, pause: true}
		}
		a.failures = 0
		a.holdFor(holdAuth, longestAuthHold, now)
	}
	return verdict{unburned: true, giveBack: 2 * max(a.until.Sub(now), firstHold)}
}

// pause lets nothing begin until the channel is resumed.
func (a *account) pause() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.paused, a.pausedAt = true, a.now()
	a.epoch++
}

// reset forgets all that is held against the account.
func (a *account) reset() {
	a.mu.Lock()
	a.clear()
	a.mu.Unlock()
	a.wake()
}

func (a *account) clear() {
	a.paused, a.hold, a.holds, a.since, a.until = false, open, 0, time.Time{}, time.Time{}
	a.trying, a.begun, a.failures, a.refusals = false, false, 0, 0
	a.epoch++
}

// heldFor is the least hold of another process that is taken over: a shorter one
// is over before most would have heard of it.
const heldFor = time.Second

// hearHold takes over for how long another process, or this one before it was
// started again, was asked to leave the provider alone.
func (a *account) hearHold(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	until := a.now().Add(min(d, longestRetryAfter))
	if d < heldFor || a.paused || !until.After(a.until.Add(heldFor)) {
		return
	}
	if a.hold == open {
		a.hold, a.holds, a.since = holdRate, 0, a.now()
	}
	a.holdUntil(until)
}

// hear takes over what a heartbeat says of the channel's switch: another process
// may have paused or resumed it.
func (a *account) hear(enabled bool) {
	a.mu.Lock()
	resumed := enabled && (!a.enabled || a.paused && a.now().Sub(a.pausedAt) > hearing)
	a.enabled = enabled
	if resumed {
		a.clear()
	}
	a.mu.Unlock()
	if resumed {
		a.wake()
	}
}

// setConsumers divides the rate among the living.
func (a *account) setConsumers(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n = max(n, 1); n != a.consumers {
		a.consumers = n
		a.bucket.setRate(a.rate/float64(n), a.now())
	}
}

// standing is the account as it is shown.
type standing struct {
	hold      hold
	held      time.Duration // for how long it has not been open
	waits     bool          // nothing begins now
	paused    bool
	enabled   bool // as the last heartbeat said
	failures  int  // in a row, of either kind
	rateWaits int
}

func (a *account) standing() standing {
	a.mu.Lock()
	defer a.mu.Unlock()
	var held time.Duration
	if a.hold != open {
		held = a.now().Sub(a.since)
	}
	return standing{
		hold: a.hold, held: held, waits: a.now().Before(a.until), paused: a.paused, enabled: a.enabled,
		failures: a.failures + a.refusals + a.trialsFailed(), rateWaits: a.rateWaits,
	}
}

func (a *account) trialsFailed() int {
	if a.hold == holdBreaker {
		return a.holds
	}
	return 0
}
