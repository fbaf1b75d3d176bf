package app

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/telemetry"
)

// syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// system is a running Posthouse, as a user has it.
type system struct {
	url  string // of door and admin
	log  *syncBuffer
	stop func() error
}

func parse(t testing.TB, yaml string, env map[string]string) *config.Config {
	t.Helper()
	cfg, problems, _ := config.Parse(config.ParseParams{
		Data: []byte(yaml), File: "posthouse.yaml",
		LookupEnv:       func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		CheckExpression: func(s string) error { _, err := expression.Compile(s); return err },
		CheckKey:        func(s string) error { _, err := expression.CompileKey(s); return err },
	})
	for _, p := range problems {
		t.Error(p)
	}
	if cfg == nil {
		t.FailNow()
	}
	return cfg
}

func start(t testing.TB, p Params) *system {
	t.Helper()
	s := &system{log: &syncBuffer{}}
	p.Logger = telemetry.NewLogger(telemetry.Config{Writer: s.log})
	ready := make(chan string, 1)
	observe := p.Ready
	p.Ready = func(door, admin net.Addr) {
		if observe != nil {
			observe(door, admin)
		}
		ready <- "http://" + door.String()
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, p) }()
	s.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = s.stop() })
	select {
	case s.url = <-ready:
	case err := <-ended:
		t.Fatalf("it did not start: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("not ready in 20 s")
	}
	return s
}

func (s *system) get(t testing.TB, path string) (status int, body string) {
	t.Helper()
	r, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// eventually waits until the statistics of the first source are as wanted.
func (s *system) eventually(t testing.TB, wanted func(map[string]any) bool) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		_, last = s.get(t, "/v1/inbox/stats")
		var stats struct{ Sources []map[string]any }
		if err := json.Unmarshal([]byte(last), &stats); err != nil {
			t.Fatal(err)
		}
		if wanted(stats.Sources[0]) {
			return
		}
	}
	t.Fatalf("waited in vain; the statistics are %s", last)
}

// What must never be seen outside of the message itself.
var secrets = map[string]string{
	"signing secret": "sgn-5f2a81c0d9", "authorization": "bearer-77aa31e4c2", "cookie": "session-0b9c2d7f61", "query token": "qtk-e8d0a4b3f7",
	"key ring": "a2V5LXJpbmctc2VjcmV0LW9mLTMyLWJ5dGVzLWxvbmch", "target path": "hook-path-9d3e7a1b5c", "target query": "hook-query-2c4f6e8a0d",
}

func TestSecretsAreSeenNowhere(t *testing.T) {
	t.Run("NC-07 AC-7 no secret in logs, metrics, answers, pages, errors or the database", func(t *testing.T) {
		target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		}))
		defer target.Close()
		data := t.TempDir()
		cfg := parse(t, fmt.Sprintf(`
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
store: sqlite:%s/ph.db
log: {level: debug}
sources:
  erp:
    verify: {kind: hmac, header: X-Signature, secrets: ["${SIGN}"]}
    accept: body.kind == 1
    handler: {http: {url: "%s/%s?t=%s", allow_private: true}}
    consume: {enabled: true, max_retry: 1, backoff: [10ms], round_interval: 100ms}
`, data, target.URL, secrets["target path"], secrets["target query"]), map[string]string{
			"SIGN": secrets["signing secret"], "POSTHOUSE_KEYS": "k1:" + secrets["key ring"],
		})
		s := start(t, Params{Config: cfg})
		post := func(body string, sign bool) int {
			request, err := http.NewRequest(http.MethodPost, s.url+"/in/erp?access_token="+secrets["query token"]+"&a=1", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+secrets["authorization"])
			request.Header.Set("Cookie", "sid="+secrets["cookie"])
			if sign {
				mac := hmac.New(sha256.New, []byte(secrets["signing secret"]))
				mac.Write([]byte(body))
				request.Header.Set("X-Signature", hex.EncodeToString(mac.Sum(nil)))
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			return response.StatusCode
		}
		for _, push := range []struct {
			body string
			sign bool
			want int
		}{{`{"kind":1}`, true, 200}, {`{"kind":2}`, true, 200}, {`{"kind":"1"}`, true, 200}, {`{"kind":1}`, false, 401}} {
			if got := post(push.body, push.sign); got != push.want {
				t.Fatalf("answered %d, want %d", got, push.want)
			}
		}
		s.eventually(t, func(erp map[string]any) bool { return erp["failed"] == 2.0 })
		seen := map[string]string{}
		for _, path := range []string{"/metrics", "/readyz", "/healthz", "/openapi.json", "/v1/inbox/stats", "/v1/inbox/sources",
			"/v1/inbox/sources/erp/rejects", "/v1/inbox/messages", "/v1/inbox/messages?state=nonsense", "/nothing"} {
			_, seen[path] = s.get(t, path)
		}
		var list struct{ Items []struct{ ID string } }
		if err := json.Unmarshal([]byte(seen["/v1/inbox/messages"]), &list); err != nil || len(list.Items) != 2 {
			t.Fatalf("%d messages, %v", len(list.Items), err)
		}
		for _, m := range list.Items {
			for _, path := range []string{"", "/headers"} {
				status, body := s.get(t, "/v1/inbox/messages/"+m.ID+path)
				if status != http.StatusOK {
					t.Fatalf("%s: %d", path, status)
				}
				seen["message"+path+m.ID] = body
			}
		}
		if !strings.Contains(seen["message/headers"+list.Items[0].ID], "hmac:k1:") {
			t.Error("a credential is not kept as a keyed hash")
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		seen["log"] = s.log.String()
		files, err := filepath.Glob(filepath.Join(data, "*"))
		if err != nil || len(files) == 0 {
			t.Fatal("no database", err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			seen[filepath.Base(file)] = string(b)
		}
		if !strings.Contains(seen["log"], "ready") {
			t.Error("the log holds nothing: this test would not notice a secret")
		}
		for where, text := range seen {
			for name, secret := range secrets {
				if strings.Contains(text, secret) {
					t.Errorf("the %s stands in %s", name, where)
				}
			}
		}
	})
}

