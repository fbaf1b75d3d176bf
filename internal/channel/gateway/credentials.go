package gateway

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var (
	actions    = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	constants  = regexp.MustCompile("\"((?:[^\"\\\\]|\\\\.)*)\"|`([^`]*)`")
	separators = regexp.MustCompile(`[\s"',;{}()<>]+`)
)

// How long what stands in a request must be to be taken for a credential, by
// where it stands: a word of a URL's path is rarely one.
const (
	minInHeader, minInQuery, minConstant = 8, 6, 6
	minInPath, minInBody                 = 8, 12
)

// publicHeaders are the headers that say nothing secret.
var publicHeaders = []string{"Accept", "Accept-Language", "Content-Type", "Idempotency-Key", "User-Agent"}

// credentials are those parts of a configured request that may be one: a provider
// that repeats them must not make us tell them. What is taken for one and is none
// costs a code that an operator does not read.
func credentials(c Config) (found []string) {
	add := func(least int, words ...string) {
		for _, word := range words {
			if len(word) >= least && !slices.Contains(found, word) {
				found = append(found, word)
			}
		}
	}
	parts := []string{c.URL, c.Body}
	for name, value := range c.Headers {
		if slices.Contains(publicHeaders, http.CanonicalHeaderKey(name)) {
			continue
		}
		parts = append(parts, value)
		fixed := actions.ReplaceAllString(value, " ")
		add(minInHeader, strings.TrimSpace(fixed))
		for _, word := range separators.Split(fixed, -1) {
			add(minInHeader, word)
			_, after, _ := strings.Cut(word, "=")
			add(minInHeader, after)
			if pair, err := base64.StdEncoding.DecodeString(word); err == nil { // Basic
				add(minInHeader, strings.Split(string(pair), ":")...)
			}
		}
	}
	if u, err := url.Parse(actions.ReplaceAllString(c.URL, "")); err == nil {
		for _, values := range u.Query() {
			add(minInQuery, values...)
		}
		for segment := range strings.SplitSeq(u.Path, "/") {
			if hasDigit(segment) {
				add(minInPath, segment)
				add(minInPath, strings.Split(segment, ":")...)
			}
		}
	}
	for _, word := range separators.Split(actions.ReplaceAllString(c.Body, " "), -1) {
		if hasDigit(word) {
			add(minInBody, word)
			_, after, _ := strings.Cut(word, "=")
			add(minInBody, after)
		}
	}
	for _, part := range parts {
		for _, inside := range actions.FindAllString(part, -1) {
			for _, text := range constants.FindAllStringSubmatch(inside, -1) {
				add(minConstant, text[1], text[2])
			}
		}
	}
	return found
}

func hasDigit(s string) bool { return strings.IndexFunc(s, unicode.IsDigit) >= 0 }
