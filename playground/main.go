// Command playground shows what several instances do, and what becomes of their
// work when one is killed, frozen or restarted: it starts three of them on one
// PostgreSQL, pushes messages to all, receives what they hand over, and judges
// it. What to do to whom is typed in while it runs.
//
//	instances 1 2 3 ◀── push ── load          each key's messages numbered, one at a time
//	      │
//	      └── hand over ──▶ target ── judge   in order? twice at once? all there?
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

type settings struct {
	binary    string
	server    string
	instances int
	rate      int
	keys      int
	handle    time.Duration
	order     string
	lease     time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	var s settings
	flag.StringVar(&s.binary, "binary", "bin/posthouse", "the posthouse to run")
	flag.StringVar(&s.server, "server", os.Getenv("POSTHOUSE_TEST_POSTGRES"), "URL of a PostgreSQL on which a database may be made")
	flag.IntVar(&s.instances, "instances", 3, "how many to start")
	flag.IntVar(&s.rate, "rate", 100, "pushes per second")
	flag.IntVar(&s.keys, "keys", 100, "how many keys the messages have")
	flag.DurationVar(&s.handle, "handle", 20*time.Millisecond, "how long the target takes over each message")
	flag.StringVar(&s.order, "order", "keyed", "serial, keyed or parallel")
	flag.DurationVar(&s.lease, "lease", 3*time.Second, "how long an instance that is heard of no more keeps what it holds")
	flag.Parse()
	if s.server == "" {
		return errors.New("no PostgreSQL is named: run it as `make cluster`, or write -server postgres://…")
	}
	store, err := freshDatabase(ctx, s.server)
	if err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	dir, err := os.MkdirTemp("", "posthouse-playground-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	judge := newJudge(s.handle)
	target, closeTarget, err := judge.serve(ctx)
	if err != nil {
		return err
	}
	defer closeTarget()
	c := &cluster{settings: s, dir: dir, store: store, target: target}
	defer c.stopAll()
	for range s.instances {
		if err := c.add(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d instances start on %s; each one's log is in %s\n\n%s\n", s.instances, redacted(store), filepath.Join(dir, "N.log"), help)
	l := newLoad(c, s)
	go l.run(ctx)
	commands := make(chan string)
	go read(commands)
	return watch(ctx, out, c, l, judge, commands)
}

// databaseName is the same each time: what is in it can be thrown away.
const databaseName = "posthouse_playground"

func freshDatabase(ctx context.Context, server string) (string, error) {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + databaseName + " WITH (FORCE)", "CREATE DATABASE " + databaseName} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return "", err
		}
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", errors.New("the server's URL cannot be read")
	}
	u.Path = "/" + databaseName
	return u.String(), nil
}

func redacted(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "the database"
	}
	return u.Redacted()
}

func read(commands chan<- string) {
	defer close(commands)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		commands <- lines.Text()
	}
}
