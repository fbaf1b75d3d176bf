package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Environment stands in [Problem.File] where a problem is not in the file but in the environment.
const Environment = "environment"

// Problem is one thing that is wrong with a configuration, where it is, and how to mend it. No field ever holds a
// value that came from the environment or from a secret's file.
type Problem struct {
	File    string // the file's name, or Environment
	Line    int    // from 1; 0 where there is no line, as in the environment or in a file that cannot be read
	Column  int    // from 1; 0 together with Line
	Path    string // the key, as in sources.erp.consume.timeout; empty for the file as a whole
	Message string // what is wrong
	Fix     string // what to do; may be empty
}

// String is the problem in one line, as in
// "posthouse.yaml:12:7: sources.erp.consume.orphan_after: orphan_after 90s is below 2 × timeout 60s; raise orphan_after or lower timeout".
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", p.Line, p.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Fix != "" {
		b.WriteString("; " + p.Fix)
	}
	return b.String()
}

// sortProblems puts problems in the order in which they stand in the file, and drops those that are said twice.
func sortProblems(problems []Problem) []Problem {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Fix, b.Fix))
	})
	return slices.Compact(problems)
}
