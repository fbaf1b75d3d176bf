package running

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Execution is one call of the handler that reached the target whole.
type Execution struct {
	Message  uuid.UUID
	Source   string
	Attempt  int
	Number   int    // of the load's message
	Instance string // the server that called
	At       time.Time
	Ended    time.Time // zero while it runs
	Status   int       // what was answered
	CutOff   bool      // it began while its instance was cut off: see Target.CutOff
}

// Target is where all handlers of a test lead. It remembers every execution.
type Target struct {
	URL     string
	writing Writing
	// respond says what to answer; ctx ends when the caller has gone.
	respond func(ctx context.Context, x Execution) (status int)

	mu         sync.Mutex
	executions []Execution
	problems   []string
	running    map[uuid.UUID]int // how many times
	bySource   map[string]int    // running now
	most       map[string]int    // running at once, at most
	cutOff     map[string]bool   // instances whose executions count for nothing
}

// NewTarget starts a target that answers as respond says, 200 where respond is
// nil, and gets messages of that writing.
func NewTarget(t *testing.T, w Writing, respond func(ctx context.Context, x Execution) int) *Target {
	t.Helper()
	if respond == nil {
		respond = func(context.Context, Execution) int { return http.StatusOK }
	}
	g := &Target{
		writing: w, respond: respond, running: map[uuid.UUID]int{}, bySource: map[string]int{}, most: map[string]int{},
		cutOff: map[string]bool{},
	}
	s := httptest.NewServer(g)
	g.URL = s.URL
	t.Cleanup(func() {
		s.CloseClientConnections() // whoever still waits for an answer gets none
		s.Close()
	})
	return g
}

func (g *Target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller was killed meanwhile: nothing was executed
	}
	x, err := g.executionOf(r, body)
	if err != nil {
		g.problem(err.Error())
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	end := g.begin(x)
	status := g.respond(r.Context(), x)
	end(status)
	w.WriteHeader(status)
}

func (g *Target) executionOf(r *http.Request, body []byte) (x Execution, err error) {
	x.At, x.Source, x.Instance = time.Now(), r.Header.Get("Posthouse-Source"), strings.TrimPrefix(r.URL.Path, "/")
	if x.Number, err = g.writing.Number(body); err != nil {
		return x, err
	}
	if x.Message, err = uuid.Parse(r.Header.Get("Posthouse-Message-Id")); err != nil {
		return x, fmt.Errorf("Posthouse-Message-Id: %w", err)
	}
	if x.Attempt, err = strconv.Atoi(r.Header.Get("Posthouse-Attempt")); err != nil {
		return x, fmt.Errorf("Posthouse-Attempt: %w", err)
	}
	if got := r.Header.Get("Content-Type"); got != g.writing.ContentType {
		return x, fmt.Errorf("message %d came with the content type %q", x.Number, got)
	}
	return x, nil
}

// begin remembers x; what it returns is called at its end.
func (g *Target) begin(x Execution) (end func(status int)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := len(g.executions)
	g.executions = append(g.executions, x)
	counts := !g.cutOff[x.Instance]
	g.executions[i].CutOff = !counts
	if counts {
		if g.running[x.Message] > 0 {
			g.problems = append(g.problems, fmt.Sprintf("message %d (%s) was executed twice at once, the second time by %s", x.Number, x.Message, x.Instance))
		}
		g.count(x, 1)
	}
	return func(status int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		one := &g.executions[i]
		if counts && one.Ended.IsZero() {
			g.count(x, -1)
		}
		if one.Ended.IsZero() {
			one.Ended = time.Now()
		}
		one.Status = status
	}
}

func (g *Target) count(x Execution, by int) {
	g.running[x.Message] += by
	g.bySource[x.Source] += by
	g.most[x.Source] = max(g.most[x.Source], g.bySource[x.Source])
}

// CutOff tells that an instance is frozen: what it executes now is over for
// everybody else, and what it begins until Rejoin counts neither.
func (g *Target) CutOff(instance string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cutOff[instance] = true
	for i := range g.executions {
		if x := &g.executions[i]; x.Instance == instance && x.Ended.IsZero() {
			g.count(*x, -1)
			x.Ended = time.Now()
		}
	}
}

// Rejoin tells that an instance is alive again: what it begins from now on
// counts.
func (g *Target) Rejoin(instance string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.cutOff, instance)
}

func (g *Target) problem(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.problems = append(g.problems, text)
}

// Record returns every execution so far, in the order of their starts.
func (g *Target) Record() []Execution {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Execution(nil), g.executions...)
}

// Count returns how many executions there were so far.
func (g *Target) Count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.executions)
}

// AtOnce returns how many executions of a source ran at once, at most.
func (g *Target) AtOnce(source string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most[source]
}

// Faults returns what was wrong with what the target was given.
func (g *Target) Faults() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.problems...)
}
