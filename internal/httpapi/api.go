package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/ingest"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/telemetry"
)

// Store is what the API does with a database. Errors carry a model.Code.
type Store interface {
	InstanceReader
	// SetEnabled turns consumption of a source on or off. CodeNotFound.
	SetEnabled(ctx context.Context, source string, enabled bool) error
	// ListMessages returns one page, newest first.
	ListMessages(ctx context.Context, p model.ListParams) (model.MessagePage, error)
	// Message finds one message with its attempts, oldest first. CodeNotFound.
	Message(ctx context.Context, id uuid.UUID) (model.MessageView, []model.AttemptView, error)
	// Body finds one message with its exact bytes. CodeNotFound.
	Body(ctx context.Context, id uuid.UUID) (model.Message, error)
	// Stats counts per source, by name.
	Stats(ctx context.Context) ([]model.SourceStats, error)
	// Ping checks that the store answers and can be written to.
	Ping(ctx context.Context) error
}

// Rejects tells what a door turned away lately, newest first. The empty source
// stands for all names that are no source. Nil: there is no such source.
type Rejects interface {
	Rejects(source string) []ingest.Reject
}

// SourceInfo is what the configuration says of a source.
type SourceInfo struct {
	Name  string
	Wants model.Ordering // with nothing in it that means nothing in its order
}

// Config says what the API shows.
type Config struct {
	Store   Store
	Rejects Rejects // nil: this process has no door
	// Notifications, Deliveries and Channels are nil where no notifications are
	// configured: their paths then answer 404, and say so.
	Notifications Notifier
	Deliveries    DeliveryStore
	Channels      Channels
	// ChannelTypes are the types of the configured channels by name: "email". One
	// that Channels does not list has nothing to send.
	ChannelTypes map[string]string
	// Wake tells the queues of channels that there may be due work. It is a hint,
	// and may be nil.
	Wake func()
	// Pages are further pages, by the path below which they stand. Whoever reaches
	// the API reaches them, and nobody else.
	Pages    map[string]http.Handler
	Sources  []SourceInfo
	Checks   []Check              // of /readyz, beside the store's
	Registry *prometheus.Registry // default: an empty one
	Logger   *slog.Logger         // default: slog.Default()
	Listen   string               // the configured address, host:port
	Version  string               // of the binary, for the OpenAPI document
}

type api struct {
	Config
	wants map[string]model.Ordering // of the configured sources
}

// New makes the handler of the admin API. It serves all paths; those that it
// does not know are answered 404.
func New(c Config) http.Handler {
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	a := &api{Config: c, wants: make(map[string]model.Ordering, len(c.Sources))}
	for _, s := range c.Sources {
		a.wants[s.Name] = s.Wants
	}
	mux := http.NewServeMux()
	document := a.register(mux)
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(document) // the client has gone; nothing to be done
	})
	mux.Handle("GET /metrics", telemetry.MetricsHandler(c.Registry, c.Logger))
	for path, page := range c.Pages {
		mux.Handle(path, page)
		mux.Handle(path+"/", page)
	}
	mux.Handle("/", unknown(mux))
	mux.Handle(noGet, unknown(mux))
	return newGuard(mux, c.Listen, c.Logger)
}

// register adds all operations and returns the document that describes them.
func (a *api) register(mux *http.ServeMux) []byte {
	config := huma.DefaultConfig("Posthouse", a.Version)
	config.Info.Description = "What Posthouse has received and whom it has told, and what became of it."
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", "" // the document is served by New, as it is
	config.CreateHooks = nil                                             // no $schema in answers
	config.RejectUnknownQueryParameters = true
	config.AllowAdditionalPropertiesByDefault = true // answers may gain members
	config.Tags = []*huma.Tag{
		{Name: "inbox", Description: "Messages and their sources."},
		{Name: "notifications", Description: "What happened, and whom to tell."},
		{Name: "deliveries", Description: "One channel's task each."},
		{Name: "channels", Description: "The ways to reach people."},
		{Name: "audit", Description: "What operators did."},
		{Name: "instances", Description: "Processes that share the store."},
		{Name: "health", Description: "Whether the process does its work."},
	}
	h := humago.New(mux, config)
	a.registerMessages(h)
	a.registerSources(h)
	a.registerNotifications(h)
	a.registerDeliveries(h)
	a.registerChannels(h)
	a.registerInstances(h)
	a.registerHealth(h)
	allowNull(h.OpenAPI().Components.Schemas)
	document, err := json.MarshalIndent(h.OpenAPI(), "", "  ")
	if err != nil {
		panic(fmt.Sprintf("httpapi: the OpenAPI document cannot be written: %v", err)) // a fault of the operations above, met by every test
	}
	return append(document, '\n')
}

// allowNull adds null to the values that a member may have which is either one
// of a set or absent: for a validator, an enumeration is final.
func allowNull(schemas huma.Registry) {
	for _, schema := range schemas.Map() {
		for _, member := range schema.Properties {
			if member.Nullable && member.Enum != nil {
				member.Enum = append(member.Enum, nil)
			}
		}
	}
}

// get describes an operation that only looks.
func get(id, path, tag, summary string, statuses ...int) huma.Operation {
	return huma.Operation{OperationID: id, Method: http.MethodGet, Path: path, Tags: []string{tag}, Summary: summary, Errors: statuses}
}

// noGet is a path that would be taken for that of a delivery.
const noGet = "GET /v1/deliveries/replay"

// unknown answers what no pattern of mux takes: 405 where another method
// would be taken, otherwise 404.
func unknown(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var allow, take []string
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			probe := r.Clone(r.Context())
			probe.Method = method
			if _, pattern := mux.Handler(probe); pattern == "/" || pattern == noGet {
				continue
			}
			take = append(take, method)
			if allow = append(allow, method); method == http.MethodGet {
				allow = append(allow, http.MethodHead)
			}
		}
		if allow != nil {
			w.Header().Set("Allow", strings.Join(allow, ", "))
			writeProblem(w, newProblem(http.StatusMethodNotAllowed, "This path takes "+strings.Join(take, " and ")+"."))
			return
		}
		writeProblem(w, nothingHere())
	})
}

func nothingHere() *Problem {
	return notFound("There is nothing at this path; /openapi.json lists what there is.")
}
