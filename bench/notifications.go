package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// What is measured of notifications, on PostgreSQL, under these names.
const (
	nameAccept     = "accept"      // in this process, beside pgbench inserting the same rows
	nameAcceptHTTP = "accept-http" // by posthouse serve
	nameSent       = "sent"        // how long from submitting until the provider has it
)

// The targets for notifications.
const (
	leastOfPgbench = 0.4
	mostSent       = 50 * time.Millisecond // of 95 %
)

// callers is how many submit, and how many connections pgbench has; the best
// counts.
var callers = []int{4, 16, 64}

// notified is what was measured of notifications.
type notified struct {
	rounds []acceptRound
	http   []load
	sent   []sentLatency
}

// acceptRound is one round, by the numbers of callers.
type acceptRound struct {
	accepted []accepted
	inserted []inserted // by pgbench
	batch    int        // of pgbench's: as many as the best had on average
	bytes    [2]float64
}

// best is the fastest of them.
func (r acceptRound) best() accepted {
	return slices.MaxFunc(r.accepted, func(a, b accepted) int { return int(a.perSecond - b.perSecond) })
}

func (r acceptRound) bestInserted() inserted {
	return slices.MaxFunc(r.inserted, func(a, b inserted) int { return int(a.perSecond - b.perSecond) })
}

func (r acceptRound) ofPgbench() float64 { return r.best().perSecond / r.bestInserted().perSecond }

func (b *bench) postgres() *engine {
	return b.engines[slices.IndexFunc(b.engines, func(e *engine) bool { return e.name == "postgres" })]
}

func (b *bench) measureNotifications(ctx context.Context) error {
	for i := range b.rounds {
		if b.wants(nameAccept) {
			r, err := b.acceptRound(ctx, i == 0)
			if err != nil {
				return fmt.Errorf("%s: %w", nameAccept, err)
			}
			b.notified.rounds = append(b.notified.rounds, r)
			b.tell("round %d/%d  %-17s %8.0f a second, pgbench %.0f: %.2f", i+1, b.rounds, nameAccept, r.best().perSecond, r.bestInserted().perSecond, r.ofPgbench())
		}
		if b.wants(nameAcceptHTTP) {
			l, err := b.acceptHTTP(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", nameAcceptHTTP, err)
			}
			b.notified.http = append(b.notified.http, l)
			b.tell("round %d/%d  %-17s %8.0f req/s", i+1, b.rounds, nameAcceptHTTP, l.perSecond())
		}
		if b.wants(nameSent) {
			l, err := b.sent(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", nameSent, err)
			}
			b.notified.sent = append(b.notified.sent, l)
			b.tell("round %d/%d  %-17s p95 %s ms", i+1, b.rounds, nameSent, milliseconds(quantile(l.sent, 95)))
		}
	}
	return nil
}

// acceptRound accepts and inserts with each number of callers, into the same
// tables, emptied before.
func (b *bench) acceptRound(ctx context.Context, first bool) (r acceptRound, err error) {
	db, err := b.postgres().fresh(ctx, b.work)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, db.drop(ctx), db.writeOut(ctx)) }()
	for i, n := range callers {
		if i > 0 {
			if err := b.calmDown(ctx, db); err != nil {
				return r, err
			}
		}
		profile := ""
		if first && n == callers[len(callers)-1] {
			profile = b.profile
		}
		a, err := b.accept(ctx, db, n, profile)
		if err != nil {
			return r, fmt.Errorf("%d callers: %w", n, err)
		}
		r.accepted = append(r.accepted, a)
	}
	s, err := db.sampled(ctx)
	if err != nil {
		return r, fmt.Errorf("read what was kept: %w", err)
	}
	if r.bytes[0], err = db.bytesEach(ctx); err != nil {
		return r, err
	}
	r.batch = max(1, int(math.Round(r.best().batch)))
	for _, n := range callers {
		if err := b.calmDown(ctx, db); err != nil {
			return r, err
		}
		in, err := b.pgbench(ctx, db, s, n, r.batch)
		if err != nil {
			return r, err
		}
		r.inserted = append(r.inserted, in)
	}
	r.bytes[1], err = db.bytesEach(ctx)
	return r, err
}

// calmDown empties the tables, and has everything written that may be written
// later.
func (b *bench) calmDown(ctx context.Context, db *database) error {
	if err := db.empty(ctx); err != nil {
		return err
	}
	unix.Sync()
	return nil
}

