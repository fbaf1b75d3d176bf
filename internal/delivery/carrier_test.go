package delivery

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/sqlite"
	"github.com/posthouse/posthouse/internal/workqueue"
)

// rig is a Carrier on an engine on a real SQLite file, inside a synctest bubble.
type rig struct {
	t        *testing.T
	store    *sqlite.Store
	ring     *config.KeyRing
	channels map[string]*provider
	sources  map[string]model.Source
	template model.TemplateID
	log      *lines
	registry *prometheus.Registry

	carrier *Carrier
	engine  *workqueue.Engine
}

// provider is a sender that does as it is told, and remembers.
type provider struct {
	took time.Duration // one call

	mu     sync.Mutex
	answer func(m channel.Message) channel.Result
	calls  []call
	closed int
	inside crowd
}

type call struct {
	id      uuid.UUID
	address string
	text    string
	at      time.Time
	class   model.Class
}

type crowd struct{ now, most int }

func (p *provider) Send(ctx context.Context, m channel.Message) channel.Result {
	p.mu.Lock()
	answer := p.answer
	p.inside.now++
	p.inside.most = max(p.inside.most, p.inside.now)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.inside.now--
		p.mu.Unlock()
	}()
	at := time.Now()
	if p.took > 0 {
		select {
		case <-time.After(p.took):
		case <-ctx.Done():
		}
	}
	r := channel.Result{Class: model.ClassSuccess, ProviderID: "P-" + m.ID.String()[:4]}
	p.remember(call{id: m.ID, address: m.Address, text: m.Text, at: at})
	if answer != nil {
		r = answer(m)
	}
	p.mu.Lock()
	p.calls[len(p.calls)-1].class = r.Class
	p.mu.Unlock()
	return r
}

func (p *provider) remember(c call) {
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
}

func (p *provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed++
	return nil
}

// answers is what it does from now on; nil: it accepts.
func (p *provider) answers(f func(m channel.Message) channel.Result) {
	p.mu.Lock()
	p.answer = f
	p.mu.Unlock()
}

func (p *provider) always(r channel.Result) {
	p.answers(func(channel.Message) channel.Result { return r })
}

func (p *provider) made() []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]call(nil), p.calls...)
}

// accepted counts, for each delivery, how often it was.
func (p *provider) accepted() map[uuid.UUID]int {
	n := map[uuid.UUID]int{}
	for _, c := range p.made() {
		if c.class == model.ClassSuccess {
			n[c.id]++
		}
	}
	return n
}

// lines is what was logged.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func (l *lines) errors() int { return strings.Count(l.String(), "level=ERROR") }

// inBubble runs f on a rig with the given channels; each is changed first.
func inBubble(t *testing.T, channels []Channel, f func(t *testing.T, r *rig)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store, err := sqlite.Open(sqlite.Config{Path: filepath.Join(dir, "test.db")})
		must(t, err)
		defer func() { must(t, store.Close()) }()
		_, err = store.MigrateUp(t.Context())
		must(t, err)
		r := &rig{t: t, store: store, channels: map[string]*provider{}, sources: map[string]model.Source{}, log: &lines{}, registry: prometheus.NewRegistry()}
		r.ring, err = config.ParseKeys("k1:" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef")))
		must(t, err)
		ids, err := store.PutTemplates(t.Context(), []model.TemplateVersion{{Code: "code", Kind: "text", Text: "Code {{.code}} for {{.name}}",
			Schema: `{"type":"object","properties":{"code":{"type":"string","sensitive":true},"name":{"type":"string"}},"required":["name","code"],"additionalProperties":false}`}})
		must(t, err)
		r.template = ids[0]
		for i := range channels {
			r.register(&channels[i])
		}
		r.start(channels)
		defer r.stop()
		f(t, r)
	})
}

