package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/mail"
	"net/url"
	"regexp"
	"strings"
	"text/template"
)

// nameChecks are the tests that a key's names tag names: of the names in a mapping of texts.
var nameChecks = map[string]func(string) complaint{
	"header":   checkRequestHeaderName,
	"kind":     func(name string) complaint { return checkKind(text{value: name}) },
	"variable": checkVariableName,
}

// kindName is what a kind of address may be called; "id" stands beside them.
var kindName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

func checkKind(t text) complaint {
	if t.value != "" && !kindName.MatchString(t.value) {
		return complaint{"is not the name of a kind of address", "write one like email or phone: a to z, 0 to 9 and _, at most 32 of them"}
	}
	return complaint{}
}

func checkVariableName(name string) complaint {
	if name == "" || len(name) > 64 || checkLine(text{value: name}).message != "" {
		return complaint{"is not the name of a variable", "write a name of at most 64 bytes"}
	}
	return complaint{}
}

func checkRequestHeaderName(name string) complaint {
	if name == "" || !headerName.MatchString(name) {
		return complaint{"is not the name of a header", "write letters, digits and - alone, as in X-Request-Id"}
	}
	switch strings.ToLower(name) {
	case "host", "trailer", "transfer-encoding", "content-length", "connection", "te", "upgrade":
		return complaint{"is a header that HTTP itself uses up", "leave it out"}
	}
	return complaint{}
}

func checkHost(t text) complaint {
	if t.value == "" || strings.ContainsAny(t.value, " /@?#\\") || checkLine(t).message != "" {
		return complaint{"is not the name of a host", "write one like mail.example.com; the port stands under port"}
	}
	return complaint{}
}

func checkMailbox(t text) complaint {
	if c := checkLine(t); c.message != "" {
		return c
	}
	if _, err := mail.ParseAddress(t.value); err != nil {
		return complaint{"is not a sender", `write one like "Approvals <no-reply@example.com>"`}
	}
	return complaint{}
}

// credentialWord finds the names of headers, parameters and members that hold credentials.
var credentialWord = regexp.MustCompile(`(?i)auth|token|secret|passw|credential|cookie|signature|api[-_]?key|access[-_]?key|^(key|sig|sign|pwd)$`)

// isCredential says whether what is called so holds a credential.
func isCredential(name string) bool { return credentialWord.MatchString(name) }

// fromOutside says whether a text as it is written takes any of its value from the environment or a file.
func fromOutside(raw string) bool {
	return reference.MatchString(raw) || strings.HasPrefix(raw, filePrefix)
}

// writtenOut is the complaint about a credential that stands in the file.
func writtenOut(what string) complaint {
	return complaint{"holds " + what + " written out", "take it from the environment, as ${NAME}, or from file:/path"}
}

func checkCredential(t text) complaint {
	if !fromOutside(t.raw) {
		return writtenOut("a credential")
	}
	return checkRequestHeader(t)
}

// webhookPath finds the paths whose last part is what lets one in: those of chat services' incoming webhooks.
var webhookPath = regexp.MustCompile(`(?i)(^/services/|/hooks?/|/webhooks?/|/bot[0-9]+:)`)

// checkRequestURL tests a provider's URL: as it is written, for credentials, and as it is then, for its form.
func checkRequestURL(t text) complaint {
	if c := checkHTTPURL(t); c.message != "" {
		return c
	}
	if c := checkTemplate(t); c.message != "" || strings.HasPrefix(t.raw, filePrefix) {
		return c
	}
	const mark = "from-outside" // stands for what comes from there, so that the rest can be taken apart
	u, err := url.Parse(reference.ReplaceAllString(t.raw, mark))
	if err != nil {
		return complaint{}
	}
	for name, values := range u.Query() {
		for _, value := range values {
			if isCredential(name) && value != "" && !strings.Contains(value, mark) && !strings.Contains(value, "{{") {
				return writtenOut("a token")
			}
		}
	}
	if webhookPath.MatchString(u.Path) && !strings.Contains(u.Path, mark) {
		last := u.Path[strings.LastIndexByte(u.Path, '/')+1:]
		if len(last) >= 16 || strings.Contains(u.Path, "/bot") {
			return writtenOut("a token")
		}
	}
	return complaint{}
}

func checkRequestHeader(t text) complaint {
	if c := checkLine(t); c.message != "" {
		return c
	}
	return checkTemplate(t)
}

// bodyCredential finds members and form fields of a body, with what stands behind them.
var bodyCredential = regexp.MustCompile(`"([A-Za-z0-9_-]+)"\s*:\s*"([^"]*)"|(?:^|&)([A-Za-z0-9_-]+)=([^&]*)`)

func checkRequestBody(t text) complaint {
	for _, m := range bodyCredential.FindAllStringSubmatch(t.raw, -1) {
		name, value := m[1]+m[3], m[2]+m[4]
		if isCredential(name) && value != "" && !reference.MatchString(value) && !strings.Contains(value, "{{") {
			return writtenOut("a credential")
		}
	}
	return checkTemplate(t)
}

// errNoTemplate is what a template that cannot be tested comes to.
var errNoTemplate = errors.New("does not work as a template")

// checkTemplate tests a text/template of a request by carrying it out on a sample.
func checkTemplate(t text) complaint {
	err := tryTemplate(t.value)
	if err == nil {
		return complaint{}
	}
	message := errNoTemplate.Error()
	if !t.outside {
		_, words, _ := strings.Cut(err.Error(), "template: request:")
		message += ": " + cut(words, 160)
	}
	return complaint{message, "it sees .address, .subject, .body, .biz_type, .locale, .delivery.id, .request.id and .recipient.id, and has the function json"}
}

func tryTemplate(source string) (err error) {
	defer func() {
		if recover() != nil {
			err = errNoTemplate
		}
	}()
	parsed, err := template.New("request").Option("missingkey=error").Funcs(template.FuncMap{"json": sampleJSON}).Parse(source)
	if err != nil {
		return fmt.Errorf("parsing: %w", err)
	}
	id := map[string]any{"id": "x"}
	sample := map[string]any{"address": "x", "subject": "x", "body": "x", "biz_type": "x", "locale": "x", "delivery": id, "request": id, "recipient": id}
	if err := parsed.Execute(io.Discard, sample); err != nil {
		return fmt.Errorf("trying: %w", err)
	}
	return nil
}

func sampleJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}
