package email

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/posthouse/posthouse/internal/channel"
)

// Draft is a message before it is written for the wire.
type Draft struct {
	From Mailbox
	To   []Mailbox
	Bcc  []Mailbox // in the envelope only
	// Subject loses the line end of its template's file. "" is allowed.
	Subject string
	// Text is the plain part; where it is "", it is made from HTML.
	Text string
	HTML string // "": no such part
	// Headers are further ones: X-…, List-…, and a few that concern threads and
	// automatic answers. None that the message itself says.
	Headers     []Header
	Attachments []Attachment
	MessageID   string // with its angle brackets
	Date        time.Time
}

// Header is one line of a message's header.
type Header struct{ Name, Value string }

// Attachment is a file that goes along.
type Attachment struct {
	Name string // its folder is taken off
	Type string // "": application/octet-stream
	Data []byte
}

// Letter is a message as it goes out.
type Letter struct {
	From       Address   // of the envelope
	Recipients []Address // of the envelope, each once
	MessageID  string    // with its angle brackets
	// UTF8 says that only a server with SMTPUTF8 can take it.
	UTF8 bool
	// Data is the message in the form of RFC 5322: 7-bit unless UTF8, CRLF, lines of at most
	// 998 bytes.
	Data []byte
}

// Build writes a delivery's message from the given sender. The Message-ID follows
// from the delivery's id, so that it is the same on each attempt.
func Build(from Mailbox, m channel.Message, now time.Time) (Letter, error) {
	to, err := parseAddress(m.Address)
	if err != nil {
		return Letter{}, err
	}
	return Compose(Draft{
		From: from, To: []Mailbox{{Address: to}}, Subject: m.Subject, Text: m.Text, HTML: m.HTML,
		MessageID: "<" + m.ID.String() + "@" + from.Address.Domain + ">", Date: now,
	})
}

// Compose writes a message. Its errors name the field and what is wrong with it,
// and repeat nothing of it.
func Compose(d Draft) (Letter, error) {
	var l Letter
	if d.From.Address == (Address{}) {
		return l, errors.New("from: the message has no sender")
	}
	seen := map[Address]bool{}
	for _, to := range slices.Concat(d.To, d.Bcc) {
		if a := to.Address; a != (Address{}) && !seen[a] {
			seen[a] = true
			l.Recipients = append(l.Recipients, a)
		}
	}
	if len(l.Recipients) == 0 {
		return l, errors.New("to: the message has no recipient")
	}
	if !messageID.MatchString(d.MessageID) || len(d.MessageID) > 250 {
		return l, errors.New("message_id: it must be of the form <left@right>")
	}
	l.From, l.MessageID = d.From.Address, d.MessageID
	l.UTF8 = slices.ContainsFunc(append(l.Recipients, l.From), Address.utf8)

	var head strings.Builder
	if err := d.header(&head); err != nil {
		return Letter{}, err
	}
	root := d.parts()
	head.WriteString("MIME-Version: 1.0\r\n")
	var out bytes.Buffer
	out.WriteString(head.String())
	root.write(&out, d.MessageID)
	l.Data = out.Bytes()
	return l, nil
}

var messageID = regexp.MustCompile(`^<[A-Za-z0-9!#$%&'*+/=?^_` + "`" + `{|}~.-]+@[A-Za-z0-9!#$%&'*+/=?^_` + "`" + `{|}~.\[\]:-]+>$`)

func (d Draft) header(b *strings.Builder) error {
	from, err := mailboxes("from", []Mailbox{d.From})
	if err != nil {
		return err
	}
	to, err := mailboxes("to", d.To)
	if err != nil {
		return err
	}
	subject, err := checkSubject(d.Subject)
	if err != nil {
		return fmt.Errorf("subject: %w", err)
	}
	date := d.Date.UTC()
	if y := date.Year(); y < 1900 || y > 9999 {
		return errors.New("date: it is out of range")
	}
	header(b, "From", from)
	if to == "" {
		to = "undisclosed-recipients:;"
	}
	header(b, "To", to)
	header(b, "Subject", encodeText("Subject", subject))
	header(b, "Date", date.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	header(b, "Message-ID", d.MessageID)
	automatic := false
	named := map[string]bool{}
	for _, h := range d.Headers {
		name := strings.ToLower(h.Name)
		if !headerName.MatchString(h.Name) || !ownHeader(name) {
			return errors.New("headers: one has a name that cannot be set; allowed are X-…, List-…, Auto-Submitted, Precedence, References, In-Reply-To, Importance, Feedback-ID")
		}
		if named[name] {
			return fmt.Errorf("headers: %s stands there twice", h.Name)
		}
		named[name] = true
		value, err := checkHeaderText(h.Value)
		if err != nil {
			return fmt.Errorf("headers: %s: %w", h.Name, err)
		}
		automatic = automatic || name == "auto-submitted"
		if !plainText(value) && structured(name) {
			// Encoded words mean nothing there; folding may only stand between what is
			// in angle brackets.
			if !ascii(value) || len(h.Name)+2+len(value) > 990 {
				return fmt.Errorf("headers: %s: it is too long, or not ASCII", h.Name)
			}
			fmt.Fprintf(b, "%s: %s\r\n", h.Name, strings.TrimSpace(value))
			continue
		}
		header(b, h.Name, encodeText(h.Name, value))
	}
	if !automatic {
		// So that holiday notes do not answer (RFC 3834).
		header(b, "Auto-Submitted", "auto-generated")
	}
	return nil
}

var headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)

