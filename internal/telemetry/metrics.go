package telemetry

import (
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry makes a registry that already tells of the Go runtime, of the
// process, and which build this is (posthouse_build_info, always 1).
func NewRegistry() *prometheus.Registry {
	build := ReadBuild()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "posthouse_build_info",
		Help: "Which build this is; the value is always 1.",
		ConstLabels: prometheus.Labels{
			"version":   build.Version,
			"revision":  build.Revision,
			"modified":  strconv.FormatBool(build.Modified),
			"goversion": build.GoVersion,
		},
	})
	info.Set(1)
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		info,
	)
	return reg
}

// MetricsHandler serves what reg gathers. A collector that fails costs its own
// metrics, not the page; log gets why. At most 4 scrapes run at once, each for
// at most 10 s.
func MetricsHandler(reg *prometheus.Registry, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorLog:            metricsLog{log},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	})
}

type metricsLog struct{ log *slog.Logger }

func (m metricsLog) Println(v ...any) {
	m.log.Error("metrics cannot be gathered", "err", strings.TrimSpace(fmt.Sprintln(v...)))
}
