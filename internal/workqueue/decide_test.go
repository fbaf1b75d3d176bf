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
