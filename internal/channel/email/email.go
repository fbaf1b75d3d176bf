// Package email sends deliveries by SMTP, and says for each attempt how it ended.
//
// One message has one recipient, and its Message-ID follows from the delivery's
// id, so that whoever gets it twice can tell. Connections are kept and used again.
// What an answer means is decided by its code, see classify; what no answer means
// depends on how far the conversation had come:
//
//	connect → TLS → greeting → EHLO → STARTTLS → AUTH → MAIL → RCPT → DATA → lines │ final dot → reply
//	╰────────────────────────── no answer: transient ─────────────────────────────╯ ╰─ uncertain ─╯
//
// The protocol is go-mail's; messages are written here, since it must be seen
// before they are sent what exactly goes out, and since quotes, names and subjects
// that were made to deceive need more care than it gives.
package email

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/channel/scrub"
	"github.com/posthouse/posthouse/internal/model"
)

// TLS says how a connection is encrypted. There is no mode that encrypts only
// where the server offers it: whoever listens would take the offer out.
type TLS string

// The values of TLS.
const (
	StartTLS TLS = "starttls" // required, after the greeting: port 587 or 25
	Implicit TLS = "implicit" // from the first byte: port 465
	NoTLS    TLS = "none"     // never; for a server on the same host, or in tests
)

// Config says with which server, and as whom. Host and From are required.
type Config struct {
	Host string
	Port int // default 587; 465 with Implicit, 25 with NoTLS
	// Username and Password log in; where Username is "", nobody does.
	Username string
	Password string
	TLS      TLS // default StartTLS
	// RootCAs are whom to trust; default the system's.
	RootCAs *x509.CertPool
	// ConnectTimeout is for the connection alone; default 3 s.
	ConnectTimeout time.Duration
	// ReadTimeout is for each answer, with what was written before it; default 5 s.
	ReadTimeout time.Duration
	// From is who sends: "Approvals <no-reply@example.com>".
	From string
	// MaxConnections is how many are open at once, default 8; who finds none waits.
	MaxConnections int
	// IdleTimeout is how long a connection is kept without use; default 30 s.
	IdleTimeout time.Duration
	// MaxMessages is after how many messages a connection is given up; default 100.
	MaxMessages int
	// Now tells the time for the Date header; default time.Now.
	Now func() time.Time
}

// Sender sends through one account.
type Sender struct {
	cfg  Config
	from Mailbox
	pool *pool
}

var _ channel.Sender = (*Sender)(nil)

// New returns a sender; it connects when it first sends. The error tells all that
// is wrong with the configuration.
func New(cfg Config) (*Sender, error) {
	from, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	if cfg.TLS == "" {
		cfg.TLS = StartTLS
	}
	if cfg.Port == 0 {
		cfg.Port = map[TLS]int{StartTLS: 587, Implicit: 465, NoTLS: 25}[cfg.TLS]
	}
	cfg.ConnectTimeout = orDefault(cfg.ConnectTimeout, 3*time.Second)
	cfg.ReadTimeout = orDefault(cfg.ReadTimeout, 5*time.Second)
	cfg.IdleTimeout = orDefault(cfg.IdleTimeout, 30*time.Second)
	cfg.MaxConnections = orDefault(cfg.MaxConnections, 8)
	cfg.MaxMessages = orDefault(cfg.MaxMessages, 100)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Sender{cfg, from, newPool(cfg.MaxConnections, cfg.IdleTimeout)}, nil
}

func orDefault[T int | time.Duration](value, otherwise T) T {
	if value == 0 {
		return otherwise
	}
	return value
}

