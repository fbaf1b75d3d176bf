package inbox

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"net/textproto"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// Message is one push, as its handler sees it.
type Message struct {
	ID          string    // the public id, the same on every attempt
	Source      string    // the source that it was pushed to
	Attempt     int       // 1 for the first since the last replay
	Replay      int       // how often an operator has replayed it
	ReceivedAt  time.Time // when the store kept it, UTC
	ContentType string    // as it was sent, made printable
	Query       string    // the raw query string; credentials replaced
	Body        []byte    // the exact bytes

	raw *model.Message
}

// HeaderLines are the header fields that came with the push, as "Name: value"
// lines, each ended by CR LF: names in canonical form and sorted, values exact,
// credentials replaced by a keyed hash. They must not be changed.
func (m *Message) HeaderLines() []byte { return m.raw.Headers }

// Header parses the header fields that came with the push. Credentials are
// replaced by a keyed hash.
func (m *Message) Header() http.Header {
	lines := append(bytes.Clone(m.raw.Headers), "\r\n"...)
	header, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(lines))).ReadMIMEHeader()
	if err != nil {
		return http.Header{}
	}
	return http.Header(header)
}

// Handler handles messages. It must be safe for concurrent use where its
// source's order is keyed or parallel, and should return soon after ctx has ended:
// until it returns, or orphan_after has passed, the message is not tried again.
//
// A nil error is success. Any other is a failed attempt, retried as the source
// says; Permanent, RetryAfter and Postpone say more. A panic is a failed
// attempt.
type Handler interface {
	Handle(ctx context.Context, message *Message) error
}

// HandlerFunc makes a function a Handler.
type HandlerFunc func(ctx context.Context, message *Message) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, message *Message) error { return f(ctx, message) }
