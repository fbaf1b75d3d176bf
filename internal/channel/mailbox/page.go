package mailbox

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// Path is where the pages stand: the list there, one message at Path/{id}, its
// HTML alone at Path/{id}/html, its source at Path/{id}/source.
const Path = "/dev/mailbox"

//go:embed style.css
var style string

//go:embed pages.html
var pages string

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(style) }, //nolint:gosec // it is ours
	"clock": func(t time.Time) string { return t.Format("15:04:05") },
	"date":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"path":  func() string { return Path },
}).Parse(pages))

// policy lets a page show itself, its style, and its own frames; no script, and
// nothing from elsewhere.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// framePolicy is for a message's own HTML: it may have its styles and the
// pictures that it holds itself, and reaches nothing: also no pixel that counts
// who has read it.
const framePolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox"

// ServeHTTP shows the pages, for requests whose path begins with Path.
func (b *Mailbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path+"/{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, Path, http.StatusMovedPermanently) })
	mux.HandleFunc("GET "+Path, b.list)
	mux.HandleFunc("GET "+Path+"/{id}", b.one(func(w http.ResponseWriter, o opened) { show(w, "message", http.StatusOK, o) }))
	mux.HandleFunc("GET "+Path+"/{id}/html", b.one(func(w http.ResponseWriter, o opened) {
		w.Header().Set("Content-Security-Policy", framePolicy)
		answer(w, "text/html; charset=utf-8", http.StatusOK, []byte(o.HTML))
	}))
	mux.HandleFunc("GET "+Path+"/{id}/source", b.one(func(w http.ResponseWriter, o opened) {
		w.Header().Set("Content-Security-Policy", policy)
		answer(w, "text/plain; charset=utf-8", http.StatusOK, o.Raw)
	}))
	mux.ServeHTTP(w, r)
}

func (b *Mailbox) list(w http.ResponseWriter, _ *http.Request) {
	show(w, "list", http.StatusOK, map[string]any{"Messages": b.Messages(), "Capacity": capacity, "From": b.from.Address.String()})
}

// one finds the message that a request names.
func (b *Mailbox) one(then func(http.ResponseWriter, opened)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := uuid.Parse(r.PathValue("id"))
		var m *Message
		if err == nil {
			m = b.find(id)
		}
		if m == nil {
			show(w, "missing", http.StatusNotFound, map[string]any{"Capacity": capacity})
			return
		}
		o, err := m.open()
		if err != nil {
			o.Text = "This message cannot be taken apart; see its source."
		}
		then(w, o)
	}
}

func show(w http.ResponseWriter, name string, status int, data any) {
	var page bytes.Buffer
	if err := templates.ExecuteTemplate(&page, name, data); err != nil {
		http.Error(w, "the page cannot be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Security-Policy", policy)
	answer(w, "text/html; charset=utf-8", status, page.Bytes())
}

func answer(w http.ResponseWriter, kind string, status int, body []byte) {
	header := w.Header()
	header.Set("Content-Type", kind)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	w.WriteHeader(status)
	_, _ = w.Write(body) // nobody to tell when he has gone
}
