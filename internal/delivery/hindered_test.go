package delivery

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/sqlite"
	"github.com/posthouse/posthouse/internal/workqueue"
)

// hindering is a store that fails as it is told to.
type hindering struct {
	*sqlite.Store
	refuse  atomic.Int64 // how many settlings of success are refused for good
	corrupt atomic.Int64 // the delivery that cannot be read
	erasing atomic.Int64 // how many erasures fail
}

var errRefused = &model.Error{Code: model.CodeInternal, Op: "test", Err: errors.New("refused")}

func (h *hindering) Settle(ctx context.Context, s []model.Settlement) ([]bool, error) {
	if s[0].Kind == model.SettleSuccess && h.refuse.Add(-1) >= 0 {
		return nil, errRefused
	}
	return h.Store.Settle(ctx, s)
}

func (h *hindering) Outgoing(ctx context.Context, seqs []model.Seq) ([]model.Outgoing, error) {
	for _, seq := range seqs {
		if int64(seq) == h.corrupt.Load() {
			return nil, errRefused
		}
	}
	return h.Store.Outgoing(ctx, seqs)
}

func (h *hindering) EraseSecrets(ctx context.Context, requests []model.Seq) (int, error) {
	if h.erasing.Add(-1) >= 0 {
		return 0, errRefused
	}
	return h.Store.EraseSecrets(ctx, requests)
}

// hinder starts the rig anew on a store that can fail.
func (r *rig) hinder(c Channel) *hindering {
	r.t.Helper()
	r.stop()
	h := &hindering{Store: r.store}
	engine, err := workqueue.New(workqueue.Config{Store: h})
	must(r.t, err)
	c.Queue = r.sources[c.Name]
	if !c.Policy.Delivers() {
		c.Policy = Retry{}.Policy(model.UncertainResend)
	}
	p := &provider{}
	r.channels[c.Name], c.Sender = p, p
	carrier, err := New(Config{Store: h, Ring: r.ring, Channels: []Channel{c}, Engine: engine})
	must(r.t, err)
	for _, q := range carrier.Queues() {
		must(r.t, engine.Add(q))
	}
	must(r.t, engine.Start(r.t.Context()))
	carrier.Start()
	r.carrier, r.engine = carrier, engine
	return h
}

func TestOneThatIsAtFaultHindersNoOther(t *testing.T) {
	t.Run("NC-14 one whose template is gone fails, and the others of its batch are sent", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			gone := r.put(1, func(n *model.NewRequest) { n.Deliveries[0].Template = 999 }, "text")
			r.put(20, nil, "text")
			time.Sleep(10 * time.Second)
			if s := r.stats("text"); s.Success != 20 || s.Pending != 0 {
				t.Errorf("%d sent, %d pending", s.Success, s.Pending)
			}
			if v, _ := r.delivery(gone[0]); v.Status != model.DeliveryFailed || v.ErrorCode != codeTemplate {
				t.Errorf("it is %s, %q", v.Status, v.ErrorCode)
			}
		})
	})
	t.Run("NC-14 a template that was gone and has been restored is used", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			r.put(1, func(n *model.NewRequest) { n.Deliveries[0].Template = r.template + 1 }, "text")
			time.Sleep(time.Second)
			ids, err := r.store.PutTemplates(t.Context(), []model.TemplateVersion{{Code: "other", Kind: "text", Text: "Hello {{.name}}",
				Schema: `{"type":"object","properties":{"code":{"type":"string","sensitive":true},"name":{"type":"string"}},"required":["name","code"],"additionalProperties":false}`}})
			must(t, err)
			if ids[0] != r.template+1 {
				t.Fatalf("the version is %d", ids[0])
			}
			second := r.put(1, func(n *model.NewRequest) { n.Deliveries[0].Template = ids[0] }, "text")
			time.Sleep(10 * time.Second)
			if v, _ := r.delivery(second[0]); v.Status != model.DeliverySucceeded {
				t.Errorf("it is %s, %q", v.Status, v.ErrorCode)
			}
		})
	})
	t.Run("NC-11 one that cannot be read waits unburned, and the others of its batch are sent", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			h := r.hinder(Channel{Name: "text"})
			must(t, r.carrier.Pause(t.Context(), "text", model.Audit{Actor: "a", Reason: "r"}))
			time.Sleep(time.Second)
			bad := r.put(1, nil, "text")
			r.put(20, nil, "text")
			v, _ := r.delivery(bad[0])
			h.corrupt.Store(int64(v.Seq))
			must(t, r.carrier.Resume(t.Context(), "text", model.Audit{Actor: "a", Reason: "r"}))
			time.Sleep(30 * time.Second)
			if s := r.stats("text"); s.Success != 20 || s.Pending != 1 {
				t.Errorf("%d sent, %d pending", s.Success, s.Pending)
			}
			h.corrupt.Store(0)
			time.Sleep(2 * time.Minute)
			if v, attempts := r.delivery(bad[0]); v.Status != model.DeliverySucceeded || len(attempts) != 1 {
				t.Errorf("when it can be read it is %s, %+v", v.Status, attempts)
			}
		})
	})
	t.Run("NC-11 a trial whose sender does not come back is no trial any more after its timeout", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			p := r.channels["text"]
			p.always(busy)
			r.put(20, nil, "text")
			time.Sleep(10 * time.Second)
			if s := r.status("text"); s.State != StateBreakerOpen {
				t.Fatalf("%+v", s)
			}
			hang := make(chan struct{})
			var hung atomic.Bool
			p.answers(func(channel.Message) channel.Result {
				if !hung.Swap(true) {
					<-hang // it does not heed its context
				}
				return channel.Result{Class: model.ClassSuccess}
			})
			time.Sleep(10 * time.Minute)
			if s := r.stats("text"); s.Success < 19 {
				t.Errorf("with a provider that accepts, %d of 20 are sent: the channel is %s", s.Success, r.status("text").State)
			}
			close(hang)
			synctest.Wait()
		})
	})
}

