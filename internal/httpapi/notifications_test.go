package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/notify"
)

const minimal = `{"idempotency_key":"a:1","biz_type":"b","template":"c","recipient":{"id":"u"}}`

// asks is a sound request for each operation on notifications.
var asks = []ask{
	{method: "POST", target: "/v1/notifications", body: minimal},
	{method: "POST", target: batchPath, body: `{"notifications":[` + minimal + `]}`},
	{method: "GET", target: "/v1/notifications/" + testID(1).String()},
	{method: "POST", target: "/v1/notifications/" + testID(1).String() + "/cancel"},
	{method: "GET", target: "/v1/users/u1008/messages"},
	{method: "GET", target: "/v1/deliveries"},
	{method: "GET", target: "/v1/deliveries/" + testID(12).String()},
	{method: "POST", target: "/v1/deliveries/" + testID(15).String() + "/replay", body: `{"reason":"r"}`},
	{method: "POST", target: "/v1/deliveries/" + testID(13).String() + "/resolve", body: `{"reason":"r","outcome":"sent"}`},
	{method: "POST", target: "/v1/deliveries/replay", body: `{"reason":"r","filter":{"status":"DEAD"}}`},
	{method: "GET", target: "/v1/channels"},
	{method: "POST", target: "/v1/channels/mail/pause", body: `{"reason":"r"}`},
	{method: "POST", target: "/v1/channels/mail/resume", body: `{"reason":"r"}`},
	{method: "POST", target: "/v1/channels/mail/test", body: `{"address":"me@example.com"}`},
	{method: "GET", target: "/v1/audit"},
}

func TestNotificationsThatAreNotConfiguredSayHow(t *testing.T) {
	c, _ := testConfig(brokenStore{})
	c.Notifications, c.Deliveries, c.Channels = nil, nil, nil
	h := New(c)
	for _, a := range asks {
		if rec := requestBody(t, h, a); rec.Code != 404 || !strings.Contains(rec.Body.String(), "channels and policies") {
			t.Errorf("%s %s: %d %s", a.method, a.target, rec.Code, rec.Body)
		}
	}
}

// brokenNotifier fails with an error that is not its own.
type brokenNotifier struct{ err error }

func (b brokenNotifier) Accept(context.Context, notify.Submission) (notify.Receipt, error) {
	return notify.Receipt{}, b.err
}

func TestTroubleWithNotificationsStaysInTheLog(t *testing.T) {
	for _, code := range []model.Code{model.CodeUnavailable, model.CodeInternal} {
		c, log := testConfig(brokenStore{})
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
		deliveries := newFakeDeliveries()
		deliveries.err = storeError(code)
		c.Deliveries, c.Notifications, c.Channels = deliveries, brokenNotifier{storeError(code)}, fakeChannels{storeError(code)}
		h := New(c)
		for _, a := range asks {
			log.Reset()
			rec := requestBody(t, h, a)
			want := StatusOf(code)
			if a.target == batchPath {
				want = 207
			}
			if rec.Code != want || strings.Contains(rec.Body.String(), "internal detail") || !strings.Contains(log.String(), "internal detail") {
				t.Errorf("%s %s %s: %d %s\nlog %s", code, a.method, a.target, rec.Code, rec.Body, log)
			}
		}
	}
}

// TestNothingThatWasSentComesBack puts a value into every place of a request that
// is wrong for it.
func TestNothingThatWasSentComesBack(t *testing.T) {
	const value = "hunter2"
	c, log := testConfig(brokenStore{})
	h := New(c)
	bodies := []string{
		value, `"` + value + `"`, `[` + `"` + value + `"]`, `{"a":"` + value + `"`, `{"a":` + value + `}`, `{"variables":{"code":` + value + `}}`,
		`{"reason":"` + value + `\u0000","outcome":"` + value + `","filter":{"status":"` + value + `","channel":"` + value + `","from":"` + value + `","ids":["` + value + `"]},"limit":"` + value + `","cursor":"` + value + `","force":"` + value + `","address":"` + value + `"}`,
		`{"idempotency_key":["` + value + `"],"biz_type":{"x":"` + value + `"},"template":"` + value + `","recipient":"` + value + `","variables":"` + value + `","priority":"` + value + `","locale":["` + value + `"],"not_before":"` + value + `","expires_at":"` + value + `","tags":"` + value + `"}`,
		`{"notifications":["` + value + `",{"recipient":{"id":["` + value + `"],"email":["` + value + `"]}}]}`,
		`{"notifications":"` + value + `"}`,
	}
	for _, a := range asks {
		for _, body := range bodies {
			if a.method == "GET" {
				continue
			}
			a.body = body
			a.header = http.Header{"Posthouse-Actor": {value + "\x01"}}
			if rec := requestBody(t, h, a); strings.Contains(rec.Body.String(), value) || strings.Contains(log.String(), value) || rec.Code < 207 {
				t.Errorf("%s %s with %s: %d %s\nlog %s", a.method, a.target, body, rec.Code, rec.Body, log)
			}
		}
	}
}

