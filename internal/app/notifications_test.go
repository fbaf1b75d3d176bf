package app

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/config"
)

// runDev starts what `posthouse dev` runs, and returns its address.
func runDev(t *testing.T) string {
	t.Helper()
	p, err := Dev(DevParams{Listen: "127.0.0.1:0", Data: filepath.Join(t.TempDir(), "data"), Out: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	p.Logger = slog.New(slog.DiscardHandler)
	ready, ended := make(chan string, 1), make(chan error, 1)
	p.Ready = func(door, _ net.Addr) { ready <- door.String() }
	go func() { ended <- Run(t.Context(), p) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case address := <-ready:
		return address
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
		return ""
	}
}

func request(t *testing.T, method, url, host, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestDevTellsPeople(t *testing.T) {
	at := "http://" + runDev(t)
	eventually := func(path string, wanted ...string) {
		t.Helper()
		var page string
		for range 200 {
			if _, page = request(t, http.MethodGet, at+path, "", ""); !strings.Contains(page, wanted[0]) {
				<-time.After(20 * time.Millisecond)
				continue
			}
			break
		}
		for _, w := range wanted {
			if !strings.Contains(page, w) {
				t.Errorf("%s lacks %q: %s", path, w, page)
			}
		}
	}
	t.Run("a pushed issue becomes a user's message and an e-mail", func(t *testing.T) {
		push := `{"action":"opened","issue":{"id":7,"number":3,"title":"It <b>breaks</b>","html_url":"https://github.com/a/b/issues/3",
			"updated_at":"2026-01-01T00:00:00Z","user":{"login":"octocat"},"labels":[]},"repository":{"full_name":"a/b"},"sender":{"login":"octocat"}}`
		for range 2 { // GitHub pushes again what it got no answer to in time
			if status, text := request(t, http.MethodPost, at+"/in/github", "", push); status != http.StatusOK {
				t.Fatalf("%d %s", status, text)
			}
		}
		eventually("/v1/inbox/messages", `"state":"success"`)
		eventually("/v1/users/octocat/messages", `"seq":1`, "Open the issue")
		eventually("/dev/mailbox", "octocat@example.com", "It &lt;b&gt;breaks&lt;/b&gt;")
		var list struct {
			Items []struct{ Channel, Status string }
		}
		_, text := request(t, http.MethodGet, at+"/v1/deliveries", "", "")
		if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Items) != 2 {
			t.Errorf("NC-02: want one delivery for each channel: %s, %v", text, err)
		}
	})
	t.Run("AC-5 a push of which no notification can be made fails at once, and says why", func(t *testing.T) {
		if status, _ := request(t, http.MethodPost, at+"/in/github", "", `{"issue":{"id":8}}`); status != http.StatusOK {
			t.Fatal(status)
		}
		eventually("/v1/inbox/messages?state=failed", `"state":"failed"`, "notify: ", "is missing")
	})
	t.Run("NC-07 the mailbox answers to no other name", func(t *testing.T) {
		if status, page := request(t, http.MethodGet, at+"/dev/mailbox", "evil.example.com", ""); status != http.StatusMisdirectedRequest || strings.Contains(page, "octocat") {
			t.Errorf("%d %s", status, page)
		}
	})
}

func TestChannelsThatCannotWorkAreNamed(t *testing.T) {
	t.Setenv("POSTHOUSE_KEYS", config.GenerateKey("k"))
	cfg := config.Dev("127.0.0.1:0", t.TempDir())
	sms := cfg.Channels["mail"]
	sms.Type, sms.Request = config.ChannelHTTP, &config.Request{URL: "ftp://example.com", Method: "POST"}
	n := &notifications{cfg: cfg}
	sender, _, err := n.senderOf(sms)
	if err == nil || sender != nil {
		t.Fatalf("got %v, %v", sender, err)
	}
	n.channels = []openChannel{{name: "text", sender: sender}}
	n.closeSenders()
}

func TestTemplatesThatCannotBeReadAreNamed(t *testing.T) {
	_, err := loadTemplates(Params{Config: &config.Config{Templates: filepath.Join(t.TempDir(), "none")}})
	if err == nil || !strings.Contains(err.Error(), "templates") || strings.ContainsRune(err.Error(), '\n') {
		t.Errorf("got %v", err)
	}
}
