package config

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

func TestKeyRing(t *testing.T) {
	oldKey, newKey := bytes.Repeat([]byte{0xfb}, 32), bytes.Repeat([]byte{2}, 40)
	oldText := "k1:" + base64.StdEncoding.EncodeToString(oldKey)
	newText := "k-2_x:" + base64.StdEncoding.EncodeToString(newKey)
	before, err := ParseKeys(oldText)
	if err != nil {
		t.Fatal(err)
	}
	ring, err := ParseKeys(" " + newText + ", " + oldText + "\n")
	if err != nil {
		t.Fatal(err)
	}
	value := []byte("Bearer abc")

	t.Run("IN-25 a hash names its key and is the HMAC-SHA256 of the value", func(t *testing.T) {
		mac := hmac.New(sha256.New, newKey)
		mac.Write(value)
		if got, want := ring.Hash(value), "hmac:k-2_x:"+hex.EncodeToString(mac.Sum(nil)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	t.Run("the first key is current", func(t *testing.T) {
		if got := ring.Current().ID; got != "k-2_x" {
			t.Errorf("current is %s", got)
		}
	})
	t.Run("what an older key hashed is still recognised, and nothing else is", func(t *testing.T) {
		old := before.Hash(value)
		if !ring.Matches(value, old) || !ring.Matches(value, ring.Hash(value)) {
			t.Error("its own hash is not recognised")
		}
		for _, hash := range []string{"", "hmac:", "hmac:k1", "hmac:k1:", "hmac:k9:" + old[8:], old[:len(old)-1], strings.ToUpper(old), old + "0"} {
			if ring.Matches(value, hash) {
				t.Errorf("%q is recognised", hash)
			}
		}
		if ring.Matches([]byte("Bearer abd"), old) || before.Matches(value, ring.Hash(value)) {
			t.Error("another's hash is recognised")
		}
	})
	t.Run("every usual alphabet of base64 is read, with and without padding", func(t *testing.T) {
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			same, err := ParseKeys("k1:" + encoding.EncodeToString(oldKey))
			if err != nil || same.Hash(value) != before.Hash(value) {
				t.Errorf("%v is read wrongly: %v", encoding, err)
			}
		}
	})
	t.Run("a generated key is read, and no two are alike", func(t *testing.T) {
		one, err := ParseKeys(GenerateKey("dev"))
		if err != nil || one.Current().ID != "dev" {
			t.Fatalf("%v, %v", one, err)
		}
		two, _ := ParseKeys(GenerateKey("dev"))
		if one.Hash(value) == two.Hash(value) {
			t.Error("two generated keys are alike")
		}
	})
}

func TestParseKeysRefuses(t *testing.T) {
	secret := "hunter2hunter2hunter2hunter2hunter2xxx"
	key := base64.StdEncoding.EncodeToString([]byte(secret))
	for _, c := range []struct{ name, keys, want string }{
		{"nothing", "", "key 1 of 1: not of the form id:base64"},
		{"no id", key, "key 1 of 1: not of the form id:base64"},
		{"an empty id", ":" + key, "key 1 of 1: the id before the colon must be 1 to 32 of A-Z, a-z, 0-9, _ and -"},
		{"key and id the wrong way round", key + ":k1", "key 1 of 1: the id before the colon must be 1 to 32 of A-Z, a-z, 0-9, _ and -"},
		{"no base64", "k1:" + key + "!", "key 1 of 1: what follows the colon is not base64"},
		{"too short", "k1:" + key + ",k2:" + base64.StdEncoding.EncodeToString([]byte(secret[:31])), "key 2 of 2: 31 bytes are too few: a key has at least 32"},
		{"an id twice", "k1:" + key + ",k1:" + key, "key 2 of 2: its id is taken by an earlier one"},
		{"a comma at the end", "k1:" + key + ",", "key 2 of 2: not of the form id:base64"},
		{"too many", strings.Repeat("k1:"+key+",", 32) + key, "33 keys are more than 32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ring, err := ParseKeys(c.keys)
			if ring != nil || err == nil || err.Error() != c.want {
				t.Errorf("got %v, %q; want %q", ring, err, c.want)
			}
		})
	}
}

func TestKeysFromTheEnvironment(t *testing.T) {
	with := func(keys string) ParseParams {
		p := testParams("store: sqlite:p.db\nsources: {demo: {verify: {kind: none}}}")
		p.LookupEnv = func(name string) (string, bool) { return keys, name == KeysVariable }
		return p
	}
	t.Run("they come with the configuration", func(t *testing.T) {
		if c := mustParse(t, with(GenerateKey("k1"))); c.Keys == nil || c.Keys.Current().ID != "k1" {
			t.Errorf("got %v", c.Keys)
		}
	})
	t.Run("an empty variable is none", func(t *testing.T) {
		if c := mustParse(t, with(" ")); c.Keys != nil {
			t.Errorf("got %v", c.Keys)
		}
	})
	t.Run("NC-07 what is wrong is told beside the file's problems, without the key", func(t *testing.T) {
		p := with(hidden)
		p.Data = []byte("store: sqlite:p.db")
		want := "error environment: POSTHOUSE_KEYS: key 1 of 1: not of the form id:base64; write id:base64,id:base64,… with the current one first\n" +
			"error posthouse.yaml:1:1: sources: is missing; add one: sources: {demo: {verify: {kind: none}}}\n"
		if got := report(Parse(p)); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}
