package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// mustParse returns the Config that a sound text gives, and fails on any problem or warning.
func mustParse(t *testing.T, p ParseParams) *Config {
	t.Helper()
	c, problems, warnings := Parse(p)
	if said := report(c, problems, warnings); said != "" {
		t.Fatalf("the text is not sound:\n%s", said)
	}
	return c
}

// defaultSource is what a source is that writes out nothing but verify: {kind: none}, stated here apart from the tags.
func defaultSource() Source {
	return Source{
		Verify:       Verify{Kind: VerifyNone, Encoding: EncodingHex},
		Dedup:        Dedup{Window: 8 * 24 * time.Hour},
		Acknowledge:  Acknowledge{Status: 200, ContentType: "text/plain"},
		AnswerWithin: 2 * time.Second,
		Limits:       Limits{Body: 1 << 20, Concurrency: 256},
		Consume: Consume{
			Order: OrderSerial, Partitions: 16, OnRetry: OnRetrySkip, Concurrency: 64, RoundInterval: 2 * time.Second,
			BatchSize: 50, MaxRetry: 3, Backoff: []time.Duration{30 * time.Second, 2 * time.Minute, 10 * time.Minute},
			OrphanAfter: 5 * time.Minute, Timeout: time.Minute, TripAfter: 3,
		},
	}
}

func defaultConfig(store Secret, sources map[string]Source) *Config {
	return &Config{
		Listen: "127.0.0.1:8080", Admin: Admin{Listen: "127.0.0.1:8081"},
		Store: Store{URL: store, Migrate: MigrateAuto}, Lock: Lock{Backend: LockBackendStore, Lease: 30 * time.Second},
		Door: Door{Memory: 256 << 20}, Drain: 25 * time.Second, Log: Log{Level: "info", Format: LogText}, Sources: sources,
		Retry: defaultRetry(), Worker: Worker{BatchSize: 50},
	}
}

// defaultRetry is NC-12's.
func defaultRetry() Retry {
	return Retry{Base: time.Second, Cap: 300 * time.Second, Jitter: 5 * time.Second, MaxAttempts: 6}
}

func TestDefaults(t *testing.T) {
	t.Run("IN-10 a source that writes out nothing else has the stated defaults", func(t *testing.T) {
		got := mustParse(t, testParams("store: sqlite:p.db\nsources: {demo: {verify: {kind: none}}}"))
		want := defaultConfig("sqlite:p.db", map[string]Source{"demo": defaultSource()})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("config differs (-want +got):\n%s", diff)
		}
	})
	t.Run("a section without keys is the same as none", func(t *testing.T) {
		got := mustParse(t, testParams(`
store: sqlite:p.db
admin:
lock: {}
door:
log:
sources:
  demo:
    verify: {kind: none}
    acknowledge:
    limits:
    handler:
    consume:
`))
		want := defaultConfig("sqlite:p.db", map[string]Source{"demo": defaultSource()})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("config differs (-want +got):\n%s", diff)
		}
	})
	t.Run("no two configurations share a list", func(t *testing.T) {
		text := "store: sqlite:p.db\nsources: {demo: {verify: {kind: none}}}"
		first := mustParse(t, testParams(text))
		first.Sources["demo"].Consume.Backoff[0] = time.Hour
		if got := mustParse(t, testParams(text)).Sources["demo"].Consume.Backoff[0]; got != 30*time.Second {
			t.Errorf("the second one's backoff begins with %s", got)
		}
	})
}

