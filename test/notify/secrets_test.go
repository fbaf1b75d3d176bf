package notify

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"

	"github.com/posthouse/posthouse/client"
	"github.com/posthouse/posthouse/test/internal/running"
)

const (
	code  = "493817"
	title = "Herbstlaub-4411" // no secret, and yet nothing that logs and metrics may tell
)

// secret is what must not be found.
type secret struct {
	name string
	form *regexp.Regexp
}

// secrets are all of them, also as they are written elsewhere.
func secrets() (all []secret) {
	add := func(name, text string) { all = append(all, secret{name, regexp.MustCompile(regexp.QuoteMeta(text))}) }
	// Six digits stand by chance in times and ids.
	all = append(all, secret{"the code", regexp.MustCompile(`(^|[^0-9A-Za-z.-])` + code + `($|[^0-9A-Za-z-])`)})
	for _, one := range [][2]string{
		{"the address", "zhang.wei.7731"}, {"the phone number", "13800138777"}, {"the SMTP password", running.MailPassword}, {"the token", running.Token},
	} {
		add(one[0], one[1])
		add(one[0]+" in hexadecimal", hex.EncodeToString([]byte(one[1])))
	}
	add("the address, escaped", url.QueryEscape(address))
	add("what logs in", base64.StdEncoding.EncodeToString([]byte("\x00"+running.MailUser+"\x00"+running.MailPassword)))
	return all
}

// leaks names the secrets that stand in a text.
func leaks(text []byte, in []secret) (found []string) {
	for _, s := range in {
		if at := s.form.FindIndex(text); at != nil {
			around := text[max(0, at[0]-60):min(len(text), at[1]+30)]
			found = append(found, fmt.Sprintf("%s: …%s…", s.name, around))
		}
	}
	return found
}

// record keeps all that the API answered.
type record struct {
	t *testing.T
	s *running.Server

	mu      sync.Mutex
	answers []string
}

func (r *record) say(method, path, body string) (status int, answer []byte) {
	r.t.Helper()
	var err error
	if method == http.MethodGet {
		status, answer, err = get(r.t.Context(), r.s, path)
	} else {
		status, answer, err = post(r.t.Context(), r.s, path, body)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, fmt.Sprintf("%s %s: %d %s", method, path, status, answer))
	return status, answer
}

// expect says it and wants that status.
func (r *record) expect(want int, path, body string) (answer []byte) {
	r.t.Helper()
	status, answer := r.say(http.MethodPost, path, body)
	if status != want {
		r.t.Errorf("%s was answered %d, want %d: %s", path, status, want, answer)
	}
	return answer
}

// request writes one with all that is secret.
func request(key, bizType, variables string) string {
	return fmt.Sprintf(`{"idempotency_key":%q,"biz_type":%q,"template":"todo","recipient":{"id":"u1008","email":%q,"phone":%q},"variables":%s}`,
		key, bizType, address, phone, variables)
}

const goodVariables = `{"title":"` + title + `","code":"` + code + `"}`

func (r *record) accepted(key, bizType string) (receipt client.Receipt) {
	r.t.Helper()
	answer := r.expect(http.StatusAccepted, "/v1/notifications", request(key, bizType, goodVariables))
	if err := json.Unmarshal(answer, &receipt); err != nil {
		r.t.Fatal(err)
	}
	return receipt
}

// echo is what a provider answers that repeats all it knows.
func echo(c running.Call, class string) string {
	all := fmt.Sprintf("%s for %s, token %s, Bearer %s, said %s", class, c.To, running.Token, running.Token, c.Text)
	said := c.To
	if strings.Contains(c.Text, code) { // otherwise it does not know it
		said = code
	}
	return fmt.Sprintf(`{"sid":%q,"code":%q,"error":{"code":%q,"message":%q},"message":%q,"to":%q,"errcode":%q}`, c.To, said, running.Token, all, all, c.To, c.To)
}

// Failure paths, each a notification's business type: what the provider does.
var troubles = map[string]func(c running.Call) running.Reply{
	"text.400": func(c running.Call) running.Reply { return running.Reply{Status: 400, Body: echo(c, "bad")} },
	"text.500": func(c running.Call) running.Reply { return running.Reply{Status: 500, Body: echo(c, "broken")} },
	"text.302": func(c running.Call) running.Reply { return running.Reply{Status: 302, Body: echo(c, "moved")} },
	"text.200": func(c running.Call) running.Reply { return running.Reply{Body: echo(c, "fine")} },
	"text.403": func(running.Call) running.Reply {
		return running.Reply{Status: 403, Body: `{"code":"` + running.Token + `"}`}
	},
	"text.bearer": func(running.Call) running.Reply {
		return running.Reply{Status: 403, Body: `{"code":"Bearer-` + running.Token + `"}`}
	},
	"text.id":      func(running.Call) running.Reply { return running.Reply{Body: `{"sid":"` + running.Token + `"}`} },
	"text.garbled": func(c running.Call) running.Reply { return running.Reply{Body: c.Text + c.To + running.Token} },
	"text.drop":    func(running.Call) running.Reply { return running.Reply{Drop: true, Accepted: true} },
}

