package crash

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// execution is one call of the handler that reached the target whole.
type execution struct {
	message uuid.UUID
	source  string
	attempt int
	number  int // of the load's message
	at      time.Time
}

// target is where all handlers of a test lead. It remembers every execution.
type target struct {
	url string
	// respond says what to answer; ctx ends when the caller has gone.
	respond func(ctx context.Context, x execution) (status int)

	mu         sync.Mutex
	executions []execution
	problems   []string
	running    map[uuid.UUID]bool
	bySource   map[string]int // running now
	most       map[string]int // running at once, at most
}

// newTarget starts a target that answers as respond says; 200 where respond is
// nil.
func newTarget(t *testing.T, respond func(ctx context.Context, x execution) int) *target {
	t.Helper()
	if respond == nil {
		respond = func(context.Context, execution) int { return http.StatusOK }
	}
	g := &target{respond: respond, running: map[uuid.UUID]bool{}, bySource: map[string]int{}, most: map[string]int{}}
	s := httptest.NewServer(g)
	g.url = s.URL
	t.Cleanup(func() {
		s.CloseClientConnections() // whoever still waits for an answer gets none
		s.Close()
	})
	return g
}

func (g *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller was killed meanwhile: nothing was executed
	}
	x, err := executionOf(r, body)
	if err != nil {
		g.problem(err.Error())
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	g.begin(x)
	status := g.respond(r.Context(), x)
	g.finish(x)
	w.WriteHeader(status)
}

func executionOf(r *http.Request, body []byte) (x execution, err error) {
	x.at, x.source = time.Now(), r.Header.Get("Posthouse-Source")
	if x.number, err = numberOf(body); err != nil {
		return x, err
	}
	if x.message, err = uuid.Parse(r.Header.Get("Posthouse-Message-Id")); err != nil {
		return x, fmt.Errorf("Posthouse-Message-Id: %w", err)
	}
	if x.attempt, err = strconv.Atoi(r.Header.Get("Posthouse-Attempt")); err != nil {
		return x, fmt.Errorf("Posthouse-Attempt: %w", err)
	}
	if got := r.Header.Get("Content-Type"); got != "application/octet-stream" {
		return x, fmt.Errorf("message %d came with the content type %q", x.number, got)
	}
	return x, nil
}

func (g *target) begin(x execution) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running[x.message] {
		g.problems = append(g.problems, fmt.Sprintf("message %d (%s) was executed twice at once", x.number, x.message))
	}
	g.executions = append(g.executions, x)
	g.running[x.message] = true
	g.bySource[x.source]++
	g.most[x.source] = max(g.most[x.source], g.bySource[x.source])
}

func (g *target) finish(x execution) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, x.message)
	g.bySource[x.source]--
}

func (g *target) problem(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.problems = append(g.problems, text)
}

// record returns every execution so far, in the order of their starts.
func (g *target) record() []execution {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]execution(nil), g.executions...)
}

// atOnce returns how many executions of a source ran at once, at most.
func (g *target) atOnce(source string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most[source]
}

// faults returns what was wrong with what the target was given.
func (g *target) faults() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.problems...)
}
