package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/template/samples"
)

// notifyingConfig is a posthouse.yaml with two channels, of which one is a
// provider that takes everything.
const notifyingConfig = `listen: %s
admin: {listen: %s}
store: ${BENCH_STORE}
sources:
  idle: {verify: {kind: none}}
templates: %q
channels:
  in_app: {type: in_app}
  text: {type: http, request: {method: POST, url: %q, body: '{"to": {{json .address}}, "text": {{json .body}}}'}, address: phone}
policies:
  - {send: [in_app, text]}
`

// startNotifying starts posthouse as a user does; its push is where notifications
// go.
func (b *bench) startNotifying(ctx context.Context, db *database, provider string) (*server, error) {
	door, err := freeAddress()
	if err != nil {
		return nil, err
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	templates := filepath.Join(b.work, "templates")
	if err := os.CopyFS(templates, samples.FS()); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("write the templates: %w", err)
	}
	path := filepath.Join(b.work, "notifying.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, notifyingConfig, door, admin, templates, provider), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	s := &server{
		name: "posthouse", log: filepath.Join(b.work, "posthouse.log"),
		push: "http://" + admin + "/v1/notifications", metrics: "http://" + admin + "/metrics",
	}
	cmd := exec.CommandContext(ctx, b.binary, "serve", "--config", path) //nolint:gosec // the product
	cmd.Env = append(os.Environ(), "BENCH_STORE="+db.url, "POSTHOUSE_KEYS="+config.GenerateKey("bench"))
	return s, launch(ctx, s, cmd, "http://"+admin+"/readyz")
}

// phone is the address of a notification's number, by which the provider knows it.
func phone(number int) string { return fmt.Sprintf("+86138%08d", number) }

func numberOfPhone(body []byte) (int, bool) {
	_, rest, found := strings.Cut(string(body), "+86138")
	if !found || len(rest) < 8 {
		return 0, false
	}
	n, err := strconv.Atoi(rest[:8])
	return n, err == nil
}

// provider takes texts, and remembers when each came first.
type provider struct {
	mu    sync.Mutex
	came  []time.Time // by number
	left  int
	odd   int // texts that are nobody's, or came again
	there chan struct{}
}

func newProvider(n int) *provider {
	return &provider{came: make([]time.Time, n), left: n, there: make(chan struct{})}
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	now := time.Now()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := numberOfPhone(body)
	if !ok || n >= len(p.came) || !p.came[n].IsZero() {
		p.odd++
		return
	}
	p.came[n] = now
	if p.left--; p.left == 0 {
		close(p.there)
	}
}

// sentLatency is how long notifications took, each from when it was to be
// submitted.
type sentLatency struct {
	answered, sent []time.Duration // until its answer, and until the provider had it
}

// warmSent is how many notifications go before those that are measured.
const warmSent = 200

// sent submits notifications at a steady rate, whatever becomes of those before,
// and measures how long each takes until the provider has it.
func (b *bench) sent(ctx context.Context) (l sentLatency, err error) {
	n := warmSent + int(b.sentFor.Seconds()*float64(b.sentRate))
	p := newProvider(n)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return l, err
	}
	web := &http.Server{Handler: p, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	defer func() {
		err = errors.Join(err, web.Close())
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
	}()
	_, err = b.with(ctx, b.postgres(), func(ctx context.Context, db *database) (*server, error) {
		return b.startNotifying(ctx, db, "http://"+listener.Addr().String()+"/texts")
	}, func(s *server) error {
		began, answered, err := b.submitSteadily(ctx, s.push, n)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, s.printed())
		}
		select {
		case <-p.there:
		case <-time.After(targetWithin):
			return fmt.Errorf("%d of %d notifications were not sent\n%s", p.left, n, s.printed())
		}
		for i := warmSent; i < n; i++ {
			l.answered = append(l.answered, answered[i].Sub(began[i]))
			l.sent = append(l.sent, p.came[i].Sub(began[i]))
		}
		return nil
	}, func(db *database) error {
		if p.odd > 0 {
			return fmt.Errorf("%d texts were nobody's, or came again", p.odd)
		}
		deliveries, err := db.count(ctx, "posthouse_outcome")
		if err == nil && deliveries != 2*int64(n) {
			err = fmt.Errorf("of %d notifications %d deliveries succeeded", n, deliveries)
		}
		return err
	})
	return l, err
}

// submitSteadily submits n notifications at the rate, and returns when each was
// to be submitted, and when it was answered.
func (b *bench) submitSteadily(ctx context.Context, url string, n int) (began, answered []time.Time, err error) {
	began, answered = make([]time.Time, n), make([]time.Time, n)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	g, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for i := range n {
		began[i] = start.Add(time.Duration(i) * time.Second / time.Duration(b.sentRate))
		time.Sleep(time.Until(began[i]))
		g.Go(func() error {
			body := fmt.Sprintf(`{"idempotency_key":%q,"biz_type":"approval.todo","template":"approval_todo","locale":"en","recipient":{"id":%q,"phone":%q},"variables":%s}`,
				notificationKey(int64(i)), recipientOf(int64(i)), phone(i), variablesOf(int64(i)))
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
			if err != nil {
				return err
			}
			request.Header.Set("Content-Type", "application/json")
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, response.Body)
			answered[i] = time.Now()
			if err := errors.Join(err, response.Body.Close()); err != nil {
				return err
			}
			if response.StatusCode != http.StatusAccepted {
				return fmt.Errorf("a notification was answered %s", response.Status)
			}
			return nil
		})
	}
	return began, answered, g.Wait()
}
