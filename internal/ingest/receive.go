package ingest

import (
	"errors"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/ingest/verify"
	"github.com/posthouse/posthouse/internal/model"
)

// visit is one request on its way through the door.
type visit struct {
	source   *source
	name     string // as asked for
	w        http.ResponseWriter
	r        *http.Request
	start    time.Time
	deadline time.Time
	row      *row   // nil once it is the Writer's alone
	size     int64  // of the body; see Reject.Size
	why      string // the cause, where it is known better than from the result
}

// ServeHTTP answers one push.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := visit{w: w, r: r, start: time.Now(), size: r.ContentLength}
	v.name = strings.TrimPrefix(r.URL.Path, Prefix)
	if v.source = d.sources[v.name]; v.source == nil {
		v.source = d.unknown
	}
	s := v.source
	v.deadline = v.start.Add(s.AnswerWithin)
	if r.ContentLength != 0 {
		// Also for what is refused at once: net/http reads the rest of a body
		// before it answers. It lifts the deadline at the body's end.
		_ = http.NewResponseController(w).SetReadDeadline(v.deadline)
	}
	res := d.receive(&v)
	if status := answers[res].status; status != 0 {
		if answers[res].linger {
			lingerAtClose(w)
		}
		res.write(w)
	} else {
		s.acknowledge(w)
	}
	s.metrics.requests[res].Inc()
	s.metrics.seconds.Observe(time.Since(v.start).Seconds())
}

func (s *source) acknowledge(w http.ResponseWriter) {
	if len(s.ackBody) == 0 {
		w.WriteHeader(s.Acknowledge.Status) // without touching Header, which net/http would copy
		return
	}
	h := w.Header()
	h["Content-Type"] = s.ackType
	h["Content-Length"] = s.ackLength
	w.WriteHeader(s.Acknowledge.Status)
	_, _ = w.Write(s.ackBody) // the client may be gone; the message is kept all the same
}

// receive does everything but answer. Whatever panics in it is a fault of ours.
func (d *Door) receive(v *visit) (res result) {
	s := v.source
	admitted := s.inUse.Add(1) <= int64(s.Concurrency) || s == d.unknown
	defer func() {
		s.inUse.Add(-1)
		if p := recover(); p != nil {
			res = resultFault
			d.fault(s, "panic: "+describePanic(p), string(debug.Stack()))
		}
		if answers[res].cause != "" {
			v.remember(res)
		}
		if v.row != nil {
			d.writer.recycle(v.row)
		}
	}()
	switch {
	case v.r.Method != http.MethodPost:
		return resultMethod
	case s == d.unknown:
		return resultUnknownSource
	case !admitted:
		return resultBusyConcurrency
	}
	v.row = d.writer.row()
	v.row.free = d.free
	if res := d.readBody(v); res != resultKept {
		return res
	}
	if res := d.authenticate(v); res != resultKept {
		return res
	}
	if len(v.row.msg.Body) == 0 {
		return resultEmpty
	}
	if wanted, err := s.accepts(v); err != nil {
		v.note("", err)
	} else if !wanted {
		return resultNotKept
	}
	if s.Dedup.Key != nil {
		var err error
		if v.row.msg.Dedup, err = s.Dedup.dedupOf(v.input()); err != nil {
			v.note("dedup: ", err)
		}
	}
	return d.keep(v)
}

// readBody reads the whole body into memory that was lent for it. resultKept:
// it is there.
func (d *Door) readBody(v *visit) result {
	s, declared := v.source, v.r.ContentLength
	switch {
	case declared == 0:
		return resultKept
	case declared > s.BodyLimit:
		return resultTooLarge
	}
	b := d.memory.lend(&s.account, int(max(declared, 0)))
	if b == nil {
		return resultBusyMemory
	}
	v.row.body = b
	var err error
	if declared > 0 {
		var n int
		n, err = io.ReadFull(v.r.Body, b.bytes[:declared])
		b.bytes = b.bytes[:n]
	} else {
		var enough bool
		if enough, err = d.readChunks(v); !enough {
			return resultBusyMemory
		}
		b = v.row.body
	}
	v.size = int64(len(b.bytes))
	v.row.msg.Body = b.bytes
	if err == nil {
		return resultKept
	}
	v.row.msg.Body = nil
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return resultSlow
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return resultTooLarge
	}
	return resultIncomplete
}

// readChunks reads a body of undeclared length; false: there is not enough memory for it.
func (d *Door) readChunks(v *visit) (enough bool, err error) {
	body := http.MaxBytesReader(v.w, v.r.Body, v.source.BodyLimit)
	for {
		b := v.row.body
		if len(b.bytes) == cap(b.bytes) {
			larger := d.memory.lend(&v.source.account, 2*cap(b.bytes))
			if larger == nil {
				return false, nil
			}
			larger.bytes = append(larger.bytes, b.bytes...)
			v.row.body = larger
			d.memory.giveBack(b)
			b = larger
		}
		n, err := body.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return true, err
		}
	}
}

