package notify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/template"
)

// Center accepts notifications. Accept may be called by any number of goroutines.
type Center struct {
	cfg      Config
	channels map[string]Channel // by name
	versions map[versionKey]frozen
	metrics  *metrics
	writer   *writer
	bareKeys throttle
}

// freezeWithin bounds the one call of the store that New makes.
const freezeWithin = 10 * time.Second

// New stores the versions of all templates, so that deliveries can name them, and
// returns a Center that is yet to be started. Its errors are those of a Config
// that makes no sense, of a template that does not compile, and of the store.
func New(cfg Config) (*Center, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Center{cfg: cfg.withDefaults(), channels: map[string]Channel{}, metrics: newMetrics(), bareKeys: throttle{every: time.Minute}}
	for _, ch := range c.cfg.Channels {
		c.channels[ch.Name] = ch
	}
	c.writer = newWriter(c.cfg, c.metrics)
	if err := c.freeze(); err != nil {
		return nil, err
	}
	if err := c.metrics.register(c.cfg.Registerer, c.writer.load, &c.cfg); err != nil {
		return nil, fmt.Errorf("notify: register metrics: %w", err)
	}
	return c, nil
}

func (c *Center) freeze() error {
	versions := c.cfg.Templates.Versions()
	ctx, cancel := context.WithTimeout(context.Background(), freezeWithin)
	defer cancel()
	ids, err := c.cfg.Store.PutTemplates(ctx, versions)
	if err != nil {
		return fmt.Errorf("notify: store the templates: %w", err)
	}
	c.versions = make(map[versionKey]frozen, len(versions))
	for i, v := range versions {
		v.ID = ids[i]
		compiled, err := template.Compile(v)
		if err != nil {
			return fmt.Errorf("notify: %w", err)
		}
		c.versions[versionKey{v.Code, v.Kind, v.Locale}] = frozen{id: v.ID, compiled: compiled}
	}
	return nil
}

// Start begins to keep what is accepted. Later calls, and calls after Stop, do
// nothing.
func (c *Center) Start() { c.writer.start() }

// Stop accepts no more, tries once more to keep what waits, answers all of it,
// and returns when that is done. It may be called often, by anyone.
func (c *Center) Stop() { c.writer.stop() }

// Accept keeps a notification, once it is committed. Every error is an *Error.
// Whatever it says, submitting the same again with the same key is safe.
func (c *Center) Accept(ctx context.Context, s Submission) (Receipt, error) {
	started := time.Now()
	receipt, err := c.accept(ctx, s, started)
	c.metrics.seconds.Observe(time.Since(started).Seconds())
	label := unknownTemplate
	if _, found := c.cfg.Templates.Template(s.Template); found {
		label = s.Template
	}
	c.metrics.requests.WithLabelValues(label, resultOf(receipt, err)).Inc()
	if err != nil {
		return Receipt{}, err
	}
	return receipt, nil
}

func resultOf(r Receipt, err *Error) string {
	switch {
	case err == nil && r.Duplicate:
		return resultDuplicate
	case err == nil:
		return resultAccepted
	case err.Code == Invalid:
		return resultInvalid
	case err.Code == Conflict:
		return resultConflict
	}
	return resultUnavailable
}

func (c *Center) accept(ctx context.Context, s Submission, now time.Time) (Receipt, *Error) {
	deadline := now.Add(c.cfg.AnswerWithin)
	var p problems
	sound := c.check(s, &p)
	if sound.bareUUID {
		c.noteBareKey(now)
	}
	var r model.NewRequest
	if len(p) == 0 {
		r = c.compose(sound, now, &p)
	}
	if len(p) > 0 {
		return c.refuse(ctx, sound, p, deadline)
	}
	put, err := c.writer.keep(ctx, r, deadline)
	if err != nil {
		return Receipt{}, notKept(err)
	}
	if put.Duplicate {
		return c.again(put.First, sound)
	}
	return receiptOf(put.First, r.Success), nil
}

