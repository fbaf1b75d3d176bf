package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/posthouse/posthouse/client"
	"github.com/posthouse/posthouse/test/internal/running"
)

func TestMain(m *testing.M) { running.Main(m, 6) }

// scale picks the short form of a number, or the long one.
func scale(short, long int) int {
	if os.Getenv("POSTHOUSE_SOAK") == "1" {
		return long
	}
	return short
}

const (
	patience = 40 * time.Second // for what takes a few seconds on a machine of its own
	address  = "zhang.wei.7731@example.com"
	phone    = "+8613800138777"
)

// engines are SQLite and those databases that several processes can share: MySQL
// speaks the dialect of MariaDB.
var engines = slices.DeleteFunc(slices.Clone(running.Engines), func(e running.Engine) bool { return e.Name == "MySQL" })

// fleet are the servers of one test.
type fleet struct {
	t   *testing.T
	cfg running.Config
	all []*running.Server
}

// ready makes n servers, one on SQLite, and starts none.
func ready(t *testing.T, e running.Engine, n int, notify *running.Notify) *fleet {
	t.Helper()
	if e.Own == "" {
		n = 1
	}
	f := &fleet{t: t, cfg: running.Config{Store: e.Fresh(t), Notify: notify, LogLevel: "debug"}}
	for i := range n {
		f.all = append(f.all, f.another(string(rune('a'+i)), notify))
	}
	return f
}

// another makes one more server on the same store.
func (f *fleet) another(name string, notify *running.Notify) *running.Server {
	cfg := f.cfg
	cfg.Name, cfg.Notify = name, notify
	return running.NewServer(f.t, cfg)
}

// launch makes n servers, one on SQLite, and starts them.
func launch(t *testing.T, e running.Engine, n int, notify *running.Notify) *fleet {
	t.Helper()
	f := ready(t, e, n, notify)
	f.start(f.all...)
	return f
}

func (f *fleet) start(servers ...*running.Server) {
	f.t.Helper()
	for _, s := range servers {
		s.Start("")
	}
	for _, s := range servers {
		s.WaitReady()
	}
}

// a is the first server, b the last: another one, where there are several.
func (f *fleet) a() *running.Server { return f.all[0] }
func (f *fleet) b() *running.Server { return f.all[len(f.all)-1] }

// api is a client of one server.
func (f *fleet) api(s *running.Server) *client.Client {
	f.t.Helper()
	c, err := client.New("http://"+s.Admin, client.Options{Actor: "tester", Attempts: 1})
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// accept submits to a server and fails the test if it is refused.
func (f *fleet) accept(s *running.Server, n client.Notification) client.Receipt {
	f.t.Helper()
	r, err := f.api(s).Notify(f.t.Context(), n)
	if err != nil {
		f.t.Fatalf("notify: %v", err)
	}
	return r
}

// detail asks a server for one delivery.
func (f *fleet) detail(s *running.Server, id string) client.DeliveryDetail {
	f.t.Helper()
	d, err := f.api(s).Delivery(f.t.Context(), id)
	if err != nil {
		f.t.Fatalf("delivery: %v", err)
	}
	return d
}

// await waits until a delivery has one of the statuses.
func (f *fleet) await(s *running.Server, id string, want ...client.DeliveryStatus) (d client.DeliveryDetail) {
	f.t.Helper()
	api := f.api(s)
	running.Eventually(f.t, patience, fmt.Sprintf("the delivery is %v", want), func() (err error) {
		if d, err = api.Delivery(f.t.Context(), id); err != nil {
			return err
		}
		if !slices.Contains(want, d.Status) {
			return fmt.Errorf("it is %s after %d attempts (%s %s)", d.Status, d.AttemptCount, d.ErrorCode, d.ErrorText)
		}
		return nil
	})
	return d
}

// channel asks a server how a channel stands.
func (f *fleet) channel(s *running.Server, name string) client.Channel {
	f.t.Helper()
	all, err := f.api(s).Channels(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, c := range all {
		if c.Name == name {
			return c
		}
	}
	f.t.Fatalf("there is no channel %s", name)
	return client.Channel{}
}

// awaitChannel waits until a channel stands so.
func (f *fleet) awaitChannel(s *running.Server, name, what string, holds func(client.Channel) bool) {
	f.t.Helper()
	running.Eventually(f.t, patience, what, func() error {
		if c := f.channel(s, name); !holds(c) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// awaitEnd waits until a server has ended by itself: it was killed.
func (f *fleet) awaitEnd(s *running.Server) {
	f.t.Helper()
	if !s.WaitExit(patience) {
		f.t.Fatal("the server was to be killed, and lives")
	}
	if !s.WasKilled() {
		f.t.Fatalf("the server was to be killed, and ended by itself: %s", s.Ending())
	}
}

// count answers a query for one number.
func (f *fleet) count(query string) (n int) {
	f.t.Helper()
	err := running.Inspect(f.cfg.Store, func(db *running.Database) (err error) {
		n, err = db.Count(query)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

// of finds a channel's delivery.
func of(t *testing.T, r client.Receipt, channel string) client.ReceiptDelivery {
	t.Helper()
	for _, d := range r.Deliveries {
		if d.Channel == channel {
			return d
		}
	}
	t.Fatalf("there is no delivery by %s: %+v", channel, r)
	return client.ReceiptDelivery{}
}

// That very notification, with this key and business type.
func todo(key, bizType string) client.Notification {
	return client.Notification{
		IdempotencyKey: key, BizType: bizType, Template: "todo", Variables: map[string]any{"title": "Travel"},
		Recipient: client.Recipient{ID: "u1008", Email: address, Phone: phone},
	}
}

// soon has a notification sent a moment after it was accepted, and so answered
// before a server dies that is killed while it sends.
func soon(n client.Notification) client.Notification {
	n.NotBefore = time.Now().Add(500 * time.Millisecond)
	return n
}

var httpClient = &http.Client{Timeout: 30 * time.Second}

// post sends a body as it is.
func post(ctx context.Context, s *running.Server, path, body string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Admin+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return finish(req)
}

// get returns what is answered.
func get(ctx context.Context, s *running.Server, path string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Admin+path, nil)
	if err != nil {
		return 0, nil, err
	}
	return finish(req)
}

func finish(req *http.Request) (status int, answer []byte, err error) {
	resp, err := httpClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// noFaults fails the test for what the provider saw go wrong.
func noFaults(t *testing.T, p *running.Provider) {
	t.Helper()
	for _, fault := range p.Faults() {
		t.Errorf("at the provider: %s", fault)
	}
}

// isRefused fails the test unless the call was refused with this status, and
// returns the fields that are named.
func isRefused(t *testing.T, err error, status int) (fields []string) {
	t.Helper()
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || refused.Status != status {
		t.Fatalf("the call ended with %v, want a %d", err, status)
	}
	for _, f := range refused.Fields {
		fields = append(fields, f.Field)
	}
	slices.Sort(fields)
	return fields
}
