package main

import (
	"strings"
	"unicode"
)

// plain makes any text fit for one cell of a terminal's table: at most limit
// characters, and nothing that a terminal would obey.
func plain(text string, limit int) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n == limit {
			b.WriteRune('…')
			break
		}
		if !unicode.IsGraphic(r) || unicode.IsSpace(r) {
			r = ' '
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}
