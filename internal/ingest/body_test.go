package ingest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDoorSlowAndBrokenBodies(t *testing.T) {
	const within = 300 * time.Millisecond
	keeper := &fakeKeeper{}
	k := openDoor(t, keeper, DoorConfig{}, Source{Name: "erp", AnswerWithin: within})

	t.Run("IN-02 a body that is not in by answer_within is 408, and the connection ends", func(t *testing.T) {
		for name, head := range map[string]string{
			"declared": "Content-Length: 1000\r\n\r\n",
			"chunked":  "Transfer-Encoding: chunked\r\n\r\n3e8\r\n",
		} {
			for _, drip := range []bool{false, true} {
				l := k.dial()
				begin := time.Now()
				l.sendf("POST /in/erp HTTP/1.1\r\nHost: a\r\n%s", head)
				stop := make(chan struct{})
				var dripping sync.WaitGroup
				if drip {
					dripping.Go(func() {
						for {
							select {
							case <-stop:
								return
							case <-time.After(10 * time.Millisecond):
								if _, err := l.Write([]byte("x")); err != nil {
									return
								}
							}
						}
					})
				}
				l.read().wantProblem(t, 408)
				if took := time.Since(begin); took < within-20*time.Millisecond || took > within+grace {
					t.Errorf("%s, dripping %v: answered after %s", name, drip, took)
				}
				if !l.ended() {
					t.Errorf("%s, dripping %v: the connection goes on", name, drip)
				}
				close(stop)
				dripping.Wait()
				_ = l.Close()
				<-k.closed
			}
		}
		k.wantCount(4, "requests_total", "source", "erp", "result", "refused_slow_body")
		k.wantCount(0, "in_flight", "source", "erp")
		k.wantCount(0, "buffered_bytes")
	})
	t.Run("IN-02 a refusal does not wait longer than answer_within for a body that does not come", func(t *testing.T) {
		l := k.dial()
		begin := time.Now()
		l.sendf("POST /in/nobody HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
		l.read().wantProblem(t, 404)
		if took := time.Since(begin); took > DefaultAnswerWithin+grace {
			t.Errorf("answered after %s", took)
		}
		if !l.ended() {
			t.Error("the connection goes on, with a body that is still to come")
		}
		<-k.closed
	})
	t.Run("IN-02 a client that hangs up in its body leaves no row", func(t *testing.T) {
		for _, head := range []string{
			"Content-Length: 1000\r\n\r\nthe beginning",
			"Transfer-Encoding: chunked\r\n\r\n3e8\r\nthe beginning",
			"Transfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n", // and no last chunk
		} {
			l := k.dial()
			l.sendf("POST /in/erp HTTP/1.1\r\nHost: a\r\n%s", head)
			_ = l.Close()
			<-k.closed
		}
		k.wantCount(3, "requests_total", "source", "erp", "result", "refused_incomplete_body")
		k.wantCount(0, "in_flight", "source", "erp")
		k.wantCount(0, "buffered_bytes")
	})
	if n := len(keeper.all()); n != 0 {
		t.Errorf("%d messages are kept", n)
	}
	t.Run("a body longer than it declares is what it declares", func(t *testing.T) {
		l := k.dial()
		l.sendf("POST /in/erp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nwhole and more")
		l.read().want(t, 200)
		if diff := cmp.Diff([]string{"whole"}, keeper.bodies()); diff != "" {
			t.Errorf("kept (-want +got)\n%s", diff)
		}
	})
	t.Run("a body that comes in pieces, in time, is whole", func(t *testing.T) {
		l := k.dial()
		l.sendf("POST /in/erp HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n")
		for i := range 10 {
			<-time.After(5 * time.Millisecond)
			l.sendf("%03d", i)
		}
		l.read().want(t, 200)
		if got := keeper.bodies(); got[len(got)-1] != "000001002003004005006007008009" {
			t.Errorf("kept %q", got[len(got)-1])
		}
	})
	t.Run("Expect: 100-continue is answered before a body is sent, and not where it is not wanted", func(t *testing.T) {
		l := k.dial()
		l.sendf("POST /in/erp HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
		status, err := l.r.ReadString('\n')
		if _, blank := l.r.ReadString('\n'); err != nil || blank != nil || !strings.HasPrefix(status, "HTTP/1.1 100 ") {
			t.Fatalf("answered %q %v", status, err)
		}
		l.sendf("body")
		l.read().want(t, 200)

		for path, want := range map[string]int{"/in/erp": 413, "/in/nobody": 404} {
			l = k.dial()
			begin := time.Now()
			l.sendf("POST %s HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2000000\r\n\r\n", path)
			l.read().wantProblem(t, want)
			if took := time.Since(begin); took > grace {
				t.Errorf("%s answered after %s", path, took)
			}
		}
	})
	t.Run("an endless body is answered 413 without being read to its end", func(t *testing.T) {
		l := k.dial()
		l.sendf("POST /in/erp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		var sending sync.WaitGroup
		sent := 0
		sending.Go(func() {
			chunk := fmt.Sprintf("%x\r\n%s\r\n", 64<<10, strings.Repeat("x", 64<<10))
			for {
				n, err := l.Write([]byte(chunk))
				sent += n
				if err != nil {
					return
				}
			}
		})
		l.read().wantProblem(t, 413)
		sending.Wait()
		if sent > 64<<20 {
			t.Errorf("%d bytes were taken", sent)
		}
	})
	t.Run("a request after a long wait on the same connection finds no deadline of the last one", func(t *testing.T) {
		l := k.dial()
		for range 3 {
			l.push("/in/erp", "body").want(t, 200)
			<-time.After(within + 50*time.Millisecond)
		}
	})
}

func TestDoorOddNeighbours(t *testing.T) {
	t.Run("IN-25 64 neighbours in one flush, with every odd byte there is, come out as they went in", func(t *testing.T) {
		g := newGate()
		keeper := &fakeKeeper{before: g.before}
		k := openDoor(t, keeper, DoorConfig{}, Source{Name: "erp", AnswerWithin: 10 * time.Second, Accept: compile(t, `body.kind == "order"`)})
		odd := []string{
			"a NUL \x00 byte", "invalid \xff\xfe UTF-8", "half a character \xe4\xb8", `{"lone":"\ud800"}`, `{"big":9007199254740993}`, `{}`, "\x00", "null",
			"\r\n", " ", "\xef\xbb\xbf{}", strings.Repeat("\x00", 5000), strings.Repeat("x", 100_000), "<xml/>", `{"kind":1}`, `"`,
		}
		answers := make(chan answer)
		go func() { answers <- k.push("/in/erp", "first") }()
		<-g.arrived
		want := map[string]int{"first": 1}
		for i := range 64 {
			body := odd[i%len(odd)]
			want[body]++
			go func() { answers <- k.push("/in/erp", body) }()
		}
		until(t, func() bool { return k.count("queue_rows") == 64 })
		g.pass <- nil
		if n := <-g.arrived; n != 64 {
			t.Errorf("the flush has %d rows, want 64", n)
		}
		g.pass <- nil
		for range 65 {
			(<-answers).want(t, 200)
		}
		got := map[string]int{}
		for _, body := range keeper.bodies() {
			got[body]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("kept (-want +got)\n%s", diff)
		}
	})
}
