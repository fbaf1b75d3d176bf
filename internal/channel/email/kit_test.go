package email

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/posthouse/posthouse/internal/channel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "pa55-Wörd"

// certificate is one for 127.0.0.1, and those who trust it.
var certificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
})

// envelope is what a real server got.
type envelope struct {
	from string
	to   []string
	utf8 bool
	data []byte
}

// realServer is go-smtp, which knows the protocol better than we do.
type realServer struct {
	host string
	port int
	mu   sync.Mutex
	got  []envelope
	// wire is every byte that came, for those without TLS.
	wire bytes.Buffer
	conn int
}

type realOptions struct {
	implicit, noTLS, utf8, auth bool
	refuse                      func(to string) error
}

func startReal(t *testing.T, o realOptions) *realServer {
	t.Helper()
	r := &realServer{}
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &realSession{server: r, options: o}, nil }))
	server.Domain = "test.example"
	server.AllowInsecureAuth = o.noTLS
	server.EnableSMTPUTF8 = o.utf8
	server.MaxLineLength = 2000
	server.ReadTimeout = 10 * time.Second
	server.ErrorLog = discardLog{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.host, r.port = "127.0.0.1", listener.Addr().(*net.TCPAddr).Port
	listener = &recording{Listener: listener, server: r}
	chain, _ := certificate()
	if !o.noTLS {
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{chain}, MinVersion: tls.VersionTLS12}
	}
	if o.implicit {
		listener = tls.NewListener(listener, server.TLSConfig)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		_ = listener.Close() // Serve may not have told the server of it yet
		<-done
	})
	return r
}

func (r *realServer) envelopes() []envelope {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]envelope(nil), r.got...)
}

func (r *realServer) bytes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wire.String()
}

func (r *realServer) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conn
}

type discardLog struct{}

func (discardLog) Printf(string, ...any) {}
func (discardLog) Println(...any)        {}

// recording keeps every byte that is read.
type recording struct {
	net.Listener
	server *realServer
}

func (l *recording) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.server.mu.Lock()
	l.server.conn++
	l.server.mu.Unlock()
	return &recorded{conn, l.server}, nil
}

type recorded struct {
	net.Conn
	server *realServer
}

func (c *recorded) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.server.mu.Lock()
	c.server.wire.Write(p[:n])
	c.server.mu.Unlock()
	return n, err
}

type realSession struct {
	server  *realServer
	options realOptions
	now     envelope
}

var _ smtp.AuthSession = (*realSession)(nil)

func (s *realSession) AuthMechanisms() []string {
	if s.options.auth {
		return []string{sasl.Plain}
	}
	return nil
}

func (s *realSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, username, secret string) error {
		if username != "posthouse" || secret != password {
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "no: " + username + " with " + secret}
		}
		return nil
	}), nil
}

func (s *realSession) Mail(from string, o *smtp.MailOptions) error {
	s.now = envelope{from: from, utf8: o.UTF8}
	return nil
}

func (s *realSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	if s.options.refuse != nil {
		if err := s.options.refuse(to); err != nil {
			return err
		}
	}
	s.now.to = append(s.now.to, to)
	return nil
}

func (s *realSession) Data(r io.Reader) (err error) {
	if s.now.data, err = io.ReadAll(r); err != nil {
		return err
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.got = append(s.server.got, s.now)
	return nil
}

func (s *realSession) Reset()        {}
func (s *realSession) Logout() error { return nil }

// What a player does instead of answering.
const (
	hang = "<hang>"
	drop = "<drop>"
)

// player is a server that does at each step what it is told: it answers with the
// line, hangs, or drops the connection. Steps: "greeting", "EHLO", "STARTTLS",
// "AUTH", "MAIL", "RCPT", "DATA", "body" (before the final dot), "end" (after it),
// "RSET", "after" (once the message was accepted).
type player struct {
	t        *testing.T
	host     string
	port     int
	listener net.Listener
	reached  func(step string) // may be nil

	mu       sync.Mutex
	script   map[string]string
	conns    []net.Conn
	lines    []string
	messages []string
	group    sync.WaitGroup
}

func play(t *testing.T, script map[string]string) *player {
	t.Helper()
	return playTo(t, script, nil)
}

// playTo also tells each step when it is reached.
func playTo(t *testing.T, script map[string]string, reached func(step string)) *player {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &player{t: t, host: "127.0.0.1", port: listener.Addr().(*net.TCPAddr).Port, listener: listener, reached: reached, script: script}
	p.group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, conn)
			p.mu.Unlock()
			p.group.Go(func() {
				p.serve(conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(p.stop)
	return p
}

func (p *player) stop() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.group.Wait()
}

func (p *player) set(step, does string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if does == "" {
		delete(p.script, step)
		return
	}
	p.script[step] = does
}

func (p *player) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

func (p *player) accepted() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.messages...)
}

