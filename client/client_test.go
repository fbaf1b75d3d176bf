package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// answers is a server that answers each request with the next of its answers; an
// empty one breaks the connection.
type answers struct {
	list  []string // "STATUS HEADER: VALUE|BODY"
	asked []string // "METHOD PATH?QUERY BODY"
	at    []time.Time
}

var errBroken = errors.New("connection reset by peer")

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	a.asked = append(a.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	a.at = append(a.at, time.Now())
	next := a.list[min(len(a.asked), len(a.list))-1]
	if next == "" {
		return nil, errBroken
	}
	head, text, _ := strings.Cut(next, "|")
	status, line, _ := strings.Cut(head, " ")
	rec := &http.Response{StatusCode: map[string]int{"200": 200, "202": 202, "207": 207, "301": 301, "302": 302, "303": 303, "307": 307, "308": 308, "404": 404, "409": 409, "422": 422, "429": 429, "500": 500, "502": 502, "503": 503}[status],
		Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: io.NopCloser(strings.NewReader(text))}
	if name, value, ok := strings.Cut(line, ": "); ok {
		rec.Header.Set(name, value)
	}
	return rec, nil
}

func clientOf(t *testing.T, a *answers, o Options) *Client {
	t.Helper()
	o.HTTPClient = &http.Client{Transport: a}
	c, err := New("http://posthouse.internal:8081/", o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const receipt = `{"id":"n1","status":"accepted","duplicate":false,"deliveries":[{"id":"d1","channel":"mail","status":"PENDING","reason":"policy 1"}],"skipped":[]}`

func TestNotifyIsTriedAgainWhereThatIsSafe(t *testing.T) {
	for name, c := range map[string]struct {
		list  []string
		tries int
		code  Code // "": accepted
		waits []time.Duration
	}{
		"accepted at once":                      {[]string{"202|" + receipt}, 1, "", nil},
		"a broken connection":                   {[]string{"", "", "202|" + receipt}, 3, "", []time.Duration{200 * time.Millisecond, 400 * time.Millisecond}},
		"the store is away":                     {[]string{"503 Retry-After: 7|{}", "200|" + receipt}, 2, "", []time.Duration{7 * time.Second}},
		"a date to wait for":                    {[]string{"503 Retry-After: Sat, 01 Jan 2000 00:00:09 GMT|{}", "202|" + receipt}, 2, "", []time.Duration{9 * time.Second}},
		"too many requests":                     {[]string{"429 Retry-After: abc|{}", "202|" + receipt}, 2, "", []time.Duration{200 * time.Millisecond}},
		"a proxy without a server":              {[]string{"502|", "202|" + receipt}, 2, "", nil},
		"not for ever":                          {[]string{"503|{}"}, 4, Unavailable, nil},
		"nor when asked to wait longer than it": {[]string{"503 Retry-After: 86400|{}"}, 1, Unavailable, nil},
		"a refusal":                             {[]string{`422|{"code":"invalid","detail":"no","errors":[{"location":"body.variables.title","message":"is missing"}]}`}, 1, Invalid, nil},
		"a conflict":                            {[]string{`409|{"code":"conflict","detail":"differs"}`}, 1, Conflict, nil},
		"a fault of the server":                 {[]string{"500|{}"}, 1, Internal, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &answers{list: c.list}
				r, err := clientOf(t, a, Options{}).Notify(t.Context(), Notification{IdempotencyKey: "k"})
				if len(a.asked) != c.tries {
					t.Errorf("%d tries, want %d", len(a.asked), c.tries)
				}
				for i, want := range c.waits {
					if got := a.at[i+1].Sub(a.at[i]); got < want || got > want+want/2 {
						t.Errorf("wait %d was %v, want %v", i, got, want)
					}
				}
				e, failed := errors.AsType[*Error](err)
				if c.code == "" {
					if err != nil || r.ID != "n1" || r.Deliveries[0].Status != DeliveryPending {
						t.Errorf("%+v %v", r, err)
					}
				} else if !failed || e.Code != c.code || e.Unknown {
					t.Errorf("%v", err)
				}
				for _, asked := range a.asked[1:] {
					if asked != a.asked[0] {
						t.Errorf("the same is asked again as %s", asked)
					}
				}
			})
		})
	}
	t.Run("ends with the context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			a := &answers{list: []string{"503 Retry-After: 10|{}"}}
			_, err := clientOf(t, a, Options{}).Notify(ctx, Notification{})
			if e, ok := errors.AsType[*Error](err); !ok || e.Status != 503 || e.RetryAfter != 10*time.Second || len(a.asked) != 1 {
				t.Errorf("%v after %d tries", err, len(a.asked))
			}
		})
	})
}

