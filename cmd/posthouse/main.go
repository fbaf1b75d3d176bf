// Command posthouse receives webhooks without losing any of them, has them
// handled in the background, and carries notifications to people.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/posthouse/posthouse/internal/telemetry"
)

// cli is the command line.
type cli struct {
	Dev          devCmd          `cmd:"" help:"Run on this machine without any configuration: SQLite, one open source, and a terminal that shows each message."`
	Serve        serveCmd        `cmd:"" help:"Run as configured."`
	Init         initCmd         `cmd:"" help:"Write a commented configuration."`
	Config       configCmd       `cmd:"" help:"Look at the configuration."`
	Inbox        inboxCmd        `cmd:"" help:"Look at what was received, and switch its handling on and off."`
	Notify       notifyCmd       `cmd:"" help:"Say what happened and whom to tell."`
	Notification notificationCmd `cmd:"" help:"Look at notifications, and cancel them."`
	Delivery     deliveryCmd     `cmd:"" help:"Look at deliveries, send them again, and say what became of uncertain ones."`
	Channel      channelCmd      `cmd:"" help:"Look at channels, pause, resume and test them."`
	Template     templateCmd     `cmd:"" help:"Check templates, and see what they look like."`

	Instances instancesCmd `cmd:"" help:"Show who is alive, and which partitions each holds."`
	Migrate   migrateCmd   `cmd:"" help:"Look after the tables of the store."`
	Version   versionCmd   `cmd:"" help:"Print the version."`

	VersionFlag kong.VersionFlag `name:"version" help:"Print the version."`
}

// problems is an error of several lines: each is a finding of its own.
type problems []string

func (p problems) Error() string { return strings.Join(p, "\n") }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	parser, err := kong.New(&cli{}, kong.Name("posthouse"), kong.UsageOnError(),
		kong.Description("Receives webhooks without losing any of them, has them handled in the background, and carries notifications to people."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.Vars{"version": "posthouse " + telemetry.Version()},
		kong.BindTo(ctx, (*context.Context)(nil)))
	if err != nil {
		return report(err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "posthouse: %v; posthouse --help lists what there is\n", err)
		return 2
	}
	if err := command.Run(); err != nil {
		return report(err)
	}
	return 0
}

// report prints an error as one clear line, or one line for each finding.
func report(err error) int {
	if found, ok := errors.AsType[problems](err); ok {
		_, _ = fmt.Fprintln(os.Stderr, found.Error())
	} else {
		_, _ = fmt.Fprintf(os.Stderr, "posthouse: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return 1
}

type versionCmd struct {
	JSON bool `help:"Print JSON."`
}

func (c *versionCmd) Run() error {
	build := telemetry.ReadBuild()
	if c.JSON {
		return printJSON(struct {
			Version   string `json:"version"`
			Revision  string `json:"revision"`
			Modified  bool   `json:"modified"`
			GoVersion string `json:"go_version"`
		}(build))
	}
	_, err := fmt.Println("posthouse", build.Version)
	return err
}