func (r *rig) register(c *Channel) {
	r.t.Helper()
	if !c.Policy.Delivers() {
		c.Policy = Retry{}.Policy(model.UncertainResend)
	}
	sources, err := r.store.Register(r.t.Context(), []model.SourceSpec{SpecOf(c.Name, c.Policy)})
	must(r.t, err)
	c.Queue = sources[0]
	r.sources[c.Name] = c.Queue
	if c.Sender == nil {
		p := &provider{}
		r.channels[c.Name], c.Sender = p, p
	} else if p, ok := c.Sender.(*provider); ok {
		r.channels[c.Name] = p
	}
}

func (r *rig) start(channels []Channel) {
	r.t.Helper()
	r.carrier, r.engine = r.instance(channels, r.registry)
}

// instance starts one more process, as it were.
func (r *rig) instance(channels []Channel, registry prometheus.Registerer) (*Carrier, *workqueue.Engine) {
	r.t.Helper()
	log := slog.New(slog.NewTextHandler(r.log, nil))
	engine, err := workqueue.New(workqueue.Config{Store: r.store, Logger: log})
	must(r.t, err)
	carrier, err := New(Config{Store: r.store, Ring: r.ring, Channels: channels, Engine: engine, Logger: log, Registerer: registry})
	must(r.t, err)
	for _, q := range carrier.Queues() {
		must(r.t, engine.Add(q))
	}
	must(r.t, engine.Start(r.t.Context()))
	carrier.Start()
	return carrier, engine
}

func (r *rig) stop() {
	r.engine.Stop()
	r.carrier.Stop()
}

// put accepts n requests, each with one delivery through each of the channels.
func (r *rig) put(n int, change func(*model.NewRequest), channels ...string) (deliveries []uuid.UUID) {
	r.t.Helper()
	requests := make([]model.NewRequest, n)
	for i := range requests {
		id := uuid.Must(uuid.NewV7())
		requests[i] = model.NewRequest{
			ID: id, Key: "k:" + id.String(), BizType: "test", Template: "code", Recipient: fmt.Sprint("u", i), Priority: model.PriorityNormal,
			Variables: json.RawMessage(`{"code":"•••","name":"Ada"}`), Sensitive: r.ring.Seal([]byte(`{"/code":"493817"}`), SensitiveContext(id)),
		}
		for _, name := range channels {
			d := uuid.Must(uuid.NewV7())
			requests[i].Choices = append(requests[i].Choices, model.Choice{Channel: name, Reason: "policy 1"})
			requests[i].Deliveries = append(requests[i].Deliveries, model.NewDelivery{
				ID: d, Channel: r.sources[name].ID, Template: r.template, Reason: "policy 1", Masked: "•••", Address: r.ring.Seal([]byte("secret-address"), AddressContext(d)),
			})
			deliveries = append(deliveries, d)
		}
		if change != nil {
			change(&requests[i])
		}
	}
	for len(requests) > 0 {
		page := requests[:min(len(requests), 500)]
		requests = requests[len(page):]
		_, err := r.store.PutRequests(r.t.Context(), page)
		must(r.t, err)
	}
	for _, name := range channels {
		r.engine.Wake(r.sources[name].ID)
	}
	return deliveries
}

func (r *rig) delivery(id uuid.UUID) (model.DeliveryView, []model.AttemptView) {
	r.t.Helper()
	v, attempts, err := r.store.Delivery(r.t.Context(), id)
	must(r.t, err)
	return v, attempts
}

func (r *rig) stats(name string) model.SourceStats {
	r.t.Helper()
	stats, err := r.store.Stats(r.t.Context())
	must(r.t, err)
	for _, s := range stats {
		if s.Source.ID == r.sources[name].ID {
			return s
		}
	}
	r.t.Fatalf("no channel %q", name)
	return model.SourceStats{}
}

func (r *rig) status(name string) ChannelStatus {
	r.t.Helper()
	all, err := r.carrier.Channels(r.t.Context())
	must(r.t, err)
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	r.t.Fatalf("no channel %q", name)
	return ChannelStatus{}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
