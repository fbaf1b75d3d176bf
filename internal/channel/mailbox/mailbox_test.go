package mailbox

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/model"
)

func open(t *testing.T) *Mailbox {
	t.Helper()
	b, err := New("Posthouse <no-reply@example.com>")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func message(subject string) channel.Message {
	return channel.Message{
		ID: uuid.Must(uuid.NewV7()), RequestID: uuid.Must(uuid.NewV7()), BizType: "approval.todo", Address: "zoe@example.com", Subject: subject,
		HTML: `<p>你好 <b>Zoe</b></p><script>alert(1)</script><img src="https://example.com/pixel">`,
	}
}

func send(t *testing.T, b *Mailbox, m channel.Message) {
	t.Helper()
	if got := b.Send(t.Context(), m); got.Class != model.ClassSuccess || got.ProviderID != m.ID.String()+"@example.com" {
		t.Fatalf("got %+v", got)
	}
}

func get(t *testing.T, b *Mailbox, path string, status int) (body string, header http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	if w.Code != status {
		t.Fatalf("%s: status %d", path, w.Code)
	}
	return w.Body.String(), w.Header()
}

func TestShowsWhatWouldHaveBeenMailed(t *testing.T) {
	b := open(t)
	if body, _ := get(t, b, Path, 200); !strings.Contains(body, "No message yet") {
		t.Error("an empty mailbox does not say so")
	}
	m := message("<script>alert(1)</script> & 你好")
	send(t, b, m)
	send(t, b, m) // a second attempt
	page := Path + "/" + m.ID.String()
	for path, wants := range map[string][]string{
		Path:             {"&lt;script&gt;alert(1)&lt;/script&gt; &amp; 你好", "zoe@example.com", "sent 2 times", page},
		page:             {"&lt;script&gt;", "Zoe", "你好", "Message-ID", m.RequestID.String(), "<iframe sandbox src=", page + "/html", page + "/source"},
		page + "/html":   {m.HTML},
		page + "/source": {"Message-ID: <" + m.ID.String() + "@example.com>\r\n", "Auto-Submitted: auto-generated", "Subject: =?utf-8?"},
	} {
		body, header := get(t, b, path, 200)
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %q is missing", path, want)
			}
		}
		if strings.HasPrefix(header.Get("Content-Type"), "text/html") && path != page+"/html" && strings.Contains(body, "<script") {
			t.Errorf("%s: a script", path)
		}
		csp := header.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'") || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", path, header)
		}
		if path == page+"/html" && !strings.HasSuffix(csp, "; sandbox") {
			t.Errorf("%s: not in a sandbox: %s", path, csp)
		}
	}
	for _, path := range []string{Path + "/" + uuid.NewString(), Path + "/x", Path + "/x/html", "/dev/other"} {
		get(t, b, path, 404)
	}
	get(t, b, Path+"/", 301)
}

func TestKeepsTheLastMessages(t *testing.T) {
	b := open(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range capacity / 2 {
				send(t, b, message("many"))
			}
		})
	}
	group.Wait()
	last := message("the last")
	send(t, b, last)
	if got := b.Messages(); len(got) != capacity || got[0].ID != last.ID {
		t.Errorf("%d are kept", len(got))
	}
	b.limit = 100 << 10
	big := message("big")
	big.Text = strings.Repeat("x", b.limit/3)
	for range 5 {
		send(t, b, big)
	}
	if got := b.Messages(); len(got) > 3 || b.bytes > b.limit {
		t.Errorf("%d messages, %d bytes", len(got), b.bytes)
	}
}

func TestRefusesWhatCannotBeWritten(t *testing.T) {
	b := open(t)
	m := message("Hello\r\nBcc: victim@example.com")
	if got := b.Send(t.Context(), m); got.Class != model.ClassPermanent || strings.Contains(got.Text, "victim") {
		t.Errorf("got %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := b.Send(ctx, message("late")); got.Class != model.ClassTransient {
		t.Errorf("got %+v", got)
	}
	if len(b.Messages()) != 0 {
		t.Error("it is kept")
	}
	if _, err := New("nobody"); err == nil {
		t.Error("a sender without an address")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
