package app

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/httptarget"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/telemetry"
	"github.com/posthouse/posthouse/internal/workqueue"
)

// sourcesOf translates the configuration. handlers are functions that stand in
// for targets, by source; told keeps the notifications that sources make.
func sourcesOf(cfg *config.Config, handlers map[string]inbox.Handler, told *notifications) ([]inbox.Source, error) {
	var sources []inbox.Source
	for _, name := range cfg.SourceNames() {
		s := cfg.Sources[name]
		handler := handlers[name]
		if handler == nil && s.Handler.HTTP != nil {
			target, err := httptarget.New(httptarget.Config{
				URL: s.Handler.HTTP.URL, AllowPrivate: s.Handler.HTTP.AllowPrivate,
				Connections: s.Consume.Concurrency, Version: telemetry.Version(),
			})
			if err != nil {
				return nil, fmt.Errorf("source %q: handler: %w", name, err)
			}
			handler = &targetHandler{target}
		}
		if handler == nil && s.Handler.Notify != nil {
			var err error
			if handler, err = newNotifyHandler(told.center, s.Handler.Notify); err != nil {
				return nil, fmt.Errorf("source %q: handler: notify: %w", name, err)
			}
		}
		secrets := make([][]byte, len(s.Verify.Secrets))
		for i, secret := range s.Verify.Secrets {
			secrets[i] = []byte(secret.Reveal())
		}
		c := s.Consume
		sources = append(sources, inbox.Source{
			Name: name,
			Verify: inbox.Verification{
				Kind: string(s.Verify.Kind), Header: s.Verify.Header, Prefix: s.Verify.Prefix,
				Encoding: string(s.Verify.Encoding), Secrets: secrets,
			},
			Accept:       s.Accept,
			Dedup:        inbox.Dedup{Key: s.Dedup.Key, Window: s.Dedup.Window},
			Acknowledge:  inbox.Acknowledge{Status: s.Acknowledge.Status, Body: s.Acknowledge.Body, ContentType: s.Acknowledge.ContentType},
			AnswerWithin: s.AnswerWithin, BodyLimit: int64(s.Limits.Body), InFlight: s.Limits.Concurrency,
			Handler: handler,
			Consume: inbox.Consume{
				Paused: !c.Enabled, Order: inbox.Order(c.Order), Key: c.Key, Partitions: c.Partitions, Block: c.OnRetry == config.OnRetryBlock,
				Concurrency: c.Concurrency, RoundInterval: c.RoundInterval,
				BatchSize: c.BatchSize, Retry: &c.MaxRetry, Backoff: c.Backoff, OrphanAfter: c.OrphanAfter, Timeout: c.Timeout, TripAfter: c.TripAfter,
			},
		})
	}
	return sources, nil
}

// orderingOf is what this instance wants, in the form in which it is agreed on.
func orderingOf(c config.Consume) model.Ordering {
	return workqueue.QueueConfig{Wants: model.Ordering{
		Order: model.Order(c.Order), Partitions: c.Partitions, Key: c.Key, Block: c.OnRetry == config.OnRetryBlock,
	}}.WithDefaults().Wants
}

// closeTargets closes the connections to targets that nothing goes over.
func closeTargets(sources []inbox.Source) {
	for _, s := range sources {
		if h, ok := s.Handler.(*targetHandler); ok {
			h.target.Close()
		}
	}
}

// targetHandler hands messages to an HTTP target.
type targetHandler struct{ target *httptarget.Target }

// Handle is HandleStatus for whoever does not ask for the status.
func (h *targetHandler) Handle(ctx context.Context, m *inbox.Message) error {
	_, err := h.HandleStatus(ctx, m)
	return err
}

// HandleStatus also returns the status that the target answered; 0: it did not.
func (h *targetHandler) HandleStatus(ctx context.Context, m *inbox.Message) (status int, err error) {
	kept := &model.Message{NewMessage: model.NewMessage{
		ID: uuid.MustParse(m.ID), ContentType: m.ContentType, Headers: m.HeaderLines(), Body: m.Body,
	}}
	r := h.target.Handle(ctx, httptarget.Delivery{Message: kept, Source: m.Source, Attempt: m.Attempt})
	if r.Err != nil {
		return r.HTTPStatus, &targetError{r}
	}
	return r.HTTPStatus, nil
}

// targetError tells the engine what a target answered.
type targetError struct{ result httptarget.Result }

func (e *targetError) Error() string { return e.result.Err.Error() }
func (e *targetError) Unwrap() error { return e.result.Err }

// Failure says what the engine needs beside the text.
func (e *targetError) Failure() (model.Reason, int, time.Duration, bool) {
	return e.result.Reason, e.result.HTTPStatus, e.result.RetryAfter, e.result.Permanent
}
