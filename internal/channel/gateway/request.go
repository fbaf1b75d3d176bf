package gateway

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/posthouse/posthouse/internal/channel"
)

// maxRequest bounds a rendered request's body, and each of its other parts, in bytes.
const maxRequest = 1 << 20

// placeholder stands for an action where a URL is checked.
const placeholder = "x-posthouse-x"

// request is a compiled description of requests.
type request struct {
	method  string
	url     *template.Template
	headers []header
	body    *template.Template // nil: none
	json    bool               // the body is JSON
}

type header struct {
	name  string
	value *template.Template
}

// safe are the values that need no escaping wherever they stand.
var safe = map[string]bool{".delivery.id": true, ".request.id": true, ".now_ms": true}

// escapers are the functions with which a value must end, by what it stands in.
var escapers = map[string][]string{
	"application/json":                  {"json"},
	"application/x-www-form-urlencoded": {"urlquery"},
}

// compile checks the templates. A value in a JSON or form body must be escaped
// for it, or a text could become further members; in a URL every value is
// escaped here.
func compile(c Config) (request, error) {
	r := request{method: c.Method}
	if !httpguts.ValidHeaderFieldName(c.Method) {
		return r, errors.New("method is not a method of HTTP")
	}
	var err error
	if r.url, err = parseTemplate("url", c.URL); err != nil {
		return r, err
	}
	fixed, err := fill(r.url)
	if err != nil {
		return r, err
	}
	if err := checkURL(fixed); err != nil {
		return r, err
	}
	escapeAll(r.url)
	contentType := ""
	for name, value := range c.Headers {
		name = http.CanonicalHeaderKey(name)
		if !httpguts.ValidHeaderFieldName(name) || name == "Host" || name == "Content-Length" || name == "Transfer-Encoding" {
			return r, errors.New("headers: one has a name that cannot be set")
		}
		if name == "Content-Type" {
			contentType = value
		}
		t, err := parseTemplate("headers."+name, value)
		if err != nil {
			return r, err
		}
		r.headers = append(r.headers, header{name, t})
	}
	slices.SortFunc(r.headers, func(a, b header) int { return strings.Compare(a.name, b.name) })
	if c.Body == "" {
		return r, nil
	}
	if contentType == "" {
		contentType = "text/plain; charset=utf-8"
		if strings.ContainsRune("{[", rune(strings.TrimSpace(c.Body)[0])) && !strings.HasPrefix(strings.TrimSpace(c.Body), "{{") {
			contentType = "application/json"
		}
		t, _ := parseTemplate("headers.Content-Type", contentType) // fixed text
		r.headers = append(r.headers, header{"Content-Type", t})
	}
	if r.body, err = parseTemplate("body", c.Body); err != nil {
		return r, err
	}
	media, _, _ := mime.ParseMediaType(contentType)
	r.json = media == "application/json" || strings.HasSuffix(media, "+json")
	if r.json {
		media = "application/json"
	}
	if wanted := escapers[media]; wanted != nil {
		if action := unescaped(r.body, wanted); action != "" {
			return r, fmt.Errorf("body: %s stands in %s unescaped; write {{%s %s}}", action, media, wanted[0], strings.Trim(action, "{}"))
		}
	}
	return r, nil
}

var functions = template.FuncMap{
	"json":     toJSON,
	"urlquery": escapeURL,
	"escaped":  escapeURL,
	// What some providers sign requests with.
	"hmac_sha256_base64": func(key, text string) string {
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(text))
		return base64.StdEncoding.EncodeToString(mac.Sum(nil))
	},
}

func toJSON(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// escapeURL escapes for every part of a URL, and for form bodies.
func escapeURL(v any) string { return strings.ReplaceAll(url.QueryEscape(fmt.Sprint(v)), "+", "%20") }

func parseTemplate(name, text string) (*template.Template, error) {
	t, err := template.New(name).Option("missingkey=error").Funcs(functions).Parse(text)
	if err != nil {
		// The text may hold a credential, and the error quotes parts of it.
		return nil, fmt.Errorf("%s is not a valid template", name)
	}
	if _, err := execute(t, sample()); err != nil {
		return nil, fmt.Errorf("%s: a value is misspelt; there are .address, .body, .subject, .delivery.id, .request.id, .recipient.id, .biz_type, .locale and .now_ms", name)
	}
	return t, nil
}

// fill replaces every action of a template by a placeholder.
func fill(t *template.Template) (string, error) {
	var b strings.Builder
	for _, n := range t.Root.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			b.Write(n.Text)
		case *parse.ActionNode:
			b.WriteString(placeholder)
		default:
			return "", fmt.Errorf("%s: only values may stand in it, no conditions or loops", t.Name())
		}
	}
	return b.String(), nil
}

