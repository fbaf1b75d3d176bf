package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// bench is one run.
type bench struct {
	settings
	out   io.Writer
	work  string // a folder for everything that is written
	began time.Time

	machine    machine
	engines    []*engine
	contenders []*contender
	drains     []*drain
	idles      []*idle
	notified   notified

	pgbenchPath string
}

// contender is a server whose throughput is measured.
type contender struct {
	name, title string
	plain       string  // the contender that this one is compared to, with nothing checked; empty: none
	engine      *engine // nil: it keeps nothing
	rows        string  // what is counted in its database
	start       func(context.Context, *database) (*server, error)
	rounds      []round
}

// round is one measurement of a contender.
type round struct {
	load
	cpu time.Duration // of its process, per request
}

// Where the product keeps what it was pushed; a message that could not be
// checked would be kept, too, but is not what is measured here.
const (
	messagesChecked = "posthouse_message WHERE check_note = ''"
	outcomes        = "posthouse_outcome"
)

// drain measures how long many pushes take until a target has them all.
type drain struct {
	engine   *engine
	answered []time.Duration // until the last push was answered
	handled  []time.Duration // until the target had the last one
}

// idle measures how long after its answer a single push is at its target.
type idle struct {
	engine *engine
	waits  []time.Duration
}

// prepare looks at the machine and decides what is measured.
func (b *bench) prepare(ctx context.Context) error {
	if _, err := exec.LookPath("wrk"); err != nil {
		return errors.New("wrk is not installed: run `make bench`, or `scripts/services install bench`")
	}
	if _, err := os.Stat(b.binary); err != nil {
		return fmt.Errorf("the product is not built: run `make build` (%w)", err)
	}
	var err error
	if b.wants(nameAccept) {
		if b.pgbenchPath, err = findPgbench(); err != nil {
			return err
		}
	}
	if b.engines, err = engines(ctx); err != nil {
		return err
	}
	if b.machine, err = look(b.work); err != nil {
		return err
	}
	b.choose()
	for _, line := range b.machine.lines(b.engines) {
		fmt.Fprintln(b.out, line)
	}
	fmt.Fprintln(b.out)
	return nil
}

func (b *bench) choose() {
	add := func(c *contender) {
		if b.wants(c.name) {
			b.contenders = append(b.contenders, c)
		}
	}
	add(&contender{name: "bare", title: "(a) bare handler", start: func(ctx context.Context, _ *database) (*server, error) { return b.startChild(ctx, roleBare) }})
	for i, e := range b.engines {
		letter := [...]string{"(b) ", "(c) ", ""}[i]
		product := func(source string) func(ctx context.Context, db *database) (*server, error) {
			return func(ctx context.Context, db *database) (*server, error) { return b.startProduct(ctx, db, source, "") }
		}
		add(&contender{name: e.name, title: letter + "Posthouse on " + e.title, engine: e, rows: messagesChecked, start: product("plain")})
		if e.name != "mariadb" {
			add(&contender{name: e.name + "-checked", title: "(e) … with HMAC, accept, metrics", plain: e.name, engine: e, rows: messagesChecked, start: product("checked")})
		}
		if b.wants("drain-" + e.name) {
			b.drains = append(b.drains, &drain{engine: e})
		}
		if b.wants("idle-" + e.name) {
			b.idles = append(b.idles, &idle{engine: e})
		}
	}
	inserter := func(name, title, role string, connections int) {
		add(&contender{
			name: name + strconv.Itoa(connections), title: fmt.Sprintf("%s, %d connections", title, connections), engine: b.engines[1], rows: "pushes",
			start: func(ctx context.Context, db *database) (*server, error) {
				return b.startChild(ctx, role, db.url, strconv.Itoa(connections))
			},
		})
	}
	for _, n := range []int{4, 16, 64} {
		inserter(insertPrefix, "(d) one INSERT a request", roleInsert, n)
	}
	inserter("transaction-", "    in BEGIN and COMMIT", roleTransaction, 16)
}

const insertPrefix = "insert-"

