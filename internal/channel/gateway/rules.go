package gateway

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/model"
)

// Names are what an expression over an answer sees: status, a number; headers,
// by their lower-case names; body, the JSON body, missing where it is none; text,
// the body as it came.
var Names = []string{"status", "headers", "body", "text"}

// CompileRule makes a rule of an expression over Names.
func CompileRule(when string, class model.Class) (Rule, error) {
	program, err := expression.CompileOver(when, Names...)
	if err != nil {
		return Rule{}, err
	}
	_, err = expression.CompileOver(when, "status", "headers")
	return Rule{
		When:     func(a Answer) (bool, error) { return program.Eval(document(a)) },
		UsesBody: err != nil,
		Class:    class,
	}, nil
}

// CompileProviderID makes a Config.ProviderID of an expression over Names that
// yields a string or a number, and says whether it looks at the body.
func CompileProviderID(id string) (read func(Answer) (string, error), usesBody bool, err error) {
	value, err := expression.CompileValueOver(id, Names...)
	if err != nil {
		return nil, false, err
	}
	_, err = expression.CompileValueOver(id, "status", "headers")
	return func(a Answer) (string, error) {
		found, err := value.Eval(document(a))
		if err != nil {
			return "", err
		}
		var id any
		d := json.NewDecoder(bytes.NewReader(found))
		d.UseNumber()
		_ = d.Decode(&id) // where it is absent nothing is there
		switch id := id.(type) {
		case string:
			return id, nil
		case json.Number:
			return id.String(), nil
		}
		return "", nil
	}, err != nil, nil
}

// document is what the expressions see of an answer.
func document(a Answer) expression.Input {
	headers := make(map[string]string, len(a.Header))
	for name := range a.Header {
		headers[strings.ToLower(name)] = a.Header.Get(name)
	}
	whole := map[string]any{"status": a.Status, "headers": headers, "text": string(a.Body)}
	if json.Valid(a.Body) {
		whole["body"] = json.RawMessage(a.Body)
	}
	text, err := json.Marshal(whole)
	if err != nil {
		text = nil // a body that is valid JSON and cannot be written again: no rule holds
	}
	return expression.Input{Body: text, Size: int64(len(text))}
}
