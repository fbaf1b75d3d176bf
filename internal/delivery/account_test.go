package delivery

import (
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/model"
)

// bench is an account with a clock of its own.
type bench struct {
	t *testing.T
	*account
	clock time.Time
	wakes int
}

func newBench(t *testing.T, change func(*Channel)) *bench {
	ch := Channel{BreakerAfter: 5, BreakerCooldown: time.Second, PauseAfter: 3}
	if change != nil {
		change(&ch)
	}
	b := &bench{t: t, clock: time.Unix(1_700_000_000, 0)}
	b.account = newAccount(&ch, func() { b.wakes++ })
	b.account.now = func() time.Time { return b.clock }
	b.account.enabled = true
	return b
}

// start admits one and lets it begin.
func (b *bench) start() ticket {
	b.t.Helper()
	if n, again := b.Admit(1); n != 1 {
		b.t.Fatalf("not admitted; again in %v", again)
	}
	tk, wait, ok := b.begin()
	if !ok {
		b.t.Fatalf("may not begin; wait %v", wait)
	}
	return tk
}

func (b *bench) attempt(class model.Class, retryAfter time.Duration) verdict {
	b.t.Helper()
	return b.end(b.start(), class, retryAfter)
}

func (b *bench) refuses(want time.Duration) {
	b.t.Helper()
	if n, again := b.Admit(8); n != 0 || again != want {
		b.t.Fatalf("admitted %d, again in %v; want none, again in %v", n, again, want)
	}
}

func (b *bench) admits(n, want int) {
	b.t.Helper()
	got, _ := b.Admit(n)
	b.Unused(got)
	if got != want {
		b.t.Fatalf("admitted %d, want %d", got, want)
	}
}

