// Package crash answers one question: is a push that was answered 2xx ever lost?
//
// Its tests run the real binary as a child process, push to its door over HTTP
// as senders do, and end it with SIGKILL, at named places of the code (package
// crashpoint) and at random moments; or they take its database away, let a
// message kill its worker, or never answer a handler's call. The target of all
// handlers lives in the test's process, so that it survives every kill and
// remembers each execution. What is judged in the end is only what can be seen
// from outside: the answers, the target's memory, the rows in the database, the
// API, the metrics and the log.
//
//	load ──POST /in/…──▶ server (child process) ──POST──▶ target
//	                        │  ▲
//	        database ◀──────┘  └── started, killed, restarted by the test
//
// POSTHOUSE_SOAK=1 makes the crash test long.
package crash
