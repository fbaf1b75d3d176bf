package gateway

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/model"
)

// TestConformance classes the rows of a file that the environment names, for the
// providers whose rules stand in this package, and for those that need none.
func TestConformance(t *testing.T) {
	dir := os.Getenv("CASES")
	if dir == "" {
		t.Skip("CASES names no folder; make conformance CASES=DIR does")
	}
	data, err := os.ReadFile(filepath.Join(dir, "error_responses.json"))
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		ID, Provider, Body, Class, Stage string
		Status                           *int `json:"http_status"`
		Headers                          map[string]string
		RetryAfter                       *int `json:"retry_after_s"`
	}
	var file struct {
		Rows     []row
		Controls []row `json:"success_controls"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	right, wrong := map[string]int{}, map[string]int{}
	for _, r := range append(file.Rows, file.Controls...) {
		if providers[r.Provider] == nil && r.Provider != "retry_after_forms" || r.Status == nil {
			continue
		}
		cfg := sms(answering(t, *r.Status, r.Headers, r.Body))
		cfg.Classify = rulesOf(t, r.Provider)
		got := newSender(t, cfg).Send(t.Context(), delivery)
		ok := got.Class == model.Class(r.Class)
		if ok && r.Provider == "retry_after_forms" && r.RetryAfter != nil {
			ok = got.RetryAfter == min(time.Duration(*r.RetryAfter)*time.Second, maxRetryAfter)
		}
		if ok {
			right[r.Provider]++
		} else {
			wrong[r.Provider]++
			t.Errorf("%s: got %s, retry after %v; want %s", r.ID, got.Class, got.RetryAfter, r.Class)
		}
	}
	for _, provider := range []string{"twilio", "slack", "dingtalk", "retry_after_forms"} {
		t.Logf("%-20s %3d right %3d wrong", provider, right[provider], wrong[provider])
	}
}