// Each value differs from its default, so that none can pass by not being read.
func TestEveryKeyIsRead(t *testing.T) {
	got := mustParse(t, testParams(`
listen: "[::]:9080"
admin: {listen: localhost:9081}
store: {url: "postgres://posthouse:${DB_PASSWORD}@db/posthouse", migrate: off}
lock: {backend: redis, url: "redis://:${DB_PASSWORD}@cache/1", lease: 1m30s}
door: {memory: 64MiB}
drain: 0s
log: {level: debug, format: json}
sources:
  erp:
    verify: {kind: hmac, header: X-Sig, prefix: "v1=", encoding: base64, secrets: ["${ERP_SECRET}", "file:/secrets/erp"]}
    accept: body.msgType == 1008
    dedup: {key: "[body.tenant, body.id]", window: 30d}
    acknowledge: {status: 202, body: "{\"ok\":true}", content_type: application/json}
    answer_within: 500ms
    limits: {body: 10MB, concurrency: 8}
    handler: {http: {url: "http://127.0.0.1:${PORT}/push", allow_private: true}}
    consume:
      enabled: true
      order: keyed
      key: body.customer
      partitions: 32
      on_retry: block
      concurrency: 9
      round_interval: 250ms
      batch_size: ${BATCH}
      max_retry: 5
      backoff: [1s, 1d]
      orphan_after: 8d
      timeout: 1h
      trip_after: 4
  plain: {verify: {kind: none}}
`))
	want := defaultConfig("postgres://posthouse:hunter2%2F@db/posthouse", map[string]Source{
		"erp": {
			Verify:       Verify{Kind: VerifyHMAC, Header: "X-Sig", Prefix: "v1=", Encoding: EncodingBase64, Secrets: []Secret{"hunter2-erp", "hunter2-file"}},
			Accept:       "body.msgType == 1008",
			Dedup:        Dedup{Key: "[body.tenant, body.id]", Window: 30 * 24 * time.Hour},
			Acknowledge:  Acknowledge{Status: 202, Body: `{"ok":true}`, ContentType: "application/json"},
			AnswerWithin: 500 * time.Millisecond,
			Limits:       Limits{Body: 10_000_000, Concurrency: 8},
			Handler:      Handler{HTTP: &HTTPHandler{URL: "http://127.0.0.1:9100/push", AllowPrivate: true}},
			Consume: Consume{
				Enabled: true, Order: OrderKeyed, Key: "body.customer", Partitions: 32, OnRetry: OnRetryBlock, Concurrency: 9, RoundInterval: 250 * time.Millisecond,
				BatchSize: 20, MaxRetry: 5, Backoff: []time.Duration{time.Second, 24 * time.Hour}, OrphanAfter: 8 * 24 * time.Hour,
				Timeout: time.Hour, TripAfter: 4,
			},
		},
		"plain": defaultSource(),
	})
	want.Listen, want.Admin.Listen, want.Store.Migrate = "[::]:9080", "localhost:9081", MigrateOff
	want.Lock = Lock{Backend: LockBackendRedis, URL: "redis://:hunter2%2F@cache/1", Lease: 90 * time.Second}
	want.Door.Memory, want.Drain = 64<<20, 0
	want.Log = Log{Level: "debug", Format: LogJSON}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"erp", "plain"}, got.SourceNames()); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
}

func TestExpansion(t *testing.T) {
	for _, c := range []struct{ name, written, want string }{
		{"a name within a text", "a ${PORT} b ${PORT}", "a 9100 b 9100"},
		{"an empty variable", "a${EMPTY}b", "ab"},
		{"two dollars are one", "$$5 $${PORT} $$$${PORT}", "$5 ${PORT} $${PORT}"},
		{"an escaped dollar before a reference", "$$${PORT}", "$9100"},
		{"a dollar before anything else", "$PORT ^a$ $ $}", "$PORT ^a$ $ $}"},
		{"NC-07 a value adds no keys and refers to nothing", "${INJECTION}", testEnvironment["INJECTION"]},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := mustParse(t, testParams("store: sqlite:p.db\nsources: {demo: {verify: {kind: none}, acknowledge: {body: '"+c.written+"'}}}"))
			if body := got.Sources["demo"].Acknowledge.Body; body != c.want {
				t.Errorf("%q became %q, want %q", c.written, body, c.want)
			}
			if got.Admin.Listen != "127.0.0.1:8081" {
				t.Error("a value added a key")
			}
		})
	}
}

