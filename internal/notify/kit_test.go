package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/sqlite"
	"github.com/posthouse/posthouse/internal/template"
)

const (
	secretCode    = "493817"
	secretAddress = "zhang.wei@example.com"
)

var testTemplates = fstest.MapFS{
	"todo/template.yaml": {Data: []byte(`default_locale: en
variables:
  required: [title]
  properties:
    title: {type: string, maxLength: 100}
    amount: {type: number}
    code: {type: string, sensitive: true, default: "none"}
`)},
	"todo/in_app.en.md":             {Data: []byte("# To do: {{.title}}\n\nCode {{.code}}\n")},
	"todo/in_app.fr.md":             {Data: []byte("# A faire : {{.title}}\n\nCode {{.code}}\n")},
	"todo/email.en.subject.txt":     {Data: []byte("To do: {{.title}}")},
	"todo/email.en.html":            {Data: []byte("<p>{{.title}} {{.code}} {{.amount | default 0}}</p>")},
	"todo/text.en.txt":              {Data: []byte("{{.title}} {{.code}}")},
	"mailonly/template.yaml":        {Data: []byte("default_locale: en\nvariables:\n  properties:\n    title: {type: string, default: x}\n")},
	"mailonly/email.en.subject.txt": {Data: []byte("It {{.title}}")},
	"mailonly/email.en.html":        {Data: []byte("<p>{{.title}}</p>")},
}

// anAddress takes all that has an @ or begins with +.
type anAddress struct{}

func (anAddress) Check(address string) (kept, masked string, err error) {
	if !strings.Contains(address, "@") && !strings.HasPrefix(address, "+") {
		return "", "", errors.New("is no address")
	}
	return strings.ToLower(address), address[:1] + "•••", nil
}

// kit is a Center on a real store.
type kit struct {
	*Center
	store *sqlite.Store
	path  string
	ring  *config.KeyRing
	log   *bytes.Buffer
	reg   *prometheus.Registry
	cfg   Config

	mu    sync.Mutex
	woken []model.SourceID
}

// newKit makes a kit; change may change what its Center is made of.
func newKit(t testing.TB, change func(*Config)) *kit {
	t.Helper()
	k := &kit{path: filepath.Join(t.TempDir(), "posthouse.db"), log: &bytes.Buffer{}, reg: prometheus.NewRegistry()}
	var err error
	if k.ring, err = config.ParseKeys(config.GenerateKey("k1")); err != nil {
		t.Fatal(err)
	}
	if k.store, err = sqlite.Open(sqlite.Config{Path: k.path}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.store.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx := context.Background()
	if _, err := k.store.MigrateUp(ctx); err != nil {
		t.Fatal(err)
	}
	var specs []model.SourceSpec
	for _, name := range []string{"in_app", "mail", "text"} {
		specs = append(specs, model.SourceSpec{
			Name: model.ChannelPrefix + name, Tenant: model.TenantDelivery, Enabled: true,
			Policy: model.RetryPolicy{MaxRetry: 5, Uncertain: model.UncertainResend},
		})
	}
	queues, err := k.store.Register(ctx, specs)
	if err != nil {
		t.Fatal(err)
	}
	set, found := template.Load(testTemplates)
	for _, p := range found {
		t.Log(p)
	}
	if set == nil {
		t.Fatal("the templates are not sound")
	}
	k.cfg = Config{
		Store: k.store, Templates: set, Ring: k.ring, Logger: slog.New(slog.NewTextHandler(k.log, nil)), Registerer: k.reg,
		Channels: []Channel{
			{Name: "in_app", Queue: queues[0].ID, Kind: template.KindInApp, InApp: true},
			{Name: "mail", Queue: queues[1].ID, Kind: template.KindEmail, AddressKind: "email", Addresses: anAddress{}},
			{Name: "text", Queue: queues[2].ID, Kind: template.KindText, AddressKind: "phone", Addresses: anAddress{}},
		},
		Policies: []Policy{
			{When: when(t, `priority == "high"`), Send: []string{"in_app", "text"}, Success: model.Aggregate{All: []string{"in_app"}, Any: []string{"text"}}},
			{When: when(t, `biz_type == "mail.only"`), Send: []string{"mail"}},
			{When: when(t, `biz_type != "nobody"`), Send: []string{"in_app", "mail"}},
		},
		OnPut: func(queues []model.SourceID) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.woken = append(k.woken, queues...)
		},
	}
	if change != nil {
		change(&k.cfg)
	}
	k.Center = k.center(t, k.cfg)
	return k
}

func (k *kit) center(t testing.TB, cfg Config) *Center {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.Start()
	t.Cleanup(c.Stop)
	return c
}

// when compiles a condition.
func when(t testing.TB, source string) *When {
	t.Helper()
	p, err := CompileWhen(source)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func submission() Submission {
	return Submission{
		IdempotencyKey: "approval:9421:assignee:u1008:v3", BizType: "approval.todo", Template: "todo",
		Recipient: Recipient{ID: "u1008", Addresses: map[string]string{"email": secretAddress}},
		Variables: json.RawMessage(`{"title":"Travel","amount":1,"code":"` + secretCode + `"}`),
	}
}

func (k *kit) accept(t testing.TB, s Submission) Receipt {
	t.Helper()
	r, err := k.Accept(context.Background(), s)
	if err != nil {
		t.Fatalf("not accepted: %v", err)
	}
	return r
}

// refused returns the error of a submission that must not be accepted.
func refused(t testing.TB, c *Center, s Submission) *Error {
	t.Helper()
	r, err := c.Accept(context.Background(), s)
	if err == nil {
		t.Fatalf("accepted as %+v", r)
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("an error of type %T", err)
	}
	if said := e.Error(); strings.Contains(said, secretCode) || strings.Contains(said, secretAddress) {
		t.Errorf("a value is repeated: %s", said)
	}
	return e
}

func (k *kit) request(t testing.TB, id uuid.UUID) model.RequestView {
	t.Helper()
	v, err := k.store.Request(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
