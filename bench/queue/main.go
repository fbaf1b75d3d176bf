// Command queue answers one question: how fast is a backlog worked off, beside
// River on the same PostgreSQL?
//
// Each contender gets a database of its own and a backlog that is there before
// it starts; what is measured is the time from its start until the database
// says that all of it is done. Handlers do nothing, so what is left is the cost
// of the queue itself. Contenders take turns, round by round, so that a machine
// whose speed drifts moves all of them alike; ratios are within a round.
//
//	river     github.com/riverqueue/river: InsertManyFast, then 2,000 workers
//	          with a fetch cooldown of 2 ms, polling every 20 ms; the rest is
//	          its defaults
//	parallel  package inbox in order parallel, 2,000 at once
//	keyed     package inbox in order keyed: 1,000 keys in 16 partitions
//	serial    package inbox in order serial: one after the other
//	deliveries
//	          notifications with one mail each: rendered from a template, to an
//	          address that is kept sealed; 2,000 at once
//
// It is a module of its own, so that nobody who uses Posthouse gets River's
// dependencies.
//
// Slow figures are reported and never fail. What fails is what did not work: a
// message that was not handled, or was handled twice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// settings are the command line.
type settings struct {
	messages int
	rounds   int
	only     []string
	stores   []string
	out      string
	profile  string
	profiled string
	within   time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-queue:", err)
		os.Exit(1)
	}
}

func parse(args []string) (settings, error) {
	var s settings
	var only, stores string
	flags := flag.NewFlagSet("bench-queue", flag.ContinueOnError)
	flags.IntVar(&s.messages, "n", 100_000, "messages in the backlog")
	flags.IntVar(&s.rounds, "rounds", 3, "how often everything is measured in turn")
	flags.StringVar(&only, "only", "", "contenders, separated by commas: "+strings.Join(contenderNames(), ", ")+" (default all)")
	flags.StringVar(&stores, "store", "postgres", "databases, separated by commas: "+strings.Join(engineNames(), ", ")+"; river works on postgres only")
	flags.StringVar(&s.out, "json", "", "where to write the figures as JSON (default nowhere)")
	flags.StringVar(&s.profile, "cpuprofile", "", "where to write a profile of this process while the contender of -profiled works, in its first round")
	flags.StringVar(&s.profiled, "profiled", "parallel-postgres", "the contender of -cpuprofile: its name, a hyphen, its database")
	flags.DurationVar(&s.within, "within", 10*time.Minute, "how long one measurement may take")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if s.messages < 1 || s.rounds < 1 {
		return s, errors.New("-n and -rounds must be at least 1")
	}
	var err error
	if s.only, err = choice("-only", only, contenderNames()); err != nil {
		return s, err
	}
	s.stores, err = choice("-store", stores, engineNames())
	return s, err
}

// choice splits a list and refuses what there is not; an empty list is all.
func choice(name, list string, there []string) ([]string, error) {
	if list == "" {
		return there, nil
	}
	wanted := strings.Split(list, ",")
	for _, w := range wanted {
		if !slices.Contains(there, w) {
			return nil, fmt.Errorf("%s: there is no %q, only %s", name, w, strings.Join(there, ", "))
		}
	}
	return wanted, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	s, err := parse(args)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "posthouse-bench-queue-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	b := &bench{settings: s, out: out, work: work}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	b.print(out)
	if s.out == "" {
		return nil
	}
	return b.writeJSON(s.out)
}
