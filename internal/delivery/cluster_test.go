package delivery

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/model"
)

// AC-4: no delivery is held by two, and none is sent twice, also where the
// provider panics on some.
func TestTwoInstances(t *testing.T) {
	channels := []Channel{{Name: "text", Policy: holding(), Concurrency: 4, BreakerAfter: 1000}}
	inBubble(t, channels, func(t *testing.T, r *rig) {
		carrier, engine := r.instance(channels, nil)
		defer carrier.Stop()
		defer engine.Stop()
		text := r.channels["text"]
		text.took = 5 * time.Millisecond
		text.answers(func(m channel.Message) channel.Result {
			if m.ID[15]%8 == 0 {
				panic("provider")
			}
			return channel.Result{Class: model.ClassSuccess}
		})
		r.put(600, nil, "text")
		engine.Wake(r.sources["text"].ID)
		time.Sleep(time.Minute)
		calls := map[uuid.UUID]int{}
		odd := int64(0)
		for _, c := range text.made() {
			if calls[c.id]++; calls[c.id] > 1 {
				t.Errorf("%v was sent twice", c.id)
			}
			if c.id[15]%8 == 0 {
				odd++
			}
		}
		if s := r.stats("text"); len(calls) != 600 || s.Uncertain != odd || s.Success != 600-odd {
			t.Errorf("%d sent, %d of which panic; %+v", len(calls), odd, s)
		}
		if text.inside.most > 8 || text.inside.most < 5 {
			t.Errorf("%d at once", text.inside.most)
		}
		if n := strings.Count(r.log.String(), "status=UNCERTAIN"); n < 1 || n > 4 {
			t.Errorf("told of uncertain ones %d times", n)
		}
	})
}

// NC-11: the configured rate is that of all processes together.
func TestTheRateIsShared(t *testing.T) {
	channels := []Channel{{Name: "text", Rate: 40}}
	inBubble(t, channels, func(t *testing.T, r *rig) {
		carrier, engine := r.instance(channels, nil)
		defer carrier.Stop()
		defer engine.Stop()
		time.Sleep(15 * time.Second) // each has heard of the other
		r.put(400, nil, "text")
		engine.Wake(r.sources["text"].ID)
		time.Sleep(12 * time.Second)
		perSecond := map[int64]int{}
		for _, c := range r.channels["text"].made() {
			perSecond[c.at.Unix()]++
		}
		for at, n := range perSecond {
			if n > 44 {
				t.Errorf("%d in second %d", n, at)
			}
		}
		if s := r.stats("text"); s.Success != 400 {
			t.Errorf("got %+v", s)
		}
		if n := testutil.CollectAndCount(r.carrier.metrics.attempts); n != 1 {
			t.Errorf("%d series of attempts", n)
		}
	})
}

// NC-10: what a process that died had started was perhaps sent.
func TestAWorkerThatDied(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy model.RetryPolicy
		status model.DeliveryStatus
		sent   int
	}{
		{"NC-10 hold: it is uncertain, and nothing is sent", holding(), model.DeliveryUncertain, 0},
		{"NC-10 resend: it is sent again under the same id", model.RetryPolicy{}, model.DeliverySucceeded, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, []Channel{{Name: "text", Policy: test.policy}}, func(t *testing.T, r *rig) {
				must(t, r.carrier.Pause(t.Context(), "text", model.Audit{Actor: "test", Reason: "keeps it for the one that dies"}))
				ids := r.put(1, nil, "text")
				must(t, r.store.JoinInstance(t.Context(), 4711, "doomed", model.Micros((5*time.Second).Microseconds()), nil))
				s := r.sources["text"]
				claimed, err := r.store.ClaimWork(t.Context(), model.ClaimParams{Queue: s.ID, Owner: 4711, Token: 99, Limit: 1, Start: true, AloneFrom: 1 << 20, Bare: true,
					Generation: s.Agreed.Generation, KeyID: s.Agreed.KeyID, Slots: s.Agreed.SlotsOf(0), Shared: true})
				must(t, err)
				if len(claimed.Works) != 1 {
					t.Fatalf("claimed %+v", claimed)
				}
				must(t, r.carrier.Resume(t.Context(), "text", model.Audit{Actor: "test", Reason: "it has died"}))
				time.Sleep(time.Minute)
				v, attempts := r.delivery(ids[0])
				calls := r.channels["text"].made()
				if v.Status != test.status || len(calls) != test.sent || len(attempts) != 1+test.sent {
					t.Errorf("got %+v, %+v; sent %d times", v, attempts, len(calls))
				}
				for _, c := range calls {
					if c.id != ids[0] {
						t.Errorf("sent as %v", c.id)
					}
				}
				told := testutil.ToFloat64(r.carrier.metrics.outcomes.WithLabelValues("text", model.SettleUncertain.String()))
				if want := float64(1 - test.sent); told != want {
					t.Errorf("%v were counted as uncertain, want %v", told, want)
				}
			})
		})
	}
}