func (b *bench) measure(ctx context.Context) error {
	for i := range b.rounds {
		inTurn := slices.Clone(b.contenders)
		if i%2 == 1 {
			slices.Reverse(inTurn) // a drift over a round cancels out
		}
		for _, c := range inTurn {
			r, err := b.throughput(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.rounds = append(c.rounds, r)
			b.tell("round %d/%d  %-17s %8.0f req/s  p50 %6s  p99 %6s", i+1, b.rounds, c.name, r.perSecond(), milliseconds(r.P50), milliseconds(r.P99))
		}
	}
	for i := range b.rounds {
		for _, d := range b.drains {
			if err := b.drain(ctx, d); err != nil {
				return fmt.Errorf("drain-%s: %w", d.engine.name, err)
			}
			b.tell("round %d/%d  %-17s %8s s", i+1, b.rounds, "drain-"+d.engine.name, seconds(d.handled[i]))
		}
	}
	for _, l := range b.idles {
		if err := b.idle(ctx, l); err != nil {
			return fmt.Errorf("idle-%s: %w", l.engine.name, err)
		}
		b.tell("           %-17s p50 %s ms", "idle-"+l.engine.name, milliseconds(quantile(l.waits, 50)))
	}
	return b.measureNotifications(ctx)
}

func (b *bench) tell(format string, args ...any) {
	fmt.Fprintf(b.out, "%4.0fs  "+format+"\n", append([]any{time.Since(b.began).Seconds()}, args...)...)
}

// with lends do a running server on a new database, and checks afterwards that
// it ends well. It returns how much processor the server used.
func (b *bench) with(ctx context.Context, e *engine, start func(context.Context, *database) (*server, error), do func(*server) error, check func(*database) error) (cpu time.Duration, err error) {
	var db *database
	if e != nil {
		if db, err = e.fresh(ctx, b.work); err != nil {
			return 0, err
		}
	}
	s, err := start(ctx, db)
	if err != nil {
		return 0, err
	}
	err = do(s)
	cpu, stopErr := s.stop()
	if err != nil {
		return 0, err
	}
	if stopErr != nil {
		return 0, stopErr
	}
	if db != nil {
		if err := errors.Join(check(db), db.drop(ctx), e.writeOut(ctx)); err != nil {
			return 0, err
		}
	}
	unix.Sync() // the next measurement does not pay for this one's pages
	return cpu, nil
}

// throughput measures a contender once.
func (b *bench) throughput(ctx context.Context, c *contender) (round, error) {
	var measured load
	var answered int64
	cpu, err := b.with(ctx, c.engine, c.start, func(s *server) error {
		if c.plain != "" {
			defer scrape(ctx, s.metrics)()
		}
		for _, duration := range []time.Duration{b.warmUp, b.duration} {
			l, err := b.runWrk(ctx, s.push, duration, script(payload(1)))
			if err != nil {
				return err
			}
			if l.NotOK > 0 || l.SocketErrors > 0 {
				return fmt.Errorf("of %d requests %d were not answered 2xx, and %d were not answered\n%s", l.Requests, l.NotOK, l.SocketErrors, s.printed())
			}
			answered += l.Requests
			measured = l
		}
		return nil
	}, func(db *database) error {
		kept, err := db.count(ctx, c.rows)
		// What was on its way when wrk hung up may be kept as well, twice for
		// each connection.
		if most := answered + 2*int64(b.connections); err == nil && (kept < answered || kept > most) {
			err = fmt.Errorf("%d pushes were answered 2xx, but %d are kept (between that many and %d would be right)", answered, kept, most)
		}
		return err
	})
	return round{load: measured, cpu: cpu / time.Duration(max(answered, 1))}, err
}

// scrape fetches metrics once a second, as a Prometheus in a hurry does, until
// the function that it returns is called.
func scrape(ctx context.Context, url string) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(time.Second); ; {
			if request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody); err == nil {
				if response, err := http.DefaultClient.Do(request); err == nil {
					_, _ = io.Copy(io.Discard, response.Body) // only the work of it matters
					_ = response.Body.Close()
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// withTarget is with, for a product whose messages go to a target.
func (b *bench) withTarget(ctx context.Context, e *engine, n int, do func(product, target *server) error) error {
	target, err := b.startChild(ctx, roleTarget)
	if err != nil {
		return err
	}
	_, err = b.with(ctx, e, func(ctx context.Context, db *database) (*server, error) {
		return b.startProduct(ctx, db, "handled", target.push)
	}, func(product *server) error { return do(product, target) }, func(db *database) error {
		a, err := waitAtTarget(ctx, target, n)
		if err != nil {
			return err
		}
		if a.Seen != n || a.Twice > 0 || a.Odd > 0 {
			return fmt.Errorf("of %d pushes the target has %d, %d more than once, %d that are not as they were pushed", n, a.Seen, a.Twice, a.Odd)
		}
		for _, rows := range []string{messagesChecked, outcomes} {
			got, err := db.count(ctx, rows)
			if err == nil && got != int64(n) {
				err = fmt.Errorf("%d pushes were handled, but %d are in %s", n, got, rows)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	_, stopErr := target.stop()
	return errors.Join(err, stopErr)
}

// drain measures once.
func (b *bench) drain(ctx context.Context, d *drain) error {
	return b.withTarget(ctx, d.engine, b.messages, func(product, target *server) error {
		began := time.Now()
		if err := pushAll(ctx, product.push, b.messages, b.connections); err != nil {
			return err
		}
		answered := time.Since(began)
		a, err := waitAtTarget(ctx, target, b.messages)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, product.printed())
		}
		d.answered = append(d.answered, answered)
		d.handled = append(d.handled, time.Unix(0, a.Last).Sub(began))
		return nil
	})
}

// idle measures all of its pushes, one after the other.
func (b *bench) idle(ctx context.Context, l *idle) error {
	return b.withTarget(ctx, l.engine, b.pushes, func(product, target *server) error {
		s, err := dial(ctx, product.push)
		if err != nil {
			return err
		}
		defer s.close()
		for i := range b.pushes {
			// Until nothing is going on any more; not in step with anything.
			time.Sleep(20*time.Millisecond + rand.N(20*time.Millisecond))
			if err := s.push(i); err != nil {
				return err
			}
			answered := time.Now()
			a, err := waitAtTarget(ctx, target, i+1)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, product.printed())
			}
			// The target may have it before the answer was read here.
			l.waits = append(l.waits, max(0, time.Unix(0, a.Last).Sub(answered)))
		}
		return nil
	})
}
