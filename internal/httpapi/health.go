package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthouse/posthouse/internal/model"
)

// checkTimeout bounds a check of /readyz.
const checkTimeout = 2 * time.Second

// Check is one thing that must hold for the process to be ready.
type Check struct {
	Name string
	// Run returns nil where it holds. Its error is shown to whoever asks, so
	// its text must be fit for that. Checks run at the same time; one that
	// takes longer than 2 s counts as failed.
	Run func(ctx context.Context) error
}

// Readiness is what /readyz answers.
type Readiness struct {
	Ready  bool          `json:"ready"`
	Checks []CheckResult `json:"checks" nullable:"false"`
}

// CheckResult is how one check went.
type CheckResult struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail" doc:"Why it is not; empty where it is."`
}

// Health is what /healthz answers.
type Health struct {
	Status string `json:"status" enum:"alive"`
}

type readyAnswer struct {
	Status int
	Body   Readiness
}

func (a *api) registerHealth(h huma.API) {
	huma.Register(h, get("healthz", "/healthz", "health", "The process lives"),
		func(context.Context, *struct{}) (*answer[Health], error) {
			return &answer[Health]{Health{"alive"}}, nil
		})
	ready := get("readyz", "/readyz", "health", "The process does its work: its store answers, its consumers turn")
	readiness := h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Readiness](), true, "")
	ready.Responses = map[string]*huma.Response{"503": {
		Description: "Not ready; checks says why",
		Content:     map[string]*huma.MediaType{"application/json": {Schema: readiness}},
	}}
	huma.Register(h, ready, a.readiness)
}

func (a *api) readiness(ctx context.Context, _ *struct{}) (*readyAnswer, error) {
	checks := append([]Check{{"store", a.checkStore}}, a.Checks...)
	out := &readyAnswer{Status: http.StatusOK, Body: Readiness{Ready: true, Checks: runChecks(ctx, checks)}}
	for _, c := range out.Body.Checks {
		if !c.OK {
			out.Status, out.Body.Ready = http.StatusServiceUnavailable, false
		}
	}
	return out, nil
}

func (a *api) checkStore(ctx context.Context) error {
	err := a.Store.Ping(ctx)
	if err == nil {
		return nil
	}
	a.Logger.Warn("the store is not ready", "code", string(model.CodeOf(err)), "error", err)
	return &Problem{Detail: textOf(model.CodeOf(err))}
}

// runChecks runs all at once, and waits for none longer than checkTimeout.
func runChecks(ctx context.Context, checks []Check) []CheckResult {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	outcomes := make([]chan error, len(checks))
	for i, c := range checks {
		outcomes[i] = make(chan error, 1) // a check that comes too late is not waited for
		go func() { outcomes[i] <- c.Run(ctx) }()
	}
	results := make([]CheckResult, len(checks))
	for i, c := range checks {
		results[i] = CheckResult{Name: c.Name, OK: true}
		var err error
		select {
		case err = <-outcomes[i]:
		case <-ctx.Done():
			select {
			case err = <-outcomes[i]:
			default:
				err = &Problem{Detail: "It did not answer in time."}
			}
		}
		if err != nil {
			results[i].OK, results[i].Detail = false, err.Error()
		}
	}
	return results
}
