package crash

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
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

// push is one logical message of the load: what its sender knows of it.
type push struct {
	source string
	tries  int
	acks   int       // answers that said 2xx
	sent   time.Time // the first try
	acked  time.Time // the first 2xx
}

// answer is how one try ended.
type answer struct {
	sent, done time.Time
	status     int   // 0 where there was no answer
	err        error // why there was none
}

// loadConfig says who pushes what to whom.
type loadConfig struct {
	Door        string        // host:port
	Sources     []string      // message n goes to Sources[n % len(Sources)]
	Connections int           // default 64
	Pause       time.Duration // of each connection after a message; default none
	// Answered is called after each try, from many goroutines.
	Answered func(answer)
}

// load pushes numbered messages over a fixed number of keep-alive connections.
// It pushes only as many as were granted.
type load struct {
	cfg    loadConfig
	client *http.Client
	ctx    context.Context

	mu      sync.Mutex
	changed *sync.Cond
	pushes  []push
	granted int
	done    int // pushes that were acknowledged or given up
	ended   bool
	workers sync.WaitGroup
}

// newLoad starts the senders; they wait for the first grant, and end with the
// test.
func newLoad(t *testing.T, cfg loadConfig) *load {
	t.Helper()
	cfg.Connections = or(cfg.Connections, 64)
	if cfg.Answered == nil {
		cfg.Answered = func(answer) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cfg: cfg, ctx: ctx, client: &http.Client{
		Timeout: 30 * time.Second, // an answer that takes that long is a failure of its own
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
		l.end()
		l.client.CloseIdleConnections()
	})
	return l
}

// grant allows n more messages.
func (l *load) grant(n int) {
	l.mu.Lock()
	l.granted += n
	l.mu.Unlock()
	l.changed.Broadcast()
}

// end takes back what was granted and not begun, and waits until what was
// begun is acknowledged or given up.
func (l *load) end() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.changed.Broadcast()
	l.workers.Wait()
}

// wait waits until all that was granted is acknowledged or given up.
func (l *load) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.done < l.granted {
		l.changed.Wait()
	}
}

// idle says whether nothing that was granted is left to do.
func (l *load) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done == l.granted
}

// acknowledged counts the messages with at least one 2xx.
func (l *load) acknowledged() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pushes {
		if p.acks > 0 {
			n++
		}
	}
	return n
}

// record returns what is known of every message that was begun, by its number.
func (l *load) record() []push {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]push(nil), l.pushes...)
}

func (l *load) work() {
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

func (l *load) next() (n int, source string, ok bool) {
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
	l.pushes = append(l.pushes, push{source: source})
	return n, source, true
}

// deliver pushes message n until it is acknowledged, or often enough.
func (l *load) deliver(n int, source string) {
	defer func() {
		l.mu.Lock()
		l.done++
		l.mu.Unlock()
		l.changed.Broadcast()
	}()
	body := bodyOf(n)
	pause := firstPause
	for try := 1; try <= mostTries && l.ctx.Err() == nil; try++ {
		a := l.try(source, body)
		acked := a.status >= 200 && a.status < 300
		l.mu.Lock()
		p := &l.pushes[n]
		p.tries++
		if try == 1 {
			p.sent = a.sent
		}
		if acked {
			p.acks++
			p.acked = a.done
		}
		l.mu.Unlock()
		l.cfg.Answered(a)
		if acked {
			return
		}
		l.rest(pause)
		pause = min(2*pause, longestWait)
	}
}

func (l *load) try(source string, body []byte) (a answer) {
	req, err := http.NewRequestWithContext(l.ctx, http.MethodPost, "http://"+l.cfg.Door+"/in/"+source, bytes.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	a.sent = time.Now()
	resp, err := l.client.Do(req)
	a.done = time.Now()
	if err != nil {
		a.err = err
		return a
	}
	// The status is the answer; the rest is read so that the connection is kept.
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	a.status = resp.StatusCode
	return a
}

func (l *load) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.ctx.Done():
	}
}

// bodyOf makes the body of message n: its number in a line, then up to 2000
// random bytes, always the same. Most bodies are no valid UTF-8 and hold NULs.
func bodyOf(n int) []byte {
	body := append(strconv.AppendInt(nil, int64(n), 10), '\n')
	random := rand.New(rand.NewPCG(uint64(n), 1))
	for range random.IntN(250) {
		word := random.Uint64()
		for shift := 0; shift < 64; shift += 8 {
			body = append(body, byte(word>>shift))
		}
	}
	return body
}

// numberOf reads the number back, and says whether the body is, to the byte,
// the one that was pushed.
func numberOf(body []byte) (int, error) {
	line, _, _ := bytes.Cut(body, []byte("\n"))
	n, err := strconv.Atoi(string(line))
	if err != nil {
		return 0, fmt.Errorf("a body of %d bytes does not begin with its number", len(body))
	}
	if !bytes.Equal(body, bodyOf(n)) {
		return n, fmt.Errorf("the body of message %d is not the one that was pushed (%d bytes, want %d)", n, len(body), len(bodyOf(n)))
	}
	return n, nil
}
