package ingest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/ingest/verify"
	"github.com/posthouse/posthouse/internal/model"
)

// instantKeeper keeps nothing, at once.
type instantKeeper struct{}

func (instantKeeper) PutMessages(context.Context, model.Put, []model.NewMessage) ([]int, error) {
	return nil, nil
}

// bareHandler is what a door is measured against: it reads the body and answers.
var bareHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusOK)
})

func benchDoor(b *testing.B, keeper Keeper, source model.SourceID) *Door {
	registry := prometheus.NewRegistry()
	w, err := NewWriter(WriterConfig{Keeper: keeper, Registerer: registry})
	if err != nil {
		b.Fatal(err)
	}
	w.Start()
	b.Cleanup(w.Stop)
	d, err := NewDoor(DoorConfig{Writer: w, Registerer: registry, Sources: []Source{{Name: "erp", ID: source, Verifier: verifier(b, "none", verify.Config{})}}})
	if err != nil {
		b.Fatal(err)
	}
	return d
}

var benchBody = append(append([]byte(`{"msgType":1008,"text":"`), bytes.Repeat([]byte("x"), 998)...), `"}`...)

// BenchmarkLoopback sends 1 KiB pushes over 64 connections. Allocations are the
// whole process's; the client makes none.
func BenchmarkLoopback(b *testing.B) {
	b.Run("bare", func(b *testing.B) { benchLoopback(b, bareHandler) })
	b.Run("door", func(b *testing.B) { benchLoopback(b, benchDoor(b, instantKeeper{}, 1)) })
	b.Run("sqlite", func(b *testing.B) {
		store, sources, _ := openStore(b, 1)
		benchLoopback(b, benchDoor(b, store, sources[0].ID))
	})
}

func benchLoopback(b *testing.B, handler http.Handler) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := NewServer(handler)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	defer served.Wait()
	defer server.Close() //nolint:errcheck // the benchmark is over

	request := fmt.Appendf(nil, "POST /in/erp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nUser-Agent: bench\r\nContent-Length: %d\r\n\r\n%s", len(benchBody), benchBody)
	const connections = 64
	conns := make([]net.Conn, connections)
	length := 0
	for i := range conns {
		if conns[i], err = net.Dial("tcp", listener.Addr().String()); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conns[i].Close() })
		if i == 0 {
			length = answerLength(b, conns[i], request)
		}
	}
	b.ReportAllocs()
	before := cpuTime(b)
	b.ResetTimer()
	var clients sync.WaitGroup
	for i, conn := range conns {
		n := b.N / connections
		if i < b.N%connections {
			n++
		}
		clients.Go(func() {
			answer := make([]byte, length)
			for range n {
				if _, err := conn.Write(request); err != nil {
					b.Error(err)
					return
				}
				if _, err := io.ReadFull(conn, answer); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
	b.StopTimer()
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op") // the client's too; steadier than ns/op where others work
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// answerLength sends one request and returns how long its answer is; all are
// equally long.
func answerLength(b *testing.B, conn net.Conn, request []byte) int {
	if _, err := conn.Write(request); err != nil {
		b.Fatal(err)
	}
	var read bytes.Buffer
	response, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &read)), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ContentLength != 0 {
		b.Fatalf("answered %s with %d bytes", response.Status, response.ContentLength)
	}
	return read.Len()
}

// BenchmarkHandler is the door alone, without net/http's connection.
func BenchmarkHandler(b *testing.B) {
	b.Run("bare", func(b *testing.B) { benchHandler(b, bareHandler) })
	b.Run("door", func(b *testing.B) { benchHandler(b, benchDoor(b, instantKeeper{}, 1)) })
}

// sink is an http.ResponseWriter that costs nothing.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

func benchHandler(b *testing.B, handler http.Handler) {
	b.ReportAllocs()
	b.SetParallelism(32) // of 2 cores: 64
	b.RunParallel(func(pb *testing.PB) {
		body := bytes.NewReader(benchBody)
		r := httptest.NewRequest(http.MethodPost, "/in/erp", body)
		r.Header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"bench"}, "Content-Length": {"1024"}}
		r.ContentLength = int64(len(benchBody))
		w := &sink{header: make(http.Header)}
		for pb.Next() {
			body.Reset(benchBody)
			r.Body = io.NopCloser(body)
			clear(w.header)
			handler.ServeHTTP(w, r)
		}
	})
}

// nowhere is a response that nobody reads.
type nowhere struct{ header http.Header }

func (w nowhere) Header() http.Header         { return w.header }
func (w nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (w nowhere) WriteHeader(int)             {}

// BenchmarkKeys is one push after the other through the door alone: keys cost
// only those sources that have them.
func BenchmarkKeys(b *testing.B) {
	for _, c := range []struct {
		name   string
		agreed model.Agreed
		dedup  Dedup
	}{
		{"none", model.Agreed{}, Dedup{}},
		{"order", keyed(1, `headers["X-Customer"]`), Dedup{}},
		{"dedup", model.Agreed{}, Dedup{Key: compileKey(b, "body.msgType")}},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := startWriter(b, WriterConfig{Keeper: instantKeeper{}})
			d, err := NewDoor(DoorConfig{Writer: w, Sources: []Source{{Name: "a", ID: 1, Verifier: verifier(b, "none", verify.Config{}), Dedup: c.dedup}}})
			if err != nil {
				b.Fatal(err)
			}
			d.SetAgreed(1, c.agreed)
			body := bytes.NewReader(nil)
			r := &http.Request{
				Method: http.MethodPost, URL: &url.URL{Path: "/in/a"}, Host: "h", ContentLength: int64(len(benchBody)), Body: io.NopCloser(body),
				Header: http.Header{"Content-Type": {"application/json"}, "X-Customer": {"1"}},
			}
			response := nowhere{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				body.Reset(benchBody)
				d.ServeHTTP(response, r)
			}
		})
	}
}
