package telemetry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	redacted = "[redacted]"
	// maxValue bounds one message or value in the log, in bytes.
	maxValue = 2 << 10
	// maxScanned bounds how much of a text is looked at to get there.
	maxScanned = 2 * maxValue
)

// secretWords are the words of a key whose value is never shown, whatever it
// is. contentWords name what a third party sent: texts under them are not
// shown, numbers (their sizes and counts) are.
var (
	secretWords = wordSet("authorization", "cookie", "cookies", "password", "passwd", "pwd", "passphrase",
		"secret", "secrets", "token", "tokens", "key", "keys", "apikey", "dsn", "credential", "credentials",
		"signature", "signatures", "userinfo")
	contentWords = wordSet("body", "payload", "header", "headers", "query", "variables")
	urlWords     = wordSet("url", "uri", "endpoint", "referer", "location")
)

func wordSet(words ...string) map[string]bool {
	set := make(map[string]bool, len(words))
	for _, w := range words {
		set[w] = true
	}
	return set
}

// secretEnding finds the word that is not set apart: PGPASSWORD, authtoken.
func secretEnding(word string) bool {
	return strings.HasSuffix(word, "password") || strings.HasSuffix(word, "secret") || strings.HasSuffix(word, "token")
}

// keyClass is how much of a value its key allows to be shown.
type keyClass int

const (
	openKey keyClass = iota
	urlKey
	contentKey
	secretKey
)

// classOf splits key into its words (apiKey, api_key and api-key are all "api"
// and "key") and returns the strictest class among them.
func classOf(key string) keyClass {
	class := openKey
	start := 0
	take := func(end int) {
		if end <= start {
			return
		}
		switch word := strings.ToLower(key[start:end]); {
		case secretWords[word], secretEnding(word):
			class = max(class, secretKey)
		case contentWords[word]:
			class = max(class, contentKey)
		case urlWords[word]:
			class = max(class, urlKey)
		}
	}
	lowerBefore := false
	for i, r := range key {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			take(i)
			start = i + utf8.RuneLen(r)
			lowerBefore = false
		case unicode.IsUpper(r) && lowerBefore:
			take(i)
			start = i
			lowerBefore = false
		default:
			lowerBefore = unicode.IsLower(r) || unicode.IsDigit(r)
		}
	}
	take(len(key))
	return class
}

// redactAttr is the ReplaceAttr of both formats.
func redactAttr(groups []string, a slog.Attr) (out slog.Attr) {
	a.Key = printable(a.Key)
	defer func() {
		// A value whose own String or Error panics must not take down its caller.
		if recover() != nil {
			out = slog.String(a.Key, "[unprintable]")
		}
	}()
	class := classOf(a.Key)
	for _, g := range groups {
		class = max(class, classOf(g))
	}
	return slog.Attr{Key: a.Key, Value: redactValue(class, a.Value)}
}

func redactValue(class keyClass, v slog.Value) slog.Value {
	if class == secretKey {
		return slog.StringValue(redacted)
	}
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(redactText(class, v.String()))
	case slog.KindAny:
		return redactAny(class, v.Any())
	default: // numbers, times, and groups, whose members come one by one
		return v
	}
}

func redactAny(class keyClass, x any) slog.Value {
	switch x := x.(type) {
	case nil:
		return slog.AnyValue(nil)
	case *slog.Source:
		return slog.AnyValue(x)
	case []byte:
		return slog.StringValue(fmt.Sprintf("[%d bytes]", len(x)))
	case json.RawMessage:
		return slog.StringValue(fmt.Sprintf("[%d bytes]", len(x)))
	case http.Header:
		return slog.StringValue(fmt.Sprintf("[%d header fields]", len(x)))
	case url.URL:
		return slog.StringValue(redactText(max(class, urlKey), x.String()))
	case *url.URL:
		return slog.StringValue(redactText(max(class, urlKey), x.String()))
	case error:
		return slog.StringValue(redactText(class, x.Error()))
	case fmt.Stringer:
		return slog.StringValue(redactText(class, x.String()))
	}
	// Anything else is shown as its JSON, each member under the rule for its
	// own key.
	raw, err := json.Marshal(x)
	if err != nil {
		return slog.StringValue("[unprintable]")
	}
	if len(raw) > maxScanned {
		return slog.StringValue(fmt.Sprintf("[a value of %d bytes]", len(raw)))
	}
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // so that large numbers come out as they are
	if err := decoder.Decode(&tree); err != nil {
		return slog.StringValue("[unprintable]")
	}
	return slog.AnyValue(redactTree(class, tree))
}

