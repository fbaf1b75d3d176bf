package main

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// bodySize is the size of what each message carries, in bytes.
const bodySize = 1024

// customers is how many keys there are in order keyed.
const customers = 1000

func customer(number int) string { return fmt.Sprintf("C-%04d", number%customers) }

// payload is the JSON of one message.
func payload(number int) []byte {
	b := fmt.Appendf(nil, `{"number":"%08d","event":"order.shipped","customerId":"%s","currency":"EUR","total":1284.50,"trace":"`, number, customer(number))
	const end = `"}`
	b = append(b, strings.Repeat("x", bodySize-len(b)-len(end))...)
	return append(b, end...)
}

// handled counts what handlers were called for.
type handled struct {
	want int64
	n    atomic.Int64
	all  chan struct{} // closed when all were
}

func newHandled(n int) *handled { return &handled{want: int64(n), all: make(chan struct{})} }

func (h *handled) one() {
	if h.n.Add(1) == h.want {
		close(h.all)
	}
}
