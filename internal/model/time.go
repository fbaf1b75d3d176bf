package model

import "time"

// Micros is a point in time: microseconds since 1970-01-01 UTC by the store's
// clock. Zero means "not set".
type Micros int64

// MicrosOf converts t, rounding down to the microsecond.
func MicrosOf(t time.Time) Micros { return Micros(t.UnixMicro()) }

// Time converts m to a time in UTC.
func (m Micros) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// Add returns m moved by d, saturating instead of overflowing.
func (m Micros) Add(d time.Duration) Micros {
	sum := m + Micros(d.Microseconds())
	switch {
	case d > 0 && sum < m:
		return 1<<63 - 1
	case d < 0 && sum > m:
		return -1 << 63
	}
	return sum
}

// Sub returns the time from other to m.
func (m Micros) Sub(other Micros) time.Duration {
	return time.Duration(m-other) * time.Microsecond
}
