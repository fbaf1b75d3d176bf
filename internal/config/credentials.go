package config

import (
	"net/url"
	"regexp"
	"strings"
)

// credentialWord finds the names of headers, parameters and members that hold credentials. An author is none.
var credentialWord = regexp.MustCompile(`(?i)auth([^o]|$)|authori[sz]|token|secret|passw|passphrase|credential|cookie|signature` +
	`|(api|app|access|user|account|private|licen[cs]e|client|subscription|master)[-_]?(key|pass|pwd|pw)([^a-z]|$)` +
	`|^(key|sig|sign|pwd|pw|psw|pass)$|[-_.](pwd|pw|pass)$`)

// harmlessName are names in which credentialWord sees more than there is.
var harmlessName = regexp.MustCompile(`(?i)^(x-)?idempotency-?key$`)

// isCredential says whether what is called so holds a credential.
func isCredential(name string) bool {
	return credentialWord.MatchString(name) && !harmlessName.MatchString(name)
}

// schemeWith finds an Authorization's scheme with something behind it that no reference follows.
var schemeWith = regexp.MustCompile(`^\s*(?i:(basic|bearer|digest|token|apikey))\s+([A-Za-z0-9+/_=.:~-]{8,})(?:[^A-Za-z0-9+/_=.:~$-]|$)`)

// knownToken finds the tokens that providers make recognisable.
var knownToken = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.|\bxox[abeprs]-[A-Za-z0-9-]{8,}|\b[rs]k_(?:live|test)_[A-Za-z0-9]{8,}` +
	`|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|\bSG\.[A-Za-z0-9_-]{16,}\.|\bkey-[0-9a-f]{32}\b|-----BEGIN [A-Z ]*PRIVATE KEY-----`)

// looksLikeOne says whether a text is a credential by its own look.
func looksLikeOne(text string) bool {
	if m := schemeWith.FindStringSubmatch(text); m != nil {
		// "Basic training" is none.
		return strings.EqualFold(m[1], "bearer") || strings.ContainsAny(m[2], "0123456789=ABCDEFGHIJKLMNOPQRSTUVWXYZ")
	}
	return knownToken.MatchString(text)
}

// writtenOut is the complaint about a credential that stands in the file.
func writtenOut(what string) complaint {
	return complaint{"holds " + what + " written out", "take it from the environment, as ${NAME}, or from file:/path"}
}

// refers says whether a text as it is written takes anything from the environment. $${NAME} does not: it is a text.
func refers(raw string) bool { return reference.MatchString(strings.ReplaceAll(raw, "$$", "")) }

// fromOutside says whether a text as it is written takes any of its value from the environment or a file.
func fromOutside(raw string) bool { return refers(raw) || strings.HasPrefix(raw, filePrefix) }

var (
	templateAction = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	actionText     = regexp.MustCompile("\"((?:[^\"\\\\]|\\\\.)*)\"|`([^`]*)`")
)

// minBeside is how long a text beside a template's values is that may be a credential: v1- is none.
const minBeside = 6

// spelledOut says whether a value that should come from outside stands in the file: whole, or as a text within a
// template.
func spelledOut(raw string) bool {
	if fromOutside(raw) {
		return false
	}
	beside := strings.TrimSpace(templateAction.ReplaceAllString(raw, ""))
	if !templateAction.MatchString(raw) {
		return beside != ""
	}
	for _, action := range templateAction.FindAllString(raw, -1) {
		for _, m := range actionText.FindAllStringSubmatch(action, -1) {
			if len(m[1]+m[2]) >= minBeside {
				return true
			}
		}
	}
	return len(beside) >= minBeside
}

// signingKey finds the keys with which a template signs.
var signingKey = regexp.MustCompile("hmac_sha256_base64\\s+(?:\"((?:[^\"\\\\]|\\\\.)*)\"|`([^`]*)`)")

// hasCredential says whether a text holds what is a credential wherever it stands.
func hasCredential(raw string) bool {
	if strings.HasPrefix(raw, filePrefix) {
		return false
	}
	for _, m := range signingKey.FindAllStringSubmatch(raw, -1) {
		if key := m[1] + m[2]; key != "" && !refers(key) {
			return true
		}
	}
	return looksLikeOne(strings.ReplaceAll(templateAction.ReplaceAllString(raw, " "), "$$", ""))
}

// webhookPath finds the paths that let one in by a part of them: those of chat services' incoming webhooks.
var webhookPath = regexp.MustCompile(`(?i)(^/services/|/(?:incoming)?(?:web)?hooks?[a-z0-9]*/|/bot[0-9]+:)`)

// credentialInURL says whether a provider's URL, as it is written, holds a token.
func credentialInURL(raw string) bool {
	if strings.HasPrefix(raw, filePrefix) {
		return false
	}
	if hasCredential(raw) {
		return true
	}
	const mark = "from-outside" // stands for what comes from there, so that the rest can be taken apart
	plain := strings.ReplaceAll(raw, "$$", "")
	u, err := url.Parse(templateAction.ReplaceAllString(reference.ReplaceAllString(plain, mark), "{{}}"))
	if err != nil {
		return false
	}
	for name, values := range u.Query() {
		for _, value := range values {
			beside := strings.ReplaceAll(value, "{{}}", "")
			if !strings.Contains(value, mark) && (isCredential(name) && beside != "" && (beside == value || len(beside) >= minBeside) || hasCredential(value)) {
				return true
			}
		}
	}
	at := webhookPath.FindStringIndex(u.Path)
	if at == nil || strings.Contains(u.Path, mark) {
		return false
	}
	if strings.Contains(strings.ToLower(u.Path[at[0]:at[1]]), "/bot") {
		return true
	}
	for part := range strings.SplitSeq(u.Path[at[1]:], "/") {
		if len(strings.ReplaceAll(part, "{{}}", "")) >= 16 {
			return true
		}
	}
	return false
}

// bodyMember finds members, form fields and elements of a body, with what stands in them.
var bodyMember = regexp.MustCompile(`"([A-Za-z0-9_.-]+)"\s*:\s*"((?:[^"\\]|\\.)*)"|(?:^|&)\s*([A-Za-z0-9_.-]+)=([^&]*)` +
	`|<(?:[A-Za-z0-9_-]+:)?([A-Za-z0-9_.-]+)(?:\s[^>]*)?>([^<]*)</`)

// credentialInBody says whether a body, as it is written, holds a credential by its name.
func credentialInBody(raw string) bool {
	if strings.HasPrefix(raw, filePrefix) {
		return false
	}
	for _, m := range bodyMember.FindAllStringSubmatch(templateAction.ReplaceAllString(raw, "{{}}"), -1) {
		if name, value := m[1]+m[3]+m[5], m[2]+m[4]+m[6]; isCredential(name) && spelledOut(value) || hasCredential(value) {
			return true
		}
	}
	return false
}
