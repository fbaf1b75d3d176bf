package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// cluster is the instances.
type cluster struct {
	settings
	dir    string
	store  string // URL
	target string // URL

	mu  sync.Mutex
	all []*instance
}

// instance is one posthouse, which can be killed and started again.
type instance struct {
	number      int
	door, admin string
	config      string

	mu     sync.Mutex
	cmd    *exec.Cmd
	state  string // "up", "frozen", "down", "stopping"
	exited chan struct{}
}

const source = "orders"

func (c *cluster) yaml(door, admin string) string {
	return fmt.Sprintf(`listen: %s
admin: {listen: %s}
store: ${POSTHOUSE_STORE}
lock: {lease: %v}
drain: 10s
sources:
  %s:
    verify: {kind: none}
    handler: {http: {url: %q, allow_private: true}}
    consume: {enabled: true, order: %s, key: body.key, partitions: 16, on_retry: skip, round_interval: 500ms,
              backoff: [1s, 2s, 5s], timeout: 5s, orphan_after: 25s}
`, door, admin, c.lease, source, c.target, c.order)
}

// add starts one more.
func (c *cluster) add(ctx context.Context) error {
	c.mu.Lock()
	i := &instance{number: len(c.all) + 1}
	c.mu.Unlock()
	i.config = filepath.Join(c.dir, fmt.Sprintf("%d.yaml", i.number))
	var err error
	if i.door, err = freeAddress(ctx); err != nil {
		return err
	}
	if i.admin, err = freeAddress(ctx); err != nil {
		return err
	}
	if err := c.start(i); err != nil {
		return err
	}
	c.mu.Lock()
	c.all = append(c.all, i)
	c.mu.Unlock()
	return nil
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// start starts it with the configuration of now.
func (c *cluster) start(i *instance) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cmd != nil {
		return fmt.Errorf("%d is there already", i.number)
	}
	if err := os.WriteFile(i.config, []byte(c.yaml(i.door, i.admin)), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(c.dir, fmt.Sprintf("%d.log", i.number)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(c.binary, "serve", "--config", i.config) //nolint:gosec,noctx // what is run is said by whoever runs this; it outlives the call
	cmd.Env = append(os.Environ(), "POSTHOUSE_STORE="+c.store)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start instance %d: %w", i.number, err), log.Close())
	}
	i.cmd, i.state, i.exited = cmd, "up", make(chan struct{})
	exited := i.exited
	go func() {
		_ = cmd.Wait() // how it ended is in its log, or was asked for
		_ = log.Close()
		i.mu.Lock()
		i.cmd, i.state = nil, "down"
		i.mu.Unlock()
		close(exited)
	}()
	return nil
}

// signal sends it to the process; state is what it then is.
func (i *instance) signal(sig syscall.Signal, state string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cmd == nil {
		return fmt.Errorf("%d is down", i.number)
	}
	if err := i.cmd.Process.Signal(sig); err != nil {
		return err
	}
	if state != "" {
		i.state = state
	}
	return nil
}

func (i *instance) look() (state string, pid int, exited <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cmd != nil {
		pid = i.cmd.Process.Pid
	}
	return i.state, pid, i.exited
}

func (c *cluster) list() []*instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*instance(nil), c.all...)
}

// roll restarts all, one after the other, as a deployment does.
func (c *cluster) roll(tell func(string)) {
	for _, i := range c.list() {
		if state, _, exited := i.look(); state != "down" {
			if state == "frozen" {
				_ = i.signal(syscall.SIGCONT, "up")
			}
			if err := i.signal(syscall.SIGTERM, "stopping"); err == nil {
				<-exited
			}
		}
		if err := c.start(i); err != nil {
			tell(err.Error())
			return
		}
		if err := i.waitReady(); err != nil {
			tell(err.Error())
			return
		}
		tell(fmt.Sprintf("%d is restarted", i.number))
	}
}

func (i *instance) waitReady() error {
	for range 300 {
		r, err := http.Get("http://" + i.admin + "/readyz") //nolint:noctx // a moment, on this machine
		if err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%d is not ready after 30 s", i.number)
}

func (c *cluster) stopAll() {
	for _, i := range c.list() {
		_ = i.signal(syscall.SIGCONT, "")
		_ = i.signal(syscall.SIGTERM, "stopping")
	}
	for _, i := range c.list() {
		_, _, exited := i.look()
		select {
		case <-exited:
		case <-time.After(15 * time.Second):
			_ = i.signal(syscall.SIGKILL, "")
		}
	}
}

// holdings asks any living instance how many partitions each process holds, by
// the end of its name, which is its process id.
func (c *cluster) holdings(ctx context.Context) (held map[string]int, order string) {
	for _, i := range c.list() {
		if state, _, _ := i.look(); state != "up" {
			continue
		}
		var instances struct {
			Instances []struct {
				Name       string
				Partitions []struct{ Partition int }
			}
		}
		var sources struct {
			Sources []struct {
				Name, Order string
				Generation  int
				Draining    bool
			}
		}
		if get(ctx, "http://"+i.admin+"/v1/instances", &instances) != nil || get(ctx, "http://"+i.admin+"/v1/inbox/sources", &sources) != nil {
			continue
		}
		held = map[string]int{}
		for _, one := range instances.Instances {
			_, pid, _ := strings.Cut(one.Name[max(strings.LastIndexByte(one.Name, '-'), 0):], "-")
			held[pid] = len(one.Partitions)
		}
		for _, s := range sources.Sources {
			if order = fmt.Sprintf("%s, generation %d", s.Order, s.Generation); s.Draining {
				order += ", draining"
			}
		}
		return held, order
	}
	return nil, "nobody to ask"
}

func get(ctx context.Context, url string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return json.NewDecoder(response.Body).Decode(into)
}
