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
		CheckAnswer:      func(source string) error { _, err := gateway.CompileRule(source, model.ClassSuccess); return err },
		CheckAnswerValue: func(source string) error { _, _, err := gateway.CompileProviderID(source); return err },
	}
}
