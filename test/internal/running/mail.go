package running

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// Letter is one message that the mail server accepted.
type Letter struct {
	Key  string // the delivery's id, from the Message-ID
	To   string
	Data []byte
	At   time.Time
}

// MailRules say what a mail server does. The zero value accepts MailUser with
// MailPassword, and every message.
type MailRules struct {
	// Mechanisms are the ways to log in that it offers; nil: PLAIN.
	Mechanisms []string
	// Auth judges who logs in; nil: MailUser with MailPassword.
	Auth func(user, password string) error
	// Rcpt judges a recipient; ErrDrop cuts the connection.
	Rcpt func(to string) error
	// Accepted is called when a message was accepted, and before that is answered;
	// ErrDrop cuts the connection.
	Accepted func(Letter) error
}

// ErrDrop cuts the connection.
var ErrDrop = fmt.Errorf("the connection is to be cut")

// MailServer is a real SMTP server with STARTTLS, that remembers every message
// that it accepted.
type MailServer struct {
	Port      int
	authority string // file

	mu      sync.Mutex
	rules   MailRules
	letters []Letter
	logins  []error // nil: it was let in
	conns   map[*smtp.Conn]bool
}

// NewMailServer starts one.
func NewMailServer(t *testing.T, rules MailRules) *MailServer {
	t.Helper()
	return NewMailServerAt(t, "127.0.0.1:0", rules)
}

// NewMailServerAt starts one at an address.
func NewMailServerAt(t *testing.T, address string, rules MailRules) *MailServer {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("listening on %v", l.Addr())
	}
	m := MailServerLater(t, at.Port)
	m.rules = rules
	m.Serve(t, l)
	return m
}

// MailServerLater is one that does not listen yet.
func MailServerLater(t *testing.T, port int) *MailServer {
	t.Helper()
	if _, err := certificate(); err != nil {
		t.Fatal(err)
	}
	return &MailServer{Port: port, conns: map[*smtp.Conn]bool{}, authority: filepath.Join(buildDir, "authority.pem")}
}

// Serve lets it listen.
func (m *MailServer) Serve(t *testing.T, l net.Listener) {
	t.Helper()
	pair, err := certificate()
	if err != nil {
		t.Fatal(err)
	}
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.conns[c] = true
		return &mailSession{server: m, conn: c}, nil
	}))
	server.Domain, server.ReadTimeout = "mail.test", time.Minute
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.ErrorLog = noLog{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it ends with Close
	}()
	t.Cleanup(func() {
		_ = server.Close()
		_ = l.Close() // Serve may not have told the server of it yet
		<-done
	})
}

// Rule changes what it does.
func (m *MailServer) Rule(rules MailRules) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rules = rules
}

// HangUp cuts all connections that there are.
func (m *MailServer) HangUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.conns {
		_ = c.Conn().Close()
		delete(m.conns, c)
	}
}

func (m *MailServer) ruling() MailRules {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rules
}

// Letters returns every message that was accepted, in their order.
func (m *MailServer) Letters() []Letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Letter(nil), m.letters...)
}

// Of counts the copies of one delivery.
func (m *MailServer) Of(key string) (n int) {
	for _, l := range m.Letters() {
		if l.Key == key {
			n++
		}
	}
	return n
}

// Logins returns how every try to log in ended.
func (m *MailServer) Logins() []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]error(nil), m.logins...)
}

type noLog struct{}

func (noLog) Printf(string, ...any) {}
func (noLog) Println(...any)        {}

type mailSession struct {
	server *MailServer
	conn   *smtp.Conn
	to     string
}

var _ smtp.AuthSession = (*mailSession)(nil)

func (s *mailSession) AuthMechanisms() []string {
	if names := s.server.ruling().Mechanisms; names != nil {
		return names
	}
	return []string{sasl.Plain}
}

// ErrWrongPassword is what a server answers who knows that it is wrong.
var ErrWrongPassword = &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "authentication failed"}

func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) (err error) {
		judge := s.server.ruling().Auth
		if judge == nil {
			judge = func(user, password string) error {
				if user != MailUser || password != MailPassword {
					return ErrWrongPassword
				}
				return nil
			}
		}
		err = judge(user, password)
		s.server.mu.Lock()
		s.server.logins = append(s.server.logins, err)
		s.server.mu.Unlock()
		return err
	}), nil
}

func (s *mailSession) Mail(string, *smtp.MailOptions) error { return nil }

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	if judge := s.server.ruling().Rcpt; judge != nil {
		return s.cut(judge(to))
	}
	return nil
}

func (s *mailSession) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	l := Letter{To: s.to, Data: data, At: time.Now()}
	if parsed, err := mail.ReadMessage(bytes.NewReader(data)); err == nil {
		l.Key, _, _ = strings.Cut(strings.TrimPrefix(parsed.Header.Get("Message-Id"), "<"), "@")
	}
	s.server.mu.Lock()
	s.server.letters = append(s.server.letters, l)
	accepted := s.server.rules.Accepted
	s.server.mu.Unlock()
	if accepted != nil {
		return s.cut(accepted(l))
	}
	return nil
}

func (s *mailSession) cut(err error) error {
	if err == ErrDrop { //nolint:errorlint // it is handed on as it is
		_ = s.conn.Conn().Close()
	}
	return err
}

func (s *mailSession) Reset()        {}
func (s *mailSession) Logout() error { return nil }

// certificate is one for 127.0.0.1; who trusts it is written to authority.pem.
var certificate = sync.OnceValues(func() (pair tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, err
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		return pair, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(filepath.Join(buildDir, "authority.pem"), text, 0o600); err != nil {
		return pair, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
})

// FreeAddress is host:port at which nobody listens, for whoever will do so later.
func FreeAddress(t *testing.T) string {
	t.Helper()
	return freeAddress(t)
}
