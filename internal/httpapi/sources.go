package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthouse/posthouse/internal/ingest"
	"github.com/posthouse/posthouse/internal/model"
)

type sourceInput struct {
	Source string `path:"source" doc:"The name of a source."`
}

func (a *api) registerSources(h huma.API) {
	huma.Register(h, get("get-stats", "/v1/inbox/stats", "inbox", "Count messages per source", 503), a.stats)
	huma.Register(h, get("list-sources", "/v1/inbox/sources", "inbox", "List sources, by name", 503), a.listSources)
	rejects := get("list-source-rejects", "/v1/inbox/sources/{source}/rejects", "inbox", "What the door turned away lately, newest first", 404, 503)
	rejects.Description = "At most 100 pushes that were refused and 100 that were acknowledged and not kept, of this process since its start."
	huma.Register(h, rejects, a.sourceRejects)
	huma.Register(h, get("list-rejects", "/v1/inbox/rejects", "inbox", "Pushes to names that are no source, newest first"), a.unknownRejects)
	for _, s := range []struct {
		verb, summary string
		enabled       bool
	}{
		{"pause", "Switch consumption off; messages are still received and kept", false},
		{"resume", "Switch consumption on", true},
	} {
		huma.Register(h, huma.Operation{
			OperationID: s.verb + "-source", Method: http.MethodPost, Path: "/v1/inbox/sources/{source}/" + s.verb,
			Tags: []string{"inbox"}, Summary: s.summary, Errors: []int{403, 404, 503},
			Description: "The switch is kept in the store; every process follows with its next heartbeat, which is within a third of the lease. Handlers that are running are not stopped.",
		}, func(ctx context.Context, in *sourceInput) (*answer[SourceItem], error) {
			return a.switchSource(ctx, in, s.enabled)
		})
	}
}

func (a *api) stats(ctx context.Context, _ *struct{}) (*answer[Stats], error) {
	stats, err := a.Store.Stats(ctx)
	if err != nil {
		return nil, problemOf(ctx, a.Logger, "count messages", err)
	}
	return &answer[Stats]{NewStats(stats)}, nil
}

func (a *api) listSources(ctx context.Context, _ *struct{}) (*answer[SourceList], error) {
	sources, err := a.Store.Sources(ctx)
	if err != nil {
		return nil, problemOf(ctx, a.Logger, "list sources", err)
	}
	sources = slices.DeleteFunc(sources, func(s model.Source) bool { return s.Tenant != model.TenantInbox })
	list := convert(sources, a.sourceItem)
	slices.SortFunc(list, func(a, b SourceItem) int { return cmp.Compare(a.Name, b.Name) })
	return &answer[SourceList]{SourceList{list}}, nil
}

func (a *api) sourceItem(s model.Source) SourceItem {
	item := SourceItem{Name: s.Name, Enabled: s.Enabled, Generation: s.Agreed.Generation, Draining: s.Agreed.Draining}
	if s.Agreed.Order != "" {
		holds := newOrdering(s.Agreed.Ordering)
		item.Order, item.Partitions, item.Key, item.OnRetry = &holds.Order, holds.Partitions, holds.Key, &holds.OnRetry
	}
	wants, configured := a.wants[s.Name]
	item.Configured = configured
	if configured && wants != s.Agreed.Ordering {
		wanted := newOrdering(wants)
		item.Wanted = &wanted
	}
	return item
}

// source finds a source by name; nil: there is none.
func (a *api) source(ctx context.Context, name string) (*model.Source, error) {
	return a.queue(ctx, model.TenantInbox, name)
}

// queue finds a queue of a tenant by name; nil: there is none.
func (a *api) queue(ctx context.Context, tenant model.Tenant, name string) (*model.Source, error) {
	sources, err := a.Store.Sources(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		if s.Name == name && s.Tenant == tenant {
			return &s, nil
		}
	}
	return nil, nil
}

func (a *api) sourceRejects(ctx context.Context, in *sourceInput) (*answer[RejectList], error) {
	if _, configured := a.wants[in.Source]; !configured {
		// One that is known from earlier has no door, and so turns nothing away.
		switch source, err := a.source(ctx, in.Source); {
		case err != nil:
			return nil, problemOf(ctx, a.Logger, "list rejects", err)
		case source == nil:
			return nil, noSource()
		}
	}
	return &answer[RejectList]{NewRejectList(a.rejects(in.Source))}, nil
}

func (a *api) unknownRejects(context.Context, *struct{}) (*answer[RejectList], error) {
	return &answer[RejectList]{NewRejectList(a.rejects(""))}, nil
}

func (a *api) rejects(source string) []ingest.Reject {
	if a.Rejects == nil {
		return nil
	}
	return a.Rejects.Rejects(source)
}

func (a *api) switchSource(ctx context.Context, in *sourceInput, enabled bool) (*answer[SourceItem], error) {
	if strings.HasPrefix(in.Source, model.ChannelPrefix) {
		return nil, noSource() // a channel is switched elsewhere, with a reason
	}
	if err := a.Store.SetEnabled(ctx, in.Source, enabled); err != nil {
		if model.CodeOf(err) == model.CodeNotFound {
			return nil, noSource()
		}
		return nil, problemOf(ctx, a.Logger, "switch a source", err)
	}
	a.Logger.Info("an operator switched consumption", "source", in.Source, "enabled", enabled)
	source, err := a.source(ctx, in.Source)
	if err != nil {
		return nil, problemOf(ctx, a.Logger, "show a source that was switched", err)
	}
	if source == nil { // gone since
		source = &model.Source{Name: in.Source}
	}
	source.Enabled = enabled
	return &answer[SourceItem]{a.sourceItem(*source)}, nil
}

func noSource() *Problem {
	return notFound("There is no source with this name; /v1/inbox/sources lists them.")
}
