package config

import (
	"net/mail"
	"net/url"
	"regexp"
	"strings"
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

func checkRequestHeader(t text) complaint {
	if c := checkLine(t); c.message != "" {
		return c
	}
	if hasCredential(t.raw) {
		return writtenOut("a credential")
	}
	return complaint{}
}

func checkCredential(t text) complaint {
	if spelledOut(t.raw) {
		return writtenOut("a credential")
	}
	return checkRequestHeader(t)
}

// checkRequestURL tests a provider's URL: as it is written, for credentials, and as it is then, for its form.
func checkRequestURL(t text) complaint {
	if c := checkHTTPURL(t); c.message != "" {
		return c
	}
	if credentialInURL(t.raw) {
		return writtenOut("a token")
	}
	return complaint{}
}

func checkRequestBody(t text) complaint {
	if credentialInBody(t.raw) || hasCredential(t.raw) {
		return writtenOut("a credential")
	}
	return complaint{}
}

// RequestFault is what keeps a provider's request from being sent.
type RequestFault struct {
	Key     string // of request: method, url, headers.NAME with the name as it was given, or body
	Problem string // in words that repeat nothing of what was given
	Detail  string // more of it, in words that may
	Mend    string // what to do, in words that repeat nothing either; may be empty
}

// requestPairs has the caller test the request as a whole. What has been reported already is not told again.
func (d *decoder) requestPairs(path string, r Request) {
	if d.params.CheckRequest == nil || !d.sound(path) {
		return
	}
	headers := make(map[string]string, len(r.Headers))
	for name, value := range r.Headers {
		headers[name] = value.Reveal()
	}
	for _, f := range d.params.CheckRequest(r.Method, r.URL.Reveal(), headers, r.Body.Reveal()) {
		here := join(path, f.Key)
		if name, isHeader := strings.CutPrefix(f.Key, "headers."); isHeader {
			here = join(join(path, "headers"), printable(name))
		}
		if !d.sound(here) {
			continue
		}
		message := f.Problem
		if f.Detail != "" && !d.read[here].outside {
			message += ": " + cut(f.Detail, 160)
		}
		d.fail(here, message, f.Mend)
	}
	d.clearPair(path, r)
}

// clearPair: credentials do not travel in the clear.
func (d *decoder) clearPair(path string, r Request) {
	here := join(path, "url")
	u, err := url.Parse(r.URL.Reveal())
	if err != nil || u.Scheme != "http" || isLoopbackHost(u.Hostname()) || !d.sound(here) {
		return
	}
	_, written, found := strings.Cut(d.read[here].raw, "://")
	behindHost := max(strings.IndexAny(written, "/?"), 0)
	secret := !found || refers(written[behindHost:]) || d.read[join(path, "body")].outside
	for name := range r.Headers {
		secret = secret || isCredential(name) || d.read[join(join(path, "headers"), printable(name))].outside
	}
	if secret {
		d.warn(here, "is http: the request's credentials are sent in the clear", "write https://")
	}
}
