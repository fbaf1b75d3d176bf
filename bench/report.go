package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The targets. Ratios are within one round; the figure is their median.
const (
	leastOfBareSQLite   = 0.35
	leastOfBarePostgres = 0.30
	leastOfInsert       = 4.0
	mostP99             = 12 * time.Millisecond
	leastOfPlain        = 0.85
	mostDrain           = 3 * time.Second
	mostIdle            = 10 * time.Millisecond
)

// figures is what is written as JSON.
type figures struct {
	Machine    machine           `json:"machine"`
	Databases  map[string]string `json:"databases"`
	Settings   map[string]any    `json:"settings"`
	Throughput []throughput      `json:"throughput"`
	Drain      []drainFigures    `json:"drain"`
	Idle       []idleFigures     `json:"idle"`
	Accept     *acceptFigures    `json:"accept,omitempty"`
	AcceptHTTP float64           `json:"accept_http_per_second,omitempty"`
	Sent       *sentFigures      `json:"sent,omitempty"`
	Targets    []verdict         `json:"targets"`
}

// throughput is the medians of one contender.
type throughput struct {
	Name      string    `json:"name"`
	Title     string    `json:"-"`
	PerSecond float64   `json:"requests_per_second"`
	P50       float64   `json:"p50_ms"`
	P99       float64   `json:"p99_ms"`
	CPU       float64   `json:"server_cpu_us_per_request"`
	OfBare    *float64  `json:"of_bare,omitempty"`
	OfInsert  *float64  `json:"of_insert,omitempty"`
	OfPlain   *float64  `json:"of_plain,omitempty"`
	Rounds    []float64 `json:"rounds_requests_per_second"`
}

type drainFigures struct {
	Name     string    `json:"name"`
	Answered float64   `json:"answered_s"`
	Handled  float64   `json:"handled_s"`
	Rounds   []float64 `json:"rounds_handled_s"`
}

type idleFigures struct {
	Name string  `json:"name"`
	P50  float64 `json:"p50_ms"`
	P95  float64 `json:"p95_ms"`
}

// verdict is a target beside what was measured.
type verdict struct {
	Target   string  `json:"target"`
	Measured float64 `json:"measured"`
	Met      bool    `json:"met"`
}

func (b *bench) figures() figures {
	f := figures{
		Machine: b.machine, Databases: map[string]string{},
		Settings: map[string]any{
			"rounds": b.rounds, "duration_s": b.duration.Seconds(), "warm_up_s": b.warmUp.Seconds(), "connections": b.connections,
			"wrk_threads": b.threads, "body_bytes": bodySize, "drain_messages": b.messages, "idle_pushes": b.pushes,
			"sent_per_second": b.sentRate, "sent_for_s": b.sentFor.Seconds(),
		},
	}
	for _, e := range b.engines {
		f.Databases[e.name] = e.version
	}
	bare, insert := b.find("bare"), b.bestInsert()
	for _, c := range b.contenders {
		t := throughput{
			Name: c.name, Title: c.title, Rounds: c.perSecond(),
			PerSecond: median(c.perSecond()),
			P50:       median(each(c.rounds, func(r round) float64 { return inMilliseconds(r.P50) })),
			P99:       median(each(c.rounds, func(r round) float64 { return inMilliseconds(r.P99) })),
			CPU:       median(each(c.rounds, func(r round) float64 { return float64(r.cpu) / float64(time.Microsecond) })),
			OfBare:    ratio(c, bare), OfPlain: ratio(c, b.find(c.plain)),
		}
		if c.rows != "" {
			t.OfInsert = ratio(c, insert)
		}
		f.Throughput = append(f.Throughput, t)
	}
	for _, d := range b.drains {
		handled := each(d.handled, time.Duration.Seconds)
		f.Drain = append(f.Drain, drainFigures{Name: d.engine.name, Answered: median(each(d.answered, time.Duration.Seconds)), Handled: median(handled), Rounds: handled})
	}
	for _, l := range b.idles {
		f.Idle = append(f.Idle, idleFigures{Name: l.engine.name, P50: inMilliseconds(quantile(l.waits, 50)), P95: inMilliseconds(quantile(l.waits, 95))})
	}
	f.Accept, f.AcceptHTTP, f.Sent = b.notified.acceptFigures(), median(each(b.notified.http, load.perSecond)), b.sentFigures()
	f.Targets = judge(f)
	return f
}