func smtpEcho(status int, e smtp.EnhancedCode, to string) error {
	return &smtp.SMTPError{Code: status, EnhancedCode: e, Message: fmt.Sprintf("<%s> %s %s %s %s", to, code, running.MailPassword, title,
		base64.StdEncoding.EncodeToString([]byte("\x00"+running.MailUser+"\x00"+running.MailPassword)))}
}

// Nothing that a notification must not tell is told, whatever goes wrong.
func TestNothingSecretIsTold(t *testing.T) {
	t.Parallel()
	running.OnEachEngine(t, "AC-7 NC-07", engines, func(t *testing.T, e running.Engine) {
		mail := running.NewMailServer(t, running.MailRules{})
		var mu sync.Mutex
		trouble := func(running.Call) running.Reply { return running.Reply{} }
		provider := running.NewProvider(t, func(_ context.Context, c running.Call) running.Reply {
			mu.Lock()
			defer mu.Unlock()
			return trouble(c)
		})
		notify := running.NewNotify(t, []running.Channel{
			{Name: "in_app"}, {Name: "mail", Mail: mail, OnUncertain: "hold", Breaker: 1000}, {Name: "text", Provider: provider.URL, OnUncertain: "hold", Breaker: 1000},
		}, running.Policy{BizType: "mail", Send: []string{"mail"}}, running.Policy{BizType: "all", Send: []string{"in_app", "mail", "text"}}, running.Policy{Send: []string{"text"}})
		notify.Retry = "{base: 20ms, cap: 40ms, jitter: 0s, max_attempts: 2}"
		f := launch(t, e, 1, notify)
		s := f.a()
		r := &record{t: t, s: s}
		var ids, deliveries []string
		follow := func(receipt client.Receipt, want ...client.DeliveryStatus) {
			t.Helper()
			ids = append(ids, receipt.ID)
			for _, d := range receipt.Deliveries {
				deliveries = append(deliveries, d.ID)
				f.await(s, d.ID, want...)
			}
		}
		refuseAll(t, r)

		// While the deliveries wait, what is kept of them is sealed.
		for _, channel := range []string{"mail", "text"} {
			r.expect(http.StatusOK, "/v1/channels/"+channel+"/pause", `{"reason":"for a look"}`)
		}
		waiting := r.accepted("waiting", "all")
		dumpHolds(t, f, "while it waits", 1)
		r.expect(http.StatusConflict, "/v1/notifications", request("waiting", "all", `{"title":"`+title+`","code":"`+code+`1"}`))
		cancelled := r.accepted("cancelled", "all")
		r.expect(http.StatusOK, "/v1/notifications/"+cancelled.ID+"/cancel", `{"reason":"void"}`)
		for _, channel := range []string{"mail", "text"} {
			r.expect(http.StatusOK, "/v1/channels/"+channel+"/resume", `{"reason":"go on"}`)
		}
		follow(waiting, client.DeliverySucceeded)
		ids = append(ids, cancelled.ID)

		ends := map[string]client.DeliveryStatus{
			"text.400": client.DeliveryFailed, "text.500": client.DeliveryDead, "text.302": client.DeliveryFailed, "text.200": client.DeliverySucceeded,
			"text.403": client.DeliveryFailed, "text.bearer": client.DeliveryFailed, "text.id": client.DeliverySucceeded,
			"text.garbled": client.DeliveryUncertain, "text.drop": client.DeliveryUncertain,
		}
		for name, does := range troubles {
			mu.Lock()
			trouble = does
			mu.Unlock()
			follow(r.accepted(name, name), ends[name])
			r.say(http.MethodPost, "/v1/channels/text/test", fmt.Sprintf(`{"address":%q}`, phone))
		}
		for name, of := range map[string]struct {
			rules running.MailRules
			want  client.DeliveryStatus
		}{
			"rcpt 5xx": {running.MailRules{Rcpt: func(to string) error { return smtpEcho(550, smtp.EnhancedCode{5, 1, 1}, to) }}, client.DeliveryFailed},
			"rcpt 4xx": {running.MailRules{Rcpt: func(to string) error { return smtpEcho(452, smtp.EnhancedCode{4, 3, 1}, to) }}, client.DeliveryDead},
			"data 5xx": {running.MailRules{Accepted: func(l running.Letter) error { return smtpEcho(554, smtp.EnhancedCode{5, 6, 0}, l.To) }}, client.DeliveryFailed},
			"drop":     {running.MailRules{Accepted: func(running.Letter) error { return running.ErrDrop }}, client.DeliveryUncertain},
			"log-in":   {running.MailRules{Auth: func(string, string) error { return smtpEcho(454, smtp.EnhancedCode{4, 7, 0}, address) }}, client.DeliveryDead},
		} {
			mail.Rule(of.rules)
			mail.HangUp()
			follow(r.accepted(name, "mail"), of.want)
			r.say(http.MethodPost, "/v1/channels/mail/test", fmt.Sprintf(`{"address":%q}`, address))
		}
		// The password is refused for good, with an echo of it.
		mail.Rule(running.MailRules{Auth: func(string, string) error { return smtpEcho(535, smtp.EnhancedCode{5, 7, 8}, address) }})
		mail.HangUp()
		locked := r.accepted("locked out", "mail")
		f.awaitChannel(s, "mail", "the channel is paused", func(c client.Channel) bool { return c.State == "paused" })
		r.say(http.MethodPost, "/v1/channels/mail/test", fmt.Sprintf(`{"address":%q}`, address))
		crawl(r, append(ids, locked.ID), deliveries)
		dumpHolds(t, f, "before the end", -1)

		mail.Rule(running.MailRules{})
		mu.Lock()
		trouble = func(c running.Call) running.Reply { return running.Reply{Body: echo(c, "fine")} }
		mu.Unlock()
		r.expect(http.StatusOK, "/v1/channels/mail/resume", `{"reason":"mended"}`)
		follow(locked, client.DeliverySucceeded)
		settle(t, f, r, deliveries)

		t.Run("when the last delivery is final nothing sensitive is left", func(t *testing.T) {
			running.Eventually(t, patience, "sensitive values are erased", func() error {
				if n := f.count("SELECT count(*) FROM posthouse_secret"); n != 0 {
					return fmt.Errorf("%d are there", n)
				}
				return nil
			})
			if _, answer := r.say(http.MethodGet, "/v1/notifications/"+waiting.ID, ""); !bytes.Contains(answer, []byte(`"sensitive":"erased"`)) {
				t.Errorf("the notification does not say so: %s", answer)
			}
			if _, answer := r.say(http.MethodPost, "/v1/deliveries/"+deliveries[1]+"/replay", `{"reason":"again","force":true}`); !bytes.Contains(answer, []byte("eras")) {
				t.Errorf("a replay does not say that there is nothing to send: %s", answer)
			}
			dumpHolds(t, f, "after the erasure", 0)
		})
		crawl(r, append(ids, locked.ID), deliveries)
		_, metrics := r.say(http.MethodGet, "/metrics", "")
		s.Terminate()
		log, err := os.ReadFile(s.LogPath)
		if err != nil {
			t.Fatal(err)
		}
		all := secrets()
		for _, text := range r.answers {
			for _, leak := range leaks([]byte(text), all) {
				t.Errorf("an answer of the API, %s, tells %s", text[:min(len(text), 60)], leak)
			}
		}
		outside := append(secrets(), secret{"the title", regexp.MustCompile(title)})
		for name, text := range map[string][]byte{"the log": log, "the metrics": metrics} {
			for _, leak := range leaks(text, outside) {
				t.Errorf("%s tells %s", name, leak)
			}
		}
		if len(log) < 1000 || len(metrics) < 1000 || len(r.answers) < 50 {
			t.Errorf("%d bytes of log, %d of metrics and %d answers: too little to judge by", len(log), len(metrics), len(r.answers))
		}
		t.Logf("looked through %d answers, %d bytes of log and %d of metrics", len(r.answers), len(log), len(metrics))
		noFaults(t, provider)
	})
}

