// Package verify answers one question: does this push come from the sender that it claims to come from?
//
// One file holds one scheme: what is signed, how, and where the signature stands. A new scheme is a file with a type that implements
// [Verifier], its fields in [Config], and a line in the table constructors below; Kinds, New and the tests that run over every kind
// then know it. Handshakes that senders make by a GET belong here, too.
//
// A scheme accepts exactly one spelling of a signature. Where senders' libraries disagree (upper-case hex, unpadded base64) the strict
// side is taken.
package verify

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Verifier checks pushes of one source. It is safe for concurrent use and keeps nothing of a request.
type Verifier interface {
	// Verify returns nil if the sender is proven, a *Refusal if not. Any other error is a fault of ours, of which the sender is not to blame.
	Verify(Request) error
}

// Request is what a scheme may look at.
type Request struct {
	Method   string
	Header   http.Header // names in canonical form, as net/http delivers them
	RawQuery string
	Body     []byte    // the exact bytes that were pushed
	Now      time.Time // the receiver's clock, for schemes that sign a time
}

// Refusal says why a push was not accepted. It holds nothing of the push and nothing of a secret.
type Refusal struct{ Reason Reason }

func (r *Refusal) Error() string { return r.Reason.Text() }

// Reason is why a push was refused: one of a closed set, fit for a metric's label.
type Reason string

// The reasons of all schemes.
const (
	MissingSignature   Reason = "missing_signature"
	MalformedSignature Reason = "malformed_signature"
	NonCanonical       Reason = "non_canonical"
	BadSignature       Reason = "bad_signature"
)

var texts = map[Reason]string{
	MissingSignature:   "the request carries no signature in the configured header; is this the sender's header, and does the sender have the secret?",
	MalformedSignature: "what stands in the signature header is not one signature of this scheme: its prefix, encoding or length differs, or there are several",
	NonCanonical:       "the signature is spelled in a form that the scheme does not use (upper-case hex, stray bits in base64)",
	BadSignature:       "the signature was not made with any of our secrets over these bytes; do the secrets agree, and does nothing between the sender and here change the body?",
}

// Reasons returns all reasons, sorted.
func Reasons() []Reason { return slices.Sorted(maps.Keys(texts)) }

// Text explains the reason to an operator.
func (r Reason) Text() string {
	if text, ok := texts[r]; ok {
		return text
	}
	return "refused for an unknown reason"
}

// Config is what a scheme needs. Behind each field stand the kinds that read it; the others ignore it.
type Config struct {
	// Header is the request header that carries the signature; its case does not matter. (hmac)
	Header string
	// Prefix stands before the signature in the header, exactly so: "sha256=". Default empty. (hmac)
	Prefix string
	// Encoding is how the signature is written. Default hex. (hmac)
	Encoding Encoding
	// Secrets are the keys, of which any may have signed: while a sender changes its secret, both are listed. (hmac)
	Secrets [][]byte
}

// Encoding is a way to write bytes.
type Encoding string

// The encodings.
const (
	Hex    Encoding = "hex"    // in lower case
	Base64 Encoding = "base64" // the standard alphabet, padded
)

var constructors = map[string]func(Config) (Verifier, error){
	"none": newNone,
	"hmac": newHMAC,
}

// Kinds returns the names of all schemes, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(constructors)) }

// New returns the verifier of a scheme. Its errors name the field that is wrong, never a secret.
func New(kind string, c Config) (Verifier, error) {
	construct, ok := constructors[kind]
	if !ok {
		return nil, fmt.Errorf("verify: unknown kind %q; known are %s", kind, strings.Join(Kinds(), ", "))
	}
	v, err := construct(c)
	if err != nil {
		return nil, fmt.Errorf("verify: kind %s: %w", kind, err)
	}
	return v, nil
}
