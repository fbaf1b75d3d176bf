package config

import (
	"mime"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// textChecks are the tests that a key's check tag names. Each looks at one text and says what is wrong with it, or
// nothing. None repeats what it was given. Those of expressions stand apart: the caller of Parse hands them in.
var textChecks = map[string]func(text) complaint{
	"address":   checkAddress,
	"loopback":  checkLoopback,
	"store":     checkStore,
	"redis":     checkRedis,
	"outside":   checkOutside,
	"header":    checkHeader,
	"line":      checkLine,
	"mediatype": checkMediaType,
	"httpurl":   checkHTTPURL,
	"host":      checkHost,
	"mailbox":   checkMailbox,
	"kind":      checkKind,

	"credential":    checkCredential,
	"requesturl":    checkRequestURL,
	"requestheader": checkRequestHeader,
	"requestbody":   checkRequestBody,
}

func checkAddress(t text) complaint {
	_, port, err := net.SplitHostPort(t.value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return complaint{"is not an address to listen on", "write host:port, as in 127.0.0.1:8080 or :8080"}
	}
	return complaint{}
}

func checkLoopback(t text) complaint {
	if c := checkAddress(t); c.message != "" {
		return c
	}
	if !IsLoopback(t.value) {
		return complaint{"is not a loopback address, and there are no API keys to guard it", "write 127.0.0.1:PORT, [::1]:PORT or localhost:PORT"}
	}
	return complaint{}
}

// IsLoopback tells whether an address host:port can be reached from this machine alone: its host is localhost or a
// loopback IP address. The API is served without keys only there.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// checkStore tests the form of the store's URL; whether the database is there is seen when it is opened. That no
// password is written out in it has been tested before, by hasLiteralPassword.
func checkStore(t text) complaint {
	scheme, rest, _ := strings.Cut(t.value, ":")
	switch scheme {
	case "sqlite":
		switch {
		case rest == "":
			return complaint{"names no file", "write sqlite:PATH, as in sqlite:./posthouse.db"}
		case strings.Contains(rest, ":memory:") || strings.Contains(rest, "mode=memory"):
			return complaint{"is a database in memory, which loses what was answered 2xx", "write sqlite:PATH, as in sqlite:./posthouse.db"}
		}
		return complaint{}
	case "postgres", "postgresql", "mysql":
		u, err := url.Parse(t.value)
		if err != nil || !strings.HasPrefix(rest, "//") || strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") {
			return complaint{"is not a URL", "write " + scheme + "://user:${DB_PASSWORD}@host/name; in a password %, /, ?, #, @ and : are written %25, %2F, %3F, %23, %40 and %3A"}
		}
		return complaint{}
	default:
		return complaint{"names no database that is known", "begin with sqlite:, postgres:// or mysql://"}
	}
}

// checkRedis tests the form of the lock's URL, as checkStore does that of the store's.
func checkRedis(t text) complaint {
	const fix = "write redis://:${REDIS_PASSWORD}@host:6379/0, or rediss:// for TLS; in a password %, /, ?, #, @ and : are written %25, %2F, %3F, %23, %40 and %3A"
	if t.value == "" {
		return complaint{}
	}
	u, err := url.Parse(t.value)
	switch {
	case err != nil:
		return complaint{"is not a URL", fix}
	case u.Scheme != "redis" && u.Scheme != "rediss":
		return complaint{"names no Redis server", fix}
	case u.Opaque != "" || u.Hostname() == "":
		return complaint{"names no host", fix}
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return complaint{"holds more than an address and a database", fix}
	}
	if database := strings.Trim(u.Path, "/"); database != "" {
		if _, err := strconv.ParseUint(database, 10, 16); err != nil {
			return complaint{"names a database that is no number", fix}
		}
	}
	return complaint{}
}

var (
	reference     = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)
	passwordQuery = regexp.MustCompile(`(?i)[?&](password|sslpassword)=([^&#]*)`)
)

// literalPassword says how a URL of this kind has its password from outside.
func literalPassword(check string) complaint {
	sample := "postgres://user:${DB_PASSWORD}@host/name"
	if check == "redis" {
		sample = "redis://:${REDIS_PASSWORD}@host:6379/0"
	}
	return complaint{"holds a password written out", "take it from the environment, as in " + sample + ", or the whole URL from file:/path"}
}

// hasLiteralPassword tells whether a URL as it is written holds a password that no ${NAME} is part of. It goes by the
// text and not by url.Parse, since a password's odd characters are just what url.Parse fails on.
func hasLiteralPassword(raw string) bool {
	for _, match := range passwordQuery.FindAllStringSubmatch(raw, -1) {
		if match[2] != "" && !refers(match[2]) {
			return true
		}
	}
	_, rest, found := strings.Cut(raw, "://")
	if !found {
		return false
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return false
	}
	_, password, _ := strings.Cut(rest[:at], ":")
	return password != "" && !refers(password)
}

func checkOutside(t text) complaint {
	switch {
	case !t.outside:
		return complaint{"is written out in the file", "take it from the environment, as ${NAME}, or from file:/path"}
	case t.value == "":
		return complaint{"is empty", "give the variable or the file a value"}
	}
	return complaint{}
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]*$")

func checkHeader(t text) complaint {
	if !headerName.MatchString(t.value) {
		return complaint{"is not the name of a header", "write letters, digits and - alone, as in X-Hub-Signature-256"}
	}
	switch strings.ToLower(t.value) {
	case "host", "trailer", "transfer-encoding":
		return complaint{"is a header that HTTP itself uses up, and never a signature's", "name the header that the sender signs in, as in X-Hub-Signature-256"}
	}
	return complaint{}
}

func checkLine(t text) complaint {
	if strings.ContainsFunc(t.value, unicode.IsControl) {
		return complaint{"holds a control character", "write it in one line"}
	}
	return complaint{}
}

func checkMediaType(t text) complaint {
	kind, _, err := mime.ParseMediaType(t.value)
	if err != nil || !strings.Contains(kind, "/") || checkLine(t).message != "" {
		return complaint{"is not a content type", "write one like text/plain or application/json"}
	}
	return complaint{}
}

func checkHTTPURL(t text) complaint {
	const fix = "write http://host/path or https://host/path"
	u, err := url.Parse(t.value)
	switch {
	case err != nil || u.Opaque != "":
		return complaint{"is not a URL", fix}
	case u.Scheme != "http" && u.Scheme != "https":
		return complaint{"is neither http nor https", fix}
	case u.User != nil:
		return complaint{"holds a user or a password", "leave it out of the URL"}
	case u.Hostname() == "":
		return complaint{"names no host", fix}
	case u.Fragment != "":
		return complaint{"holds a #fragment, which is never sent", "leave it out of the URL"}
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return complaint{"names no port that exists", "write one of 1 to 65535"}
		}
	}
	return complaint{}
}

// leadsInside tells whether a URL names, by its text alone, an address that a handler is not let reach without
// allow_private. A host name may still resolve to one: that is seen when it is dialled.
func leadsInside(target string) bool {
	u, err := url.Parse(target)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	ip = ip.Unmap()
	return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast() || ip.IsUnspecified()
}