// refuse answers a submission that cannot be kept now. One that repeats what is
// kept still gets the first answer: time has passed, or policies, templates or
// the rules for addresses have changed since.
func (c *Center) refuse(ctx context.Context, s *checked, p problems, deadline time.Time) (Receipt, *Error) {
	invalid := &Error{Code: Invalid, Detail: "the notification cannot be accepted", Fields: p}
	if !s.comparable {
		return Receipt{}, invalid
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	first, err := c.cfg.Store.RequestByKey(ctx, s.IdempotencyKey)
	switch model.CodeOf(err) {
	case "":
	case model.CodeNotFound:
		return Receipt{}, invalid
	default:
		return Receipt{}, notKept(err)
	}
	if receipt, differs := c.again(first, s); differs == nil {
		return receipt, nil
	}
	return Receipt{}, invalid
}

// again answers a submission whose key is known.
func (c *Center) again(first model.RequestHead, s *checked) (Receipt, *Error) {
	differs, err := c.cfg.Ring.SameContent(first.Content, fieldsOf(s))
	if err != nil {
		return Receipt{}, &Error{
			Code: Conflict,
			Detail: "the idempotency key is known, and whether the content is the same cannot be told: " +
				"the key of the ring under which it was first accepted is not there any more",
		}
	}
	if len(differs) == 0 {
		receipt := receiptOf(first, first.Success)
		receipt.Duplicate = true
		return receipt, nil
	}
	conflict := &Error{Code: Conflict, Detail: "the idempotency key is that of a notification with other content"}
	for _, field := range differs {
		conflict.Fields = append(conflict.Fields, FieldError{Field: field, Problem: "differs"})
	}
	return Receipt{}, conflict
}

// receiptOf says what was kept, as it was when it was made.
func receiptOf(head model.RequestHead, success model.Aggregate) Receipt {
	r := Receipt{ID: head.ID, Deliveries: []Delivered{}, Skipped: []model.Choice{}}
	view := model.RequestView{Request: model.NewRequest{Success: success}}
	for _, d := range head.Deliveries {
		if d.Purpose != model.PurposePrimary {
			continue // it was made later
		}
		status := model.DeliveryPending
		if d.Done {
			status = model.DeliverySucceeded
		}
		r.Deliveries = append(r.Deliveries, Delivered{ID: d.ID, Channel: d.Channel, Status: status, Reason: d.Reason})
		view.Deliveries = append(view.Deliveries, model.DeliveryView{Channel: d.Channel, Status: status})
	}
	for _, choice := range head.Choices {
		if choice.Skipped {
			r.Skipped = append(r.Skipped, choice)
		}
	}
	r.Status = StatusOf(view)
	return r
}

// retryAfter is what those are told for whom there was no room or no store.
const retryAfter = time.Second

// notKept turns the reasons of the writer and of the store into the caller's.
func notKept(err error) *Error {
	e := &Error{Code: Unavailable, Detail: "the store is unavailable; submit again with the same idempotency key", RetryAfter: retryAfter}
	for _, ours := range []error{errBusy, errStopped, errLate, errUnknown} {
		if errors.Is(err, ours) {
			e.Detail = ours.Error() + "; submit again with the same idempotency key"
		}
	}
	if model.CodeOf(err) == model.CodeRejected {
		return &Error{Code: Invalid, Detail: "the store refuses this notification"}
	}
	return e
}

// noteBareKey counts a key that says nothing of what it stands for, and tells of
// it now and then.
func (c *Center) noteBareKey(now time.Time) {
	c.metrics.bareKeys.Inc()
	if missed, ok := c.bareKeys.allow(now); ok {
		c.cfg.Logger.Warn("an idempotency key is a bare UUID: whoever makes one for each try is not recognised when trying again; "+
			"make keys of what the notification is about, as in approval:9421:assignee:u1008:v3", "more_since_last_told", missed)
	}
}

// throttle lets one through per interval, and counts the others.
type throttle struct {
	every time.Duration

	mu     sync.Mutex
	last   time.Time
	missed int
}

// allow says whether this one may pass, and how many did not since the last.
func (t *throttle) allow(now time.Time) (missed int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.last.IsZero() && now.Sub(t.last) < t.every {
		t.missed++
		return 0, false
	}
	missed, t.missed, t.last = t.missed, 0, now
	return missed, true
}
