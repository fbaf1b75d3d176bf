package load

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthouse/posthouse/test/internal/running"
)

// The sources of these tests, one for each order. In each of them many older
// messages always fail, and a few new ones are pushed.
var orders = []string{"parallel", "keyed", "serial"}

// older lists the sources of consecutive older messages. In the short form a
// source has the fewer of them the slower its order fails: in serial order each
// attempt that fails is two commits, one after the other.
var older = scale(slices.Concat(slices.Repeat(orders[:1], 10), slices.Repeat(orders[1:2], 4), orders[2:]), orders)

const (
	news       = 10 // new messages of each source
	startsIn   = time.Second
	sideBySide = 64 // handlers at once of a source in parallel order
)

// failed pushes messages to each source that always fail, waits until
// their retries have come to a steady state, and then pushes the new ones.
func failed(t *testing.T, e running.Engine, backoff time.Duration) headOfLine {
	t.Helper()
	old := scale(50, 5000) * len(older) // 500, 200 and 50, or 5,000 each
	var retries atomic.Int64
	target := running.NewTarget(t, keyedWriting, func(_ context.Context, x running.Execution) int {
		if x.Number >= old {
			return http.StatusOK
		}
		if x.Attempt > 1 {
			retries.Add(1)
		}
		return http.StatusInternalServerError
	})
	cfg := running.Config{Store: e.Fresh(t)}
	for _, order := range orders {
		s := running.Source{Name: order, Order: order, Target: target.URL, MaxRetry: 100, Backoff: backoff, Concurrency: sideBySide}
		if order == "keyed" {
			s.Key, s.Partitions = "body.key", 16
		}
		cfg.Sources = append(cfg.Sources, s)
	}
	server := running.NewServer(t, cfg)
	server.Start("")
	server.WaitReady()
	load := running.NewLoad(t, running.LoadConfig{Doors: []string{server.Door}, Sources: older, Writing: keyedWriting, Connections: 32})
	load.Grant(old)
	load.Wait()
	running.Eventually(t, patience, "the failing messages are tried again", func() error {
		if n := retries.Load(); n < int64(old)/4 {
			return fmt.Errorf("%d retries of %d messages", n, old)
		}
		return nil
	})
	pushed := time.Now()
	before, last := 0, running.NewLoad(t, running.LoadConfig{
		Doors: []string{server.Door}, Sources: orders, Connections: 1, Pause: 50 * time.Millisecond,
		Writing: running.Writing{ContentType: keyedWriting.ContentType, Body: func(n int) []byte { return keyedWriting.Body(n + old) }, Number: keyedWriting.Number},
	})
	stats, err := server.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range stats {
		before += st.Retrying + st.Pending
	}
	last.Grant(news * len(orders))
	last.Wait()
	running.Eventually(t, patience, "the new messages have started", func() error {
		started := 0
		for _, x := range target.Record() {
			if x.Number >= old {
				started++
			}
		}
		if started < news*len(orders) {
			return fmt.Errorf("%d of %d", started, news*len(orders))
		}
		return nil
	})
	executions := target.Record()
	t.Logf("%d failing messages were tried %d times, %d of them waiting when the first new one was pushed at %v",
		old, len(executions), before, pushed.UTC().Format(time.TimeOnly))
	return headOfLine{old: old, news: last.Record(), executions: executions}
}

func keyOf(n int) string { return fmt.Sprint(n % 300) }

var keyedWriting = running.Keyed(keyOf)

// headOfLine is what happened.
type headOfLine struct {
	old        int // messages below this number fail
	news       []running.Push
	executions []running.Execution
}

// waits says how long the slowest new message of a source waited for its start
// after its acknowledgement, and how many attempts of older ones overtook it
// more than once: each of them may have been due before, once. In keyed order
// only those of the same key count, since keys are worked on side by side.
func (h headOfLine) waits(source string) (longest time.Duration, twice int) {
	for i, push := range h.news {
		if push.Source != source {
			continue
		}
		attempts := map[int]int{}
		for _, x := range h.executions {
			if x.Source != source || x.At.Before(push.Acked) {
				if x.Number == h.old+i {
					break // it started before its sender had the answer
				}
				continue
			}
			if x.Number == h.old+i {
				longest = max(longest, x.At.Sub(push.Acked))
				break
			}
			sameKey := keyOf(x.Number) == keyOf(h.old+i)
			if attempts[x.Number]++; attempts[x.Number] > 1 && (source != "keyed" || sameKey) {
				twice++
			}
		}
	}
	return longest, twice
}

// Older messages fail again and again, and there is time to try each when it is
// due: a new one starts within a second. The short form asserts that where a
// machine of any speed has that time.
func TestFailingMessagesKeepNoNewOneWaiting(t *testing.T) {
	running.OnEachEngine(t, "IN-09 IN-16", engines, func(t *testing.T, e running.Engine) {
		judge(t, failed(t, e, scale(4*time.Second, time.Minute)), scale(orders[:1], orders[:2]))
	})
}

// Older messages that fail are due again sooner than they can all be tried, so
// that most of them are due at any time. What is due first goes first, and so a
// new message waits for each of the older ones once, which was due before it,
// and for none twice.
func TestANewMessageWaitsForNoRetryThatIsDueLater(t *testing.T) {
	running.OnEachEngine(t, "IN-09 IN-16", engines, func(t *testing.T, e running.Engine) {
		judge(t, failed(t, e, 50*time.Millisecond), nil)
	})
}

// judge says of each source how long new messages waited; of those that are
// quick, within a second.
func judge(t *testing.T, h headOfLine, quick []string) {
	t.Helper()
	for _, order := range orders {
		longest, twice := h.waits(order)
		t.Logf("%s: the slowest of %d new messages started %v after its acknowledgement, overtaken by %d attempts", order, news, longest.Round(time.Millisecond), twice)
		if slices.Contains(quick, order) && longest > startsIn {
			t.Errorf("%s: a new message started only %v after its acknowledgement, want %v at most", order, longest, startsIn)
		}
		most := 0
		if order == "parallel" {
			most = news * sideBySide // what is claimed at once begins in any order
		}
		if twice > most {
			t.Errorf("%s: %d attempts overtook new messages that were due before them, want %d at most", order, twice, most)
		}
	}
}
