package email

import (
	"context"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/channel/channeltest"
	"github.com/posthouse/posthouse/internal/model"
)

func TestSendsOverEachKindOfConnection(t *testing.T) {
	for name, test := range map[string]struct {
		server realOptions
		change func(*Config)
	}{
		"STARTTLS by default, with a password": {realOptions{auth: true}, func(c *Config) { c.Username, c.Password = "posthouse", password }},
		"implicit TLS, with a password": {realOptions{implicit: true, auth: true}, func(c *Config) {
			c.TLS, c.Username, c.Password = Implicit, "posthouse", password
		}},
		"none, where it is asked for":                       {realOptions{noTLS: true}, func(c *Config) { c.TLS = NoTLS }},
		"none, with a password on this host":                {realOptions{noTLS: true, auth: true}, func(c *Config) { c.TLS, c.Username, c.Password = NoTLS, "posthouse", password }},
		"STARTTLS, with a server that cannot take SMTPUTF8": {realOptions{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			server := startReal(t, test.server)
			s := open(t, server.host, server.port, test.change)
			for range 2 { // the second on the same connection
				if got := s.Send(t.Context(), message(nil)); got.Class != model.ClassSuccess {
					t.Fatalf("got %+v", got)
				}
			}
			got := server.envelopes()
			if len(got) != 2 || server.connections() != 1 {
				t.Fatalf("%d messages over %d connections", len(got), server.connections())
			}
			if diff := cmp.Diff([]string{"zoe@example.com"}, got[0].to); diff != "" || got[0].from != "no-reply@example.com" || got[0].utf8 {
				t.Errorf("envelope: %+v", got[0])
			}
			if len(got[0].data) == 0 {
				t.Error("no message")
			}
		})
	}
}

func TestAMessageIsTheSameOnEachAttempt(t *testing.T) {
	from, err := ParseMailbox(sender)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("", 3600))
	first, err := Build(from, message(nil), now)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Build(from, message(nil), now)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(first.Data), string(second.Data)); diff != "" {
		t.Error(diff)
	}
	const want = "From: \"Approvals\" <no-reply@example.com>\r\n" +
		"To: <zoe@example.com>\r\n" +
		"Subject: An approval waits\r\n" +
		"Date: Sun, 01 Mar 2026 11:00:00 +0000\r\n" +
		"Message-ID: <0198c0de-0000-7000-8000-000000000001@example.com>\r\n" +
		"Auto-Submitted: auto-generated\r\n" +
		"MIME-Version: 1.0\r\n" +
		"Content-Type: multipart/alternative;\r\n" +
		" boundary=\"=_9a0da04fb43ddbe2b3ea0d3d5e1a6c54\"\r\n"
	got := string(first.Data)
	if head, _, _ := strings.Cut(got, "\r\n\r\n"); cut(head) != cut(want) {
		t.Error(cmp.Diff(want, head))
	}
}

// cut takes off the boundary.
func cut(head string) string {
	head, _, _ = strings.Cut(head, " boundary=")
	return head
}

func TestAC3TheSecondAttemptCarriesTheSameMessageID(t *testing.T) {
	p := play(t, map[string]string{"end": drop})
	s := open(t, p.host, p.port, nil)
	if got := s.Send(t.Context(), message(nil)); got.Class != model.ClassUncertain {
		t.Fatalf("got %+v", got)
	}
	p.set("end", "")
	if got := s.Send(t.Context(), message(nil)); got.Class != model.ClassSuccess {
		t.Fatalf("got %+v", got)
	}
	var ids []string
	for _, m := range p.accepted() {
		read, err := mail.ReadMessage(strings.NewReader(m))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, read.Header.Get("Message-Id"))
	}
	want := "<0198c0de-0000-7000-8000-000000000001@example.com>"
	if diff := cmp.Diff([]string{want, want}, ids); diff != "" {
		t.Error(diff)
	}
}

func TestAC2AServerThatFirstCannotBeReachedAndThenAccepts(t *testing.T) {
	p := play(t, map[string]string{"greeting": hang})
	s := open(t, p.host, p.port, func(c *Config) { c.ReadTimeout = 50 * time.Millisecond })
	if got := s.Send(t.Context(), message(nil)); got.Class != model.ClassTransient || got.Code != "timeout" {
		t.Fatalf("got %+v", got)
	}
	p.set("greeting", "")
	s = open(t, p.host, p.port, nil)
	if got := s.Send(t.Context(), message(nil)); got.Class != model.ClassSuccess || got.ProviderID != "4Cx1yZ0abc" {
		t.Fatalf("got %+v", got)
	}
}

