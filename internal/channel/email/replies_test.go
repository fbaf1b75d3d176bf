package email

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/model"
)

// replyRow is what a server answered at some step, and the class that it has.
type replyRow struct {
	ID         string        `json:"id"`
	Provider   string        `json:"provider"`
	Code       int           `json:"smtp_code"`
	Stage      string        `json:"stage"`
	Body       string        `json:"body"`
	Class      model.Class   `json:"class"`
	RetryAfter int           `json:"retry_after_s"`
	Also       []model.Class `json:"also_defensible"`
}

func readReplies(t *testing.T, file string) (rows []replyRow) {
	t.Helper()
	var all struct{ Rows []replyRow }
	readJSON(t, file, &all)
	for _, row := range all.Rows {
		if row.Provider == "smtp" {
			rows = append(rows, row)
		}
	}
	return rows
}

// check plays the row as a server, and sends to it.
func (row replyRow) check(t *testing.T) error {
	t.Helper()
	step, ok := map[string]string{
		"greeting": "greeting", "connect": "greeting", "EHLO": "EHLO", "STARTTLS": "STARTTLS", "AUTH": "AUTH", "MAIL FROM": "MAIL", "MAIL": "MAIL",
		"RCPT TO": "RCPT", "RCPT": "RCPT", "DATA": "DATA", "end of DATA": "end", "during DATA": "body", "RSET": "RSET",
	}[row.Stage]
	if !ok {
		return fmt.Errorf("a step that nobody knows: %s", row.Stage)
	}
	does := strings.ReplaceAll(strings.ReplaceAll(row.Body, "\r\n", "\n"), "\n", "\r\n")
	if row.Code == 0 {
		does = drop
	}
	p := play(t, map[string]string{step: does})
	s := open(t, p.host, p.port, func(c *Config) { c.Username, c.Password = "posthouse", password })
	got := s.Send(t.Context(), message(func(m *channel.Message) {
		if step == "body" {
			m.Text = strings.Repeat("x", 6<<20)
		}
	}))
	if got.Class != row.Class && !slices.Contains(row.Also, got.Class) {
		return fmt.Errorf("%s at %s is %s, not %s: %+v", row.Body, row.Stage, got.Class, row.Class, got)
	}
	if want := min(time.Duration(row.RetryAfter)*time.Second, time.Hour); got.Class == row.Class && got.RetryAfter < want {
		return fmt.Errorf("%s at %s is not before %v, not %v", row.Body, row.Stage, got.RetryAfter, want)
	}
	return nil
}
