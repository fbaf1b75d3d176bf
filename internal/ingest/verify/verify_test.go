package verify

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryReasonHasALabelAndAText(t *testing.T) {
	want := []Reason{BadSignature, MalformedSignature, MissingSignature, NonCanonical}
	if diff := cmp.Diff(want, Reasons()); diff != "" {
		t.Error(diff)
	}
	label := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	for _, r := range Reasons() {
		if !label.MatchString(string(r)) || len(r.Text()) < 20 || strings.Contains(r.Text(), "unknown") {
			t.Errorf("%s: %s", r, r.Text())
		}
		if (&Refusal{r}).Error() != r.Text() {
			t.Errorf("%s: the refusal says %s", r, &Refusal{r})
		}
	}
	if Reason("other").Text() == "" {
		t.Error("an unknown reason has no text")
	}
}

// exampleOf has a config for every kind: a new kind without one fails here.
var exampleOf = map[string]Config{
	"none": {},
	"hmac": {Header: "X-Signature", Secrets: [][]byte{[]byte("s3cr3t-of-the-sender")}},
}

func TestEveryKind(t *testing.T) {
	if diff := cmp.Diff([]string{"hmac", "none"}, Kinds()); diff != "" {
		t.Error(diff)
	}
	for _, kind := range Kinds() {
		t.Run(kind, func(t *testing.T) {
			c, ok := exampleOf[kind]
			if !ok {
				t.Fatal("no example")
			}
			v := mustNew(t, kind, c)
			for name, r := range map[string]Request{
				"nothing":   {},
				"no header": {Method: "POST", Header: http.Header{}, Body: []byte("pushed-bytes")},
				"rubbish":   {Method: "POST", Header: http.Header{"X-Signature": {"pushed-rubbish"}}, RawQuery: "pushed=%zz", Body: []byte("pushed-bytes")},
			} {
				err := v.Verify(r)
				if kind == "none" {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				if err == nil {
					t.Errorf("%s: accepted", name)
					continue
				}
				if text := err.Error() + reasonOf(err); strings.Contains(text, "pushed") || strings.Contains(text, "s3cr3t") {
					t.Errorf("%s: the refusal tells what it must not: %s", name, text)
				}
			}
		})
	}
}

func TestAnUnknownKindIsRefused(t *testing.T) {
	_, err := New("hmacs", Config{})
	if err == nil || err.Error() != `verify: unknown kind "hmacs"; known are hmac, none` {
		t.Errorf("got %v", err)
	}
}