func TestSecretsFromFiles(t *testing.T) {
	for _, c := range []struct{ name, written, want string }{
		{"one newline at the end is dropped", "file:/secrets/erp", "hunter2-file"},
		{"a newline of Windows too", "file:/secrets/windows", "hunter2-file"},
		{"no more than one", "file:/secrets/two", "hunter2-file\n"},
		{"its name may come from the environment", "file:${SECRETS}/erp", "hunter2-file"},
		{"an environment's value that looks like a file is none", "${NEXT_SECRET}", testEnvironment["NEXT_SECRET"]},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := mustParse(t, testParams("store: sqlite:p.db\nsources: {demo: {verify: {kind: hmac, header: X-Sig, secrets: ['"+c.written+"']}}}"))
			if secret := got.Sources["demo"].Verify.Secrets[0].Reveal(); secret != c.want {
				t.Errorf("%q became %q, want %q", c.written, secret, c.want)
			}
		})
	}
	t.Run("the store's URL may be a file", func(t *testing.T) {
		got := mustParse(t, testParams("store: file:/secrets/dsn\nsources: {demo: {verify: {kind: none}}}"))
		if want := "mysql://u:hunter2@db/posthouse"; got.Store.URL.Reveal() != want {
			t.Errorf("got %q, want %q", got.Store.URL.Reveal(), want)
		}
	})
}

func TestNoFormattingShowsASecret(t *testing.T) {
	ring, err := ParseKeys(GenerateKey(hidden))
	if err != nil {
		t.Fatal(err)
	}
	key := string(ring.Current().secret)
	c := &Config{Store: Store{URL: hidden}, Sources: map[string]Source{"demo": {Verify: Verify{Secrets: []Secret{hidden}}}}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", *c)
		fmt.Fprintf(&out, verb+"\n", c.Sources["demo"].Verify.Secrets)
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("config", "url", c.Store.URL, "config", c, "verify", c.Sources["demo"].Verify)
	}
	var whole any = c
	if err := json.NewEncoder(&out).Encode(whole); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(out.Bytes(), []byte(hidden)) || bytes.Contains(out.Bytes(), fmt.Appendf(nil, "%x", hidden)) {
		t.Errorf("a secret is shown:\n%s", out.Bytes())
	}

	out.Reset()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n"+verb+"\n"+verb+"\n", ring, ring.Current(), struct{ Ring *KeyRing }{ring})
	}
	shown := []string{key, fmt.Sprintf("%x", key), fmt.Sprintf("%v", []byte(key)), fmt.Sprintf("%#v", []byte(key))}
	for _, form := range shown {
		if strings.Contains(out.String(), form) {
			t.Errorf("a key is shown:\n%s", out.String())
		}
	}
}

func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "posthouse.yaml")
	t.Setenv("POSTHOUSE_TEST_SECRET", hidden)
	t.Setenv(KeysVariable, "")
	text := "store: sqlite:p.db\nsources: {demo: {verify: {kind: hmac, header: X-Sig, secrets: ['${POSTHOUSE_TEST_SECRET}']}}}"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("the process's own environment and files are the default", func(t *testing.T) {
		c, problems, warnings := Load(ParseParams{File: file})
		if said := report(c, problems, warnings); said != "" {
			t.Fatal(said)
		}
		if got := c.Sources["demo"].Verify.Secrets[0].Reveal(); got != hidden {
			t.Errorf("secret is %q", got)
		}
	})
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"a file that is not there", fs.ErrNotExist, "posthouse.yaml: does not exist; "},
		{"a file that may not be read", fs.ErrPermission, "posthouse.yaml: may not be read by this user; "},
		{"a file that cannot be read", errors.New("is a directory"), "posthouse.yaml: cannot be read; "},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, problems, _ := Load(ParseParams{File: "posthouse.yaml", ReadFile: func(string) ([]byte, error) { return nil, c.err }})
			if got != nil || len(problems) != 1 || !strings.HasPrefix(problems[0].String(), c.want) {
				t.Errorf("got %v, %v", got, problems)
			}
		})
	}
}

func TestFilesThatAreNoConfiguration(t *testing.T) {
	for name, data := range map[string]string{
		"larger than 1 MiB": strings.Repeat("# filling\n", 110_000),
		"nested too deep":   strings.Repeat("[", 5_000),
		"a NUL":             "store: a\x00b",
	} {
		t.Run(name, func(t *testing.T) {
			if c, problems, _ := Parse(testParams(data)); c != nil || len(problems) != 1 || problems[0].Line != 1 {
				t.Errorf("got %v, %v", c, problems)
			}
		})
	}
	t.Run("a byte order mark is no problem", func(t *testing.T) {
		mustParse(t, testParams("\xef\xbb\xbfstore: sqlite:p.db\r\nsources:\r\n  demo: {verify: {kind: none}}\r\n"))
	})
}

