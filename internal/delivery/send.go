package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/crashpoint"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/template"
	"github.com/posthouse/posthouse/internal/workqueue"
)

// The codes of attempts that end before a sender is asked, and of senders that
// misbehave.
const (
	codeGone     = "gone"     // the delivery's row is not there
	codeKey      = "key"      // what is sealed cannot be opened
	codeErased   = "erased"   // the sensitive values are gone
	codeTemplate = "template" // the frozen version cannot be rendered
	codePanic    = "panic"
	codeClass    = "class" // the sender classed its attempt as nothing that there is
)

// expiredPause is how long a delivery is given back that has expired, or whose
// request was cancelled: the sweep cancels it meanwhile.
const expiredPause = time.Second

// unopenedPause is how long a delivery waits for a key, and unreadPause for a store
// that can read it.
const (
	unopenedPause = time.Minute
	unreadPause   = time.Minute
)

// handle makes one attempt.
func (l *lane) handle(ctx context.Context, w model.Work) workqueue.Result {
	if !l.c.mayCall() {
		l.account.notMade()
		return workqueue.Result{Postpone: time.Second}
	}
	defer l.c.sends.Done()
	_ = deepen(w.RetryCount)
	m, early := l.prepare(w)
	if early != nil {
		l.account.notMade()
		return *early
	}
	t, wait, ok := l.account.begin()
	if !ok {
		return workqueue.Result{Postpone: wait}
	}
	// Nothing may come between the end of the attempt and the account hearing of
	// it, or a trial would never end: also a sender that ends its goroutine.
	r := uncertain(codePanic, "the sender ended its goroutine")
	v := verdict{}
	func() {
		defer func() { v = l.account.end(t, ofAccount(r), r.RetryAfter) }()
		begun := time.Now()
		crashpoint.Hit(crashpoint.BeforeSend)
		r = send(ctx, l.cfg.Sender, m)
		crashpoint.Hit(crashpoint.AfterSend)
		l.c.metrics.sending.WithLabelValues(l.cfg.Name).Observe(time.Since(begun).Seconds())
	}()
	l.c.metrics.attempts.WithLabelValues(l.cfg.Name, string(r.Class), l.codes.label(r.Code)).Inc()
	if v.opened {
		l.c.log.Warn("the channel's provider failed several times in a row: its deliveries wait, and are tried one at a time", "channel", l.cfg.Name, "code", l.codes.label(r.Code))
	}
	if r.Class == model.ClassRateLimited && r.RetryAfter >= heldFor {
		l.tellHold(ctx, min(r.RetryAfter, longestRetryAfter))
	}
	if v.pause {
		l.pauseRefused(ctx, l.codes.label(r.Code))
	}
	return resultOf(r, v)
}

// ofAccount is what a result says of the account. A recipient's own trouble says
// as much as a message that is at fault: nothing.
func ofAccount(r channel.Result) model.Class {
	if r.OfRecipient && r.Class == model.ClassTransient {
		return model.ClassPermanent
	}
	return r.Class
}

// deepen has the goroutine's stack grow to what rendering a template takes, at once
// and while little is on it: each attempt has a goroutine of its own, and growing
// by and by, far down in the template, costs a sixth of the attempt.
//
//go:noinline
func deepen(n int) byte {
	var room [8 << 10]byte
	return room[uint(n)%uint(len(room))] // or nothing would be reserved
}

// prepare makes the message ready; where there is none, early is how the attempt
// ends. Its errors name no value.
func (l *lane) prepare(w model.Work) (m channel.Message, early *workqueue.Result) {
	defer func() {
		if recover() != nil { // what it says may hold values
			early = &workqueue.Result{Err: errors.New("a panic while the message was made ready; nothing was sent"), Reason: model.ReasonPanic, Code: codePanic}
			l.count(model.ClassTransient, codePanic)
		}
	}()
	o := w.Outgoing
	if o == nil {
		return m, l.permanent(codeGone, "the delivery is not there any more")
	}
	if unreadable(o) {
		return m, &workqueue.Result{Postpone: unreadPause}
	}
	if withdrawn(w) || expired(o, l.c.clock.now()) {
		return m, &workqueue.Result{Postpone: expiredPause}
	}
	if o.Erased {
		return m, l.permanent(codeErased, "the sensitive values of its request have been erased: there is nothing to send")
	}
	address, err := l.c.cfg.Ring.Open(o.Address, AddressContext(o.ID))
	if err != nil {
		return m, l.unopened()
	}
	sensitive, err := l.c.cfg.Ring.Open(o.Sensitive, SensitiveContext(o.RequestID))
	if err != nil {
		return m, l.unopened()
	}
	version, ok := l.c.templates.get(o.Template)
	if !ok {
		return m, &workqueue.Result{Postpone: time.Second} // it was dropped since it was loaded
	}
	if version.err != nil {
		return m, l.permanent(codeTemplate, version.err.Error())
	}
	values, err := template.Join(o.Variables, sensitive)
	if err != nil {
		return m, l.permanent(codeTemplate, err.Error())
	}
	rendered, err := version.Render(values)
	if err != nil {
		return m, l.permanent(codeTemplate, err.Error())
	}
	return channel.Message{
		ID: o.ID, RequestID: o.RequestID, BizType: o.BizType, Recipient: o.Recipient, Locale: o.Locale,
		Address: string(address), Subject: rendered.Subject, HTML: rendered.HTML, Text: rendered.Text, Hidden: values.Strings(),
	}, nil
}

