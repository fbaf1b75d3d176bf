// Package running answers one question for tests of the whole: what is there to run the real binary with, and to judge
// it from outside?
//
// Servers are child processes, built with the crash points of package crashpoint, that can be killed, frozen, thawed
// and started again; a Load pushes to their doors over HTTP as senders do; a Target is where all handlers lead. It
// lives in the test's process, so that it survives every kill, and remembers each execution, with the instance that
// made it. An Audit judges in the end only by what can be seen from outside: the answers, the target's memory, the rows
// in the database, the API, the metrics and the log.
//
//	Load ──POST /in/…──▶ Server … (child processes) ──POST──▶ Target
//	                        │  ▲
//	        database ◀──────┘  └── started, killed, restarted by the test
//
// Several servers with one configuration are the instances of one cluster: their files are the same to the byte, what
// differs (addresses, name) comes from the environment.
package running