func TestDev(t *testing.T) {
	got := Dev("127.0.0.1:9999", "data")
	demo := defaultSource()
	demo.Consume.Enabled = true
	github := demo
	github.Accept, github.Handler.Notify = got.Sources[DevGitHub].Accept, got.Sources[DevGitHub].Handler.Notify
	want := defaultConfig(Secret("sqlite:"+filepath.Join("data", "posthouse.db")), map[string]Source{DevSource: demo, DevGitHub: github})
	want.Channels = map[string]Channel{
		"in_app": channelOf(ChannelInApp, func(c *Channel) { c.Template = "in_app" }),
		"mail":   channelOf(ChannelMailbox, func(c *Channel) { c.Address, c.Template, c.OnUncertain = "email", "email", Resend }),
	}
	want.Policies = []Policy{{Send: []string{"in_app", "mail"}}}
	want.Listen, want.Admin.Listen = "127.0.0.1:9999", "127.0.0.1:9999"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config differs (-want +got):\n%s", diff)
	}
	n := got.Sources[DevGitHub].Handler.Notify
	for name, expression := range map[string]string{"idempotency_key": n.IdempotencyKey, "template": n.Template, "recipient.id": n.Recipient["id"], "recipient.email": n.Recipient["email"]} {
		if expression == "" {
			t.Errorf("pushes of issues give no %s", name)
		}
	}
}

// sameRing compares rings by their ids, since keys are not to be looked into.
var sameRing = cmp.Comparer(func(a, b *KeyRing) bool { return (a == nil) == (b == nil) && (a == nil || a.String() == b.String()) })

var shownKey = regexp.MustCompile(`(?m)^( *)#([a-z_]+:)`)

func TestExample(t *testing.T) {
	params := testParams(string(Example()))
	params.LookupEnv = func(name string) (string, bool) {
		switch name {
		case "DEMO_SECRET", "REDIS_PASSWORD", "MAIL_HOST", "MAIL_USERNAME", "MAIL_PASSWORD", "SMS_TOKEN":
			return hidden, true
		case KeysVariable:
			return testKeys, true
		}
		return "", false
	}
	demo := defaultSource()
	demo.Handler.HTTP = &HTTPHandler{URL: "http://127.0.0.1:9000/push", AllowPrivate: true}
	demo.Consume.Enabled = true
	want := defaultConfig("sqlite:./posthouse.db", map[string]Source{"demo": demo})
	want.Keys, _ = ParseKeys(testKeys)

	t.Run("it works as it is", func(t *testing.T) {
		if diff := cmp.Diff(want, mustParse(t, params), sameRing); diff != "" {
			t.Errorf("config differs (-want +got):\n%s", diff)
		}
	})
	t.Run("every line that shows a key can be switched on and changes nothing but the samples", func(t *testing.T) {
		text := shownKey.ReplaceAllString(string(Example()), "$1$2")
		params.Data = []byte(strings.NewReplacer("kind: none\n", "kind: hmac\n", "backend: store\n", "backend: redis\n", "order: serial\n", "order: keyed\n").Replace(text))
		demo.Verify = Verify{Kind: VerifyHMAC, Header: "X-Hub-Signature-256", Prefix: "sha256=", Encoding: EncodingHex, Secrets: []Secret{hidden}}
		demo.Accept = "body.msgType == 1008"
		demo.Dedup.Key = "body.id"
		demo.Consume.Order, demo.Consume.Key = OrderKeyed, "body.customerId"
		want.Lock.Backend, want.Lock.URL = LockBackendRedis, "redis://:"+hidden+"@localhost:6379/0"
		want.Sources["demo"] = demo
		want.Templates = "./templates"
		want.Channels = map[string]Channel{
			"in_app": channelOf(ChannelInApp, func(c *Channel) { c.Template = "in_app" }),
			"mail": channelOf(ChannelEmail, func(c *Channel) {
				c.Address, c.Template, c.OnUncertain, c.Rate = "email", "email", Resend, 50
				c.SMTP = &SMTP{Host: hidden, Port: 587, Username: hidden, Password: hidden, TLS: TLSStart, ConnectTimeout: 3 * time.Second, ReadTimeout: 5 * time.Second}
				c.From = "Approvals <no-reply@example.com>"
			}),
			"text": channelOf(ChannelHTTP, func(c *Channel) {
				c.Address, c.Template, c.OnUncertain = "phone", "text", Hold
				c.Request = &Request{
					Method: "POST", URL: "https://sms.example.com/send", ConnectTimeout: 3 * time.Second, ReadTimeout: 5 * time.Second,
					Headers: map[string]Secret{"Authorization": "Bearer " + hidden, "Idempotency-Key": "{{.delivery.id}}"},
					Body:    `{"to": {{json .address}}, "text": {{json .body}}}`,
				}
				c.Classify = []Classify{{When: `body.code == "ILLEGAL_NUMBER"`, Class: "permanent"}}
				c.ProviderID = "body.sid"
			}),
		}
		want.Policies = []Policy{
			{When: `priority == "high"`, Send: []string{"in_app", "text"}, Success: Success{All: []string{"in_app"}, Any: []string{"text"}}},
			{Send: []string{"in_app", "mail"}},
		}
		if diff := cmp.Diff(want, mustParse(t, params), sameRing); diff != "" {
			t.Errorf("config differs (-want +got):\n%s", diff)
		}
	})
	t.Run("it shows every key", func(t *testing.T) {
		for _, e := range Reference() {
			if strings.HasPrefix(e.Path, "channels.") || strings.HasPrefix(e.Path, "policies[") || strings.Contains(e.Path, ".notify") {
				continue // shown by samples
			}
			if !regexp.MustCompile(`(?m)^ {` + fmt.Sprint(2*e.Depth) + `}#?` + e.Name + `:`).Match(Example()) {
				t.Errorf("%s is not shown", e.Path)
			}
		}
	})
	t.Run("IN-15 it states the rule for orphan_after", func(t *testing.T) {
		prose := strings.Join(strings.Fields(strings.ReplaceAll(string(Example()), "#", "")), " ")
		if !strings.Contains(prose, "must be at least 2 × timeout") {
			t.Error("the rule is missing")
		}
	})
	t.Run("changing what came back changes nothing", func(t *testing.T) {
		Example()[0] = 'x'
		if Example()[0] != '#' {
			t.Error("the example was changed")
		}
	})
}

