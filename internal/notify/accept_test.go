package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/template"
	"github.com/posthouse/posthouse/internal/template/samples"
)

func TestWhatIsKept(t *testing.T) {
	k := newKit(t, nil)
	s := submission()
	s.Locale, s.Tags = "fr-CA", []string{"night"}
	s.NotBefore = time.Now().Add(-time.Hour)
	s.ExpiresAt = time.Now().Add(time.Hour)
	got := k.accept(t, s)

	t.Run("NC-04 each choice is told with its reason", func(t *testing.T) {
		want := Receipt{
			ID: got.ID, Status: StatusAccepted, Skipped: []model.Choice{},
			Deliveries: []Delivered{
				{Channel: "in_app", Status: model.DeliverySucceeded, Reason: "policy 3"},
				{Channel: "mail", Status: model.DeliveryPending, Reason: "policy 3"},
			},
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Delivered{}, "ID")); diff != "" {
			t.Errorf("receipt (-want +got):\n%s", diff)
		}
	})
	view := k.request(t, got.ID)
	t.Run("the request says what came in", func(t *testing.T) {
		r := view.Request
		if r.Key != s.IdempotencyKey || r.BizType != s.BizType || r.Recipient != "u1008" || r.Locale != "fr-CA" || r.Priority != model.PriorityNormal ||
			!cmp.Equal(r.Tags, s.Tags) || r.NotBefore != model.MicrosOf(s.NotBefore) || r.ExpiresAt != model.MicrosOf(s.ExpiresAt) {
			t.Errorf("kept %+v", r)
		}
		if want := `{"amount":1,"code":"•••","title":"Travel"}`; string(r.Variables) != want {
			t.Errorf("variables %s, want %s", r.Variables, want)
		}
		if !view.Secret || view.Erased {
			t.Errorf("secret %v, erased %v", view.Secret, view.Erased)
		}
	})
	t.Run("NC-14 the locale falls back and which was used is recorded", func(t *testing.T) {
		if d := view.Deliveries; len(d) != 2 || d[0].Locale != "fr" || d[1].Locale != "en" || d[1].Masked != "z•••" {
			t.Errorf("deliveries %+v", d)
		}
	})
	t.Run("the user sees no sensitive value", func(t *testing.T) {
		all, err := k.store.UserMessages(context.Background(), "u1008", 0, 10)
		if err != nil || len(all) != 1 || all[0].Title != "A faire : Travel" || !strings.Contains(all[0].Body, "Code •••") {
			t.Errorf("messages %+v, %v", all, err)
		}
	})
	t.Run("AC-7 the database holds no sensitive value and no address", func(t *testing.T) {
		for _, name := range []string{k.path, k.path + "-wal"} {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, hidden := range []string{secretCode, secretAddress, "zhang"} {
				if strings.Contains(string(data), hidden) {
					t.Errorf("%s holds %s", name, hidden)
				}
			}
		}
	})
	t.Run("the delivery's values can be opened in their own contexts", func(t *testing.T) {
		out, err := k.store.Outgoing(context.Background(), []model.Seq{view.Deliveries[1].Seq})
		if err != nil || len(out) != 1 {
			t.Fatalf("%v, %v", out, err)
		}
		address, err := k.ring.Open(out[0].Address, AddressContext+out[0].ID.String())
		if err != nil || string(address) != secretAddress {
			t.Errorf("address: %v", err)
		}
		sensitive, err := k.ring.Open(out[0].Sensitive, SensitiveContext+out[0].RequestID.String())
		if err != nil || !strings.Contains(string(sensitive), secretCode) {
			t.Errorf("sensitive: %v", err)
		}
		values, err := template.Join(out[0].Variables, sensitive)
		if err != nil || !strings.Contains(string(values.Canonical()), secretCode) {
			t.Errorf("values: %v", err)
		}
		rendered, err := k.versions[versionKey{"todo", "email", "en"}].compiled.Render(values)
		if err != nil || out[0].Template != k.versions[versionKey{"todo", "email", "en"}].id || rendered.HTML == "" {
			t.Errorf("template %d: %v", out[0].Template, err)
		}
	})
	t.Run("only queues with something to do are woken", func(t *testing.T) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if diff := cmp.Diff([]model.SourceID{k.cfg.Channels[1].Queue}, k.woken); diff != "" {
			t.Errorf("woken (-want +got):\n%s", diff)
		}
	})
}

