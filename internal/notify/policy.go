package notify

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/model"
)

// WhenNames are what a policy's condition sees: texts, tags a list of texts, and
// recipient with its id and, for each kind of address that a condition names,
// whether there is one.
var WhenNames = []string{"biz_type", "priority", "tags", "locale", "template", "recipient"}

// When is a policy's condition.
type When struct {
	program *expression.Program
	kinds   []string
}

// CompileWhen checks a policy's condition and prepares it.
func CompileWhen(source string) (*When, error) {
	p, err := expression.CompileOver(source, WhenNames...)
	if err != nil {
		return nil, fmt.Errorf("when: %w", err)
	}
	return &When{program: p, kinds: kindsIn(source)}, nil
}

// Kinds are the kinds of addresses that the condition names, in its order.
func (w *When) Kinds() []string { return w.kinds }

// kindNamed finds, beside texts, which are passed over, the members of recipient.
var kindNamed = regexp.MustCompile(`\brecipient\s*\??\.\s*([A-Za-z_]\w*)` +
	`|\brecipient\s*(?:\?\.\s*)?\[\s*["'` + "`" + `](\w+)["'` + "`" + `]\s*\]` +
	`|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'`)

func kindsIn(source string) (kinds []string) {
	for _, m := range kindNamed.FindAllStringSubmatch(source, -1) {
		if kind := m[1] + m[2]; kind != "" && kind != "id" && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// choose returns the first policy that holds, and its number from 1. The error
// says why that cannot be told, or that none holds.
func (c *Center) choose(s *checked) (policy Policy, number int, err error) {
	var in expression.Input
	for i, p := range c.cfg.Policies {
		if p.When == nil {
			return p, i + 1, nil
		}
		if in.Body == nil {
			in = c.whenInput(s)
		}
		holds, err := p.When.program.Eval(in)
		if err != nil {
			return Policy{}, 0, fmt.Errorf("policy %d %w", i+1, err)
		}
		if holds {
			return p, i + 1, nil
		}
	}
	return Policy{}, 0, errNoPolicy
}

var errNoPolicy = fmt.Errorf("no policy holds for it")

func (c *Center) whenInput(s *checked) expression.Input {
	recipient := map[string]any{}
	for _, ch := range c.cfg.Channels {
		if !ch.InApp {
			recipient[ch.AddressKind] = false
		}
	}
	// What a condition names and nobody has is false as well: a recipient of another kind is no mistake.
	for _, p := range c.cfg.Policies {
		if p.When != nil {
			for _, kind := range p.When.kinds {
				recipient[kind] = false
			}
		}
	}
	for kind := range s.addresses {
		recipient[kind] = true
	}
	recipient["id"] = s.Recipient.ID
	tags := s.Tags
	if tags == nil {
		tags = []string{}
	}
	body, err := json.Marshal(map[string]any{
		"biz_type": s.BizType, "priority": s.Priority, "tags": tags, "locale": s.Locale, "template": s.Template, "recipient": recipient,
	})
	if err != nil {
		body = []byte("{}") // texts always can be written: every name would be missing, and no policy could be told to hold
	}
	return expression.Input{Body: body, Size: int64(len(body))}
}

// Why a channel was skipped, or chosen.
func reasonOf(policy int) string       { return "policy " + strconv.Itoa(policy) }
func noAddress(kind string) string     { return "the recipient has no " + kind }
func skip(ch, why string) model.Choice { return model.Choice{Channel: ch, Skipped: true, Reason: why} }
