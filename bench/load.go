package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// secret is what the sender and the source with HMAC share.
const secret = "a secret of the bench"

// Each body begins with its number, so that whoever receives it can tell which
// it is without parsing JSON.
const (
	bodySize     = 1024
	numberPrefix = `{"number":"`
	numberDigits = 8
	maxNumber    = 99_999_999
)

// payload is the JSON of one push: 1 KiB like an order in an ERP system, that
// the accept expression says yes to.
func payload(number int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `%s%0*d","msgType":1008,"event":"order.shipped","occurredAt":"2026-11-20T08:15:30.123Z","order":{"id":"SO-2026-0009817",`+
		`"currency":"EUR","total":1284.50,"customer":{"id":41877,"name":"Zoë Example","country":"NL","vat":null},"lines":[`, numberPrefix, numberDigits, number)
	const line = `{"sku":"PH-%04d","quantity":%d,"price":%d.95,"gift":false,"note":"fragile"}`
	const end, filler = `]},"trace":"`, `"}`
	for i := 1; ; i++ {
		next := fmt.Sprintf(line, i*37, i, i*11)
		if b.Len()+len(next)+1+len(end)+len(filler) > bodySize {
			break
		}
		if i > 1 {
			b.WriteByte(',')
		}
		b.WriteString(next)
	}
	b.WriteString(end)
	b.WriteString(strings.Repeat("x", bodySize-b.Len()-len(filler)))
	b.WriteString(filler)
	return b.Bytes()
}

// numberOf returns the number of a payload.
func numberOf(body []byte) (int, bool) {
	if len(body) != bodySize || !bytes.HasPrefix(body, []byte(numberPrefix)) {
		return 0, false
	}
	n, err := strconv.Atoi(string(body[len(numberPrefix) : len(numberPrefix)+numberDigits]))
	return n, err == nil
}

func signature(body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// load is what wrk saw.
type load struct {
	Requests     int64 // answered
	NotOK        int64 // of them, with a status above 399
	SocketErrors int64 // connections, reads, writes and answers that did not come in time
	Duration     time.Duration
	P50, P99     time.Duration
}

// perSecond is how many requests were answered.
func (l load) perSecond() float64 { return float64(l.Requests) / l.Duration.Seconds() }

// mark begins the line that wrk's script prints.
const mark = "bench-result "

// resultScript is the end of each script: wrk counts, and knows its latencies in
// microseconds.
const resultScript = `
function done(summary, latency, requests)
  local e = summary.errors
  print(string.format('` + mark + `{"requests":%d,"not_ok":%d,"socket_errors":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d}',
    summary.requests, e.status, e.connect + e.read + e.write + e.timeout, summary.duration, latency:percentile(50), latency:percentile(99)))
end
`

// script makes wrk send the same signed push all the time.
func script(body []byte) string {
	return fmt.Sprintf(`wrk.method = "POST"
wrk.body = %q
wrk.headers["Content-Type"] = "application/json"
wrk.headers["User-Agent"] = "bench"
wrk.headers["X-Hub-Signature-256"] = %q
`, body, signature(body)) + resultScript
}

// runWrk sends what a script says to url for so long, and waits for the result.
func (b *bench) runWrk(ctx context.Context, url string, duration time.Duration, script string) (load, error) {
	path := filepath.Join(b.work, "push.lua")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		return load{}, fmt.Errorf("write wrk's script: %w", err)
	}
	cmd := exec.CommandContext(ctx, "wrk", "-t", strconv.Itoa(b.threads), "-c", strconv.Itoa(b.connections), //nolint:gosec // the load generator, with our own numbers
		"-d", strconv.Itoa(int(duration.Round(time.Second).Seconds()))+"s", "--timeout", "10s", "-s", path, url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return load{}, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	l, err := parseWrk(out)
	if err != nil {
		return load{}, fmt.Errorf("%w\n%s", err, out)
	}
	return l, nil
}

// parseWrk reads the line of our script out of all that wrk prints.
func parseWrk(out []byte) (load, error) {
	for line := range bytes.Lines(out) {
		text, ours := bytes.CutPrefix(line, []byte(mark))
		if !ours {
			continue
		}
		var r struct {
			Requests     *int64 `json:"requests"`
			NotOK        int64  `json:"not_ok"`
			SocketErrors int64  `json:"socket_errors"`
			DurationUS   int64  `json:"duration_us"`
			P50US        int64  `json:"p50_us"`
			P99US        int64  `json:"p99_us"`
		}
		if err := json.Unmarshal(text, &r); err != nil {
			return load{}, fmt.Errorf("wrk printed a result that cannot be read: %w", err)
		}
		if r.Requests == nil || r.DurationUS <= 0 {
			return load{}, errors.New("wrk printed a result without requests or duration")
		}
		return load{
			Requests: *r.Requests, NotOK: r.NotOK, SocketErrors: r.SocketErrors,
			Duration: time.Duration(r.DurationUS) * time.Microsecond,
			P50:      time.Duration(r.P50US) * time.Microsecond, P99: time.Duration(r.P99US) * time.Microsecond,
		}, nil
	}
	return load{}, errors.New("wrk printed no result")
}
