package running

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/posthouse/posthouse/internal/config"
)

// What the servers know and nobody may see.
const (
	MailUser     = "posthouse"
	MailPassword = "hunter2-Kiefernzapfen"
	Token        = "tok_Zirbelkiefer_8842"
)

// The environment that a file refers to for them.
const (
	envPassword = "POSTHOUSE_TEST_MAIL_PASSWORD"
	envToken    = "POSTHOUSE_TEST_TOKEN"
)

// Notify is what the tests vary of notifications.
type Notify struct {
	Templates string // folder; see Templates
	Keys      string // POSTHOUSE_KEYS
	Channels  []Channel
	Policies  []Policy
	Retry     string // the section, in YAML's flow style
}

// Channel is one channel; zero values mean the defaults of the product.
type Channel struct {
	Name        string
	Mail        *MailServer // of an e-mail channel
	MailPort    int         // of one without TLS and log-in, where there is no Mail
	Provider    string      // the URL of an HTTP channel; in-app where there is neither
	OnUncertain string
	Concurrency int
	ReadTimeout time.Duration
	Breaker     int // failures in a row
}

// Policy is one policy.
type Policy struct {
	BizType string // empty: all
	Send    []string
}

// QuickRetry waits little between attempts.
const QuickRetry = "{base: 50ms, cap: 200ms, jitter: 0s, max_attempts: 6}"

// NewNotify returns a configuration with a key, templates and quick retries.
func NewNotify(t *testing.T, channels []Channel, policies ...Policy) *Notify {
	t.Helper()
	return &Notify{Templates: Templates(t), Keys: config.GenerateKey("k1"), Channels: channels, Policies: policies, Retry: QuickRetry}
}

// Templates makes a folder with the template "todo", whose variables are title,
// amount and, sensitive, code.
func Templates(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "templates")
	err := os.CopyFS(folder, fstest.MapFS{
		"todo/template.yaml": {Data: []byte(`default_locale: en
variables:
  required: [title]
  properties:
    title: {type: string, maxLength: 100}
    amount: {type: number, default: 0}
    code: {type: string, sensitive: true, default: "none"}
`)},
		"todo/in_app.en.md":         {Data: []byte("# To do: {{.title}}\n\nAmount {{.amount}}, code {{.code}}\n")},
		"todo/email.en.subject.txt": {Data: []byte("To do: {{.title}}")},
		"todo/email.en.html":        {Data: []byte("<p>{{.title}}, {{.amount}}: {{.code}}</p>")},
		"todo/text.en.txt":          {Data: []byte("{{.title}}, {{.amount}}: {{.code}}")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

func (n *Notify) env() []string {
	if n == nil {
		return nil
	}
	env := []string{"POSTHOUSE_KEYS=" + n.Keys, envPassword + "=" + MailPassword, envToken + "=" + Token}
	for _, c := range n.Channels {
		if c.Mail != nil {
			return append(env, "SSL_CERT_FILE="+c.Mail.authority)
		}
	}
	return env
}

func (n *Notify) write(b *strings.Builder) {
	fmt.Fprintf(b, "templates: %q\nretry: %s\nchannels:\n", n.Templates, or(n.Retry, "{}"))
	for _, c := range n.Channels {
		fmt.Fprintf(b, "  %s: %s\n", c.Name, c.yaml())
	}
	b.WriteString("policies:\n")
	for _, p := range n.Policies {
		when := ""
		if p.BizType != "" {
			when = fmt.Sprintf("when: 'biz_type == %q', ", p.BizType)
		}
		fmt.Fprintf(b, "  - {%ssend: [%s]}\n", when, strings.Join(p.Send, ", "))
	}
}

func (c Channel) yaml() string {
	common := fmt.Sprintf("concurrency: %d", or(c.Concurrency, 8))
	if c.Breaker != 0 {
		common += fmt.Sprintf(", breaker: {failures: %d}", c.Breaker)
	}
	if c.OnUncertain != "" {
		common += ", on_uncertain: " + c.OnUncertain
	}
	smtp := func(port int, more string) string {
		return fmt.Sprintf(`{type: email, smtp: {host: 127.0.0.1, port: %d, connect_timeout: 3s, read_timeout: %v%s}, from: "Posthouse <no-reply@example.com>", %s}`,
			port, or(c.ReadTimeout, 5*time.Second), more, common)
	}
	switch {
	case c.Mail != nil:
		return smtp(c.Mail.Port, fmt.Sprintf(`, username: %s, password: "${%s}"`, MailUser, envPassword))
	case c.MailPort != 0:
		return smtp(c.MailPort, ", tls: none")
	case c.Provider != "":
		return fmt.Sprintf(`{type: http, request: {url: "%s/${%s}?token=${%s}", headers: {Authorization: "Bearer ${%s}", Idempotency-Key: "{{.delivery.id}}"},
           body: '{"to": {{json .address}}, "text": {{json .body}}}', read_timeout: %v}, provider_id: body.sid, %s}`,
			c.Provider, envName, envToken, envToken, or(c.ReadTimeout, 5*time.Second), common)
	}
	return "{type: in_app}"
}
