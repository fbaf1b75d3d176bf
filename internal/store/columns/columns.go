// Package columns answers how values that are kept in columns look there, where
// that is the same on every server: waits, texts, bytes, JSON, the order in which
// settlements are applied, which messages of a call are twins, what audit says.
package columns

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// FormatBackoff writes waits as microseconds, separated by commas.
func FormatBackoff(waits []time.Duration) string {
	texts := make([]string, len(waits))
	for i, wait := range waits {
		texts[i] = strconv.FormatInt(wait.Microseconds(), 10)
	}
	return strings.Join(texts, ",")
}

// ParseBackoff reads what FormatBackoff wrote.
func ParseBackoff(text string) ([]time.Duration, error) {
	if text == "" {
		return nil, nil
	}
	var waits []time.Duration
	for field := range strings.SplitSeq(text, ",") {
		micros, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("stored backoff: %w", err)
		}
		waits = append(waits, Duration(micros))
	}
	return waits, nil
}

// Duration converts stored microseconds.
func Duration(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }

// Text makes s fit for a column of text: valid UTF-8 without NUL. It does not
// shorten it.
func Text(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

// Bytes makes nothing an empty value: drivers write nil as NULL.
func Bytes(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Order returns the places of those settlements that can be applied, by seq.
// Of several that end the same claim of the same work the first can; the
// others come too late by then.
func Order(settlements []model.Settlement) []int {
	order := make([]int, len(settlements))
	for i := range order {
		order[i] = i
	}
	compare := func(i, j int) int {
		a, b := &settlements[i], &settlements[j]
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Token, b.Token))
	}
	slices.SortStableFunc(order, compare)
	return slices.CompactFunc(order, func(i, j int) bool { return compare(i, j) == 0 })
}

// Micros reads a number of microseconds as a duration.
type Micros time.Duration

// Scan implements sql.Scanner.
func (m *Micros) Scan(value any) error {
	switch n := value.(type) {
	case int64:
		*m = Micros(time.Duration(n) * time.Microsecond)
	case []byte:
		parsed, err := strconv.ParseInt(string(n), 10, 64)
		*m = Micros(time.Duration(parsed) * time.Microsecond)
		return err
	default:
		return fmt.Errorf("a duration is a %T", value)
	}
	return nil
}
