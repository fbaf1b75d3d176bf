package email

import (
	"bytes"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/channel"
)

// Whatever comes in, what goes out has the headers that it should, each once.
func FuzzBuild(f *testing.F) {
	f.Add("zoe@example.com", "Hello", "text", "<p>html</p>", "Name")
	f.Add(`"a@b"@example.com`, "=?utf-8?q?x?=", ".\r\n", "<a href='https://example.com'>x</a><ul><li>y", "a\"b, c")
	f.Add("用户@例子.公司", "你好\u2028 \ufeff", "a\r.\rb", "<pre>\n x</pre><table><tr><td>1<td>2", "\u202ename")
	f.Fuzz(func(t *testing.T, address, subject, text, page, name string) {
		from := Mailbox{Name: name, Address: Address{"no-reply", "example.com"}}
		letter, err := Build(from, channel.Message{ID: uuid.Max, Address: address, Subject: subject, Text: text, HTML: page}, time.Unix(0, 0))
		if err != nil {
			return
		}
		if bare := bytes.ReplaceAll(letter.Data, []byte("\r\n"), nil); bytes.ContainsAny(bare, "\r\n\x00") {
			t.Fatal("a bare CR or LF")
		}
		for line := range bytes.SplitSeq(letter.Data, []byte("\r\n")) {
			if len(line) > 998 {
				t.Fatalf("a line of %d bytes", len(line))
			}
		}
		read, err := mail.ReadMessage(bytes.NewReader(letter.Data))
		if err != nil {
			t.Fatal(err)
		}
		for header, values := range read.Header {
			switch header {
			case "From", "To", "Subject", "Date", "Message-Id", "Auto-Submitted", "Mime-Version", "Content-Type", "Content-Transfer-Encoding":
			default:
				t.Fatalf("a header %q", header)
			}
			if len(values) != 1 {
				t.Fatalf("%s stands there %d times", header, len(values))
			}
		}
		shown, err := (&sent{lines: strings.Split(string(letter.Data), "\r\n"), header: read.Header}).subject()
		want, wantErr := checkSubject(subject)
		if err != nil || wantErr != nil || shown != want {
			t.Fatalf("the subject reads %q, not %q (%v, %v)", shown, want, err, wantErr)
		}
		if list, err := read.Header.AddressList("From"); err != nil || len(list) != 1 || list[0].Address != "no-reply@example.com" {
			t.Fatalf("From reads %v (%v)", list, err)
		}
		if kept, _, err := (Addresses{}).Check(letter.Recipients[0].String()); err != nil || kept != letter.Recipients[0].String() {
			t.Fatalf("%q is not kept: %q, %v", letter.Recipients[0], kept, err)
		}
	})
}
