package postgres

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/testdb"
)

// TestPutWithoutPreparedStatements puts with and without named statements;
// poolers do not allow these.
func TestPutWithoutPreparedStatements(t *testing.T) {
	for _, mode := range []string{"", "cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run("IN-25 "+mode, func(t *testing.T) {
			url := testdb.Postgres(t)
			if mode != "" {
				url += "?default_query_exec_mode=" + mode
			}
			s, source := ready(t, Config{URL: url})
			if want := mode == "" || mode == "cache_statement"; s.prepares != want {
				t.Errorf("prepares is %v, want %v", s.prepares, want)
			}
			odd := []model.NewMessage{
				{ID: uuid.Must(uuid.NewV7()), Source: source},
				{
					ID: uuid.Must(uuid.NewV7()), Source: source, ContentType: "text/plain; charset=ü", Check: "not JSON: é",
					Headers: []byte("A: \xff\x00\r\n"), Query: []byte("q=\x00"), Body: []byte("\x00\xff\xed\xa0\x80{}"),
				},
				{ID: uuid.Must(uuid.NewV7()), Source: source, Body: bytes.Repeat([]byte{0, 1, 255}, maxParamsKept/3+1)},
			}
			// Twice, so that memory that was used is used again, and a retry keeps each once.
			for _, batch := range [][]model.NewMessage{{odd[2], odd[1], odd[0]}, {odd[0]}, {odd[1], odd[2]}} {
				if err := put(t.Context(), s, batch...); err != nil {
					t.Fatal(err)
				}
			}
			imported := message(source)
			if _, err := s.PutMessages(t.Context(), model.PutSuccess, []model.NewMessage{imported}); err != nil {
				t.Fatal(err)
			}
			for _, want := range append(odd, imported) {
				got, err := s.Body(t.Context(), want.ID)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got.NewMessage, cmpopts.EquateEmpty()); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}