// judge compares with the targets. MariaDB has none.
func judge(f figures) []verdict {
	var all []verdict
	atLeast := func(target string, measured *float64, bound float64) {
		if measured != nil {
			all = append(all, verdict{fmt.Sprintf("%s ≥ %.2f", target, bound), *measured, *measured >= bound})
		}
	}
	atMost := func(target string, measured, bound float64, unit string) {
		all = append(all, verdict{fmt.Sprintf("%s ≤ %g %s", target, bound, unit), measured, measured <= bound})
	}
	for _, t := range f.Throughput {
		switch t.Name {
		case "sqlite":
			atLeast("SQLite, of the bare handler", t.OfBare, leastOfBareSQLite)
			atMost("SQLite, p99", t.P99, inMilliseconds(mostP99), "ms")
		case "postgres":
			atLeast("PostgreSQL, of the bare handler", t.OfBare, leastOfBarePostgres)
			atLeast("PostgreSQL, of one INSERT a request", t.OfInsert, leastOfInsert)
			atMost("PostgreSQL, p99", t.P99, inMilliseconds(mostP99), "ms")
		case "sqlite-checked":
			atLeast("SQLite with HMAC, accept and metrics, of without", t.OfPlain, leastOfPlain)
		case "postgres-checked":
			atLeast("PostgreSQL with HMAC, accept and metrics, of without", t.OfPlain, leastOfPlain)
		}
	}
	for _, d := range f.Drain {
		if d.Name != "mariadb" {
			atMost("until a target has them all, "+d.Name, d.Handled, mostDrain.Seconds(), "s")
		}
	}
	for _, l := range f.Idle {
		if l.Name != "mariadb" {
			atMost("one push on an idle system, p50, "+l.Name, l.P50, inMilliseconds(mostIdle), "ms")
		}
	}
	if f.Accept != nil {
		atLeast("accepted notifications, of pgbench inserting the same rows", &f.Accept.OfPgbench, leastOfPgbench)
	}
	if f.Sent != nil {
		atMost("from submitting until sent, p95", f.Sent.Quantiles[1], inMilliseconds(mostSent), "ms")
	}
	return all
}

func (b *bench) print(out io.Writer) {
	f := b.figures()
	if len(f.Throughput) > 0 {
		fmt.Fprintf(out, "\nThroughput: %d connections, %d B of JSON; medians of %d rounds of %s\n\n", b.connections, bodySize, b.rounds, b.duration)
		const columns = "%-44s %8s %8s %8s %8s %7s %7s %9s\n"
		fmt.Fprintf(out, columns, "", "req/s", "p50 ms", "p99 ms", "cpu µs", "of (a)", "of (d)", "of plain")
		for _, t := range f.Throughput {
			fmt.Fprintf(out, columns, t.Title, number(t.PerSecond, 0), number(t.P50, 1), number(t.P99, 1), number(t.CPU, 0), fraction(t.OfBare), fraction(t.OfInsert), fraction(t.OfPlain))
		}
		fmt.Fprintln(out, "\nRatios are within a round; (d) is the best of its three; cpu is of the server's own process, per request.")
	}
	for _, d := range f.Drain {
		fmt.Fprintf(out, "(f) %d pushes until a target has them all, %s: %.2f s (all answered after %.2f s)\n", b.messages, d.Name, d.Handled, d.Answered)
	}
	for _, l := range f.Idle {
		fmt.Fprintf(out, "(g) one push on an idle system, from its answer until the target has it, %s: p50 %.1f ms, p95 %.1f ms\n", l.Name, l.P50, l.P95)
	}
	printNotifications(out, f)
	fmt.Fprintln(out)
	for _, v := range f.Targets {
		met := "met     "
		if !v.Met {
			met = "not met "
		}
		fmt.Fprintf(out, "%s %-66s %8.2f\n", met, v.Target, v.Measured)
	}
}

func (b *bench) writeJSON(path string) error {
	text, err := json.MarshalIndent(b.figures(), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // figures are for everybody
}

func (b *bench) find(name string) *contender {
	i := slices.IndexFunc(b.contenders, func(c *contender) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return b.contenders[i]
}

func (b *bench) bestInsert() (best *contender) {
	for _, c := range b.contenders {
		if strings.HasPrefix(c.name, insertPrefix) && (best == nil || median(c.perSecond()) > median(best.perSecond())) {
			best = c
		}
	}
	return best
}

func (c *contender) perSecond() []float64 { return each(c.rounds, round.perSecond) }

// ratio is the median of how c compares to other within each round; nil where
// there is nothing to compare to.
func ratio(c, other *contender) *float64 {
	if other == nil {
		return nil
	}
	mine, others := c.perSecond(), other.perSecond()
	for i := range mine {
		mine[i] /= others[i]
	}
	m := median(mine)
	return &m
}

func each[T any](items []T, f func(T) float64) []float64 {
	all := make([]float64, len(items))
	for i, item := range items {
		all[i] = f(item)
	}
	return all
}

// median is between the two in the middle where there is an even number.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// quantile is the smallest value that so many percent do not exceed.
func quantile(values []time.Duration, percent float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(float64(len(sorted))*percent/100))-1)]
}

func inMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func inMicroseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func milliseconds(d time.Duration) string    { return fmt.Sprintf("%.1f", inMilliseconds(d)) }
func seconds(d time.Duration) string         { return fmt.Sprintf("%.2f", d.Seconds()) }

func number(f float64, digits int) string { return strconv.FormatFloat(f, 'f', digits, 64) }

func fraction(f *float64) string {
	if f == nil {
		return ""
	}
	return number(*f, 2)
}
