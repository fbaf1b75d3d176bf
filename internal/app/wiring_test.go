package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/telemetry"
)

// everything is a configuration in which no field that is passed on has its
// default, nor the value of another.
const everything = `
listen: 127.0.0.1:9101
admin: {listen: 127.0.0.1:9102}
store: {url: "sqlite:/tmp/x.db", allow_unsafe_durability: true, migrate: off}
lock: {backend: redis, url: "redis://${ONE}@127.0.0.1:1/0", lease: 41s}
door: {memory: 42MiB}
drain: 43s
log: {level: debug, format: json}
sources:
  erp:
    verify: {kind: hmac, header: X-Sig, prefix: "p=", encoding: base64, secrets: ["${ONE}", "${TWO}"]}
    accept: body.kind == 1
    dedup: {key: body.key, window: 20d}
    acknowledge: {status: 202, body: '{"ok":true}', content_type: application/json}
    answer_within: 7s
    limits: {body: 8KiB, concurrency: 9}
    handler: {http: {url: "http://10.0.0.1/x", allow_private: true}}
    consume:
      enabled: true
      order: keyed
      key: body.id
      partitions: 10
      on_retry: block
      concurrency: 11
      round_interval: 12s
      batch_size: 13
      max_retry: 14
      backoff: [15s, 16s]
      orphan_after: 17m
      timeout: 18s
      trip_after: 19
`

// elsewhere are the fields of the configuration that need no place in the
// inbox, with the reason.
var elsewhere = map[string]string{
	"Listen": "listen", "Admin": "listen, apiConfig", "Store": "OpenStore, prepare", "Log": "the binary", "Keys": "HashCredential",
	"Lock.Backend": "openLock", "Lock.URL": "openLock", "Sources.Handler": "Handler",
	"Templates": "loadTemplates", "Channels": "openChannels, attach", "Policies": "policiesOf", "Retry": "in each channel", "Worker": "attach",
}

