package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/test/internal/running"
)

// keyOrder judges the executions of one source key by key.
type keyOrder struct {
	Source     string
	KeyOf      func(n int) string
	Pushes     []running.Push
	Executions []running.Execution
	// Block: a message that has not finished lets nothing of its key pass.
	Block bool
}

func (o keyOrder) run(t *testing.T) {
	t.Helper()
	byKey := map[string][]running.Execution{}
	for _, x := range o.Executions {
		if x.Source == o.Source && !x.CutOff {
			key := o.KeyOf(x.Number)
			byKey[key] = append(byKey[key], x)
		}
	}
	r := running.Reporter{T: t}
	compared := 0
	for key, xs := range byKey {
		for i := 1; i < len(xs); i++ {
			if before := xs[i-1]; before.Ended.IsZero() || xs[i].At.Before(before.Ended) {
				r.Problemf("key %s: message %d began while message %d was executed", key, xs[i].Number, before.Number)
			}
		}
		if o.Block {
			o.contiguous(&r, key, xs)
		}
		compared += o.firsts(&r, key, xs)
	}
	t.Logf("%d executions of %d keys, %d first attempts compared", len(o.Executions), len(byKey), compared)
}

// contiguous: once another message has begun, the one before does not return.
func (o keyOrder) contiguous(r *running.Reporter, key string, xs []running.Execution) {
	over := map[uuid.UUID]bool{}
	for i, x := range xs {
		if over[x.Message] {
			r.Problemf("key %s: attempt %d of message %d came after another message had begun", key, x.Attempt, x.Number)
		}
		if i > 0 && xs[i-1].Message != x.Message {
			over[xs[i-1].Message] = true
		}
	}
}

// firsts: what was acknowledged before another was sent, is begun first. Left
// out is what was pushed more than once, since it is not known which try was
// kept; and where a message may be passed, one whose first attempt was lost
// before it reached the target.
func (o keyOrder) firsts(r *running.Reporter, key string, xs []running.Execution) int {
	seen := map[int]bool{}
	var earliest time.Time
	var firsts []running.Push
	for _, x := range xs {
		p := o.Pushes[x.Number]
		if p.Tries == 1 && !seen[x.Number] && (o.Block || x.Attempt == 1) {
			firsts = append(firsts, p)
			seen[x.Number] = true
		}
	}
	for _, p := range slices.Backward(firsts) {
		if !earliest.IsZero() && earliest.Before(p.Sent) {
			r.Problemf("key %s: a message sent at %v began before one acknowledged at %v", key, p.Sent.Format(time.StampMicro), earliest.Format(time.StampMicro))
		}
		if earliest.IsZero() || p.Acked.Before(earliest) {
			earliest = p.Acked
		}
	}
	return len(firsts)
}

// latencies are how long after their acknowledgement the messages that wanted
// picks began first.
func latencies(pushes []running.Push, executions []running.Execution, wanted func(running.Execution, running.Push) bool) (all []time.Duration) {
	seen := map[int]bool{}
	for _, x := range executions {
		p := pushes[x.Number]
		if seen[x.Number] || p.Tries != 1 || p.Acked.IsZero() || !wanted(x, p) {
			continue
		}
		seen[x.Number] = true
		all = append(all, max(0, x.At.Sub(p.Acked)))
	}
	slices.Sort(all)
	return all
}

// percentile of durations in order.
func percentile(all []time.Duration, p int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return all[min(len(all)-1, len(all)*p/100)]
}

func summary(all []time.Duration) string {
	return fmt.Sprintf("%d: p50 %v, p95 %v, longest %v", len(all), percentile(all, 50).Round(time.Millisecond),
		percentile(all, 95).Round(time.Millisecond), percentile(all, 100).Round(time.Millisecond))
}

// longestGap returns the longest time between two begins after from, until to.
func longestGap(executions []running.Execution, from, to time.Time) (longest time.Duration) {
	last := from
	for _, x := range executions {
		if x.At.After(last) && !x.At.After(to) {
			longest, last = max(longest, x.At.Sub(last)), x.At
		}
	}
	return max(longest, to.Sub(last))
}
