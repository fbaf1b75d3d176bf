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
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/template"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/posthouse/posthouse/internal/channel"
)

// maxRequest bounds a rendered request's body, and each of its other parts, in bytes.
const maxRequest = 1 << 20

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

func values(m channel.Message, now time.Time) map[string]any {
	return map[string]any{
		"address": m.Address, "body": m.Text, "subject": m.Subject, "biz_type": m.BizType, "locale": m.Locale,
		"delivery":  map[string]any{"id": m.ID.String()},
		"request":   map[string]any{"id": m.RequestID.String()},
		"recipient": map[string]any{"id": m.Recipient},
		"now_ms":    now.UnixMilli(),
	}
}

// sample is what requests are tried with before there is anything to send.
func sample() map[string]any {
	return values(channel.Message{Address: "x", Subject: "x", Text: "x", BizType: "x", Locale: "x", Recipient: "x"}, time.Unix(0, 0))
}

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

// climbs says whether a part of a path is . or .., however it is escaped: what receives it may leave out the part before.
func climbs(path string) bool {
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	return slices.ContainsFunc(strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == '\\' }), func(part string) bool {
		return part == "." || part == ".."
	})
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
	if climbs(req.URL.EscapedPath()) {
		return nil, errors.New("url would have . or .. as a part of its path")
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
		// Neither is a request without a body repeated. With GET the transport sees that nothing is there, and tells of no
		// body; others would be sent in chunks, and so have a connection of their own.
		if r.method == http.MethodGet {
			req.Body = io.NopCloser(strings.NewReader(""))
		}
		req.Close = r.method != http.MethodGet
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
