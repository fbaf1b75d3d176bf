package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

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
	huma.Register(h, op, do)
	document := h.OpenAPI()
	body := document.Paths[op.Path].Post.RequestBody
	body.Content["application/json"].Schema = schemaOf[In](h)
	// Where nothing need be said, there need be no body.
	body.Required = reflect.TypeFor[In]() != reflect.TypeFor[CancelRequest]()
}

// notConfigured answers where a part of the product is not in use.
func notConfigured() *Problem {
	return notFound("Notifications are not configured here: give the configuration templates, channels and policies (posthouse init shows them), and start again.")
}

// schemaOf describes a body.
func schemaOf[T any](h huma.API) *huma.Schema {
	return h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
}
