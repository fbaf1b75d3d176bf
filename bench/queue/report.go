package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// figures is what is written as JSON.
type figures struct {
	Machine    string            `json:"machine"`
	Databases  map[string]string `json:"databases"`
	Settings   map[string]any    `json:"settings"`
	Contenders []contenderFigure `json:"contenders"`
}

// contenderFigure is the medians of one contender.
type contenderFigure struct {
	Name        string    `json:"name"`
	Title       string    `json:"-"`
	PerSecond   float64   `json:"messages_per_second"`
	OfRiver     *float64  `json:"of_river,omitempty"`
	CPU         float64   `json:"process_cpu_us_per_message"`
	DatabaseCPU *float64  `json:"database_cpu_us_per_message,omitempty"`
	Rounds      []float64 `json:"rounds_messages_per_second"`
	Loads       []float64 `json:"rounds_load_average_before"`
}

func (b *bench) figures() figures {
	f := figures{
		Machine: machineLine(), Databases: map[string]string{},
		Settings: map[string]any{"messages": b.messages, "rounds": b.rounds, "body_bytes": bodySize, "connections": connections,
			"river_workers": riverWorkers, "river_cooldown_ms": riverCooldown.Milliseconds(), "river_poll_ms": riverPoll.Milliseconds(), "concurrency": concurrency, "keys": customers, "batch_size": batchSize},
	}
	for _, e := range b.engines {
		f.Databases[e.name] = e.version
	}
	var river []float64
	for _, c := range b.contenders {
		perSecond := each(c.rounds, func(r round) float64 { return float64(b.messages) / r.took.Seconds() })
		perMessage := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(b.messages) }
		one := contenderFigure{
			Name: c.name(), Title: c.title + " on " + c.engine.title, Rounds: perSecond, PerSecond: median(perSecond),
			CPU:   median(each(c.rounds, func(r round) float64 { return perMessage(r.cpu) })),
			Loads: each(c.rounds, func(r round) float64 { return r.load }),
		}
		if cpu := median(each(c.rounds, func(r round) float64 { return perMessage(r.databaseCPU) })); cpu > 0 {
			one.DatabaseCPU = &cpu
		}
		if c.kind.name == "river" {
			river = perSecond
		}
		if c.engine.name == "postgres" && river != nil {
			ratios := slices.Clone(perSecond)
			for i := range ratios {
				ratios[i] /= river[i]
			}
			of := median(ratios)
			one.OfRiver = &of
		}
		f.Contenders = append(f.Contenders, one)
	}
	return f
}

func (b *bench) print(out io.Writer) {
	fmt.Fprintf(out, "\nA backlog of %d, %d B each; medians of %d rounds\n\n", b.messages, bodySize, b.rounds)
	fmt.Fprintf(out, "%-34s %9s %9s %9s %9s  %s\n", "", "per s", "of River", "cpu µs", "db cpu µs", "load before")
	for _, c := range b.figures().Contenders {
		fmt.Fprintf(out, "%-34s %9.0f %9s %9.1f %9s  %.1f\n", c.Title, c.PerSecond, orNothing(c.OfRiver, "%.2f"), c.CPU, orNothing(c.DatabaseCPU, "%.1f"), c.Loads)
	}
	fmt.Fprintln(out, "\nRatios are within a round; cpu is of this process, and of the database's processes that served it, per message.")
}

func orNothing(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

func (b *bench) writeJSON(path string) error {
	text, err := json.MarshalIndent(b.figures(), "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil { //nolint:gosec // figures are for everybody
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
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
