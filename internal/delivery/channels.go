package delivery

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/model"
)

// State is how a channel stands, in one word.
type State string

// The values of State, the graver ones first where several hold.
const (
	StatePaused      State = "paused"       // in all processes, until it is resumed
	StateBreakerOpen State = "breaker_open" // in this process: the provider failed several times in a row
	StateRateLimited State = "rate_limited" // in this process: the provider asked for less
	StateActive      State = "active"
)

// ChannelStatus is one channel as it is shown.
type ChannelStatus struct {
	Name  string
	Kind  string
	State State
	// Why it is paused, since when, and by whom; empty otherwise.
	Reason string
	Since  model.Micros
	By     string
	// Waiting counts the deliveries that wait for their turn or their next
	// attempt, in all processes.
	Waiting int64
	// Failures in a row that this process has met with.
	Failures int
}

// recordsLooked is how many records of a channel are looked at for the one that
// paused it.
const recordsLooked = 20

// Channels lists all channels of this process, in the order of the configuration.
func (c *Carrier) Channels(ctx context.Context) ([]ChannelStatus, error) {
	stats, err := c.cfg.Store.Stats(ctx)
	if err != nil {
		return nil, err
	}
	of := map[model.SourceID]*model.SourceStats{}
	for i := range stats {
		of[stats[i].Source.ID] = &stats[i]
	}
	all := make([]ChannelStatus, len(c.lanes))
	for i, l := range c.lanes {
		now := l.account.standing()
		status := ChannelStatus{Name: l.cfg.Name, Kind: l.cfg.Kind, State: StateActive, Failures: now.failures}
		paused := false
		if s := of[l.cfg.Queue.ID]; s != nil {
			status.Waiting, paused = s.Pending+s.Retrying, !s.Source.Enabled
		}
		switch {
		case paused:
			status.State = StatePaused
			if err := c.explain(ctx, &status); err != nil {
				return nil, err
			}
		case now.hold == holdBreaker:
			status.State = StateBreakerOpen
		case now.hold == holdRate && now.waits:
			status.State = StateRateLimited
		}
		all[i] = status
	}
	return all, nil
}

// explain finds who paused a channel, and why.
func (c *Carrier) explain(ctx context.Context, s *ChannelStatus) error {
	records, err := c.cfg.Store.Audit(ctx, model.ChannelPrefix+s.Name, 0, recordsLooked)
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Action == "channel.pause" {
			s.Reason, s.Since, s.By = r.Reason, r.At, r.Actor
			return nil
		}
	}
	return nil
}

// Pause lets a channel's deliveries wait, in all processes: here at once, in
// others within a heartbeat. CodeNotFound.
func (c *Carrier) Pause(ctx context.Context, name string, audit model.Audit) error {
	return c.turn(ctx, name, false, audit)
}

// Resume lets them go on, and forgets what was held against the account.
// CodeNotFound.
func (c *Carrier) Resume(ctx context.Context, name string, audit model.Audit) error {
	return c.turn(ctx, name, true, audit)
}

func (c *Carrier) turn(ctx context.Context, name string, enabled bool, audit model.Audit) error {
	l, err := c.lane(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	if _, err := c.cfg.Store.Switch(ctx, l.cfg.Queue.Name, enabled, audit); err != nil {
		return err
	}
	if enabled {
		l.account.reset()
	} else {
		l.account.pause()
	}
	c.cfg.Engine.Hurry()
	return nil
}

// Test sends a test message through a channel, paused or not, and says what came
// of it. It is no delivery: nothing is kept of it, it is not tried again, and
// what came of it changes nothing. CodeNotFound, and CodeInvalid for the address.
func (c *Carrier) Test(ctx context.Context, name, address string) (channel.Result, error) {
	l, err := c.lane(name)
	if err != nil {
		return channel.Result{}, err
	}
	if l.cfg.Addresses != nil {
		if address, _, err = l.cfg.Addresses.Check(address); err != nil {
			return channel.Result{}, &model.Error{Code: model.CodeInvalid, Op: "test the channel", Err: err}
		}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return channel.Result{}, fmt.Errorf("test the channel: %w", err)
	}
	if !c.mayCall() {
		return channel.Result{}, &model.Error{Code: model.CodeUnavailable, Op: "test the channel", Err: context.Canceled}
	}
	defer c.sends.Done()
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	return send(ctx, l.cfg.Sender, channel.Message{
		ID: id, RequestID: id, BizType: "posthouse.test", Recipient: "test", Address: address,
		Subject: "Test message", HTML: "<p>" + testText + "</p>", Text: testText,
	}), nil
}

const testText = "This is a test message of Posthouse. The channel works."
