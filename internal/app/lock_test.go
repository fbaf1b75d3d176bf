package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/testdb"
)

func TestLockInRedis(t *testing.T) {
	redis := testdb.Own(t, "redis")
	handled := make(chan string, 10)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handled <- r.Header.Get("X-Posthouse-Source") }))
	defer target.Close()
	yaml := fmt.Sprintf(`
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
store: sqlite:%s
lock: {backend: redis, url: "%s", lease: 2s}
sources:
  keyed: {verify: {kind: none}, dedup: {key: body.id}, handler: {http: {url: %q, allow_private: true}}, consume: {enabled: true, order: keyed, key: body.id, partitions: 3, on_retry: block}}
  plain: {verify: {kind: none}, handler: {http: {url: %[3]q, allow_private: true}}, consume: {enabled: true, order: parallel}}
`, filepath.Join(t.TempDir(), "ph.db"), redis.URL, target.URL)
	s := start(t, Params{Config: parse(t, yaml, nil)})
	push := func(source, body string) {
		t.Helper()
		response, err := http.Post(s.url+"/in/"+source, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("answered %d", response.StatusCode)
		}
	}
	wantHandled := func(when string) {
		t.Helper()
		select {
		case <-handled:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: not handled within 20 s\n%s", when, s.log)
		}
	}
	// lockCheck waits until the check is as wanted, and returns what it says.
	lockCheck := func(wanted bool) (detail string) {
		t.Helper()
		var last string
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
			_, last = s.get(t, "/readyz")
			var answer struct {
				Checks []struct {
					Name, Detail string
					OK           bool
				}
			}
			if err := json.Unmarshal([]byte(last), &answer); err != nil {
				t.Fatal(err)
			}
			for _, c := range answer.Checks {
				if c.Name == "lock" && c.OK == wanted {
					return c.Detail
				}
			}
		}
		t.Fatalf("waited in vain; /readyz answers %s", last)
		return ""
	}
	lockCheck(true)
	push("keyed", `{"id":1}`)
	wantHandled("with Redis")
	t.Run("what is agreed is what this configuration wants, and the partitions are held", func(t *testing.T) {
		if _, sources := s.get(t, "/v1/inbox/sources"); strings.Contains(sources, "wanted") || !strings.Contains(sources, `"order":"keyed","partitions":3,"key":"body.id","on_retry":"block"`) {
			t.Errorf("/v1/inbox/sources answers %s", sources)
		}
		if _, instances := s.get(t, "/v1/instances"); strings.Count(instances, `"source":"keyed"`) != 3 || !strings.Contains(instances, `"state":"alive"`) {
			t.Errorf("/v1/instances answers %s", instances)
		}
	})
	t.Run("IN-07 without Redis pushes are taken, /readyz says why, and consuming goes on when it is back", func(t *testing.T) {
		redis.Stop(t)
		if detail := lockCheck(false); !strings.Contains(detail, "Redis") {
			t.Errorf("it says %q", detail)
		}
		push("keyed", `{"id":2}`)
		push("keyed", `{"id":2}`) // a duplicate, also now
		push("plain", `{"id":2}`)
		wantHandled("parallel order needs no lock")
		redis.Start(t)
		lockCheck(true)
		push("keyed", `{"id":3}`)
		wantHandled("after Redis is back")
		wantHandled("after Redis is back")
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if len(handled) != 0 {
			t.Error("a duplicate was handled")
		}
	})
}