// What a tag says wrongly would only be met by the user who writes that key.
func TestTagsMakeSense(t *testing.T) {
	var visit func(reflect.Type)
	visit = func(structure reflect.Type) {
		setDefaults(reflect.New(structure).Elem())
		for _, k := range keysOf(structure) {
			t.Run(structure.Name()+"."+k.field.Name, func(t *testing.T) { checkTags(t, k) })
			if k.elem != nil {
				visit(k.elem)
			}
		}
	}
	visit(reflect.TypeFor[Config]())
}

func checkTags(t *testing.T, k key) {
	if !regexp.MustCompile(`^[a-z][a-z_]*$`).MatchString(k.name) {
		t.Errorf("%q is not how keys are named", k.name)
	}
	if k.elem != nil {
		if k.short != "" && find(keysOf(k.elem), k.short) == nil {
			t.Errorf("short names no key: %q", k.short)
		}
		return
	}
	if k.hasDef == (k.required != "") {
		t.Error("a key has a default or must be written: one of the two")
	}
	switch k.kind {
	case kindInt, kindDuration, kindSize:
		if k.min == "" || k.max == "" {
			t.Error("a number has a least and a greatest")
		}
		one := k.field.Type
		if k.list {
			one = one.Elem()
		}
		for bound := range strings.SplitSeq(strings.Join([]string{k.min, k.max}, " "), " ") {
			k.mustSet(reflect.New(one).Elem(), bound)
		}
	}
	if expressionSees[k.check] == "" && k.check != "" && textChecks[k.check] == nil {
		t.Errorf("there is no check of the name %q", k.check)
	}
	if k.texts && nameChecks[k.names] == nil {
		t.Errorf("there is no check of names called %q", k.names)
	}
	if len(k.oneOf) > 0 && k.def != "" && k.word(text{value: k.def}).message != "" {
		t.Errorf("the default %q is not one of %v", k.def, k.oneOf)
	}
}
