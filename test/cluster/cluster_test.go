package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/posthouse/posthouse/test/internal/running"
)

// instances are the servers of one cluster.
type instances struct {
	t   *testing.T
	cfg running.Config
	all []*running.Server
}

// environments differ between the instances of every test: where a process
// stands must not matter.
var environments = [][]string{{"TZ=Asia/Kolkata"}, {"TZ=America/Los_Angeles"}, {"TZ=Pacific/Auckland"}}

// launch starts n servers with one configuration and waits until all are ready.
func launch(t *testing.T, n int, cfg running.Config) *instances {
	t.Helper()
	c := &instances{t: t, cfg: cfg}
	for i := range n {
		cfg.Name, cfg.Env = string(rune('a'+i)), environments[i%len(environments)]
		c.all = append(c.all, running.NewServer(t, cfg))
	}
	for _, s := range c.all {
		s.Start("")
	}
	for _, s := range c.all {
		s.WaitReady()
	}
	return c
}

// named returns the server that the target knows by that name.
func (c *instances) named(name string) *running.Server {
	return c.all[slices.IndexFunc(c.all, func(s *running.Server) bool { return s.Name == name })]
}

// others returns all but one.
func (c *instances) others(one *running.Server) []*running.Server {
	return slices.DeleteFunc(slices.Clone(c.all), func(s *running.Server) bool { return s == one })
}

func (c *instances) doors() (doors []string) {
	for _, s := range c.all {
		doors = append(doors, s.Door)
	}
	return doors
}

// roll restarts the instances one after the other, with another configuration.
func (c *instances) roll(cfg running.Config) {
	c.t.Helper()
	c.cfg = cfg
	for _, s := range c.all {
		c.restart(s)
	}
}

// restart ends one in an orderly way, and starts it with what is configured.
func (c *instances) restart(s *running.Server) {
	c.t.Helper()
	s.Terminate()
	s.Configure(c.cfg)
	s.Start("")
	s.WaitReady()
}

// stop ends all in an orderly way.
func (c *instances) stop() {
	c.t.Helper()
	for _, s := range c.all {
		s.Terminate()
	}
}

// pushes makes a load over all doors. Its senders do not wait for a frozen one.
func (c *instances) pushes(cfg running.LoadConfig) *running.Load {
	c.t.Helper()
	cfg.Doors, cfg.Timeout = c.doors(), running.AnswerWithin+2*running.Grace
	return running.NewLoad(c.t, cfg)
}

// feed grants pushes for as long as the test runs, so that at most so many wait
// to be executed: a slow machine then makes a test no longer.
func feed(t *testing.T, load *running.Load, g *running.Target, ahead int) {
	t.Helper()
	load.Grant(ahead)
	go func() {
		granted := ahead
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-t.Context().Done():
				return
			}
			if more := g.Count() + ahead - granted; more > 0 {
				load.Grant(more)
				granted += more
			}
		}
	}()
}

// holders asks the store which instance holds each partition of a source, as
// the instance's number; partitions that nobody living holds are not there.
func (c *instances) holders(source string) map[int]int64 {
	c.t.Helper()
	held := map[int]int64{}
	c.inspect(func(db *running.Database) error {
		rows, err := db.QueryContext(context.Background(), fmt.Sprintf(`SELECT l.part, l.holder FROM posthouse_lease l
			JOIN posthouse_source s ON s.id = l.queue JOIN posthouse_instance i ON i.id = l.holder
			WHERE s.name = '%s' AND NOT i.dead`, source))
		if err != nil {
			return fmt.Errorf("reading leases: %w", err)
		}
		defer rows.Close()
		for rows.Next() {
			var part int
			var holder int64
			if err := rows.Scan(&part, &holder); err != nil {
				return fmt.Errorf("reading leases: %w", err)
			}
			held[part] = holder
		}
		return rows.Err()
	})
	return held
}

// awaitShared waits until all partitions of a source are held, and by all
// instances, about evenly.
func (c *instances) awaitShared(source string, partitions int) map[int]int64 {
	c.t.Helper()
	var held map[int]int64
	running.Eventually(c.t, 20*time.Second, "partitions are shared out", func() error {
		held = c.holders(source)
		each := map[int64]int{}
		for _, holder := range held {
			each[holder]++
		}
		if len(held) != partitions || len(each) != len(c.all) {
			return fmt.Errorf("%d partitions of %d are held, by %d instances", len(held), partitions, len(each))
		}
		return nil
	})
	return held
}

// awaitAgreed waits until an order holds for a source in the whole cluster.
func (c *instances) awaitAgreed(source, order string, partitions int) {
	c.t.Helper()
	running.Eventually(c.t, 20*time.Second, "the order has changed", func() (err error) {
		c.inspect(func(db *running.Database) error {
			var got string
			var parts int
			var draining bool
			query := fmt.Sprintf("SELECT ordering, partitions, draining FROM posthouse_source WHERE name = '%s'", source)
			if err := db.QueryRowContext(context.Background(), query).Scan(&got, &parts, &draining); err != nil {
				return fmt.Errorf("reading what is agreed: %w", err)
			}
			if got != order || parts != partitions || draining {
				err = fmt.Errorf("%s with %d partitions holds (draining: %v), want %s with %d", got, parts, draining, order, partitions)
			}
			return nil
		})
		return err
	})
}

func (c *instances) inspect(look func(*running.Database) error) {
	c.t.Helper()
	if err := running.Inspect(c.cfg.Store, look); err != nil {
		c.t.Fatal(err)
	}
}

// metric sums a metric over the instances that are given.
func (c *instances) metric(of []*running.Server, name string, labels ...string) (sum float64) {
	c.t.Helper()
	for _, s := range of {
		n, err := s.Metric(name, labels...)
		if err != nil {
			c.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// kill kills one with SIGKILL, waits for its end, and adds what it had in flight.
func (c *instances) kill(s *running.Server, inFlight map[running.Claimed]bool) {
	c.t.Helper()
	pid := s.PID()
	s.Kill()
	if !s.WaitExit(running.StopPatience) {
		c.t.Fatal("a killed server does not end")
	}
	c.inspect(func(db *running.Database) error { return db.InFlightOf(context.Background(), pid, inFlight) })
}

// awaitCount waits until the target has had so many executions more, however
// long that takes, as long as there are some.
func awaitCount(t *testing.T, g *running.Target, more int) {
	t.Helper()
	const patience = 30 * time.Second
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	before := g.Count()
	moved, last := time.Now(), before
	for {
		n := g.Count()
		if n-before >= more {
			return
		}
		if n != last {
			moved, last = time.Now(), n
		}
		if time.Since(moved) > patience {
			t.Fatalf("nothing was executed for %v, after %d executions of %d", patience, n-before, more)
		}
		<-tick.C
	}
}

var errNotYet = errors.New("not yet")
