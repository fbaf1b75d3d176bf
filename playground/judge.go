package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// message is what is pushed.
type message struct {
	Key string `json:"key"`
	N   int    `json:"n"`
}

// judge is the target: it handles what is handed over, and remembers what went
// wrong.
type judge struct {
	takes time.Duration

	mu      sync.Mutex
	inside  map[message]int
	done    map[message]int
	last    map[string]int // by key, the latest first attempt
	verdict verdict
}

// verdict counts.
type verdict struct {
	handled    int
	again      int // handled before: a worker was lost after it had done it, or was frozen
	disordered int // first attempts of a key after a later one
	atOnce     int // while the same message was being handled
	keyAtOnce  int // while another one of the same key was
}

func newJudge(takes time.Duration) *judge {
	return &judge{takes: takes, inside: map[message]int{}, done: map[message]int{}, last: map[string]int{}}
}

func (j *judge) serve(ctx context.Context) (url string, stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: j, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // until it is closed
	return "http://" + l.Addr().String() + "/", func() { _ = server.Close() }, nil
}

func (j *judge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, "not one of ours", http.StatusBadRequest)
		return
	}
	attempt, _ := strconv.Atoi(r.Header.Get("Posthouse-Attempt"))
	j.begin(m, attempt)
	time.Sleep(j.takes)
	j.end(m)
	w.WriteHeader(http.StatusOK)
}

func (j *judge) begin(m message, attempt int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.inside[m] > 0 {
		j.verdict.atOnce++
	}
	key := message{Key: m.Key, N: -1}
	if j.inside[key] > 0 {
		j.verdict.keyAtOnce++
	}
	if attempt <= 1 && j.done[m] == 0 {
		if m.N < j.last[m.Key] {
			j.verdict.disordered++
		}
		j.last[m.Key] = max(j.last[m.Key], m.N)
	}
	j.inside[m]++
	j.inside[key]++
}

func (j *judge) end(m message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.inside[m]--
	j.inside[message{Key: m.Key, N: -1}]--
	if j.done[m] > 0 {
		j.verdict.again++
	} else {
		j.verdict.handled++
	}
	j.done[m]++
}

func (j *judge) look() verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.verdict
}

// pardon forgets what was out of order: it was parallel.
func (j *judge) pardon() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.verdict.disordered, j.verdict.keyAtOnce = 0, 0
}

// missing counts those of the acknowledged ones that were not handled yet.
func (j *judge) missing(acknowledged map[string]int) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, upTo := range acknowledged {
		for i := 1; i <= upTo; i++ {
			if j.done[message{key, i}] == 0 {
				n++
			}
		}
	}
	return n
}