// refuseAll makes requests that are refused.
func refuseAll(t *testing.T, r *record) {
	t.Helper()
	const invalid = http.StatusUnprocessableEntity
	for name, body := range map[string]string{
		"missing":       request("r1", "all", `{"code":"`+code+`"}`),
		"null":          request("r2", "all", `{"title":null,"code":"`+code+`"}`),
		"misspelt":      request("r3", "all", `{"title":"`+title+`","cod":"`+code+`"}`),
		"wrong type":    request("r4", "all", `{"title":"`+title+`","code":`+code+`}`),
		"too long":      request("r5", "all", `{"title":"`+strings.Repeat(title, 20)+`","code":"`+code+`"}`),
		"a header":      request("r6", "all", `{"title":"a\r\nBcc: `+address+`","code":"`+code+`"}`),
		"bad address":   strings.Replace(request("r7", "all", goodVariables), "@example.com", "@exa mple", 1),
		"bad phone":     strings.Replace(request("r8", "all", goodVariables), phone, phone+"x\\n", 1),
		"no template":   strings.Replace(request("r9", "all", goodVariables), `"todo"`, `"tod"`, 1),
		"unknown field": strings.Replace(request("r10", "all", goodVariables), `"variables"`, `"`+code+`":"`+address+`","variables"`, 1),
		"not a string":  strings.Replace(request("r11", "all", goodVariables), `"`+phone+`"`, `[13800138777]`, 1),
		"twice":         strings.Replace(request("r12", "all", goodVariables), `"variables"`, `"variables":{"code":"`+code+`"},"variables"`, 1),
	} {
		status, answer := r.say(http.MethodPost, "/v1/notifications", body)
		if status != invalid && status != http.StatusBadRequest {
			t.Errorf("%s: answered %d: %s", name, status, answer)
		}
		r.say(http.MethodPost, "/v1/notifications:batch", `{"notifications":[`+body+`]}`)
	}
	broken := request("r13", "all", goodVariables)
	r.say(http.MethodPost, "/v1/notifications", broken[:len(broken)-3])
	r.say(http.MethodPost, "/v1/notifications:batch", `{"notifications":`+broken+`}`)
	r.say(http.MethodPost, "/v1/channels/mail/test", `{"address":"zhang.wei.7731@exa mple"}`)
}

