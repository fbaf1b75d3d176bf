package workqueue

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

var threeRetries = model.RetryPolicy{MaxRetry: 3, Backoff: []time.Duration{30 * time.Second, 2 * time.Minute, 10 * time.Minute}, OrphanAfter: 5 * time.Minute}

func TestSettlementOf(t *testing.T) {
	failure := errors.New("boom")
	tests := []struct {
		name   string
		tries  int // attempts that failed before
		ended  ended
		kind   model.SettleKind
		delay  time.Duration
		reason model.Reason
	}{
		{"IN-04 no error is success", 0, ended{}, model.SettleSuccess, 0, ""},
		{"IN-15 no error after the timeout is success", 0, ended{timedOut: true}, model.SettleSuccess, 0, ""},
		{"IN-11 the first failure waits 30 s", 0, failed(failure), model.SettleRetry, 30 * time.Second, model.ReasonError},
		{"IN-11 the second failure waits 2 min", 1, failed(failure), model.SettleRetry, 2 * time.Minute, model.ReasonError},
		{"IN-11 the third failure waits 10 min", 2, failed(failure), model.SettleRetry, 10 * time.Minute, model.ReasonError},
		{"IN-10 max_retry 3 is four attempts", 3, failed(failure), model.SettleFailed, 0, model.ReasonError},
		{"IN-11 no overflow at any count", 1 << 30, failed(failure), model.SettleFailed, 0, model.ReasonError},
		{"IN-04 permanent fails at once", 0, ended{Result: Result{Err: failure, Reason: model.ReasonPermanent, Permanent: true}}, model.SettleFailed, 0, model.ReasonPermanent},
		{"IN-11 Retry-After is a floor", 0, ended{Result: Result{Err: failure, Reason: model.ReasonHTTPStatus, RetryAfter: time.Hour}}, model.SettleRetry, time.Hour, model.ReasonHTTPStatus},
		{"IN-11 Retry-After below the backoff changes nothing", 0, ended{Result: Result{Err: failure, Reason: model.ReasonHTTPStatus, RetryAfter: time.Second}}, model.SettleRetry, 30 * time.Second, model.ReasonHTTPStatus},
		{"IN-04 an error at shutdown gives the attempt back", 3, ended{Result: Result{Err: failure}, stopped: true}, model.SettleRelease, 0, ""},
		{"IN-04 success at shutdown is success", 3, ended{stopped: true}, model.SettleSuccess, 0, ""},
		{"IN-04 a handler that outlasts shutdown is released", 3, ended{abandoned: true}, model.SettleRelease, 0, ""},
		{"IN-04 postponed gives the attempt back", 3, ended{Result: Result{Err: failure, Postpone: time.Minute}}, model.SettleRelease, time.Minute, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := model.Work{Seq: 7, Queue: 2, Token: 99, RetryCount: test.tries, Replay: 1, StartedAt: 5}
			s := settlementOf(w, test.ended, threeRetries, halfOf)
			if s.Kind != test.kind || s.Delay != test.delay || s.Reason != test.reason {
				t.Errorf("got kind %v, delay %v, reason %q; want %v, %v, %q", s.Kind, s.Delay, s.Reason, test.kind, test.delay, test.reason)
			}
			if s.Seq != w.Seq || s.Token != w.Token || s.Queue != w.Queue || s.RetryCount != w.RetryCount || s.Replay != w.Replay || s.StartedAt != w.StartedAt {
				t.Errorf("the settlement does not carry its work: %+v", s)
			}
		})
	}
}

func halfOf(most time.Duration) time.Duration { return most / 2 }

func failed(err error) ended { return ended{Result: Result{Err: err, Reason: model.ReasonError}} }

