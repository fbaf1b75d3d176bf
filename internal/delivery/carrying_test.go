package delivery

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/model"
)

var busy = channel.Result{Class: model.ClassTransient, Code: "connect", Text: "no connection"}

func holding() model.RetryPolicy { return Retry{}.Policy(model.UncertainHold) }

func TestCarryingOut(t *testing.T) {
	t.Run("NC-14 a delivery is rendered, sent with its own id, and its provider's id kept; then its secret goes", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			ids := r.put(1, nil, "text")
			synctest.Wait()
			calls := r.channels["text"].made()
			if len(calls) != 1 || calls[0].id != ids[0] || calls[0].address != "secret-address" || calls[0].text != "Code 493817 for Ada" {
				t.Fatalf("sent %+v", calls)
			}
			v, attempts := r.delivery(ids[0])
			if v.Status != model.DeliverySucceeded || v.ProviderID != "P-"+ids[0].String()[:4] || len(attempts) != 1 {
				t.Errorf("got %+v, %+v", v, attempts)
			}
			if left, err := r.store.Secrets(t.Context(), 0, 10); err != nil || len(left) != 0 {
				t.Errorf("secrets left: %v, %v", left, err)
			}
		})
	})
	t.Run("AC-2 a channel that does not answer at first", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			r.channels["text"].always(busy)
			ids := r.put(1, nil, "text")
			synctest.Wait()
			v, _ := r.delivery(ids[0])
			if wait := time.Until(v.NextAttemptAt.Time()); v.Status != model.DeliveryRetryWait || v.ErrorClass != model.ClassTransient || v.ErrorCode != "connect" || wait < 2*time.Second || wait > 7*time.Second {
				t.Errorf("got %+v, the next attempt in %v", v, wait)
			}
			r.channels["text"].answers(nil)
			time.Sleep(10 * time.Second)
			if v, attempts := r.delivery(ids[0]); v.Status != model.DeliverySucceeded || v.AttemptCount != 2 || len(attempts) != 2 {
				t.Errorf("got %+v, %+v", v, attempts)
			}
		})
	})
	t.Run("NC-13 tries spent is dead, with one alert and then counts", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text", BreakerAfter: 1000}}, func(t *testing.T, r *rig) {
			r.channels["text"].always(busy)
			r.put(20, nil, "text")
			time.Sleep(5 * time.Minute)
			if s := r.stats("text"); s.Dead != 20 {
				t.Errorf("%d dead, %d retrying", s.Dead, s.Retrying)
			}
			if n := len(r.channels["text"].made()); n != 120 {
				t.Errorf("%d attempts", n)
			}
			if n := r.log.errors(); n < 1 || n > 3 {
				t.Errorf("%d alerts:\n%s", n, r.log)
			}
		})
	})
	t.Run("NC-11 permanent fails at once, and touches no other delivery of its request", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}, {Name: "mail"}}, func(t *testing.T, r *rig) {
			r.channels["text"].always(channel.Result{Class: model.ClassPermanent, Code: "ILLEGAL_NUMBER", Text: "no such number"})
			ids := r.put(1, nil, "text", "mail")
			time.Sleep(time.Minute)
			failed, _ := r.delivery(ids[0])
			sent, _ := r.delivery(ids[1])
			if failed.Status != model.DeliveryFailed || failed.ErrorCode != "ILLEGAL_NUMBER" || sent.Status != model.DeliverySucceeded {
				t.Errorf("got %+v and %+v", failed, sent)
			}
			if a, b := len(r.channels["text"].made()), len(r.channels["mail"].made()); a != 1 || b != 1 {
				t.Errorf("sent %d and %d times", a, b)
			}
		})
	})
	t.Run("NC-14 what cannot be rendered has failed, and no sender is asked", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			ids := r.put(1, func(n *model.NewRequest) { n.Variables = []byte(`{"code":"•••"}`) }, "text")
			synctest.Wait()
			v, _ := r.delivery(ids[0])
			if v.Status != model.DeliveryFailed || v.ErrorCode != codeTemplate || !strings.Contains(v.ErrorText, "name") || len(r.channels["text"].made()) != 0 {
				t.Errorf("got %+v", v)
			}
		})
	})
	t.Run("NC-07 what is sealed under a key that is gone waits, and neither a sender is asked nor an attempt burned", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			ids := r.put(1, func(n *model.NewRequest) { n.Deliveries[0].Address.KeyID = "lost" }, "text")
			synctest.Wait()
			v, _ := r.delivery(ids[0])
			if v.Status != model.DeliveryPending || v.AttemptCount != 0 || len(r.channels["text"].made()) != 0 {
				t.Errorf("got %+v", v)
			}
		})
	})
}

