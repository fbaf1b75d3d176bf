package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const help = `  kill N      end it at once (SIGKILL)        stop N     end it in good order (SIGTERM)
  freeze N    let it stand still (SIGSTOP)    thaw N     let it go on
  start N     start it again                  add        start one more
  order O     serial, keyed or parallel: a rolling restart with another configuration
  roll        a rolling restart               rate R     pushes per second; 0 pauses
  help        print this                      quit       stop everything
`

// watch prints a line a second, and does what is typed in.
func watch(ctx context.Context, out io.Writer, c *cluster, l *load, j *judge, commands <-chan string) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	news := make(chan string, 16)
	var before verdict
	var pushedBefore int
	for {
		select {
		case <-ctx.Done():
			return nil
		case line := <-news:
			fmt.Fprintln(out, "  *", line)
		case line, open := <-commands:
			if !open {
				commands = nil // nobody types; it goes on until it is interrupted
				continue
			}
			if strings.TrimSpace(line) == "quit" {
				return nil
			}
			if err := obey(ctx, out, c, l, line, news); err != nil {
				fmt.Fprintln(out, "  !", err)
			}
		case <-tick.C:
			pushed, refused, acknowledged := l.look()
			v := j.look()
			held, order := c.holdings(ctx)
			if strings.HasPrefix(order, "parallel") {
				j.pardon()
			}
			fmt.Fprintf(out, "%s  push %d/s  handle %d/s  waiting %d  not accepted %d │ %s │ %s │ %s\n",
				time.Now().Format(time.TimeOnly), pushed-pushedBefore, v.handled-before.handled, j.missing(acknowledged), refused,
				c.describe(held), order, describe(v, order))
			before, pushedBefore = v, pushed
		}
	}
}

func describe(v verdict, order string) string {
	text := fmt.Sprintf("again %d  at once %d", v.again, v.atOnce)
	if !strings.HasPrefix(order, "parallel") {
		text += fmt.Sprintf("  out of order %d  key at once %d", v.disordered, v.keyAtOnce)
	}
	return text
}

func (c *cluster) describe(held map[string]int) string {
	var all []string
	for _, i := range c.list() {
		state, pid, _ := i.look()
		text := fmt.Sprintf("%d %s", i.number, state)
		if n, known := held[strconv.Itoa(pid)]; known && pid != 0 {
			text += fmt.Sprintf(" %d", n)
		}
		all = append(all, text)
	}
	return strings.Join(all, "  ")
}

// obey does one command.
func obey(ctx context.Context, out io.Writer, c *cluster, l *load, line string, news chan<- string) error {
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil
	}
	argument := ""
	if len(words) > 1 {
		argument = words[1]
	}
	tell := func(text string) { news <- text }
	switch words[0] {
	case "help":
		fmt.Fprint(out, help)
	case "add":
		return c.add(ctx)
	case "roll":
		go c.roll(tell)
	case "order":
		if argument != "serial" && argument != "keyed" && argument != "parallel" {
			return errors.New("order serial, order keyed, or order parallel")
		}
		c.order = argument
		go c.roll(tell)
	case "rate":
		rate, err := strconv.Atoi(argument)
		if err != nil || rate < 0 {
			return errors.New("rate needs a number, as in: rate 200")
		}
		l.rate.Store(int64(rate))
	case "kill", "stop", "freeze", "thaw", "start":
		n, err := strconv.Atoi(argument)
		all := c.list()
		if err != nil || n < 1 || n > len(all) {
			return fmt.Errorf("%s needs a number from 1 to %d", words[0], len(all))
		}
		return act(c, all[n-1], words[0])
	default:
		return fmt.Errorf("%q is no command; help lists them", words[0])
	}
	return nil
}

func act(c *cluster, i *instance, what string) error {
	switch what {
	case "kill":
		return i.signal(syscall.SIGKILL, "down")
	case "stop":
		return i.signal(syscall.SIGTERM, "stopping")
	case "freeze":
		return i.signal(syscall.SIGSTOP, "frozen")
	case "thaw":
		return i.signal(syscall.SIGCONT, "up")
	}
	return c.start(i)
}