// escapeAll has every action of a URL end with an escape, whatever it does before.
func escapeAll(t *template.Template) {
	for _, n := range t.Root.Nodes {
		if a, ok := n.(*parse.ActionNode); ok && !endsWith(a.Pipe, escapers["application/x-www-form-urlencoded"]) {
			a.Pipe.Cmds = append(a.Pipe.Cmds, &parse.CommandNode{
				NodeType: parse.NodeCommand, Pos: a.Pos,
				Args: []parse.Node{parse.NewIdentifier("escaped").SetPos(a.Pos).SetTree(t.Tree)},
			})
		}
	}
}

// unescaped returns the first action that writes a value without one of the
// functions at its end.
func unescaped(t *template.Template, wanted []string) (action string) {
	var walk func(n parse.Node)
	list := func(l *parse.ListNode) {
		if l != nil {
			for _, n := range l.Nodes {
				walk(n)
			}
		}
	}
	walk = func(n parse.Node) {
		switch n := n.(type) {
		case *parse.ActionNode:
			if action == "" && len(n.Pipe.Decl) == 0 && !safe[n.Pipe.String()] && !endsWith(n.Pipe, wanted) {
				action = n.String()
			}
		case *parse.IfNode:
			list(n.List)
			list(n.ElseList)
		case *parse.WithNode:
			list(n.List)
			list(n.ElseList)
		case *parse.RangeNode:
			list(n.List)
			list(n.ElseList)
		case *parse.ListNode:
			list(n)
		}
	}
	for _, each := range t.Templates() {
		if each.Tree != nil {
			list(each.Root)
		}
	}
	return action
}

func endsWith(p *parse.PipeNode, wanted []string) bool {
	last := p.Cmds[len(p.Cmds)-1]
	name, ok := last.Args[0].(*parse.IdentifierNode)
	return ok && slices.Contains(wanted, name.Ident)
}

func values(m channel.Message, now time.Time) map[string]any {
	return map[string]any{
		"address": m.Address, "body": m.Text, "subject": m.Subject, "biz_type": m.BizType, "locale": m.Locale,
		"delivery":  map[string]any{"id": m.ID.String()},
		"request":   map[string]any{"id": m.RequestID.String()},
		"recipient": map[string]any{"id": m.Recipient},
		"now_ms":    now.UnixMilli(),
	}
}

func sample() map[string]any { return values(channel.Message{}, time.Time{}) }

// capped refuses what is longer than maxRequest.
type capped struct{ bytes.Buffer }

var errTooLong = errors.New("too long")

func (c *capped) Write(p []byte) (int, error) {
	if c.Len()+len(p) > maxRequest {
		return 0, errTooLong
	}
	return c.Buffer.Write(p)
}

func execute(t *template.Template, data any) (string, error) {
	var out capped
	err := t.Execute(&out, data)
	return out.String(), err
}

// build renders a request whole. Its errors repeat no value.
func (r request) build(ctx context.Context, m channel.Message, now time.Time) (*http.Request, error) {
	data := values(m, now)
	text := func(t *template.Template) (string, error) {
		s, err := execute(t, data)
		if err != nil {
			return "", fmt.Errorf("%s cannot be made of this notification, or is longer than %d bytes", t.Name(), maxRequest)
		}
		return s, nil
	}
	address, err := text(r.url)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, nil)
	if err != nil {
		return nil, errors.New("url cannot be made of this notification")
	}
	for _, h := range r.headers {
		value, err := text(h.value)
		if err != nil {
			return nil, err
		}
		if !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("%s would hold a line break or another control character", h.value.Name())
		}
		req.Header.Set(h.name, value)
	}
	if r.body == nil {
		return req, nil
	}
	body, err := text(r.body)
	if err != nil {
		return nil, err
	}
	if r.json && !json.Valid([]byte(body)) {
		return nil, errors.New("body is not JSON with the values of this notification")
	}
	// Without GetBody the transport does not send it twice.
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return req, nil
}
