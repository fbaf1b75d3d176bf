package running

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

// A sender that gets no 2xx pushes the same message again, waiting a little
// longer each time, and gives up at last.
const (
	firstPause  = 20 * time.Millisecond
	longestWait = 250 * time.Millisecond
	mostTries   = 600
)

// Push is one logical message of the load: what its sender knows of it.
type Push struct {
	Source string
	Tries  int
	Acks   int       // answers that said 2xx
	Sent   time.Time // the first try
	Acked  time.Time // the first 2xx
}

// Answer is how one try ended.
type Answer struct {
	Door       string
	Sent, Done time.Time
	Status     int   // 0 where there was no answer
	Err        error // why there was none
}

// Acked says whether the push was acknowledged.
func (a Answer) Acked() bool { return a.Status >= 200 && a.Status < 300 }

// LoadConfig says who pushes what to whom.
type LoadConfig struct {
	// Doors are host:port. Message n goes to Doors[n % len(Doors)], and on to the
	// next one where it was not acknowledged.
	Doors       []string
	Writing     Writing       // default Binary
	Sources     []string      // message n goes to Sources[n % len(Sources)]
	Connections int           // default 64
	Pause       time.Duration // of each connection after a message; default none
	Timeout     time.Duration // of one try; default 30s, which is a failure of its own
	// Answered is called after each try, from many goroutines.
	Answered func(Answer)
}

// Load pushes numbered messages over a fixed number of keep-alive connections.
// It pushes only as many as were granted.
type Load struct {
	cfg    LoadConfig
	client *http.Client
	ctx    context.Context

	mu      sync.Mutex
	changed *sync.Cond
	pushes  []Push
	granted int
	done    int // pushes that were acknowledged or given up
	ended   bool
	workers sync.WaitGroup
}

// NewLoad starts the senders; they wait for the first grant, and end with the
// test.
func NewLoad(t *testing.T, cfg LoadConfig) *Load {
	t.Helper()
	cfg.Connections = or(cfg.Connections, 64)
	if cfg.Writing.Body == nil {
		cfg.Writing = Binary
	}
	if cfg.Answered == nil {
		cfg.Answered = func(Answer) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{cfg: cfg, ctx: ctx, client: &http.Client{
		Timeout: or(cfg.Timeout, 30*time.Second),
		Transport: &http.Transport{
			MaxConnsPerHost: cfg.Connections, MaxIdleConnsPerHost: cfg.Connections, DisableCompression: true,
		},
	}}
	l.changed = sync.NewCond(&l.mu)
	for range cfg.Connections {
		l.workers.Go(l.work)
	}
	t.Cleanup(func() {
		cancel()
		l.End()
		l.client.CloseIdleConnections()
	})
	return l
}

// Grant allows n more messages.
func (l *Load) Grant(n int) {
	l.mu.Lock()
	l.granted += n
	l.mu.Unlock()
	l.changed.Broadcast()
}

// End takes back what was granted and not begun, and waits until what was
// begun is acknowledged or given up.
func (l *Load) End() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.changed.Broadcast()
	l.workers.Wait()
}

// Wait waits until all that was granted is acknowledged or given up.
func (l *Load) Wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.done < l.granted {
		l.changed.Wait()
	}
}

// Idle says whether nothing that was granted is left to do.
func (l *Load) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done == l.granted
}

// Acknowledged counts the messages with at least one 2xx.
func (l *Load) Acknowledged() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pushes {
		if p.Acks > 0 {
			n++
		}
	}
	return n
}

// Record returns what is known of every message that was begun, by its number.
func (l *Load) Record() []Push {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Push(nil), l.pushes...)
}

func (l *Load) work() {
	for {
		n, source, ok := l.next()
		if !ok {
			return
		}
		l.deliver(n, source)
		if l.cfg.Pause > 0 {
			l.rest(l.cfg.Pause)
		}
	}
}

func (l *Load) next() (n int, source string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.pushes) >= l.granted && !l.ended {
		l.changed.Wait()
	}
	if l.ended {
		return 0, "", false
	}
	n = len(l.pushes)
	source = l.cfg.Sources[n%len(l.cfg.Sources)]
	l.pushes = append(l.pushes, Push{Source: source})
	return n, source, true
}

// deliver pushes message n until it is acknowledged, or often enough. One that
// is given up ends the load: whoever is pushed to will not come back, and each
// of the others would take as long.
func (l *Load) deliver(n int, source string) {
	defer func() {
		l.mu.Lock()
		l.done++
		if l.pushes[n].Acks == 0 {
			l.ended = true
			l.granted = len(l.pushes)
		}
		l.mu.Unlock()
		l.changed.Broadcast()
	}()
	body := l.cfg.Writing.Body(n)
	pause := firstPause
	for try := 1; try <= mostTries && l.ctx.Err() == nil; try++ {
		door := l.cfg.Doors[(n+try-1)%len(l.cfg.Doors)]
		a := Post(l.ctx, l.client, door, source, l.cfg.Writing.ContentType, body)
		l.mu.Lock()
		p := &l.pushes[n]
		p.Tries++
		if try == 1 {
			p.Sent = a.Sent
		}
		if a.Acked() {
			p.Acks++
			p.Acked = a.Done
		}
		l.mu.Unlock()
		l.cfg.Answered(a)
		if a.Acked() {
			return
		}
		l.rest(pause)
		pause = min(2*pause, longestWait)
	}
}

// Post pushes one body once.
func Post(ctx context.Context, client *http.Client, door, source, contentType string, body []byte) Answer {
	a := Answer{Door: door, Sent: time.Now()}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+door+"/in/"+source, bytes.NewReader(body))
	if err != nil {
		a.Err = err
		return a
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := client.Do(req)
	a.Done = time.Now()
	if err != nil {
		a.Err = err
		return a
	}
	// The status is the answer; the rest is read so that the connection is kept.
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	a.Status = resp.StatusCode
	return a
}

func (l *Load) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.ctx.Done():
	}
}