// ownHeader says whether whoever writes the message may set the header.
func ownHeader(name string) bool {
	switch name {
	case "auto-submitted", "precedence", "references", "in-reply-to", "importance", "feedback-id":
		return true
	}
	return strings.HasPrefix(name, "x-") && name != "x-" || strings.HasPrefix(name, "list-") && name != "list-"
}

// structured says whether a header is read by programs, so that it cannot hold
// encoded words.
func structured(name string) bool { return !strings.HasPrefix(name, "x-") }

func mailboxes(field string, list []Mailbox) (string, error) {
	var written []string
	for _, m := range list {
		if m.Address == (Address{}) {
			continue
		}
		// Again, since not everybody who makes a Mailbox reads it from a text.
		if _, err := parseAddress(m.Address.String()); err != nil {
			return "", fmt.Errorf("%s: %w", field, err)
		}
		name, err := checkHeaderText(m.Name)
		if err != nil {
			return "", fmt.Errorf("%s: the name: %w", field, err)
		}
		written = append(written, Mailbox{name, m.Address}.String())
	}
	return strings.Join(written, ", "), nil
}

// part is a node of the tree that a message is.
type part struct {
	kind     string // multipart's subtype: "alternative", "mixed"; "" for a leaf
	parts    []part
	headers  []Header // of a leaf
	encoding string
	data     []byte
}

func (d Draft) parts() part {
	text := d.Text
	if strings.TrimSpace(text) == "" && d.HTML != "" {
		text = PlainText(d.HTML)
	}
	root := textPart("text/plain", text)
	if d.HTML != "" {
		root = part{kind: "alternative", parts: []part{root, textPart("text/html", d.HTML)}}
	}
	if len(d.Attachments) > 0 {
		root = part{kind: "mixed", parts: []part{root}}
		for _, a := range d.Attachments {
			root.parts = append(root.parts, a.part())
		}
	}
	return root
}

func textPart(kind, text string) part {
	text = lineEnds.Replace(strings.ToValidUTF8(text, "\ufffd"))
	p := part{headers: []Header{{"Content-Type", kind + "; charset=utf-8"}}, encoding: "quoted-printable"}
	var quoted bytes.Buffer
	w := quotedprintable.NewWriter(&quoted)
	_, _ = w.Write([]byte(text)) // a buffer takes everything
	_ = w.Close()
	if p.data = quoted.Bytes(); base64.StdEncoding.EncodedLen(len(text)) < quoted.Len() {
		p.encoding, p.data = "base64", wrapped([]byte(text))
	}
	return p
}

// lineEnds makes every line end CRLF, bare CR and LF included: servers do not
// agree on what those are, and mail is smuggled through the difference.
var lineEnds = strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n")

// wrapped is base64 in lines of 76.
func wrapped(data []byte) []byte {
	encoded := base64.StdEncoding.EncodeToString(data)
	var b bytes.Buffer
	for len(encoded) > 76 {
		b.WriteString(encoded[:76] + "\r\n")
		encoded = encoded[76:]
	}
	b.WriteString(encoded)
	return b.Bytes()
}

func (a Attachment) part() part {
	kind, parameters, err := mime.ParseMediaType(a.Type)
	if err != nil || !strings.Contains(kind, "/") || strings.HasPrefix(kind, "multipart/") || strings.HasPrefix(kind, "message/") {
		kind, parameters = "application/octet-stream", nil
	}
	contentType := mime.FormatMediaType(kind, parameters)
	if contentType == "" || len(contentType) > 200 {
		contentType = "application/octet-stream"
	}
	return part{
		headers: []Header{
			{"Content-Type", contentType},
			{"Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": fileName(a.Name)})},
		},
		encoding: "base64", data: wrapped(a.Data),
	}
}

// fileName makes a name that is one file's on every system: no folder, nothing
// that turns around what is seen, no name of a device.
func fileName(name string) string {
	name = strings.ToValidUTF8(name, "_")
	name = path.Base(strings.ReplaceAll(name, `\`, "/"))
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r) || r == '/':
			return '_'
		case unseen(r):
			return -1
		}
		return r
	}, name)
	name = strings.TrimRight(strings.TrimSpace(name), ". ")
	if name == "" {
		return "attachment"
	}
	if stem, _, _ := strings.Cut(name, "."); devices.MatchString(strings.TrimSpace(stem)) {
		name = "_" + name
	}
	const most = 120
	if len(name) > most {
		end := path.Ext(name)
		if len(end) > 20 {
			end = ""
		}
		cut := most - len(end)
		for !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut] + end
	}
	return name
}

var devices = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)$`)

// write writes a part with its headers. Boundaries follow from the Message-ID, so
// that a message is the same on each attempt; they hold what neither encoding
// can write.
func (p part) write(b *bytes.Buffer, id string) {
	if p.kind == "" {
		for _, h := range p.headers {
			fmt.Fprintf(b, "%s: %s\r\n", h.Name, strings.ReplaceAll(h.Value, "; filename", ";\r\n filename"))
		}
		fmt.Fprintf(b, "Content-Transfer-Encoding: %s\r\n\r\n", p.encoding)
		b.Write(p.data)
		return
	}
	sum := sha256.Sum256([]byte(p.kind + id))
	boundary := "=_" + hex.EncodeToString(sum[:16])
	fmt.Fprintf(b, "Content-Type: multipart/%s;\r\n boundary=\"%s\"\r\n\r\n", p.kind, boundary)
	for _, inner := range p.parts {
		b.WriteString("--" + boundary + "\r\n")
		inner.write(b, id)
		b.WriteString("\r\n")
	}
	b.WriteString("--" + boundary + "--\r\n")
}
