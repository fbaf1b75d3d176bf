package template

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// VariableProblem is what is wrong with one variable.
type VariableProblem struct {
	Name    string `json:"name"`    // title, items/0/name; "" is all of them together
	Problem string `json:"problem"` // what is wrong, without the value
}

// VariablesError says what is wrong with variables. It names them, and never a value.
type VariablesError struct {
	Problems []VariableProblem // sorted by name
}

// Error names all of them, in one line.
func (e *VariablesError) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("; ")
		}
		if p.Name == "" {
			b.WriteString("variables")
		} else {
			b.WriteString("variable " + p.Name)
		}
		b.WriteString(": " + p.Problem)
	}
	return b.String()
}

// maxProblems bounds how many variables one error names.
const maxProblems = 50

// checked checks variables as they came against the schema.
func (s *schema) checked(variables json.RawMessage) (Values, error) {
	full, err := decodeObject(variables)
	if err != nil {
		p := VariableProblem{Problem: "cannot be read"}
		if e, ok := err.(*textError); ok { //nolint:errorlint // decodeObject wraps nothing
			p = VariableProblem{printable(e.name), e.problem}
		}
		return Values{}, &VariablesError{[]VariableProblem{p}}
	}
	if problems := s.check(full); len(problems) > 0 {
		return Values{}, &VariablesError{problems}
	}
	v := Values{full: full}
	gathered := map[string]any{}
	v.masked, _ = place{s.root}.expand().split(full, "", false, gathered).(map[string]any)
	if len(gathered) > 0 {
		v.sensitive = gathered
	}
	return v, nil
}

// leaves calls f for each cause that has none itself, but for a choice between forms, which is one cause.
func leaves(e *jsonschema.ValidationError, f func(*jsonschema.ValidationError)) {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		f(e)
		return
	}
	if len(e.Causes) == 0 {
		f(e)
	}
	for _, cause := range e.Causes {
		leaves(cause, f)
	}
}

// explain turns the library's errors into ours.
func (s *schema) explain(invalid *jsonschema.ValidationError, v map[string]any) []VariableProblem {
	var problems []VariableProblem
	add := func(at []string, step, problem string) {
		if step != "" {
			at = append(slices.Clip(at), step)
		}
		name := ""
		for _, step := range at {
			name = below(name, printable(step))
		}
		problems = append(problems, VariableProblem{name, problem})
	}
	leaves(invalid, func(e *jsonschema.ValidationError) {
		if len(problems) > 20*maxProblems {
			return
		}
		at := e.InstanceLocation
		switch k := e.ErrorKind.(type) {
		case *kind.Required:
			for _, name := range k.Missing {
				add(at, name, "is missing")
			}
		case *kind.DependentRequired:
			for _, name := range k.Missing {
				add(at, name, "is missing: "+printable(k.Prop)+" needs it")
			}
		case *kind.AdditionalProperties:
			for _, name := range k.Properties {
				add(at, name, s.undeclared(at, name, v))
			}
		case *kind.FalseSchema:
			if len(at) == 0 {
				add(at, "", "are not allowed")
				break
			}
			add(at, "", s.undeclared(at[:len(at)-1], at[len(at)-1], v))
		default:
			add(at, "", misfit(e.ErrorKind))
		}
	})
	slices.SortFunc(problems, func(a, b VariableProblem) int {
		return strings.Compare(a.Name+"\x00"+a.Problem, b.Name+"\x00"+b.Problem)
	})
	problems = slices.Compact(problems)
	if len(problems) > maxProblems {
		problems = append(problems[:maxProblems], VariableProblem{"", "have more problems than are told here"})
	}
	return problems
}

// undeclared says that a member is not declared, and which one may have been meant: one that is not there itself.
func (s *schema) undeclared(at []string, name string, v any) string {
	p := place{s.root}.expand()
	for _, step := range at {
		switch value := v.(type) {
		case map[string]any:
			p, _, _ = p.member(step)
			v = value[step]
		case []any:
			p = p.item(-1)
			v = nil
		}
	}
	known := p.declared()
	if value, ok := v.(map[string]any); ok {
		known = slices.DeleteFunc(known, func(name string) bool { _, there := value[name]; return there })
	}
	return "is not declared" + didYouMean(name, known)
}

// misfit says how a value does not fit, in words that hold what the schema says and nothing of the value.
func misfit(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		want := strings.Join(k.Want, " or ")
		if k.Got == "null" {
			return "is null, and must be " + want
		}
		return "is " + k.Got + ", and must be " + want
	case *kind.Format:
		return "is not of the format " + k.Want
	case *kind.MinLength:
		return fmt.Sprintf("is shorter than %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("is longer than %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("has fewer than %d items", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("has more than %d items", k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("has fewer than %d members", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("has more than %d members", k.Want)
	case *kind.UniqueItems:
		return "has an item twice"
	case *kind.Minimum:
		return "is below " + exactly(k.Want)
	case *kind.Maximum:
		return "is above " + exactly(k.Want)
	case *kind.ExclusiveMinimum:
		return "is not above " + exactly(k.Want)
	case *kind.ExclusiveMaximum:
		return "is not below " + exactly(k.Want)
	case *kind.MultipleOf:
		return "is not a multiple of " + exactly(k.Want)
	case *kind.Pattern:
		return "does not match " + printable(k.Want)
	case *kind.Enum:
		return "is none of " + printable(string(encode(k.Want, true)))
	case *kind.Const:
		return "is not " + printable(string(encode(k.Want, true)))
	case *kind.AnyOf, *kind.OneOf:
		return "has none of the forms that it may have"
	case *kind.PropertyNames:
		return "has a member whose name is not allowed"
	}
	if path := k.KeywordPath(); len(path) > 0 {
		return "does not fit " + path[0]
	}
	return "does not fit"
}

// exactly writes a bound as a decimal where it is one.
func exactly(r *big.Rat) string {
	if digits, exact := r.FloatPrec(); exact && digits <= 20 {
		return r.FloatString(digits)
	}
	return r.RatString()
}
