package ingest

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/posthouse/posthouse/internal/model"
)

// hopByHop says whether the header speaks of the connection and not of the
// message. Those that the Connection header names do, too.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// What makes a name that of a credential, once it is spelled by appendSpelled:
// a word anywhere in it, as in X-Telegram-Bot-Api-Secret-Token, its last part, as in X-Db-Pwd, or its end.
// A signature is none: it is worth nothing without the secret.
var (
	credentialWords = [][]byte{[]byte("password"), []byte("passwd"), []byte("credential"), []byte("secret"), []byte("token")}
	credentialParts = map[string]bool{
		"authorization": true, "authentication": true, "auth": true, "jwt": true, "bearer": true, "pass": true, "pwd": true, "pw": true,
		"cookie": true, "cookie2": true, "key": true, "authkey": true, "accesskey": true, "privatekey": true,
	}
	credentialEnd = []byte("apikey")
	// harmlessKeys name a push, and open nothing.
	harmlessKeys = map[string]bool{"idempotency-key": true, "x-idempotency-key": true}
)

// appendSpelled appends a name in the one way in which names are compared: in
// lower case, its parts separated by one -, where they were by anything but
// letters and digits, or by a capital.
func appendSpelled(to []byte, name string) []byte {
	start, capital := len(to), true
	for _, c := range []byte(name) {
		switch {
		case 'A' <= c && c <= 'Z':
			if !capital {
				to = append(to, '-')
			}
			to, capital = append(to, c|0x20), true
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			to, capital = append(to, c), false
		default:
			if len(to) > start && to[len(to)-1] != '-' {
				to = append(to, '-')
			}
			capital = true
		}
	}
	return bytes.TrimSuffix(to, []byte("-"))
}

// credentialName says whether a spelled name is that of a credential.
func credentialName(name []byte) bool {
	for _, word := range credentialWords {
		if bytes.Contains(name, word) {
			return true
		}
	}
	last := name[bytes.LastIndexByte(name, '-')+1:]
	return credentialParts[string(last)] && !harmlessKeys[string(name)] || bytes.HasSuffix(name, credentialEnd)
}

// credentialHeader says whether the header of this name carries a credential.
func credentialHeader(name string) bool {
	var short [64]byte
	return credentialName(appendSpelled(short[:0], name))
}

// longCode is how many characters sig and code have in a query where they are
// as good as a password, and not a result's number.
const longCode = 20

// credentialParameter says whether the query parameter of this encoded name
// and decoded value carries a credential.
func credentialParameter(encoded, value string) bool {
	name := encoded
	if strings.ContainsAny(encoded, "%+") {
		if decoded, err := url.QueryUnescape(encoded); err == nil {
			name = decoded
		}
	}
	var short [64]byte
	spelled := appendSpelled(short[:0], name)
	switch string(spelled) {
	case "sig", "code":
		return len(value) >= longCode
	}
	return credentialName(spelled)
}

// removed stands for a credential where there is no key to hash it with.
const removed = "[removed]"

// sanitizer writes down headers and queries without their credentials.
type sanitizer struct {
	// hash returns a keyed hash of a credential, in printable ASCII; nil: the
	// credential becomes "[removed]".
	hash func([]byte) string
}

func (s sanitizer) replace(credential string) string {
	if s.hash == nil {
		return removed
	}
	return s.hash([]byte(credential))
}

// appendHeaders appends header as field lines, sorted by their canonical names,
// all values of one name in their order. Hop-by-hop fields are left out.
func (s sanitizer) appendHeaders(to []byte, header http.Header, host string) []byte {
	var few [32]field
	fields := few[:0]
	for name, values := range header {
		if name != "Host" && !hopByHop(name) {
			fields = append(fields, field{name, values})
		}
	}
	if host != "" {
		fields = append(fields, field{name: "Host"}) // net/http keeps it apart
	}
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	nominated := nominated(header["Connection"])
	hosts := [1]string{host}
	for _, f := range fields {
		if f.name == "Host" {
			f.values = hosts[:]
		}
		if !fieldName(f.name) || nominated[f.name] {
			continue
		}
		credential := credentialHeader(f.name)
		for _, value := range f.values {
			if credential {
				value = s.replace(value)
			}
			to = append(to, f.name...)
			to = append(to, ": "...)
			to = appendFieldValue(to, value)
			to = append(to, "\r\n"...)
		}
	}
	return to
}

type field struct {
	name   string
	values []string
}

// nominated returns the canonical names of the headers that the Connection
// header speaks of; nil for none.
func nominated(connection []string) map[string]bool {
	var names map[string]bool
	for _, list := range connection {
		for option := range strings.SplitSeq(list, ",") {
			option = strings.Trim(option, " \t")
			switch {
			case option == "", strings.EqualFold(option, "close"), strings.EqualFold(option, "keep-alive"):
				continue // nearly always
			case names == nil:
				names = make(map[string]bool)
			}
			names[http.CanonicalHeaderKey(option)] = true
		}
	}
	return names
}

// tokenBytes are the bytes that a token of HTTP is made of.
var tokenBytes = func() (table [256]bool) {
	for c := '!'; c <= '~'; c++ {
		table[c] = !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	}
	return table
}()

// fieldName says whether name is a token. net/http lets no other pass.
func fieldName(name string) bool {
	for i := range len(name) {
		if !tokenBytes[name[i]] {
			return false
		}
	}
	return name != ""
}

// appendFieldValue appends value; control characters become spaces. net/http
// lets no value with one pass, but for tabs.
func appendFieldValue(to []byte, value string) []byte {
	start := len(to)
	to = append(to, value...)
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			to[start+i] = ' '
		}
	}
	return to
}

// appendQuery appends a raw query, byte for byte but for the values of
// credentials.
func (s sanitizer) appendQuery(to []byte, query string) []byte {
	for query != "" {
		end := strings.IndexAny(query, "&;") // some receivers split at ; too
		pair, separator := query, ""
		if end >= 0 {
			pair, separator, query = query[:end], query[end:end+1], query[end+1:]
		} else {
			query = ""
		}
		name, value, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(value); err == nil {
			value = decoded // the same credential has the same hash, however it was written
		}
		if value != "" && credentialParameter(name, value) {
			to = append(to, name...)
			to = append(to, '=')
			to = append(to, url.QueryEscape(s.replace(value))...)
		} else {
			to = append(to, pair...)
		}
		to = append(to, separator...)
	}
	return to
}

// printable makes a header's value fit to be shown and kept: valid UTF-8
// without control characters, at most limit bytes, never cut inside a character.
func printable(value string, limit int) string {
	plain := len(value) <= limit
	for i := 0; plain && i < len(value); i++ {
		plain = ' ' <= value[i] && value[i] < 0x7f
	}
	if plain {
		return value
	}
	var b strings.Builder
	for _, r := range value {
		if r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 {
			r = utf8.RuneError
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// contentType returns the value that is kept beside the headers.
func contentType(header http.Header) string {
	if values := header["Content-Type"]; len(values) > 0 {
		return printable(values[0], model.MaxContentType)
	}
	return ""
}
