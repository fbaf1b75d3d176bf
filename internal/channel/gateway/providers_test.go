package gateway

import (
	"testing"

	"github.com/posthouse/posthouse/internal/model"
)

type when struct {
	expression string
	class      model.Class
}

// providers are rules as users write them.
var providers = map[string][]when{
	"twilio": {
		{`status == 429 || body.code in [20429, 14107]`, model.ClassRateLimited},
		{`status == 401 || body.code in [20003, 20005]`, model.ClassAuth},
		{`status == 500`, model.ClassUncertain},
		{`status > 500`, model.ClassTransient},
	},
	"slack": {
		{`status == 429 || body.error in ["ratelimited", "rate_limited", "message_limit_exceeded"]`, model.ClassRateLimited},
		{`status >= 500`, model.ClassTransient},
		{`body.error in ["invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive", "missing_scope", "no_permission", "org_login_required", "ekm_access_denied", "not_allowed_token_type"]`, model.ClassAuth},
		{`body.error in ["internal_error", "fatal_error", "request_timeout"]`, model.ClassUncertain},
		{`body.error in ["service_unavailable", "team_added_to_org"]`, model.ClassTransient},
		{`body.ok == false`, model.ClassPermanent},
	},
	"dingtalk": {
		{`body.errcode in [130101, 130102, 90018, 88, 900001]`, model.ClassRateLimited},
		{`body.errcode in [-1, 500]`, model.ClassTransient},
		{`body.errcode in [400101, 300001, 310000, 40014, 42001, 40001]`, model.ClassAuth},
		{`body.errcode != 0`, model.ClassPermanent},
	},
}

func rulesOf(t *testing.T, provider string) []Rule {
	t.Helper()
	var rules []Rule
	for _, w := range providers[provider] {
		r, err := CompileRule(w.expression, w.class)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	return rules
}

func TestProvidersAsTheyAreConfigured(t *testing.T) {
	for _, c := range []struct {
		provider string
		status   int
		body     string
		class    model.Class
		code     string
	}{
		{"twilio", 201, `{"sid": "SM1", "status": "queued", "error_code": null}`, model.ClassSuccess, ""},
		{"twilio", 401, `{"code": 20003, "status": 401}`, model.ClassAuth, "20003"},
		{"twilio", 429, `{"code": 20429, "status": 429}`, model.ClassRateLimited, "20429"},
		{"twilio", 500, `{"code": 20500, "status": 500}`, model.ClassUncertain, "20500"},
		{"twilio", 503, `<html>`, model.ClassTransient, "503"},
		{"twilio", 404, `{"code": 20404}`, model.ClassPermanent, "20404"},
		{"twilio", 400, `{"code": 21608}`, model.ClassPermanent, "21608"},
		{"twilio", 400, `{"code": 21602}`, model.ClassPermanent, "21602"},
		{"slack", 200, `{"ok": true, "warning": "missing_charset"}`, model.ClassSuccess, ""},
		{"slack", 429, ``, model.ClassRateLimited, "429"},
		{"slack", 200, `{"ok": false, "error": "ratelimited"}`, model.ClassRateLimited, "ratelimited"},
		{"slack", 200, `{"ok": false, "error": "invalid_auth"}`, model.ClassAuth, "invalid_auth"},
		{"slack", 200, `{"ok": false, "error": "missing_scope"}`, model.ClassAuth, "missing_scope"},
		{"slack", 200, `{"ok": false, "error": "no_text"}`, model.ClassPermanent, "no_text"},
		{"slack", 200, `{"ok": false, "error": "channel_not_found"}`, model.ClassPermanent, "channel_not_found"},
		{"slack", 200, `{"ok": false, "error": "internal_error"}`, model.ClassUncertain, "internal_error"},
		{"slack", 503, `<html>`, model.ClassTransient, "503"},
		{"slack", 200, `{"ok": fal`, model.ClassUncertain, "unreadable"},
		{"dingtalk", 200, `{"errcode": 0, "errmsg": "ok"}`, model.ClassSuccess, ""},
		{"dingtalk", 200, `{"errcode": 130101, "errmsg": "send too fast"}`, model.ClassRateLimited, "130101"},
		{"dingtalk", 200, `{"errcode": 400101}`, model.ClassAuth, "400101"},
		{"dingtalk", 200, `{"errcode":`, model.ClassUncertain, "unreadable"},
		{"dingtalk", 200, `{"errcode": 300005}`, model.ClassPermanent, "300005"},
		{"dingtalk", 200, `{"errcode": -1}`, model.ClassTransient, "-1"},
	} {
		t.Run("NC-11 "+c.provider+" "+c.body, func(t *testing.T) {
			cfg := sms(answering(t, c.status, nil, c.body))
			cfg.Classify = rulesOf(t, c.provider)
			if r := newSender(t, cfg).Send(t.Context(), delivery); r.Class != c.class || r.Code != c.code {
				t.Errorf("got %+v, want %s %s", r, c.class, c.code)
			}
		})
	}
}

func TestTheProvidersID(t *testing.T) {
	for _, c := range []struct {
		id, body, want string
	}{
		{`body.sid`, `{"sid": "SM0f1e"}`, "SM0f1e"},
		{`body.result.message_id`, `{"result": {"message_id": 42}}`, "42"},
		{`headers["x-message-id"]`, ``, "H-1"},
		{`body.sid`, `{}`, ""},
		{`body`, `{"sid": 1}`, ""},
		{`body?.sid`, `{}`, ""},
		{`body.sid`, `{"sid": null}`, ""},
	} {
		cfg := sms(answering(t, 200, map[string]string{"X-Message-Id": "H-1"}, c.body))
		var err error
		if cfg.ProviderID, cfg.UsesBody, err = CompileProviderID(c.id); err != nil {
			t.Fatal(err)
		}
		if r := newSender(t, cfg).Send(t.Context(), delivery); r.Class != model.ClassSuccess || r.ProviderID != c.want {
			t.Errorf("NC-05: %s of %s: got %+v", c.id, c.body, r)
		}
	}
}
