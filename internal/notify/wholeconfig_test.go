package notify

import (
	"testing"

	"github.com/posthouse/posthouse/internal/channel/gateway"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/model"
)

// A file with a channel of each type, with the compilers that the product hands in.
const wholeConfig = `
store: sqlite:./posthouse.db
sources: {demo: {verify: {kind: none}}}
templates: ./templates            # a folder for each
channels:
  in_app: {}
  mail:   {type: email, smtp: {host: "${MAIL_HOST}", port: 587, username: "${MAIL_USERNAME}", password: "${MAIL_PASSWORD}", connect_timeout: 3s, read_timeout: 5s}, from: "Approvals <no-reply@example.com>",
           rate: 50/s, concurrency: 8, on_uncertain: resend}
  text:   {type: http, request: {method: POST, url: "https://sms.example.com/send", headers: {Authorization: "Bearer ${SMS_TOKEN}", Idempotency-Key: "{{.delivery.id}}"}, body: '{"to": {{json .address}}, "text": {{json .body}}}'},
           classify: [{when: status == 429, class: rate_limited}, {when: status == 401 || status == 403, class: auth}, {when: body.code == "ILLEGAL_NUMBER", class: permanent}, {when: status >= 500, class: transient}],
           provider_id: body.sid, address: phone, on_uncertain: hold}
policies:                         # first match decides
  - when: biz_type == "device.alarm" && priority == "high"
    send: [in_app, text]
    success: {all: [in_app], any: [text]}
  - send: [in_app, mail]
retry: {base: 1s, cap: 300s, jitter: 5s, max_attempts: 6}
worker: {batch_size: 50}          # the lease is the instance's
`

func TestAConfigurationWithAChannelOfEachType(t *testing.T) {
	keys := config.GenerateKey("k1")
	compilers := config.ParseParams{
		Data: []byte(wholeConfig), File: "posthouse.yaml",
		LookupEnv: func(name string) (string, bool) {
			if name == config.KeysVariable {
				return keys, true
			}
			return "mail.example.com", true
		},
		CheckExpression:  func(s string) error { _, err := expression.Compile(s); return err },
		CheckKey:         func(s string) error { _, err := expression.CompileKey(s); return err },
		CheckValue:       func(s string) error { _, err := expression.CompileValue(s); return err },
		CheckPolicy:      func(s string) error { _, err := CompileWhen(s); return err },
		CheckAnswer:      func(s string) error { _, err := gateway.CompileRule(s, model.ClassAuth); return err },
		CheckAnswerValue: func(s string) error { _, _, err := gateway.CompileProviderID(s); return err },
	}
	c, problems, warnings := config.Parse(compilers)
	for _, p := range append(problems, warnings...) {
		t.Error(p)
	}
	if c == nil {
		t.FailNow()
	}
	text := c.Channels["text"]
	headers := map[string]string{}
	for name, value := range text.Request.Headers {
		headers[name] = value.Reveal()
	}
	sender, err := gateway.New(gateway.Config{Method: text.Request.Method, URL: text.Request.URL.Reveal(), Headers: headers, Body: text.Request.Body.Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.Close(); err != nil {
		t.Error(err)
	}
	if got := c.Policies[0].Success; len(got.All) != 1 || len(got.Any) != 1 {
		t.Errorf("success %+v", got)
	}
}
