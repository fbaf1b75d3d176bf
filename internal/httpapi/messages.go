package httpapi

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// Filters are the words by which lists are narrowed. Retrying is the part of
// pending that waits for a retry; pending is the rest.
var Filters = map[string]model.Filter{
	"pending": model.OnlyPending, "retrying": model.OnlyRetrying, "processing": model.OnlyProcessing,
	"success": model.OnlySuccess, "failed": model.OnlyFailed,
}

type listInput struct {
	Source string `query:"source" doc:"Only messages of this source."`
	State  string `query:"state" enum:"pending,retrying,processing,success,failed" doc:"Only messages in this state. Those that wait for a retry are retrying, and then not pending."`
	Cursor string `query:"cursor" doc:"The next_cursor of the page before, of the same source and state."`
	Limit  int    `query:"limit" default:"50" minimum:"1" maximum:"500" doc:"How many messages at most."`
}

type idInput struct {
	ID string `path:"id" pattern:"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$" patternDescription:"a UUID" doc:"The id of a message."`
}

type answer[T any] struct{ Body T }

func (a *api) registerMessages(h huma.API) {
	huma.Register(h, get("list-messages", "/v1/inbox/messages", "inbox", "List messages, newest first", 422, 503), a.listMessages)
	huma.Register(h, get("get-message", "/v1/inbox/messages/{id}", "inbox", "One message with its attempts", 404, 503), a.message)
	body := get("get-message-body", "/v1/inbox/messages/{id}/body", "inbox", "The exact bytes that were received", 404, 503)
	body.Description = "The content type is the sender's where a browser can do no harm with it, otherwise application/octet-stream."
	body.Responses = map[string]*huma.Response{"200": {
		Description: "The body",
		Content:     map[string]*huma.MediaType{"*/*": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}},
	}}
	huma.Register(h, body, a.messageBody)
	huma.Register(h, get("get-message-headers", "/v1/inbox/messages/{id}/headers", "inbox", "The header lines that were kept, sorted by name", 404, 503), a.messageHeaders)
}

func (a *api) listMessages(ctx context.Context, in *listInput) (*answer[MessageList], error) {
	p := model.ListParams{Filter: Filters[in.State], Limit: in.Limit}
	if in.Source != "" {
		source, err := a.source(ctx, in.Source)
		if err != nil {
			return nil, problemOf(ctx, a.Logger, "list messages", err)
		}
		if source == nil {
			return nil, invalid(ProblemError{"query.source", "expected the name of a source; /v1/inbox/sources lists them"})
		}
		p.Source = source.ID
	}
	after, err := DecodeCursor(p, in.Cursor)
	if err != nil {
		return nil, invalid(ProblemError{"query.cursor", err.Error()})
	}
	p.After = after
	page, err := a.Store.ListMessages(ctx, p)
	if err != nil {
		return nil, problemOf(ctx, a.Logger, "list messages", err)
	}
	return &answer[MessageList]{NewMessageList(p, page)}, nil
}

func (a *api) message(ctx context.Context, in *idInput) (*answer[MessageDetail], error) {
	id, p := in.uuid()
	if p != nil {
		return nil, p
	}
	view, attempts, err := a.Store.Message(ctx, id)
	if err != nil {
		return nil, a.messageProblem(ctx, "show a message", err)
	}
	return &answer[MessageDetail]{NewMessageDetail(view, attempts)}, nil
}

type bodyAnswer struct {
	ContentType string `header:"Content-Type" hidden:"true"`
	Disposition string `header:"Content-Disposition" doc:"Always attachment."`
	Length      int    `header:"Content-Length" hidden:"true"`
	Body        []byte
}

func (a *api) messageBody(ctx context.Context, in *idInput) (*bodyAnswer, error) {
	id, p := in.uuid()
	if p != nil {
		return nil, p
	}
	m, err := a.Store.Body(ctx, id)
	if err != nil {
		return nil, a.messageProblem(ctx, "show a body", err)
	}
	return &bodyAnswer{
		ContentType: harmlessType(m.ContentType),
		Disposition: fmt.Sprintf("attachment; filename=%q", id.String()),
		Length:      len(m.Body),
		Body:        m.Body,
	}, nil
}

func (a *api) messageHeaders(ctx context.Context, in *idInput) (*answer[HeaderList], error) {
	id, p := in.uuid()
	if p != nil {
		return nil, p
	}
	m, err := a.Store.Body(ctx, id)
	if err != nil {
		return nil, a.messageProblem(ctx, "show headers", err)
	}
	return &answer[HeaderList]{NewHeaderList(m.Headers)}, nil
}

func (in *idInput) uuid() (uuid.UUID, *Problem) {
	id, err := uuid.Parse(in.ID)
	if err != nil {
		return id, invalid(ProblemError{"path.id", "expected a UUID"})
	}
	return id, nil
}

func (a *api) messageProblem(ctx context.Context, doing string, err error) *Problem {
	p := problemOf(ctx, a.Logger, doing, err)
	if p.Status == http.StatusNotFound {
		p.Detail = "There is no message with this id."
	}
	return p
}

const unknownType = "application/octet-stream"

// harmlessTypes are those that no browser runs or renders.
var harmlessTypes = []string{"application/json", "application/x-www-form-urlencoded", "application/cbor", "application/x-ndjson", "text/plain", "text/csv"}

// harmlessCharsets cannot hide ASCII from who looks for it.
var harmlessCharsets = []string{"utf-8", "us-ascii", "iso-8859-1"}

// harmlessType returns a content type under which a body can be served: the
// sender's own where it is known to be harmless, with a charset that is.
func harmlessType(contentType string) string {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return unknownType
	}
	if !slices.Contains(harmlessTypes, media) && !(strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")) {
		return unknownType
	}
	keep := map[string]string{}
	if charset := strings.ToLower(params["charset"]); slices.Contains(harmlessCharsets, charset) {
		keep["charset"] = charset
	}
	return mime.FormatMediaType(media, keep)
}
