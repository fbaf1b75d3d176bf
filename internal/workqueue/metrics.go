package workqueue

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/model"
)

// Metrics are the engine's collectors.
type Metrics struct {
	attempts     *prometheus.CounterVec
	handling     *prometheus.HistogramVec
	late         *prometheus.CounterVec
	fenced       *prometheus.CounterVec
	notBegun     *prometheus.CounterVec
	recovered    *prometheus.CounterVec
	rounds       *prometheus.CounterVec
	running      *prometheus.GaugeVec
	storeErrors  *prometheus.CounterVec
	unsettled    prometheus.Gauge
	declaredDead prometheus.Counter
	buried       prometheus.Counter
	alonePassed  prometheus.Counter
	partitions   *prometheus.GaugeVec
	leasesLost   *prometheus.CounterVec
	generations  *prometheus.CounterVec
	placed       *prometheus.CounterVec
}

// begin makes the series of a source appear before anything has happened.
func (m *Metrics) begin(source string) {
	for _, c := range []*prometheus.CounterVec{m.late, m.fenced, m.notBegun, m.leasesLost, m.generations, m.placed} {
		c.WithLabelValues(source)
	}
	for _, kind := range []model.SettleKind{model.SettleRetry, model.SettleFailed, model.SettleRelease, model.SettleUncertain} {
		m.recovered.WithLabelValues(source, kind.String())
	}
	m.recovered.WithLabelValues(source, doubtfulClaim)
	for _, result := range []string{"worked", "idle", "missed_lock", "tripped", "error"} {
		m.rounds.WithLabelValues(source, result)
	}
	m.running.WithLabelValues(source)
	m.partitions.WithLabelValues(source)
}

// doubtfulClaim labels what was given back from a claim that nobody knows of.
const doubtfulClaim = "doubtful_claim"

// NewMetrics makes the collectors and registers them with r, if there is one. It
// fails where r has them already, of another engine.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	const ns = "posthouse"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Subsystem: "queue", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		attempts: counter("attempts_total", "Attempts that ended, by how: success, retry, failed, released, dead, uncertain; and why not.", "source", "outcome", "reason"),
		handling: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: ns, Subsystem: "queue", Name: "handle_seconds",
			Help: "How long handlers ran.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9), NativeHistogramBucketFactor: 1.2}, []string{"source"}),
		late:      counter("late_successes_total", "Messages handled after their timeout.", "source"),
		fenced:    counter("fenced_writes_total", "Writes of a state that changed nothing, since the claim was not this one's any more.", "source"),
		notBegun:  counter("not_begun_total", "Claimed works whose handlers were not begun, since the instance's lease had run out.", "source"),
		recovered: counter("recovered_total", "Orphans recovered, by what became of them: retry, failed, released, uncertain, doubtful_claim.", "source", "as"),
		rounds:    counter("rounds_total", "Rounds, by how they ended: worked, idle, missed_lock, tripped, error.", "source", "result"),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: ns, Subsystem: "queue", Name: "executing",
			Help: "Handlers at work in this process."}, []string{"source"}),
		storeErrors: counter("store_errors_total", "Calls of the store that failed, by what was being done.", "op"),
		unsettled: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: ns, Subsystem: "queue", Name: "unsettled",
			Help: "Outcomes that wait to be written; from 4096 on no more work is fetched."}),
		declaredDead: prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Subsystem: "queue", Name: "declared_dead_total",
			Help: "How often this process found itself declared dead by others."}),
		buried: prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Subsystem: "queue", Name: "buried_total",
			Help: "Instances that this process declared dead."}),
		alonePassed: prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Subsystem: "queue", Name: "alone_postponed_total",
			Help: "Last attempts that had to run alone and were put off, since others would not end in time."}),
		partitions: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: ns, Subsystem: "queue", Name: "partitions",
			Help: "Partitions of a keyed source that this process holds."}, []string{"source"}),
		leasesLost:  counter("leases_lost_total", "Leases that turned out to be another instance's while this one worked under them.", "source"),
		generations: counter("order_changes_total", "Changes of a source's order that this process went along with.", "source"),
		placed:      counter("placed_total", "Waiting messages that were placed by another key than they were kept by.", "source"),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.attempts, m.handling, m.late, m.fenced, m.notBegun, m.recovered, m.rounds, m.running, m.storeErrors,
		m.unsettled, m.declaredDead, m.buried, m.alonePassed, m.partitions, m.leasesLost, m.generations, m.placed} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register the queue's metrics: %w", err)
		}
	}
	return m, nil
}