func TestBodiesAreBounded(t *testing.T) {
	c, _ := testConfig(brokenStore{})
	h := New(c)
	padded := func(text string, size int) string {
		return strings.Replace(text, `"c"`, `"c`+strings.Repeat("x", size-len(text))+`"`, 1)
	}
	batch := `{"notifications":[` + minimal + `]}`
	for _, a := range []struct {
		target, body string
		want         int
	}{
		{"/v1/notifications", padded(minimal, maxBody), 202},
		{"/v1/notifications", padded(minimal, maxBody+1), 413},
		{"/v1/notifications", padded(minimal, maxBody+100), 413},
		{batchPath, padded(batch, maxBatchBody), 207},
		{batchPath, padded(batch, maxBatchBody+1), 413},
		{batchPath, `{"notifications":[` + strings.Repeat(minimal+",", 999) + minimal + `]}`, 207},
		{batchPath, `{"notifications":[` + strings.Repeat(minimal+",", 1000) + minimal + `]}`, 422},
	} {
		rec := requestBody(t, h, ask{method: "POST", target: a.target, body: a.body})
		if rec.Code != a.want {
			t.Errorf("%s with %d bytes: %d, want %d: %.200s", a.target, len(a.body), rec.Code, a.want, rec.Body)
		}
	}
}

// recordingNotifier keeps what was submitted, in the order of arrival.
type recordingNotifier struct {
	fakeNotifier
	mu   sync.Mutex
	seen []notify.Submission
}

func (r *recordingNotifier) Accept(ctx context.Context, s notify.Submission) (notify.Receipt, error) {
	r.mu.Lock()
	r.seen = append(r.seen, s)
	r.mu.Unlock()
	return r.fakeNotifier.Accept(ctx, s)
}

