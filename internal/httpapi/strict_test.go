package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/notify"
)

// TestNothingChosenReplaysNothing: what is empty, or was left out by a script whose
// variable is not set, must not choose more than was meant.
func TestNothingChosenReplaysNothing(t *testing.T) {
	for filter, location := range map[string]string{
		`{"ids":[]}`:                     "body.filter.ids",
		`{"ids":[ ],"status":"DEAD"}`:    "body.filter.ids",
		`{"ids":null}`:                   "body.filter.status",
		`{}`:                             "body.filter.status",
		`null`:                           "body.filter",
		`{"channel":"pager"}`:            "body.filter.status",
		`{"status":""}`:                  "body.filter.status",
		`{"status":null}`:                "body.filter.status",
		`{"status":"DEAD","channel":""}`: "body.filter.channel",
		`{"status":"DEAD","from":""}`:    "body.filter.from",
		`{"status":"DEAD","to":""}`:      "body.filter.to",
		`{"status":"DEAD","to":"1970-01-01T00:00:00Z"}`:      "body.filter.to",
		`{"status":"DEAD","to":"1970-01-01T00:00:00+09:00"}`: "body.filter.to",
	} {
		t.Run("NC-13 "+filter, func(t *testing.T) {
			c, _ := testConfig(brokenStore{})
			deliveries := newFakeDeliveries()
			for i := range deliveries.view.Deliveries {
				deliveries.view.Deliveries[i].Status, deliveries.view.Deliveries[i].Masked = model.DeliveryDead, "•••"
			}
			c.Deliveries = deliveries
			for _, force := range []bool{false, true} {
				rec := requestBody(t, New(c), ask{method: "POST", target: "/v1/deliveries/replay", body: fmt.Sprintf(`{"filter":%s,"reason":"r","force":%t}`, filter, force)})
				if rec.Code != 422 || !strings.Contains(rec.Body.String(), `"`+location+`"`) {
					t.Errorf("force %t: %d %s", force, rec.Code, rec.Body)
				}
			}
			for _, d := range deliveries.view.Deliveries {
				if d.Status != model.DeliveryDead {
					t.Errorf("%s is %s", d.ID, d.Status)
				}
			}
		})
	}
}

// talkativeNotifier finds very many faults, with long names.
type talkativeNotifier struct{}

func (talkativeNotifier) Accept(context.Context, notify.Submission) (notify.Receipt, error) {
	e := &notify.Error{Code: notify.Invalid, Detail: "The notification is wrong."}
	for n := range 10_000 {
		e.Fields = append(e.Fields, notify.FieldError{Field: fmt.Sprintf("variables.%d%s", n, strings.Repeat("x", 10_000)), Problem: strings.Repeat("is not known ", 1000)})
	}
	return notify.Receipt{}, e
}

func TestFaultsAreBounded(t *testing.T) {
	var many, most strings.Builder // members that nobody knows
	for n := range 50_000 {
		fmt.Fprintf(&many, `,"m%d":0`, n)
	}
	for n := range 900 {
		fmt.Fprintf(&most, `,"m%d":0`, n)
	}
	wrong := strings.TrimSuffix(minimal, "}") + most.String() + "}"
	batch := `{"notifications":[` + strings.Repeat(wrong+",", 199) + wrong + `]}`
	c, _ := testConfig(brokenStore{})
	for name, q := range map[string]struct {
		ask
		notifier Notifier
		size     int // of the answer, at most
	}{
		"of a notification":            {ask{body: strings.TrimSuffix(minimal, "}") + many.String() + "}", target: "/v1/notifications"}, fakeNotifier{}, 6 << 10},
		"of members that stand twice":  {ask{body: `{"a":0` + strings.Repeat(`,"a":0`, 50_000) + `}`, target: "/v1/notifications"}, fakeNotifier{}, 6 << 10},
		"of ids":                       {ask{body: `{"reason":"r","filter":{"ids":[""` + strings.Repeat(`,""`, 499) + `]}}`, target: "/v1/deliveries/replay"}, fakeNotifier{}, 6 << 10},
		"of variables":                 {ask{body: minimal, target: "/v1/notifications"}, talkativeNotifier{}, 50 << 10},
		"of a query":                   {ask{method: "GET", target: "/v1/deliveries?" + strings.Repeat("a&", 20_000)}, fakeNotifier{}, 6 << 10},
		"of a query's many parameters": {ask{method: "GET", target: "/v1/deliveries?" + url.PathEscape(strings.ReplaceAll(many.String(), `"`, ""))}, fakeNotifier{}, 6 << 10},
		"of a batch":                   {ask{body: batch, target: batchPath}, fakeNotifier{}, 100 << 10},
		"of a batch's variables":       {ask{body: `{"notifications":[` + strings.Repeat(minimal+",", 999) + minimal + `]}`, target: batchPath}, oneFault{}, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			c.Notifications = q.notifier
			if q.method == "" {
				q.method = "POST"
			}
			rec := requestBody(t, New(c), q.ask)
			if rec.Body.Len() > q.size {
				t.Errorf("%d bytes answer %d: %.300s", rec.Body.Len(), len(q.body)+len(q.target), rec.Body)
			}
			if strings.Count(rec.Body.String(), "known are") > 1 {
				t.Error("what is known is listed more than once")
			}
			if rec.Code == 207 {
				var got BatchAnswer
				must(t, json.Unmarshal(rec.Body.Bytes(), &got))
				told := 0
				for i, r := range got.Results {
					if r.Status != 422 || len(r.Problem.Errors) == 0 || r.Problem.Errors[0] == moreFaults {
						t.Fatalf("%d: %+v", i, r.Problem)
					}
					told += len(r.Problem.Errors)
				}
				if told > 2*maxFaults+2*len(got.Results) {
					t.Errorf("%d faults for %d notifications", told, len(got.Results))
				}
				return
			}
			var p Problem
			must(t, json.Unmarshal(rec.Body.Bytes(), &p))
			if rec.Code != 422 || len(p.Errors) > maxFaults+1 || len(p.Errors) > maxFaults && p.Errors[maxFaults] != moreFaults {
				t.Errorf("%d with %d faults", rec.Code, len(p.Errors))
			}
		})
	}
	t.Run("the 50th is told, and that there are more only where there are", func(t *testing.T) {
		for n, want := range map[int]int{49: 49, 50: 50, 51: 51, 52: 51} {
			faults := make([]ProblemError, n)
			if got := invalid(faults...).Errors; len(got) != want || (got[len(got)-1] == moreFaults) != (n > maxFaults) {
				t.Errorf("%d: %d", n, len(got))
			}
		}
	})
}

// oneFault finds the same fault, told at length, in everything.
type oneFault struct{}

func (oneFault) Accept(context.Context, notify.Submission) (notify.Receipt, error) {
	return notify.Receipt{}, &notify.Error{Code: notify.Invalid, Detail: "The notification is wrong.", Fields: []notify.FieldError{{Field: "template", Problem: strings.Repeat("y", 1000)}}}
}
