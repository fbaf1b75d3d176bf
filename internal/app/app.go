// Package app turns a configuration into a running system. It is the one place
// that knows every room; nothing imports it but the binary.
//
//	config ─▶ store ─┬▶ inbox (door, consumers) ◀─ deliveries ride on its engine ─╮
//	                 ╰▶ notifications (accepting, carrying out) ─────────────────╯─▶ HTTP: door /in/…, admin /v1 /metrics /healthz /readyz
//
// Run starts in that order and stops in the other.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/httpapi"
	"github.com/posthouse/posthouse/internal/lock"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/telemetry"
)

// Params says what to run.
type Params struct {
	Config   *config.Config
	Logger   *slog.Logger
	Registry *prometheus.Registry // what /metrics shows; nil: a new one
	// Handlers are functions that stand in for targets, by source.
	Handlers map[string]inbox.Handler
	// Observe is told how each attempt ended.
	Observe func(inbox.Attempt)
	// Ready is called once, when both addresses are served. They differ from
	// the configured ones where those have port 0.
	Ready func(door, admin net.Addr)
}

// shutdownWait bounds how long requests that are being answered may take when
// the process stops; every answer comes sooner.
const shutdownWait = 5 * time.Second

// Run serves until ctx ends, then drains and stops. It returns nil after a
// stop in good order.
func Run(ctx context.Context, p Params) (err error) {
	store, err := OpenStore(ctx, StoreParams{
		URL: p.Config.Store.URL.Reveal(), Consumer: true, AllowUnsafe: p.Config.Store.AllowUnsafeDurability,
	})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := prepare(ctx, store, p); err != nil {
		return err
	}
	if p.Registry == nil {
		p.Registry = telemetry.NewRegistry()
	}
	told, err := openNotifications(ctx, store, p)
	if err != nil {
		return err
	}
	defer told.stop()
	sources, err := sourcesOf(p.Config, p.Handlers, told)
	if err != nil {
		return err
	}
	defer closeTargets(sources)
	redis, err := openLock(p.Config.Lock)
	if err != nil {
		return err
	}
	if redis != nil {
		defer redis.Close()
	}
	box, err := openInbox(ctx, parts{store: store, redis: redis, sources: sources}, p)
	if err != nil {
		return err
	}
	if err := told.attach(box, p); err != nil {
		return err
	}
	door, admin, err := listen(ctx, p.Config)
	if err != nil {
		return err
	}
	defer closeAll(door, admin)
	if err := box.Start(ctx); err != nil {
		return err
	}
	defer box.Stop()
	told.start()
	warnOfLeftSources(ctx, store, p)
	if err := watchDeadRows(ctx, store, p); err != nil {
		return err
	}
	shown := apiConfig(store, box, redis, p)
	told.extend(&shown)
	return serve(ctx, p, servers(box, httpapi.New(shown), door, admin), door.Addr(), admin.Addr())
}

// prepare brings the schema up to date, or checks that it is, and refuses a
// store that would lose what was acknowledged.
func prepare(ctx context.Context, store Store, p Params) error {
	if p.Config.Store.Migrate == config.MigrateAuto {
		applied, err := store.MigrateUp(ctx)
		if err != nil {
			return fmt.Errorf("bring the store's tables up to date: %w", err)
		}
		if len(applied) > 0 {
			p.Logger.Info("the store's tables were brought up to date", "versions", applied)
		}
	}
	if err := store.CheckReady(ctx); err != nil {
		return fmt.Errorf("check the store: %w", err)
	}
	if b, ok := store.(bounded); ok {
		return checkBodies(ctx, b, p.Config)
	}
	return nil
}

// checkBodies refuses sources that would take bodies which the database
// refuses: their senders would push them again for ever.
func checkBodies(ctx context.Context, store bounded, cfg *config.Config) error {
	limit, err := store.MaxBody(ctx)
	if err != nil {
		return fmt.Errorf("check the store: %w", err)
	}
	for _, name := range cfg.SourceNames() {
		if want := int64(cfg.Sources[name].Limits.Body); want > limit {
			return fmt.Errorf("sources.%s.limits.body is %d bytes, but the database takes at most %d; lower it, or raise max_allowed_packet", name, want, limit)
		}
	}
	return nil
}