// acceptHTTP has wrk submit notifications to posthouse serve, whose provider
// is not there: only accepting is measured, and its channel soon waits.
func (b *bench) acceptHTTP(ctx context.Context) (measured load, err error) {
	var answered int64
	_, err = b.with(ctx, b.postgres(), func(ctx context.Context, db *database) (*server, error) {
		return b.startNotifying(ctx, db, "http://127.0.0.1:9/")
	}, func(s *server) error {
		for i, duration := range []time.Duration{b.warmUp, b.duration} {
			l, err := b.runWrk(ctx, s.push, duration, notificationScript(i))
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
		kept, err := db.count(ctx, "posthouse_request")
		if most := answered + 2*int64(b.connections); err == nil && (kept < answered || kept > most) {
			err = fmt.Errorf("%d notifications were accepted, but %d are kept (between that many and %d would be right)", answered, kept, most)
		}
		return err
	})
	return measured, err
}

// notificationScript makes wrk submit another notification each time, and others
// than with another number of the run.
func notificationScript(run int) string {
	return fmt.Sprintf(`local threads = 0
function setup(thread)
  thread:set("thread", threads)
  threads = threads + 1
end

local n = 0
local headers = {["Content-Type"] = "application/json", ["User-Agent"] = "bench"}
function request()
  n = n + 1
  local number = string.format("%%d", %d000000000 + thread * 100000000 + n)
  local user = string.format("u%%d", (n * 7919 + thread) %% %d)
  return wrk.format("POST", nil, headers, '{"idempotency_key":"approval:' .. number .. ':assignee:v1","biz_type":"approval.todo","template":"approval_todo","locale":"en",' ..
    '"recipient":{"id":"' .. user .. '","phone":"+8613800000001"},"variables":{"title":"Travel to Shenzhen, ' .. number .. '","applicant":"Li Lei",' ..
    '"url":"https://oa.example.com/approvals/' .. number .. '","amount":1280.50}}')
end
`, run+1, recipients) + resultScript
}

// acceptFigures is the medians of all rounds.
type acceptFigures struct {
	Callers   []int     `json:"callers"`
	Accepted  []float64 `json:"accepted_per_second"`
	Batches   []float64 `json:"notifications_in_a_transaction"`
	CPU       []float64 `json:"process_cpu_us_per_notification"`
	BackCPU   []float64 `json:"database_cpu_us_per_notification"`
	Inserted  []float64 `json:"pgbench_inserted_per_second"`
	InsertCPU []float64 `json:"pgbench_database_cpu_us_per_notification"`
	OfPgbench float64   `json:"of_pgbench"`
	Rounds    []float64 `json:"rounds_of_pgbench"`
	Bytes     []float64 `json:"bytes_per_notification"` // the product's, and pgbench's
}

// sentFigures are the quantiles of all rounds, each the median of its rounds'.
type sentFigures struct {
	PerSecond int       `json:"per_second"`
	Quantiles []float64 `json:"p50_p95_p99_ms"`
	Answered  []float64 `json:"answered_p50_p95_p99_ms"`
	Rounds    []float64 `json:"rounds_p95_ms"`
}

func (n *notified) acceptFigures() *acceptFigures {
	if len(n.rounds) == 0 {
		return nil
	}
	f := &acceptFigures{Callers: callers, Rounds: each(n.rounds, acceptRound.ofPgbench)}
	f.OfPgbench = median(f.Rounds)
	medianOf := func(get func(acceptRound) float64) float64 { return median(each(n.rounds, get)) }
	for i := range callers {
		f.Accepted = append(f.Accepted, medianOf(func(r acceptRound) float64 { return r.accepted[i].perSecond }))
		f.Batches = append(f.Batches, medianOf(func(r acceptRound) float64 { return r.accepted[i].batch }))
		f.CPU = append(f.CPU, medianOf(func(r acceptRound) float64 { return inMicroseconds(r.accepted[i].cpu) }))
		f.BackCPU = append(f.BackCPU, medianOf(func(r acceptRound) float64 { return inMicroseconds(r.accepted[i].databaseCPU) }))
		f.Inserted = append(f.Inserted, medianOf(func(r acceptRound) float64 { return r.inserted[i].perSecond }))
		f.InsertCPU = append(f.InsertCPU, medianOf(func(r acceptRound) float64 { return inMicroseconds(r.inserted[i].databaseCPU) }))
	}
	for i := range 2 {
		f.Bytes = append(f.Bytes, medianOf(func(r acceptRound) float64 { return r.bytes[i] }))
	}
	return f
}

func (b *bench) sentFigures() *sentFigures {
	all := b.notified.sent
	if len(all) == 0 {
		return nil
	}
	f := &sentFigures{PerSecond: b.sentRate, Rounds: each(all, func(l sentLatency) float64 { return inMilliseconds(quantile(l.sent, 95)) })}
	for _, percent := range []float64{50, 95, 99} {
		f.Quantiles = append(f.Quantiles, median(each(all, func(l sentLatency) float64 { return inMilliseconds(quantile(l.sent, percent)) })))
		f.Answered = append(f.Answered, median(each(all, func(l sentLatency) float64 { return inMilliseconds(quantile(l.answered, percent)) })))
	}
	return f
}

func printNotifications(out io.Writer, f figures) {
	if a := f.Accept; a != nil {
		fmt.Fprintf(out, "(h) accepted notifications a second, 2 deliveries each, on PostgreSQL, beside pgbench inserting the same rows\n\n")
		const columns = "%-20s %9s %9s %9s %9s %9s %9s\n"
		fmt.Fprintf(out, columns, "callers/connections", "accepted", "at once", "cpu µs", "db cpu µs", "pgbench", "db cpu µs")
		for i, n := range a.Callers {
			fmt.Fprintf(out, columns, fmt.Sprint(n), number(a.Accepted[i], 0), number(a.Batches[i], 1), number(a.CPU[i], 0), number(a.BackCPU[i], 0), number(a.Inserted[i], 0), number(a.InsertCPU[i], 0))
		}
		fmt.Fprintf(out, "\nBest against best, within a round: %.2f; a notification takes %.0f B here and %.0f B there.\n", a.OfPgbench, a.Bytes[0], a.Bytes[1])
	}
	if f.AcceptHTTP > 0 {
		fmt.Fprintf(out, "    accepted over HTTP: %.0f a second\n", f.AcceptHTTP)
	}
	if s := f.Sent; s != nil {
		fmt.Fprintf(out, "(i) at %d notifications a second, from submitting until the provider has it: p50 %.1f ms, p95 %.1f ms, p99 %.1f ms; until it is answered: %.1f, %.1f, %.1f ms\n",
			s.PerSecond, s.Quantiles[0], s.Quantiles[1], s.Quantiles[2], s.Answered[0], s.Answered[1], s.Answered[2])
	}
}
