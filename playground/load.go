package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// load pushes. Of each key one message is on its way at a time, and is pushed
// again, to whoever answers, until it is acknowledged: so its order is known.
type load struct {
	c      *cluster
	client *http.Client
	rate   atomic.Int64
	keys   chan string // those of which nothing is on its way

	mu           sync.Mutex
	acknowledged map[string]int
	pushed       int // acknowledged pushes
	refused      int // answered 503, or not at all
}

func newLoad(c *cluster, s settings) *load {
	l := &load{c: c, client: &http.Client{Timeout: 3 * time.Second}, keys: make(chan string, s.keys), acknowledged: map[string]int{}}
	l.rate.Store(int64(s.rate))
	for k := range s.keys {
		l.keys <- fmt.Sprintf("customer-%03d", k)
	}
	return l
}

func (l *load) run(ctx context.Context) {
	for ctx.Err() == nil {
		rate := l.rate.Load()
		if rate <= 0 {
			pause(ctx, 100*time.Millisecond)
			continue
		}
		pause(ctx, time.Second/time.Duration(rate))
		select {
		case key := <-l.keys:
			go l.push(ctx, key)
		case <-ctx.Done():
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (l *load) push(ctx context.Context, key string) {
	defer func() { l.keys <- key }()
	l.mu.Lock()
	n := l.acknowledged[key] + 1
	l.mu.Unlock()
	body, err := json.Marshal(message{Key: key, N: n})
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		all := l.c.list()
		i := all[rand.IntN(len(all))]
		if state, _, _ := i.look(); state == "up" && l.try(ctx, i, body) {
			l.mu.Lock()
			l.acknowledged[key] = n
			l.pushed++
			l.mu.Unlock()
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func (l *load) try(ctx context.Context, i *instance, body []byte) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+i.door+"/in/"+source, bytes.NewReader(body))
	if err != nil {
		return false
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := l.client.Do(request)
	if err == nil {
		_ = response.Body.Close()
		if response.StatusCode/100 == 2 {
			return true
		}
	}
	l.mu.Lock()
	l.refused++
	l.mu.Unlock()
	return false
}

func (l *load) look() (pushed, refused int, acknowledged map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pushed, l.refused, maps.Clone(l.acknowledged)
}
