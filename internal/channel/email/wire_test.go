package email

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"regexp"
	"strings"
	"testing"
	"time"
)

// wireTest sends drafts to a real server, and reads what it got.
type wireTest struct {
	server *realServer
	sender *Sender
}

func newWireTest(t *testing.T) *wireTest {
	t.Helper()
	server := startReal(t, realOptions{noTLS: true, utf8: true})
	return &wireTest{server, open(t, server.host, server.port, func(c *Config) { c.TLS = NoTLS })}
}

// sent is one message as it came.
type sent struct {
	envelope envelope
	raw      string // what was on the wire
	header   mail.Header
	lines    []string // of the header, folded
	text     string
	html     string
	files    []string
}

var errRefused = errors.New("refused")

// send sends a draft; errRefused where it was not written at all.
func (w *wireTest) send(t *testing.T, d Draft) (*sent, error) {
	letter, err := Compose(d)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	w.server.mu.Lock()
	w.server.wire.Reset()
	before := len(w.server.got)
	w.server.mu.Unlock()
	if _, failed := w.sender.carry(t.Context(), letter); failed != nil {
		return nil, fmt.Errorf("the server did not take it: at %s: %w", failed.at, failed.err)
	}
	got := w.server.envelopes()
	if len(got) != before+1 {
		return nil, fmt.Errorf("the server got %d messages of one", len(got)-before)
	}
	s := &sent{envelope: got[before], raw: w.server.bytes()}
	err = s.read(letter)
	return s, err
}

// read checks what is true of every message, and takes it apart.
func (s *sent) read(letter Letter) error {
	data := string(s.envelope.data)
	if strings.TrimSuffix(data, "\r\n") != strings.TrimSuffix(string(letter.Data), "\r\n") {
		return errors.New("the server got other bytes than were written")
	}
	_, body, found := strings.Cut(s.raw, "DATA\r\n")
	if !found || strings.Count(body, "\r\n.\r\n") != 1 {
		return errors.New("it does not end once")
	}
	if bare := strings.ReplaceAll(s.raw, "\r\n", ""); strings.ContainsAny(bare, "\r\n\x00") {
		return errors.New("a bare CR or LF, or a NUL, was on the wire")
	}
	inner, _, _ := strings.Cut(body, "\r\n.\r\n")
	for line := range strings.SplitSeq(inner, "\r\n") {
		switch {
		case len(line) > 998:
			return fmt.Errorf("a line has %d bytes", len(line))
		case strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".."):
			return errors.New("a dot was not doubled")
		case !letter.UTF8 && !ascii(line):
			return errors.New("it is not 7-bit")
		}
	}
	head, _, _ := strings.Cut(data, "\r\n\r\n")
	s.lines = strings.Split(head, "\r\n")
	for _, line := range s.lines {
		if len(line) > 200 {
			return fmt.Errorf("a line of the header has %d bytes", len(line))
		}
	}
	read, err := mail.ReadMessage(strings.NewReader(data))
	if err != nil {
		return err
	}
	s.header = read.Header
	for name, values := range read.Header {
		if len(values) != 1 {
			return fmt.Errorf("%s stands there %d times", name, len(values))
		}
	}
	for _, name := range []string{"From", "To", "Subject", "Date", "Message-Id", "Mime-Version", "Content-Type", "Auto-Submitted"} {
		if _, ok := read.Header[name]; !ok {
			return fmt.Errorf("%s is missing", name)
		}
	}
	return s.part(read.Header.Get("Content-Type"), read.Header.Get("Content-Transfer-Encoding"), "", read.Body)
}

func (s *sent) part(contentType, encoding, disposition string, body io.Reader) error {
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
			if err := s.part(p.Header.Get("Content-Type"), p.Header.Get("Content-Transfer-Encoding"), p.Header.Get("Content-Disposition"), p); err != nil {
				return err
			}
		}
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	for line := range bytes.SplitSeq(raw, []byte("\r\n")) {
		if len(line) > 76 {
			return fmt.Errorf("an encoded line has %d bytes", len(line))
		}
	}
	var decoded []byte
	switch encoding {
	case "quoted-printable":
		decoded, err = io.ReadAll(quotedprintable.NewReader(bytes.NewReader(raw)))
	case "base64":
		decoded, err = base64.StdEncoding.DecodeString(string(bytes.ReplaceAll(raw, []byte("\r\n"), nil)))
	default:
		return fmt.Errorf("transfer encoding %q", encoding)
	}
	if err != nil {
		return err
	}
	switch {
	case disposition != "":
		_, parameters, err := mime.ParseMediaType(disposition)
		if err != nil {
			return err
		}
		s.files = append(s.files, parameters["filename"])
	case kind == "text/plain":
		s.text = string(decoded)
	case kind == "text/html":
		s.html = string(decoded)
	default:
		return fmt.Errorf("a part of type %s", kind)
	}
	return nil
}

var encodedWord = regexp.MustCompile(`=\?[^?]+\?[bq]\?[^?]*\?=`)

// subject is what a reader sees.
func (s *sent) subject() (string, error) {
	inSubject := false
	for _, line := range s.lines {
		if !strings.HasPrefix(line, " ") {
			inSubject = strings.HasPrefix(line, "Subject:")
		}
		if !inSubject {
			continue
		}
		if len(line) > foldAt {
			return "", fmt.Errorf("a line of the subject has %d bytes", len(line))
		}
		for _, word := range encodedWord.FindAllString(line, -1) {
			if len(word) > maxWord {
				return "", fmt.Errorf("an encoded word has %d bytes", len(word))
			}
			if _, err := new(mime.WordDecoder).Decode(word); err != nil {
				return "", err
			}
		}
	}
	return new(mime.WordDecoder).DecodeHeader(s.header.Get("Subject"))
}

// plainDraft is a message with nothing special in it.
func plainDraft() Draft {
	return Draft{
		From: Mailbox{Address: Address{"no-reply", "example.com"}}, To: []Mailbox{{Address: Address{"user", "example.com"}}},
		Subject: "Hello", Text: "Hello\n", MessageID: "<0198c0de@example.com>", Date: time.Now(),
	}
}
