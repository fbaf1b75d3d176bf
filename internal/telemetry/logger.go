package telemetry

import (
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
)

// Format is how a log line is written.
type Format string

const (
	FormatText Format = "text" // key=value, for people
	FormatJSON Format = "json" // one object a line, for collectors
)

// Config says where and how a logger writes. Its zero value works.
type Config struct {
	Writer io.Writer    // default os.Stderr
	Level  slog.Leveler // lines below it are not written; default slog.LevelInfo
	Format Format       // default FormatText
	// Metrics, where set, gets posthouse_log_lines_suppressed_total.
	Metrics prometheus.Registerer
}

// NewLogger makes a logger that redacts, cleans and bounds what it writes, and
// limits how often warnings and errors repeat: the same message text at the
// same level is written once in 5 s, and at most 8 lines of level Warn or
// above in any second (6 of them may be below Error, so that a flood of
// warnings hides no error). What was held back is counted and told by the next
// line: "suppressed" counts lines with its own text, "suppressed_others" those
// whose text has been forgotten meanwhile. Lines below Warn are not limited.
//
// Loggers derived with With and WithGroup share the limit.
func NewLogger(c Config) *slog.Logger {
	if c.Writer == nil {
		c.Writer = os.Stderr
	}
	if c.Level == nil {
		c.Level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: c.Level, ReplaceAttr: redactAttr}
	var write slog.Handler
	if c.Format == FormatJSON {
		write = slog.NewJSONHandler(c.Writer, options)
	} else {
		write = slog.NewTextHandler(c.Writer, options)
	}
	return slog.New(limitHandler{next: write, limit: newLimiter(suppressedCounter(c.Metrics))})
}
