package main

import (
	"fmt"
	"strings"

	"github.com/posthouse/posthouse/internal/config"
)

const exampleHead = `# Configuration of posthouse. It works as it is: one source named demo, kept in SQLite and handed to a handler over HTTP.
#
# A line that begins with # and no blank after it shows a key and its default, or a sample where there is none: take
# the # away to set it. "posthouse config check --config FILE" tells every problem at once.
#
# ${NAME} within a text is replaced by that environment variable ($$ stands for one $); a secret, and the url of store
# and lock, may be file:/path instead. Secrets written out in this file are refused.
# The environment variable POSTHOUSE_KEYS holds the keys for what is kept hashed or encrypted: id:base64,id:base64,…,
# the current one first. It must be set where there are channels.
`

// exampleSets is what the example does set, as YAML.
var exampleSets = map[string]string{
	"store.url":                                 "sqlite:./posthouse.db",
	"sources.<name>.verify.kind":                "none",
	"sources.<name>.handler.http.url":           "http://127.0.0.1:9000/push",
	"sources.<name>.handler.http.allow_private": "true",
	"sources.<name>.consume.enabled":            "true",
}

// exampleBlocks are groups that the example shows by a sample instead of key by key; docs/configuration.md has all.
var exampleBlocks = map[string]string{
	"channels": `#channels:
  #in_app: {}
  #mail: {type: email, smtp: {host: "${MAIL_HOST}", username: "${MAIL_USERNAME}", password: "${MAIL_PASSWORD}"}, from: "Approvals <no-reply@example.com>", rate: 50/s}
  #text: {type: http, request: {url: "https://sms.example.com/send", headers: {Authorization: "Bearer ${SMS_TOKEN}", Idempotency-Key: "{{.delivery.id}}"}, body: '{"to": {{json .address}}, "text": {{json .body}}}'}, classify: [{when: body.code == "ILLEGAL_NUMBER", class: permanent}], provider_id: body.sid}
`,
	"policies": `#policies: [{when: 'priority == "high"', send: [in_app, text], success: {all: [in_app], any: [text]}}, {send: [in_app, mail]}]
`,
	"sources.<name>.handler.notify": `      # notify: {idempotency_key: 'body.id + ":" + body.status', biz_type: '"order.status"', template: '"order_status"',
      #   recipient: {id: body.user_id, email: body.user_email}, variables: {order: body.id}}
`,
}

const (
	exampleSource = "demo"
	exampleWidth  = 110
)

// renderExample writes the commented configuration.
func renderExample(m meanings) (string, error) {
	var b strings.Builder
	b.WriteString(exampleHead)
	block := "-"
	for _, e := range config.Reference() {
		if strings.HasPrefix(e.Path, block) {
			continue
		}
		meaning, err := m.of(e)
		if err != nil {
			return "", err
		}
		indent := strings.Repeat("  ", e.Depth)
		set, isSet := exampleSets[e.Path]
		if e.Depth == 0 || e.Depth == 2 && strings.HasPrefix(e.Path, "sources.") {
			b.WriteByte('\n')
		}
		writeComment(&b, indent, append(strings.Fields(meaning), exampleFacts(e, isSet)...))
		if sample, found := exampleBlocks[e.Path]; found {
			b.WriteString(sample)
			block = e.Path
			continue
		}
		switch {
		case e.Table:
			fmt.Fprintf(&b, "%s%s:\n%s  %s:\n", indent, e.Name, indent, exampleSource)
		case e.Group:
			fmt.Fprintf(&b, "%s%s:\n", indent, e.Name)
		case isSet:
			fmt.Fprintf(&b, "%s%s: %s\n", indent, e.Name, set)
		case e.Required:
			return "", fmt.Errorf("%s must be written, so exampleSets must hold it", e.Path)
		case e.Example != "":
			fmt.Fprintf(&b, "%s#%s: %s\n", indent, e.Name, e.Example)
		default:
			fmt.Fprintf(&b, "%s#%s: %s\n", indent, e.Name, e.Default)
		}
	}
	return b.String(), nil
}

// exampleFacts says what else may stand for a key, and its default where the line below does not show it: in one piece
// that no line break parts, or in none.
func exampleFacts(e config.Entry, isSet bool) []string {
	var facts []string
	if words, found := strings.CutPrefix(e.Type, "one of "); found {
		facts = append(facts, words)
	}
	if e.Limits != "" {
		facts = append(facts, e.Limits)
	}
	if isSet && e.Default != "" {
		facts = append(facts, "default "+e.Default)
	}
	if len(facts) == 0 {
		return nil
	}
	return []string{"(" + strings.Join(facts, "; ") + ")"}
}

// writeComment writes prose in lines that are not too long.
func writeComment(b *strings.Builder, indent string, words []string) {
	line := indent + "#"
	for _, word := range words {
		if len(line)+1+len(word) > exampleWidth {
			b.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
