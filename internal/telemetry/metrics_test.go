package telemetry

import (
	"bytes"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestMetricsHandler(t *testing.T) {
	scrape := func(reg *prometheus.Registry, log *bytes.Buffer) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		MetricsHandler(reg, NewLogger(Config{Writer: log})).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		return rec
	}
	t.Run("tells of the runtime, the process and the build", func(t *testing.T) {
		var log bytes.Buffer
		rec := scrape(NewRegistry(), &log)
		for _, want := range []string{"go_goroutines ", "process_open_fds ", "posthouse_build_info{", `version="` + Version() + `"`} {
			if !strings.Contains(rec.Body.String(), want) {
				t.Errorf("%q is missing", want)
			}
		}
		if rec.Code != 200 || log.Len() != 0 {
			t.Errorf("status %d, log %q", rec.Code, &log)
		}
	})
	t.Run("a collector that fails costs only itself", func(t *testing.T) {
		var log bytes.Buffer
		reg := NewRegistry()
		reg.MustRegister(failing{})
		rec := scrape(reg, &log)
		if rec.Code != 200 || !strings.Contains(rec.Body.String(), "go_goroutines ") || !strings.Contains(log.String(), "metrics cannot be gathered") {
			t.Errorf("status %d, log %q", rec.Code, &log)
		}
	})
}

type failing struct{}

var failingDesc = prometheus.NewDesc("failing", "always", nil, nil)

func (failing) Describe(ch chan<- *prometheus.Desc) { ch <- failingDesc }
func (failing) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(failingDesc, bytes.ErrTooLarge)
}

func TestBuildOf(t *testing.T) {
	stamped := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.4.1"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}}
	for _, c := range []struct {
		name   string
		linked string
		info   *debug.BuildInfo
		want   Build
	}{
		{"the linker's word wins", "v1.0.0", stamped, Build{"v1.0.0", "abc", true, "go1.26.8"}},
		{"then the module's", "", stamped, Build{"v0.4.1", "abc", true, "go1.26.8"}},
		{"a build from a folder", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, Build{Version: "devel"}},
		{"nothing is known", "", &debug.BuildInfo{}, Build{Version: "devel"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, buildOf(c.linked, c.info)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
