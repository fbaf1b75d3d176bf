// Command bench answers one question: how much of what this machine can do is
// left when every push is durably kept before it is answered?
//
// It compares, in one run and in turn, round by round, so that a machine whose
// speed drifts moves all of them alike:
//
//	bare       a net/http handler that reads the body and answers 200
//	sqlite, postgres, mariadb
//	           posthouse serve, verify none, consuming off
//	…-checked  the same with HMAC, an accept expression and a metrics scrape
//	insert-N   a net/http handler that runs one INSERT, committed by itself, per
//	           request on the same PostgreSQL, over N database connections
//	transaction-16
//	           the same in BEGIN and COMMIT, as most programs do it; for the record
//
// and then how long 10,000 pushes take until an HTTP target has them all, and
// how long one push takes on an idle system. Of notifications, on PostgreSQL:
//
//	accept     notifications that package notify accepts from 4, 16 and 64
//	           callers at once, with two deliveries each, beside pgbench that
//	           inserts the same rows in batches of the same size
//	accept-http
//	           the same over HTTP; for the record
//	sent       at 200 notifications a second, how long from submitting until the
//	           provider of a channel has it
//
// Each measurement has processes and a database of its own; wrk makes the load.
//
// Slow figures are reported and never fail. What fails is what did not work: an
// answer that was not 2xx, a message that was answered 2xx and is not in the
// store, or one that is there twice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// settings are the command line.
type settings struct {
	binary      string
	out         string
	duration    time.Duration
	warmUp      time.Duration
	rounds      int
	connections int
	threads     int
	messages    int
	pushes      int
	only        string
	sentRate    int
	sentFor     time.Duration
	profile     string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 2 && os.Args[1] == childArgument {
		exit(child(ctx, os.Args[2:]))
	}
	exit(run(ctx, os.Args[1:], os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func parse(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&s.binary, "binary", "bin/posthouse", "the built product")
	flags.StringVar(&s.out, "out", "bench-results.json", "where to write the figures as JSON")
	flags.DurationVar(&s.duration, "duration", 4*time.Second, "of one measurement of throughput")
	flags.DurationVar(&s.warmUp, "warm-up", time.Second, "before each measurement of throughput")
	flags.IntVar(&s.rounds, "rounds", 3, "how often everything is measured in turn")
	flags.IntVar(&s.connections, "connections", 64, "of the load")
	flags.IntVar(&s.threads, "threads", 2, "of wrk")
	flags.IntVar(&s.messages, "messages", 10_000, "pushes until a target has them all")
	flags.IntVar(&s.pushes, "pushes", 200, "single pushes on an idle system")
	flags.StringVar(&s.only, "only", "", "names of what is measured, separated by commas; names beginning with drain- and idle- are the second half (default all)")
	flags.IntVar(&s.sentRate, "sent-rate", 200, "notifications submitted a second, for sent")
	flags.DurationVar(&s.sentFor, "sent-for", 15*time.Second, "how long they are submitted")
	flags.StringVar(&s.profile, "cpuprofile", "", "where to write a profile of accepting from 64 callers, in its first round")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if s.rounds < 1 || s.connections < s.threads || s.threads < 1 || s.duration < time.Second || s.warmUp < time.Second {
		return s, errors.New("-rounds and -threads must be at least 1, -duration and -warm-up at least 1s, -connections at least -threads")
	}
	if s.sentRate < 1 || s.sentFor < time.Second {
		return s, errors.New("-sent-rate must be at least 1, -sent-for at least 1s")
	}
	if s.messages > maxNumber || s.pushes > maxNumber {
		return s, fmt.Errorf("-messages and -pushes may be at most %d", maxNumber)
	}
	return s, nil
}

func (s settings) wants(name string) bool {
	if s.only == "" {
		return true
	}
	for want := range strings.SplitSeq(s.only, ",") {
		if want == name {
			return true
		}
	}
	return false
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	s, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "posthouse-bench-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	b := &bench{settings: s, out: out, work: work, began: time.Now()}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	b.print(out)
	if err := b.writeJSON(s.out); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	fmt.Fprintf(out, "\nThe figures are in %s. It took %s.\n", s.out, time.Since(b.began).Round(time.Second))
	return nil
}
