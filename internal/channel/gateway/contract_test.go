package gateway

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/channel/channeltest"
)

func TestContract(t *testing.T) {
	channeltest.Run(t, channeltest.Harness{
		Credentials: []string{"t0k3n-of-the-gateway"},
		Address:     "+8613800138000",
		Accepting:   func(t *testing.T) channel.Sender { return newSender(t, sms(answering(t, 200, nil, "{}"))) },
		Echoing: func(t *testing.T, echo []string) channel.Sender {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"code": "`+strings.Join(echo, "")+`", "message": "`+r.Header.Get("Authorization")+string(body)+strings.Join(echo, " ")+`"}`)
			}))
			t.Cleanup(server.Close)
			return newSender(t, sms(server.URL))
		},
		Hanging: func(t *testing.T, reached func()) channel.Sender {
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				reached()
				<-r.Context().Done()
			}))
			t.Cleanup(server.Close)
			c := sms(server.URL)
			c.ReadTimeout = time.Minute
			return newSender(t, c)
		},
		Unreachable: func(t *testing.T) channel.Sender {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			_ = l.Close()
			return newSender(t, sms("http://"+l.Addr().String()))
		},
	})
}