func TestAnOutcomeThatCannotBeWritten(t *testing.T) {
	inBubble(t, []Channel{{Name: "text", Policy: holding()}}, func(t *testing.T, r *rig) {
		r.hinder(Channel{Name: "text", Policy: holding()}).refuse.Store(1)
		ids := r.put(1, nil, "text")
		time.Sleep(7 * time.Minute)
		v, _ := r.delivery(ids[0])
		if n := len(r.channels["text"].made()); n != 1 || v.Status != model.DeliveryUncertain {
			t.Errorf("NC-10 on hold, the provider was called %d times, and it is %s", n, v.Status)
		}
	})
}

func TestCancelledWhileAnAttemptIsUnderWay(t *testing.T) {
	cancel := model.Audit{Actor: "a", Reason: "withdrawn"}
	begin := func(t *testing.T, r *rig) (request model.NewRequest, id model.DeliveryView) {
		p := r.channels["text"]
		p.always(busy)
		ids := r.put(1, func(n *model.NewRequest) { request = *n }, "text")
		time.Sleep(time.Second)
		_, err := r.store.CancelRequest(t.Context(), request.ID, cancel)
		must(t, err)
		time.Sleep(1500 * time.Millisecond)
		p.answers(nil)
		v, _ := r.delivery(ids[0])
		if v.Status != model.DeliveryRetryWait {
			t.Fatalf("after the attempt it is %s", v.Status)
		}
		return request, v
	}
	t.Run("NC-21 no other attempt follows: it ends cancelled, and its secret goes", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text", Sender: &provider{took: 2 * time.Second}}}, func(t *testing.T, r *rig) {
			request, d := begin(t, r)
			time.Sleep(time.Minute)
			if v, attempts := r.delivery(d.ID); v.Status != model.DeliveryCancelled || len(attempts) != 1 || len(r.channels["text"].made()) != 1 {
				t.Errorf("it is %s after %d attempts", v.Status, len(r.channels["text"].made()))
			}
			v, err := r.store.Request(t.Context(), request.ID)
			must(t, err)
			if !v.Erased {
				t.Error("its sensitive values are there")
			}
			records, err := r.store.Audit(t.Context(), "notification/"+request.ID.String(), 0, 10)
			must(t, err)
			if len(records) != 2 || records[0].Actor != "system" {
				t.Errorf("the audit says %+v", records)
			}
		})
	})
	t.Run("NC-13 one that is replayed afterwards is sent", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text", Sender: &provider{took: 2 * time.Second}}}, func(t *testing.T, r *rig) {
			_, d := begin(t, r)
			results, err := r.store.CancelRequest(t.Context(), d.RequestID, cancel)
			must(t, err)
			if len(results) != 1 || !results[0].Done {
				t.Fatalf("got %+v", results)
			}
			replayed, err := r.store.ReplayDeliveries(t.Context(), model.ReplayParams{IDs: []uuid.UUID{d.ID}, Force: true, Audit: cancel})
			must(t, err)
			if !replayed[0].Done {
				t.Fatalf("got %+v", replayed)
			}
			r.engine.Wake(r.sources["text"].ID)
			time.Sleep(time.Minute)
			if v, _ := r.delivery(d.ID); v.Status != model.DeliverySucceeded {
				t.Errorf("it is %s", v.Status)
			}
		})
	})
}

