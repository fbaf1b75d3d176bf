package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/notify"
)

// acceptor keeps notifications.
type acceptor interface {
	Accept(ctx context.Context, s notify.Submission) (notify.Receipt, error)
}

// notifyHandler makes a notification of each message.
type notifyHandler struct {
	center    acceptor
	values    map[string]*expression.Value // of the submission's texts, by their names in the configuration
	addresses map[string]*expression.Value // with the recipient's id
	variables map[string]*expression.Value
}

func newNotifyHandler(center acceptor, c *config.NotifyHandler) (*notifyHandler, error) {
	h := &notifyHandler{center: center}
	compile := func(group string, sources map[string]string) (map[string]*expression.Value, error) {
		compiled := make(map[string]*expression.Value, len(sources))
		for name, source := range sources {
			if source == "" {
				continue
			}
			v, err := expression.CompileValue(source)
			if err != nil {
				return nil, fmt.Errorf("%s%s: %w", group, name, err)
			}
			compiled[name] = v
		}
		return compiled, nil
	}
	var err error
	if h.values, err = compile("", map[string]string{
		"idempotency_key": c.IdempotencyKey, "biz_type": c.BizType, "template": c.Template, "priority": c.Priority, "locale": c.Locale,
	}); err != nil {
		return nil, err
	}
	if h.addresses, err = compile("recipient.", c.Recipient); err != nil {
		return nil, err
	}
	h.variables, err = compile("variables.", c.Variables)
	return h, err
}

// Handle keeps a notification. Its idempotency key makes one of however many
// attempts; a message of which none can be made fails at once.
func (h *notifyHandler) Handle(ctx context.Context, m *inbox.Message) error {
	s, err := h.submission(expression.Input{
		Body: m.Body, HeaderLines: m.HeaderLines(), RawQuery: m.Query, ContentType: m.ContentType, Size: int64(len(m.Body)),
	})
	if err != nil {
		return inbox.Permanent(err)
	}
	_, err = h.center.Accept(ctx, s)
	if refused, ok := errors.AsType[*notify.Error](err); ok {
		return &notifyError{refused}
	}
	return err
}

func (h *notifyHandler) submission(in expression.Input) (notify.Submission, error) {
	texts := map[string]string{}
	for _, group := range []struct {
		prefix string
		values map[string]*expression.Value
	}{{"", h.values}, {"recipient.", h.addresses}} {
		for _, name := range slices.Sorted(maps.Keys(group.values)) {
			text, err := textOf(group.values[name], in)
			if err != nil {
				return notify.Submission{}, fmt.Errorf("notify: %s%s: %w", group.prefix, name, err)
			}
			texts[group.prefix+name] = text
		}
	}
	s := notify.Submission{
		IdempotencyKey: texts["idempotency_key"], BizType: texts["biz_type"], Template: texts["template"],
		Priority: model.Priority(texts["priority"]), Locale: texts["locale"],
		Recipient: notify.Recipient{ID: texts["recipient.id"], Addresses: map[string]string{}},
	}
	for name := range h.addresses {
		if name != "id" {
			s.Recipient.Addresses[name] = texts["recipient."+name]
		}
	}
	variables := map[string]json.RawMessage{}
	for _, name := range slices.Sorted(maps.Keys(h.variables)) {
		value, err := h.variables[name].Eval(in)
		if err != nil {
			return s, fmt.Errorf("notify: variables.%s: %w", name, err)
		}
		if value != nil {
			variables[name] = value
		}
	}
	var err error
	s.Variables, err = json.Marshal(variables)
	return s, err
}

// textOf evaluates what must be a text, or a number, which is written as one. What
// is absent or null is empty.
func textOf(v *expression.Value, in expression.Input) (string, error) {
	value, err := v.Eval(in)
	if err != nil || len(value) == 0 || string(value) == "null" {
		return "", err
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text, nil
	}
	if value[0] == '{' || value[0] == '[' || value[0] == 't' || value[0] == 'f' {
		return "", errors.New("is neither a text nor a number")
	}
	return string(value), nil
}

// notifyError tells the engine what a refusal means for the message.
type notifyError struct{ refused *notify.Error }

func (e *notifyError) Error() string { return "notify: " + e.refused.Error() }
func (e *notifyError) Unwrap() error { return e.refused }

// Failure says what the engine needs beside the text.
func (e *notifyError) Failure() (model.Reason, int, time.Duration, bool) {
	if e.refused.Code == notify.Unavailable {
		return model.ReasonError, 0, e.refused.RetryAfter, false
	}
	return model.ReasonPermanent, 0, 0, true
}