func TestAC1ConcurrentRepeatsAreOneRequest(t *testing.T) {
	k := newKit(t, nil)
	const n = 200
	receipts, faults := make([]Receipt, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s := submission()
			if i%2 == 1 {
				s.Variables = json.RawMessage("{ \"code\":\"" + secretCode + "\",\n\"amount\" : 1.0, \"title\":\"Travel\"}")
				s.Priority, s.Tags, s.ExpiresAt = model.PriorityLow, []string{"other"}, time.Now().Add(time.Hour) // no part of the content
				s.Recipient.Addresses = map[string]string{"email": secretAddress, "phone": ""}
			}
			receipts[i], faults[i] = k.Accept(context.Background(), s)
		})
	}
	wg.Wait()
	fresh := 0
	for i, r := range receipts {
		if faults[i] != nil {
			t.Fatal(faults[i])
		}
		if !r.Duplicate {
			fresh++
		}
		r.Duplicate = receipts[0].Duplicate
		if diff := cmp.Diff(receipts[0], r); diff != "" {
			t.Fatalf("answer %d differs (-first +this):\n%s", i, diff)
		}
	}
	if fresh != 1 {
		t.Errorf("%d were answered as the first", fresh)
	}
	page, err := k.store.ListDeliveries(context.Background(), model.DeliveryListParams{Limit: 500})
	if err != nil || len(page.Items) != 2 {
		t.Errorf("%d deliveries, %v", len(page.Items), err)
	}
	if all, err := k.store.UserMessages(context.Background(), "u1008", 0, 10); err != nil || len(all) != 1 {
		t.Errorf("%d user messages, %v", len(all), err)
	}
	if got := testutil.ToFloat64(k.metrics.requests.WithLabelValues("todo", resultDuplicate)); got != n-1 {
		t.Errorf("%v duplicates are counted", got)
	}
}

func TestNC02OtherContentUnderAKnownKeyIsAConflict(t *testing.T) {
	k := newKit(t, nil)
	k.accept(t, submission())
	for name, c := range map[string]struct {
		change func(*Submission)
		want   []string
	}{
		"another value":           {func(s *Submission) { s.Variables = json.RawMessage(`{"title":"Travel","amount":2,"code":"493817"}`) }, []string{"variables"}},
		"another sensitive value": {func(s *Submission) { s.Variables = json.RawMessage(`{"title":"Travel","amount":1,"code":"493818"}`) }, []string{"variables"}},
		"a value less":            {func(s *Submission) { s.Variables = json.RawMessage(`{"title":"Travel","code":"493817"}`) }, []string{"variables"}},
		"another address":         {func(s *Submission) { s.Recipient.Addresses = map[string]string{"email": "a@b"} }, []string{"recipient"}},
		"another recipient":       {func(s *Submission) { s.Recipient.ID = "u1009" }, []string{"recipient"}},
		"another locale and type": {func(s *Submission) { s.Locale, s.BizType = "fr", "approval.done" }, []string{"biz_type", "locale"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := submission()
			c.change(&s)
			e := refused(t, k.Center, s)
			var fields []string
			for _, f := range e.Fields {
				fields = append(fields, f.Field)
			}
			if diff := cmp.Diff(c.want, fields); diff != "" || e.Code != Conflict {
				t.Errorf("%s (-want +got):\n%s", e.Code, diff)
			}
		})
	}
	if page, err := k.store.ListDeliveries(context.Background(), model.DeliveryListParams{Limit: 500}); err != nil || len(page.Items) != 2 {
		t.Errorf("%d deliveries, %v", len(page.Items), err)
	}
}

