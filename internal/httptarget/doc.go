// Package httptarget answers how a message is carried to an HTTP target, and
// what came of it.
//
// One Handle is one POST with the exact body and content type that the sender
// pushed. It promises that a request is sent at most once in one Handle (a
// connection that breaks is a failed attempt, not a second request), that
// redirects are not followed, that no address is connected to which is not a
// public one, unless allowed, and that no text it returns holds the URL's
// credentials, path or query, or the value of a header.
//
// Addresses are checked when the connection is made, on the address that the
// name has resolved to, so a name that changes its mind between a check and
// its use gains nothing. For the same reason proxies are not used, whatever
// the environment says: behind one, the address would be the proxy's choice.
//
// It speaks HTTP/1.1 and keeps connections open between messages.
package httptarget