// authenticate asks the source's verifier. resultKept: it has nothing against it.
func (d *Door) authenticate(v *visit) result {
	err := v.source.Verifier.Verify(verify.Request{
		Method:   v.r.Method,
		Header:   v.r.Header,
		RawQuery: v.r.URL.RawQuery,
		Body:     v.row.msg.Body,
		Now:      v.start,
	})
	if err == nil {
		return resultKept
	}
	if refusal, ok := errors.AsType[*verify.Refusal](err); ok {
		v.why = string(refusal.Reason) + ": " + refusal.Error()
		return resultSignature
	}
	d.fault(v.source, "verify: "+describe(err), "")
	return resultFault
}

// accepts says whether the push is of the source's kind.
func (s *source) accepts(v *visit) (wanted bool, err error) {
	if s.Accept == nil {
		return true, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p} // a push that cannot be judged is kept, whatever the reason
		}
	}()
	return s.Accept.Eval(v.input())
}

// input is the push as it came.
func (v *visit) input() expression.Input {
	return expression.Input{
		Body:        v.row.msg.Body,
		Header:      v.r.Header,
		RawQuery:    v.r.URL.RawQuery,
		ContentType: v.r.Header.Get("Content-Type"),
		Size:        v.size,
	}
}

// note writes down beside the message which expression could not be evaluated, and why.
func (v *visit) note(which string, why error) {
	check := which + why.Error()
	if earlier := v.row.msg.Check; earlier != "" {
		check = earlier + "; " + check
	}
	v.row.msg.Check = model.CleanError(check)
}

// keep makes the message and waits until it is kept.
func (d *Door) keep(v *visit) result {
	r := v.row
	id, err := uuid.NewV7()
	if err != nil {
		d.fault(v.source, "make an id: "+describe(err), "")
		return resultFault
	}
	head := d.sanitizer.appendHeaders(r.head[:0], v.r.Header, v.r.Host)
	headers := len(head)
	head = d.sanitizer.appendQuery(head, v.r.URL.RawQuery)
	r.head = head

	r.msg.ID = id
	r.msg.Source = v.source.ID
	r.msg.ContentType = contentType(v.r.Header)
	r.msg.Headers = head[:headers:headers]
	r.msg.Query = head[headers:]
	if k := v.source.keying.Load(); k != nil && k.err == nil {
		var why error
		if r.msg.Key, why = k.place(&r.msg); why != nil {
			v.note("key: ", why)
		}
	}
	r.ctx = v.r.Context()
	r.deadline = v.deadline
	unchecked := r.msg.Check != ""

	mine, err := d.writer.keep(r, v.source.lane, nil)
	if !mine {
		v.row = nil
	}
	switch {
	case err != nil:
		return resultOf(err)
	case unchecked:
		return resultKeptUnchecked
	}
	return resultKept
}

// maxHeadKept bounds the memory that a row that is not in use holds on to.
const maxHeadKept = 16 << 10

// giveBack takes back what the door has lent to a row.
func (d *Door) giveBack(r *row) {
	if r.body != nil {
		d.memory.giveBack(r.body)
		r.body = nil
	}
	if cap(r.head) > maxHeadKept {
		r.head = nil
	}
}

// remember puts the push into the ring of those that were turned away.
func (v *visit) remember(res result) {
	a := &answers[res]
	reject := Reject{
		Time:        v.start,
		Kind:        RejectRefused,
		Cause:       a.cause,
		Status:      a.status,
		Size:        v.size,
		ContentType: rejectedType(v.r.Header),
	}
	if v.why != "" {
		reject.Cause = v.why
	}
	if v.source.lane == nil {
		reject.Name = strings.Clone(printable(v.name, rejectName))
	}
	var sample []byte
	if a.status == 0 {
		reject.Kind = RejectNotKept
		reject.Status = v.source.Acknowledge.Status
		sample = v.row.msg.Body
	}
	v.source.rejects.add(reject, sample)
}

// fault logs what is wrong with ourselves.
func (d *Door) fault(s *source, what, stack string) {
	d.faultsMu.Lock()
	missed, ok := d.faults.allow(time.Now())
	d.faultsMu.Unlock()
	if !ok {
		return
	}
	log := d.log.With("source", s.Name, "fault", what, "more_since_last_told", missed)
	if stack != "" {
		log = log.With("stack", stack)
	}
	log.Error("a push was answered 503 for a fault of our own")
}

// lingerAtClose makes net/http wait a little between its answer and closing the
// connection, so that a client that is still sending reads the answer before it
// meets a reset. net/http does so where a http.MaxBytesReader has met its
// limit, and offers no other way to ask for it.
func lingerAtClose(w http.ResponseWriter) {
	var one [1]byte
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0).Read(one[:])
}
