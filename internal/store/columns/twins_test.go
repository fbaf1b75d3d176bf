package columns

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

func TestTwins(t *testing.T) {
	id := func(n byte) uuid.UUID { return uuid.UUID{15: n} }
	message := func(n byte, source model.SourceID, hash byte, window time.Duration) model.NewMessage {
		return model.NewMessage{ID: id(n), Source: source, Dedup: model.Dedup{Hash: [32]byte{hash}, Window: window}}
	}
	messages := []model.NewMessage{
		message(0, 2, 9, time.Hour),
		message(1, 1, 9, time.Hour),
		message(2, 2, 9, time.Minute), // as 0
		message(3, 2, 1, time.Hour),
		message(4, 2, 9, 0),           // has no key
		message(5, 1, 9, 2*time.Hour), // as 1
		message(1, 1, 9, time.Hour),   // the same message
	}
	twins := Twins(messages)
	want := []Twin{
		{Source: 1, Hash: [32]byte{9}, ID: id(1), Window: time.Hour, Places: []int{1, 5, 6}},
		{Source: 2, Hash: [32]byte{1}, ID: id(3), Window: time.Hour, Places: []int{3}},
		{Source: 2, Hash: [32]byte{9}, ID: id(0), Window: time.Hour, Places: []int{0, 2}},
	}
	if diff := cmp.Diff(want, twins); diff != "" {
		t.Fatal(diff)
	}
	for _, c := range []struct {
		name       string
		owners     []uuid.UUID
		duplicates []int
		kept       []byte
	}{
		{"nobody had a key before", []uuid.UUID{id(1), id(3), id(0)}, []int{2, 5}, []byte{0, 1, 3, 4, 1}},
		{"others have them", []uuid.UUID{id(90), id(91), id(92)}, []int{0, 1, 2, 3, 5, 6}, []byte{4}},
		{"the second had it, of an earlier try", []uuid.UUID{id(5), id(3), id(2)}, []int{0, 1, 6}, []byte{2, 3, 4, 5}},
	} {
		t.Run("IN-24 "+c.name, func(t *testing.T) {
			got := Duplicates(messages, twins, c.owners)
			if diff := cmp.Diff(c.duplicates, got); diff != "" {
				t.Errorf("duplicates: %s", diff)
			}
			var kept []byte
			for _, m := range Without(messages, got) {
				kept = append(kept, m.ID[15])
			}
			if diff := cmp.Diff(c.kept, kept); diff != "" {
				t.Errorf("kept: %s", diff)
			}
		})
	}
	t.Run("IN-24 without keys there is nothing to do", func(t *testing.T) {
		plain := messages[4:5]
		if twins := Twins(plain); twins != nil {
			t.Errorf("twins %v", twins)
		}
		if got := Without(plain, nil); len(got) != 1 {
			t.Errorf("kept %d", len(got))
		}
	})
}