// crawl asks for all that can be asked for.
func crawl(r *record, notifications, deliveries []string) {
	for _, id := range notifications {
		r.say(http.MethodGet, "/v1/notifications/"+id, "")
	}
	for _, id := range deliveries {
		r.say(http.MethodGet, "/v1/deliveries/"+id, "")
	}
	for _, path := range []string{"/v1/deliveries?limit=500", "/v1/channels", "/v1/audit", "/v1/users/u1008/messages", "/v1/inbox/sources", "/v1/inbox/stats", "/v1/inbox/messages", "/readyz", "/healthz"} {
		r.say(http.MethodGet, path, "")
	}
}

// settle brings every delivery to its end.
func settle(t *testing.T, f *fleet, r *record, deliveries []string) {
	t.Helper()
	for i, id := range deliveries {
		switch d := f.detail(f.a(), id); d.Status {
		case client.DeliveryUncertain:
			outcome := []string{"sent", "not_sent"}[i%2]
			r.expect(http.StatusOK, "/v1/deliveries/"+id+"/resolve", `{"outcome":"`+outcome+`","reason":"asked"}`)
			f.await(f.a(), id, client.DeliverySucceeded)
		case client.DeliveryDead, client.DeliveryFailed:
			r.say(http.MethodPost, "/v1/deliveries/"+id+"/replay", `{"reason":"mended"}`)
		default:
		}
	}
	for _, id := range deliveries {
		f.await(f.a(), id, client.DeliverySucceeded, client.DeliveryFailed, client.DeliveryDead, client.DeliveryCancelled)
	}
}

// dumpHolds looks through every value of every table. sealed is how many
// requests' sensitive values are kept; negative: some.
func dumpHolds(t *testing.T, f *fleet, when string, sealed int) {
	t.Helper()
	cells, err := running.Dump(f.cfg.Store)
	if err != nil {
		t.Fatal(err)
	}
	all := secrets()
	kept := 0
	for _, c := range cells {
		if c.Table == "posthouse_secret" && c.Column == "sealed" {
			kept++
		}
		if c.Number {
			continue
		}
		for _, leak := range leaks(c.Value, all) {
			t.Errorf("%s: %s.%s holds %s", when, c.Table, c.Column, leak)
		}
	}
	if sealed >= 0 && kept != sealed || sealed < 0 && kept == 0 {
		t.Errorf("%s: the sensitive values of %d requests are kept, want %d", when, kept, sealed)
	}
	if len(cells) < 50 {
		t.Errorf("%s: a dump of %d values is none", when, len(cells))
	}
	if path, ok := strings.CutPrefix(f.cfg.Store, "sqlite:"); ok {
		for _, name := range []string{path, path + "-wal"} {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Errorf("%s: %v", when, err)
			}
			for _, leak := range leaks(raw, all) {
				t.Errorf("%s: the bytes of the file hold %q", when, leak)
			}
		}
	}
}
