package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/delivery"
	"github.com/posthouse/posthouse/internal/model"
)

// Channels is what operators do with channels. Errors carry a model.Code;
// CodeNotFound where there is no such channel.
type Channels interface {
	// Channels lists those that send, as this process sees them.
	Channels(ctx context.Context) ([]delivery.ChannelStatus, error)
	// Pause stops sending, Resume goes on.
	Pause(ctx context.Context, name string, audit model.Audit) error
	Resume(ctx context.Context, name string, audit model.Audit) error
	// Test sends a test message once. CodeInvalid: the channel cannot use the
	// address.
	Test(ctx context.Context, name, address string) (channel.Result, error)
}

var _ Channels = (*delivery.Carrier)(nil)

// ChannelList lists channels, by name.
type ChannelList struct {
	Channels []ChannelItem `json:"channels" nullable:"false"`
}

// ChannelItem is one channel.
type ChannelItem struct {
	Name   string  `json:"name"`
	Type   *string `json:"type" doc:"Null for one that is only known from earlier: its deliveries are still there."`
	State  string  `json:"state" enum:"active,paused,breaker_open,rate_limited,not_configured" doc:"paused: in all processes, by an operator or since the provider refuses the account, until it is resumed. As the process that answers sees it: breaker_open, after several failures in a row one delivery at a time is tried; rate_limited, the provider asked to wait."`
	Reason *string `json:"reason" doc:"Why it is paused."`
	Since  Time    `json:"since" doc:"Since when it is paused."`
	By     *string `json:"by" doc:"Who paused it."`

	Failures int `json:"failures" minimum:"0" doc:"In a row, as the process that answers has met with."`

	Pending      int64   `json:"pending" minimum:"0" doc:"Without those in RETRY_WAIT."`
	RetryWait    int64   `json:"retry_wait" minimum:"0"`
	Processing   int64   `json:"processing" minimum:"0"`
	Succeeded    int64   `json:"succeeded" minimum:"0"`
	Failed       int64   `json:"failed" minimum:"0"`
	Dead         int64   `json:"dead" minimum:"0"`
	Uncertain    int64   `json:"uncertain" minimum:"0"`
	Cancelled    int64   `json:"cancelled" minimum:"0"`
	OldestDueAge float64 `json:"oldest_due_age_s" minimum:"0" doc:"Seconds since the oldest delivery that is due fell due; 0 where none is."`
}

// ChannelSwitch says how the switch of a channel stands.
type ChannelSwitch struct {
	Name    string `json:"name"`
	Enabled bool   `json:"enabled"`
}

// TestRequest says where to send a test message.
type TestRequest struct {
	_ struct{} `additionalProperties:"false"`

	Address string `json:"address" doc:"Yours: it gets a message."`
}

// TestAnswer is how the one attempt ended.
type TestAnswer struct {
	Class      string  `json:"class" enum:"success,transient,rate_limited,permanent,auth,uncertain"`
	Code       *string `json:"code" doc:"The provider's own."`
	Text       *string `json:"text" doc:"What happened, in one line."`
	ProviderID *string `json:"provider_id"`
	HTTPStatus *int    `json:"http_status"`
}

type channelInput struct {
	Name    string `path:"name" doc:"The name of a channel."`
	Actor   string `header:"Posthouse-Actor" doc:"Who does it, for the audit log: at most 64 printable characters. Without it: api."`
	RawBody []byte `contentType:"application/json"`
}

func (a *api) registerChannels(h huma.API) {
	huma.Register(h, get("list-channels", "/v1/channels", "channels", "List channels, by name, and how they are doing", 404, 503), a.listChannels)
	for _, s := range []struct {
		verb, summary string
		enabled       bool
	}{
		{"pause", "Stop sending through a channel; deliveries wait, and burn no attempt", false},
		{"resume", "Go on sending", true},
	} {
		post[ReasonRequest](h, huma.Operation{
			OperationID: s.verb + "-channel", Path: "/v1/channels/{name}/" + s.verb, Tags: []string{"channels"}, Summary: s.summary,
			Description: "The switch is kept in the store; every process follows with its next heartbeat, which is within a third of the lease. Attempts that are running end.",
			Errors:      []int{404, 503},
		}, func(ctx context.Context, in *channelInput) (*answer[ChannelSwitch], error) {
			return a.switchChannel(ctx, in, s.enabled)
		})
	}
	post[TestRequest](h, huma.Operation{
		OperationID: "test-channel", Path: "/v1/channels/{name}/test", Tags: []string{"channels"},
		Summary:     "Send a test message, once",
		Description: "It answers 200 whatever the provider says, and tells how that was classed.",
		Errors:      []int{404, 503},
	}, a.testChannel)
}