func TestARepeatIsRecognisedUnderAFormerKey(t *testing.T) {
	k := newKit(t, nil)
	cfg := k.cfg
	cfg.Registerer = nil

	old, young := config.GenerateKey("old"), config.GenerateKey("young")
	s := submission()
	s.IdempotencyKey = "under-old"
	under := k.center(t, withRing(cfg, ringOf(t, old)))
	kept, err := under.Accept(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	both := k.center(t, withRing(cfg, ringOf(t, young, old)))
	if again, err := both.Accept(context.Background(), s); err != nil || !again.Duplicate || again.ID != kept.ID {
		t.Errorf("under both keys: %+v, %v", again, err)
	}
	e := refused(t, k.center(t, withRing(cfg, ringOf(t, young))), s)
	if e.Code != Conflict || !strings.Contains(e.Detail, "key of the ring") {
		t.Errorf("without the former key: %v", e)
	}
}

func withRing(c Config, r Ring) Config { c.Ring = r; return c }

func ringOf(t *testing.T, keys ...string) *config.KeyRing {
	t.Helper()
	r, err := config.ParseKeys(strings.Join(keys, ","))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestALateRepeatStillGetsTheFirstAnswer(t *testing.T) {
	k := newKit(t, nil)
	first := k.accept(t, submission())
	s := submission()
	s.ExpiresAt = time.Now().Add(-time.Second)
	again := k.accept(t, s)
	if !again.Duplicate || again.ID != first.ID {
		t.Errorf("got %+v", again)
	}
	s.Recipient.ID = "u2"
	if e := refused(t, k.Center, s); e.Code != Invalid {
		t.Errorf("got %v", e)
	}
}

func TestNC02ALocaleWrittenOtherwiseIsTheSame(t *testing.T) {
	k := newKit(t, nil)
	s := submission()
	s.Locale = "fr-CA"
	first := k.accept(t, s)
	for _, locale := range []string{"fr-ca", "FR_CA"} {
		s.Locale = locale
		if again := k.accept(t, s); !again.Duplicate || again.ID != first.ID {
			t.Errorf("%s: got %+v", locale, again)
		}
	}
}

func TestChannelsWithoutAnAddress(t *testing.T) {
	k := newKit(t, nil)
	t.Run("one is skipped with its reason", func(t *testing.T) {
		s := submission()
		s.Priority = model.PriorityHigh
		got := k.accept(t, s)
		want := []model.Choice{{Channel: "text", Skipped: true, Reason: "the recipient has no phone"}}
		if diff := cmp.Diff(want, got.Skipped); diff != "" || len(got.Deliveries) != 1 || got.Status != StatusFailed {
			t.Errorf("%s (-want +got):\n%s", got.Status, diff)
		}
	})
	t.Run("all skipped is accepted, and has failed", func(t *testing.T) {
		s := submission()
		s.IdempotencyKey, s.BizType, s.Recipient.Addresses = "all-skipped", "mail.only", nil
		got := k.accept(t, s)
		if got.Status != StatusFailed || len(got.Deliveries) != 0 || len(got.Skipped) != 1 {
			t.Errorf("got %+v", got)
		}
		if v := k.request(t, got.ID); StatusOf(v) != StatusFailed {
			t.Errorf("it is %s", StatusOf(v))
		}
		again := k.accept(t, s)
		got.Duplicate = true
		if diff := cmp.Diff(got, again); diff != "" {
			t.Errorf("the first answer again (-want +got):\n%s", diff)
		}
	})
}

func TestWhatIsRefused(t *testing.T) {
	k := newKit(t, nil)
	long := strings.Repeat("x", 200)
	for name, c := range map[string]struct {
		change func(*Submission)
		want   []string // field: a piece of the problem
	}{
		"NC-02 no key":              {func(s *Submission) { s.IdempotencyKey = "" }, []string{"idempotency_key: is missing"}},
		"NC-02 a key that is long":  {func(s *Submission) { s.IdempotencyKey = long }, []string{"idempotency_key: is longer than 128"}},
		"nothing at all":            {func(s *Submission) { *s = Submission{} }, []string{"idempotency_key: is missing", "biz_type: is missing", "recipient.id: is missing", "template: is missing"}},
		"texts that are none":       {func(s *Submission) { s.BizType, s.Recipient.ID = "a\nb", "\xff" }, []string{"biz_type: holds", "recipient.id: holds"}},
		"words":                     {func(s *Submission) { s.Priority, s.Locale = "urgent", "not a locale" }, []string{"priority: is none of", "locale: is not"}},
		"tags":                      {func(s *Submission) { s.Tags = []string{"a", "", long} }, []string{"tags[1]: is missing", "tags[2]: is longer"}},
		"too many tags":             {func(s *Submission) { s.Tags = make([]string, 21) }, []string{"tags: has more than 20"}},
		"times":                     {func(s *Submission) { s.NotBefore = time.Now().Add(time.Hour); s.ExpiresAt = s.NotBefore }, []string{"expires_at: is not after"}},
		"a time that is past":       {func(s *Submission) { s.ExpiresAt = time.Now().Add(-time.Minute) }, []string{"expires_at: has passed"}},
		"times beyond all bounds":   {func(s *Submission) { s.NotBefore = time.Unix(1<<60, 0) }, []string{"not_before: is too far"}},
		"an unknown template":       {func(s *Submission) { s.Template = "nothing" }, []string{"template: is not the code"}},
		"AC-5 a missing variable":   {func(s *Submission) { s.Variables = json.RawMessage(`{}`) }, []string{"variables.title: "}},
		"AC-5 no variables":         {func(s *Submission) { s.Variables = nil }, []string{"variables.title: "}},
		"AC-5 a nil and a misspelt": {func(s *Submission) { s.Variables = json.RawMessage(`{"title":null,"amuont":"` + secretCode + `"}`) }, []string{"variables.amuont: ", "variables.title: "}},
		"variables that are none":   {func(s *Submission) { s.Variables = json.RawMessage(`[1]`) }, []string{"variables: "}},
		"variables that are long":   {func(s *Submission) { s.Variables = json.RawMessage(`{"title":"` + strings.Repeat("x", 70000) + `"}`) }, []string{"variables: is longer"}},
		"no address":                {func(s *Submission) { s.Recipient.Addresses["email"] = "nobody" }, []string{"recipient.email: is no address"}},
		"an address that is long":   {func(s *Submission) { s.Recipient.Addresses["email"] = strings.Repeat("x@", 200) }, []string{"recipient.email: is longer"}},
		"a header in an address":    {func(s *Submission) { s.Recipient.Addresses["email"] = "a@b\r\nBcc: x@y" }, []string{"recipient.email: holds"}},
		"kinds that are none":       {func(s *Submission) { s.Recipient.Addresses["E-Mail"] = "a@b" }, []string{"recipient: has a member"}},
		"no policy":                 {func(s *Submission) { s.BizType = "nobody" }, []string{": no policy holds"}},
		"a kind that is not there":  {func(s *Submission) { s.Template, s.Variables = "mailonly", nil }, []string{"template: has no part of the kind in_app, which channel in_app sends"}},
		"a header in a subject": {func(s *Submission) {
			s.Template, s.Variables, s.BizType = "mailonly", json.RawMessage(`{"title":"a\nBcc: x"}`), "mail.only"
		}, []string{"variables.title: "}},
	} {
		t.Run(name, func(t *testing.T) {
			s := submission()
			c.change(&s)
			e := refused(t, k.Center, s)
			var got []string
			for _, f := range e.Fields {
				got = append(got, f.Field+": "+f.Problem)
			}
			ok := len(got) == len(c.want) && e.Code == Invalid
			for i := range min(len(got), len(c.want)) {
				ok = ok && strings.HasPrefix(got[i], c.want[i])
			}
			if !ok {
				t.Errorf("%s: got %q, want %q", e.Code, got, c.want)
			}
		})
	}
	if page, err := k.store.ListDeliveries(context.Background(), model.DeliveryListParams{Limit: 9}); err != nil || len(page.Items) != 0 {
		t.Errorf("%d deliveries, %v", len(page.Items), err)
	}
}

func TestAPolicyThatCannotBeEvaluatedDecidesNothing(t *testing.T) {
	k := newKit(t, func(c *Config) { c.Policies[0].When = when(t, `recipient.id > 5`) })
	e := refused(t, k.Center, submission())
	if len(e.Fields) != 1 || !strings.HasPrefix(e.Fields[0].Problem, "policy 1 cannot be evaluated: ") {
		t.Errorf("got %v", e)
	}
}

func TestConditionsSeeWhichAddressesThereAre(t *testing.T) {
	k := newKit(t, func(c *Config) {
		c.Policies = []Policy{{When: when(t, `recipient.phone && "night" in tags`), Send: []string{"text"}}, {Send: []string{"in_app"}}}
	})
	s := submission()
	s.Tags = []string{"night"}
	if got := k.accept(t, s); len(got.Deliveries) != 1 || got.Deliveries[0].Channel != "in_app" || got.Deliveries[0].Reason != "policy 2" || got.Status != StatusSucceeded {
		t.Errorf("got %+v", got)
	}
	s.IdempotencyKey, s.Recipient.Addresses = "with-phone", map[string]string{"phone": "+4930123"}
	if got := k.accept(t, s); len(got.Deliveries) != 1 || got.Deliveries[0].Channel != "text" {
		t.Errorf("got %+v", got)
	}
}

// A condition may name a kind of address that no channel uses: there is none then.
func TestAKindThatNobodyHasIsFalse(t *testing.T) {
	for _, condition := range []string{`recipient.slack`, `recipient?.slack`, `recipient["slack"]`, `recipient.slack || recipient['wechat']`, `"recipient.x" == recipient.id || recipient.slack`} {
		k := newKit(t, func(c *Config) {
			c.Policies = []Policy{{When: when(t, condition), Send: []string{"in_app"}}, {Send: []string{"in_app", "mail"}}}
		})
		if got := k.accept(t, submission()); len(got.Deliveries) != 2 || got.Deliveries[0].Reason != "policy 2" {
			t.Errorf("%s: got %+v", condition, got)
		}
		s := submission()
		s.IdempotencyKey, s.Recipient.Addresses = "with", map[string]string{"slack": "U1"}
		if got := k.accept(t, s); len(got.Deliveries) != 1 || got.Deliveries[0].Reason != "policy 1" {
			t.Errorf("%s with it: got %+v", condition, got)
		}
	}
	if got := when(t, `recipient.a && (recipient["b"] || recipient.a) && recipient.id == "recipient.c" && biz_type == 'recipient["d"]'`).Kinds(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %v", got)
	}
}

func TestNC02ABareUUIDIsAcceptedCountedAndWarnedAbout(t *testing.T) {
	k := newKit(t, nil)
	for range 3 {
		s := submission()
		s.IdempotencyKey = uuid.NewString()
		k.accept(t, s)
	}
	if got := testutil.ToFloat64(k.metrics.bareKeys); got != 3 {
		t.Errorf("%v are counted", got)
	}
	if got := strings.Count(k.log.String(), "bare UUID"); got != 1 {
		t.Errorf("it is warned %d times:\n%s", got, k.log)
	}
}

func TestAPushedIssueBecomesANotification(t *testing.T) {
	dev := config.Dev("127.0.0.1:0", t.TempDir()).Sources[config.DevGitHub]
	push := expression.Input{Body: []byte(`{"action":"opened","issue":{"id":7,"number":42,"title":"It <breaks>","html_url":"https://github.com/o/r/issues/42",
		"updated_at":"2026-01-01T00:00:00Z","user":{"login":"octo"},"labels":[{"name":"bug"}]},"repository":{"full_name":"o/r"},"sender":{"login":"cat"}}`)}
	eval := func(source string) string {
		t.Helper()
		e, err := expression.CompileValue(source)
		if err != nil {
			t.Fatal(err)
		}
		v, err := e.Eval(push)
		if err != nil {
			t.Fatal(err)
		}
		return string(v)
	}
	text := func(source string) (s string) {
		t.Helper()
		if err := json.Unmarshal([]byte(eval(source)), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if accept, err := expression.Compile(dev.Accept); err != nil {
		t.Fatal(err)
	} else if kept, err := accept.Eval(push); err != nil || !kept {
		t.Fatalf("not kept: %v", err)
	}
	set, found := template.Load(samples.FS())
	if set == nil {
		t.Fatal(found)
	}
	k := newKit(t, func(c *Config) { c.Templates = set })
	n := dev.Handler.Notify
	var variables []string
	for name, source := range n.Variables {
		variables = append(variables, fmt.Sprintf("%q:%s", name, eval(source)))
	}
	got := k.accept(t, Submission{
		IdempotencyKey: text(n.IdempotencyKey), BizType: text(n.BizType), Template: text(n.Template),
		Recipient: Recipient{ID: text(n.Recipient["id"]), Addresses: map[string]string{"email": text(n.Recipient["email"])}},
		Variables: json.RawMessage("{" + strings.Join(variables, ",") + "}"),
	})
	if len(got.Deliveries) != 2 {
		t.Errorf("got %+v", got)
	}
}

func FuzzAccept(f *testing.F) {
	f.Add("key", "biz", "todo", "u1", "email", "a@b", `{"title":"x"}`, "high", "fr-CA", "tag")
	f.Add("", "a\x00b", "mailonly", "\xff", "E", "x\r\n", `{"title":{{.}}}`, "HIGH", "-", "")
	f.Add("k", "nobody", "todo", "u", "phone", "+1", `{"title":"x","amount":1e400,"code":"\ud800"}`, "", "", "x")
	k := newFake(f, &fakeStore{}, nil)
	k.Start()
	f.Cleanup(k.Stop)
	f.Fuzz(func(t *testing.T, key, biz, tmpl, id, kind, address, variables, priority, locale, tag string) {
		_, err := k.Accept(context.Background(), Submission{
			IdempotencyKey: key, BizType: biz, Template: tmpl, Recipient: Recipient{ID: id, Addresses: map[string]string{kind: address}},
			Variables: json.RawMessage(variables), Priority: model.Priority(priority), Locale: locale, Tags: []string{tag},
		})
		if err == nil {
			return
		}
		e, ok := err.(*Error) //nolint:errorlint // the contract: every error is one
		if !ok || e.Code == Unavailable {
			t.Errorf("got %T %v", err, err)
		}
		if strings.ContainsAny(err.Error(), "\n\r\x00") {
			t.Errorf("not fit to be shown: %q", err)
		}
	})
}