func redactTree(class keyClass, node any) any {
	switch node := node.(type) {
	case map[string]any:
		clean := make(map[string]any, len(node))
		for k, v := range node {
			clean[printable(k)] = redactTree(max(class, classOf(k)), v)
		}
		return clean
	case []any:
		for i, v := range node {
			node[i] = redactTree(class, v)
		}
		return node
	case string:
		return redactText(class, node)
	}
	if class == secretKey {
		return redacted
	}
	return node
}

// redactText makes text fit for the log: without what looks like a
// credential, printable, and at most maxValue bytes long.
func redactText(class keyClass, text string) string {
	switch class {
	case secretKey, contentKey:
		return redacted
	case urlKey:
		if i := strings.IndexAny(text, "?#"); i >= 0 {
			text = text[:i]
		}
	}
	dropped := 0
	if len(text) > maxScanned {
		kept := cutAtWord(text[:maxScanned])
		dropped = len(text) - len(kept)
		text = kept
	}
	text = printable(scrub(text))
	if len(text) > maxValue {
		end := maxValue
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		dropped += len(text) - end
		text = text[:end]
	}
	if dropped > 0 {
		text += fmt.Sprintf("… [%d bytes more]", dropped)
	}
	return text
}

// cutAtWord drops the last, broken word of a text that was cut: half a
// connection string is not recognised as one.
func cutAtWord(text string) string {
	if i := strings.LastIndexAny(text, " \t\r\n"); i >= 0 {
		return text[:i]
	}
	if i := strings.Index(text, "://"); i >= 0 {
		return text[:i+len("://")]
	}
	return text
}

var (
	// scheme://user:password@, up to the last @ of the word: a password may
	// hold an unescaped @ or /.
	urlUserinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s"'<>]*@`)
	// What follows ? or # in a URL.
	urlQuery = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>?#]*)[?#][^\s"'<>]*`)
	// user:password@tcp(host)/name and user:password@/name, as MySQL's driver wants it.
	mysqlUserinfo = regexp.MustCompile(`[^\s"'<>/]*:[^\s"'<>]*@([a-z0-9]+\(|/)`)
	// Authorization: …, Set-Cookie: …, to the end of the line.
	headerLine = regexp.MustCompile(`(?i)((?:authorization|cookie)["']?\s*[=:]\s*)[^\r\n]+`)
	// password=…, "password": "…"
	assignment = regexp.MustCompile(`(?i)([a-z0-9_-]*(?:password|passwd|pwd|passphrase)["']?\s*[=:]\s*)("[^"]*"?|'[^']*'?|[^\s,;&]+)`)
	// token=…, "token": "…"; not "token: …", which is what parsers say.
	assignmentStrict = regexp.MustCompile(`(?i)([a-z0-9_-]*(?:secret|token|api[_-]?key|access[_-]?key|private[_-]?key)(?:["']?\s*=\s*|["']\s*:\s*))("[^"]*"?|'[^']*'?|[^\s,;&]+)`)
	bearer           = regexp.MustCompile(`(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}`)
)

// scrub takes out what has the form of a credential.
func scrub(text string) string {
	if strings.Contains(text, "@") {
		text = urlUserinfo.ReplaceAllString(text, "${1}"+redacted+"@")
		text = mysqlUserinfo.ReplaceAllString(text, redacted+"@${1}")
	}
	if strings.Contains(text, "://") {
		text = urlQuery.ReplaceAllString(text, "${1}")
	}
	if strings.ContainsAny(text, "=:") {
		text = headerLine.ReplaceAllString(text, "${1}"+redacted)
		text = assignment.ReplaceAllString(text, "${1}"+redacted)
		text = assignmentStrict.ReplaceAllString(text, "${1}"+redacted)
	}
	if strings.Contains(text, "earer") || strings.Contains(text, "EARER") {
		text = bearer.ReplaceAllString(text, "${1}"+redacted)
	}
	return text
}

// printable writes out what a terminal or a parser might act on: NUL and other
// control characters, invisible ones, and bytes that are not UTF-8. Line feed
// and tab stay; both formats quote them.
func printable(text string) string {
	clean := true
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f {
			clean = false
			break
		}
	}
	if clean {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == '\n' || r == '\t' || unicode.IsGraphic(r):
			b.WriteString(text[i : i+size])
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += size
	}
	return b.String()
}
