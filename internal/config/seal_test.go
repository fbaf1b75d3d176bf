package config

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/model"
)

func ring(t *testing.T, keys ...string) *KeyRing {
	t.Helper()
	r, err := ParseKeys(strings.Join(keys, ","))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSealedValues(t *testing.T) {
	const context = "address:018f"
	old, young := GenerateKey("old"), GenerateKey("young")
	plain := []byte("zhang@example.com")
	sealed := ring(t, old).Seal(plain, context)

	t.Run("NC-07 nothing of the value is to be seen", func(t *testing.T) {
		if bytes.Contains(sealed.Bytes, plain) || bytes.Contains(sealed.Bytes, []byte("example")) || sealed.KeyID != "old" {
			t.Errorf("sealed as %+v", sealed)
		}
		if again := ring(t, old).Seal(plain, context); bytes.Equal(again.Bytes, sealed.Bytes) {
			t.Error("the same value is sealed alike twice")
		}
	})
	t.Run("a new current key still reads what the former one sealed", func(t *testing.T) {
		after := ring(t, young, old)
		if got, err := after.Open(sealed, context); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("got %q, %v", got, err)
		}
		if after.Seal(plain, context).KeyID != "young" {
			t.Error("what is new is not sealed under the current key")
		}
	})
	t.Run("a key that is gone is named as the cause", func(t *testing.T) {
		if _, err := ring(t, young).Open(sealed, context); !errors.Is(err, ErrNoKey) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("nothing else opens it", func(t *testing.T) {
		changed := model.Sealed{KeyID: "old", Bytes: bytes.Clone(sealed.Bytes)}
		changed.Bytes[len(changed.Bytes)-1] ^= 1
		other := model.Sealed{KeyID: "old", Bytes: bytes.Clone(sealed.Bytes)}
		other.Bytes[0]++
		for name, try := range map[string]func() ([]byte, error){
			"another context":              func() ([]byte, error) { return ring(t, old).Open(sealed, "address:018e") },
			"another key of the same name": func() ([]byte, error) { return ring(t, GenerateKey("old")).Open(sealed, context) },
			"a changed byte":               func() ([]byte, error) { return ring(t, old).Open(changed, context) },
			"another form":                 func() ([]byte, error) { return ring(t, old).Open(other, context) },
			"cut short": func() ([]byte, error) {
				return ring(t, old).Open(model.Sealed{KeyID: "old", Bytes: sealed.Bytes[:9]}, context)
			},
		} {
			if got, err := try(); err == nil || got != nil || errors.Is(err, ErrNoKey) {
				t.Errorf("%s: got %q, %v", name, got, err)
			}
		}
	})
	t.Run("nothing is sealed as nothing", func(t *testing.T) {
		r := ring(t, old)
		empty := r.Seal(nil, context)
		if got, err := r.Open(empty, context); err != nil || got != nil || empty.KeyID != "" || empty.Bytes != nil {
			t.Errorf("got %+v, then %q, %v", empty, got, err)
		}
	})
}

func TestFingerprintsOfContent(t *testing.T) {
	old, young := GenerateKey("old"), GenerateKey("young")
	fields := [model.ContentFields][]byte{[]byte("approval.todo"), []byte("todo"), []byte("u1"), []byte(`{"a":1}`), []byte("zh-CN")}
	content := ring(t, old).Content(fields)

	t.Run("NC-02 fields that differ are named, under whichever key", func(t *testing.T) {
		other := fields
		other[3], other[4] = []byte(`{"a":2}`), nil
		for _, r := range []*KeyRing{ring(t, old), ring(t, young, old)} {
			if differs, err := r.SameContent(content, fields); err != nil || differs != nil {
				t.Errorf("the same differs in %v, %v", differs, err)
			}
			differs, err := r.SameContent(content, other)
			if diff := cmp.Diff([]string{"variables", "locale"}, differs); diff != "" || err != nil {
				t.Errorf("differs (-want +got):\n%s%v", diff, err)
			}
		}
	})
	t.Run("without the key nothing can be told", func(t *testing.T) {
		if _, err := ring(t, young).SameContent(content, fields); !errors.Is(err, ErrNoKey) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("one text in two fields has two fingerprints, under two keys four", func(t *testing.T) {
		seen := map[[16]byte]bool{}
		same := [model.ContentFields][]byte{[]byte("x"), []byte("x"), []byte("x"), []byte("x"), []byte("x")}
		for _, key := range []string{old, young} {
			for _, f := range ring(t, key).Content(same).Fields {
				seen[f] = true
			}
		}
		if len(seen) != 2*model.ContentFields {
			t.Errorf("only %d differ", len(seen))
		}
	})
}