func (c Config) validate() (from Mailbox, err error) {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.Host == "" || strings.ContainsAny(c.Host, " \r\n\t/@") {
		problem("host: the name of a mail server is wanted")
	}
	if c.Port < 0 || c.Port > 65535 {
		problem("port: it must be between 1 and 65535")
	}
	switch c.TLS {
	case "", StartTLS, Implicit:
	case NoTLS:
		if c.Username != "" && !loopback(c.Host) {
			problem("tls: with none, a password would travel in the clear to another host; use starttls or implicit, or give no username")
		}
	default:
		problem("tls: it must be starttls, implicit or none")
	}
	if (c.Username == "") != (c.Password == "") {
		problem("username and password: give both or neither")
	}
	if strings.ContainsRune(c.Username+c.Password, 0) {
		problem("username and password: a NUL cannot stand in them")
	}
	if min(c.ConnectTimeout, c.ReadTimeout, c.IdleTimeout) < 0 {
		problem("connect_timeout, read_timeout, idle_timeout: they must not be negative")
	}
	if min(c.MaxConnections, c.MaxMessages) < 0 {
		problem("max_connections, max_messages: they must not be negative")
	}
	if from, err = ParseMailbox(c.From); err != nil {
		problem("from: %w; write it like \"Approvals <no-reply@example.com>\"", err)
	}
	return from, errors.Join(problems...)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Close implements channel.Sender.
func (s *Sender) Close() error {
	s.pool.close()
	return nil
}

// Send implements channel.Sender.
func (s *Sender) Send(ctx context.Context, m channel.Message) channel.Result {
	known := scrub.New(slices.Concat(m.Hidden, []string{m.Address, s.cfg.Username, s.cfg.Password})...)
	letter, err := Build(s.from, m, s.cfg.Now())
	if err != nil {
		code := "message"
		if _, addressErr := parseAddress(m.Address); addressErr != nil {
			code = "address"
		}
		return channel.Result{Class: model.ClassPermanent, Code: code, Text: known.Text("the message cannot be written: " + err.Error())}
	}
	reply, failed := s.carry(ctx, letter)
	if failed != nil {
		return failed.result(ctx, known)
	}
	result := channel.Result{Class: model.ClassSuccess, Text: known.Text("the mail server accepted it: " + reply)}
	result.ProviderID = queueID(reply)
	if result.ProviderID == "" || known.Contains(result.ProviderID) {
		result.ProviderID = strings.Trim(letter.MessageID, "<>")
	}
	return result
}

// carry takes a letter to the server, on a connection that is there if it can.
func (s *Sender) carry(ctx context.Context, letter Letter) (reply string, failed *failure) {
	if err := s.pool.acquire(ctx); err != nil {
		return "", &failure{at: stageConnect, err: err}
	}
	defer s.pool.release()
	used := s.pool.take()
	if used != nil {
		reply, failed = s.over(ctx, used, letter)
		if failed == nil || !failed.stale() || ctx.Err() != nil {
			return reply, failed
		}
		// The server had closed it meanwhile, and has seen nothing of the message.
	}
	fresh, failed := s.open(ctx)
	if failed != nil {
		return "", failed
	}
	return s.over(ctx, fresh, letter)
}

// over sends a letter over a connection, and puts that back or closes it.
func (s *Sender) over(ctx context.Context, c *session, letter Letter) (string, *failure) {
	release := c.wire.follow(ctx)
	reply, failed := c.send(letter)
	untouched := release()
	if !untouched || failed != nil && failed.ends() || c.sent >= s.cfg.MaxMessages {
		c.close(untouched && failed == nil)
	} else {
		s.pool.put(c)
	}
	return reply, failed
}

// Where servers write the id under which they keep a message.
var queueIDs = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\bqueued (?:mail )?as:? ([A-Za-z0-9._-]{4,64})`),                        // Postfix and others
	regexp.MustCompile(`(?i)\bid=([A-Za-z0-9._-]{4,64})`),                                           // Exim
	regexp.MustCompile(`^(?:\d\.\d\.\d )?OK +\d+ ([A-Za-z0-9._-]{4,64}) - gsmtp`),                   // Gmail
	regexp.MustCompile(`(?i)^(?:\d\.\d\.\d )?Ok:? ([0-9a-f]{16}-[0-9a-f-]{36}-[0-9]{6})$`),          // Amazon
	regexp.MustCompile(`^(?:\d\.\d\.\d )?([A-Za-z0-9]{8,20}) Message accepted for delivery`),        // Sendmail
	regexp.MustCompile(`(?i)^(?:\d\.\d\.\d )?OK:? (?:queued|Message)\b[^<>@]*?\b([0-9A-F]{8,40})$`), // others
}

// queueID reads the server's id of the message from its last reply, "" where
// none is readable.
func queueID(reply string) string {
	reply = strings.TrimSpace(reply)
	for _, form := range queueIDs {
		if found := form.FindStringSubmatch(reply); found != nil {
			return strings.TrimRight(found[1], ".")
		}
	}
	return ""
}