func TestAChannelThatIsHeldBackForLong(t *testing.T) {
	inFullOnly(t)
	t.Run("NC-11 it is told of after five minutes and each hour, and when it is over; no attempt is burned", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			r.channels["text"].always(busy)
			ids := r.put(1, nil, "text")
			time.Sleep(4 * time.Minute)
			if n := r.log.errors(); n != 0 {
				t.Errorf("%d alerts in four minutes:\n%s", n, r.log)
			}
			for i := range 2 {
				time.Sleep(3 * time.Minute)
				if n := r.log.errors(); n != i+1 {
					t.Errorf("%d alerts when hour %d began:\n%s", n, i, r.log)
				}
				time.Sleep(57 * time.Minute)
			}
			if n := testutil.CollectAndCount(newStandings(func() []*lane { return r.carrier.lanes }), "posthouse_channel_held_seconds"); n != 1 {
				t.Errorf("%d gauges", n)
			}
			if held := r.carrier.lanes[0].account.standing().held; held < 2*time.Hour {
				t.Errorf("held for %v", held)
			}
			if v, _ := r.delivery(ids[0]); v.Status != model.DeliveryRetryWait || v.AttemptCount > 5 {
				t.Errorf("it is %s after %d attempts", v.Status, v.AttemptCount)
			}
			r.channels["text"].answers(nil)
			time.Sleep(5 * time.Minute)
			if n := strings.Count(r.log.String(), "held back no more"); n != 1 {
				t.Errorf("told %d times that it is over", n)
			}
			if v, _ := r.delivery(ids[0]); v.Status != model.DeliverySucceeded {
				t.Errorf("it is %s", v.Status)
			}
		})
	})
	t.Run("NC-11 where nothing waits for it, nobody needs to know", func(t *testing.T) {
		inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
			r.channels["text"].always(busy)
			r.put(1, func(n *model.NewRequest) { n.ExpiresAt = model.MicrosOf(time.Now().Add(3 * time.Minute)) }, "text")
			time.Sleep(20 * time.Minute)
			if n := r.log.errors(); n != 0 {
				t.Errorf("%d alerts:\n%s", n, r.log)
			}
		})
	})
}

func TestOneBurstOfRefusals(t *testing.T) {
	inBubble(t, []Channel{{Name: "text", Sender: &provider{took: 100 * time.Millisecond}}}, func(t *testing.T, r *rig) {
		begun := time.Now()
		r.channels["text"].answers(func(channel.Message) channel.Result {
			if time.Since(begun) < 500*time.Millisecond { // its login service restarts
				return channel.Result{Class: model.ClassAuth, Code: "401", Text: "who are you"}
			}
			return channel.Result{Class: model.ClassSuccess}
		})
		r.put(20, nil, "text")
		time.Sleep(time.Minute)
		if s := r.stats("text"); s.Success != 20 || r.status("text").State != StateActive {
			t.Errorf("NC-11 half a second of refusals left %+v, %d sent", r.status("text"), s.Success)
		}
	})
}

func TestErasingBehindManyThatWait(t *testing.T) {
	for name, failing := range map[string]int64{
		"NC-07 the values of one that is cancelled go soon, however many wait": 0,
		"NC-07 pages that cannot be erased do not keep the others":             2,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []Channel{{Name: "text"}}, func(t *testing.T, r *rig) {
				h := r.hinder(Channel{Name: "text"})
				must(t, r.carrier.Pause(t.Context(), "text", model.Audit{Actor: "a", Reason: "r"}))
				time.Sleep(time.Second)
				r.put(1500, nil, "text")
				var last model.NewRequest
				r.put(1, func(n *model.NewRequest) { last = *n }, "text")
				_, err := r.store.CancelRequest(t.Context(), last.ID, model.Audit{Actor: "a", Reason: "r"})
				must(t, err)
				h.erasing.Store(failing)
				begun := time.Now()
				for time.Since(begun) < time.Minute {
					v, err := r.store.Request(t.Context(), last.ID)
					must(t, err)
					if v.Erased {
						break
					}
					time.Sleep(time.Second)
				}
				if took := time.Since(begun); took > 10*time.Second+time.Duration(failing)*walkEvery {
					t.Errorf("they were there for %v", took)
				}
			})
		})
	}
}
