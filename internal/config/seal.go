package config

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/posthouse/posthouse/internal/model"
)

// The labels keep the uses of one key apart: none of the derived keys is of use for another.
const (
	sealLabel    = "posthouse seal 1:"
	contentLabel = "posthouse content 1"
)

// sealedFormat is the first byte of what [KeyRing.Seal] makes, so that another form can be told from it.
const sealedFormat = 1

// ErrNoKey says that what is kept was written under a key that the ring does not hold (any more).
var ErrNoKey = errors.New("its key is not in the ring")

// errSealed says no more than it must: whether key, context or bytes are wrong is nobody's business.
var errSealed = errors.New("the sealed value was changed, or belongs elsewhere")

func newKeyOfRing(id string, secret []byte) (Key, error) {
	extract, err := hkdf.Extract(sha256.New, secret, nil)
	if err != nil {
		return Key{}, fmt.Errorf("deriving from the key: %w", err)
	}
	content, err := hkdf.Expand(sha256.New, extract, contentLabel, sha256.Size)
	if err != nil {
		return Key{}, fmt.Errorf("deriving from the key: %w", err)
	}
	return Key{ID: id, secret: secret, extract: extract, content: content}, nil
}

// Seal encrypts under the current key (AES-256-GCM). The context says whose value it is, as in "address:<delivery id>":
// it is not kept, and without it the value cannot be opened, so that one row's value is of no use in another. An empty
// plain makes the zero Sealed.
func (r *KeyRing) Seal(plain []byte, context string) model.Sealed {
	if len(plain) == 0 {
		return model.Sealed{}
	}
	key := r.Current()
	sealed := key.aead(context).Seal([]byte{sealedFormat}, nil, plain, []byte(context)) //nolint:gosec // this AEAD makes its nonces itself
	return model.Sealed{KeyID: key.ID, Bytes: sealed}
}

// Open returns what was sealed under any key of the ring; nil for the zero Sealed. The error is [ErrNoKey], or says that
// the value was changed or sealed in another context; it holds nothing of the value.
func (r *KeyRing) Open(s model.Sealed, context string) ([]byte, error) {
	if len(s.Bytes) == 0 {
		return nil, nil
	}
	key := r.find(s.KeyID)
	switch {
	case key == nil:
		return nil, ErrNoKey
	case s.Bytes[0] != sealedFormat:
		return nil, errSealed
	}
	plain, err := key.aead(context).Open(nil, nil, s.Bytes[1:], []byte(context))
	if err != nil {
		return nil, errSealed
	}
	return plain, nil
}

// aead derives a key of its own for each context, so that however much is sealed, no key ever sees enough random
// nonces for two of them to meet.
func (k Key) aead(context string) cipher.AEAD {
	derived, err := hkdf.Expand(sha256.New, k.extract, sealLabel+context, 32)
	if err == nil {
		var block cipher.Block
		if block, err = aes.NewCipher(derived); err == nil {
			var aead cipher.AEAD
			if aead, err = cipher.NewGCMWithRandomNonce(block); err == nil {
				return aead
			}
		}
	}
	panic("config: AES-256-GCM cannot be set up: " + err.Error()) // the lengths are constants
}

// Content fingerprints the fields of a request under the current key. Equal fields have equal fingerprints while that
// key stays, and a fingerprint tells nothing to whoever lacks the key.
func (r *KeyRing) Content(fields [model.ContentFields][]byte) model.Content {
	return r.Current().fingerprint(fields)
}

// SameContent names the fields that differ from those of which c was made, whichever key of the ring made it. The error
// is [ErrNoKey].
func (r *KeyRing) SameContent(c model.Content, fields [model.ContentFields][]byte) (differs []string, err error) {
	key := r.find(c.KeyID)
	if key == nil {
		return nil, ErrNoKey
	}
	now := key.fingerprint(fields)
	for i := range now.Fields {
		if !hmac.Equal(now.Fields[i][:], c.Fields[i][:]) {
			differs = append(differs, model.ContentField[i])
		}
	}
	return differs, nil
}

func (k Key) fingerprint(fields [model.ContentFields][]byte) model.Content {
	c := model.Content{KeyID: k.ID}
	var sum [sha256.Size]byte
	mac := hmac.New(sha256.New, k.content)
	for i, field := range fields {
		mac.Reset()
		mac.Write([]byte{byte(i)}) // the same text in two fields is two things
		mac.Write(field)
		copy(c.Fields[i][:], mac.Sum(sum[:0]))
	}
	return c
}
