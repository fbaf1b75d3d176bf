package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

const (
	// requestTimeout bounds an admin request; the store's own bound for a read
	// is shorter.
	requestTimeout = 15 * time.Second
)

// guard stands before every request. See the package's comment for what it
// keeps out.
type guard struct {
	next       http.Handler
	listenHost string // of the configured address
	log        *slog.Logger
	origin     *http.CrossOriginProtection
}

func newGuard(next http.Handler, listen string, log *slog.Logger) *guard {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		host = listen
	}
	return &guard{next: next, listenHost: strings.ToLower(host), log: log, origin: http.NewCrossOriginProtection()}
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer g.recover(w, &r)
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")

	if !g.ourHost(r) {
		writeProblem(w, newProblem(http.StatusMisdirectedRequest,
			"This address answers to localhost, to loopback addresses and to the address that it listens on, and to no other name."))
		return
	}
	if g.origin.Check(r) != nil {
		writeProblem(w, newProblem(http.StatusForbidden, "A browser sent this from a page of another origin."))
		return
	}
	if !plainPath(r.URL.EscapedPath()) {
		writeProblem(w, nothingHere()) // the mux would answer a redirect, in HTML
		return
	}
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		if p := checkQuery(r.URL.RawQuery); p != nil {
			writeProblem(w, p)
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, bodyLimit(r.URL.Path)+1) // the operation tells what is longer
	g.next.ServeHTTP(w, r)
}

// recover answers where a handler panicked. r is the request as it was handed on:
// the one that has its pattern.
func (g *guard) recover(w http.ResponseWriter, r **http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	// The path is ours or a stranger's; only its pattern is known to be harmless.
	// Of the cause only the type: its text may hold what was sent.
	g.log.Error("an admin request panicked", "pattern", (*r).Pattern, "panic_type", fmt.Sprintf("%T", cause), "stack", string(debug.Stack()))
	writeProblem(w, newProblem(http.StatusInternalServerError, textOf("")))
}

// ourHost says whether the request was meant for us: a page whose name was
// made to point here after it was loaded still sends its own name.
func (g *guard) ourHost(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" {
		return false
	}
	if host == "localhost" || host == g.listenHost {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return false
	}
	if ip.Unmap().IsLoopback() {
		return true
	}
	// Where it listens on all addresses, the one that the client has reached.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	reached, err := netip.ParseAddrPort(local.String())
	return err == nil && reached.Addr().Unmap().WithZone("") == ip.Unmap()
}

// plainPath says whether a path has no part that is empty or of dots.
func plainPath(p string) bool {
	clean := path.Clean(p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return p == clean
}

// checkQuery refuses a query that would be read otherwise than it was meant.
func checkQuery(raw string) *Problem {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return invalid(ProblemError{"query", "expected a well-formed query string"})
	}
	var faults []ProblemError
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if len(query[name]) > 1 {
			faults = append(faults, ProblemError{"query." + name, "expected at most once"})
		}
	}
	if faults == nil {
		return nil
	}
	return invalid(faults...)
}
