package sqlite

import "strconv"

// list writes numbers as a JSON array, for json_each: one statement for any
// number of them.
func list[N ~int32 | ~int64](numbers []N) string {
	text := []byte{'['}
	for i, n := range numbers {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(n), 10)
	}
	return string(append(text, ']'))
}

// tuples is a JSON array of arrays of numbers, for json_each.
type tuples struct{ text []byte }

func (t *tuples) add(numbers ...int64) {
	if len(t.text) > 0 {
		t.text = append(t.text, ',')
	}
	t.text = append(t.text, list(numbers)...)
}

// String is the whole array.
func (t *tuples) String() string { return "[" + string(t.text) + "]" }
