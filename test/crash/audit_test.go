package crash

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

// refused is the name of the source whose messages the target always refuses.
const refused = "refused"

// audit compares, after the end, what the senders, the target and the store
// each know.
type audit struct {
	Store  string // URL
	Load   *load
	Target *target
	// InFlight is what was started and not settled at the kills.
	InFlight int
	// RefusedTries is how many attempts the messages of the source refused have.
	RefusedTries int
	// Serial are the sources that are consumed in order.
	Serial []string
	// Fails says which attempts the target has answered badly, beside those of
	// the source refused; nil: none.
	Fails func(execution) bool
}

// unhurried is how the target works in these tests: most messages take no
// time, one in sixteen some milliseconds, so that kills find work in flight; one
// in a hundred fails at first; what comes from the source refused always fails.
func unhurried(ctx context.Context, x execution) int {
	if x.number%16 == 0 {
		select {
		case <-time.After(time.Duration(x.number%9) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if x.source == refused || failsFirst(x) {
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

func failsFirst(x execution) bool { return x.number%100 == 7 && x.attempt == 1 }

// run judges. It stops nothing: the server must have stopped before.
func (a audit) run(t *testing.T) {
	t.Helper()
	var stored map[uuid.UUID]kept
	err := inspect(a.Store, func(db *database) (err error) {
		stored, err = db.messages(context.Background())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pushes, executions := a.Load.record(), a.Target.record()
	runs := map[uuid.UUID][]execution{}
	for _, x := range executions {
		runs[x.message] = append(runs[x.message], x)
	}

	t.Run("IN-01 every push that was answered 2xx is kept", func(t *testing.T) {
		copies := make([]int, len(pushes))
		for _, k := range stored {
			if k.number < len(copies) {
				copies[k.number]++
			}
		}
		r := reporter{T: t}
		for n, p := range pushes {
			if copies[n] < p.acks {
				r.problemf("message %d of source %s was acknowledged %d times after %d tries, and is kept %d times", n, p.source, p.acks, p.tries, copies[n])
			}
			if p.acks == 0 {
				r.problemf("message %d of source %s was never acknowledged, in %d tries", n, p.source, p.tries)
			}
		}
	})
	t.Run("IN-25 every body is kept and handed over to the byte", func(t *testing.T) {
		r := reporter{T: t}
		for id, k := range stored {
			if k.fault != nil {
				r.problemf("message %s: %v", id, k.fault)
			}
		}
		for _, fault := range a.Target.faults() {
			r.problemf("at the target: %s", fault)
		}
	})
	t.Run("AC-8 every kept message ended, and was executed", func(t *testing.T) {
		r := reporter{T: t}
		for id, k := range stored {
			want := "success"
			if k.source == refused {
				want = "failed"
			}
			if k.status != want {
				r.problemf("message %s of source %s is %s, want %s", id, k.source, k.status, want)
			}
			if len(runs[id]) == 0 {
				r.problemf("message %s of source %s is %s and was never executed", id, k.source, k.status)
			}
		}
		for id := range runs {
			if _, ok := stored[id]; !ok {
				r.problemf("message %s was executed and is not kept", id)
			}
		}
	})
	t.Run("AC-8 no more is executed twice than was in flight at kills", func(t *testing.T) {
		twice := 0
		for id, xs := range runs {
			extra := len(xs) - a.expected(stored[id].source, xs)
			if extra > 0 {
				twice += extra
			}
		}
		t.Logf("%d pushes, %d kept, %d executions, %d beyond the intended ones, %d in flight at kills",
			len(pushes), len(stored), len(executions), twice, a.InFlight)
		if twice > a.InFlight {
			t.Errorf("%d executions too many, though only %d were in flight at kills", twice, a.InFlight)
		}
	})
	for _, source := range a.Serial {
		t.Run("IN-06 one at a time in source "+source, func(t *testing.T) {
			if n := a.Target.atOnce(source); n > 1 {
				t.Errorf("%d executions ran at once", n)
			}
		})
		t.Run("IN-09 first come, first started in source "+source, func(t *testing.T) {
			checkOrder(t, source, pushes, executions)
		})
	}
}

// expected is how many executions a message needs when none is lost.
func (a audit) expected(source string, xs []execution) int {
	if source == refused {
		return a.RefusedTries
	}
	n := 1
	for _, x := range xs {
		if a.Fails != nil && a.Fails(x) {
			n++
		}
	}
	return n
}

// checkOrder: if A was acknowledged before B was sent, A's first attempt
// started first. Messages that were pushed more than once are left out, since
// it is not known which try was kept; so are those whose first attempt was lost
// before it reached the target.
func checkOrder(t *testing.T, source string, pushes []push, executions []execution) {
	t.Helper()
	var firsts []push
	seen := map[int]bool{} // a first attempt that was given back starts again
	for _, x := range executions {
		if p := pushes[x.number]; x.source == source && x.attempt == 1 && p.tries == 1 && !seen[x.number] {
			firsts = append(firsts, p)
			seen[x.number] = true
		}
	}
	// Going back, the earliest acknowledgement among all that started later.
	var earliest time.Time
	for _, p := range slices.Backward(firsts) {
		if !earliest.IsZero() && earliest.Before(p.sent) {
			t.Errorf("a message that was sent at %v started before one that had been acknowledged at %v",
				p.sent.Format(time.StampMicro), earliest.Format(time.StampMicro))
			return
		}
		if earliest.IsZero() || p.acked.Before(earliest) {
			earliest = p.acked
		}
	}
	t.Logf("compared %d first attempts", len(firsts))
}

// reporter tells the first few problems and counts the others.
type reporter struct {
	*testing.T
	problems int
}

func (r *reporter) problemf(format string, args ...any) {
	if r.problems == 0 {
		r.Cleanup(func() {
			if r.problems > 10 {
				r.Errorf("and %d problems more", r.problems-10)
			}
		})
	}
	if r.problems++; r.problems <= 10 {
		r.Errorf(format, args...)
	}
}
