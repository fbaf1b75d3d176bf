// Package mailbox is a sender for development: it sends nothing, and shows what
// would have been sent.
//
// It keeps the last messages in memory, exactly as the e-mail sender would have
// put them on the wire, and shows them as pages. Whoever sees the pages sees
// whole addresses and values of variables: it is for one's own machine only.
package mailbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/channel/email"
	"github.com/posthouse/posthouse/internal/model"
)

const (
	capacity = 200
	// maxBytes bounds all messages together.
	maxBytes = 32 << 20
)

// Mailbox is the sender and its pages. Make it with New.
type Mailbox struct {
	from  email.Mailbox
	now   func() time.Time
	limit int // maxBytes

	mu    sync.Mutex
	kept  []*Message // oldest first
	bytes int
}

var _ channel.Sender = (*Mailbox)(nil)

// Message is one that would have been sent.
type Message struct {
	ID        uuid.UUID // the delivery's
	At        time.Time
	To        string
	Subject   string
	RequestID uuid.UUID
	BizType   string
	Attempt   int // how often this delivery came
	Raw       []byte
}

// New returns a mailbox that writes messages as from would send them, such as
// "Posthouse <no-reply@example.com>".
func New(from string) (*Mailbox, error) {
	parsed, err := email.ParseMailbox(from)
	if err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	return &Mailbox{from: parsed, now: time.Now, limit: maxBytes}, nil
}

// Send implements channel.Sender: the message is kept. One that could not be
// written is refused, as the e-mail sender would.
func (b *Mailbox) Send(ctx context.Context, m channel.Message) channel.Result {
	if ctx.Err() != nil {
		return channel.Result{Class: model.ClassTransient, Code: "cancelled", Text: "the attempt was ended before it began"}
	}
	at := b.now()
	letter, err := email.Build(b.from, m, at)
	if err != nil {
		return channel.Result{Class: model.ClassPermanent, Code: "message", Text: "the message cannot be written: " + err.Error()}
	}
	kept := &Message{
		ID: m.ID, At: at, To: letter.Recipients[0].String(), Subject: strings.TrimSpace(m.Subject), RequestID: m.RequestID, BizType: m.BizType,
		Attempt: 1, Raw: letter.Data,
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, other := range b.kept {
		if other.ID == m.ID {
			kept.Attempt++
		}
	}
	b.kept = append(b.kept, kept)
	b.bytes += len(kept.Raw)
	drop := 0
	for len(b.kept)-drop > capacity || b.bytes > b.limit && len(b.kept)-drop > 1 {
		b.bytes -= len(b.kept[drop].Raw)
		drop++
	}
	b.kept = slices.Delete(b.kept, 0, drop)
	return channel.Result{
		Class: model.ClassSuccess, Text: "kept in the development mailbox; nothing was sent", ProviderID: strings.Trim(letter.MessageID, "<>"),
	}
}

// Close implements channel.Sender. What was kept can still be seen.
func (b *Mailbox) Close() error { return nil }

// Messages returns what is kept, newest first.
func (b *Mailbox) Messages() []*Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := slices.Clone(b.kept)
	slices.Reverse(list)
	return list
}

// find returns the newest message of a delivery, nil where there is none.
func (b *Mailbox) find(id uuid.UUID) *Message {
	for _, m := range b.Messages() {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// opened is a message taken apart, as a mail program would.
type opened struct {
	*Message
	Headers []headerLine
	Text    string
	HTML    string
}

type headerLine struct{ Name, Value string }

func (m *Message) open() (opened, error) {
	o := opened{Message: m}
	read, err := mail.ReadMessage(bytes.NewReader(m.Raw))
	if err != nil {
		return o, err
	}
	var words mime.WordDecoder
	head, _, _ := bytes.Cut(m.Raw, []byte("\r\n\r\n"))
	for line := range strings.SplitSeq(strings.ReplaceAll(string(head), "\r\n ", " "), "\r\n") {
		name, value, _ := strings.Cut(line, ": ")
		if decoded, err := words.DecodeHeader(value); err == nil {
			value = decoded
		}
		o.Headers = append(o.Headers, headerLine{strings.TrimSuffix(name, ":"), value})
	}
	err = o.part(read.Header.Get("Content-Type"), read.Header.Get("Content-Transfer-Encoding"), read.Body)
	return o, err
}

func (o *opened) part(contentType, encoding string, body io.Reader) error {
	kind, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return err
	}
	if strings.HasPrefix(kind, "multipart/") {
		parts := multipart.NewReader(body, parameters["boundary"])
		for {
			p, err := parts.NextRawPart()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := o.part(p.Header.Get("Content-Type"), p.Header.Get("Content-Transfer-Encoding"), p); err != nil {
				return err
			}
		}
	}
	switch encoding {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	switch kind {
	case "text/plain":
		o.Text = string(data)
	case "text/html":
		o.HTML = string(data)
	}
	return nil
}