func TestBreaker(t *testing.T) {
	fail := func(b *bench, n int) {
		for range n {
			b.attempt(model.ClassTransient, 0)
		}
	}
	t.Run("NC-11 five failures in a row open it, and burn their attempts", func(t *testing.T) {
		b := newBench(t, nil)
		fail(b, 4)
		b.admits(8, 8)
		if v := b.attempt(model.ClassTransient, 0); v.unburned || !v.opened {
			t.Errorf("got %+v", v)
		}
		b.refuses(time.Second)
	})
	t.Run("NC-11 a success between begins the count anew; an address at fault does not", func(t *testing.T) {
		b := newBench(t, nil)
		fail(b, 4)
		b.attempt(model.ClassSuccess, 0)
		fail(b, 4)
		b.admits(8, 8)
		b.attempt(model.ClassPermanent, 0)
		fail(b, 1)
		b.refuses(time.Second)
	})
	t.Run("NC-11 uncertain ends count, and are never given back as if nothing had been sent", func(t *testing.T) {
		b := newBench(t, nil)
		old := b.start()
		for range 5 {
			b.attempt(model.ClassUncertain, 0)
		}
		b.refuses(time.Second)
		if v := b.end(old, model.ClassUncertain, 0); v.unburned {
			t.Error("one that was under way was given back")
		}
		b.clock = b.clock.Add(time.Second)
		if v := b.attempt(model.ClassUncertain, 0); v.unburned {
			t.Error("a trial was given back")
		}
		b.refuses(2 * time.Second)
	})
	t.Run("NC-11 what was under way when it opened is given back, and counts no more", func(t *testing.T) {
		b := newBench(t, nil)
		old := []ticket{b.start(), b.start()}
		fail(b, 5)
		for _, tk := range old {
			if v := b.end(tk, model.ClassTransient, 0); !v.unburned || v.giveBack < time.Second {
				t.Errorf("got %+v", v)
			}
		}
		b.refuses(time.Second)
		b.end(b.begunBefore(), model.ClassSuccess, 0)
		b.refuses(time.Second)
	})
	t.Run("NC-11 one trial at a time, the cool-down doubles to a minute, a success lets all in", func(t *testing.T) {
		b := newBench(t, nil)
		fail(b, 5)
		cool := time.Second
		for range 10 {
			b.refuses(cool)
			b.clock = b.clock.Add(cool)
			tk := b.start()
			b.refuses(trialAgain)
			v := b.end(tk, model.ClassTransient, 0)
			cool = min(2*cool, time.Minute)
			if !v.unburned || v.giveBack != 2*cool {
				t.Fatalf("a trial that failed: %+v; the cool-down is %v", v, cool)
			}
		}
		if cool != time.Minute {
			t.Errorf("the cool-down is %v", cool)
		}
		b.clock = b.clock.Add(cool)
		wakes := b.wakes
		b.attempt(model.ClassSuccess, 0)
		b.admits(8, 8)
		if b.wakes == wakes {
			t.Error("nobody was told that it is open again")
		}
		fail(b, 5)
		b.refuses(time.Second)
	})
	t.Run("NC-11 the first cool-down is as configured, and doubles to a minute or to itself", func(t *testing.T) {
		for first, want := range map[time.Duration][]time.Duration{
			100 * time.Millisecond: {100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond},
			25 * time.Second:       {25 * time.Second, 50 * time.Second, time.Minute, time.Minute},
			time.Hour:              {time.Hour, time.Hour, time.Hour},
		} {
			b := newBench(t, func(c *Channel) { c.BreakerCooldown = first })
			fail(b, 5)
			for _, cool := range want {
				b.refuses(cool)
				b.clock = b.clock.Add(cool)
				b.attempt(model.ClassTransient, 0)
			}
			b.reset()
			b.attempt(model.ClassRateLimited, 0)
			b.refuses(time.Second) // it is the breaker's alone
		}
	})
	t.Run("NC-11 a trial that does not end in time has failed, and what it says later counts for nothing", func(t *testing.T) {
		b := newBench(t, func(c *Channel) { c.Timeout = 30 * time.Second })
		fail(b, 5)
		b.clock = b.clock.Add(time.Second)
		hung := b.start()
		b.clock = b.clock.Add(30*time.Second + trialGrace)
		b.refuses(trialAgain)
		b.clock = b.clock.Add(time.Millisecond)
		b.refuses(2 * time.Second)
		b.clock = b.clock.Add(2 * time.Second)
		next := b.start()
		b.end(hung, model.ClassSuccess, 0)
		b.refuses(trialAgain)
		b.end(next, model.ClassSuccess, 0)
		b.admits(8, 8)
	})
	t.Run("NC-11 a trial that is not made, or says nothing of the provider, leaves room for the next", func(t *testing.T) {
		b := newBench(t, nil)
		fail(b, 5)
		b.clock = b.clock.Add(time.Second)
		b.admits(8, 1)
		b.admits(8, 1)
		b.attempt(model.ClassPermanent, 0)
		b.admits(8, 1)
	})
	t.Run("NC-11 what was admitted before it opened does not begin", func(t *testing.T) {
		b := newBench(t, nil)
		b.Admit(1)
		fail(b, 5)
		if _, wait, ok := b.begin(); ok || wait != time.Second {
			t.Errorf("began %v, or waits %v", ok, wait)
		}
		b.clock = b.clock.Add(time.Second)
		b.start()
		if _, _, ok := b.begin(); ok {
			t.Error("two on trial at once")
		}
	})
}

// begunBefore is a ticket from before the last hold.
func (b *bench) begunBefore() ticket { return ticket{epoch: b.epoch - 1} }