func (a *api) listChannels(ctx context.Context, _ *struct{}) (*answer[ChannelList], error) {
	if a.Channels == nil {
		return nil, notConfigured()
	}
	sending, err := a.Channels.Channels(ctx)
	if err != nil {
		return nil, problemOf(ctx, a.Logger, "list channels", err)
	}
	stats, err := a.Store.Stats(ctx)
	if err != nil {
		return nil, problemOf(ctx, a.Logger, "count deliveries", err)
	}
	return &answer[ChannelList]{newChannelList(a.ChannelTypes, sending, stats)}, nil
}

// newChannelList shows all channels that the store knows of, with what is told of
// those that send. types are the types of the configured ones by name.
func newChannelList(types map[string]string, sending []delivery.ChannelStatus, stats []model.SourceStats) ChannelList {
	list := ChannelList{Channels: []ChannelItem{}}
	for _, s := range stats {
		if s.Source.Tenant != model.TenantDelivery {
			continue
		}
		item := newChannelItem(strings.TrimPrefix(s.Source.Name, model.ChannelPrefix), s)
		if kind, configured := types[item.Name]; configured {
			item.Type, item.State = &kind, string(delivery.StateActive) // one that does not send is read in the application
		}
		for _, c := range sending {
			if c.Name == item.Name {
				item.Type, item.State, item.Failures = &c.Kind, string(c.State), c.Failures
				item.Reason, item.Since, item.By = unlessZero(c.Reason), Time(c.Since), unlessZero(c.By)
			}
		}
		list.Channels = append(list.Channels, item)
	}
	slices.SortFunc(list.Channels, func(a, b ChannelItem) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func newChannelItem(name string, s model.SourceStats) ChannelItem {
	return ChannelItem{
		Name: name, State: "not_configured",
		Pending: s.Pending, RetryWait: s.Retrying, Processing: s.Processing, Succeeded: s.Success,
		Failed: s.Failed, Dead: s.Dead, Uncertain: s.Uncertain, Cancelled: s.Cancelled, OldestDueAge: secondsOf(s.OldestDueAge),
	}
}

func (a *api) switchChannel(ctx context.Context, in *channelInput, enabled bool) (*answer[ChannelSwitch], error) {
	if a.Channels == nil {
		return nil, notConfigured()
	}
	body, faults := readBody(in.RawBody)
	reason := body.reason(true)
	body.end()
	if len(*faults) > 0 {
		return nil, invalid(*faults...)
	}
	audit, p := auditOf(in.Actor, reason)
	if p != nil {
		return nil, p
	}
	do := a.Channels.Pause
	if enabled {
		do = a.Channels.Resume
	}
	if err := do(ctx, in.Name, audit); err != nil {
		return nil, a.channelProblem(ctx, "switch a channel", err)
	}
	return &answer[ChannelSwitch]{ChannelSwitch{in.Name, enabled}}, nil
}

func (a *api) channelProblem(ctx context.Context, doing string, err error) *Problem {
	p := problemOf(ctx, a.Logger, doing, err)
	if p.Status == http.StatusNotFound {
		p.Detail = "There is no channel with this name that sends; /v1/channels lists them."
	}
	return p
}

func (a *api) testChannel(ctx context.Context, in *channelInput) (*answer[TestAnswer], error) {
	if a.Channels == nil {
		return nil, notConfigured()
	}
	body, faults := readBody(in.RawBody)
	address := body.required("address")
	body.end()
	if len(*faults) > 0 {
		return nil, invalid(*faults...)
	}
	audit, p := auditOf(in.Actor, "")
	if p != nil {
		return nil, p
	}
	result, err := a.Channels.Test(ctx, in.Name, address)
	if model.CodeOf(err) == model.CodeInvalid {
		return nil, invalid(ProblemError{"body.address", "is no address that this channel can send to"})
	}
	if err != nil {
		return nil, a.channelProblem(ctx, "test a channel", err)
	}
	a.Logger.Info("an operator tested a channel", "channel", in.Name, "actor", audit.Actor, "class", string(result.Class))
	return &answer[TestAnswer]{TestAnswer{
		Class: string(result.Class), Code: unlessZero(result.Code), Text: unlessZero(result.Text),
		ProviderID: unlessZero(result.ProviderID), HTTPStatus: unlessZero(result.HTTPStatus),
	}}, nil
}
