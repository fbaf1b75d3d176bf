package ingest

import (
	"net/http"
	"time"
)

// The numbers of NewServer.
const (
	readHeaderTimeout = 5 * time.Second   // for the header, from its first byte (the first header: from the connection's start)
	writeTimeout      = 45 * time.Second  // from the header's end to the answer's; above MaxAnswerWithin
	idleTimeout       = 120 * time.Second // between two requests
	maxHeaderBytes    = 64 << 10          // request line and header; net/http adds 4 KiB and answers 431
)

// NewServer returns a server with settings that suit a door: it bounds how long
// a client may take for its header and for reading the answer, and how large
// the header is. The body's time is bounded by the door, per source. TLS,
// address and the log are the caller's.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
}
