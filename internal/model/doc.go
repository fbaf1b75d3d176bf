// Package model is the vocabulary that several rooms share: what a message is,
// what is still to be done with it, and how that may change. It does no I/O.
//
// The states of a message, and the only ways between them:
//
//	          ┌────────── failed attempt or lost, tries left (attempt burned) ──────────┐
//	          │ ┌──────── released or postponed (attempt given back) ─────────────────┐ │
//	          ▼ ▼                                                                     │ │
//	insert ─▶ pending ───────────────────── claim ──────────────────────────▶ processing
//	          ▲  ▲                                                              │    │
//	   replay │  └───────────── forced replay ──────────┐                       │    │
//	          │                                         │                       │    │
//	        failed ◀──── tries spent, or permanent ─────┼───────────────────────┘    │
//	                                                    │                            │
//	insert (import) ───────────────────────────────▶ success ◀────── handled ────────┘
//
// A message is parted in three: the immutable row (Message), a narrow row of
// work that lives until the message has succeeded (Work), and an outcome that
// is written when it has. Success is therefore the absence of work and the
// presence of an outcome. The store is authoritative: every change is one
// statement guarded by state and token, and zero rows changed means that
// somebody else has moved the message meanwhile ("lost").
package model