func (l *lane) permanent(code, text string) *workqueue.Result {
	l.count(model.ClassPermanent, code)
	return &workqueue.Result{Err: errors.New(text), Reason: model.ReasonPermanent, Permanent: true, Code: code}
}

// unopened gives back unburned: nothing is wrong with the delivery, and the key
// may come back.
func (l *lane) unopened() *workqueue.Result {
	l.count(model.ClassTransient, codeKey)
	l.unopenable.add(codeKey)
	return &workqueue.Result{Postpone: unopenedPause}
}

func (l *lane) count(class model.Class, code string) {
	l.c.metrics.attempts.WithLabelValues(l.cfg.Name, string(class), code).Inc()
}

// send calls a sender. One that panics may have sent before; what it panicked
// with is not kept, since it may hold anything.
func send(ctx context.Context, s channel.Sender, m channel.Message) (r channel.Result) {
	defer func() {
		if recover() != nil {
			r = uncertain(codePanic, "the sender panicked")
		}
	}()
	r = s.Send(ctx, m)
	if !slices.Contains(model.Classes(), r.Class) {
		return uncertain(codeClass, "the sender classed its attempt as nothing that there is")
	}
	return r
}

func uncertain(code, text string) channel.Result {
	return channel.Result{Class: model.ClassUncertain, Code: code, Text: text}
}

// resultOf tells the queue how an attempt ended.
func resultOf(r channel.Result, v verdict) workqueue.Result {
	result := workqueue.Result{Code: r.Code, ProviderID: r.ProviderID, HTTPStatus: r.HTTPStatus}
	if r.Class == model.ClassSuccess {
		return result
	}
	if v.unburned {
		return workqueue.Result{Postpone: v.giveBack}
	}
	result.Err, result.Reason = errors.New(textOf(r)), model.Reason(r.Class)
	result.RetryAfter = max(min(r.RetryAfter, longestRetryAfter), v.floor)
	result.Permanent = r.Class == model.ClassPermanent
	result.Uncertain = r.Class == model.ClassUncertain
	return result
}

func textOf(r channel.Result) string {
	if r.Text != "" {
		return r.Text
	}
	return "the sender says no more than " + string(r.Class)
}

// tellHold has the other processes leave the provider alone, too: they hear of it
// at their next heartbeat.
func (l *lane) tellHold(ctx context.Context, wait time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callBound)
	defer cancel()
	if err := l.c.cfg.Store.HoldQueue(ctx, l.cfg.Queue.ID, wait); err != nil {
		l.c.log.Warn("the provider wants to be left alone, and other processes could not be told; this one does so", "channel", l.cfg.Name, "err", err)
	}
}

// pauseRefused pauses the channel, since its credentials are refused. Of several
// processes that find so, the one that changed the switch tells it.
func (l *lane) pauseRefused(ctx context.Context, code string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callBound)
	defer cancel()
	reason := fmt.Sprintf("the provider refused the credentials %d times in a row", l.cfg.PauseAfter)
	if code != "" {
		reason += " (" + code + ")"
	}
	changed, err := l.c.cfg.Store.Switch(ctx, l.cfg.Queue.Name, false, model.Audit{Actor: "system", Reason: reason})
	if err != nil {
		l.c.log.Warn("the channel's credentials are refused, and it could not be paused; nothing is sent through it here meanwhile", "channel", l.cfg.Name, "err", err)
		return
	}
	if changed {
		l.c.metrics.pauses.WithLabelValues(l.cfg.Name).Inc()
		l.c.log.Error("the channel is paused: its credentials are refused; correct them, and resume it. Nothing is lost, and no attempt was burned", "channel", l.cfg.Name, "code", code)
	}
	l.c.cfg.Engine.Hurry()
}
