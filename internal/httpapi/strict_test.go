package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
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
	for n := range 1_000 {
		e.Fields = append(e.Fields, notify.FieldError{Field: fmt.Sprintf("variables.%d%s", n, strings.Repeat("x", 10_000)), Problem: strings.Repeat("is not known ", 1000)})
	}
	return notify.Receipt{}, e
}

func TestFaultsAreBounded(t *testing.T) {
	var many, most strings.Builder // members that nobody knows
	for n := range 5_000 {
		fmt.Fprintf(&many, `,"m%d":0`, n)
	}
	for n := range 300 {
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
		"of members that stand twice":  {ask{body: `{"a":0` + strings.Repeat(`,"a":0`, 5_000) + `}`, target: "/v1/notifications"}, fakeNotifier{}, 6 << 10},
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

// TestMethods asks every path of the document by every method.
func TestMethods(t *testing.T) {
	c, _ := testConfig(brokenStore{})
	h := New(c)
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	must(t, json.Unmarshal(request(t, h, "GET", "/openapi.json", nil).Body.Bytes(), &document))
	document.Paths["/openapi.json"] = map[string]any{"get": nil}
	document.Paths["/metrics"] = map[string]any{"get": nil}
	for path, operations := range document.Paths {
		var allow []string
		if _, ok := operations["get"]; ok {
			allow = []string{"GET", "HEAD"}
		}
		if _, ok := operations["post"]; ok {
			allow = append(allow, "POST")
		}
		path := strings.NewReplacer("{id}", testID(12).String(), "{source}", "erp", "{name}", "mail").Replace(path)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY"} {
			rec := requestBody(t, h, ask{method: method, target: path, header: http.Header{"Content-Type": {"text/plain"}}, body: "x"})
			if slices.Contains(allow, method) {
				if rec.Code == 405 || rec.Header().Get("Allow") != "" {
					t.Errorf("%s %s: %d", method, path, rec.Code)
				}
				continue
			}
			if got := rec.Header().Get("Allow"); rec.Code != 405 || got != strings.Join(allow, ", ") || rec.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s: %d, allows %q", method, path, rec.Code, got)
			}
		}
	}
}

func TestPathsThatAreNotPlainAreNowhere(t *testing.T) {
	c, _ := testConfig(brokenStore{})
	h := New(c)
	for _, path := range []string{
		"//", "//v1/channels", "/v1//channels", "/v1/channels//", "/v1/./channels", "/v1/inbox/../channels", "/v1/channels/.", "/v1/channels/..",
		"/v1/channels/", "/v1/channels//pause", "/v1/users//messages", "//evil.example/v1/channels",
	} {
		for _, method := range []string{"GET", "POST", "PUT"} {
			rec := requestBody(t, h, ask{method: method, target: "http://127.0.0.1:8081" + path})
			if rec.Code != 404 || rec.Header().Get("Location") != "" || rec.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s: %d %v %s", method, path, rec.Code, rec.Header(), rec.Body)
			}
		}
	}
}

func TestBodiesThatAreNotJSON(t *testing.T) {
	c, _ := testConfig(brokenStore{})
	h := New(c)
	bodies := 0
	for _, a := range asks {
		if a.method == "GET" {
			continue
		}
		bodies++
		if a.body == "" {
			a.body = "{}"
		}
		for _, q := range []struct {
			header http.Header
			taken  bool
		}{
			{nil, true},
			{http.Header{"Content-Type": {""}}, true},
			{http.Header{"Content-Type": {"application/json"}}, true},
			{http.Header{"Content-Type": {"Application/JSON; charset=UTF-8"}}, true},
			{http.Header{"Content-Type": {"application/vnd.example+json"}, "Content-Encoding": {"identity"}}, true},
			{http.Header{"Content-Type": {"text/plain"}}, false},
			{http.Header{"Content-Type": {"text/json+json"}}, false},
			{http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, false},
			{http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}, false},
			{http.Header{"Content-Type": {"application/json; charset=utf-16"}}, false},
			{http.Header{"Content-Type": {"application/json", "text/plain"}}, false},
			{http.Header{"Content-Type": {"hunter2"}}, false},
			{http.Header{"Content-Encoding": {"gzip"}}, false},
			{http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"identity", "br"}}, false},
		} {
			a.header = q.header
			rec := requestBody(t, h, a)
			if (rec.Code != 415) != q.taken || strings.Contains(rec.Body.String(), "hunter2") {
				t.Errorf("%s with %v: %d %s", a.target, q.header, rec.Code, rec.Body)
			}
			if !q.taken && (rec.Header().Get("Content-Type") != "application/problem+json" || !strings.Contains(rec.Body.String(), "Content-")) {
				t.Errorf("%v: %v %s", q.header, rec.Header(), rec.Body)
			}
		}
	}
	if bodies < 9 {
		t.Errorf("%d operations were asked", bodies)
	}
	t.Run("nothing is of no type", func(t *testing.T) {
		a := ask{method: "POST", target: "/v1/notifications/" + testID(1).String() + "/cancel", header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}}
		if rec := requestBody(t, h, a); rec.Code != 200 {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
	})
}

// TestDocumentTellsWhatBodiesMayMeet: what every operation with a body can answer
// stands at every one.
func TestDocumentTellsWhatBodiesMayMeet(t *testing.T) {
	c, _ := testConfig(brokenStore{})
	var document struct {
		Paths map[string]map[string]struct {
			RequestBody any            `json:"requestBody"`
			Responses   map[string]any `json:"responses"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Description string `json:"description"`
				} `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	must(t, json.Unmarshal(request(t, New(c), "GET", "/openapi.json", nil).Body.Bytes(), &document))
	found := 0
	for path, operations := range document.Paths {
		for _, op := range operations {
			if op.RequestBody == nil {
				continue
			}
			found++
			for _, status := range []string{"400", "403", "404", "408", "413", "415", "422", "503"} {
				if op.Responses[status] == nil {
					t.Errorf("%s lacks %s", path, status)
				}
			}
		}
	}
	if found < 9 {
		t.Errorf("%d operations with a body", found)
	}
	for _, status := range append(slices.Collect(maps.Values(acceptStatuses)), 200, 202, 500) {
		if !strings.Contains(document.Components.Schemas["BatchResult"].Properties["status"].Description, strconv.Itoa(status)) {
			t.Errorf("a batch's result lacks %d", status)
		}
	}
}