// parts are what an inbox is made of, beside the configuration.
type parts struct {
	store   Store
	redis   *lock.Redis // nil: the store alone excludes instances
	sources []inbox.Source
}

func openInbox(ctx context.Context, with parts, p Params) (*inbox.Inbox, error) {
	var hash func([]byte) string
	if p.Config.Keys != nil {
		hash = p.Config.Keys.Hash
	} else {
		p.Logger.Info("POSTHOUSE_KEYS is not set: credentials in headers and queries are removed instead of being kept as a keyed hash")
	}
	return inbox.Open(ctx, inboxConfig(with, hash, p))
}

func inboxConfig(with parts, hash func([]byte) string, p Params) inbox.Config {
	return inbox.Config{
		Store: with.store, Locker: lockerOf(with.redis), Sources: with.sources, Instance: instanceName(), Lease: p.Config.Lock.Lease, Drain: p.Config.Drain,
		Memory: int64(p.Config.Door.Memory), HashCredential: hash, Logger: p.Logger, Registerer: p.Registry, Observe: p.Observe,
	}
}

// warnOfLeftSources tells of sources and channels that are in the store, but no
// longer in the configuration, and whose messages nobody will handle.
func warnOfLeftSources(ctx context.Context, store Store, p Params) {
	stats, err := store.Stats(ctx)
	if err != nil {
		p.Logger.Warn("messages of sources that are no longer configured could not be counted", "code", string(model.CodeOf(err)))
		return
	}
	for _, s := range stats {
		open := s.Pending+s.Retrying+s.Processing > 0
		switch name, channel := strings.CutPrefix(s.Source.Name, model.ChannelPrefix); {
		case channel:
			if _, configured := p.Config.Channels[name]; !configured && open {
				p.Logger.Warn("a channel is no longer configured, but has deliveries that are not finished; configure it again to have them sent, or cancel them",
					"channel", name, "pending", s.Pending, "retry_wait", s.Retrying, "processing", s.Processing)
			}
		default:
			if _, configured := p.Config.Sources[name]; !configured && open {
				p.Logger.Warn("a source is no longer configured, but has messages that are not finished; configure it again to have them handled",
					"source", name, "pending", s.Pending, "retrying", s.Retrying, "processing", s.Processing)
			}
		}
	}
}

func instanceName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

func serve(ctx context.Context, p Params, servers []served, door, admin net.Addr) error {
	failed := make(chan error, len(servers))
	for _, s := range servers {
		s.ErrorLog = slog.NewLogLogger(p.Logger.Handler(), slog.LevelWarn)
		go func() { failed <- s.Serve(s.on) }()
	}
	p.Logger.Info("ready", "door", door.String(), "admin", admin.String())
	if p.Ready != nil {
		p.Ready(door, admin)
	}
	var err error
	select {
	case <-ctx.Done():
		p.Logger.Info("stopping: no new pushes are taken, running handlers may end", "drain", p.Config.Drain)
	case err = <-failed:
		err = fmt.Errorf("serve: %w", err)
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
	defer cancel()
	for _, s := range servers {
		if e := s.Shutdown(stop); e != nil {
			_ = s.Close()
		}
	}
	return err
}

// apiConfig says what the API shows.
func apiConfig(store Store, box *inbox.Inbox, redis *lock.Redis, p Params) httpapi.Config {
	var infos []httpapi.SourceInfo
	for _, name := range p.Config.SourceNames() {
		infos = append(infos, httpapi.SourceInfo{Name: name, Wants: orderingOf(p.Config.Sources[name].Consume)})
	}
	checks := []httpapi.Check{{Name: "consuming", Run: func(context.Context) error { return box.Check() }}}
	if redis != nil {
		checks = append(checks, httpapi.Check{Name: "lock", Run: func(context.Context) error { return redis.Check() }})
	}
	return httpapi.Config{
		Store: store, Rejects: rejects{box}, Sources: infos, Registry: p.Registry, Logger: p.Logger,
		Listen: p.Config.Admin.Listen, Version: telemetry.Version(),
		Checks: checks,
	}
}
