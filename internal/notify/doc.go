// Package notify answers one question: may this notification be kept, and what
// follows from it?
//
// Accept checks a submission, lets policy choose channels, freezes a template
// version for each, renders once to see that it can be rendered, and keeps the
// request, its user message and its deliveries in one transaction. Nothing
// outside of the store is called. What is kept is carried out elsewhere.
//
//	Submission ──▶ check ──▶ policy ──▶ freeze, render ──▶ group commit ──▶ Receipt
//	                 │          │            │                 │
//	                 ╰──────────┴── Invalid ─╯                 ├─▶ known key: Receipt with Duplicate, or Conflict
//	                                                           ╰─▶ Unavailable
//
// The idempotency key is what a request is: it is inserted first, never looked
// for first. Whoever submits again with the same key and the same content gets
// the first answer again. It promises that all of a request is kept or none of
// it, and not that anything is ever sent.
package notify
