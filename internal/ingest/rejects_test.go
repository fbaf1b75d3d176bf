package ingest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/posthouse/posthouse/internal/ingest/verify"
)

func TestRejects(t *testing.T) {
	k := openDoor(t, &fakeKeeper{}, DoorConfig{},
		Source{Name: "erp", BodyLimit: 10, AnswerWithin: 100 * time.Millisecond, Accept: compile(t, `body.a == 1`), Acknowledge: Acknowledge{Status: 202},
			Verifier: verifierFunc(func(r verify.Request) error {
				if len(r.Body) > 0 && r.Body[0] == 'b' {
					return &verify.Refusal{Reason: verify.BadSignature}
				}
				return nil
			})},
		Source{Name: "samples", Accept: compile(t, `size < 0`)},
	)
	t.Run("IN-03 what was refused or not kept is visible with its cause, newest first", func(t *testing.T) {
		begin := time.Now().Add(-time.Second)
		k.push("/in/erp", "bad", "Content-Type: text/caf\xe9")
		k.push("/in/erp", `{"a":2}`, "Content-Type: application/json")
		k.push("/in/erp", strings.Repeat("x", 11))
		k.push("/in/erp", "")
		l := k.dial()
		l.sendf("PUT /in/erp HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		l.read()
		l = k.dial()
		l.sendf("POST /in/erp HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nslow")
		l.read()
		k.push("/in/erp", `{"a":1}`)
		want := []Reject{
			{Kind: "refused", Cause: "the body did not arrive in time", Status: 408, Size: 4},
			{Kind: "refused", Cause: "the method is not POST", Status: 405},
			{Kind: "not_kept", Cause: "the body is empty", Status: 202},
			{Kind: "refused", Cause: "the body is larger than the limit", Status: 413, Size: 11},
			{Kind: "not_kept", Cause: "accept is false", Status: 202, Size: 7, ContentType: "application/json", Sample: `{"a":2}`},
			{Kind: "refused", Cause: "bad_signature: " + verify.BadSignature.Text(), Status: 401, Size: 3, ContentType: "text/caf\ufffd"},
		}
		got := k.door.Rejects("erp")
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Reject{}, "Time")); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		for _, r := range got {
			if r.Time.Before(begin) || r.Time.After(time.Now()) {
				t.Errorf("the time is %s", r.Time)
			}
		}
	})
	t.Run("IN-03 names that are no source are in one list of their own", func(t *testing.T) {
		k.push("/in/epr", "body")
		k.push("/in/"+strings.Repeat("%00%e4", 100), "body")
		got := k.door.Rejects("")
		if len(got) != 2 || got[1].Name != "epr" || got[1].Status != 404 || len(got[0].Name) > rejectName || !strings.HasPrefix(got[0].Name, "\ufffd\ufffd") {
			t.Errorf("got %+v", got)
		}
		if got := k.door.Rejects("epr"); got != nil {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("IN-03 the last 100 of each kind are there, the sample is the beginning as text", func(t *testing.T) {
		l := k.dial()
		for i := range 250 {
			l.push("/in/samples", fmt.Sprintf("%03d\x00\xff\x1b\t\n%s", i, strings.Repeat("中", 200)))
		}
		got := k.door.Rejects("samples")
		if len(got) != 100 {
			t.Fatalf("there are %d, want 100", len(got))
		}
		for i, r := range got {
			if want := fmt.Sprintf("%03d\ufffd\ufffd\ufffd\t\n%s", 249-i, strings.Repeat("中", 168)); r.Sample != want {
				t.Fatalf("%d: the sample is %q, want %q", i, r.Sample, want)
			}
		}
	})
	t.Run("a flood of refusals leaves the samples of what was not kept, and the other way round", func(t *testing.T) {
		var r rejects
		r.add(Reject{Kind: RejectNotKept}, []byte("x"))
		for range 300 {
			r.add(Reject{Kind: RejectRefused}, nil)
		}
		if n := len(r.list()); n != 101 {
			t.Errorf("there are %d, want 101", n)
		}
		sample := []byte(strings.Repeat("x", 1000))
		if n := testing.AllocsPerRun(300, func() { r.add(Reject{Kind: RejectNotKept}, sample) }); n > 1 {
			t.Errorf("adding allocates %v times", n)
		}
	})
}