func (p *player) said(prefix string) (lines []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, line)
		}
	}
	return lines
}

var errDropped = errors.New("dropped")

func (p *player) serve(conn net.Conn) {
	r := bufio.NewReader(conn)
	answer := func(step, otherwise string) error {
		p.mu.Lock()
		does, ok := p.script[step]
		p.mu.Unlock()
		if p.reached != nil {
			p.reached(step)
		}
		if !ok {
			does = otherwise
		}
		switch does {
		case "":
			return nil
		case hang:
			_, _ = io.Copy(io.Discard, r) // until the other side, or the test, closes it
			return errDropped
		case drop:
			return errDropped
		}
		_, err := io.WriteString(conn, does+"\r\n")
		if strings.HasPrefix(does, "421") {
			return errDropped
		}
		return err
	}
	if answer("greeting", "220 test.example ready") != nil {
		return
	}
	chain, _ := certificate()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		p.mu.Lock()
		p.lines = append(p.lines, line)
		p.mu.Unlock()
		word, _, _ := strings.Cut(line, " ")
		word, _, _ = strings.Cut(word, ":")
		switch word {
		case "EHLO":
			err = answer("EHLO", "250-test.example\r\n250-8BITMIME\r\n250-STARTTLS\r\n250 AUTH PLAIN LOGIN")
		case "STARTTLS":
			if err = answer("STARTTLS", "220 go"); err == nil {
				encrypted := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{chain}, MinVersion: tls.VersionTLS12})
				conn, r = encrypted, bufio.NewReader(encrypted)
			}
		case "AUTH":
			err = answer("AUTH", "235 2.7.0 ok")
		case "MAIL":
			err = answer("MAIL", "250 2.1.0 ok")
		case "RCPT":
			err = answer("RCPT", "250 2.1.5 ok")
		case "DATA":
			if err = answer("DATA", "354 go ahead"); err != nil {
				return
			}
			p.mu.Lock()
			refused := p.script["DATA"] != "" && !strings.HasPrefix(p.script["DATA"], "354")
			p.mu.Unlock()
			if refused {
				continue
			}
			if err = answer("body", ""); err != nil {
				return
			}
			var message strings.Builder
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				message.WriteString(line)
				if line == ".\r\n" {
					break
				}
			}
			p.mu.Lock()
			p.messages = append(p.messages, message.String())
			p.mu.Unlock()
			if err = answer("end", "250 2.0.0 Ok: queued as 4Cx1yZ0abc"); err == nil {
				err = answer("after", "")
			}
		case "RSET":
			err = answer("RSET", "250 2.0.0 ok")
		case "QUIT":
			_, _ = io.WriteString(conn, "221 bye\r\n")
			return
		case "*":
			err = answer("*", "501 aborted")
		default:
			_, err = io.WriteString(conn, "500 5.5.2 what\r\n")
		}
		if err != nil {
			return
		}
	}
}

const sender = `Approvals <no-reply@example.com>`

// open returns a sender for the server, with changes.
func open(t *testing.T, host string, port int, change func(*Config)) *Sender {
	t.Helper()
	_, roots := certificate()
	cfg := Config{Host: host, Port: port, RootCAs: roots, From: sender, ReadTimeout: 5 * time.Second}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func message(change func(*channel.Message)) channel.Message {
	m := channel.Message{
		ID: uuid.MustParse("0198c0de-0000-7000-8000-000000000001"), RequestID: uuid.MustParse("0198c0de-0000-7000-8000-000000000002"),
		Address: "zoe@example.com", Subject: "An approval waits", HTML: "<p>Please <b>look</b></p>", Hidden: []string{"493817"},
	}
	if change != nil {
		change(&m)
	}
	return m
}