// At any step it costs the read timeout, and no goroutine
// (see TestMain). A server that drops is transient until the final dot, and
// uncertain after it.
func TestAServerThatHangsOrDrops(t *testing.T) {
	steps := []string{"greeting", "EHLO", "STARTTLS", "AUTH", "MAIL", "RCPT", "DATA", "end"}
	for _, does := range []string{hang, drop, "nonsense", "250-endless\r\n250-" + strings.Repeat("x", 300<<10)} {
		for _, step := range steps {
			t.Run("NC-11 "+does[:min(len(does), 9)]+" at "+step, func(t *testing.T) {
				p := play(t, map[string]string{step: does})
				timeout := 5 * time.Second
				if does == hang {
					timeout = 150 * time.Millisecond
				}
				s := open(t, p.host, p.port, func(c *Config) {
					c.ReadTimeout, c.Username, c.Password = timeout, "posthouse", password
				})
				began := time.Now()
				got := s.Send(t.Context(), message(nil))
				if took := time.Since(began); does == hang && (took < timeout || took > timeout+time.Second) {
					t.Errorf("it took %v", took)
				}
				want := model.ClassTransient
				if step == "end" {
					want = model.ClassUncertain
				}
				if got.Class != want || got.Code == "" || got.Text == "" || does == hang && got.Code != "timeout" {
					t.Errorf("got %+v, want %s", got, want)
				}
				if s.pool.take() != nil {
					t.Error("the connection is kept")
				}
			})
		}
	}
}

