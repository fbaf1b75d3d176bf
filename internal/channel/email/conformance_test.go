package email

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/mail"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/posthouse/posthouse/internal/channel"
)

// mailCase is one tricky input and what must come of it.
type mailCase struct {
	ID      string          `json:"id"`
	Kind    string          `json:"kind"`
	Input   json.RawMessage `json:"input"`
	Outcome string          `json:"outcome"`
	Why     string          `json:"why"`
	Expect  struct {
		Subject    *string `json:"subject"`
		Name       *string `json:"name"`
		Normalized string  `json:"normalized"`
		RcptTo     string  `json:"rcpt_to"`
		Domain     string  `json:"domain"`
		ADomain    string  `json:"a_domain"`
		UTF8       bool    `json:"needs_smtputf8"`
		Count      *int    `json:"count"`
	} `json:"expect"`
}

func readCases(t *testing.T, file string) []mailCase {
	t.Helper()
	var all struct{ Cases []mailCase }
	readJSON(t, file, &all)
	if len(all.Cases) == 0 {
		t.Fatalf("%s holds no cases", file)
	}
	return all.Cases
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func TestTrickyMailAsARealServerSeesIt(t *testing.T) {
	w := newWireTest(t)
	for i, c := range readCases(t, filepath.Join("testdata", "email_cases.json")) {
		t.Run(fmt.Sprintf("%s %d", c.Kind, i), func(t *testing.T) {
			if err := w.check(t, c); err != nil {
				t.Errorf("%s (%s): %v", c.Why, c.Outcome, err)
			}
		})
	}
}

func TestNC11RepliesOfRealServers(t *testing.T) {
	for i, row := range readReplies(t, filepath.Join("testdata", "error_responses.json")) {
		t.Run(fmt.Sprintf("%d %s %s", i, row.Stage, row.Body[:min(len(row.Body), 9)]), func(t *testing.T) {
			if err := row.check(t); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestConformance runs the cases of another folder, and prints how many of each
// kind came out right.
func TestConformance(t *testing.T) {
	folder := os.Getenv("CASES")
	if folder == "" {
		folder = "testdata"
	}
	right, total := map[string]int{}, map[string]int{}
	count := func(kind, id string, err error) {
		total[kind]++
		if err == nil {
			right[kind]++
			return
		}
		t.Errorf("%s %s: %v", kind, id, err)
	}
	if file := filepath.Join(folder, "email_cases.json"); exists(file) {
		w := newWireTest(t)
		for _, c := range readCases(t, file) {
			count("email/"+c.Kind, c.ID, w.check(t, c))
		}
	}
	if file := filepath.Join(folder, "error_responses.json"); exists(file) {
		for _, row := range readReplies(t, file) {
			t.Run("reply", func(t *testing.T) { count("reply/smtp", row.ID, row.check(t)) })
		}
	}
	for _, kind := range slices.Sorted(mapKeys(total)) {
		t.Logf("%-28s %3d right, %3d wrong", kind, right[kind], total[kind]-right[kind])
	}
}

func mapKeys(m map[string]int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func (w *wireTest) check(t *testing.T, c mailCase) error {
	t.Helper()
	checks := map[string]func(*testing.T, mailCase) error{
		"header_injection": w.headerInjection, "subject": w.subjectCase, "display_name": w.displayName, "address": w.address,
		"address_list": w.addressList, "body": w.body, "message": w.message,
	}
	check, ok := checks[c.Kind]
	if !ok {
		return fmt.Errorf("a kind that nobody knows: %s", c.Kind)
	}
	return check(t, c)
}

// outcome compares what happened with what should: refused, or went out and is
// right as the caller says.
func (c mailCase) outcome(err error, right func() error) error {
	refused := errors.Is(err, errRefused)
	if err != nil && !refused {
		return err
	}
	switch c.Outcome {
	case "reject":
		if !refused {
			return errors.New("it was sent")
		}
		return nil
	case "sanitize_or_reject", "policy":
		if refused {
			return nil
		}
	default:
		if refused {
			return err
		}
	}
	return right()
}

var customHeader = regexp.MustCompile(`^headers\["(.*)"\]$`)

func (w *wireTest) headerInjection(t *testing.T, c mailCase) error {
	var in struct{ Field, Value string }
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return err
	}
	d := plainDraft()
	known := []string{"From", "To", "Subject", "Date", "Message-Id", "Mime-Version", "Content-Type", "Content-Transfer-Encoding", "Auto-Submitted"}
	name, subject := "", false
	field := strings.ToLower(in.Field)
	mailbox := func(into *Mailbox) (err error) {
		*into, err = ParseMailbox(in.Value)
		return err
	}
	var err error
	switch {
	case customHeader.MatchString(in.Field):
		name = customHeader.FindStringSubmatch(in.Field)[1]
		d.Headers = []Header{{name, in.Value}}
	case strings.HasSuffix(field, "subject"):
		d.Subject, subject = in.Value, true
	case field == "message-id":
		d.MessageID = in.Value
	case strings.Contains(field, "filename"):
		d.Attachments = []Attachment{{Name: in.Value}}
	case strings.Contains(field, "name"):
		d.From.Name = in.Value
	case field == "to" || strings.Contains(field, "rcpt") || strings.Contains(field, "address"):
		err = mailbox(&d.To[0])
	case field == "from" || strings.Contains(field, "mail from") || strings.Contains(field, "sender"):
		err = mailbox(&d.From)
	case field == "reply-to" || field == "cc" || field == "bcc":
		err = mailbox(new(Mailbox))
	default:
		name = in.Field
		d.Headers = []Header{{name, in.Value}}
	}
	var got *sent
	if err != nil {
		err = fmt.Errorf("%w: %w", errRefused, err)
	} else {
		got, err = w.send(t, d)
	}
	return c.outcome(err, func() error {
		for header := range got.header {
			if !slices.Contains(known, header) && !strings.EqualFold(header, name) {
				return fmt.Errorf("a header %s came of it", header)
			}
		}
		want := in.Value
		if c.Expect.Subject != nil {
			want = *c.Expect.Subject
		}
		shown, err := got.subject()
		switch {
		case err != nil:
			return err
		case subject && c.Outcome != "sanitize_or_reject" && c.Outcome != "policy" && shown != want:
			return fmt.Errorf("the subject reads %q", shown)
		case name != "" && c.Outcome == "accept":
			if value, err := new(mime.WordDecoder).DecodeHeader(got.header.Get(name)); err != nil || value != want {
				return fmt.Errorf("the header reads %q, %w", value, err)
			}
		}
		return nil
	})
}

func (w *wireTest) subjectCase(t *testing.T, c mailCase) error {
	var in struct{ Value string }
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return err
	}
	d := plainDraft()
	d.Subject = in.Value
	got, err := w.send(t, d)
	return c.outcome(err, func() error {
		shown, err := got.subject()
		if err != nil {
			return err
		}
		want := strings.TrimPrefix(in.Value, "\ufeff") // no part of the text
		switch {
		case c.Expect.Subject != nil:
			want = *c.Expect.Subject
		case c.Outcome == "policy" || c.Outcome == "sanitize_or_reject":
			if strings.ContainsFunc(shown, func(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) && r > '\u2020' }) {
				return errors.New("it turns around what is seen")
			}
			return nil
		case c.Outcome == "accept_normalized":
			return nil
		}
		if shown != want {
			return fmt.Errorf("the subject reads %q", shown)
		}
		return nil
	})
}

func (w *wireTest) displayName(t *testing.T, c mailCase) error {
	var in struct{ Name, Address string }
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return err
	}
	address, err := parseAddress(in.Address)
	if err != nil {
		return c.outcome(fmt.Errorf("%w: %w", errRefused, err), nil)
	}
	d := plainDraft()
	d.From, d.To = Mailbox{in.Name, address}, []Mailbox{{in.Name, address}}
	got, err := w.send(t, d)
	return c.outcome(err, func() error {
		for _, field := range []string{"From", "To"} {
			list, err := mail.ParseAddressList(got.header.Get(field))
			if err != nil {
				return err
			}
			want := strings.TrimSpace(in.Name)
			if c.Expect.Name != nil {
				want = *c.Expect.Name
			}
			if len(list) != 1 || list[0].Address != in.Address {
				return fmt.Errorf("%s reads as %v", field, list)
			}
			if name := list[0].Name; name != want && (c.Outcome == "accept" || c.Outcome == "encode" || c.Expect.Name != nil) {
				return fmt.Errorf("the name reads %q", name)
			}
		}
		return nil
	})
}

func (w *wireTest) address(t *testing.T, c mailCase) error {
	var in struct{ Value string }
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return err
	}
	kept, masked, err := Addresses{}.Check(in.Value)
	if err != nil {
		if len(in.Value) > 5 && strings.Contains(err.Error(), in.Value) {
			return errors.New("the error repeats the address")
		}
		return c.outcome(fmt.Errorf("%w: %w", errRefused, err), nil)
	}
	return c.outcome(nil, func() error {
		if again, _, err := (Addresses{}).Check(kept); err != nil || again != kept {
			return fmt.Errorf("what is kept is not kept again: %q, %w", again, err)
		}
		if local, _ := cutLast(kept); strings.HasPrefix(masked, local+"@") || !strings.Contains(masked, "•••@") {
			return errors.New("the masked form shows the address")
		}
		address, err := parseAddress(kept)
		if err != nil {
			return err
		}
		var want string
		switch local, domain := cutLast(in.Value); {
		case c.Expect.RcptTo != "":
			want = c.Expect.RcptTo
		case c.Expect.Normalized != "":
			want = c.Expect.Normalized
		case c.Expect.ADomain != "":
			want = local + "@" + c.Expect.ADomain
		case c.Outcome == "policy" || c.Outcome == "accept_normalized":
			want = kept
		case !ascii(domain):
			want = local + "@" + address.Domain
		default:
			want = local + "@" + strings.ToLower(domain)
		}
		if kept != want || c.Expect.Domain != "" && address.Domain != c.Expect.Domain {
			return fmt.Errorf("it became %q", kept)
		}
		from, err := ParseMailbox(sender)
		if err != nil {
			return err
		}
		letter, err := Build(from, channel.Message{Address: kept, Text: "Hello"}, time.Now())
		if err != nil {
			return err
		}
		w.server.mu.Lock()
		w.server.wire.Reset()
		w.server.mu.Unlock()
		if _, failed := w.sender.carry(t.Context(), letter); failed != nil {
			return fmt.Errorf("the server did not take it: %w", failed.err)
		}
		raw := w.server.bytes()
		if !strings.Contains(raw, "\r\nRCPT TO:<"+want+">\r\n") || strings.Count(raw, "RCPT TO:") != 1 {
			return errors.New("RCPT TO names another address")
		}
		if utf8 := strings.Contains(raw, " SMTPUTF8\r\n"); utf8 != !ascii(address.Local) || c.Expect.UTF8 && !utf8 {
			return errors.New("SMTPUTF8 was asked for without need, or not where it is needed")
		}
		return nil
	})
}

func (w *wireTest) addressList(t *testing.T, c mailCase) error {
	var in struct{ Value string }
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return err
	}
	list, err := ParseMailboxes(in.Value)
	if err != nil {
		return c.outcome(fmt.Errorf("%w: %w", errRefused, err), nil)
	}
	return c.outcome(nil, func() error {
		if c.Expect.Count != nil && len(list) != *c.Expect.Count {
			return fmt.Errorf("it has %d addresses", len(list))
		}
		if len(list) == 0 {
			return nil
		}
		d := plainDraft()
		d.To = list
		got, err := w.send(t, d)
		if err != nil {
			return err
		}
		if len(got.envelope.to) != len(list) {
			return fmt.Errorf("%d recipients in the envelope", len(got.envelope.to))
		}
		return nil
	})
}

