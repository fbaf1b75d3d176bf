package ingest

import (
	"math/bits"
	"sync"
)

// Buffers up to maxPooled are lent again; allocating larger ones costs little
// beside receiving what fills them.
const (
	minPooledBits = 11 // 2 KiB
	maxPooledBits = 16 // 64 KiB
	maxPooled     = 1 << maxPooledBits
)

// memory lends buffers for bodies out of a bounded number of bytes, which the
// accounts share by fairShare.
type memory struct {
	bound int64
	mu    sync.Mutex // also of the accounts
	all   int64
	pools [maxPooledBits + 1]sync.Pool // by the size's power of two
}

// account is what one source holds.
type account struct{ held int64 }

func (m *memory) used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all
}

// take accounts for n bytes more, where the share allows it.
func (m *memory) take(a *account, n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !fairShare(a.held, m.all, int64(n), m.bound) {
		return false
	}
	a.held += int64(n)
	m.all += int64(n)
	return true
}

func (m *memory) drop(a *account, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.held -= int64(n)
	m.all -= int64(n)
}

// buffer is lent memory. Its length is what it holds, its capacity what is paid for.
type buffer struct {
	bytes   []byte
	account *account
}

// lend returns an empty buffer with room for n bytes, or nil where the account
// would hold more than its share.
func (m *memory) lend(a *account, n int) *buffer {
	exponent := max(minPooledBits, bits.Len(uint(max(n, 1)-1)))
	pooled := exponent <= maxPooledBits
	if pooled {
		n = 1 << exponent
	}
	if !m.take(a, n) {
		return nil
	}
	if pooled {
		if b, ok := m.pools[exponent].Get().(*buffer); ok {
			b.account = a
			return b
		}
	}
	return &buffer{bytes: make([]byte, 0, n), account: a}
}

// giveBack takes b back. Nobody may hold what it contained.
func (m *memory) giveBack(b *buffer) {
	size := cap(b.bytes)
	m.drop(b.account, size)
	b.account = nil
	if size <= maxPooled {
		b.bytes = b.bytes[:0]
		m.pools[bits.Len(uint(size-1))].Put(b)
	}
}