func TestRecoveryOf(t *testing.T) {
	tests := []struct {
		name   string
		orphan model.Orphan
		want   model.Settlement
	}{
		{"IN-14 claimed and never started keeps its attempt and its due_at",
			model.Orphan{OwnerDead: true, Work: model.Work{RetryCount: 2}},
			model.Settlement{Kind: model.SettleRelease, RetryCount: 2}},
		{"IN-14 started and lost is a failed attempt with its backoff",
			model.Orphan{OwnerDead: true, Work: model.Work{StartedAt: 10, RetryCount: 1}, Now: 1_000_010},
			model.Settlement{Kind: model.SettleRetry, Lost: true, Delay: 2 * time.Minute, StartedAt: 10, RetryCount: 1, Duration: time.Second,
				Reason: model.ReasonWorkerLost, Error: textWorkerLost}},
		{"IN-14 the last try lost in company gives one more",
			model.Orphan{OwnerDead: true, Work: model.Work{StartedAt: 10, RetryCount: 3}, Now: 10},
			model.Settlement{Kind: model.SettleRetry, Lost: true, Delay: 10 * time.Minute, StartedAt: 10, RetryCount: 3,
				Reason: model.ReasonWorkerLost, Error: textWorkerLost}},
		{"IN-14 the last try lost while alone ends it",
			model.Orphan{OwnerDead: true, Alone: true, Work: model.Work{StartedAt: 10, RetryCount: 4}, Now: 10},
			model.Settlement{Kind: model.SettleFailed, Lost: true, StartedAt: 10, RetryCount: 4,
				Reason: model.ReasonWorkerLost, Error: textWorkerLost}},
		{"IN-14 lost while alone with tries left is retried",
			model.Orphan{OwnerDead: true, Alone: true, Work: model.Work{StartedAt: 10}, Now: 10},
			model.Settlement{Kind: model.SettleRetry, Lost: true, Delay: 30 * time.Second, StartedAt: 10,
				Reason: model.ReasonWorkerLost, Error: textWorkerLost}},
		{"IN-06 a handler that outlived orphan_after in a living process spends its try",
			model.Orphan{Work: model.Work{StartedAt: 10, RetryCount: 3}, Now: 10},
			model.Settlement{Kind: model.SettleFailed, StartedAt: 10, RetryCount: 3, Reason: model.ReasonOrphaned, Error: textOrphaned}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.orphan.Policy = threeRetries
			if diff := cmp.Diff(test.want, recoveryOf(test.orphan, halfOf)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestWhoRunsAlone(t *testing.T) {
	for _, test := range []struct {
		name        string
		lost, tries int
		maxRetry    int
		want        bool
	}{
		{"IN-14 a last try without a loss has company", 0, 3, 3, false},
		{"IN-14 a loss with tries left has company", 2, 2, 3, false},
		{"IN-14 a last try after a loss runs alone", 1, 3, 3, true},
		{"IN-14 one more than allowed after a loss in company runs alone", 1, 4, 3, true},
		{"IN-14 max_retry 0 and a loss runs alone", 1, 1, 0, true},
		{"IN-14 max_retry 0 at first has company", 0, 0, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := model.Work{Lost: test.lost, RetryCount: test.tries}
			if got := needsCompanyOfNone(w, model.RetryPolicy{MaxRetry: test.maxRetry}); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

var (
	resend = model.RetryPolicy{MaxRetry: 5, Backoff: []time.Duration{2 * time.Second, 4 * time.Second}, Jitter: 4 * time.Second, Uncertain: model.UncertainResend}
	hold   = model.RetryPolicy{MaxRetry: 5, Backoff: []time.Duration{2 * time.Second, 4 * time.Second}, Jitter: 4 * time.Second, Uncertain: model.UncertainHold}
)

func TestSettlementOfADelivery(t *testing.T) {
	failure := errors.New("boom")
	transient := Result{Err: failure, Reason: model.ReasonTransient, Code: "451"}
	uncertain := Result{Err: failure, Reason: model.ReasonUncertain, Code: "reset", Uncertain: true}
	tests := []struct {
		name   string
		policy model.RetryPolicy
		tries  int
		ended  ended
		want   model.Settlement
	}{
		{"NC-05 accepted keeps the provider's id", hold, 0, ended{Result: Result{ProviderID: "SM1", HTTPStatus: 201}},
			model.Settlement{Kind: model.SettleSuccess, ProviderID: "SM1", HTTPStatus: 201}},
		{"NC-12 a failure waits for its backoff and the jitter", hold, 0, ended{Result: transient},
			model.Settlement{Kind: model.SettleRetry, Delay: 4 * time.Second, Reason: model.ReasonTransient, Error: "boom", Code: "451"}},
		{"NC-11 Retry-After is a floor, under the jitter", hold, 0, ended{Result: Result{Err: failure, Reason: model.ReasonRateLimited, RetryAfter: time.Minute}},
			model.Settlement{Kind: model.SettleRetry, Delay: 62 * time.Second, Reason: model.ReasonRateLimited, Error: "boom"}},
		{"NC-13 spent is dead", resend, 5, ended{Result: transient},
			model.Settlement{Kind: model.SettleDead, Reason: model.ReasonTransient, Error: "boom", Code: "451"}},
		{"NC-11 permanent has failed, at once", resend, 0, ended{Result: Result{Err: failure, Reason: model.ReasonPermanent, Permanent: true, Code: "550"}},
			model.Settlement{Kind: model.SettleFailed, Reason: model.ReasonPermanent, Error: "boom", Code: "550"}},
		{"NC-11 permanent has failed, on the last try too", resend, 5, ended{Result: Result{Err: failure, Reason: model.ReasonPermanent, Permanent: true}},
			model.Settlement{Kind: model.SettleFailed, Reason: model.ReasonPermanent, Error: "boom"}},
		{"NC-10 uncertain is sent again where the channel says resend", resend, 0, ended{Result: uncertain},
			model.Settlement{Kind: model.SettleRetry, Delay: 4 * time.Second, Uncertain: true, Reason: model.ReasonUncertain, Error: "boom", Code: "reset"}},
		{"NC-10 uncertain on the last try is no death", resend, 5, ended{Result: uncertain},
			model.Settlement{Kind: model.SettleUncertain, Uncertain: true, Reason: model.ReasonUncertain, Error: "boom", Code: "reset"}},
		{"NC-10 uncertain is held at once where the channel says hold", hold, 0, ended{Result: uncertain},
			model.Settlement{Kind: model.SettleUncertain, Uncertain: true, Reason: model.ReasonUncertain, Error: "boom", Code: "reset"}},
		{"NC-10 uncertain without an error is success", hold, 0, ended{Result: Result{Uncertain: true}},
			model.Settlement{Kind: model.SettleSuccess}},
		{"NC-10 a sender that outlasts shutdown is uncertain, held", hold, 0, ended{abandoned: true},
			model.Settlement{Kind: model.SettleUncertain, Uncertain: true, Reason: model.ReasonUncertain, Error: textAbandoned}},
		{"NC-10 a sender that outlasts shutdown is uncertain, sent again", resend, 0, ended{abandoned: true},
			model.Settlement{Kind: model.SettleRetry, Delay: 4 * time.Second, Uncertain: true, Reason: model.ReasonUncertain, Error: textAbandoned}},
		{"NC-10 a sender that outlives orphan_after is uncertain", hold, 0, ended{orphaned: true, timedOut: true, Result: Result{Err: errors.New(textOrphaned), Reason: model.ReasonOrphaned}},
			model.Settlement{Kind: model.SettleUncertain, Uncertain: true, Reason: model.ReasonOrphaned, Error: textOrphaned}},
		{"NC-21 a certain failure at shutdown is given back", hold, 5, ended{stopped: true, Result: transient},
			model.Settlement{Kind: model.SettleRelease}},
		{"NC-10 an uncertain failure at shutdown is not given back", hold, 0, ended{stopped: true, Result: uncertain},
			model.Settlement{Kind: model.SettleUncertain, Uncertain: true, Reason: model.ReasonUncertain, Error: "boom", Code: "reset"}},
		{"NC-21 accepted at shutdown is accepted", hold, 0, ended{stopped: true},
			model.Settlement{Kind: model.SettleSuccess}},
		{"NC-21 postponed burns nothing", hold, 5, ended{Result: Result{Err: failure, Postpone: time.Minute}},
			model.Settlement{Kind: model.SettleRelease, Delay: time.Minute}},
		{"IN-04 in the inbox uncertain is a failure as any other", threeRetries, 3, ended{Result: uncertain},
			model.Settlement{Kind: model.SettleFailed, Reason: model.ReasonUncertain, Error: "boom", Code: "reset"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := model.Work{Seq: 7, Queue: 2, Token: 99, RetryCount: test.tries, Replay: 1, StartedAt: 5}
			want := test.want
			want.Seq, want.Queue, want.Token, want.RetryCount, want.Replay, want.StartedAt = w.Seq, w.Queue, w.Token, w.RetryCount, w.Replay, w.StartedAt
			if diff := cmp.Diff(want, settlementOf(w, test.ended, test.policy, halfOf)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestRecoveryOfADelivery(t *testing.T) {
	started := model.Work{StartedAt: 10}
	last := model.Work{StartedAt: 10, RetryCount: 5}
	lost := func(s model.Settlement) model.Settlement {
		s.Lost, s.Uncertain, s.StartedAt, s.Reason, s.Error = true, true, 10, model.ReasonWorkerLost, textWorkerLost
		return s
	}
	for _, test := range []struct {
		name   string
		orphan model.Orphan
		want   model.Settlement
	}{
		{"NC-09 claimed and never started is nothing to doubt", model.Orphan{OwnerDead: true, Policy: hold},
			model.Settlement{Kind: model.SettleRelease}},
		{"NC-10 lost and started is sent again", model.Orphan{OwnerDead: true, Work: started, Policy: resend, Now: 10},
			lost(model.Settlement{Kind: model.SettleRetry, Delay: 4 * time.Second})},
		{"NC-10 lost on the last try is uncertain, in company too", model.Orphan{OwnerDead: true, Work: last, Policy: resend, Now: 10},
			lost(model.Settlement{Kind: model.SettleUncertain, RetryCount: 5})},
		{"NC-10 lost and started is held", model.Orphan{OwnerDead: true, Work: started, Policy: hold, Now: 10},
			lost(model.Settlement{Kind: model.SettleUncertain})},
		{"NC-10 a sender that outlived orphan_after in a living process is held", model.Orphan{Work: started, Policy: hold, Now: 10},
			model.Settlement{Kind: model.SettleUncertain, Uncertain: true, StartedAt: 10, Reason: model.ReasonOrphaned, Error: textOrphaned}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, recoveryOf(test.orphan, halfOf)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if needsCompanyOfNone(model.Work{Lost: 1, RetryCount: 9}, test.orphan.Policy) {
				t.Error("a delivery waits for being alone")
			}
		})
	}
}

func TestTheRandomPartOfAWait(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		d := randomPart(5 * time.Second)
		if d < 0 || d >= 5*time.Second {
			t.Fatalf("drew %v", d)
		}
		seen[d] = true
	}
	if len(seen) < 50 || randomPart(0) != 0 {
		t.Errorf("%d of 100 draws differ; of nothing: %v", len(seen), randomPart(0))
	}
}