func TestOperatorActionsAreNotTriedAgain(t *testing.T) {
	ctx := t.Context()
	calls := map[string]func(*Client) error{
		"cancel":  func(c *Client) error { _, err := c.Cancel(ctx, "n", "r"); return err },
		"replay":  func(c *Client) error { _, err := c.Replay(ctx, "d", ReplayParams{Reason: "r"}); return err },
		"many":    func(c *Client) error { _, err := c.ReplayMany(ctx, BulkReplay{Reason: "r"}); return err },
		"resolve": func(c *Client) error { _, err := c.Resolve(ctx, "d", Sent, "r"); return err },
		"pause":   func(c *Client) error { _, err := c.Pause(ctx, "mail", "r"); return err },
		"resume":  func(c *Client) error { _, err := c.Resume(ctx, "mail", "r"); return err },
		"test":    func(c *Client) error { _, err := c.Test(ctx, "mail", "a@example.com"); return err },
	}
	for name, do := range calls {
		for answer, unknown := range map[string]bool{"": true, "503|{}": true, "500|{}": true, `409|{"code":"conflict"}`: false, "429|{}": false} {
			a := &answers{list: []string{answer}}
			e, ok := errors.AsType[*Error](do(clientOf(t, a, Options{})))
			if !ok || len(a.asked) != 1 || e.Unknown != unknown {
				t.Errorf("%s answered %q: %d tries, %+v", name, answer, len(a.asked), e)
			}
		}
	}
}

