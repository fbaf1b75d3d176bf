package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const printedByWrk = `Running 4s test @ http://127.0.0.1:8080/in/plain
  2 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.31ms    1.02ms  17.46ms   78.18%
    Req/Sec    14.02k     1.33k   17.60k    70.00%
  111690 requests in 4.00s, 9.27MB read
  Non-2xx or 3xx responses: 12
Requests/sec:  27915.53
Transfer/sec:      2.32MB
bench-result {"requests":111690,"not_ok":12,"socket_errors":3,"duration_us":4001048,"p50_us":2104,"p99_us":6220}
`

func TestParseWrk(t *testing.T) {
	got, err := parseWrk([]byte(printedByWrk))
	if err != nil {
		t.Fatal(err)
	}
	want := load{Requests: 111690, NotOK: 12, SocketErrors: 3, Duration: 4001048 * time.Microsecond, P50: 2104 * time.Microsecond, P99: 6220 * time.Microsecond}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := int(got.perSecond()); got != 27915 {
		t.Errorf("%d requests a second; wrk itself says 27915", got)
	}
}

func TestParseWrkTellsWhatItCannotRead(t *testing.T) {
	for name, out := range map[string]string{
		"no result":    "unable to connect to 127.0.0.1:1 Connection refused\n",
		"broken":       mark + `{"requests":`,
		"not a number": mark + `{"requests":"many","duration_us":1}`,
		"no requests":  mark + `{"duration_us":4001048}`,
		"no duration":  mark + `{"requests":1}`,
	} {
		if got, err := parseWrk([]byte(out)); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

func TestPayload(t *testing.T) {
	for _, n := range []int{0, 1, maxNumber} {
		body := payload(n)
		if len(body) != bodySize {
			t.Errorf("%d bytes", len(body))
		}
		var parsed struct {
			MsgType int `json:"msgType"`
		}
		if err := json.Unmarshal(body, &parsed); err != nil || parsed.MsgType != 1008 {
			t.Errorf("msgType %d, %v in %s", parsed.MsgType, err, body)
		}
		if got, ok := numberOf(body); !ok || got != n {
			t.Errorf("number %d, %v; pushed was %d", got, ok, n)
		}
		body[0] = '['
		if _, ok := numberOf(body); ok {
			t.Error("another body has a number, too")
		}
	}
}

func TestRatioIsWithinRounds(t *testing.T) {
	rounds := func(requests ...int64) *contender {
		c := &contender{}
		for _, n := range requests {
			c.rounds = append(c.rounds, round{load: load{Requests: n, Duration: time.Second}})
		}
		return c
	}
	// The machine was half as fast in the second round.
	if got := ratio(rounds(40, 21, 39), rounds(100, 50, 100)); got == nil || *got != 0.4 {
		t.Errorf("ratio %v, want 0.4", got)
	}
	if got := ratio(rounds(1), nil); got != nil {
		t.Errorf("ratio %v to nothing", *got)
	}
}
