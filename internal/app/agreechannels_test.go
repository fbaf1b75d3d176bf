package app

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/channel/gateway"
	"github.com/posthouse/posthouse/internal/config"
)

// As TestCheckAndServeAgree, for channels.
func TestCheckAndServeAgreeOnChannels(t *testing.T) {
	const (
		smtp    = "from: a@example.com, smtp: {host: mail.example.com"
		request = "type: http, request: {url: 'https://sms.example.com/send'"
	)
	for channel, fault := range map[string]string{
		"type: email, " + smtp + "}":                                                                         "",
		"type: email, " + smtp + ", connect_timeout: 5m, read_timeout: 10m}":                                 "",
		"type: email, " + smtp + ", connect_timeout: 100ms, read_timeout: 100ms}":                            "",
		"type: email, " + smtp + "}, breaker: {failures: 1000, cooldown: 24h}, concurrency: 1000, rate: 1/h": "",
		"type: email, " + smtp + "}, breaker: {failures: 1, cooldown: 100ms}, concurrency: 1":                "",
		"type: email, " + smtp + "}, retry: {base: 1h, cap: 24h, jitter: 1h, max_attempts: 100}":             "",
		"type: email, " + smtp + "}, retry: {base: 10ms, cap: 10ms, jitter: 0s, max_attempts: 1}":            "",
		request + "}": "",
		request + ", connect_timeout: 5m, read_timeout: 10m}":                                                                "",
		request + ", body: '   '}":                                                                                           "",
		request + ", method: GET}":                                                                                           "",
		request + ", body: '{\"at\": {{.now_ms}}}'}":                                                                         "",
		request + ", headers: {X-Sig: '{{hmac_sha256_base64 \"${S}\" .body}}'}}":                                             "",
		request + ", body: '{\"to\": \"{{.address}}\"}'}":                                                                    "request.body",
		request + ", body: '{\"to\": \"{{json .address}}\"}'}":                                                               "request.body",
		request + ", body: '{{\"{\"}}\"to\": \"{{.address}}\"}'}":                                                            "request.body",
		request + ", body: '{\"to\": {{json .whereto}}}'}":                                                                   "request.body",
		request + ", body: '{{.to'}":                                                                                         "request.body",
		request + ", body: 'to={{.address}}', headers: {content-type: application/x-www-form-urlencoded}}":                   "request.body",
		request + ", body: '{\"a\": 1}', headers: {Content-Type: '{{.body}}'}}":                                              "request.headers.Content-Type",
		request + ", headers: {X-A: '{{.whereto}}'}}":                                                                        "request.headers.X-A",
		request + ", headers: {X-A: a, x-a: b}}":                                                                             "request.headers.x-a",
		"type: http, request: {url: 'https://sms.example.com/{{if .subject}}x{{end}}'}":                                      "request.url",
		"type: http, request: {url: 'https://{{.address}}/'}":                                                                "request.url",
		"type: http, request: {url: 'https://sms.example.com/../{{.address}}'}":                                              "request.url",
		"type: http, request: {url: 'https://sms.example.com/{{.whereto}}'}":                                                 "request.url",
		request + "}, classify: [{when: 'status ==', class: auth}]":                                                          "classify[0].when",
		request + "}, provider_id: 'body.'":                                                                                  "provider_id",
		request + ", headers: {X-Api: 'Basic dXNlcjpwYXNzd29yZA=='}}":                                                        "request.headers.X-Api",
		request + ", headers: {Authorization: 'Bearer literal$${S}'}}":                                                       "request.headers.Authorization",
		request + ", body: '{\"appkey\": \"0123\"}'}":                                                                        "request.body",
		"type: http, request: {url: 'https://example.com/webhookb2/0123456789abcdef0123456789abcdef/IncomingWebhook/01234'}": "request.url",
	} {
		t.Run(channel, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"template.yaml": "default_locale: en\n", "text.en.txt": "x", "email.en.subject.txt": "x", "email.en.html": "x"} {
				if err := os.MkdirAll(filepath.Join(dir, "templates", "todo"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "templates", "todo", name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			p := ParseParams("posthouse.yaml")
			p.Data = []byte("store: 'sqlite:" + filepath.Join(dir, "ph.db") + "'\nlock: {lease: 1s}\ndrain: 0s\nsources: {a: {verify: {kind: none}}}\n" +
				"templates: " + filepath.Join(dir, "templates") + "\npolicies: [{when: recipient.slack, send: [c]}, {send: [c]}]\nchannels:\n  c: {" + channel + "}\n")
			p.LookupEnv = func(name string) (string, bool) {
				return map[string]string{"S": "secret", config.KeysVariable: config.GenerateKey("k")}[name], true
			}
			cfg, problems, warnings := config.Parse(p)
			if fault != "" {
				if len(problems) != 1 || problems[0].Path != "channels.c."+fault || problems[0].Line != 8 {
					t.Errorf("the check says %v", problems)
				}
				return
			}
			if len(problems) > 0 || len(warnings) != 1 || !strings.HasSuffix(warnings[0].Message, "recipient.slack") {
				t.Fatalf("the check says %v, and warns %v", problems, warnings)
			}
			store, err := OpenStore(t.Context(), StoreParams{URL: cfg.Store.URL.Reveal(), Consumer: true})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			params := Params{Config: cfg, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Registry: prometheus.NewRegistry()}
			if err := prepare(t.Context(), store, params); err != nil {
				t.Fatal(err)
			}
			told, err := openNotifications(t.Context(), store, params)
			if err != nil {
				t.Fatalf("the check passes what does not start: %v", err)
			}
			defer told.stop()
			sources, err := sourcesOf(cfg, nil, told)
			if err != nil {
				t.Fatal(err)
			}
			box, err := openInbox(t.Context(), parts{store: store, sources: sources}, params)
			if err != nil {
				t.Fatal(err)
			}
			if err := told.attach(box, params); err != nil {
				t.Errorf("the check passes what does not start: %v", err)
			}
		})
	}
}

func TestAChannelsValuesArrive(t *testing.T) {
	cfg := config.Channel{
		Type: config.ChannelEmail, SMTP: &config.SMTP{ConnectTimeout: time.Minute, ReadTimeout: 10 * time.Minute}, Rate: 3, Concurrency: 4,
		Breaker: config.Breaker{Failures: 5, Cooldown: 6 * time.Second}, Retry: &config.Retry{Base: time.Second, Cap: time.Minute, MaxAttempts: 7},
	}
	c := openChannel{name: "mail", cfg: cfg, policy: deliveryPolicy(cfg), sender: &gateway.Sender{}}
	n := &notifications{cfg: &config.Config{Worker: config.Worker{BatchSize: 8}}, channels: []openChannel{{name: "in_app"}, c}}
	got := n.carried()
	if len(got) != 1 {
		t.Fatalf("%d are carried", len(got))
	}
	ch := got[0]
	if ch.Rate != 3 || ch.Concurrency != 4 || ch.BreakerAfter != 5 || ch.BreakerCooldown != 6*time.Second || ch.Policy.MaxRetry != 6 || ch.BatchSize != 8 {
		t.Errorf("got %+v", ch)
	}
	if ch.Timeout != 121*time.Minute || ch.Policy.OrphanAfter < 2*ch.Timeout {
		t.Errorf("an attempt may take %v, and counts as lost after %v", ch.Timeout, ch.Policy.OrphanAfter)
	}
	cfg.SMTP.ReadTimeout = time.Second
	if got := deliveryPolicy(cfg).OrphanAfter; got != 5*time.Minute {
		t.Errorf("a short attempt counts as lost after %v", got)
	}
}
