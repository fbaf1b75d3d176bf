package config

import (
	_ "embed"
	"path/filepath"
	"reflect"
	"slices"
)

// example is written by go generate, from the types in config.go.
//
//go:embed example.yaml
var example []byte

// Example returns the commented configuration that `posthouse init` writes: every key with its meaning and default, and
// samples of channels, policies and notify.
// It works as it is, with SQLite and one source.
func Example() []byte { return slices.Clone(example) }

// The sources of [Dev].
const (
	DevSource = "demo"   // its messages are handed to a function
	DevGitHub = "github" // GitHub's pushes of issues become notifications
)

// Dev returns the built-in configuration of `posthouse dev`: SQLite in dataDir, door and API on one address, two sources
// that take pushes from anyone and are consumed in serial order, and two channels, of which mail is kept for a look at
// it instead of being sent. DevSource has no handler: the caller hands its messages to a function. Templates names no
// folder: the caller brings the templates, and the keys. The caller decides whether it serves the API where
// [IsLoopback] is false.
func Dev(listen, dataDir string) *Config {
	c, s := &Config{}, Source{}
	setDefaults(reflect.ValueOf(c).Elem())
	setDefaults(reflect.ValueOf(&s).Elem())
	c.Listen, c.Admin.Listen = listen, listen
	c.Store.URL = Secret("sqlite:" + filepath.Join(dataDir, "posthouse.db"))
	s.Verify.Kind = VerifyNone
	s.Consume.Enabled = true
	github := s
	github.Consume.Backoff = slices.Clone(s.Consume.Backoff)
	github.Accept = `"issue" in body`
	github.Handler.Notify = devIssue()
	c.Sources = map[string]Source{DevSource: s, DevGitHub: github}

	d := &decoder{}
	c.Channels = map[string]Channel{
		"in_app": d.filled("", devChannel(ChannelInApp), c.Retry),
		"mail":   d.filled("", devChannel(ChannelMailbox), c.Retry),
	}
	c.Policies = []Policy{{Send: []string{"in_app", "mail"}}}
	return c
}

func devChannel(kind ChannelType) Channel {
	c := Channel{}
	setDefaults(reflect.ValueOf(&c).Elem())
	c.Type = kind
	return c
}

// devIssue tells whoever opened an issue what happens to it. GitHub names people and not their addresses, so the
// mailbox sees one that is made up.
func devIssue() *NotifyHandler {
	return &NotifyHandler{
		IdempotencyKey: `"github:issue:" + string(body.issue.id) + ":" + body.action + ":" + body.issue.updated_at`,
		BizType:        `"github.issue"`,
		Template:       `"github_issue"`,
		Recipient: map[string]string{
			"id":    `body.issue.user.login`,
			"email": `body.issue.user.login + "@example.com"`,
		},
		Variables: map[string]string{
			"action":     `body.action`,
			"number":     `body.issue.number`,
			"title":      `body.issue.title`,
			"url":        `body.issue.html_url`,
			"repository": `body.repository.full_name`,
			"author":     `body.sender.login`,
			"labels":     `map(body.issue.labels ?? [], .name)`,
		},
	}
}
