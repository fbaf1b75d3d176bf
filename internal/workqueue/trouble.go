package workqueue

import (
	"sync/atomic"
	"time"
)

// trouble remembers since when something has failed without a success between.
type trouble struct{ since atomic.Int64 } // unix nanoseconds; 0: the last one went well

func (f *trouble) tell(err error) {
	if err == nil {
		f.since.Store(0)
	} else {
		f.since.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// longerThan says whether it has failed for longer than d, and since when.
func (f *trouble) longerThan(d time.Duration) (since time.Time, ok bool) {
	n := f.since.Load()
	since = time.Unix(0, n)
	return since, n != 0 && time.Since(since) > d
}
