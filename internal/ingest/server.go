package ingest

import (
	"net/http"
	"time"
)

// The numbers of NewServer.
const (
	readHeaderTimeout = 5 * time.Second   // for the header, from its first byte (the first header: from the connection's start)
	readTimeout       = 10 * time.Second  // from the header's first byte to the body's end, where the handler sets no other
	writeTimeout      = 45 * time.Second  // from the header's end to the answer's; above MaxAnswerWithin
	idleTimeout       = 120 * time.Second // between two requests
	maxHeaderBytes    = 64 << 10          // request line and header; net/http adds 4 KiB and answers 431
)

// NewServer returns a server with settings that suit a door: it bounds how long
// a client may take for its request and for reading the answer, and how large
// the header is. The door sets the body's time itself, per source; every other
// handler has 10 s, since net/http waits for a body's rest also after the
// answer. A handler that wants more says so through an http.ResponseController.
// TLS, address, the number of connections and the log are the caller's.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
}