func TestWiring(t *testing.T) {
	cfg := parse(t, everything, map[string]string{"ONE": "first-secret", "TWO": "second-secret", "POSTHOUSE_KEYS": config.GenerateKey("k")})
	sources, err := sourcesOf(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	params := Params{
		Config: cfg, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Registry: prometheus.NewRegistry(), Observe: func(inbox.Attempt) {},
	}
	store := struct{ Store }{}
	redis, err := openLock(cfg.Lock)
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	got := inboxConfig(parts{store: store, redis: redis, sources: sources}, cfg.Keys.Hash, params)
	t.Run("every value of the configuration arrives where it belongs", func(t *testing.T) {
		retry := 14
		want := inbox.Config{
			Store: store, Locker: locker{redis}, Lease: 41 * time.Second, Drain: 43 * time.Second, Memory: 42 << 20, Instance: instanceName(),
			Logger: params.Logger, Registerer: params.Registry,
			Sources: []inbox.Source{{
				Name: "erp",
				Verify: inbox.Verification{
					Kind: "hmac", Header: "X-Sig", Prefix: "p=", Encoding: "base64",
					Secrets: [][]byte{[]byte("first-secret"), []byte("second-secret")},
				},
				Accept:       "body.kind == 1",
				Dedup:        inbox.Dedup{Key: "body.key", Window: 20 * 24 * time.Hour},
				Acknowledge:  inbox.Acknowledge{Status: 202, Body: `{"ok":true}`, ContentType: "application/json"},
				AnswerWithin: 7 * time.Second, BodyLimit: 8 << 10, InFlight: 9,
				Consume: inbox.Consume{
					Order: inbox.Keyed, Key: "body.id", Partitions: 10, Block: true, Concurrency: 11, RoundInterval: 12 * time.Second, BatchSize: 13, Retry: &retry,
					Backoff: []time.Duration{15 * time.Second, 16 * time.Second}, OrphanAfter: 17 * time.Minute,
					Timeout: 18 * time.Second, TripAfter: 19,
				},
			}},
		}
		same := cmp.Comparer(func(a, b *slog.Logger) bool { return a == b })
		registry := cmp.Comparer(func(a, b prometheus.Registerer) bool { return a == b })
		lockers := cmp.Comparer(func(a, b inbox.Locker) bool { return a == b })
		stores := cmp.Comparer(func(a, b inbox.Store) bool { return a == b })
		// Functions cannot be compared; that they are there is tested below.
		ignore := cmpopts.IgnoreFields(inbox.Source{}, "Handler")
		functions := cmpopts.IgnoreFields(inbox.Config{}, "HashCredential", "Observe")
		if diff := cmp.Diff(want, got, same, registry, lockers, stores, ignore, functions); diff != "" {
			t.Error(diff)
		}
		if got.HashCredential([]byte("x")) != cfg.Keys.Hash([]byte("x")) {
			t.Error("credentials are hashed in another way")
		}
	})
	t.Run("every field of the inbox is set by the configuration above", func(t *testing.T) {
		for _, path := range zeroes("", reflect.ValueOf(got)) {
			if path != ".Sources.Consume.Paused" { // false where enabled is true
				t.Errorf("inbox.Config%s is not set: is it mapped?", path)
			}
		}
		if paused, err := sourcesOf(parse(t, "store: sqlite:x.db\nsources: {a: {verify: {kind: none}}}", nil), nil, nil); err != nil || !paused[0].Consume.Paused {
			t.Errorf("a source that is not enabled is not paused, %v", err)
		}
	})
	t.Run("every field of the configuration has been thought of", func(t *testing.T) {
		defaults := parse(t, "store: sqlite:x.db\nsources: {erp: {verify: {kind: none}}}", nil)
		for _, path := range unchanged("", reflect.ValueOf(*cfg), reflect.ValueOf(*defaults)) {
			if _, ok := elsewhere[strings.TrimPrefix(path, ".")]; !ok {
				t.Errorf("%s has its default in this test, which therefore does not show whether it is mapped", path)
			}
		}
	})
}

// zeroes lists the fields that have no value.
func zeroes(path string, v reflect.Value) (paths []string) {
	switch {
	case v.IsZero():
		return []string{path}
	case v.Kind() == reflect.Struct && v.Type().PkgPath() == reflect.TypeFor[inbox.Config]().PkgPath():
		for i := range v.NumField() {
			paths = append(paths, zeroes(path+"."+v.Type().Field(i).Name, v.Field(i))...)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		paths = zeroes(path, v.Index(0))
	}
	return paths
}

// unchanged lists the fields that are the same in both.
func unchanged(path string, a, b reflect.Value) (paths []string) {
	if _, ok := elsewhere[strings.TrimPrefix(path, ".")]; ok {
		return nil
	}
	switch {
	case a.Kind() == reflect.Struct:
		for i := range a.NumField() {
			paths = append(paths, unchanged(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))...)
		}
		return paths
	case a.Kind() == reflect.Map:
		key := reflect.ValueOf("erp")
		return unchanged(path, a.MapIndex(key), b.MapIndex(key))
	case reflect.DeepEqual(a.Interface(), b.Interface()):
		return []string{path}
	}
	return nil
}

// small is a store whose database takes no large bodies.
type small struct {
	Store
	limit int64
	err   error
}

func (s small) MaxBody(context.Context) (int64, error)             { return s.limit, s.err }
func (s small) CheckReady(context.Context) error                   { return nil }
func (s small) Stats(context.Context) ([]model.SourceStats, error) { return nil, nil }

func TestCheckBodies(t *testing.T) {
	cfg := parse(t, "store: {url: 'sqlite:x.db', migrate: off}\nsources: {a: {verify: {kind: none}, limits: {body: 1KiB}}, b: {verify: {kind: none}, limits: {body: 2KiB}}}", nil)
	for name, test := range map[string]struct {
		store small
		want  string // of the error
	}{
		"as large as the largest body": {small{limit: 2 << 10}, ""},
		"smaller than one":             {small{limit: 2<<10 - 1}, "sources.b.limits.body is 2048 bytes, but the database takes at most 2047"},
		"unknown":                      {small{err: errors.New("away")}, "away"},
	} {
		t.Run("IN-03 a database's limit that is "+name, func(t *testing.T) {
			err := prepare(t.Context(), test.store, Params{Config: cfg})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestLeftSources(t *testing.T) {
	t.Run("IN-25 a source that is no longer configured is told of while it has unfinished messages", func(t *testing.T) {
		stats := []model.SourceStats{
			{Source: model.Source{Name: "here"}, Pending: 5},
			{Source: model.Source{Name: "gone"}, Pending: 1, Retrying: 2, Processing: 3},
			{Source: model.Source{Name: "done"}, Success: 7, Failed: 8},
		}
		var log bytes.Buffer
		cfg := parse(t, "store: sqlite:x.db\nsources: {here: {verify: {kind: none}}}", nil)
		warnOfLeftSources(t.Context(), counting{stats: stats}, Params{Config: cfg, Logger: telemetry.NewLogger(telemetry.Config{Writer: &log})})
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "source=gone pending=1 retrying=2 processing=3") {
			t.Errorf("the log is:\n%s", text)
		}
	})
}

// counting is a store that has counted.
type counting struct {
	Store
	stats []model.SourceStats
}

func (c counting) Stats(context.Context) ([]model.SourceStats, error) { return c.stats, nil }

func TestSystem(t *testing.T) {
	target := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
	closed := make(chan struct{}, 10)
	target.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	target.Start()
	defer target.Close()
	data := filepath.Join(t.TempDir(), "ph.db")
	yaml := "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nstore: sqlite:" + data + "\nsources:\n"
	erp := fmt.Sprintf("  erp: {verify: {kind: none}, handler: {http: {url: %q, allow_private: true}}, consume: {enabled: true}}\n", target.URL)
	s := start(t, Params{Config: parse(t, yaml+erp+"  kept: {verify: {kind: none}}\n", nil)})
	post := func(path string) int {
		t.Helper()
		response, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).
			Post(s.url+path, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	t.Run("IN-01 a path that is nearly the door's is refused by it, and counted", func(t *testing.T) {
		for _, path := range []string{"//in/erp", "/in//erp", "/in/./erp", "/in", "/in/", "/in/erp/"} {
			if status := post(path); status != http.StatusNotFound {
				t.Errorf("%s: %d", path, status)
			}
		}
		if _, metrics := s.get(t, "/metrics"); !strings.Contains(metrics, `result="refused_unknown_source",source="(unknown)"} 6`) {
			t.Errorf("not counted:\n%s", grep(metrics, "posthouse_ingest_requests_total"))
		}
	})
	t.Run("IN-15 a success shows what the target answered", func(t *testing.T) {
		if status := post("/in/erp"); status != http.StatusOK {
			t.Fatal(status)
		}
		s.eventually(t, func(erp map[string]any) bool { return erp["success"] == 1.0 })
		_, list := s.get(t, "/v1/inbox/messages")
		_, after, _ := strings.Cut(list, `"id":"`)
		id, _, _ := strings.Cut(after, `"`)
		if _, message := s.get(t, "/v1/inbox/messages/"+id); !strings.Contains(message, `"http_status":202`) {
			t.Errorf("the message is %s", message)
		}
	})
	t.Run("IN-25 a start without a source that has messages says so", func(t *testing.T) {
		if status := post("/in/kept"); status != http.StatusOK {
			t.Fatal(status)
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-closed:
		case <-time.After(2 * time.Second): // idle connections are closed after 4 s by themselves
			t.Error("the connection to the target is not closed")
		}
		if again := start(t, Params{Config: parse(t, yaml+erp, nil)}); !strings.Contains(again.log.String(), "source=kept pending=1") {
			t.Errorf("the log is:\n%s", again.log)
		}
	})
}

// grep returns the lines that contain a word.
func grep(text, word string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}