func (w *wireTest) body(t *testing.T, c mailCase) error {
	var in struct{ Text, HTML string }
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return err
	}
	d := plainDraft()
	d.Text, d.HTML = in.Text, in.HTML
	got, err := w.send(t, d)
	return c.outcome(err, func() error {
		same := func(got, want string) bool {
			return strings.TrimSuffix(got, "\r\n") == strings.TrimSuffix(lineEnds.Replace(want), "\r\n")
		}
		if in.Text != "" && !same(got.text, in.Text) {
			return fmt.Errorf("the text reads %q", got.text[:min(len(got.text), 80)])
		}
		if in.HTML != "" && !same(got.html, in.HTML) {
			return errors.New("the HTML is another")
		}
		return nil
	})
}

func (w *wireTest) message(t *testing.T, c mailCase) error {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return err
	}
	d := plainDraft()
	names := []string{}
	refused := func(err error) error { return fmt.Errorf("%w: %w", errRefused, err) }
	mailboxes := func(raw json.RawMessage) (list []Mailbox, err error) {
		var texts []string
		if json.Unmarshal(raw, &texts) != nil {
			texts = make([]string, 1)
			if err := json.Unmarshal(raw, &texts[0]); err != nil {
				return nil, err
			}
		}
		for _, text := range texts {
			m, err := ParseMailbox(text)
			if err != nil {
				return nil, refused(err)
			}
			list = append(list, m)
		}
		return list, nil
	}
	var err error
	for key, raw := range in {
		var text string
		_ = json.Unmarshal(raw, &text) // where it is one
		var list []Mailbox
		switch key {
		case "from":
			if list, err = mailboxes(raw); err == nil {
				d.From = list[0]
			}
		case "to":
			d.To, err = mailboxes(raw)
		case "cc":
			list, err = mailboxes(raw)
			d.To = append(d.To, list...)
		case "bcc":
			d.Bcc, err = mailboxes(raw)
		case "reply_to":
			_, err = mailboxes(raw)
		case "subject":
			d.Subject = text
		case "html":
			d.HTML = text
			if _, both := in["text"]; !both {
				d.Text = ""
			}
		case "text":
			d.Text = text
		case "message_id":
			d.MessageID = text
		case "headers":
			var headers map[string]string
			err = json.Unmarshal(raw, &headers)
			for name, value := range headers {
				d.Headers = append(d.Headers, Header{name, value})
			}
		case "attachments":
			var files []struct {
				Filename    string `json:"filename"`
				ContentType string `json:"content_type"`
			}
			err = json.Unmarshal(raw, &files)
			for _, f := range files {
				d.Attachments = append(d.Attachments, Attachment{Name: f.Filename, Type: f.ContentType, Data: []byte("data")})
				names = append(names, f.Filename)
			}
		case "date":
			if at, parseErr := time.Parse(time.RFC3339, text); parseErr == nil {
				d.Date = at
			}
		default:
			err = fmt.Errorf("a key that nobody knows: %s", key)
		}
		if err != nil {
			break
		}
	}
	var got *sent
	if err == nil {
		got, err = w.send(t, d)
	}
	return c.outcome(err, func() error {
		unique := map[string]bool{}
		for _, m := range slices.Concat(d.To, d.Bcc) {
			unique[m.Address.String()] = true
		}
		if len(got.envelope.to) != len(unique) {
			return fmt.Errorf("%d recipients in the envelope, not %d", len(got.envelope.to), len(unique))
		}
		head := strings.Join(got.lines, "\n")
		for _, b := range d.Bcc {
			if strings.Contains(head, b.Address.String()) || !slices.Contains(got.envelope.to, b.Address.String()) {
				return errors.New("Bcc is seen, or gets nothing")
			}
		}
		if d.HTML != "" && (got.html == "" || strings.TrimSpace(got.text) == "") {
			return errors.New("a part is missing")
		}
		if _, err := time.Parse("Mon, 02 Jan 2006 15:04:05 -0700", got.header.Get("Date")); err != nil {
			return err
		}
		if len(got.files) != len(names) {
			return fmt.Errorf("%d attachments", len(got.files))
		}
		for i, file := range got.files {
			if file == "" || strings.ContainsAny(file, "/\\\r\n\x00") || strings.ContainsFunc(file, unseen) {
				return fmt.Errorf("a file is called %q", file)
			}
			if (c.Outcome == "encode" || c.Outcome == "accept") && file != names[i] {
				return fmt.Errorf("a file is called %q", file)
			}
		}
		return nil
	})
}