func TestDev(t *testing.T) {
	t.Run("IN-01 dev needs nothing, keeps what is pushed, shows it, and finds it again after a restart", func(t *testing.T) {
		data := filepath.Join(t.TempDir(), "data")
		for round := 1; round <= 2; round++ {
			screen := &syncBuffer{}
			p, err := Dev(DevParams{Listen: "127.0.0.1:0", Data: data, Out: screen})
			if err != nil {
				t.Fatal(err)
			}
			s := start(t, p)
			response, err := http.Post(s.url+"/in/demo", "application/json", strings.NewReader(`{"hello":"world"}`))
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%v, %v", response, err)
			}
			_ = response.Body.Close()
			s.eventually(t, func(demo map[string]any) bool { return demo["success"] == float64(round) })
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			if text := screen.String(); !strings.Contains(text, s.url+"/in/demo") || !strings.Contains(text, `success  {"hello":"world"}`) {
				t.Errorf("the screen shows:\n%s", text)
			}
		}
	})
	t.Run("dev is refused on an address that others reach", func(t *testing.T) {
		if _, err := Dev(DevParams{Listen: "0.0.0.0:8080", Data: t.TempDir()}); err == nil {
			t.Error("not refused")
		}
	})
	t.Run("dev shows nothing that a terminal would obey", func(t *testing.T) {
		if got := glance([]byte("a\x1b[2Jb\x00c\xff\n")); got != "a·[2Jb·c··" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a second process on the same file is refused in one line", func(t *testing.T) {
		data := t.TempDir()
		p, err := Dev(DevParams{Listen: "127.0.0.1:0", Data: data, Out: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		start(t, p)
		p, err = Dev(DevParams{Listen: "127.0.0.1:0", Data: data, Out: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		p.Logger = telemetry.NewLogger(telemetry.Config{Writer: io.Discard})
		if err := Run(t.Context(), p); err == nil || !strings.Contains(err.Error(), "another process") {
			t.Errorf("got %v", err)
		}
	})
}

func TestReady(t *testing.T) {
	t.Run("IN-25 readiness says why it is not, and comes back, and liveness stays", func(t *testing.T) {
		data := t.TempDir()
		p, err := Dev(DevParams{Listen: "127.0.0.1:0", Data: data, Out: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, p)
		push := func() int {
			response, err := http.Post(s.url+"/in/demo", "text/plain", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			return response.StatusCode
		}
		if status := push(); status != http.StatusOK {
			t.Fatal(status)
		}
		s.eventually(t, func(demo map[string]any) bool { return demo["success"] == 1.0 })
		if status, body := s.get(t, "/readyz"); status != http.StatusOK {
			t.Errorf("at first: %d %s", status, body)
		}
		_, metrics := s.get(t, "/metrics")
		for _, name := range []string{"posthouse_ingest_requests_total", "posthouse_queue_attempts_total", "posthouse_inbox_due", "go_goroutines"} {
			if !strings.Contains(metrics, name) {
				t.Errorf("no metric %s", name)
			}
		}

		db, err := sql.Open("sqlite", filepath.Join(data, "posthouse.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		rename := func(from, to string) {
			if _, err := db.Exec("PRAGMA busy_timeout = 5000; ALTER TABLE " + from + " RENAME TO " + to); err != nil {
				t.Fatal(err)
			}
		}
		for _, table := range []string{"posthouse_work", "posthouse_attempt"} {
			rename(table, "moved_away")
			status, body := s.get(t, "/readyz")
			if status != http.StatusServiceUnavailable || !strings.Contains(body, `"name":"store","ok":false`) {
				t.Errorf("without %s: %d %s", table, status, body)
			}
			if status, _ := s.get(t, "/healthz"); status != http.StatusOK {
				t.Error("it does not live:", status)
			}
			if table == "posthouse_work" {
				if status := push(); status != http.StatusServiceUnavailable {
					t.Error("a push was answered", status)
				}
			}
			rename("moved_away", table)
		}
		if status := push(); status != http.StatusOK {
			t.Error("a push was answered", status)
		}
		var status int
		var body string
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
			if status, body = s.get(t, "/readyz"); status == http.StatusOK {
				return
			}
		}
		t.Errorf("it does not come back: %d %s", status, body)
	})
}
