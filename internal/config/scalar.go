package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes is a number of bytes, written 1MiB, 512KiB, 10MB or as a plain number.
type Bytes int64

// byteUnits is tried from the top: a longer ending comes before the one that it ends in.
var byteUnits = []struct {
	name string
	size int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
	{"B", 1},
}

// ParseBytes reads a size such as 1MiB, 512KiB, 10MB or 1048576. Units of 1024 are KiB, MiB and GiB; units of 1000 are
// KB, MB and GB. Capitals do not matter. The error never repeats the text.
func ParseBytes(s string) (Bytes, error) {
	s = strings.TrimSpace(s)
	size := int64(1)
	for _, unit := range byteUnits {
		if cut := len(s) - len(unit.name); cut >= 0 && strings.EqualFold(s[cut:], unit.name) {
			s, size = strings.TrimRight(s[:cut], " "), unit.size
			break
		}
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, errors.New("not a size such as 512KiB, 1MiB or 1048576")
	}
	if int64(n) > math.MaxInt64/size {
		return 0, errors.New("a size beyond all bounds")
	}
	return Bytes(int64(n) * size), nil
}

// String writes the size in the largest unit of 1024 that divides it.
func (b Bytes) String() string {
	for _, unit := range []string{"GiB", "MiB", "KiB"} {
		if n, _ := ParseBytes("1" + unit); b != 0 && b%n == 0 {
			return strconv.FormatInt(int64(b/n), 10) + unit
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// Secret is a text that must not be seen: however it is formatted, logged or marshalled, only a placeholder comes out.
type Secret string

// Reveal returns the text itself.
func (s Secret) Reveal() string { return string(s) }

// String returns a placeholder.
func (s Secret) String() string { return "(secret)" }

// Format writes a placeholder, whichever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText returns a placeholder, so that encoders and log handlers show nothing else.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// parseDuration reads a duration as Go writes it, with days before it: 1h30m, 8d, 1d12h. The error never repeats the
// text.
func parseDuration(s string) (time.Duration, error) {
	bad := errors.New("not a duration such as 500ms, 30s, 5m or 8d")
	rest := strings.TrimSpace(s)
	var days time.Duration
	if count, after, found := strings.Cut(rest, "d"); found {
		n, err := strconv.ParseUint(count, 10, 16)
		if err != nil {
			return 0, bad
		}
		days = time.Duration(n) * 24 * time.Hour
		if after == "" {
			return days, nil
		}
		rest = after
	}
	d, err := time.ParseDuration(rest)
	if err != nil || days > 0 && d < 0 || d > math.MaxInt64-days {
		return 0, bad
	}
	return days + d, nil
}

// formatDuration writes a duration as a person would: 60s, 90s and 5m rather than 1m0s, 1m30s and 5m0s.
func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == 0:
		return "0s"
	case d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + "d"
	case d%time.Hour == 0:
		return strconv.FormatInt(int64(d/time.Hour), 10) + "h"
	case d%time.Minute == 0 && d >= 2*time.Minute:
		return strconv.FormatInt(int64(d/time.Minute), 10) + "m"
	case d%time.Second == 0 && d < 10*time.Minute:
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	default:
		return d.String()
	}
}