func TestPanics(t *testing.T) {
	shout := func(channel.Message) channel.Result { panic("secret-address 493817") }
	quit := func(channel.Message) channel.Result { runtime.Goexit(); return channel.Result{} }
	odd := func(channel.Message) channel.Result { return channel.Result{Class: "whatever"} }
	for _, test := range []struct {
		name   string
		answer func(channel.Message) channel.Result
		policy model.RetryPolicy
		status model.DeliveryStatus
	}{
		{"NC-10 a sender that panics is uncertain, held", shout, holding(), model.DeliveryUncertain},
		{"NC-10 a sender that panics is uncertain, sent again", shout, model.RetryPolicy{}, model.DeliveryRetryWait},
		{"NC-10 a sender that ends its goroutine is uncertain", quit, holding(), model.DeliveryUncertain},
		{"NC-05 a sender whose class nobody knows is uncertain", odd, holding(), model.DeliveryUncertain},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, []Channel{{Name: "text", Policy: test.policy}}, func(t *testing.T, r *rig) {
				r.channels["text"].answers(test.answer)
				ids := r.put(1, nil, "text")
				synctest.Wait()
				v, attempts := r.delivery(ids[0])
				if v.Status != test.status || len(attempts) != 1 || attempts[0].Outcome != model.OutcomeUncertain {
					t.Errorf("got %+v, %+v", v, attempts)
				}
				r.channels["text"].answers(nil)
				more := r.put(20, nil, "text")
				time.Sleep(20 * time.Second)
				for _, id := range more {
					if v, _ := r.delivery(id); v.Status != model.DeliverySucceeded {
						t.Errorf("another is %v", v.Status)
					}
				}
				if all := r.log.String() + v.ErrorText; strings.Contains(all, "secret-address") || strings.Contains(all, "493817") {
					t.Errorf("the panic's text is kept:\n%s", all)
				}
			})
		})
	}
	t.Run("NC-10 a panic before the send is a failed attempt", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text", Policy: holding()}}, func(t *testing.T, r *rig) {
			r.carrier.cfg.Ring = panicking{}
			ids := r.put(1, nil, "text")
			synctest.Wait()
			v, attempts := r.delivery(ids[0])
			if v.Status != model.DeliveryRetryWait || len(attempts) != 1 || attempts[0].Reason != model.ReasonPanic || strings.Contains(attempts[0].Error, "493817") {
				t.Errorf("got %+v, %+v", v, attempts)
			}
			if len(r.channels["text"].made()) != 0 {
				t.Error("it was sent")
			}
		})
	})
}

type panicking struct{}

func (panicking) Open(model.Sealed, string) ([]byte, error) { panic("493817") }

func TestExpiry(t *testing.T) {
	soon := func(d time.Duration) func(*model.NewRequest) {
		return func(n *model.NewRequest) { n.ExpiresAt = model.MicrosOf(time.Now().Add(d)) }
	}
	t.Run("NC-21 what has expired is cancelled within two seconds, and its secret erased", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			r.channels["text"].always(busy)
			ids := r.put(3, soon(time.Second), "text")
			time.Sleep(3 * time.Second)
			for _, id := range ids {
				if v, _ := r.delivery(id); v.Status != model.DeliveryCancelled {
					t.Errorf("is %v", v.Status)
				}
			}
			if n := len(r.channels["text"].made()); n != 3 {
				t.Errorf("%d attempts", n)
			}
			time.Sleep(walkEvery)
			if left, err := r.store.Secrets(t.Context(), 0, 10); err != nil || len(left) != 0 {
				t.Errorf("secrets left: %v, %v", left, err)
			}
		})
	})
	t.Run("NC-21 one that was claimed too late is not sent", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			ids := r.put(1, soon(-time.Millisecond), "text")
			time.Sleep(3 * time.Second)
			v, _ := r.delivery(ids[0])
			if v.Status != model.DeliveryCancelled || len(r.channels["text"].made()) != 0 {
				t.Errorf("is %v; sent %d times", v.Status, len(r.channels["text"].made()))
			}
		})
	})
}

