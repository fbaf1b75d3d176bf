package notify

import (
	"bufio"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthouse/posthouse/client"
	"github.com/posthouse/posthouse/test/internal/running"
)

// silent is an SMTP server, without TLS, that stops answering at DATA until it is
// healed.
type silent struct {
	port int

	mu     sync.Mutex
	healed bool
	asked  int // for DATA, while it did not answer
}

func newSilent(t *testing.T) *silent {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &silent{port: l.Addr().(*net.TCPAddr).Port}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { s.talk(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		group.Wait()
	})
	return s
}

func (s *silent) talk(conn net.Conn) {
	defer conn.Close()                                //nolint:errcheck // whoever hangs up
	_ = conn.SetDeadline(time.Now().Add(time.Minute)) // whoever hangs is the client
	say := func(line string) { _, _ = conn.Write([]byte(line + "\r\n")) }
	say("220 silent")
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		switch verb, _, _ := strings.Cut(strings.ToUpper(lines.Text()), " "); verb {
		case "DATA":
			if !s.answers() {
				for lines.Scan() { // until the client goes
				}
				return
			}
			say("354 go on")
			for lines.Scan() && lines.Text() != "." {
			}
			say("250 queued")
		case "QUIT":
			return
		default:
			say("250 fine")
		}
	}
}

func (s *silent) answers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.healed {
		s.asked++
	}
	return s.healed
}

func (s *silent) heal() (asked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.healed = true
	return s.asked
}

// How far a conversation had come decides whether a mail is sent again.
func TestMailServersThatBreakOff(t *testing.T) {
	t.Parallel()
	const readTimeout = 700 * time.Millisecond
	mail, hanging := running.NewMailServer(t, running.MailRules{}), newSilent(t)
	var mu sync.Mutex
	dropped := 0
	f := launch(t, engines[0], 1, running.NewNotify(t, []running.Channel{
		{Name: "mail", Mail: mail, OnUncertain: "hold"}, {Name: "hanging", MailPort: hanging.port, OnUncertain: "hold", ReadTimeout: readTimeout},
	}, running.Policy{BizType: "hanging", Send: []string{"hanging"}}, running.Policy{Send: []string{"mail"}}))

	t.Run("NC-11 a server that hangs at DATA costs the read timeout, and is asked again", func(t *testing.T) {
		id := f.accept(f.a(), todo("hanging", "hanging")).Deliveries[0].ID
		f.await(f.a(), id, client.DeliveryRetryWait)
		asked := hanging.heal()
		d := f.await(f.a(), id, client.DeliverySucceeded)
		if len(d.Attempts) < 2 || asked == 0 {
			t.Fatalf("%d attempts, %d of which came to DATA", len(d.Attempts), asked)
		}
		first := d.Attempts[0]
		if first.Class != "transient" || first.Code != "timeout" {
			t.Errorf("the first attempt is %s %q", first.Class, first.Code)
		}
		if took := first.EndedAt.Sub(first.StartedAt); took < readTimeout || took > readTimeout+4*time.Second {
			t.Errorf("the first attempt took %v, want about %v", took, readTimeout)
		}
	})
	t.Run("NC-11 a line that breaks before DATA is tried again", func(t *testing.T) {
		mail.Rule(running.MailRules{Rcpt: func(string) error {
			mu.Lock()
			defer mu.Unlock()
			if dropped++; dropped <= 2 {
				return running.ErrDrop
			}
			return nil
		}})
		id := f.accept(f.a(), todo("before", "order.status")).Deliveries[0].ID
		d := f.await(f.a(), id, client.DeliverySucceeded)
		if len(d.Attempts) != 3 || d.Attempts[0].Class != "transient" || mail.Of(id) != 1 {
			t.Errorf("%d attempts, the first %q, %d copies", len(d.Attempts), d.Attempts[0].Class, mail.Of(id))
		}
	})
	t.Run("NC-10 a line that breaks after the final dot is uncertain", func(t *testing.T) {
		mail.Rule(running.MailRules{Accepted: func(running.Letter) error { return running.ErrDrop }})
		id := f.accept(f.a(), todo("after", "order.status")).Deliveries[0].ID
		d := f.await(f.a(), id, client.DeliveryUncertain)
		if d.ErrorClass != "uncertain" || mail.Of(id) != 1 {
			t.Errorf("it is %s, with %d copies", d.ErrorClass, mail.Of(id))
		}
	})
}