func TestRateLimitedByTheProvider(t *testing.T) {
	t.Run("NC-11 Retry-After is a floor for the whole account, then one is on trial", func(t *testing.T) {
		b := newBench(t, nil)
		if v := b.attempt(model.ClassRateLimited, 2*time.Minute); v.unburned || v.floor != 2*time.Minute {
			t.Errorf("got %+v", v)
		}
		b.refuses(2 * time.Minute)
		b.clock = b.clock.Add(2 * time.Minute)
		b.admits(8, 1)
		b.attempt(model.ClassSuccess, 0)
		b.admits(8, 8)
	})
	t.Run("NC-11 a provider that asks for a day is heard for an hour", func(t *testing.T) {
		b := newBench(t, nil)
		b.attempt(model.ClassRateLimited, 24*time.Hour)
		b.refuses(time.Hour)
	})
	t.Run("NC-11 without Retry-After the account waits longer each time, once for all that were under way", func(t *testing.T) {
		b := newBench(t, nil)
		both := []ticket{b.start(), b.start(), b.start()}
		for _, tk := range both {
			if v := b.end(tk, model.ClassRateLimited, 0); v.floor != time.Second || v.unburned {
				t.Errorf("got %+v", v)
			}
		}
		wait := time.Second
		for range 12 {
			b.refuses(wait)
			b.clock = b.clock.Add(wait)
			b.attempt(model.ClassRateLimited, 0)
			wait = min(2*wait, longestRateHold)
		}
		b.refuses(longestRateHold)
	})
	t.Run("NC-11 the longest of those that were under way holds", func(t *testing.T) {
		b := newBench(t, nil)
		first, second := b.start(), b.start()
		b.end(first, model.ClassRateLimited, time.Second)
		b.end(second, model.ClassRateLimited, time.Minute)
		b.refuses(time.Minute)
	})
	t.Run("NC-11 it is no failure of the provider: the breaker's count begins anew", func(t *testing.T) {
		b := newBench(t, nil)
		for range 4 {
			b.attempt(model.ClassTransient, 0)
		}
		b.attempt(model.ClassRateLimited, time.Second)
		b.clock = b.clock.Add(time.Second)
		b.attempt(model.ClassSuccess, 0)
		b.attempt(model.ClassTransient, 0)
		b.admits(8, 8)
	})
}

func TestRefusedCredentials(t *testing.T) {
	t.Run("NC-11 three in a row pause the channel, once, and burn nothing", func(t *testing.T) {
		b := newBench(t, nil)
		pauses := 0
		for i := range 3 {
			v := b.attempt(model.ClassAuth, 0)
			if !v.unburned || v.giveBack < time.Second {
				t.Errorf("refusal %d: %+v", i+1, v)
			}
			if v.pause {
				pauses++
			}
			b.clock = b.clock.Add(time.Minute)
		}
		if v := b.end(b.begunBefore(), model.ClassAuth, 0); v.pause || !v.unburned {
			t.Errorf("one more: %+v", v)
		}
		if pauses != 1 {
			t.Errorf("%d pauses", pauses)
		}
		b.refuses(pausedAgain)
	})
	t.Run("NC-11 refusals of attempts that were under way together count once", func(t *testing.T) {
		b := newBench(t, nil)
		old := []ticket{b.start(), b.start(), b.start(), b.start()}
		for _, tk := range old {
			if v := b.end(tk, model.ClassAuth, 0); v.pause || !v.unburned {
				t.Errorf("got %+v", v)
			}
		}
		b.refuses(time.Second)
		b.clock = b.clock.Add(time.Second)
		b.attempt(model.ClassAuth, 0)
		b.clock = b.clock.Add(2 * time.Second)
		if v := b.attempt(model.ClassAuth, 0); !v.pause {
			t.Errorf("the third one after the other: %+v", v)
		}
	})
	t.Run("NC-11 after one refusal one at a time is tried; a success begins the count anew", func(t *testing.T) {
		b := newBench(t, nil)
		b.attempt(model.ClassAuth, 0)
		b.refuses(time.Second)
		b.clock = b.clock.Add(time.Second)
		b.admits(8, 1)
		b.attempt(model.ClassAuth, 0)
		b.clock = b.clock.Add(2 * time.Second)
		b.attempt(model.ClassSuccess, 0)
		b.attempt(model.ClassAuth, 0)
		b.clock = b.clock.Add(time.Second)
		b.admits(8, 1)
	})
	t.Run("NC-11 resumed elsewhere, it is heard with the heartbeat; one from before the pause is not believed", func(t *testing.T) {
		b := newBench(t, nil)
		b.pause()
		b.hear(true)
		b.refuses(pausedAgain)
		b.hear(false)
		b.hear(true)
		b.admits(8, 8)
		b.pause()
		b.clock = b.clock.Add(time.Minute) // the store never heard of it
		b.hear(true)
		b.admits(8, 8)
	})
	t.Run("NC-11 what was admitted before the pause is back soon after the account is resumed", func(t *testing.T) {
		b := newBench(t, nil)
		if n, _ := b.Admit(1); n != 1 {
			t.Fatal("not admitted")
		}
		b.pause()
		if _, wait, ok := b.begin(); ok || wait != firstHold {
			t.Errorf("begins: %v, or waits %v; want %v", ok, wait, firstHold)
		}
		b.refuses(pausedAgain)
	})
	t.Run("NC-11 resuming forgets refusals and failures", func(t *testing.T) {
		b := newBench(t, nil)
		for range 5 {
			b.attempt(model.ClassTransient, 0)
		}
		b.reset()
		b.admits(8, 8)
		if s := b.standing(); s.hold != open || s.failures != 0 {
			t.Errorf("stands %+v", s)
		}
	})
}