func TestResumedElsewhere(t *testing.T) {
	t.Run("NC-11 a channel that this process paused goes on when another one resumes it", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			r.channels["text"].always(channel.Result{Class: model.ClassAuth, Code: "401"})
			r.put(10, nil, "text")
			time.Sleep(time.Minute)
			r.channels["text"].answers(nil)
			changed, err := r.store.Switch(t.Context(), r.sources["text"].Name, true, model.Audit{Actor: "ops", Reason: "new token"})
			if must(t, err); !changed {
				t.Fatal("it was not paused")
			}
			time.Sleep(20 * time.Second)
			if s := r.stats("text"); s.Success != 10 {
				t.Errorf("got %+v", s)
			}
		})
	})
}

// AC-7: whatever goes wrong, nothing that is secret is logged, counted or kept.
func TestNothingSecretIsShown(t *testing.T) {
	secrets := []string{"493817", "secret-address"}
	answers := map[string]func(channel.Message) channel.Result{
		"panic":     func(m channel.Message) channel.Result { panic(m.Address + m.Text) },
		"transient": func(channel.Message) channel.Result { return busy },
		"auth":      func(channel.Message) channel.Result { return channel.Result{Class: model.ClassAuth, Code: "401"} },
		"limited":   func(channel.Message) channel.Result { return channel.Result{Class: model.ClassRateLimited} },
	}
	for name, answer := range answers {
		t.Run("AC-7 "+name, func(t *testing.T) {
			inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
				r.channels["text"].answers(answer)
				ids := r.put(20, nil, "text")
				bad := r.put(2, func(n *model.NewRequest) {
					n.Sensitive = r.ring.Seal([]byte(`{"/nowhere":"493817"}`), SensitiveContext(n.ID))
				}, "text")
				worse := r.put(2, func(n *model.NewRequest) {
					n.Sensitive = r.ring.Seal([]byte(`"493817"`), SensitiveContext(n.ID))
				}, "text")
				time.Sleep(6 * time.Minute)
				synctest.Wait()
				var shown strings.Builder
				shown.WriteString(r.log.String())
				for _, id := range append(append(ids, bad...), worse...) {
					v, attempts := r.delivery(id)
					shown.WriteString(v.ErrorText + v.ErrorCode + v.ProviderID)
					for _, a := range attempts {
						shown.WriteString(a.Error + a.Code)
					}
				}
				families, err := r.registry.Gather()
				must(t, err)
				for _, f := range families {
					shown.WriteString(f.String())
				}
				for _, secret := range secrets {
					if strings.Contains(shown.String(), secret) {
						t.Errorf("%q is shown", secret)
					}
				}
			})
		})
	}
}

func TestMetrics(t *testing.T) {
	inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
		r.channels["text"].always(busy)
		r.put(3, nil, "text")
		time.Sleep(time.Minute)
		problems, err := testutil.GatherAndLint(r.registry)
		must(t, err)
		for _, p := range problems {
			t.Errorf("NC-16: %s: %s", p.Metric, p.Text)
		}
		families, err := r.registry.Gather()
		must(t, err)
		seen := map[string]bool{}
		for _, f := range families {
			seen[f.GetName()] = true
		}
		for _, name := range []string{
			"posthouse_delivery_waiting", "posthouse_delivery_oldest_wait_seconds", "posthouse_delivery_attempts_total", "posthouse_delivery_outcomes_total",
			"posthouse_delivery_send_seconds", "posthouse_channel_breaker_open", "posthouse_channel_paused", "posthouse_channel_rate_limited",
			"posthouse_channel_rate_waits_total", "posthouse_channel_pauses_total",
		} {
			if !seen[name] {
				t.Errorf("NC-16: no %s", name)
			}
		}
		if got := testutil.ToFloat64(r.carrier.metrics.waiting.WithLabelValues("text")); got != 3 {
			t.Errorf("NC-16: %v wait", got)
		}
		if _, err := New(Config{Store: r.store, Ring: r.ring, Engine: r.engine, Registerer: r.registry}); err == nil {
			t.Error("a second one in the same registry is accepted")
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	good := Channel{Name: "text", Sender: &provider{}, Queue: model.Source{ID: 1, Name: "channel/text"}, Policy: holding()}
	for _, test := range []struct {
		name   string
		change func(*Channel)
		says   string
	}{
		{"a name is missing", func(c *Channel) { c.Name = "" }, "Name"},
		{"a sender is missing", func(c *Channel) { c.Sender = nil }, "Sender"},
		{"another one's queue", func(c *Channel) { c.Queue.Name = "channel/mail" }, "channel/mail"},
		{"an inbox's policy", func(c *Channel) { c.Policy = model.RetryPolicy{} }, "uncertain"},
		{"a negative rate", func(c *Channel) { c.Rate = -1 }, "negative"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := good
			test.change(&c)
			if err := c.setDefaults(); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}
