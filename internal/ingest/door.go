package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/ingest/verify"
	"github.com/posthouse/posthouse/internal/model"
)

// Prefix is where the door stands; the source's name follows.
const Prefix = "/in/"

// The bounds of AnswerWithin: above the upper one NewServer's write timeout
// could cut an answer off.
const (
	DefaultAnswerWithin = 2 * time.Second
	MaxAnswerWithin     = 30 * time.Second
)

// Source is one sender's way in.
type Source struct {
	Name     string // the path's last part: not empty, no slash
	ID       model.SourceID
	Verifier verify.Verifier // required: "no verification" is one, too
	// Accept says whether a push is of this source's kind. Default: all are.
	Accept       *expression.Program
	Dedup        Dedup
	Acknowledge  Acknowledge
	AnswerWithin time.Duration // from the request's headers to the answer, default 2 s, at most MaxAnswerWithin
	BodyLimit    int64         // bytes, default 1 MiB; at most half of the door's memory
	Concurrency  int           // pushes at once, default 256
}

// Acknowledge is the answer to a push that was kept, or that is not wanted.
type Acknowledge struct {
	Status      int    // 2xx, default 200
	Body        string // default empty
	ContentType string // default text/plain; charset=utf-8, where there is a body
}

// DoorConfig configures a Door.
type DoorConfig struct {
	Writer  *Writer  // required
	Sources []Source // names are unique
	// Memory bounds the bodies that are held at once, in bytes, default 256 MiB;
	// shared fairly between sources.
	Memory int64
	// Hash returns a keyed hash of a credential, in printable ASCII. It stands
	// in the kept headers and query in the credential's place. Default:
	// "[removed]" stands there.
	Hash func(credential []byte) string
	// Log is told of faults, at most once a second. Default: nothing is logged.
	Log *slog.Logger
	// Registerer takes the metrics. Default: none.
	Registerer prometheus.Registerer
}

// Door receives pushes: POST /in/{source}. The http.ResponseWriter must support
// read deadlines (http.ResponseController), or a body that does not come
// is waited for as long as the server allows.
type Door struct {
	writer    *Writer
	sources   map[string]*source
	byID      map[model.SourceID]*source
	unknown   *source // stands for every name that is no source
	memory    *memory
	sanitizer sanitizer
	free      func(*row) // d.giveBack, made once
	log       *slog.Logger

	faultsMu sync.Mutex
	faults   throttle
}

// source is a Source made ready.
type source struct {
	Source
	agreeMu sync.Mutex             // held by SetAgreed
	keying  atomic.Pointer[keying] // nil: no keys
	inUse   atomic.Int64
	account account
	lane    *lane
	metrics sourceMetrics
	rejects rejects

	ackType, ackLength []string
	ackBody            []byte
}

// NewDoor returns the handler. Its errors name the field at fault, or are those
// of registering the metrics.
func NewDoor(config DoorConfig) (*Door, error) {
	if config.Writer == nil {
		return nil, errors.New("door: Writer is missing")
	}
	d := &Door{
		writer:    config.Writer,
		sources:   make(map[string]*source, len(config.Sources)),
		byID:      make(map[model.SourceID]*source, len(config.Sources)),
		memory:    &memory{bound: orDefault(config.Memory, 256<<20)},
		sanitizer: sanitizer{hash: config.Hash},
		log:       config.Log,
		faults:    throttle{every: time.Second},
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.free = d.giveBack
	metrics := newDoorMetrics(d.memory)
	for _, s := range config.Sources {
		if _, twice := d.sources[s.Name]; twice {
			return nil, fmt.Errorf("door: source %q is there twice", s.Name)
		}
		ready, err := d.ready(s, metrics)
		if err != nil {
			return nil, fmt.Errorf("door: source %q: %w", s.Name, err)
		}
		d.sources[s.Name] = ready
		d.byID[s.ID] = ready
	}
	d.unknown = &source{Source: Source{AnswerWithin: DefaultAnswerWithin}}
	d.unknown.metrics = metrics.forSource(unknownSource, &d.unknown.inUse, 0)
	if err := metrics.register(config.Registerer); err != nil {
		return nil, fmt.Errorf("door: register metrics: %w", err)
	}
	return d, nil
}

func (d *Door) ready(s Source, metrics *doorMetrics) (*source, error) {
	s.AnswerWithin = orDefault(s.AnswerWithin, DefaultAnswerWithin)
	s.BodyLimit = orDefault(s.BodyLimit, 1<<20)
	s.Concurrency = orDefault(s.Concurrency, 256)
	s.Dedup.Window = orDefault(s.Dedup.Window, defaultWindow)
	s.Acknowledge.Status = orDefault(s.Acknowledge.Status, http.StatusOK)
	switch {
	case s.Name == "" || strings.Contains(s.Name, "/") || s.Name == unknownSource:
		return nil, errors.New("Name must be one part of a path, and not " + unknownSource)
	case s.Verifier == nil:
		return nil, errors.New("Verifier is missing")
	case s.AnswerWithin > MaxAnswerWithin:
		return nil, fmt.Errorf("AnswerWithin is %s; at most %s is possible", s.AnswerWithin, MaxAnswerWithin)
	case s.BodyLimit > d.memory.bound/2:
		return nil, fmt.Errorf("BodyLimit is %d; at most half of the door's memory of %d is possible", s.BodyLimit, d.memory.bound)
	case s.Acknowledge.Status < 200 || s.Acknowledge.Status > 299:
		return nil, fmt.Errorf("Acknowledge.Status is %d; it must be 2xx", s.Acknowledge.Status)
	case s.Acknowledge.Body != "" && s.Acknowledge.Status == http.StatusNoContent:
		return nil, errors.New("Acknowledge.Status is 204, which has no body; Acknowledge.Body must be empty")
	}
	ready := &source{Source: s, lane: d.writer.laneOf(s.ID), ackBody: []byte(s.Acknowledge.Body)}
	ready.metrics = metrics.forSource(s.Name, &ready.inUse, s.Concurrency)
	if len(ready.ackBody) > 0 {
		ready.ackLength = []string{strconv.Itoa(len(ready.ackBody))}
		ready.ackType = []string{cmp.Or(s.Acknowledge.ContentType, "text/plain; charset=utf-8")}
	}
	return ready, nil
}

// Rejects lists what a source turned away lately, newest first: at most 100
// that were refused and 100 that were acknowledged and not kept. The empty name
// stands for all names that are no source. Nil: there is no such source.
func (d *Door) Rejects(source string) []Reject {
	if source == "" {
		return d.unknown.rejects.list()
	}
	if s := d.sources[source]; s != nil {
		return s.rejects.list()
	}
	return nil
}
