// Package ingest is the door: it answers a push once it is kept, and only then
// with 2xx.
//
//	POST /in/{source} ─▶ Door: method ─ source ─ concurrency ─ size ─ signature ─ empty ─ accept ─ keys
//	                      │                                                                         │
//	                      ◀── answer ── commit ── Writer: all that waits, in one transaction ◀──────┘
//
// What it promises: a 2xx means that the message is committed, or that one with
// the sender's same key was before, or that the source's own rules say that it
// is not wanted. Our own faults are 503 with
// Retry-After, never 4xx. Every answer comes within AnswerWithin of the
// request's headers, whatever the store does. What was answered 503 may be kept
// only if the store was already at work on it. Bodies in memory, concurrency and
// queue are bounded, and shared fairly between sources.
//
// What it does not: it never handles a message, and it reads nothing from the
// store. Whether a push is a duplicate is the store's to say, in the transaction
// that would keep it: the door gives it the hash of the sender's key. Where a
// message stands in its source's order is said here, by the key that the cluster
// has agreed on (SetAgreed) whatever the configuration says, and by Placer for
// what was kept under another one.
//
// A push that reached the Writer is a row, and belongs to one of two:
//
//	      keep           take            answer
//	door ──────▶ waiting ─────▶ taken ──────────▶ answered ──▶ door
//	               │  ▲           │ │
//	               │  └───────────┘ └─ deadline ─▶ abandoned ──▶ the Writer frees it after the store's call
//	               │  unavailable,
//	               │  still awaited
//	               └─ deadline, hung up ─▶ answered: never inserted, if it was not tried
//
// The Writer's lock is the authority on these states.
package ingest
