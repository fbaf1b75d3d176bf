package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// self is how this command was started, to be pasted into a shell.
func self() string { return selfOf(os.Args[0], os.Executable) }

func selfOf(name string, executable func() (string, error)) string {
	path, err := executable()
	if err == nil && slices.ContainsFunc(strings.Split(filepath.ToSlash(path), "/"), func(part string) bool { return strings.HasPrefix(part, "go-build") }) {
		return "go run ./cmd/posthouse" // its executable is gone, or hard to find, afterwards
	}
	return word(name)
}

var safe = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// word is text as one word of a shell.
func word(text string) string {
	if safe.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
