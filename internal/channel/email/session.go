package email

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wneessen/go-mail/smtp"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/channel/scrub"
	"github.com/posthouse/posthouse/internal/model"
)

// session is one connection, logged in.
type session struct {
	wire    *wire
	client  *smtp.Client
	timeout time.Duration
	sent    int
	open    bool        // a transaction was refused half-way, and must be reset
	idle    *time.Timer // of the pool
}

// failure is why an attempt did not succeed.
type failure struct {
	at   stage
	err  error
	used bool // the connection had carried messages before
}

var (
	errNoStartTLS  = errors.New("it does not offer STARTTLS; see whether the port is right, or set tls: implicit")
	errNoMechanism = errors.New("it offers no way to log in that is known here (PLAIN, LOGIN, SCRAM-SHA-256, SCRAM-SHA-1, CRAM-MD5); the password was not tried")
	errNoUTF8      = errors.New("the address has characters before its @ that this server cannot take (no SMTPUTF8)")
)

// open connects, encrypts and logs in.
func (s *Sender) open(ctx context.Context) (*session, *failure) {
	dialer := net.Dialer{Timeout: s.cfg.ConnectTimeout}
	plain, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(s.cfg.Host, strconv.Itoa(s.cfg.Port)))
	if err != nil {
		return nil, &failure{at: stageConnect, err: err}
	}
	w := &wire{Conn: plain}
	release := w.follow(ctx)
	client, failed := s.greet(w)
	if !release() && failed == nil {
		failed = &failure{at: stageAuth, err: context.Cause(ctx)}
	}
	if failed != nil {
		_ = plain.Close()
		return nil, failed
	}
	return &session{wire: w, client: client, timeout: s.cfg.ReadTimeout}, nil
}

func (s *Sender) greet(w *wire) (*smtp.Client, *failure) {
	secure := &tls.Config{ServerName: s.cfg.Host, RootCAs: s.cfg.RootCAs, MinVersion: tls.VersionTLS12}
	var conn net.Conn = w
	if s.cfg.TLS == Implicit {
		encrypted := tls.Client(w, secure)
		w.step(s.cfg.ReadTimeout)
		if err := encrypted.HandshakeContext(context.Background()); err != nil { // the wire follows ctx
			return nil, &failure{at: stageTLS, err: err}
		}
		conn = encrypted
	}
	w.step(s.cfg.ReadTimeout)
	client, err := smtp.NewClient(conn, s.cfg.Host)
	if err != nil {
		return nil, &failure{at: stageGreeting, err: err}
	}
	w.step(s.cfg.ReadTimeout)
	if err := client.Hello(localName(w)); err != nil {
		return nil, &failure{at: stageHello, err: err}
	}
	if s.cfg.TLS == StartTLS {
		if offered, _ := client.Extension("STARTTLS"); !offered {
			return nil, &failure{at: stageStartTLS, err: errNoStartTLS}
		}
		w.step(s.cfg.ReadTimeout)
		if err := client.StartTLS(secure); err != nil {
			return nil, &failure{at: stageStartTLS, err: err}
		}
	}
	if s.cfg.Username != "" {
		_, offered := client.Extension("AUTH")
		mechanism := s.mechanism(offered)
		if mechanism == nil {
			return nil, &failure{at: stageAuth, err: errNoMechanism}
		}
		w.step(s.cfg.ReadTimeout)
		if err := client.Auth(mechanism); err != nil {
			return nil, &failure{at: stageAuth, err: err}
		}
	}
	return client, nil
}

// mechanism chooses how to log in, nil where the server offers nothing known.
func (s *Sender) mechanism(offered string) smtp.Auth {
	names := strings.Fields(strings.ToUpper(offered))
	has := func(name string) bool { return slices.Contains(names, name) }
	unencrypted := s.cfg.TLS == NoTLS // validate has seen that it is this host
	switch {
	case has("PLAIN"):
		return smtp.PlainAuth("", s.cfg.Username, s.cfg.Password, s.cfg.Host, unencrypted)
	case has("LOGIN"):
		return smtp.LoginAuth(s.cfg.Username, s.cfg.Password, s.cfg.Host, unencrypted)
	case has("SCRAM-SHA-256"):
		return smtp.ScramSHA256Auth(s.cfg.Username, s.cfg.Password)
	case has("SCRAM-SHA-1"):
		return smtp.ScramSHA1Auth(s.cfg.Username, s.cfg.Password)
	case has("CRAM-MD5"):
		return smtp.CRAMMD5Auth(s.cfg.Username, s.cfg.Password)
	}
	return nil
}

// localName is what we call ourselves: our side of the connection, which a server
// can check; the name of a container says nothing to it.
func localName(w *wire) string {
	host, _, err := net.SplitHostPort(w.LocalAddr().String())
	if err != nil {
		return "localhost"
	}
	host, _, _ = strings.Cut(host, "%")
	if strings.Contains(host, ":") {
		return "[IPv6:" + host + "]"
	}
	return "[" + host + "]"
}

