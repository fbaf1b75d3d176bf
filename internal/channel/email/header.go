package email

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

const (
	foldAt  = 78 // where lines of a header are folded, in bytes (RFC 5322 §2.1.1)
	maxWord = 75 // an encoded word, in bytes (RFC 2047 §2)
)

// checkHeaderText returns a text as it may become part of a header: without a
// byte order mark at its beginning, and without characters that turn around what
// is seen. Line ends and other control characters, but for the tab, are refused:
// behind them somebody else's header would begin.
func checkHeaderText(s string) (string, error) {
	s = strings.TrimPrefix(strings.ToValidUTF8(s, "\ufffd"), "\ufeff")
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", errors.New("a line end or another control character cannot stand in a header")
	}
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Bidi_Control, r) && r != '\u200e' && r != '\u200f' && r != '\u061c' {
			return -1
		}
		return r
	}, s), nil
}

// checkSubject also takes off the line end with which the file of a template
// ends.
func checkSubject(s string) (string, error) {
	return checkHeaderText(strings.TrimRight(s, "\r\n"))
}

// header writes one line of a header, folded. The value is ready: tokens that are
// separated by single spaces, each of which may become a fold.
func header(b *strings.Builder, name, value string) {
	b.WriteString(name)
	b.WriteByte(':')
	length := len(name) + 1
	for i, token := range strings.Split(value, " ") {
		if i > 0 && length+1+len(token) > foldAt {
			b.WriteString("\r\n")
			length = 0
		}
		b.WriteByte(' ')
		b.WriteString(token)
		length += 1 + len(token)
	}
	b.WriteString("\r\n")
}

// encodeText writes the value of an unstructured header such as Subject: as it is
// where every reader gets the same back, otherwise in encoded words.
func encodeText(name, s string) string {
	if plainText(s) {
		return s
	}
	return strings.Join(encodedWords(s, foldAt-len(name)-2), " ")
}

// plainText says whether a text survives folding and unfolding as it is.
func plainText(s string) bool {
	if s == "" {
		return true
	}
	if !ascii(s) || strings.Contains(s, "=?") || s[0] == ' ' || s[0] == '\t' || s[len(s)-1] == ' ' || s[len(s)-1] == '\t' ||
		strings.Contains(s, "  ") || strings.Contains(s, " \t") || strings.Contains(s, "\t ") {
		return false
	}
	for word := range strings.SplitSeq(s, " ") {
		if len(word) > maxWord-1 {
			return false
		}
	}
	return true
}

// encodedWords writes a text in encoded words (RFC 2047), each of whole
// characters. The first one has room for the given number of bytes only.
func encodedWords(s string, room int) []string {
	encode := encodeB
	if len(encodeQ(s)) <= len(encodeB(s)) {
		encode = encodeQ
	}
	limit := max(min(room, maxWord), 24)
	var words []string
	word := ""
	for _, r := range s {
		longer := word + string(r)
		if len(encode(longer)) > limit && word != "" {
			words = append(words, encode(word))
			limit, longer = maxWord, string(r)
		}
		word = longer
	}
	return append(words, encode(word))
}

func encodeB(s string) string {
	return "=?utf-8?b?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}

// encodeQ leaves only those characters that an encoded word may hold everywhere,
// also in a name (RFC 2047 §5).
func encodeQ(s string) string {
	var b strings.Builder
	b.WriteString("=?utf-8?q?")
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9':
			b.WriteByte(c)
		case c == ' ':
			b.WriteByte('_')
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	b.WriteString("?=")
	return b.String()
}

// String writes the mailbox as it stands in a header: tokens with single spaces
// between them.
func (m Mailbox) String() string {
	address := "<" + m.Address.String() + ">"
	name := strings.TrimFunc(m.Name, unicode.IsSpace)
	switch {
	case name == "":
		return address
	case ascii(name) && len(name) < 60 && !strings.Contains(name, "=?") && !strings.Contains(name, "  ") && !strings.Contains(name, "\t"):
		return quote(name) + " " + address
	}
	return strings.Join(encodedWords(name, foldAt-len("Reply-To: ")), " ") + " " + address
}
