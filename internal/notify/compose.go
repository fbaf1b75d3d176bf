package notify

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/template"
)

// fieldsOf returns what the content of a submission is made of, each field in
// the one form that is the same for what is equal.
func fieldsOf(s *checked) [model.ContentFields][]byte {
	// A map's members are written in the order of their names.
	recipient, err := json.Marshal(struct {
		Addresses map[string]string `json:"addresses"`
		ID        string            `json:"id"`
	}{s.addresses, s.Recipient.ID})
	if err != nil {
		recipient = nil // texts always can be written
	}
	return [model.ContentFields][]byte{
		[]byte(s.BizType), []byte(s.Template), recipient, s.values.Canonical(), []byte(sameLocale(s.Locale)),
	}
}

// sameLocale is the same for all ways of writing a locale: zh_cn, zh-CN.
func sameLocale(locale string) string {
	return strings.ReplaceAll(strings.ToLower(locale), "_", "-")
}

// frozen is a stored version of a template, ready.
type frozen struct {
	id       model.TemplateID
	compiled *template.Compiled
}

// versionKey names a version among those that were stored when the Center was made.
type versionKey struct{ code, kind, locale string }

// compose turns a sound submission into what is kept: it chooses channels, freezes
// versions, checks addresses, and renders all of it once.
func (c *Center) compose(s *checked, now time.Time, p *problems) model.NewRequest {
	if !s.ExpiresAt.IsZero() && !s.ExpiresAt.After(now) {
		p.add("expires_at", "has passed")
	}
	policy, number, err := c.choose(s)
	if err != nil {
		p.add("", "%v", err)
		return model.NewRequest{}
	}
	r := model.NewRequest{
		ID: newID(), Key: s.IdempotencyKey, BizType: s.BizType, Template: s.Template, Recipient: s.Recipient.ID,
		Priority: s.Priority, Locale: s.Locale, NotBefore: microsOf(s.NotBefore), ExpiresAt: microsOf(s.ExpiresAt),
		Tags: s.Tags, Variables: s.values.Plain(), Success: policy.Success,
	}
	told := map[string]bool{} // kinds of addresses whose fault is known
	for _, name := range policy.Send {
		c.add(&r, s, c.channels[name], reasonOf(number), told, p)
	}
	if len(*p) > 0 {
		return model.NewRequest{}
	}
	r.Content = c.cfg.Ring.Content(fieldsOf(s))
	r.Sensitive = c.cfg.Ring.Seal(s.values.Sensitive(), SensitiveContext+r.ID.String())
	return r
}

// add makes the delivery of one channel, or says why there is none.
func (c *Center) add(r *model.NewRequest, s *checked, ch Channel, reason string, told map[string]bool, p *problems) {
	address := s.addresses[ch.AddressKind]
	if !ch.InApp && address == "" {
		r.Choices = append(r.Choices, skip(ch.Name, noAddress(ch.AddressKind)))
		return
	}
	d := model.NewDelivery{ID: newID(), Channel: ch.Queue, Purpose: model.PurposePrimary, Reason: reason, Done: ch.InApp}
	if !ch.InApp {
		kept, masked, err := ch.Addresses.Check(address)
		if err != nil {
			if !told[ch.AddressKind] {
				told[ch.AddressKind] = true
				p.add("recipient."+ch.AddressKind, "%v", err)
			}
			return
		}
		d.Masked = masked
		d.Address = c.cfg.Ring.Seal([]byte(kept), AddressContext+d.ID.String())
	}
	version, found := s.template.Version(ch.Kind, s.Locale)
	v := c.versions[versionKey{version.Code, version.Kind, version.Locale}]
	if !found || v.compiled == nil {
		p.add("template", "has no part of the kind %s, which channel %s sends", ch.Kind, ch.Name)
		return
	}
	d.Template, d.Locale = v.id, version.Locale
	rendered, err := render(v, s.values, ch.InApp)
	if err != nil {
		addRenderProblem(p, err)
		return
	}
	if ch.InApp {
		r.Message = &model.NewUserMessage{ID: newID(), Title: rendered.Subject, Body: rendered.Text}
	}
	r.Choices = append(r.Choices, model.Choice{Channel: ch.Name, Reason: reason})
	r.Deliveries = append(r.Deliveries, d)
}

// render carries a version out. What is kept in the clear, as in-app messages
// are, is rendered without the sensitive values; that it can be rendered with
// them need not be seen.
func render(v frozen, values template.Values, masked bool) (template.Rendered, error) {
	if masked {
		values = values.Masked()
	}
	return v.compiled.Render(values) //nolint:wrapcheck // it names template, line and variable
}

func addVariableProblems(p *problems, err error) {
	named, ok := errors.AsType[*template.VariablesError](err)
	if !ok {
		p.add("variables", "cannot be checked")
		return
	}
	for _, v := range named.Problems {
		if v.Name == "" {
			p.add("variables", "%s", v.Problem)
			continue
		}
		p.add("variables."+v.Name, "%s", v.Problem)
	}
}

func addRenderProblem(p *problems, err error) {
	named, ok := errors.AsType[*template.RenderError](err)
	switch {
	case !ok:
		p.add("variables", "cannot be rendered")
	case named.Variable != "":
		p.add("variables."+named.Variable, "%s (%s)", named.Problem, named.File)
	default:
		p.add("template", "cannot be rendered: %v", named)
	}
}

// newID returns a version 7 UUID.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

func microsOf(t time.Time) model.Micros {
	if t.IsZero() {
		return 0
	}
	return model.MicrosOf(t)
}

// sizeOf is what a request takes in a statement, roughly.
func sizeOf(r *model.NewRequest) int {
	const overhead, perDelivery = 512, 256
	n := overhead + len(r.Key) + len(r.BizType) + len(r.Recipient) + len(r.Variables) + len(r.Sensitive.Bytes)
	for _, tag := range r.Tags {
		n += len(tag)
	}
	if r.Message != nil {
		n += len(r.Message.Title) + len(r.Message.Body)
	}
	for i := range r.Deliveries {
		n += perDelivery + len(r.Deliveries[i].Address.Bytes)
	}
	return n
}

// due returns the queues that have something to do at once.
func due(r *model.NewRequest, now model.Micros) []model.SourceID {
	if r.NotBefore > now {
		return nil
	}
	queues := map[model.SourceID]bool{}
	for i := range r.Deliveries {
		if !r.Deliveries[i].Done {
			queues[r.Deliveries[i].Channel] = true
		}
	}
	return slices.Sorted(maps.Keys(queues))
}
