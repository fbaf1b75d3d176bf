package running

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Refused is the name of the source whose messages the target always refuses.
const Refused = "refused"

// Audit compares, after the end, what the senders, the target and the store
// each know of the sources that the load pushed to.
type Audit struct {
	Store  string // URL
	Load   *Load
	Target *Target
	// InFlight is what was started and not settled at the kills.
	InFlight int
	// RefusedTries is how many attempts the messages of the source Refused have.
	RefusedTries int
	// Serial are the sources that are consumed in order.
	Serial []string
	// Fails says which attempts the target has answered badly, beside those of
	// the source Refused; nil: none.
	Fails func(Execution) bool
}

// Run judges. It stops nothing: the servers must have stopped before.
func (a Audit) Run(t *testing.T) {
	t.Helper()
	var stored map[uuid.UUID]Kept
	err := Inspect(a.Store, func(db *Database) (err error) {
		stored, err = db.Messages(context.Background(), a.Load.cfg.Writing)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := func(source string) bool { return !slices.Contains(a.Load.cfg.Sources, source) }
	maps.DeleteFunc(stored, func(_ uuid.UUID, k Kept) bool { return elsewhere(k.Source) })
	pushes := a.Load.Record()
	executions := slices.DeleteFunc(a.Target.Record(), func(x Execution) bool { return elsewhere(x.Source) })
	runs := map[uuid.UUID][]Execution{}
	for _, x := range executions {
		runs[x.Message] = append(runs[x.Message], x)
	}

	t.Run("IN-01 every push that was answered 2xx is kept", func(t *testing.T) {
		copies := make([]int, len(pushes))
		for _, k := range stored {
			if k.Number < len(copies) {
				copies[k.Number]++
			}
		}
		r := Reporter{T: t}
		for n, p := range pushes {
			if copies[n] < p.Acks {
				r.Problemf("message %d of source %s was acknowledged %d times after %d tries, and is kept %d times", n, p.Source, p.Acks, p.Tries, copies[n])
			}
			if p.Acks == 0 {
				r.Problemf("message %d of source %s was never acknowledged, in %d tries", n, p.Source, p.Tries)
			}
		}
	})
	t.Run("IN-25 every body is kept and handed over to the byte", func(t *testing.T) {
		r := Reporter{T: t}
		for id, k := range stored {
			if k.Fault != nil {
				r.Problemf("message %s: %v", id, k.Fault)
			}
		}
		for _, fault := range a.Target.Faults() {
			r.Problemf("at the target: %s", fault)
		}
	})
	t.Run("AC-8 every kept message ended, and was executed", func(t *testing.T) {
		r := Reporter{T: t}
		for id, k := range stored {
			want := "success"
			if k.Source == Refused {
				want = "failed"
			}
			if k.Status != want {
				r.Problemf("message %s of source %s is %s, want %s", id, k.Source, k.Status, want)
			}
			if len(runs[id]) == 0 {
				r.Problemf("message %s of source %s is %s and was never executed", id, k.Source, k.Status)
			}
		}
		for id := range runs {
			if _, ok := stored[id]; !ok {
				r.Problemf("message %s was executed and is not kept", id)
			}
		}
	})
	t.Run("AC-8 no more is executed twice than was in flight at kills", func(t *testing.T) {
		twice := 0
		for id, xs := range runs {
			extra := len(xs) - a.expected(stored[id].Source, xs)
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
			if n := a.Target.AtOnce(source); n > 1 {
				t.Errorf("%d executions ran at once", n)
			}
		})
		t.Run("IN-09 first come, first started in source "+source, func(t *testing.T) {
			CheckOrder(t, source, pushes, executions)
		})
	}
}

// expected is how many executions a message needs when none is lost.
func (a Audit) expected(source string, xs []Execution) int {
	if source == Refused {
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

// CheckOrder judges: if A was acknowledged before B was sent, A's first attempt
// started first. Messages that were pushed more than once are left out, since
// it is not known which try was kept; so are those whose first attempt was lost
// before it reached the target.
func CheckOrder(t *testing.T, source string, pushes []Push, executions []Execution) {
	t.Helper()
	var firsts []Execution
	seen := map[int]bool{} // a first attempt that was given back starts again
	for _, x := range executions {
		if x.Source == source && !x.CutOff && x.Attempt == 1 && pushes[x.Number].Tries == 1 && !seen[x.Number] {
			firsts = append(firsts, x)
			seen[x.Number] = true
		}
	}
	// Going back, the one of the earliest acknowledgement among all that started
	// later.
	earliest, overtook := -1, 0
	var first, late Execution
	for i, x := range slices.Backward(firsts) {
		if earliest >= 0 && pushes[firsts[earliest].Number].Acked.Before(pushes[x.Number].Sent) {
			first, late = x, firsts[earliest]
			overtook++
		}
		if earliest < 0 || pushes[x.Number].Acked.Before(pushes[firsts[earliest].Number].Acked) {
			earliest = i
		}
	}
	if overtook > 0 {
		t.Errorf("%d messages overtook others. The first: message %d was sent at %v and started by %s at %v, before message %d, which had been acknowledged at %v and was started by %s at %v",
			overtook, first.Number, clock(pushes[first.Number].Sent), first.Instance, clock(first.At),
			late.Number, clock(pushes[late.Number].Acked), late.Instance, clock(late.At))
	}
	t.Logf("compared %d first attempts", len(firsts))
}

func clock(t time.Time) string { return t.UTC().Format(time.StampMicro) }

// Reporter tells the first few problems and counts the others.
type Reporter struct {
	*testing.T
	problems int
}

// Problemf reports a problem, unless there were many.
func (r *Reporter) Problemf(format string, args ...any) {
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
