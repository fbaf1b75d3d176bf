package template

import (
	"regexp"
	"strings"
	"unicode"
)

// tag is what a locale looks like: a language and what narrows it down.
var tag = regexp.MustCompile(`^[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*$`)

// maxLocale is model.MaxLocale.
const maxLocale = 35

// normalLocale returns the one way of writing a locale: zh_hans_cn is zh-Hans-CN. ok is false for what is none.
func normalLocale(locale string) (normal string, ok bool) {
	if len(locale) > maxLocale || !tag.MatchString(locale) {
		return "", false
	}
	parts := strings.Split(strings.ReplaceAll(strings.ToLower(locale), "_", "-"), "-")
	for i, part := range parts[1:] {
		switch {
		case len(parts[i]) == 1: // behind a singleton all is private or an extension
		case len(part) == 2:
			parts[i+1] = strings.ToUpper(part)
		case len(part) == 4 && unicode.IsLetter(rune(part[0])):
			parts[i+1] = strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return strings.Join(parts, "-"), true
}

// fallbacks returns what is looked for in turn: fr-CA, fr. What is no locale has none.
func fallbacks(locale string) []string {
	normal, ok := normalLocale(locale)
	if !ok {
		return nil
	}
	var all []string
	for {
		all = append(all, normal)
		i := strings.LastIndexByte(normal, '-')
		if i < 0 {
			return all
		}
		normal = normal[:i]
		if i := len(normal) - 2; i > 0 && normal[i] == '-' {
			normal = normal[:i] // x of x-private
		}
	}
}
