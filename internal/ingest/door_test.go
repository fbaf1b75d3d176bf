package ingest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthouse/posthouse/internal/ingest/verify"
	"github.com/posthouse/posthouse/internal/model"
)

func TestDoorAnswers(t *testing.T) {
	keeper := &fakeKeeper{}
	k := openDoor(t, keeper, DoorConfig{},
		Source{Name: "erp", Accept: compile(t, "body.msgType == 1008"), BodyLimit: 1000, Acknowledge: Acknowledge{Body: "success", ContentType: "text/x-ack"}},
		Source{Name: "plain"},
		Source{Name: "created", Acknowledge: Acknowledge{Status: 201, Body: "ok"}},
		Source{Name: "none", Acknowledge: Acknowledge{Status: 204}},
		Source{Name: "hmac", Verifier: verifier(t, "hmac", verify.Config{Header: "X-Hub-Signature-256", Prefix: "sha256=", Secrets: [][]byte{[]byte("old"), []byte("new")}})},
		Source{Name: "signed", BodyLimit: 100, Verifier: verifierFunc(func(r verify.Request) error {
			if string(r.Body) == "broken" {
				return errors.New("the key could not be read: " + string(r.Body))
			}
			if r.Header.Get("X-Sign") != "good" {
				return &verify.Refusal{Reason: verify.BadSignature}
			}
			return nil
		})},
	)

	t.Run("IN-01 a push that is kept gets its source's acknowledgement", func(t *testing.T) {
		for _, c := range []struct {
			source, body, ackType, ack string
			status                     int
		}{
			{"erp", `{"msgType":1008}`, "text/x-ack", "success", 200},
			{"plain", "anything", "", "", 200},
			{"created", "anything", "text/plain; charset=utf-8", "ok", 201},
			{"none", "anything", "", "", 204},
		} {
			before := len(keeper.all())
			a := k.push("/in/"+c.source, c.body)
			if a.StatusCode != c.status || a.body != c.ack || a.Header.Get("Content-Type") != c.ackType {
				t.Errorf("%s answered %d %q %q", c.source, a.StatusCode, a.Header.Get("Content-Type"), a.body)
			}
			if kept := keeper.all(); len(kept) != before+1 || string(kept[before].Body) != c.body || kept[before].ID.Version() != 7 {
				t.Errorf("%s: %d messages are kept", c.source, len(kept)-before)
			}
		}
		if kept := keeper.all(); kept[0].Source != 1 || kept[3].Source != 4 {
			t.Errorf("kept under sources %d and %d", kept[0].Source, kept[3].Source)
		}
	})
	before := len(keeper.all())
	t.Run("IN-03 what must be refused gets a 4xx that says nothing of what was sent, in the order of the checks", func(t *testing.T) {
		large := strings.Repeat("x", 1001)
		for _, c := range []struct {
			name, request string
			status        int
			label, value  string
		}{
			{"the method is first", "GET /in/nobody HTTP/1.1\r\nHost: a\r\n\r\n", 405, unknownSource, "refused_method"},
			{"a method of a source", "PUT /in/erp HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n" + large, 405, "erp", "refused_method"},
			{"the source is second", "POST /in/nobody HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n" + large, 404, unknownSource, "refused_unknown_source"},
			{"a path below a source", "POST /in/erp/more HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 404, unknownSource, "refused_unknown_source"},
			{"a path beside the door", "POST /erp HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 404, unknownSource, "refused_unknown_source"},
			{"the declared size", "POST /in/erp HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n" + large, 413, "erp", "refused_size"},
			{"the size of a chunked body", "POST /in/erp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(large, 100), 413, "erp", "refused_size"},
			{"the size is before the signature", "POST /in/signed HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n" + large, 413, "signed", "refused_size"},
			{"the signature is before empty", "POST /in/signed HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 401, "signed", "refused_signature"},
			{"the signature", "POST /in/signed?hint=q HTTP/1.1\r\nHost: a\r\nX-Sign: bad\r\nContent-Length: 4\r\n\r\nbody", 401, "signed", "refused_signature"},
			{"a chunk that is none", "POST /in/erp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n", 400, "erp", "refused_incomplete_body"},
		} {
			counted := k.count("requests_total", "source", c.label, "result", c.value)
			l := k.dial()
			l.sendf("%s", c.request)
			a := l.read()
			a.wantProblem(t, c.status)
			if allow := a.Header.Get("Allow"); (allow == "POST") != (c.status == 405) {
				t.Errorf("%s: Allow is %q", c.name, allow)
			}
			if c.status < 405 && a.took > grace {
				t.Errorf("%s: answered after %s", c.name, a.took)
			}
			k.wantCount(counted+1, "requests_total", "source", c.label, "result", c.value)
			for _, sent := range []string{"nobody", "erp", "hint", "bad", "secret", "xxx"} {
				if strings.Contains(a.body, sent) {
					t.Errorf("%s: the answer says %q: %s", c.name, sent, a.body)
				}
			}
			_ = l.Close()
		}
	})
	t.Run("IN-03 what is not of the source's kind is acknowledged and not kept", func(t *testing.T) {
		for body, label := range map[string]string{"": "empty", `{"msgType":1009}`: "not_kept"} {
			a := k.push("/in/erp", body)
			if a.StatusCode != 200 || a.body != "success" {
				t.Errorf("%q answered %d %q", body, a.StatusCode, a.body)
			}
			k.wantCount(1, "requests_total", "source", "erp", "result", label)
		}
		l := k.dial()
		l.sendf("POST /in/erp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
		l.read().want(t, 200)
		k.wantCount(2, "requests_total", "source", "erp", "result", "empty")
	})
	t.Run("IN-03 a signature is checked over the exact bytes, with any of the secrets", func(t *testing.T) {
		for body, status := range map[string]int{"first\x00\xff": 200, "second": 200, "third": 401} {
			secret := map[string]string{"first\x00\xff": "old", "second": "new", "third": "other"}[body]
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write([]byte(body))
			k.push("/in/hmac", body, "X-Hub-Signature-256: sha256="+hex.EncodeToString(mac.Sum(nil))).want(t, status)
		}
		k.push("/in/hmac", "no signature").wantProblem(t, 401)
		k.wantCount(2, "requests_total", "source", "hmac", "result", "kept")
		k.wantCount(2, "requests_total", "source", "hmac", "result", "refused_signature")
		if got := k.door.Rejects("hmac"); len(got) != 2 || !strings.HasPrefix(got[0].Cause, "missing_signature: ") || !strings.HasPrefix(got[1].Cause, "bad_signature: ") {
			t.Errorf("rejects are %+v", got)
		}
		before += 2
	})
	t.Run("a verifier that fails for another reason is our own fault", func(t *testing.T) {
		k.push("/in/signed", "broken").wantProblem(t, 503)
		k.wantCount(1, "requests_total", "source", "signed", "result", "fault")
		if text := k.log.String(); !strings.Contains(text, "source=signed") || strings.Contains(text, "broken") {
			t.Errorf("logged %s", text)
		}
	})
	t.Run("nothing of all that was kept", func(t *testing.T) {
		if n := len(keeper.all()); n != before {
			t.Errorf("%d messages are kept", n-before)
		}
	})
	t.Run("IN-03 what accept cannot be evaluated on is kept and marked", func(t *testing.T) {
		for _, body := range []string{"{}", "no json", `{"msgType":"1008"}`} {
			a := k.push("/in/erp", body)
			kept := keeper.all()
			if m := kept[len(kept)-1]; a.StatusCode != 200 || string(m.Body) != body || m.Check == "" {
				t.Errorf("%s: answered %d, check is %q", body, a.StatusCode, m.Check)
			}
		}
		k.wantCount(3, "requests_total", "source", "erp", "result", "kept_unchecked")
		k.push("/in/erp", `{"msgType":1008}`)
		kept := keeper.all()
		if m := kept[len(kept)-1]; m.Check != "" {
			t.Errorf("a push that could be evaluated is marked %q", m.Check)
		}
	})
	t.Run("a body as large as the limit passes, declared or in chunks", func(t *testing.T) {
		body := `{"msgType":1008,"x":"` + strings.Repeat("x", 977) + `"}`
		if len(body) != 1000 {
			t.Fatal(len(body))
		}
		k.push("/in/erp", body).want(t, 200)
		for _, n := range []int{1, 7, 999, 1000} {
			l := k.dial()
			l.sendf("POST /in/erp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%s", chunked(body, n))
			l.read().want(t, 200)
			kept := keeper.all()
			if m := kept[len(kept)-1]; string(m.Body) != body {
				t.Errorf("chunks of %d: another body is kept", n)
			}
			_ = l.Close()
		}
	})
	t.Run("a connection serves on after any answer whose request came whole", func(t *testing.T) {
		l := k.dial()
		for range 2 {
			l.push("/in/erp", `{"msgType":1008}`).want(t, 200)
			l.push("/in/nobody", "body").want(t, 404)
			l.push("/in/signed", "body").want(t, 401)
			l.push("/in/erp", "").want(t, 200)
			l.push("/in/signed", "broken").want(t, 503)
		}
	})
	t.Run("every answer and every transaction is measured", func(t *testing.T) {
		sum := 0.0
		for r := range results {
			sum += k.count("requests_total", "source", "erp", "result", answers[r].label)
		}
		k.wantCount(sum, "answer_seconds", "source", "erp")
		k.wantCount(float64(len(keeper.sizes())), "batch_rows")
		k.wantCount(float64(len(keeper.sizes())), "flush_seconds")
	})
	t.Run("the memory for bodies is given back", func(t *testing.T) {
		k.wantCount(0, "buffered_bytes")
		k.wantCount(256<<20, "buffered_bytes_bound")
		k.wantCount(0, "in_flight", "source", "erp")
		k.wantCount(256, "in_flight_bound", "source", "erp")
		k.wantCount(0, "queue_rows")
	})
}

func TestDoorKeepsBeforeItAnswers(t *testing.T) {
	g := newGate()
	keeper := &fakeKeeper{before: g.before}
	k := openDoor(t, keeper, DoorConfig{}, Source{Name: "erp", Concurrency: 3, AnswerWithin: 10 * time.Second}, Source{Name: "other"})

	t.Run("IN-01 no 2xx before the commit", func(t *testing.T) {
		answers := make(chan answer)
		go func() { answers <- k.push("/in/erp", "body") }()
		<-g.arrived
		k.wantCount(1, "in_flight", "source", "erp")
		k.wantCount(2<<10, "buffered_bytes")
		select {
		case a := <-answers:
			t.Errorf("answered %d before the commit", a.StatusCode)
		default:
		}
		g.pass <- nil
		(<-answers).want(t, 200)
	})
	t.Run("IN-02 concurrency is bounded per source: 503 and Retry-After beyond it", func(t *testing.T) {
		answers := make(chan answer)
		go func() { answers <- k.push("/in/erp", "first") }()
		<-g.arrived // what follows waits in the queue
		for range 2 {
			go func() { answers <- k.push("/in/erp", "body") }()
		}
		until(t, func() bool { return k.count("in_flight", "source", "erp") == 3 })
		k.push("/in/erp", "one too many").wantProblem(t, 503)
		k.wantCount(1, "requests_total", "source", "erp", "result", "busy_concurrency")
		go func() { answers <- k.push("/in/other", "body") }()
		until(t, func() bool { return k.count("queue_rows") == 3 })
		g.pass <- nil
		<-g.arrived
		g.pass <- nil
		for range 4 {
			(<-answers).want(t, 200)
		}
		go func() { answers <- k.push("/in/erp", "room again") }()
		<-g.arrived
		g.pass <- nil
		(<-answers).want(t, 200)
	})
	t.Run("IN-02 what the store refuses is 503, never 4xx", func(t *testing.T) {
		answers := make(chan answer)
		for _, code := range []model.Code{model.CodeRejected, model.CodeInternal, model.CodeInvalid, model.CodeSchema} {
			go func() { answers <- k.push("/in/erp", "body") }()
			<-g.arrived
			g.pass <- failure(code)
			(<-answers).wantProblem(t, 503)
		}
		k.wantCount(4, "requests_total", "source", "erp", "result", "store_refused")
	})
	t.Run("IN-02 what the writer cannot take when it stops is 503", func(t *testing.T) {
		k.writer.Stop()
		k.push("/in/erp", "body").wantProblem(t, 503)
		k.wantCount(1, "requests_total", "source", "erp", "result", "stopping")
	})
}

// until waits for what another goroutine does and no signal tells of.
func until(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !condition(); {
		if time.Now().After(end) {
			t.Fatal("it did not happen within 10 s")
		}
		<-time.After(time.Millisecond)
	}
}

func TestDoorOutage(t *testing.T) {
	t.Run("AC-9 the store hangs: only 503, in time, then recovery by itself", func(t *testing.T) {
		const within, hang = 300 * time.Millisecond, 2 * time.Second
		begin := time.Now()
		keeper := &fakeKeeper{before: func(ctx context.Context, _ []model.NewMessage) error {
			select {
			case <-time.After(time.Until(begin.Add(hang))):
				return nil
			case <-ctx.Done():
				return failure(model.CodeUnavailable)
			}
		}}
		k := openDoor(t, keeper, DoorConfig{}, Source{Name: "erp", AnswerWithin: within})
		acknowledged := make(chan []string)
		for client := range 16 {
			go func() {
				var mine []string
				l := k.dial()
				for n := 0; len(mine) == 0 && time.Since(begin) < hang+10*time.Second; n++ {
					sent := time.Since(begin)
					body := fmt.Sprintf("%d.%d", client, n)
					a := l.push("/in/erp", body)
					switch {
					case a.took > within+grace:
						t.Errorf("answered after %s", a.took)
					case a.StatusCode == 200 && sent < hang-within:
						t.Errorf("answered 200 %s after the store began to hang", sent)
					case a.StatusCode == 200:
						mine = append(mine, body)
					default:
						a.wantProblem(t, 503)
					}
				}
				acknowledged <- mine
			}()
		}
		kept := map[string]bool{}
		var all []string
		for range 16 {
			all = append(all, <-acknowledged...)
		}
		for _, body := range keeper.bodies() {
			kept[body] = true
		}
		for _, body := range all {
			if !kept[body] {
				t.Errorf("%s was acknowledged and is not kept", body)
			}
		}
		if len(all) != 16 || len(kept) > len(all)+16 {
			t.Errorf("%d of 16 clients saw the store recover, %d messages are kept", len(all), len(kept))
		}
		if n := strings.Count(k.log.String(), "\n"); n > 4 {
			t.Errorf("%d lines were logged:\n%s", n, k.log.String())
		}
	})
	t.Run("IN-02 a push whose time is up in the queue is answered 503 and not inserted later", func(t *testing.T) {
		g := newGate()
		keeper := &fakeKeeper{before: g.before}
		k := openDoor(t, keeper, DoorConfig{}, Source{Name: "patient", AnswerWithin: 10 * time.Second}, Source{Name: "hasty", AnswerWithin: 100 * time.Millisecond})
		answers := make(chan answer, 1)
		go func() { answers <- k.push("/in/patient", "first") }()
		<-g.arrived
		a := k.push("/in/hasty", "late")
		a.wantProblem(t, 503)
		if a.took < 90*time.Millisecond || a.took > 100*time.Millisecond+grace {
			t.Errorf("answered after %s, want about 100 ms", a.took)
		}
		k.wantCount(1, "requests_total", "source", "hasty", "result", "late")
		g.pass <- nil
		(<-answers).want(t, 200)
		if diff := cmp.Diff([]string{"first"}, keeper.bodies()); diff != "" {
			t.Errorf("kept (-want +got)\n%s", diff)
		}
	})
	t.Run("IN-02 a client that hangs up while its push waits leaves no row", func(t *testing.T) {
		g := newGate()
		keeper := &fakeKeeper{before: g.before}
		k := openDoor(t, keeper, DoorConfig{}, Source{Name: "erp", AnswerWithin: 10 * time.Second})
		answers := make(chan answer, 1)
		go func() { answers <- k.push("/in/erp", "first") }()
		<-g.arrived
		l := k.dial()
		l.sendf("POST /in/erp HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\nhung up")
		until(t, func() bool { return k.count("queue_rows") == 1 })
		r := k.writer.queue.lane(1).head
		_ = l.Close()
		<-r.ctx.Done()
		g.pass <- nil
		(<-answers).want(t, 200)
		for range 2 {
			<-k.closed
		}
		k.wantCount(1, "requests_total", "source", "erp", "result", "hung_up")
		if diff := cmp.Diff([]string{"first"}, keeper.bodies()); diff != "" {
			t.Errorf("kept (-want +got)\n%s", diff)
		}
	})
	t.Run("a buffer is not used again while the store still reads it, and is given back however that ends", func(t *testing.T) {
		for _, end := range []error{nil, failure(model.CodeUnavailable), failure(model.CodeRejected)} {
			release := make(chan struct{})
			keeper := &fakeKeeper{before: func(ctx context.Context, _ []model.NewMessage) error {
				<-ctx.Done() // nobody waits any longer
				<-release
				return end
			}}
			k := openDoor(t, keeper, DoorConfig{}, Source{Name: "erp", AnswerWithin: 50 * time.Millisecond})
			k.push("/in/erp", "body").wantProblem(t, 503)
			k.wantCount(2<<10, "buffered_bytes")
			k.wantCount(1, "requests_total", "source", "erp", "result", "unknown")
			close(release)
			until(t, func() bool { return k.count("buffered_bytes") == 0 })
		}
	})
	t.Run("a panic is 503, and the door stands", func(t *testing.T) {
		keeper := &fakeKeeper{}
		k := openDoor(t, keeper, DoorConfig{}, Source{Name: "erp", Verifier: verifierFunc(func(r verify.Request) error {
			if string(r.Body) == "bad" {
				panic("the body was " + string(r.Body))
			}
			return nil
		})})
		l := k.dial()
		l.push("/in/erp", "bad").wantProblem(t, 503)
		l.push("/in/erp", "good").want(t, 200)
		l.push("/in/erp", "bad").wantProblem(t, 503)
		k.wantCount(2, "requests_total", "source", "erp", "result", "fault")
		k.wantCount(0, "buffered_bytes")
		k.wantCount(0, "in_flight", "source", "erp")
		if text := k.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "panic: string") || strings.Contains(text, "the body") {
			t.Errorf("logged:\n%s", text)
		}
	})
}

func TestDoorMemory(t *testing.T) {
	t.Run("IN-16 bodies in memory are bounded, and one flooding source leaves room for others", func(t *testing.T) {
		g := newGate()
		k := openDoor(t, &fakeKeeper{before: g.before}, DoorConfig{Memory: 1 << 20},
			Source{Name: "flood", BodyLimit: 200 << 10, AnswerWithin: 10 * time.Second}, Source{Name: "other", BodyLimit: 200 << 10, AnswerWithin: 10 * time.Second})
		body := strings.Repeat("x", 100<<10)
		answers := make(chan answer)
		go func() { answers <- k.push("/in/flood", body) }()
		<-g.arrived
		for i := range 4 {
			go func() { answers <- k.push("/in/flood", body) }()
			until(t, func() bool { return k.count("queue_rows") == float64(i+1) })
		}
		k.wantCount(500<<10, "buffered_bytes")
		k.push("/in/flood", body).wantProblem(t, 503)
		l := k.dial()
		l.sendf("POST /in/flood HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%s", chunked(body, 1000))
		l.read().wantProblem(t, 503)
		k.wantCount(2, "requests_total", "source", "flood", "result", "busy_memory")
		for i := range 2 {
			go func() { answers <- k.push("/in/other", body) }()
			until(t, func() bool { return k.count("queue_rows") == float64(i+5) })
		}
		g.pass <- nil
		<-g.arrived
		g.pass <- nil
		for range 7 {
			(<-answers).want(t, 200)
		}
		k.wantCount(0, "buffered_bytes")
	})
}

func TestNewDoor(t *testing.T) {
	w := startWriter(t, WriterConfig{Keeper: &fakeKeeper{}})
	open := verifier(t, "none", verify.Config{})
	ok := Source{Name: "a", Verifier: open}
	for name, c := range map[string]struct {
		config DoorConfig
		want   string
	}{
		"no writer":            {DoorConfig{}, "Writer is missing"},
		"no verifier":          {DoorConfig{Writer: w, Sources: []Source{{Name: "a"}}}, "Verifier is missing"},
		"no name":              {DoorConfig{Writer: w, Sources: []Source{{Verifier: open}}}, "Name must be"},
		"a name with a slash":  {DoorConfig{Writer: w, Sources: []Source{{Name: "a/b", Verifier: open}}}, "Name must be"},
		"the word for none":    {DoorConfig{Writer: w, Sources: []Source{{Name: unknownSource, Verifier: open}}}, "Name must be"},
		"a name twice":         {DoorConfig{Writer: w, Sources: []Source{ok, ok}}, "twice"},
		"too long":             {DoorConfig{Writer: w, Sources: []Source{{Name: "a", Verifier: open, AnswerWithin: time.Minute}}}, "at most 30s"},
		"too large":            {DoorConfig{Writer: w, Memory: 1 << 20, Sources: []Source{{Name: "a", Verifier: open}}}, "at most half"},
		"no acknowledgement":   {DoorConfig{Writer: w, Sources: []Source{{Name: "a", Verifier: open, Acknowledge: Acknowledge{Status: 302}}}}, "must be 2xx"},
		"a body that is none":  {DoorConfig{Writer: w, Sources: []Source{{Name: "a", Verifier: open, Acknowledge: Acknowledge{Status: 204, Body: "x"}}}}, "204"},
		"nothing wrong at all": {DoorConfig{Writer: w, Sources: []Source{ok}}, ""},
	} {
		_, err := NewDoor(c.config)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewServer(t *testing.T) {
	s := NewServer(http.NotFoundHandler())
	if s.WriteTimeout < MaxAnswerWithin+10*time.Second || s.ReadHeaderTimeout == 0 || s.IdleTimeout == 0 || s.MaxHeaderBytes == 0 || s.ReadTimeout == 0 {
		t.Errorf("the server's bounds are %+v", s)
	}
}

func TestResults(t *testing.T) {
	labels := map[string]bool{}
	for r := range results {
		a := answers[r]
		if a.label == "" || labels[a.label] {
			t.Errorf("result %d has the label %q", r, a.label)
		}
		labels[a.label] = true
		switch {
		case a.status >= 500 && a.status != http.StatusServiceUnavailable:
			t.Errorf("%s answers %d", a.label, a.status)
		case a.status != 0 && (len(a.body) == 0 || a.detail == ""):
			t.Errorf("%s has no body", a.label)
		case (a.status >= 400 && a.status < 500) != (a.cause != "" && a.status != 0):
			t.Errorf("%s: a 4xx is visible to the operator, a 503 is not", a.label)
		}
	}
}