func TestConfiguredRate(t *testing.T) {
	// sent is how many begin in a time, when as many as possible do.
	sent := func(b *bench, d time.Duration) (n int) {
		for end := b.clock.Add(d); b.clock.Before(end); {
			k, again := b.Admit(50)
			n += k
			if k == 0 {
				b.clock = b.clock.Add(again)
			}
		}
		return n
	}
	for _, test := range []struct {
		name      string
		rate      float64
		consumers int
		low, high int // in ten seconds, and a burst
	}{
		{"NC-11 50 a second", 50, 1, 495, 503},
		{"NC-11 1000 a second", 1000, 1, 9950, 10_050},
		{"NC-11 one in two seconds", 0.5, 1, 5, 6},
		{"NC-11 50 a second, for three processes", 50, 3, 160, 168},
		{"NC-11 1 a second, for four processes", 1, 4, 2, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, func(c *Channel) { c.Rate = test.rate })
			b.setConsumers(test.consumers)
			if n := sent(b, 10*time.Second); n < test.low || n > test.high {
				t.Errorf("%d begin in 10 s, want %d to %d", n, test.low, test.high)
			}
			if b.standing().rateWaits == 0 {
				t.Error("no wait was counted")
			}
		})
	}
	t.Run("NC-11 what is admitted and does not begin is not counted", func(t *testing.T) {
		b := newBench(t, func(c *Channel) { c.Rate = 20 })
		for range 100 {
			b.admits(1, 1)
		}
	})
	t.Run("NC-11 after an idle hour no more than a burst goes at once", func(t *testing.T) {
		b := newBench(t, func(c *Channel) { c.Rate = 100 })
		sent(b, time.Second)
		b.clock = b.clock.Add(time.Hour)
		b.admits(1000, 5)
	})
}

func TestARecipientsTroubleIsNotTheAccounts(t *testing.T) {
	for _, r := range []channel.Result{{Class: model.ClassTransient, OfRecipient: true}, {Class: model.ClassPermanent}} {
		if got := ofAccount(r); got != model.ClassPermanent {
			t.Errorf("NC-11: %+v says %s of the account", r, got)
		}
	}
	for _, class := range model.Classes() {
		if got := ofAccount(channel.Result{Class: class}); got != class {
			t.Errorf("NC-11: %s says %s of the account", class, got)
		}
	}
}

func TestTheHoldOfAnotherProcess(t *testing.T) {
	t.Run("NC-11 holds here, too, and one alone is tried after it", func(t *testing.T) {
		b := newBench(t, nil)
		b.hearHold(2 * time.Minute)
		if n, again := b.Admit(8); n != 0 || again != 2*time.Minute {
			t.Fatalf("admitted %d, again in %v", n, again)
		}
		b.clock = b.clock.Add(time.Minute)
		b.hearHold(time.Minute) // the same one, heard of again
		if n, again := b.Admit(8); n != 0 || again != time.Minute {
			t.Fatalf("admitted %d, again in %v", n, again)
		}
		b.clock = b.clock.Add(time.Minute)
		b.hearHold(0)
		if n, _ := b.Admit(8); n != 1 {
			t.Fatalf("admitted %d after the hold", n)
		}
	})
	t.Run("NC-11 one that is nearly over, or longer than an hour, is bounded", func(t *testing.T) {
		b := newBench(t, nil)
		b.hearHold(100 * time.Millisecond)
		if n, _ := b.Admit(8); n == 0 {
			t.Fatal("held for a moment that has passed")
		}
		b.Unused(8)
		b.hearHold(24 * time.Hour)
		if _, again := b.Admit(8); again > time.Hour {
			t.Fatalf("held for %v", again)
		}
	})
}
