package httptarget

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/posthouse/posthouse/internal/model"
)

const (
	// maxExcerpt is how much of an answer's body an error quotes, in
	// characters.
	maxExcerpt = 300
	// maxRetryAfter bounds what a target may ask for.
	maxRetryAfter = time.Hour
)

// describe says in words what went wrong on the wire. Errors whose text may
// quote what was sent or received are named by what they are.
func describe(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case dns.IsNotFound:
			return "no such host"
		case dns.IsTimeout:
			return "looking up its name timed out"
		}
		return "its name could not be looked up"
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return excerpt([]byte(certificate.Err.Error()))
	}
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return alert.Error()
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it closed the connection"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "timed out"
	}
	return "the connection broke, or what came was not HTTP"
}

func answerText(status int, body []byte) string {
	text := fmt.Sprintf("target answered %d", status)
	if status >= 300 && status <= 399 {
		text += " (redirects are not followed)"
	}
	if quoted := excerpt(body); quoted != "" {
		text += ": " + quoted
	}
	return text
}

// excerpt makes the beginning of a body readable on one line: at most
// maxExcerpt characters, white space drawn together, U+FFFD for what cannot be
// printed.
func excerpt(body []byte) string {
	var b strings.Builder
	runes, space := 0, false
	for i := 0; i < len(body); {
		r, size := utf8.DecodeRune(body[i:])
		i += size
		if unicode.IsSpace(r) {
			space = b.Len() > 0
			continue
		}
		if space {
			b.WriteByte(' ')
			runes++
			space = false
		}
		if runes >= maxExcerpt {
			b.WriteRune('…')
			break
		}
		if !unicode.IsPrint(r) {
			r = utf8.RuneError
		}
		b.WriteRune(r)
		runes++
	}
	return b.String()
}

// retryAfter reads a Retry-After header: seconds, or a date. Nonsense and the
// past are 0, which means that the target did not say.
func retryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		wait := time.Duration(0)
		for _, digit := range value {
			// Digit by digit, so that no number overflows.
			wait = 10*wait + time.Duration(digit-'0')*time.Second
			if wait >= maxRetryAfter {
				return maxRetryAfter
			}
		}
		return wait
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// contentType returns the exact value that the sender gave, and false where it
// gave none. An imported message may have no header lines, or a value that
// cannot be sent.
func contentType(m *model.Message) (string, bool) {
	for line := range strings.SplitSeq(string(m.Headers), "\r\n") {
		name, value, found := strings.Cut(line, ":")
		if !found || !strings.EqualFold(name, "Content-Type") {
			continue
		}
		if value = strings.Trim(value, " \t"); sendable(value) {
			return value, true
		}
		break
	}
	return m.ContentType, m.ContentType != "" && sendable(m.ContentType)
}

// sendable says whether a header may carry the value (RFC 9110: no control
// characters).
func sendable(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
