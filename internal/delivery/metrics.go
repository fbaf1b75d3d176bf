package delivery

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/model"
)

const (
	// maxCodes bounds the codes of one channel that are told apart in metrics.
	maxCodes = 50
	// maxCodeLabel bounds the length of one, in bytes.
	maxCodeLabel = 32
	codeOther    = "other"
)

type metrics struct {
	waiting, oldest                *prometheus.GaugeVec
	attempts, outcomes, pauses     *prometheus.CounterVec
	sending                        *prometheus.HistogramVec
	expired, erased, measureErrors prometheus.Counter
}

func newMetrics(r prometheus.Registerer, lanes func() []*lane) (*metrics, error) {
	const ns = "posthouse"
	counter := func(sub, name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help}, labels)
	}
	one := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Subsystem: "delivery", Name: name, Help: help})
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: ns, Subsystem: "delivery", Name: name, Help: help}, []string{"channel"})
	}
	m := &metrics{
		waiting:  gauge("waiting", "Deliveries that wait for their turn or their next attempt."),
		oldest:   gauge("oldest_wait_seconds", "Since when the delivery that is due longest has been due; 0 where none is."),
		attempts: counter("delivery", "attempts_total", "Attempts, by how they were classed and the provider's code; the rarer codes are \"other\".", "channel", "class", "code"),
		outcomes: counter("delivery", "outcomes_total", "What became of attempts: success, retry, failed (permanent), dead (tries spent), uncertain, released (given back unburned).", "channel", "outcome"),
		pauses:   counter("channel", "pauses_total", "How often this process paused the channel, since its credentials were refused.", "channel"),
		sending: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: ns, Subsystem: "delivery", Name: "send_seconds",
			Help: "How long senders took for an attempt.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9), NativeHistogramBucketFactor: 1.2}, []string{"channel"}),
		expired:       one("expired_total", "Deliveries that this process cancelled, since they had expired."),
		erased:        one("erased_total", "Requests of which this process erased the sensitive values."),
		measureErrors: one("measure_errors_total", "Measurements of what waits that failed; the gauges keep what was measured before."),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.waiting, m.oldest, m.attempts, m.outcomes, m.pauses, m.sending, m.expired, m.erased, m.measureErrors, newStandings(lanes)} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of deliveries: %w", err)
		}
	}
	return m, nil
}

// begin makes the series of a channel appear before anything has happened.
func (m *metrics) begin(channel string) {
	for _, kind := range []model.SettleKind{model.SettleSuccess, model.SettleRetry, model.SettleFailed, model.SettleDead, model.SettleUncertain, model.SettleRelease} {
		m.outcomes.WithLabelValues(channel, kind.String())
	}
	m.pauses.WithLabelValues(channel)
	m.sending.WithLabelValues(channel)
}

// standings tells of each account how it stands when it is asked.
type standings struct {
	lanes                                     func() []*lane
	breaker, held, paused, limited, rateWaits *prometheus.Desc
}

func newStandings(lanes func() []*lane) *standings {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("posthouse_channel_"+name, help, []string{"channel"}, nil)
	}
	return &standings{
		lanes:   lanes,
		breaker: desc("breaker_open", "Whether the channel waits in this process, since its provider failed several times in a row."),
		held: desc("held_seconds",
			"For how long this process has held the channel back without a message accepted, since its provider failed, asked for less, or refused the credentials; 0 where it does not."),
		paused:    desc("paused", "Whether the channel is paused."),
		limited:   desc("rate_limited", "Whether the channel waits in this process, since its provider asked for less."),
		rateWaits: desc("rate_waits_total", "How often deliveries waited for the configured rate of the channel."),
	}
}

// Describe implements prometheus.Collector.
func (s *standings) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.breaker, s.held, s.paused, s.limited, s.rateWaits} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s *standings) Collect(out chan<- prometheus.Metric) {
	for _, l := range s.lanes() {
		now := l.account.standing()
		gauge := func(d *prometheus.Desc, on bool) {
			value := 0.0
			if on {
				value = 1
			}
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, l.cfg.Name)
		}
		gauge(s.breaker, now.hold == holdBreaker)
		out <- prometheus.MustNewConstMetric(s.held, prometheus.GaugeValue, now.held.Seconds(), l.cfg.Name)
		gauge(s.paused, now.paused || !now.enabled)
		gauge(s.limited, now.hold == holdRate && now.waits)
		out <- prometheus.MustNewConstMetric(s.rateWaits, prometheus.CounterValue, float64(now.rateWaits), l.cfg.Name)
	}
}

// codes bounds how many codes of one channel are told apart.
type codes struct {
	mu    sync.Mutex
	known map[string]bool
}

// label is what a code is counted as.
func (c *codes) label(code string) string {
	if code == "" {
		return ""
	}
	if len(code) > maxCodeLabel {
		return codeOther
	}
	for _, r := range code {
		if r < ' ' || r > '~' {
			return codeOther
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known[code] {
		if len(c.known) == maxCodes {
			return codeOther
		}
		if c.known == nil {
			c.known = map[string]bool{}
		}
		c.known[code] = true
	}
	return code
}
