package running

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// SourceStats is a member of GET /v1/inbox/stats.
type SourceStats struct {
	Source     string `json:"source"`
	Pending    int    `json:"pending"`
	Retrying   int    `json:"retrying"`
	Processing int    `json:"processing"`
	Success    int    `json:"success"`
	Failed     int    `json:"failed"`
}

// Message is GET /v1/inbox/messages/{id}.
type Message struct {
	ID         string    `json:"id"`
	State      string    `json:"state"`
	RetryCount int       `json:"retry_count"`
	Error      string    `json:"error"`
	Attempts   []Attempt `json:"attempts"`
}

// Attempt is one that did not succeed, or the one that did.
type Attempt struct {
	N       int    `json:"n"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	Error   string `json:"error"`
}

// Stats returns what GET /v1/inbox/stats says of each source.
func (s *Server) Stats() (map[string]SourceStats, error) {
	body, err := get("http://" + s.Admin + "/v1/inbox/stats")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Sources []SourceStats `json:"sources"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("/v1/inbox/stats: %w", err)
	}
	bySource := map[string]SourceStats{}
	for _, st := range answer.Sources {
		bySource[st.Source] = st
	}
	return bySource, nil
}

// Switch pauses or resumes a source. The server follows at its next
// heartbeat, or when it starts.
func (s *Server) Switch(source, word string) {
	s.t.Helper()
	status, _, err := ask(http.MethodPost, "http://"+s.Admin+"/v1/inbox/sources/"+source+"/"+word)
	if err != nil {
		s.t.Fatal(err)
	}
	if status != http.StatusOK {
		s.t.Fatalf("%s answered %d", word, status)
	}
}

// WaitHandled waits until nothing is left to do, however long that takes, as
// long as messages go on to end.
func (s *Server) WaitHandled() {
	s.t.Helper()
	const patience = time.Minute
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	moved, before := time.Now(), -1
	for {
		stats, err := s.Stats()
		if err != nil {
			s.t.Fatal(err)
		}
		left, ended := 0, 0
		for _, st := range stats {
			left += st.Pending + st.Retrying + st.Processing
			ended += st.Success + st.Failed
		}
		if left == 0 && len(stats) > 0 {
			return
		}
		if ended != before {
			moved, before = time.Now(), ended
		}
		if time.Since(moved) > patience {
			s.t.Fatalf("nothing has ended for %v, and not everything is handled: %+v", patience, stats)
		}
		<-tick.C
	}
}

// Message asks for one message.
func (s *Server) Message(id uuid.UUID) (m Message, err error) {
	body, err := get("http://" + s.Admin + "/v1/inbox/messages/" + id.String())
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return m, fmt.Errorf("message %s: %w", id, err)
	}
	return m, nil
}

// Metric sums the samples of one metric that carry all these labels, each
// written as name="value". A metric that is not there at all is an error.
func (s *Server) Metric(name string, labels ...string) (sum float64, err error) {
	page, err := get("http://" + s.Admin + "/metrics")
	if err != nil {
		return 0, err
	}
	if !strings.Contains(string(page), "# TYPE "+name+" ") {
		return 0, fmt.Errorf("there is no metric %s", name)
	}
samples:
	for line := range strings.Lines(string(page)) {
		space := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if space < 0 || !strings.HasPrefix(line, name+"{") && line[:space] != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(line[:space], label) {
				continue samples
			}
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[space:]), 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum += v
	}
	return sum, nil
}

// Readiness asks /readyz: the status, and what it says.
func (s *Server) Readiness() (status int, text string, err error) {
	status, body, err := ask(http.MethodGet, "http://"+s.Admin+"/readyz")
	return status, string(body), err
}
