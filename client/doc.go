// Package client answers how a Go service says what happened and whom to tell,
// and how it learns what came of it: a typed client of the API of a running
// Posthouse. It needs nothing but the standard library.
//
//	c, err := client.New("http://127.0.0.1:8081", client.Options{})
//	receipt, err := c.Notify(ctx, client.Notification{
//		IdempotencyKey: "approval:9421:assignee:u1008:v3",
//		BizType:        "approval.todo",
//		Template:       "approval_todo",
//		Recipient:      client.Recipient{ID: "u1008", Email: "zhang@example.com"},
//		Variables:      map[string]any{"title": "Travel request"},
//	})
//
// # What is tried again
//
// Looking and Notify are tried again after a broken connection, a 429, and
// what says that the server is not there for the moment (502, 503, 504), a few
// times, not before the server asks for it (Retry-After), and not after ctx has
// ended. For Notify that is safe since the idempotency key names it: whatever
// the first try came to, the second finds it, and says Duplicate. What an
// operator does (cancel, replay, resolve, pause, resume, test) is never tried
// again: where the answer was lost, Error.Unknown says that it may have been
// done, and looking tells.
//
// # Errors
//
// Every error of a call is an *Error, to be had with errors.As. Its Code says
// what to do; its text names what was wrong, and never repeats what was sent.
//
// A Client may be used by many goroutines at once.
package client
