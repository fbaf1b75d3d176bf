package main

import (
	"fmt"
	"strings"

	"github.com/posthouse/posthouse/internal/config"
)

const referenceHead = "# Configuration reference\n\n" +
	"<!-- Generated from the types of internal/config by go generate ./internal/config. Do not edit. -->\n\n" +
	"`posthouse serve --config posthouse.yaml` reads one YAML file and the environment. `posthouse init` writes a commented\n" +
	"file to begin with; `posthouse config check` tells every problem at once, each with its line, and starts nothing.\n\n" +
	"## How values are written\n\n" +
	"- A **duration** is written as in `500ms`, `30s`, `1h30m` or `8d`; it always has a unit.\n" +
	"- A **rate** is written as in `50/s`, `600/m` or `1000/h`.\n" +
	"- A **size** is written as in `512KiB`, `1MiB` (units of 1024), `10MB` (units of 1000) or as a plain number of bytes.\n" +
	"- **`${NAME}`**, anywhere within a text, is replaced by that environment variable. It is put in after the YAML was\n" +
	"  parsed, so no value can add keys. `$$` stands for one `$`: `$${NAME}` is the text `${NAME}`. Within `{ }` and `[ ]`\n" +
	"  put such a text in quotes. A variable that is not set is a problem; one that is set and empty is an empty text.\n" +
	"- **`file:/path`** in place of a secret, or of the URL of store or lock, reads it from that file, without the newline at\n" +
	"  its end.\n" +
	"- Secrets are never written out in the file: a literal password in the URL of store or lock or of a mail server, a\n" +
	"  literal entry of `secrets`, and a literal credential in a provider's URL, headers or body are refused.\n" +
	"- Unknown keys, keys that stand twice, and values out of bounds are problems; nothing is guessed or cut to fit.\n" +
	"- YAML anchors, aliases and `<<` work, so that sources can share what they have in common.\n\n" +
	"## Environment\n\n" +
	"- **`POSTHOUSE_KEYS`** holds the keys for what is kept hashed or encrypted, as `id:base64,id:base64,…`: the first is the\n" +
	"  current one, the others keep what was written under them recognisable and readable. An id is 1 to 32 of\n" +
	"  `A-Z a-z 0-9 _ -`; a key has at least 32 bytes. `echo \"k1:$(head -c 32 /dev/urandom | base64)\"` makes one. It must\n" +
	"  be set where there are channels.\n\n" +
	"## Keys\n"

// renderReference writes docs/configuration.md: a section for each group, with the keys that it holds itself.
func renderReference(m meanings) (string, error) {
	entries := config.Reference()
	var b strings.Builder
	b.WriteString(referenceHead)
	b.WriteString("\n### At the top\n\n")
	if err := writeKeys(&b, m, entries, ""); err != nil {
		return "", err
	}
	for _, e := range entries {
		if !e.Group {
			continue
		}
		meaning, err := m.of(e)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n### `%s`\n\n%s\n\n", section(e), escape(meaning))
		if err := writeKeys(&b, m, entries, section(e)); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// section is the path under which a group's keys stand.
func section(e config.Entry) string {
	switch {
	case e.Table:
		return e.Path + ".<name>"
	case e.List:
		return e.Path + "[]"
	}
	return e.Path
}

// writeKeys writes the keys that stand directly in a group.
func writeKeys(b *strings.Builder, m meanings, entries []config.Entry, group string) error {
	for _, e := range entries {
		parent := strings.TrimSuffix(strings.TrimSuffix(e.Path, e.Name), ".")
		if parent != group {
			continue
		}
		meaning, err := m.of(e)
		if err != nil {
			return err
		}
		if e.Group {
			meaning = "See [`" + section(e) + "`](#" + anchor(section(e)) + ")."
		}
		fmt.Fprintf(b, "- **`%s`**%s %s\n", e.Name, facts(e), escape(meaning))
	}
	return nil
}

// anchor is what GitHub makes of a heading that is one code span.
func anchor(heading string) string {
	return strings.NewReplacer(".", "", "<", "", ">", "", "[", "", "]", "").Replace(heading)
}

// escape keeps <name> in prose from being taken for HTML.
func escape(s string) string { return strings.ReplaceAll(s, " /in/<source>", " `/in/<source>`") }

// facts says in brackets what may stand for a key.
func facts(e config.Entry) string {
	var facts []string
	if e.Type != "" {
		kind, _, _ := strings.Cut(e.Type, " such as")
		facts = append(facts, kind)
	}
	if e.Limits != "" {
		facts = append(facts, e.Limits)
	}
	switch {
	case e.Required:
		facts = append(facts, "must be written")
	case e.Default != "":
		facts = append(facts, "default `"+e.Default+"`")
	}
	if len(facts) == 0 {
		return ""
	}
	return " (" + strings.Join(facts, "; ") + ")"
}