func TestAServerThatTakesNotAllOfTheMessage(t *testing.T) {
	long := message(func(m *channel.Message) { m.Text = strings.Repeat("x", 6<<20) }) // more than any buffer holds
	t.Run("NC-11 and drops", func(t *testing.T) {
		p := play(t, map[string]string{"body": drop})
		s := open(t, p.host, p.port, nil)
		if got := s.Send(t.Context(), long); got.Class != model.ClassTransient {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("NC-11 and hangs", func(t *testing.T) {
		ended := make(chan struct{})
		defer close(ended)
		p := playTo(t, map[string]string{}, func(step string) {
			if step == "body" {
				<-ended // it does not read
			}
		})
		s := open(t, p.host, p.port, func(c *Config) { c.ReadTimeout = 300 * time.Millisecond })
		if got := s.Send(t.Context(), long); got.Class != model.ClassTransient {
			t.Errorf("got %+v", got)
		}
	})
}

func TestWhatComesAfterAcceptanceChangesNothing(t *testing.T) {
	for name, script := range map[string]map[string]string{
		"RSET fails":                      {"RSET": "500 5.5.1 no"},
		"RSET hangs":                      {"RSET": hang},
		"it drops after it accepted":      {"after": drop},
		"it says 421 after it accepted":   {"after": "421 4.4.2 idle too long"},
		"it accepts with another code":    {"end": "251 2.0.0 fine"},
		"it accepts with several lines":   {"end": "250-2.0.0 fine\r\n250 2.0.0 Ok: queued as 4Cx1yZ0abc"},
		"it says nothing about the queue": {"end": "250 ok"},
	} {
		t.Run("NC-10 "+name, func(t *testing.T) {
			p := play(t, script)
			s := open(t, p.host, p.port, nil)
			for i := range 3 {
				if got := s.Send(t.Context(), message(nil)); got.Class != model.ClassSuccess || got.ProviderID == "" {
					t.Fatalf("message %d: %+v", i, got)
				}
			}
			if got := len(p.accepted()); got != 3 {
				t.Errorf("the server has %d messages", got)
			}
		})
	}
}

func TestAnAttemptThatIsEnded(t *testing.T) {
	for step, want := range map[string]model.Class{
		"greeting": model.ClassTransient, "STARTTLS": model.ClassTransient, "RCPT": model.ClassTransient, "end": model.ClassUncertain,
	} {
		t.Run("NC-11 at "+step, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			p := playTo(t, map[string]string{step: hang}, func(at string) {
				if at == step {
					cancel()
				}
			})
			s := open(t, p.host, p.port, func(c *Config) { c.ReadTimeout = time.Minute })
			if got := s.Send(ctx, message(nil)); got.Class != want || got.Code != "cancelled" {
				t.Errorf("got %+v, want %s", got, want)
			}
		})
	}
}

func TestAConnectionSurvivesARefusedRecipient(t *testing.T) {
	server := startReal(t, realOptions{refuse: func(to string) error {
		if strings.HasPrefix(to, "nobody@") {
			return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user " + to}
		}
		return nil
	}})
	s := open(t, server.host, server.port, nil)
	for range 3 {
		got := s.Send(t.Context(), message(func(m *channel.Message) { m.Address = "nobody@example.com" }))
		want := channel.Result{Class: model.ClassPermanent, Code: "550 5.1.1", Text: "the mail server answered 550 at RCPT: 5.1.1 no such user •••"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		if got := s.Send(t.Context(), message(nil)); got.Class != model.ClassSuccess {
			t.Fatalf("got %+v", got)
		}
	}
	if got := server.connections(); got != 1 {
		t.Errorf("%d connections", got)
	}
	if got := len(server.envelopes()); got != 3 {
		t.Errorf("%d messages", got)
	}
}

func TestAuthentication(t *testing.T) {
	login := func(c *Config) { c.Username, c.Password = "posthouse", password }
	t.Run("NC-11 a wrong password is confirmed by a real server", func(t *testing.T) {
		server := startReal(t, realOptions{auth: true})
		s := open(t, server.host, server.port, func(c *Config) { c.Username, c.Password = "posthouse", "not-the-1" })
		got := s.Send(t.Context(), message(nil))
		want := channel.Result{Class: model.ClassAuth, Code: "535 5.7.8", Text: "the mail server answered 535 at AUTH: 5.7.8 no: ••• with •••"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
	const ehlo = "250-test.example\r\n250-STARTTLS\r\n250 "
	for name, test := range map[string]struct {
		script map[string]string
		class  model.Class
		code   string
	}{
		"another mechanism alone":           {map[string]string{"EHLO": ehlo + "AUTH GSSAPI NTLM"}, model.ClassTransient, "auth_mechanism"},
		"no mechanism":                      {map[string]string{"EHLO": ehlo + "SIZE"}, model.ClassTransient, "auth_mechanism"},
		"a temporary failure":               {map[string]string{"AUTH": "454 4.7.0 later"}, model.ClassTransient, "454 4.7.0"},
		"a mechanism that it does not have": {map[string]string{"AUTH": "504 5.5.4 unrecognized"}, model.ClassTransient, "504 5.5.4"},
		"a challenge that is none":          {map[string]string{"AUTH": "334 !!!"}, model.ClassTransient, "auth_mechanism"},
		"too many connections":              {map[string]string{"AUTH": "421 4.7.0 too many"}, model.ClassTransient, "421 4.7.0"},
		"refused":                           {map[string]string{"AUTH": "535 5.7.8 no"}, model.ClassAuth, "535 5.7.8"},
		"refused, and a hang":               {map[string]string{"AUTH": "535 5.7.8 no", "*": hang}, model.ClassAuth, "535 5.7.8"},
		"another password is wanted":        {map[string]string{"AUTH": "534 5.7.9 no"}, model.ClassAuth, "534 5.7.9"},
		"not logged in":                     {map[string]string{"MAIL": "530 5.7.0 log in first"}, model.ClassAuth, "530 5.7.0"},
		"a server without STARTTLS":         {map[string]string{"EHLO": "250-test.example\r\n250 AUTH PLAIN"}, model.ClassTransient, "tls"},
	} {
		t.Run("NC-11 "+name, func(t *testing.T) {
			p := play(t, test.script)
			s := open(t, p.host, p.port, func(c *Config) { login(c); c.ReadTimeout = 2 * time.Second })
			if got := s.Send(t.Context(), message(nil)); got.Class != test.class || got.Code != test.code {
				t.Errorf("got %+v", got)
			}
			if lines := p.said("AUTH"); len(lines) > 0 && test.code == "tls" {
				t.Error("the password travelled in the clear")
			}
		})
	}
}

func TestACertificateThatIsNotTrusted(t *testing.T) {
	for _, mode := range []TLS{StartTLS, Implicit} {
		server := startReal(t, realOptions{implicit: mode == Implicit})
		s := open(t, server.host, server.port, func(c *Config) { c.TLS, c.RootCAs = mode, nil })
		if got := s.Send(t.Context(), message(nil)); got.Class != model.ClassTransient || got.Code != "tls" || !strings.Contains(got.Text, "not trusted") {
			t.Errorf("%s: %+v", mode, got)
		}
	}
}

func TestAnAddressThatNeedsSMTPUTF8(t *testing.T) {
	m := message(func(m *channel.Message) { m.Address = "用户@例子.公司" })
	t.Run("is refused for good where the server cannot", func(t *testing.T) {
		server := startReal(t, realOptions{})
		s := open(t, server.host, server.port, nil)
		if got := s.Send(t.Context(), m); got.Class != model.ClassPermanent || got.Code != "smtputf8" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("is sent where it can", func(t *testing.T) {
		server := startReal(t, realOptions{utf8: true})
		s := open(t, server.host, server.port, nil)
		for _, m := range []channel.Message{m, message(nil)} {
			if got := s.Send(t.Context(), m); got.Class != model.ClassSuccess {
				t.Fatalf("got %+v", got)
			}
		}
		got := server.envelopes()
		if !got[0].utf8 || got[0].to[0] != "用户@xn--fsqu00a.xn--55qx5d" || got[1].utf8 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestConnections(t *testing.T) {
	t.Run("are not more than may be open", func(t *testing.T) {
		p := play(t, map[string]string{})
		s := open(t, p.host, p.port, func(c *Config) { c.MaxConnections = 2 })
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				if got := s.Send(t.Context(), message(nil)); got.Class != model.ClassSuccess {
					t.Errorf("got %+v", got)
				}
			})
		}
		group.Wait()
		if got := p.connections(); got > 2 {
			t.Errorf("%d connections", got)
		}
	})
	t.Run("are closed when nobody uses them", func(t *testing.T) {
		p := play(t, map[string]string{})
		s := open(t, p.host, p.port, func(c *Config) { c.IdleTimeout = time.Millisecond })
		s.Send(t.Context(), message(nil))
		_ = p.listener.Close()
		p.group.Wait() // the server's side of it ends
		if c := s.pool.take(); c != nil {
			t.Error("it is still kept")
		}
	})
	t.Run("are given up after so many messages", func(t *testing.T) {
		p := play(t, map[string]string{})
		s := open(t, p.host, p.port, func(c *Config) { c.MaxMessages = 2 })
		for range 5 {
			s.Send(t.Context(), message(nil))
		}
		if got := p.connections(); got != 3 {
			t.Errorf("%d connections", got)
		}
	})
	t.Run("wait no longer than the context", func(t *testing.T) {
		s := open(t, "127.0.0.1", 1, func(c *Config) { c.MaxConnections = 1 })
		s.pool.slots <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if got := s.Send(ctx, message(nil)); got.Class != model.ClassTransient || got.Code != "timeout" {
			t.Errorf("got %+v", got)
		}
	})
}

func TestSender(t *testing.T) {
	login := func(c *Config) {
		c.Username, c.Password, c.ReadTimeout, c.ConnectTimeout = "posthouse", password, time.Minute, time.Minute
	}
	channeltest.Run(t, channeltest.Harness{
		Address: "zoe.unusual@example.com", Credentials: []string{"posthouse-nobody", password},
		Accepting: func(t *testing.T) channel.Sender {
			server := startReal(t, realOptions{auth: true})
			return open(t, server.host, server.port, login)
		},
		Echoing: func(t *testing.T, echo []string) channel.Sender {
			p := play(t, map[string]string{"end": "554 5.6.0 <zoe.unusual@example.com> Your code is 493817, ZEPHYRINE " + password + " " + strings.Join(echo, " ")})
			return open(t, p.host, p.port, login)
		},
		Hanging: func(t *testing.T, reached func()) channel.Sender {
			p := playTo(t, map[string]string{"DATA": hang}, func(step string) {
				if step == "DATA" {
					reached()
				}
			})
			return open(t, p.host, p.port, login)
		},
		Unreachable: func(t *testing.T) channel.Sender {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			port := listener.Addr().(*net.TCPAddr).Port
			_ = listener.Close()
			return open(t, "127.0.0.1", port, login)
		},
	})
}

func TestConfigTellsAllThatIsWrong(t *testing.T) {
	_, err := New(Config{Host: "mail server", Port: -1, TLS: "maybe", Username: "u", ReadTimeout: -1, MaxConnections: -1, From: "Alice"})
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, field := range []string{"host:", "port:", "tls:", "password:", "read_timeout", "max_connections", "from:"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is missing in %q", field, err)
		}
	}
	if _, err := New(Config{Host: "mail.example.com", TLS: NoTLS, Username: "u", Password: "p", From: sender}); err == nil || !strings.Contains(err.Error(), "clear") {
		t.Errorf("a password in the clear: %v", err)
	}
	if err := CheckFrom("a@example.com, b@example.com"); err == nil {
		t.Error("two senders")
	}
	if err := CheckFrom(sender); err != nil {
		t.Error(err)
	}
}

func TestQueueID(t *testing.T) {
	for reply, want := range map[string]string{
		"2.0.0 Ok: queued as 4Cx1yZ0abc":                                  "4Cx1yZ0abc",
		"OK id=1tXyZ-0001Ab-2C":                                           "1tXyZ-0001Ab-2C",
		"2.0.0 OK 1461095248 m143si2210036ioe.159 - gsmtp ":               "m143si2210036ioe.159",
		"Ok 0100018f1234abcd-01234567-89ab-cdef-0123-456789abcdef-000000": "0100018f1234abcd-01234567-89ab-cdef-0123-456789abcdef-000000",
		"2.0.0 4A1B2C3D012345 Message accepted for delivery":              "4A1B2C3D012345",
		"ok": "", "2.0.0 OK": "", "thanks, zoe@example.com": "",
	} {
		if got := queueID(reply); got != want {
			t.Errorf("%q: got %q, want %q", reply, got, want)
		}
	}
}
