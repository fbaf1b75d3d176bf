package httpapi

import (
	"context"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/posthouse/posthouse/internal/model"
)

const (
	// Bounds of what an operator says of himself and of what he does, in characters.
	maxActor  = 64
	maxReason = 500

	maxBody      = 1 << 20 // bytes of a request's body
	maxBatchBody = 8 << 20
	batchPath    = "/v1/notifications:batch"
	bodyTimeout  = 5 * time.Second
)

// auditOf is the audit of what is done, or says what is wrong with the actor.
func auditOf(actor, reason string) (model.Audit, *Problem) {
	if actor == "" {
		return model.Audit{Actor: "api", Reason: reason}, nil
	}
	if utf8.RuneCountInString(actor) > maxActor || !printable(actor) {
		return model.Audit{}, invalid(ProblemError{"header.Posthouse-Actor", "expected at most 64 printable characters"})
	}
	return model.Audit{Actor: actor, Reason: reason}, nil
}

// printable says whether a text holds nothing but what can be seen, and blanks.
func printable(text string) bool {
	if !utf8.ValidString(text) {
		return false
	}
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// bodyInput is a body that is read by members, and not by the library: a body is
// then read once, numbers stay exact, and faults are ours.
type bodyInput struct {
	RawBody []byte `contentType:"application/json"`
}

func bodyLimit(path string) int64 {
	if path == batchPath {
		return maxBatchBody
	}
	return maxBody
}

// post registers an operation whose body is described by In, and read by do.
func post[In, I, O any](h huma.API, op huma.Operation, do func(context.Context, *I) (*O, error)) {
	op.Method = http.MethodPost
	op.SkipValidateBody = true
	op.BodyReadTimeout = bodyTimeout
	op.MaxBodyBytes = bodyLimit(op.Path) + 1 // as many are too many for the library
	op.Errors = slices.Compact(slices.Sorted(slices.Values(slices.Concat(bodyErrors, op.Errors))))
	op.Middlewares = append(op.Middlewares, onlyJSON)
	huma.Register(h, op, do)
	document := h.OpenAPI()
	body := document.Paths[op.Path].Post.RequestBody
	body.Content["application/json"].Schema = schemaOf[In](h)
	// Where nothing need be said, there need be no body.
	body.Required = reflect.TypeFor[In]() != reflect.TypeFor[CancelRequest]()
}

// bodyErrors are the statuses that every operation with a body may answer.
var bodyErrors = []int{
	http.StatusBadRequest, http.StatusForbidden, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
	http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
}

// onlyJSON refuses a body that says it is something else than JSON. One that
// says nothing is taken for JSON, and so is what has no byte: an empty curl -d calls it
// a form.
func onlyJSON(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if r.ContentLength != 0 {
		if p := checkMedia(r.Header); p != nil {
			writeProblem(w, p)
			return
		}
	}
	next(ctx)
}

// checkMedia says what is wrong with the headers of a body.
func checkMedia(header http.Header) *Problem {
	if coding := strings.Join(header.Values("Content-Encoding"), ", "); coding != "" && !strings.EqualFold(coding, "identity") {
		return newProblem(http.StatusUnsupportedMediaType, "The body is read as it comes: send it without Content-Encoding.")
	}
	told := strings.Join(header.Values("Content-Type"), ", ")
	if told == "" {
		return nil
	}
	const detail = "The body is read as JSON in UTF-8: send Content-Type: application/json."
	media, params, err := mime.ParseMediaType(told)
	if err != nil || media != "application/json" && !(strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")) {
		return newProblem(http.StatusUnsupportedMediaType, detail)
	}
	if charset := strings.ToLower(params["charset"]); charset != "" && charset != "utf-8" && charset != "us-ascii" {
		return newProblem(http.StatusUnsupportedMediaType, detail)
	}
	return nil
}

// notConfigured answers where a part of the product is not in use.
func notConfigured() *Problem {
	return notFound("Notifications are not configured here: give the configuration templates, channels and policies (posthouse init shows them), and start again.")
}

// schemaOf describes a body.
func schemaOf[T any](h huma.API) *huma.Schema {
	return h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
}