// send makes one transaction, and returns the server's reply to it.
func (c *session) send(letter Letter) (reply string, failed *failure) {
	used := c.sent > 0 || c.open
	step := func(at stage, do func() error) bool {
		c.wire.step(c.timeout)
		if err := do(); err != nil {
			failed = &failure{at, err, used}
			return false
		}
		return true
	}
	if c.open && !step(stageReset, c.client.Reset) {
		return "", failed
	}
	c.open = false
	if letter.UTF8 {
		if offered, _ := c.client.Extension("SMTPUTF8"); !offered {
			return "", &failure{at: stageRcpt, err: errNoUTF8}
		}
	}
	c.client.SkipSMTPUTF8(!letter.UTF8)
	c.sent++
	c.open = true
	if !step(stageMail, func() error { return c.client.Mail("<" + letter.From.String() + ">") }) {
		return "", failed
	}
	for _, to := range letter.Recipients {
		if !step(stageRcpt, func() error { return c.client.Rcpt("<" + to.String() + ">") }) {
			return "", failed
		}
	}
	var body io.WriteCloser
	if !step(stageData, func() (err error) { body, err = c.client.Data(); return err }) {
		return "", failed
	}
	if !step(stageBody, func() error { _, err := body.Write(letter.Data); return err }) {
		return "", failed
	}
	c.open = false // whatever comes, the transaction is over
	if !step(stageEnd, body.Close) {
		answer, answered := errors.AsType[*textproto.Error](failed.err)
		switch {
		case answered && answer.Code >= 200 && answer.Code <= 299:
			return answer.Msg, nil // accepted, in other words than 250
		case !answered && c.wire.incomplete():
			failed.at = stageBody // the final dot did not go out
		}
		return "", failed
	}
	if closer, ok := body.(*smtp.DataCloser); ok {
		reply = closer.ServerResponse()
	}
	return reply, nil
}

// close ends the connection, with a word where there is no hurry.
func (c *session) close(politely bool) {
	if politely {
		c.wire.step(time.Second)
		_ = c.client.Text.PrintfLine("QUIT")
	}
	_ = c.client.Close()
	_ = c.wire.Conn.Close()
}

// stale says whether the connection had gone before anything of the message was
// sent.
func (f *failure) stale() bool {
	if !f.used || f.at != stageReset && f.at != stageMail || timedOut(f.err) {
		return false
	}
	answer, answered := errors.AsType[*textproto.Error](f.err)
	return !answered || answer.Code == 421 || f.at == stageReset
}

// ends says whether the connection cannot be used any more.
func (f *failure) ends() bool {
	if errors.Is(f.err, errNoUTF8) {
		return false
	}
	answer, answered := errors.AsType[*textproto.Error](f.err)
	return !answered || answer.Code == 421 || answer.Code < 400 || f.at == stageReset
}

func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// result says how the attempt ended.
func (f *failure) result(ctx context.Context, known scrub.Scrubber) channel.Result {
	if answer, ok := errors.AsType[*textproto.Error](f.err); ok {
		e := readEnhanced(answer.Msg)
		class, wait := classify(f.at, answer.Code, e)
		return channel.Result{
			Class: class, Code: codeText(answer.Code, e), RetryAfter: wait, OfRecipient: f.at == stageRcpt && class == model.ClassTransient,
			Text: known.Text(fmt.Sprintf("the mail server answered %d at %s: %s", answer.Code, f.at, answer.Msg)),
		}
	}
	code, text := f.describe(ctx)
	r := channel.Result{Class: model.ClassTransient, Code: code, Text: known.Text(text)}
	switch {
	case errors.Is(f.err, errNoUTF8):
		r.Class = model.ClassPermanent
	case f.at == stageEnd:
		r.Class = model.ClassUncertain
		r.Text = known.Text(text + "; it may have accepted the message")
	}
	return r
}

// describe says in a word and in a line what went wrong where the server did not
// answer.
func (f *failure) describe(ctx context.Context) (code, text string) {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](f.err)
	errno, system := errors.AsType[syscall.Errno](f.err)
	_, protocol := errors.AsType[textproto.ProtocolError](f.err)
	switch {
	case errors.Is(f.err, errNoUTF8):
		return "smtputf8", f.err.Error()
	case errors.Is(f.err, errNoMechanism):
		return "auth_mechanism", "the mail server cannot be logged in to: " + f.err.Error()
	case errors.Is(f.err, errNoStartTLS):
		return "tls", "no safe connection to the mail server: " + f.err.Error()
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "timeout", fmt.Sprintf("the time for the attempt was over at %s", f.at)
	case ctx.Err() != nil:
		return "cancelled", fmt.Sprintf("the attempt was ended at %s", f.at)
	case f.at == stageConnect:
		return "connect", "the mail server cannot be reached: " + unreachable(f.err)
	case timedOut(f.err):
		return "timeout", fmt.Sprintf("the mail server did not answer in time at %s", f.at)
	case certificate:
		return "tls", "no safe connection to the mail server: " + untrusted(f.err)
	case f.at == stageTLS || f.at == stageStartTLS:
		return "tls", "no safe connection to the mail server: it does not speak TLS as it should; see whether port and tls fit together"
	case errors.Is(f.err, io.EOF) || errors.Is(f.err, io.ErrUnexpectedEOF) || errors.Is(f.err, net.ErrClosed):
		return "reset", fmt.Sprintf("the mail server closed the connection at %s", f.at)
	case system:
		return "reset", fmt.Sprintf("the connection to the mail server broke at %s: %s", f.at, errno.Error())
	case protocol || errors.Is(f.err, errReplyTooLong):
		return "protocol", fmt.Sprintf("what came at %s was not SMTP; see whether port and tls fit together", f.at)
	case f.at == stageAuth:
		return "auth_mechanism", "logging in to the mail server did not go as it should; the password was not refused"
	}
	return "protocol", fmt.Sprintf("the conversation with the mail server failed at %s", f.at)
}

func unreachable(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "no such host"
		}
		return "its name could not be looked up"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if timedOut(err) {
		return "timed out"
	}
	return "the connection failed"
}

func untrusted(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "its certificate has expired"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "its certificate is for another host"
	}
	return "its certificate is not trusted"
}
