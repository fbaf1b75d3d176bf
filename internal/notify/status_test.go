package notify

import (
	"strings"
	"testing"

	"github.com/posthouse/posthouse/internal/model"
)

// Each delivery is written channel=STATUS, with ! where it has been begun before.
func TestNC17AStatusFollowsFromTheDeliveries(t *testing.T) {
	all := func(names ...string) model.Aggregate { return model.Aggregate{All: names} }
	one := func(names ...string) model.Aggregate { return model.Aggregate{Any: names} }
	mixed := model.Aggregate{All: []string{"in_app"}, Any: []string{"mail", "text"}}
	for _, c := range []struct {
		success    model.Aggregate
		deliveries string
		want       Status
	}{
		// Default: all that were made.
		{model.Aggregate{}, "", StatusFailed},
		{model.Aggregate{}, "in_app=SUCCEEDED", StatusSucceeded},
		{model.Aggregate{}, "mail=PENDING", StatusAccepted},
		{model.Aggregate{}, "in_app=SUCCEEDED mail=PENDING", StatusAccepted},
		{model.Aggregate{}, "mail=PENDING!", StatusInProgress},
		{model.Aggregate{}, "mail=PROCESSING", StatusInProgress},
		{model.Aggregate{}, "mail=RETRY_WAIT", StatusInProgress},
		{model.Aggregate{}, "mail=UNCERTAIN", StatusInProgress},
		{model.Aggregate{}, "mail=SUCCEEDED! text=PENDING", StatusInProgress},
		{model.Aggregate{}, "mail=DELIVERED!", StatusSucceeded},
		{model.Aggregate{}, "mail=SUCCEEDED! text=DELIVERED!", StatusSucceeded},
		{model.Aggregate{}, "mail=FAILED text=PENDING", StatusFailed},
		{model.Aggregate{}, "mail=DEAD text=SUCCEEDED!", StatusFailed},
		{model.Aggregate{}, "mail=CANCELLED", StatusCancelled},
		{model.Aggregate{}, "mail=CANCELLED text=SUCCEEDED!", StatusCancelled},
		{model.Aggregate{}, "mail=CANCELLED text=PROCESSING", StatusInProgress},
		{model.Aggregate{}, "mail=CANCELLED text=UNCERTAIN", StatusInProgress},
		{model.Aggregate{}, "mail=CANCELLED text=FAILED", StatusFailed},

		// All of them, by name: one that was skipped cannot send.
		{all("in_app", "mail"), "in_app=SUCCEEDED", StatusFailed},
		{all("in_app"), "in_app=SUCCEEDED mail=PENDING", StatusSucceeded},
		{all("in_app"), "in_app=SUCCEEDED mail=DEAD", StatusSucceeded},
		{all("mail"), "in_app=SUCCEEDED mail=PENDING", StatusAccepted},
		{all("mail"), "in_app=SUCCEEDED mail=RETRY_WAIT", StatusInProgress},
		{all("mail", "text"), "mail=SUCCEEDED! text=UNCERTAIN", StatusInProgress},
		{all("mail", "text"), "mail=CANCELLED text=SUCCEEDED!", StatusCancelled},

		// One of them.
		{one("mail", "text"), "", StatusFailed},
		{one("mail", "text"), "mail=SUCCEEDED! text=PENDING", StatusSucceeded},
		{one("mail", "text"), "mail=DEAD text=PENDING", StatusInProgress},
		{one("mail", "text"), "mail=DEAD text=SUCCEEDED!", StatusSucceeded},
		{one("mail", "text"), "mail=DEAD text=FAILED", StatusFailed},
		{one("mail", "text"), "text=PENDING", StatusAccepted},
		{one("mail", "text"), "text=DEAD", StatusFailed},
		{one("mail", "text"), "mail=CANCELLED text=DEAD", StatusCancelled},
		{one("mail", "text"), "mail=CANCELLED text=RETRY_WAIT", StatusInProgress},
		{one("mail", "text"), "mail=UNCERTAIN text=DEAD", StatusInProgress},

		// Both conditions.
		{mixed, "in_app=SUCCEEDED mail=PENDING text=PENDING", StatusAccepted},
		{mixed, "in_app=SUCCEEDED mail=DEAD text=SUCCEEDED!", StatusSucceeded},
		{mixed, "in_app=SUCCEEDED mail=DEAD text=DEAD", StatusFailed},
		{mixed, "in_app=SUCCEEDED mail=CANCELLED text=DEAD", StatusCancelled},
		{mixed, "in_app=SUCCEEDED", StatusFailed},
		{mixed, "in_app=FAILED mail=SUCCEEDED! text=SUCCEEDED!", StatusFailed},
		{mixed, "in_app=CANCELLED mail=PENDING", StatusInProgress},
		{mixed, "in_app=CANCELLED mail=DEAD", StatusFailed},

		// A channel stands as its best delivery does.
		{all("mail"), "mail=DEAD mail=SUCCEEDED!", StatusSucceeded},
		{all("mail"), "mail=DEAD mail=PENDING", StatusInProgress},
	} {
		v := model.RequestView{Request: model.NewRequest{Success: c.success}}
		for word := range strings.FieldsSeq(c.deliveries) {
			channel, status, _ := strings.Cut(word, "=")
			status, begun := strings.CutSuffix(status, "!")
			d := model.DeliveryView{Channel: channel, Status: model.DeliveryStatus(status)}
			if begun {
				d.AttemptCount = 1
			}
			v.Deliveries = append(v.Deliveries, d)
		}
		if got := StatusOf(v); got != c.want {
			t.Errorf("%+v of %q is %s, want %s", c.success, c.deliveries, got, c.want)
		}
	}
}

func TestAReplayIsABeginning(t *testing.T) {
	v := model.RequestView{Deliveries: []model.DeliveryView{{Channel: "mail", Status: model.DeliveryPending, Replay: 1}}}
	if got := StatusOf(v); got != StatusInProgress {
		t.Errorf("got %s", got)
	}
}

// No combination of two deliveries is unknown, and none goes from decided to
// undecided when a delivery becomes final.
func TestWhatIsDecidedStaysDecided(t *testing.T) {
	aggregates := []model.Aggregate{{}, {All: []string{"a"}}, {Any: []string{"a", "b"}}, {All: []string{"a"}, Any: []string{"b"}}, {All: []string{"a", "b"}}}
	view := func(success model.Aggregate, a, b model.DeliveryStatus) model.RequestView {
		return model.RequestView{Request: model.NewRequest{Success: success}, Deliveries: []model.DeliveryView{{Channel: "a", Status: a}, {Channel: "b", Status: b}}}
	}
	for _, success := range aggregates {
		for _, a := range model.DeliveryStatuses() {
			for _, b := range model.DeliveryStatuses() {
				before := StatusOf(view(success, a, b))
				if before == StatusAccepted || before == StatusInProgress {
					if a.Final() && b.Final() {
						t.Errorf("%+v of %s and %s is %s, though nothing follows", success, a, b, before)
					}
					continue
				}
				for _, after := range model.DeliveryStatuses() {
					if b.Final() || !after.Final() {
						continue
					}
					if got := StatusOf(view(success, a, after)); got != before {
						t.Errorf("%+v of %s and %s is %s, and with %s %s", success, a, b, before, after, got)
					}
				}
			}
		}
	}
}
