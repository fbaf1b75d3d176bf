package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/posthouse/posthouse/client"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/telemetry"
)

// apiFlags say which running instance a command asks.
type apiFlags struct {
	configFile
	URL   string `name:"url" env:"POSTHOUSE_URL" help:"The admin address of a running instance, such as http://127.0.0.1:8081. Without it the one of the configuration, and where there is none http://127.0.0.1:8080, where posthouse dev listens."`
	Actor string `env:"POSTHOUSE_ACTOR" help:"Who does it, for the audit log. Without it your name on this machine."`
	JSON  bool   `help:"Print JSON."`
}

// devURL is where posthouse dev listens where nothing else is said.
const devURL = "http://127.0.0.1:8080"

func (f apiFlags) client() (*client.Client, error) {
	base, err := f.url()
	if err != nil {
		return nil, err
	}
	actor := f.Actor
	if me, err := user.Current(); actor == "" && err == nil {
		actor = me.Username
	}
	return client.New(base, client.Options{UserAgent: "posthouse/" + telemetry.Version(), Actor: actor, Attempts: 2})
}

func (f apiFlags) url() (string, error) {
	if f.URL != "" {
		return f.URL, nil
	}
	cfg, found, _ := config.Load(config.ParseParams{File: f.Config})
	if len(found) > 0 {
		// What else is wrong there is not looked at: whoever asks a running
		// instance need not have its secrets.
		data, err := os.ReadFile(f.Config)
		if errors.Is(err, fs.ErrNotExist) {
			return devURL, nil
		}
		if err != nil {
			return "", err
		}
		var problems []config.Problem
		cfg, problems, _ = config.Parse(config.ParseParams{Data: adminAlone(data), File: f.Config, LookupEnv: storeEnv})
		if len(problems) > 0 {
			return "", errors.New("the configuration does not say where the instance listens; --url does")
		}
	}
	return "http://" + cfg.Admin.Listen, nil
}

// adminAlone is a configuration that says nothing but where the API listens.
func adminAlone(data []byte) []byte {
	return append(linesOf(data, "admin:", "listen:"), "\nstore: sqlite:any.db\nsources: {any: {verify: {kind: none}}}\n"...)
}

// linesOf are the lines from one of the keys to the next line that is not
// indented.
func linesOf(data []byte, keys ...string) []byte {
	var out bytes.Buffer
	inside := false
	for line := range bytes.Lines(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))) {
		if !bytes.ContainsAny(line[:1], " \t\r\n#") {
			inside = false
			for _, key := range keys {
				inside = inside || bytes.HasPrefix(line, []byte(key))
			}
		}
		if inside {
			out.Write(line)
		}
	}
	return out.Bytes()
}

// ask runs do with a client. What went wrong is one line, which says what to do
// where no instance answers.
func (f apiFlags) ask(do func(*client.Client) error) error {
	c, err := f.client()
	if err != nil {
		return err
	}
	err = do(c)
	if e, ok := errors.AsType[*client.Error](err); ok && e.Status == 0 && e.Code == client.Unavailable {
		return errors.New(e.Error() + "; a running instance is needed: " + self() + " serve, or name its admin address with --url")
	}
	return err
}

// table prints rows in columns; all that came from elsewhere went through plain.
func table(head string, rows [][]string) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if head != "" {
		rows = append([][]string{strings.Split(head, " | ")}, rows...)
	}
	for _, row := range rows {
		if _, err := w.Write([]byte(strings.Join(row, "\t") + "\n")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// instant is a time as tables show it; "" where it is not set.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