func TestSubmissions(t *testing.T) {
	t.Run("NC-02 what is submitted arrives exactly", func(t *testing.T) {
		c, _ := testConfig(brokenStore{})
		r := &recordingNotifier{}
		c.Notifications = r
		body := `{"idempotency_key":"a:1 \u00e9","biz_type":"b","template":"c","recipient":{"id":"u","phone":"+86","fax":"7","email":""},
			"variables":{"n":12345678901234567890.10, "z": 1, "a":null},"priority":"low","locale":"fr","not_before":"2026-12-01T08:00:00+08:00","tags":["x","y"],"expires_at":null}`
		if rec := requestBody(t, New(c), ask{method: "POST", target: "/v1/notifications", body: body}); rec.Code != 202 {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
		got := r.seen[0]
		if string(got.Variables) != `{"n":12345678901234567890.10, "z": 1, "a":null}` || got.NotBefore.Unix() != 1796083200 || !got.ExpiresAt.IsZero() {
			t.Errorf("%s %v %v", got.Variables, got.NotBefore, got.ExpiresAt)
		}
		got.Variables, got.NotBefore = nil, got.ExpiresAt
		want := notify.Submission{IdempotencyKey: "a:1 é", BizType: "b", Template: "c", Priority: model.PriorityLow, Locale: "fr", Tags: []string{"x", "y"},
			Recipient: notify.Recipient{ID: "u", Addresses: map[string]string{"phone": "+86", "fax": "7"}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
	t.Run("NC-02 texts that would be read as another are refused", func(t *testing.T) {
		c, _ := testConfig(brokenStore{})
		h := New(c)
		for _, key := range []string{`\ud800`, "\xff", `a\udfffb`} {
			rec := requestBody(t, h, ask{method: "POST", target: "/v1/notifications", body: strings.Replace(minimal, "a:1", key, 1)})
			if rec.Code != 422 {
				t.Errorf("%q: %d", key, rec.Code)
			}
		}
		for _, key := range []string{`\ufffd`, "\uFFFD", `\uFFFD`, `\ud83d\ude00`} {
			rec := requestBody(t, h, ask{method: "POST", target: "/v1/notifications", body: strings.Replace(minimal, "a:1", key, 1)})
			if rec.Code != 202 {
				t.Errorf("%q: %d %s", key, rec.Code, rec.Body)
			}
		}
	})
	t.Run("of a batch those with one key come in their order", func(t *testing.T) {
		c, _ := testConfig(brokenStore{})
		r := &recordingNotifier{}
		c.Notifications = r
		var list []string
		for n := range 300 {
			list = append(list, fmt.Sprintf(`{"idempotency_key":"k%d","biz_type":"%d","template":"c","recipient":{"id":"u"}}`, n%7, n))
		}
		rec := requestBody(t, New(c), ask{method: "POST", target: batchPath, body: `{"notifications":[` + strings.Join(list, ",") + `]}`})
		if rec.Code != 207 || len(r.seen) != 300 {
			t.Fatalf("%d, %d submitted", rec.Code, len(r.seen))
		}
		last := map[string]int{}
		for _, s := range r.seen {
			var n int
			must(t, json.Unmarshal([]byte(s.BizType), &n))
			if before, ok := last[s.IdempotencyKey]; ok && n != before+7 {
				t.Fatalf("%s: %d after %d", s.IdempotencyKey, n, before)
			}
			last[s.IdempotencyKey] = n
		}
	})
}

// everyPage asks for all pages of a list and returns what its items have under a
// name.
func everyPage(t *testing.T, h http.Handler, target, member string) (all []string, pages int) {
	t.Helper()
	for cursor := ""; ; {
		var page struct {
			Items      []map[string]any `json:"items"`
			NextCursor *string          `json:"next_cursor"`
		}
		rec := request(t, h, "GET", target+"cursor="+cursor, nil)
		d := json.NewDecoder(bytes.NewReader(rec.Body.Bytes()))
		d.UseNumber()
		must(t, d.Decode(&page))
		if pages++; rec.Code != 200 || pages > 200 {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
		for _, item := range page.Items {
			all = append(all, fmt.Sprint(item[member]))
		}
		if page.NextCursor == nil {
			return all, pages
		}
		cursor = *page.NextCursor
	}
}

func TestPagesOfDeliveriesAndAudit(t *testing.T) {
	c, _ := testConfig(brokenStore{})
	h := New(c)
	want := []string{"15", "14", "13", "12", "11"}
	for _, limit := range []int{1, 2, 5, 500} {
		got, _ := everyPage(t, h, fmt.Sprintf("/v1/deliveries?limit=%d&", limit), "id")
		for i := range got {
			got[i] = got[i][len(got[i])-2:]
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v", limit, got)
		}
	}
	if got, pages := everyPage(t, h, "/v1/audit?", "seq"); len(got) != 120 || pages != 3 || got[119] != "1" {
		t.Errorf("%d records on %d pages", len(got), pages)
	}
	t.Run("a cursor belongs to one list", func(t *testing.T) {
		cursor := encodePlace(deliveryFilter{}.String(), 7)
		for _, target := range []string{"/v1/deliveries?status=DEAD&", "/v1/deliveries?from=2026-11-30T12:00:00Z&", "/v1/audit?"} {
			if rec := request(t, h, "GET", target+"cursor="+cursor, nil); rec.Code != 422 {
				t.Errorf("%s: %d", target, rec.Code)
			}
		}
	})
}

func TestBulkReplayGoesOnWithItsCursor(t *testing.T) {
	c, _ := testConfig(brokenStore{})
	deliveries := newFakeDeliveries()
	for i := range deliveries.view.Deliveries {
		deliveries.view.Deliveries[i].Status = model.DeliveryDead
		deliveries.view.Deliveries[i].Masked = "•••"
	}
	woken := 0
	c.Deliveries, c.Wake = deliveries, func() { woken++ }
	h := New(c)
	ask1 := func(cursor string, dry bool) (a BulkReplayAnswer) {
		t.Helper()
		rec := requestBody(t, h, ask{method: "POST", target: "/v1/deliveries/replay",
			body: fmt.Sprintf(`{"filter":{"status":"DEAD"},"limit":2,"reason":"r","cursor":%q,"dry_run":%t}`, cursor, dry)})
		must(t, json.Unmarshal(rec.Body.Bytes(), &a))
		if rec.Code != 200 {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
		return a
	}
	if a := ask1("", true); a.Replayed != 2 || deliveries.view.Deliveries[4].Status != model.DeliveryDead || woken != 0 {
		t.Errorf("NC-13 a dry run: %+v, woken %d", a, woken)
	}
	replayed := 0
	for cursor := ""; ; {
		a := ask1(cursor, false)
		replayed += a.Replayed
		if a.NextCursor == nil {
			break
		}
		cursor = *a.NextCursor
	}
	if replayed != 5 || woken != 3 {
		t.Errorf("NC-13 replayed %d, woken %d", replayed, woken)
	}
	t.Run("what has lost its sensitive values is not replayed, and a dry run says so", func(t *testing.T) {
		deliveries.view.Erased = true
		deliveries.view.Deliveries[0].Status = model.DeliveryDead
		if a := ask1("", true); a.Replayed != 0 || a.Matched != 1 || !strings.Contains(a.Results[0].Detail, "erased") {
			t.Errorf("%+v", a)
		}
	})
}

// Sources are the inbox's; channels are no sources.
func TestChannelsAreNoSources(t *testing.T) {
	s := openStore(t)
	_, err := s.Register(t.Context(), []model.SourceSpec{{Name: "erp"}, {Name: model.ChannelPrefix + "mail", Tenant: model.TenantDelivery}})
	must(t, err)
	c, _ := testConfig(s)
	h := New(c)
	for _, target := range []string{"/v1/inbox/sources", "/v1/inbox/stats"} {
		if rec := request(t, h, "GET", target, nil); rec.Code != 200 || strings.Contains(rec.Body.String(), "mail") || !strings.Contains(rec.Body.String(), "erp") {
			t.Errorf("%s: %d %s", target, rec.Code, rec.Body)
		}
	}
	for target, want := range map[string]int{
		"GET /v1/inbox/messages?source=channel/mail": 422, "GET /v1/inbox/sources/channel%2Fmail/rejects": 404,
		"POST /v1/inbox/sources/channel%2Fmail/pause": 404, "GET /v1/deliveries?channel=mail": 200, "GET /v1/deliveries?channel=erp": 422,
	} {
		method, target, _ := strings.Cut(target, " ")
		if rec := request(t, h, method, target, nil); rec.Code != want {
			t.Errorf("%s: %d, want %d", target, rec.Code, want)
		}
	}
}

// TestWordsOfDeliveriesAreComplete compares what the document says with the model.
func TestWordsOfDeliveriesAreComplete(t *testing.T) {
	rec := func() string {
		c, _ := testConfig(brokenStore{})
		return request(t, New(c), "GET", "/openapi.json", nil).Body.String()
	}()
	for _, s := range model.DeliveryStatuses() {
		if !strings.Contains(rec, `"`+string(s)+`"`) {
			t.Errorf("the document lacks %s", s)
		}
		if s != model.DeliveryPending && s != model.DeliveryRetryWait && whyNotCancelled(s) == whyNotCancelled("") {
			t.Errorf("%s: no word why it is not cancelled", s)
		}
		if wouldReplay(model.DeliveryView{Status: s}, false, false).Done != (s == model.DeliveryFailed || s == model.DeliveryDead) {
			t.Errorf("NC-13 %s without force", s)
		}
	}
	for _, s := range notify.Statuses() {
		if !strings.Contains(rec, `"`+string(s)+`"`) {
			t.Errorf("the document lacks %s", s)
		}
	}
}

func FuzzReadBody(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(`{"a":1,"a":{}} x`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, faults := readBody(body)
		s := readSubmission(m)
		if len(*faults) == 0 && (s.IdempotencyKey == "" || s.Recipient.ID == "" || !json.Valid(body)) {
			t.Errorf("taken: %+v", s)
		}
	})
}

func TestListOfChannels(t *testing.T) {
	queue := func(name string, tenant model.Tenant, pending int64) model.SourceStats {
		return model.SourceStats{Source: model.Source{Name: name, Tenant: tenant}, Pending: pending}
	}
	sending, err := fakeChannels{}.Channels(t.Context())
	must(t, err)
	list := newChannelList(map[string]string{"mail": "email", "bell": "in_app"}, sending, []model.SourceStats{
		queue("mail", model.TenantInbox, 1), queue("channel/mail", model.TenantDelivery, 2), queue("channel/former", model.TenantDelivery, 3),
		queue("channel/bell", model.TenantDelivery, 0), queue("channel/in_app", model.TenantDelivery, 4),
	})
	var got []string
	for _, c := range list.Channels {
		kind := "-"
		if c.Type != nil {
			kind = *c.Type
		}
		got = append(got, fmt.Sprint(c.Name, " ", kind, " ", c.State, " ", c.Pending))
	}
	if diff := cmp.Diff([]string{"bell in_app active 0", "former - not_configured 3", "in_app - not_configured 4", "mail email paused 2"}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestPagesOfUserMessagesAreBoundedInBytes reads 40 messages page by page.
func TestPagesOfUserMessagesAreBoundedInBytes(t *testing.T) {
	for _, c := range []struct{ long, limit, first int }{
		{100, 500, 40}, {100, 40, 40}, {100, 39, 39}, {100, 16, 16}, {100, 1, 1},
		{1 << 20, 500, 3}, {1 << 20, 2, 2}, {1<<20 - 1, 500, 4}, {maxMessages + 1, 500, 1}, {200_000, 40, 20},
	} {
		config, _ := testConfig(brokenStore{})
		deliveries := newFakeDeliveries()
		deliveries.long, config.Deliveries = c.long, deliveries
		h := New(config)
		seen, after := 0, "0"
		for pages := 0; ; pages++ {
			rec := request(t, h, "GET", fmt.Sprintf("/v1/users/long/messages?limit=%d&after=%s", c.limit, after), nil)
			var page UserMessageList
			must(t, json.Unmarshal(rec.Body.Bytes(), &page))
			if rec.Code != 200 || len(page.Items) == 0 || len(page.Items) > c.limit || pages == 0 && len(page.Items) != c.first {
				t.Fatalf("%+v: page %d: %d with %d messages", c, pages, rec.Code, len(page.Items))
			}
			if rec.Body.Len() > max(maxMessages, c.long)+len(page.Items)*500 {
				t.Errorf("%+v: page %d has %d bytes", c, pages, rec.Body.Len())
			}
			for _, m := range page.Items {
				if seen++; m.Seq != int64(seen) {
					t.Fatalf("%+v: message %d comes as the %dth", c, m.Seq, seen)
				}
			}
			if page.NextCursor == nil {
				break
			}
			after = *page.NextCursor
		}
		if seen != 40 {
			t.Errorf("%+v: %d messages", c, seen)
		}
	}
}

func TestTimelineTellsWhatHasExpired(t *testing.T) {
	v := newFakeDeliveries().view
	v.Deliveries[3].Status, v.Deliveries[3].FinishedAt = model.DeliveryCancelled, v.Request.ExpiresAt+1
	v.Deliveries[4].Status, v.Deliveries[4].FinishedAt = model.DeliveryCancelled, at(60) // by somebody
	var expired []string
	events := NewNotificationDetail(v).Timeline
	for i, e := range events {
		if e.Event == EventExpired {
			expired = append(expired, e.Channel)
		}
		if i > 0 && e.At < events[i-1].At {
			t.Errorf("event %d comes before the one above it", i)
		}
	}
	if !slices.Equal(expired, []string{"chat"}) {
		t.Error(expired)
	}
}