// NC-11: it pauses after a few refusals, with one alert, and burns no attempt; who
// paused it and why is told; another channel goes on; resumed, all are sent once.
func TestARefusedAccount(t *testing.T) {
	refused := channel.Result{Class: model.ClassAuth, Code: "535 5.7.8", Text: "the credentials were refused"}
	inBubble(t, []Channel{{Name: "mail", Concurrency: 8}, {Name: "text"}}, func(t *testing.T, r *rig) {
		mail := r.channels["mail"]
		mail.took = 50 * time.Millisecond
		mail.always(refused)
		ids := r.put(100, nil, "mail", "text")
		time.Sleep(time.Minute)
		if n := len(mail.made()); n < 3 || n > 10 { // those under way together, and two trials
			t.Errorf("%d calls", n)
		}
		if n := r.log.errors(); n != 1 {
			t.Errorf("%d alerts:\n%s", n, r.log)
		}
		if s := r.stats("mail"); s.Pending != 100 || s.Source.Enabled {
			t.Errorf("%d pending, %d retrying, enabled %v", s.Pending, s.Retrying, s.Source.Enabled)
		}
		if got := testutil.ToFloat64(r.carrier.metrics.pauses.WithLabelValues("mail")); got != 1 {
			t.Errorf("%v pauses counted", got)
		}
		s := r.status("mail")
		if s.State != StatePaused || s.By != "system" || !strings.Contains(s.Reason, "535 5.7.8") || s.Since == 0 || s.Waiting != 100 {
			t.Errorf("got %+v", s)
		}
		if s := r.status("text"); s.State != StateActive || r.stats("text").Success != 100 {
			t.Errorf("got %+v, %+v", s, r.stats("text"))
		}

		if got, err := r.carrier.Test(t.Context(), "mail", "a@example.com"); err != nil || got.Class != model.ClassAuth {
			t.Errorf("got %+v, %v", got, err)
		}
		mail.answers(nil)
		if got, err := r.carrier.Test(t.Context(), "mail", "a@example.com"); err != nil || got.Class != model.ClassSuccess {
			t.Errorf("got %+v, %v", got, err)
		}
		must(t, r.carrier.Resume(t.Context(), "mail", model.Audit{Actor: "ops", Reason: "new password"}))
		time.Sleep(30 * time.Second)
		if s := r.stats("mail"); s.Success != 100 || s.Retrying != 0 {
			t.Errorf("got %+v", s)
		}
		for id, n := range mail.accepted() {
			if n != 1 {
				t.Errorf("%v was sent %d times", id, n)
			}
		}
		if v, attempts := r.delivery(ids[0]); v.AttemptCount != 1 || len(attempts) != 1 {
			t.Errorf("got %+v, %+v", v, attempts)
		}
	})
}

// NC-11: no storm, and nothing dies, however many wait.
func TestAProviderThatIsDownForAnHour(t *testing.T) {
	inFullOnly(t)
	const waiting, rate = 600, 50.0
	inBubble(t, []Channel{{Name: "text", Rate: rate}, {Name: "mail"}}, func(t *testing.T, r *rig) {
		text := r.channels["text"]
		text.took = 20 * time.Millisecond
		text.always(busy)
		r.put(waiting, nil, "text")
		other := r.put(1, nil, "mail")
		time.Sleep(time.Hour)
		down := len(text.made())
		if down > 100 {
			t.Errorf("%d calls while it was down", down)
		}
		if s := r.stats("text"); s.Dead != 0 || s.Pending+s.Retrying != waiting {
			t.Errorf("got %+v", s)
		}
		if s := r.status("text"); s.State != StateBreakerOpen || s.Failures < 5 || s.Waiting != waiting {
			t.Errorf("got %+v", s)
		}
		if v, _ := r.delivery(other[0]); v.Status != model.DeliverySucceeded {
			t.Errorf("the other channel's is %v", v.Status)
		}
		text.answers(nil)
		time.Sleep(longestCoolDown + waiting/rate*time.Second + 5*time.Second)
		s := r.stats("text")
		if s.Success != waiting || s.Dead != 0 {
			t.Errorf("after its return: %+v", s)
		}
		perSecond := map[int64]int{}
		for _, c := range text.made()[down:] {
			perSecond[c.at.Unix()]++
		}
		for at, n := range perSecond {
			if n > rate+3 { // and a burst
				t.Errorf("%d in second %d after its return", n, at)
			}
		}
		for id, n := range text.accepted() {
			if n != 1 {
				t.Errorf("%v was sent %d times", id, n)
			}
		}
		burned := testutil.ToFloat64(r.carrier.metrics.outcomes.WithLabelValues("text", model.SettleRetry.String()))
		if burned > 5 {
			t.Errorf("%v attempts were burned", burned)
		}
		t.Logf("%d calls while it was down for an hour, %v attempts burned", down, burned)
	})
}

