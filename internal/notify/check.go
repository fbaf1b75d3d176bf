package notify

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/template"
)

// Bounds of a submission beside those of package model.
const (
	maxAddresses = 16
	maxAddress   = 320 // bytes
)

// isLocale says whether s is two or three letters, and any number of parts of one
// to eight letters or digits behind - or _.
func isLocale(s string) bool {
	from, first := 0, true
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '-' && s[i] != '_' {
			if !isLetter(s[i]) && (first || !isDigit(s[i])) {
				return false
			}
			continue
		}
		if n := i - from; first && (n < 2 || n > 3) || n < 1 || n > 8 {
			return false
		}
		from, first = i+1, false
	}
	return true
}

// isKind says whether s can be the name of a kind of address: a small letter, and
// up to 31 small letters, digits and underscores.
func isKind(s string) bool {
	for i := range len(s) {
		if small := s[i] >= 'a' && s[i] <= 'z'; !small && (i == 0 || !isDigit(s[i]) && s[i] != '_') {
			return false
		}
	}
	return s != "" && len(s) <= 32
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// problems gathers what is wrong with a submission.
type problems []FieldError

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, FieldError{Field: field, Problem: fmt.Sprintf(format, args...)})
}

// checked is a submission whose fields are sound each for itself.
type checked struct {
	Submission

	template  *template.Template
	values    template.Values
	addresses map[string]string // those that are not empty
	bareUUID  bool              // the key is nothing but a UUID
	// comparable: all that the content is made of is known, so that it can be told
	// whether the submission repeats what is kept.
	comparable bool
}

// check tests every field, and reports all that is wrong. What depends on the
// time is not tested here: a repeat may come late.
func (c *Center) check(s Submission, p *problems) *checked {
	out := &checked{Submission: s}
	checkText(p, "idempotency_key", s.IdempotencyKey, model.MaxIdempotencyKey)
	checkText(p, "biz_type", s.BizType, model.MaxBizType)
	checkText(p, "recipient.id", s.Recipient.ID, model.MaxRecipientID)
	if s.Priority == "" {
		out.Priority = model.PriorityNormal
	}
	switch out.Priority {
	case model.PriorityLow, model.PriorityNormal, model.PriorityHigh:
	default:
		p.add("priority", "is none of low, normal and high")
	}
	if len(s.Locale) > model.MaxLocale || s.Locale != "" && !isLocale(s.Locale) {
		p.add("locale", "is not a language tag such as zh-CN")
	}
	checkTags(p, s.Tags)
	out.addresses = checkAddressKinds(p, s.Recipient.Addresses)
	checkTimes(p, s)
	_, err := uuid.Parse(s.IdempotencyKey)
	out.bareUUID = err == nil
	sound := len(*p) == 0
	if c.checkVariables(p, out) || sound && readVariables(out) {
		out.comparable = sound
	}
	return out
}

// checkVariables finds the template and checks the variables against it.
func (c *Center) checkVariables(p *problems, s *checked) (ok bool) {
	if len(s.Template) > model.MaxTemplateCode || s.Template == "" {
		checkText(p, "template", s.Template, model.MaxTemplateCode)
		return false
	}
	t, found := c.cfg.Templates.Template(s.Template)
	if !found {
		p.add("template", "is not the code of a template")
		return false
	}
	s.template = t
	if len(s.Variables) > model.MaxVariables {
		p.add("variables", "is longer than %d bytes", model.MaxVariables)
		return false
	}
	values, err := t.Check(s.Variables)
	if err != nil {
		addVariableProblems(p, err)
		return false
	}
	s.values = values
	return true
}

// readVariables reads what the template, as it is now, refuses or does not know:
// enough to tell whether it was accepted before the template was changed.
func readVariables(s *checked) (ok bool) {
	if len(s.Variables) > model.MaxVariables {
		return false
	}
	var err error
	s.values, err = template.Join(s.Variables, nil)
	return err == nil
}

func checkText(p *problems, field, value string, most int) {
	switch {
	case value == "":
		p.add(field, "is missing")
	case len(value) > most:
		p.add(field, "is longer than %d bytes", most)
	case !printable(value):
		p.add(field, "holds a control character, or is not UTF-8")
	}
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func checkTags(p *problems, tags []string) {
	if len(tags) > model.MaxTags {
		p.add("tags", "has more than %d entries", model.MaxTags)
		return
	}
	for i, tag := range tags {
		checkText(p, "tags["+strconv.Itoa(i)+"]", tag, model.MaxTag)
	}
}

// checkAddressKinds tests the form of a recipient's addresses, and returns those
// that there are. Whether one can be used is its channel's to say.
func checkAddressKinds(p *problems, addresses map[string]string) map[string]string {
	if len(addresses) > maxAddresses {
		p.add("recipient", "has more than %d addresses", maxAddresses)
		return nil
	}
	kept := make(map[string]string, len(addresses))
	for _, kind := range slices.Sorted(maps.Keys(addresses)) {
		address := addresses[kind]
		switch {
		case !isKind(kind) || kind == "id":
			p.add("recipient", "has a member that is no kind of address")
		case address == "":
		case len(address) > maxAddress:
			p.add("recipient."+kind, "is longer than %d bytes", maxAddress)
		case !printable(address):
			p.add("recipient."+kind, "holds a control character, or is not UTF-8")
		default:
			kept[kind] = address
		}
	}
	return kept
}

// The first and the last moment that may be named, so that every store can hold
// it and every format write it.
var (
	earliest = time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)
)

func checkTimes(p *problems, s Submission) {
	for _, f := range []struct {
		name string
		at   time.Time
	}{{"not_before", s.NotBefore}, {"expires_at", s.ExpiresAt}} {
		if !f.at.IsZero() && (f.at.Before(earliest) || f.at.After(latest)) {
			p.add(f.name, "is too far from now")
		}
	}
	if !s.ExpiresAt.IsZero() && !s.NotBefore.IsZero() && !s.ExpiresAt.After(s.NotBefore) {
		p.add("expires_at", "is not after not_before")
	}
}
