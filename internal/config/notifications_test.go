package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// channelOf is what a channel is that writes out nothing, stated here apart from the tags, with what a type adds.
func channelOf(kind ChannelType, more func(*Channel)) Channel {
	retry := defaultRetry()
	c := Channel{Type: kind, Concurrency: 8, Breaker: Breaker{Failures: 5, Cooldown: time.Second}, Retry: &retry}
	more(&c)
	return c
}

func TestBackoffDoublesUpToItsCap(t *testing.T) {
	for name, c := range map[string]struct {
		retry Retry
		want  []time.Duration
	}{
		"NC-12 as it is by default": {defaultRetry(), seconds(2, 4, 8, 16, 32, 64, 128, 256)},
		"NC-12 capped":              {Retry{Base: 10 * time.Second, Cap: time.Minute}, seconds(20, 40, 60, 60, 60, 60, 60, 60)},
		"nothing overflows":         {Retry{Base: time.Hour, Cap: 24 * time.Hour}, seconds(7200, 14400, 28800, 57600, 86400, 86400, 86400, 86400)},
	} {
		if diff := cmp.Diff(c.want, c.retry.Backoff()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func seconds(n ...int) []time.Duration {
	var out []time.Duration
	for _, s := range n {
		out = append(out, time.Duration(s)*time.Second)
	}
	return out
}

func TestRates(t *testing.T) {
	for s, want := range map[string]Rate{"50/s": 50, "600/m": 10, "1800/h": 0.5, "0/s": 0, "5 / s": 5} {
		if got, err := ParseRate(s); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "50", "/s", "50/d", "-1/s", "1.5/s", "50/s/s", "99999999999/s"} {
		if got, err := ParseRate(s); err == nil {
			t.Errorf("%q is taken for %v", s, got)
		}
	}
}

func TestAChannelsRetryOverridesWhatItNames(t *testing.T) {
	got := mustParse(t, testParams(`
store: sqlite:p.db
sources: {demo: {verify: {kind: none}}}
templates: ./templates
retry: {base: 2s, max_attempts: 9}
channels:
  in_app: {}
  text: {type: http, request: {url: "https://sms.example.com/send"}, retry: {cap: 10s}}
  mail: {type: email, smtp: {host: mail.example.com, tls: implicit}, from: no-reply@example.com}
policies: [{send: [in_app, text, mail]}]
`))
	if diff := cmp.Diff(&Retry{Base: 2 * time.Second, Cap: 10 * time.Second, Jitter: 5 * time.Second, MaxAttempts: 9}, got.Channels["text"].Retry); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&got.Retry, got.Channels["mail"].Retry); diff != "" {
		t.Errorf("mail (-want +got):\n%s", diff)
	}
	if got.Channels["mail"].SMTP.Port != 465 {
		t.Errorf("implicit TLS is on port %d", got.Channels["mail"].SMTP.Port)
	}
}

func TestChannelsNeedKeys(t *testing.T) {
	params := testParams(`
store: sqlite:p.db
sources: {demo: {verify: {kind: none}}}
templates: ./templates
channels: {in_app: {}}
policies: [{send: [in_app]}]
`)
	params.LookupEnv = func(string) (string, bool) { return "", false }
	c, problems, _ := Parse(params)
	if c != nil || len(problems) != 1 || problems[0].File != Environment || problems[0].Path != KeysVariable {
		t.Errorf("got %v", problems)
	}
}
