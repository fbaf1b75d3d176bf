package ingest

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthouse/posthouse/internal/ingest/verify"
	"github.com/posthouse/posthouse/internal/model"
)

// onePipe is a listener for one connection, which runs on a test's clock.
type onePipe chan net.Conn

func (p onePipe) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p onePipe) Close() error   { close(p); return nil }
func (p onePipe) Addr() net.Addr { return &net.TCPAddr{} }

func TestServerTimes(t *testing.T) {
	for name, test := range map[string]struct {
		path  string
		after time.Duration // between header and body
		keep  time.Duration // that the store takes
		want  int
	}{
		"a body that comes later than others may":    {"/in/patient", readTimeout + 5*time.Second, 0, 200},
		"a commit that takes longer than reading":    {"/in/patient", 0, readTimeout + 5*time.Second, 200},
		"a body that comes later than answer_within": {"/in/patient", MaxAnswerWithin + time.Second, 0, 408},
	} {
		t.Run("IN-03 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keeper := slowKeeper{test.keep}
				w := startWriter(t, WriterConfig{Keeper: keeper, CallTimeout: time.Minute})
				door, err := NewDoor(DoorConfig{Writer: w, Sources: []Source{{
					Name: "patient", ID: 1, Verifier: verifier(t, "none", verify.Config{}), AnswerWithin: MaxAnswerWithin,
				}}})
				if err != nil {
					t.Fatal(err)
				}
				client, end := net.Pipe()
				listener := make(onePipe, 1)
				listener <- end
				server := NewServer(door)
				go func() { _ = server.Serve(listener) }()
				defer func() { _ = server.Close() }()
				defer func() { _ = client.Close() }()
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					_, _ = io.WriteString(client, "POST "+test.path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nConnection: close\r\n\r\n")
					time.Sleep(test.after)
					_, _ = io.WriteString(client, "x")
				}()
				response, err := http.ReadResponse(bufio.NewReader(client), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = response.Body.Close() }()
				if response.StatusCode != test.want {
					t.Errorf("answered %d, want %d", response.StatusCode, test.want)
				}
				_, _ = io.Copy(io.Discard, client) // until the server has closed it
				<-sent
			})
		})
	}
}

// slowKeeper takes its time.
type slowKeeper struct{ takes time.Duration }

func (k slowKeeper) PutMessages(context.Context, model.Put, []model.NewMessage) ([]int, error) {
	time.Sleep(k.takes)
	return nil, nil
}
