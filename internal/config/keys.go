package config

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// KeysVariable is the environment variable that holds the key ring.
const KeysVariable = "POSTHOUSE_KEYS"

// minKeyBytes is the least length of a key: that of the hash that it keys.
const minKeyBytes = 32

// maxKeys bounds a ring: keys are replaced now and then, not collected.
const maxKeys = 32

var keyID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// KeyRing holds the keys for what is kept hashed or encrypted: the first is the current one, the others keep what was
// written before a change of keys recognisable and readable. It never prints a key.
type KeyRing struct {
	keys []Key
}

// Key is one key of a ring, and its public name.
type Key struct {
	ID      string // 1 to 32 of A-Z, a-z, 0-9, _ and -
	secret  []byte
	extract []byte // what keys for encryption are derived from
	content []byte // the key of fingerprints
}

// ParseKeys reads "id:base64,id:base64,…", the first being current, at least 32 bytes each, in any of the usual
// base64 alphabets with or without padding. An error tells which entry is wrong and how, and repeats no key.
func ParseKeys(s string) (*KeyRing, error) {
	entries := strings.Split(strings.TrimSpace(s), ",")
	if len(entries) > maxKeys {
		return nil, fmt.Errorf("%d keys are more than %d", len(entries), maxKeys)
	}
	ring := &KeyRing{}
	for i, entry := range entries {
		key, err := parseKey(strings.TrimSpace(entry))
		if err != nil {
			return nil, fmt.Errorf("key %d of %d: %w", i+1, len(entries), err)
		}
		if ring.find(key.ID) != nil {
			return nil, fmt.Errorf("key %d of %d: its id is taken by an earlier one", i+1, len(entries))
		}
		ring.keys = append(ring.keys, key)
	}
	return ring, nil
}

// parseKey reads one "id:base64". Its errors do not even repeat the id: where the colon is missing, what looks like
// an id may be the key.
func parseKey(entry string) (Key, error) {
	id, text, found := strings.Cut(entry, ":")
	if !found {
		return Key{}, errors.New("not of the form id:base64")
	}
	if !keyID.MatchString(id) {
		return Key{}, errors.New("the id before the colon must be 1 to 32 of A-Z, a-z, 0-9, _ and -")
	}
	text = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
	secret, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return Key{}, errors.New("what follows the colon is not base64")
	}
	if len(secret) < minKeyBytes {
		return Key{}, fmt.Errorf("%d bytes are too few: a key has at least %d", len(secret), minKeyBytes)
	}
	return newKeyOfRing(id, secret)
}

// GenerateKey makes a random key in the form that [ParseKeys] reads, under the given id.
func GenerateKey(id string) string {
	secret := make([]byte, minKeyBytes)
	_, _ = rand.Read(secret) // never fails: crypto/rand ends the process instead
	return id + ":" + base64.StdEncoding.EncodeToString(secret)
}

// Current returns the key under which everything new is written.
func (r *KeyRing) Current() Key { return r.keys[0] }

// Hash returns "hmac:<id>:<hex>", the HMAC-SHA256 of value under the current key. Equal values have equal hashes
// while the current key stays.
func (r *KeyRing) Hash(value []byte) string { return r.Current().hash(value) }

// Matches tells whether hash was made by [KeyRing.Hash] of this value under any key of the ring.
func (r *KeyRing) Matches(value []byte, hash string) bool {
	rest, found := strings.CutPrefix(hash, "hmac:")
	if !found {
		return false
	}
	id, _, _ := strings.Cut(rest, ":")
	key := r.find(id)
	return key != nil && hmac.Equal([]byte(key.hash(value)), []byte(hash))
}

// String names the ring's ids and no key.
func (r *KeyRing) String() string {
	ids := make([]string, len(r.keys))
	for i, key := range r.keys {
		ids[i] = key.ID
	}
	return "keys " + strings.Join(ids, ", ")
}

// Format writes what String returns, whichever the verb.
func (r *KeyRing) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(r.String())) }

func (r *KeyRing) find(id string) *Key {
	for i := range r.keys {
		if r.keys[i].ID == id {
			return &r.keys[i]
		}
	}
	return nil
}

// Format writes the key's id, whichever the verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(k.ID)) }

func (k Key) hash(value []byte) string {
	mac := hmac.New(sha256.New, k.secret)
	mac.Write(value)
	return "hmac:" + k.ID + ":" + hex.EncodeToString(mac.Sum(nil))
}
