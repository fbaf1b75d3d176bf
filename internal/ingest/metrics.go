package ingest

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

const metricsPrefix = "posthouse_ingest_"

// unknownSource is the one label value for all pushes to sources that do not
// exist, so that nobody can make series by asking for names.
const unknownSource = "(unknown)"

type writerMetrics struct {
	batchRows    prometheus.Histogram
	flushSeconds prometheus.Histogram
	collectors   []prometheus.Collector
}

func newWriterMetrics(waiting func() int, bound int) writerMetrics {
	m := writerMetrics{
		batchRows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    metricsPrefix + "batch_rows",
			Help:    "Messages kept in one transaction.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
		}),
		flushSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    metricsPrefix + "flush_seconds",
			Help:    "Duration of the transactions that kept messages.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
	}
	m.collectors = []prometheus.Collector{
		m.batchRows, m.flushSeconds,
		gauge("queue_rows", "Messages that wait to be kept.", nil, func() float64 { return float64(waiting()) }),
		gauge("queue_rows_bound", "Messages that may wait to be kept.", nil, func() float64 { return float64(bound) }),
	}
	return m
}

func (m writerMetrics) register(registerer prometheus.Registerer) error {
	return registerAll(registerer, m.collectors)
}

// doorMetrics are the collectors of a door; each source resolves its own once.
type doorMetrics struct {
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	collectors []prometheus.Collector
}

func newDoorMetrics(memory *memory) *doorMetrics {
	m := &doorMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricsPrefix + "requests_total",
			Help: "Pushes by source and by how they ended.",
		}, []string{"source", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    metricsPrefix + "answer_seconds",
			Help:    "Time from a push's headers to its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 2.5, 5},
		}, []string{"source"}),
	}
	m.collectors = []prometheus.Collector{
		m.requests, m.seconds,
		gauge("buffered_bytes", "Memory lent to the bodies of pushes.", nil, func() float64 { return float64(memory.used()) }),
		gauge("buffered_bytes_bound", "Memory that may be lent to the bodies of pushes.", nil, func() float64 { return float64(memory.bound) }),
	}
	return m
}

// forSource resolves the metrics of one source.
func (m *doorMetrics) forSource(name string, inUse *atomic.Int64, concurrency int) sourceMetrics {
	var s sourceMetrics
	for i := range s.requests {
		s.requests[i] = m.requests.WithLabelValues(name, answers[i].label)
	}
	s.seconds = m.seconds.WithLabelValues(name)
	if concurrency > 0 {
		labels := prometheus.Labels{"source": name}
		m.collectors = append(m.collectors,
			gauge("in_flight", "Pushes being received.", labels, func() float64 { return float64(inUse.Load()) }),
			gauge("in_flight_bound", "Pushes that may be received at once.", labels, func() float64 { return float64(concurrency) }))
	}
	return s
}

func (m *doorMetrics) register(registerer prometheus.Registerer) error {
	return registerAll(registerer, m.collectors)
}

// sourceMetrics are resolved, so that a push looks nothing up.
type sourceMetrics struct {
	requests [results]prometheus.Counter
	seconds  prometheus.Observer
}

func gauge(name, help string, labels prometheus.Labels, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricsPrefix + name, Help: help, ConstLabels: labels}, value)
}

func registerAll(registerer prometheus.Registerer, collectors []prometheus.Collector) error {
	if registerer == nil {
		return nil
	}
	for _, c := range collectors {
		if err := registerer.Register(c); err != nil {
			return err
		}
	}
	return nil
}