func TestARateLimitedAccount(t *testing.T) {
	inFullOnly(t)
	for _, test := range []struct {
		name  string
		after time.Duration
		waits time.Duration
	}{
		{"NC-11 Retry-After 120 holds the whole account", 2 * time.Minute, 2 * time.Minute},
		{"NC-11 Retry-After of more than an hour counts as one", 24 * time.Hour, time.Hour},
		{"NC-11 without Retry-After a second", 0, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, []Channel{{Name: "text", Concurrency: 1}}, func(t *testing.T, r *rig) {
				text := r.channels["text"]
				first := true
				text.answers(func(channel.Message) channel.Result {
					if first {
						first = false
						return channel.Result{Class: model.ClassRateLimited, Code: "429", HTTPStatus: 429, RetryAfter: test.after}
					}
					return channel.Result{Class: model.ClassSuccess}
				})
				ids := r.put(10, nil, "text")
				synctest.Wait()
				if s := r.status("text"); s.State != StateRateLimited {
					t.Errorf("got %+v", s)
				}
				time.Sleep(test.waits + 30*time.Second)
				calls := text.made()
				if len(calls) != 11 || calls[1].at.Sub(calls[0].at) < test.waits {
					t.Fatalf("%d calls, the second after %v", len(calls), calls[1].at.Sub(calls[0].at))
				}
				if v, attempts := r.delivery(ids[0]); v.Status != model.DeliverySucceeded || len(attempts) != 2 || attempts[0].HTTPStatus != 429 {
					t.Errorf("got %+v, %+v", v, attempts)
				}
			})
		})
	}
}

func TestStopping(t *testing.T) {
	t.Run("NC-21 a send that ends at shutdown counts; a certain failure is given back; Stop twice, Start after it", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			text := r.channels["text"]
			text.took = time.Hour // until its context ends
			text.always(busy)
			ids := r.put(2, nil, "text")
			synctest.Wait()
			r.carrier.Start()
			r.stop()
			r.stop()
			r.carrier.Start()
			if text.closed != 1 {
				t.Errorf("closed %d times", text.closed)
			}
			for _, id := range ids {
				if v, attempts := r.delivery(id); v.Status != model.DeliveryPending || len(attempts) != 0 {
					t.Errorf("got %+v, %+v", v, attempts)
				}
			}
			if _, err := r.carrier.Test(t.Context(), "text", "a"); model.CodeOf(err) != model.CodeUnavailable {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("NC-11 a channel that nobody has", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			if err := r.carrier.Pause(t.Context(), "none", model.Audit{Actor: "ops"}); model.CodeOf(err) != model.CodeNotFound {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("NC-11 paused by hand it sends nothing at once, and goes on when it is resumed", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			must(t, r.carrier.Pause(t.Context(), "text", model.Audit{Actor: "ops", Reason: "maintenance"}))
			r.put(5, nil, "text")
			time.Sleep(5 * time.Minute)
			if s := r.status("text"); len(r.channels["text"].made()) != 0 || s.State != StatePaused || s.By != "ops" || s.Reason != "maintenance" {
				t.Errorf("got %+v; %d sent", s, len(r.channels["text"].made()))
			}
			must(t, r.carrier.Resume(t.Context(), "text", model.Audit{Actor: "ops", Reason: "done"}))
			time.Sleep(time.Second)
			if s := r.status("text"); len(r.channels["text"].made()) != 5 || s.State != StateActive || s.Reason != "" {
				t.Errorf("got %+v; %d sent", s, len(r.channels["text"].made()))
			}
		})
	})
}

func TestCodesAreBounded(t *testing.T) {
	var c codes
	seen := map[string]bool{}
	for range 1000 {
		seen[c.label(uuid.NewString()[:8])] = true
	}
	if len(seen) != maxCodes+1 || !seen[codeOther] {
		t.Errorf("NC-16: %d codes are told apart", len(seen))
	}
	for _, odd := range []string{strings.Repeat("4", 33), "a\nb", "ü"} {
		if got := c.label(odd); got != codeOther {
			t.Errorf("NC-16: %q is %q", odd, got)
		}
	}
}

func TestBackoff(t *testing.T) {
	p := Retry{}.Policy(model.UncertainHold)
	for n, want := range []float64{2, 4, 8, 16, 32, 64, 128, 256, 256, 256} {
		if got := p.Wait(n).Seconds(); got != want {
			t.Errorf("NC-12: after attempt %d it waits %v s, want %v s", n+1, got, want)
		}
	}
	if p.MaxRetry != 5 || p.Jitter != 5*time.Second || p.Spent(4) || !p.Spent(5) {
		t.Errorf("NC-12: %+v", p)
	}
	long := Retry{Base: 5 * time.Minute, Cap: time.Hour, MaxAttempts: 2}.Policy(model.UncertainResend)
	if long.Wait(0) != 10*time.Minute || long.Wait(1<<40) != time.Hour || long.MaxRetry != 1 {
		t.Errorf("NC-12: %+v", long)
	}
}
