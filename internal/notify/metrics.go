package notify

import (
	"github.com/prometheus/client_golang/prometheus"
)

const metricsPrefix = "posthouse_notify_"

// How a submission ended, as metrics call it.
const (
	resultAccepted    = "accepted"
	resultDuplicate   = "duplicate"
	resultConflict    = "conflict"
	resultInvalid     = "invalid"
	resultUnavailable = "unavailable"
)

// unknownTemplate is the one label value for all submissions of templates that do
// not exist, so that nobody can make series by asking for codes.
const unknownTemplate = "(unknown)"

type metrics struct {
	requests     *prometheus.CounterVec
	bareKeys     prometheus.Counter
	seconds      prometheus.Histogram
	batchRows    prometheus.Histogram
	flushSeconds prometheus.Histogram
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricsPrefix + "requests_total",
			Help: "Submissions by template and by how they ended.",
		}, []string{"template", "result"}),
		bareKeys: prometheus.NewCounter(prometheus.CounterOpts{
			Name: metricsPrefix + "bare_uuid_keys_total",
			Help: "Submissions whose idempotency key is a bare UUID, which recognises no repeat that the business makes.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    metricsPrefix + "accept_seconds",
			Help:    "Time from a submission to its answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
		batchRows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    metricsPrefix + "batch_rows",
			Help:    "Requests kept in one transaction.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
		}),
		flushSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    metricsPrefix + "flush_seconds",
			Help:    "Duration of the transactions that kept requests.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
	}
}

func (m *metrics) register(registerer prometheus.Registerer, waiting func() (rows, bytes int), cfg *Config) error {
	if registerer == nil {
		return nil
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricsPrefix + name, Help: help}, value)
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.bareKeys, m.seconds, m.batchRows, m.flushSeconds,
		gauge("queue_rows", "Requests that wait to be kept.", func() float64 { rows, _ := waiting(); return float64(rows) }),
		gauge("queue_rows_bound", "Requests that may wait to be kept.", func() float64 { return float64(cfg.QueueRows) }),
		gauge("queue_bytes", "Bytes of the requests that wait to be kept, roughly.", func() float64 { _, bytes := waiting(); return float64(bytes) }),
		gauge("queue_bytes_bound", "Bytes that requests which wait to be kept may take.", func() float64 { return float64(cfg.QueueBytes) }),
	} {
		if err := registerer.Register(c); err != nil {
			return err //nolint:wrapcheck // the caller says what it was doing
		}
	}
	return nil
}
