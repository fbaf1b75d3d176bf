package config

import (
	"math"
	"testing"
	"time"
)

func TestParseBytes(t *testing.T) {
	for written, want := range map[string]Bytes{
		"0": 0, "1": 1, "1048576": 1 << 20, "7B": 7, "512KiB": 512 << 10, "1MiB": 1 << 20, "2GiB": 2 << 30,
		"1KB": 1e3, "10MB": 10e6, "3GB": 3e9, "1 MiB": 1 << 20, "1mib": 1 << 20, "9223372036854775807": math.MaxInt64,
	} {
		if got, err := ParseBytes(written); err != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", written, got, err, want)
		}
	}
	for _, written := range []string{"", "MiB", "-1", "+1", "1.5MiB", "1M", "1 M iB", "9223372036854775808", "8589934592GiB", "0x10", "1e3"} {
		if got, err := ParseBytes(written); err == nil {
			t.Errorf("%q is taken for %d", written, got)
		}
	}
}

func TestBytesString(t *testing.T) {
	for size, want := range map[Bytes]string{0: "0B", 1: "1B", 1000: "1000B", 1 << 10: "1KiB", 1536: "1536B", 256 << 20: "256MiB", 2 << 30: "2GiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d is written %s, want %s", int64(size), got, want)
		}
		if back, err := ParseBytes(want); err != nil || back != size {
			t.Errorf("%s is read as %d (%v), want %d", want, int64(back), err, int64(size))
		}
	}
}

func TestParseDuration(t *testing.T) {
	for written, want := range map[string]time.Duration{
		"0s": 0, "0": 0, "500ms": 500 * time.Millisecond, "1h30m": 90 * time.Minute, "8d": 192 * time.Hour,
		"1d12h": 36 * time.Hour, "-5s": -5 * time.Second, "1.5s": 1500 * time.Millisecond, "0d": 0,
	} {
		if got, err := parseDuration(written); err != nil || got != want {
			t.Errorf("%q is %s (%v), want %s", written, got, err, want)
		}
	}
	for _, written := range []string{"", "5", "s", "d", "1.5d", "-1d", "1d-1h", "1dd", "1d1", "99999999d", "65535d9999999h", "300000h1d", "soon"} {
		if got, err := parseDuration(written); err == nil {
			t.Errorf("%q is taken for %s", written, got)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Millisecond: "1ms", time.Second: "1s", time.Minute: "60s", 90 * time.Second: "90s", 2 * time.Minute: "2m",
		5 * time.Minute: "5m", time.Hour: "1h", 90 * time.Minute: "90m", 48 * time.Hour: "2d", 1500 * time.Millisecond: "1.5s",
		11*time.Minute + time.Second: "11m1s",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%s is written %s, want %s", d, got, want)
		}
		if back, err := parseDuration(want); err != nil || back != d {
			t.Errorf("%s is read as %s (%v), want %s", want, back, err, d)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:8080": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true, "LOCALHOST:1": true, "[::ffff:127.0.0.1]:1": true,
		":8080": false, "0.0.0.0:1": false, "[::]:1": false, "192.168.0.1:1": false, "example.com:1": false, "127.0.0.1": false, "": false,
	} {
		if got := IsLoopback(address); got != want {
			t.Errorf("IsLoopback(%q) is %t", address, got)
		}
	}
}

func TestClosest(t *testing.T) {
	words := []string{"listen", "enabled", "batch_size", "key", "order"}
	for word, want := range map[string]string{
		"listn": "listen", "Listen": "listen", "enbaled": "enabled", "batchsize": "batch_size", "batch-size": "batch_size",
		"kye": "key", "keys": "key", "oder": "order", "frobnicate": "", "": "", "x": "",
	} {
		if got := closest(word, words); got != want {
			t.Errorf("closest to %q is %q, want %q", word, got, want)
		}
	}
}
