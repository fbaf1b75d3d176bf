package template

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Problem is one thing that is wrong with a folder of templates, where it is, and how to mend it.
type Problem struct {
	File string `json:"file"`           // its path in the folder of templates
	Line int    `json:"line,omitempty"` // from 1; 0 where it is the file as a whole
	Text string `json:"text"`
	// Warning: the templates can be used as they are. Only [Lint] tells these.
	Warning bool `json:"warning,omitempty"`
}

// String is the problem in one line, as in "approval_todo/email.en.html:3: uses .titel, which variables does not
// declare; did you mean title?".
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:", p.Line)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if p.Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// sortProblems puts problems in the order of the files and lines, and drops those that are said twice.
func sortProblems(problems []Problem) []Problem {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(problems)
}

// printable is a name that came from outside, fit to be shown in one line.
func printable(name string) string {
	const most = 64
	var b strings.Builder
	n := 0
	for _, r := range name {
		if n++; n > most {
			b.WriteString("…")
			break
		}
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}

// didYouMean ends a sentence about an unknown name with the known one that is spelled most alike, if there is one.
func didYouMean(name string, known []string) string {
	if near := closest(name, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// closest returns the word that is fewest changes away, if that is at most a third of its length and at least one.
func closest(word string, words []string) string {
	if len(word) > 64 {
		return ""
	}
	best, least := "", -1
	for _, candidate := range words {
		if len(candidate) > 64 {
			continue
		}
		changes := distance([]rune(strings.ToLower(word)), []rune(strings.ToLower(candidate)))
		if changes <= max(1, len(candidate)/3) && (least < 0 || changes < least) {
			best, least = candidate, changes
		}
	}
	return best
}

// distance counts the changes of one letter, and the swaps of two neighbours, that turn a into b.
func distance(a, b []rune) int {
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
