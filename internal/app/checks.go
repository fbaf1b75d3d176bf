package app

import (
	"github.com/posthouse/posthouse/internal/channel/gateway"
	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/notify"
)

// ParseParams says how the configuration in file is to be read: with a test of
// every expression in it.
func ParseParams(file string) config.ParseParams {
	return config.ParseParams{
		File:             file,
		CheckExpression:  func(source string) error { _, err := expression.Compile(source); return err },
		CheckKey:         func(source string) error { _, err := expression.CompileKey(source); return err },
		CheckValue:       func(source string) error { _, err := expression.CompileValue(source); return err },
		CheckPolicy:      func(source string) error { _, err := notify.CompileWhen(source); return err },
		PolicyKinds:      policyKinds,
		CheckRequest:     checkRequest,
		CheckAnswer:      func(source string) error { _, err := gateway.CompileRule(source, model.ClassSuccess); return err },
		CheckAnswerValue: func(source string) error { _, _, err := gateway.CompileProviderID(source); return err },
	}
}

func policyKinds(source string) []string {
	w, err := notify.CompileWhen(source)
	if err != nil {
		return nil // CheckPolicy has said so
	}
	return w.Kinds()
}

func checkRequest(method, url string, headers map[string]string, body string) []config.RequestFault {
	var faults []config.RequestFault
	for _, f := range gateway.Check(gateway.Config{Method: method, URL: url, Headers: headers, Body: body}) {
		faults = append(faults, config.RequestFault(f))
	}
	return faults
}
