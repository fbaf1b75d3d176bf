package verify

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// hmacBody is HMAC-SHA256 over the raw body, written to one header: GitHub and Meta (X-Hub-Signature-256: sha256=hex), Shopify
// (X-Shopify-Hmac-Sha256: base64), and many others' own.
type hmacBody struct {
	header   string
	prefix   string
	encoding Encoding
	macs     sync.Pool // of *macs
}

// macs are the hashes of one check, one for each secret: keyed once, used again.
type macs struct {
	keyed []hash.Hash
	sum   [sha256.Size]byte
}

var _ Verifier = (*hmacBody)(nil)

func newHMAC(c Config) (Verifier, error) {
	if !isToken(c.Header) {
		return nil, errors.New("header: the name of the request header that carries the signature is needed")
	}
	if strings.ContainsAny(c.Prefix, "\r\n") {
		return nil, errors.New("prefix: a line break cannot stand in a header")
	}
	if c.Encoding == "" {
		c.Encoding = Hex
	}
	if c.Encoding != Hex && c.Encoding != Base64 {
		return nil, fmt.Errorf("encoding: %q is neither %s nor %s", c.Encoding, Hex, Base64)
	}
	if len(c.Secrets) == 0 {
		return nil, errors.New("secrets: at least one is needed")
	}
	secrets := make([][]byte, len(c.Secrets))
	for i, s := range c.Secrets {
		if len(s) == 0 {
			return nil, fmt.Errorf("secrets: number %d is empty: anyone could sign with it", i+1)
		}
		secrets[i] = slices.Clone(s)
	}
	v := &hmacBody{header: http.CanonicalHeaderKey(c.Header), prefix: c.Prefix, encoding: c.Encoding}
	v.macs.New = func() any {
		m := &macs{keyed: make([]hash.Hash, len(secrets))}
		for i, s := range secrets {
			m.keyed[i] = hmac.New(sha256.New, s)
		}
		return m
	}
	return v, nil
}

func (v *hmacBody) Verify(r Request) error {
	values := r.Header[v.header]
	switch {
	case len(values) == 0, len(values) == 1 && values[0] == "":
		return &Refusal{MissingSignature}
	case len(values) > 1: // which of them counts would depend on who reads them
		return &Refusal{MalformedSignature}
	}
	text, ok := strings.CutPrefix(values[0], v.prefix)
	if !ok {
		return &Refusal{MalformedSignature}
	}
	signature, reason := decode(v.encoding, text)
	if reason != "" {
		return &Refusal{reason}
	}
	m, _ := v.macs.Get().(*macs)
	defer v.macs.Put(m)
	// All secrets are tried, whichever fits, so that the time tells nothing about which one did.
	fits := 0
	for _, mac := range m.keyed {
		mac.Reset()
		mac.Write(r.Body)
		fits |= subtle.ConstantTimeCompare(mac.Sum(m.sum[:0]), signature[:])
	}
	if fits != 1 {
		return &Refusal{BadSignature}
	}
	return nil
}

// decode reads a signature in the one way in which it may be written; reason is empty if it is.
func decode(e Encoding, text string) (signature [sha256.Size]byte, reason Reason) {
	var raw [sha256.Size + 1]byte // DecodedLen counts the padding in
	switch {
	case e == Hex && len(text) == hex.EncodedLen(sha256.Size):
		if _, err := hex.Decode(raw[:], []byte(text)); err != nil {
			return signature, MalformedSignature
		}
		if strings.ContainsAny(text, "ABCDEF") {
			return signature, NonCanonical
		}
	case e == Base64 && len(text) == base64.StdEncoding.EncodedLen(sha256.Size) && !strings.ContainsAny(text, "\r\n"):
		if n, err := base64.StdEncoding.Decode(raw[:], []byte(text)); err != nil || n != sha256.Size {
			return signature, MalformedSignature
		}
		if _, err := base64.StdEncoding.Strict().Decode(raw[:], []byte(text)); err != nil {
			return signature, NonCanonical
		}
	default:
		return signature, MalformedSignature
	}
	copy(signature[:], raw[:])
	return signature, ""
}

// isToken says whether s can be a header's name (RFC 9110, 5.1).
func isToken(s string) bool {
	for _, r := range s {
		if !strings.ContainsRune("!#$%&'*+-.^_`|~", r) && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z') {
			return false
		}
	}
	return s != ""
}
