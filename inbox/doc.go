// Package inbox receives what third parties push without losing any of it, and
// hands each message to a handler in the background.
//
// A push is answered 2xx when, and only when, its message is durably kept;
// handling comes afterwards, at least once, with retries, one at a time per
// source unless the source asks for more. Handlers must therefore bear to see
// a message twice: after a crash between a handler's effect and its outcome
// being written down, it is executed again.
//
// A store comes from one of the packages sqlite, postgres and mysql below this
// one, so that a program links only the driver that it uses. The example is a
// whole program.
//
// The states of a message are drawn in the documentation under Concepts.
package inbox
