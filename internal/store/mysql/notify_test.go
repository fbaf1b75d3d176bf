package mysql

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// notification is a request with one delivery through the channel.
func notification(channel model.SourceID) model.NewRequest {
	id := uuid.Must(uuid.NewV7())
	return model.NewRequest{ID: id, Key: id.String(), Recipient: "u1", Variables: []byte(`{}`),
		Deliveries: []model.NewDelivery{{ID: uuid.Must(uuid.NewV7()), Channel: channel}}}
}

func channelOf(t *testing.T, s *Store) model.SourceID {
	t.Helper()
	sources, err := s.Register(t.Context(), []model.SourceSpec{{Name: model.ChannelPrefix + "mail", Tenant: model.TenantDelivery}})
	if err != nil {
		t.Fatal(err)
	}
	return sources[0].ID
}

// wantDeliverySeq keeps a request, and wants the seq of its delivery to be one.
func wantDeliverySeq(t *testing.T, s *Store, when string) {
	t.Helper()
	answers, err := s.PutRequests(t.Context(), []model.NewRequest{notification(channelOf(t, s))})
	if err != nil {
		t.Fatal(err)
	}
	if seq := answers[0].First.Deliveries[0].Seq; seq < model.DeliverySeqs {
		t.Errorf("%s a delivery has the seq %d", when, seq)
	}
}

// largeValues are variables and sealed values as large as they may be, of which
// most bytes are two in a statement.
func largeValues() (json.RawMessage, model.Sealed) {
	text := bytes.Repeat([]byte(`\"`), model.MaxVariables/2-8)
	return slices.Concat([]byte(`{"v":"`), text, []byte(`"}`)), model.Sealed{KeyID: "k", Bytes: bytes.Repeat([]byte{0, '\'', 0xff}, model.MaxVariables/3)}
}

// What one call may bring is more than the server takes in one packet.
func TestPacketsOfRequests(t *testing.T) {
	for _, engine := range engines {
		t.Run("NC-02 512 requests, many as large as they may be, at once: "+engine.name, func(t *testing.T) {
			s, _ := ready(t, Config{URL: engine.fresh(t)})
			channel := channelOf(t, s)
			var requests []model.NewRequest
			for i := range 512 {
				r := notification(channel)
				r.Key = strings.Repeat("'", model.MaxIdempotencyKey-4) + fmt.Sprintf("%04d", i)
				if i%4 == 3 {
					r.Variables, r.Sensitive = largeValues()
				}
				r.Message = &model.NewUserMessage{ID: uuid.Must(uuid.NewV7()), Title: "t", Body: strings.Repeat("\\", 4<<10)}
				requests = append(requests, r)
			}
			for range 2 { // the second time all is there
				answers, err := s.PutRequests(t.Context(), requests)
				if err != nil {
					t.Fatal(err)
				}
				for i, a := range answers {
					if a.Duplicate || a.First.ID != requests[i].ID || len(a.First.Deliveries) != 1 {
						t.Fatalf("request %d is answered by %+v", i, a)
					}
				}
			}
			for _, r := range []model.NewRequest{requests[3], requests[511]} {
				view, err := s.Request(t.Context(), r.ID)
				if err != nil || !bytes.Equal(view.Request.Variables, r.Variables) {
					t.Errorf("%d bytes of variables came back as %d: %v", len(r.Variables), len(view.Request.Variables), err)
				}
				out, err := s.Outgoing(t.Context(), []model.Seq{view.Deliveries[0].Seq})
				if err != nil || !bytes.Equal(out[0].Sensitive.Bytes, r.Sensitive.Bytes) {
					t.Errorf("sealed values did not come back: %v", err)
				}
			}
			messages, err := s.UserMessages(t.Context(), "u1", 511, 10)
			if err != nil || len(messages) != 1 || messages[0].ID != requests[511].Message.ID {
				t.Errorf("the last messages are %d: %v", len(messages), err)
			}
		})
	}
}

// requestsInPackets is for packets of 1 MiB.
func requestsInPackets(t *testing.T, s *Store) {
	t.Helper()
	channel := channelOf(t, s)
	var requests []model.NewRequest
	for range 512 {
		r := notification(channel)
		r.Key = "'" + strings.Repeat("'", model.MaxIdempotencyKey-37) + r.Key
		if len(requests)%32 == 0 {
			r.Variables, r.Sensitive = largeValues()
		}
		r.Recipient = r.Key
		r.Message = &model.NewUserMessage{ID: uuid.Must(uuid.NewV7()), Body: strings.Repeat("\\", 1<<10)}
		requests = append(requests, r)
	}
	answers, err := s.PutRequests(t.Context(), requests)
	if err != nil || answers[511].First.ID != requests[511].ID {
		t.Fatalf("512 requests: %v", err)
	}
	large := notification(channel)
	large.Message = &model.NewUserMessage{ID: uuid.Must(uuid.NewV7()), Body: strings.Repeat("x", 1<<20)}
	_, err = s.PutRequests(t.Context(), []model.NewRequest{large})
	wantCode(t, err, model.CodeRejected)
	if err != nil && !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Errorf("it does not say why: %v", err)
	}
}

// What the server says of a value of a request is not shown.
func TestErrorsOfRequestsNameNoValues(t *testing.T) {
	for _, engine := range engines {
		t.Run("AC-7 "+engine.name, func(t *testing.T) {
			s, _ := ready(t, Config{URL: engine.fresh(t)})
			first := notification(channelOf(t, s))
			first.Deliveries[0].Masked = "secretsecret"
			if _, err := s.PutRequests(t.Context(), []model.NewRequest{first}); err != nil {
				t.Fatal(err)
			}
			tooLong, twice, stolen := notification(1), notification(1), notification(1)
			tooLong.Deliveries[0].Masked = strings.Repeat("secret", 100)
			twice.Deliveries[0].ID = first.Deliveries[0].ID
			stolen.ID = first.ID
			for _, r := range []model.NewRequest{tooLong, twice, stolen} {
				_, err := s.PutRequests(t.Context(), []model.NewRequest{r})
				wantCode(t, err, model.CodeRejected)
				if err != nil && (strings.Contains(err.Error(), "secretsecret") || strings.Contains(err.Error(), r.Key)) {
					t.Error(err)
				}
			}
		})
	}
}
