// Package crash answers one question: is a push that was answered 2xx ever lost?
//
// Its tests run one instance of the real binary, push to its door as senders do, and end it with SIGKILL, at named
// places of the code (package crashpoint) and at random moments; or they take its database away, let a message kill its
// worker, or never answer a handler's call. What they run it with is package running. Several instances are the matter
// of package cluster.
//
// POSTHOUSE_SOAK=1 makes the crash test long.
package crash
