package config

import (
	"strings"
)

// suggest says what an unknown key may have been meant to be: one that is spelled alike, one that belongs to a group
// below, or any that is known here.
func suggest(name string, keys []key) string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.name
	}
	if near := closest(name, all); near != "" {
		return "did you mean " + near + "?"
	}
	for _, k := range keys {
		if k.kind == kindGroup && find(keysOf(k.elem), name) != nil {
			return "did you mean " + k.name + "." + name + "?"
		}
	}
	return "known keys: " + names(keys)
}

func names(keys []key) string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.name
	}
	return strings.Join(all, ", ")
}

// closest returns the word that is fewest changes away, if that is at most a third of its length and at least one.
func closest(word string, words []string) string {
	if len(word) > 64 {
		return ""
	}
	best, least := "", -1
	for _, candidate := range words {
		changes := distance(strings.ToLower(word), candidate)
		if changes <= max(1, len(candidate)/3) && (least < 0 || changes < least) {
			best, least = candidate, changes
		}
	}
	return best
}

// distance counts the changes of one letter, and the swaps of two neighbours, that turn a into b.
func distance(a, b string) int {
	before, last, this := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		this[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			this[j] = min(last[j]+1, this[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				this[j] = min(this[j], before[j-2]+1)
			}
		}
		before, last, this = last, this, before
	}
	return last[len(b)]
}