// TestWritesFollowNoRedirect: neither with their body to another server, nor as
// another request without it.
func TestWritesFollowNoRedirect(t *testing.T) {
	ctx := t.Context()
	calls := map[string]func(*Client) error{
		"notify": func(c *Client) error { _, err := c.Notify(ctx, Notification{IdempotencyKey: "k"}); return err },
		"batch":  func(c *Client) error { _, err := c.NotifyBatch(ctx, make([]Notification, 1)); return err },
		"cancel": func(c *Client) error { _, err := c.Cancel(ctx, "n", "r"); return err },
		"replay": func(c *Client) error { _, err := c.Replay(ctx, "d", ReplayParams{Reason: "r"}); return err },
		"test":   func(c *Client) error { _, err := c.Test(ctx, "mail", "a@example.com"); return err },
	}
	for name, do := range calls {
		for _, status := range []string{"301", "302", "303", "307", "308"} {
			a := &answers{list: []string{status + " Location: https://elsewhere.example/secret-path?x=secret|{}", "200|" + receipt}}
			err := do(clientOf(t, a, Options{}))
			e, ok := errors.AsType[*Error](err)
			if !ok || len(a.asked) != 1 || e.Code != Invalid || strconv.Itoa(e.Status) != status || e.Unknown {
				t.Errorf("%s answered %s: %d requests, %+v", name, status, len(a.asked), err)
				continue
			}
			if !strings.Contains(e.Error(), "points to https://elsewhere.example;") || strings.Contains(e.Error(), "secret") {
				t.Error(e)
			}
		}
	}
	t.Run("a redirect to nowhere is one", func(t *testing.T) {
		a := &answers{list: []string{"307|{}"}}
		_, err := clientOf(t, a, Options{}).Notify(ctx, Notification{})
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != Invalid || e.Status != 307 {
			t.Errorf("%+v", err)
		}
	})
	t.Run("what is read follows, as the caller's HTTP client does", func(t *testing.T) {
		a := &answers{list: []string{"307 Location: /v1/other|{}", `200|{"id":"n1"}`}}
		if d, err := clientOf(t, a, Options{}).Notification(ctx, "n"); err != nil || d.ID != "n1" || len(a.asked) != 2 {
			t.Errorf("%+v %v", d, err)
		}
		a = &answers{list: []string{"307 Location: /v1/other|{}"}}
		if _, err := clientOf(t, a, Options{Attempts: 1}).Notification(ctx, "n"); !errors.Is(err, errTooManyRedirects) || len(a.asked) != maxRedirects {
			t.Errorf("%v after %d", err, len(a.asked))
		}
		a.asked = nil
		own := &http.Client{Transport: a, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		c, err := New("http://posthouse.internal:8081/", Options{HTTPClient: own})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Notification(ctx, "n"); err == nil || len(a.asked) != 1 {
			t.Errorf("%v after %d", err, len(a.asked))
		}
	})
}

// TestAnEmptyListOfIDsIsSent: the server refuses it, and it must not become a
// choice of all.
func TestAnEmptyListOfIDsIsSent(t *testing.T) {
	for want, ids := range map[string][]string{`{"status":"DEAD"}`: nil, `{"status":"DEAD","ids":[]}`: {}} {
		a := &answers{list: []string{"200|{}"}}
		if _, err := clientOf(t, a, Options{}).ReplayMany(t.Context(), BulkReplay{IDs: ids, Status: DeliveryDead, Reason: "r"}); err != nil || !strings.Contains(a.asked[0], `{"filter":`+want+`,`) {
			t.Errorf("%v %s", err, a.asked)
		}
	}
}

func TestUserMessagesTakeAsManyCallsAsTheyNeed(t *testing.T) {
	pages := []string{`200|{"items":[{"seq":1},{"seq":2}],"next_cursor":"2"}`, `200|{"items":[{"seq":3}],"next_cursor":"3"}`, `200|{"items":[{"seq":4}],"next_cursor":null}`}
	for _, c := range []struct {
		limit, want int
		queries     []string
	}{
		{0, 4, []string{"", "?after=2&limit=48", "?after=3&limit=47"}},
		{3, 3, []string{"?limit=3", "?after=2&limit=1"}},
		{2, 2, []string{"?limit=2"}},
	} {
		a := &answers{list: pages}
		list, err := clientOf(t, a, Options{}).UserMessages(t.Context(), "u", 0, c.limit)
		if err != nil || len(list) != c.want || len(a.asked) != len(c.queries) {
			t.Fatalf("%d: %v %v by %q", c.limit, list, err, a.asked)
		}
		for i, query := range c.queries {
			if a.asked[i] != "GET /v1/users/u/messages"+query {
				t.Errorf("%d: %s, want %s", c.limit, a.asked[i], query)
			}
		}
	}
	a := &answers{list: []string{pages[0], "404|{}"}}
	if list, err := clientOf(t, a, Options{}).UserMessages(t.Context(), "u", 0, 0); err == nil || len(list) != 2 {
		t.Errorf("%v %v", list, err)
	}
}

func TestErrors(t *testing.T) {
	a := &answers{list: []string{`422|{"title":"Unprocessable Entity","status":422,"code":"invalid","detail":"The request is wrong.","errors":[{"location":"body.variables.title","message":"is missing"},{"location":"query.limit","message":"expected 1"}]}`, "422|<html>", ""}}
	c := clientOf(t, a, Options{Attempts: 1})
	_, err := c.Notify(t.Context(), Notification{})
	e, _ := errors.AsType[*Error](err)
	want := []FieldError{{"variables.title", "is missing"}, {"query.limit", "expected 1"}}
	if e.Status != 422 || !reflect.DeepEqual(e.Fields, want) || e.Error() != "The request is wrong: variables.title: is missing; query.limit: expected 1" {
		t.Errorf("%+v", e)
	}
	if e := (&Error{Detail: "no.", Fields: []FieldError{{"a", "is missing"}, {"", "there are more"}}}); e.Error() != "no: a: is missing; there are more" {
		t.Error(e)
	}
	_, err = c.Notify(t.Context(), Notification{})
	if e, _ := errors.AsType[*Error](err); e.Code != Invalid || !strings.Contains(e.Error(), "422") {
		t.Errorf("without a document: %v", err)
	}
	_, err = c.Notification(t.Context(), "secret-id")
	if !errors.Is(err, errBroken) || strings.Contains(err.Error(), "secret-id") {
		t.Errorf("a broken connection: %v", err)
	}
}

func TestCodesAndStatuses(t *testing.T) {
	for _, c := range codes {
		if StatusOf(c.code) != c.status || CodeOf(c.status, c.code) != c.code {
			t.Errorf("%s and %d", c.code, c.status)
		}
	}
	for status, want := range map[int]Code{200: "", 302: "", 400: Invalid, 403: Invalid, 404: NotFound, 409: Conflict, 413: Invalid, 429: Unavailable, 500: Internal, 501: Internal, 502: Unavailable, 503: Unavailable, 504: Unavailable} {
		if got := CodeOf(status, "of the future"); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
	if StatusOf("of the future") != 500 {
		t.Error("an unknown code is internal")
	}
}

func TestBatch(t *testing.T) {
	a := &answers{list: []string{"", `207|{"results":[{"status":202,"notification":` + receipt + `},{"status":422,"problem":{"code":"invalid","detail":"no","errors":[{"location":"body.notifications[1].template","message":"is no template"}]}},{"status":503,"problem":{"code":"unavailable"}}]}`}}
	synctest.Test(t, func(t *testing.T) {
		results, err := clientOf(t, a, Options{}).NotifyBatch(t.Context(), make([]Notification, 3))
		if err != nil || len(a.asked) != 2 || results[0].Err != nil || results[0].Receipt.ID != "n1" {
			t.Fatalf("%+v %v", results, err)
		}
		e, _ := errors.AsType[*Error](results[1].Err)
		if e.Code != Invalid || e.Fields[0].Field != "template" {
			t.Errorf("%+v", e)
		}
		if e, _ := errors.AsType[*Error](results[2].Err); e.Code != Unavailable {
			t.Errorf("%+v", e)
		}
	})
	if _, err := clientOf(t, a, Options{Attempts: 1}).NotifyBatch(t.Context(), make([]Notification, 2)); err == nil {
		t.Error("an answer of another length is taken")
	}
}

func TestDeliveriesGoThroughAllPages(t *testing.T) {
	a := &answers{list: []string{`200|{"items":[{"id":"3"},{"id":"2"}],"next_cursor":"abc"}`, `200|{"items":[{"id":"1"}],"next_cursor":null}`}}
	c := clientOf(t, a, Options{})
	var ids string
	f := DeliveryFilter{Status: DeliveryDead, Channel: "a&b", From: time.Date(2026, 11, 30, 12, 0, 0, 5000, time.UTC), Limit: 2}
	for d, err := range c.Deliveries(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		ids += d.ID
	}
	if ids != "321" || a.asked[1] != "GET /v1/deliveries?channel=a%26b&cursor=abc&from=2026-11-30T12%3A00%3A00.000005Z&limit=2&status=DEAD" {
		t.Errorf("%s by %q", ids, a.asked)
	}
	failing := clientOf(t, &answers{list: []string{"404|{}"}}, Options{})
	n := 0
	for _, err := range failing.Deliveries(t.Context(), f) {
		if n++; err == nil || n > 1 {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func TestRecipients(t *testing.T) {
	for want, r := range map[string]Recipient{
		`{"email":"a@example.com","id":"u"}`:     {ID: "u", Email: "a@example.com"},
		`{"fax":"7","id":"u","phone":"+86 138"}`: {ID: "u", Phone: "+86 138", Other: map[string]string{"fax": "7"}},
	} {
		got, err := json.Marshal(r)
		if err != nil || string(got) != want {
			t.Errorf("%s %v, want %s", got, err, want)
		}
		var back Recipient
		if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("%+v %v", back, err)
		}
	}
	if _, err := json.Marshal(Recipient{ID: "u", Other: map[string]string{"id": "v"}}); err == nil || strings.Contains(err.Error(), `"v"`) {
		t.Errorf("an address that is given twice: %v", err)
	}
}

func TestNew(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:8081", "ftp://x", "http://", "http://x?y", "http://x/#y", "http://a b"} {
		if _, err := New(bad, Options{}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	a := &answers{list: []string{"200|{}"}}
	c, err := New("https://host/posthouse/", Options{HTTPClient: &http.Client{Transport: a}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.UserMessages(t.Context(), "a/b c", 7, 0); err != nil || a.asked[0] != "GET /posthouse/v1/users/a%2Fb%20c/messages?after=7" {
		t.Errorf("%v %q", err, a.asked)
	}
}
