package columns

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// Twin is one Dedup key of a call, with the messages that have it.
type Twin struct {
	Source model.SourceID
	Hash   [32]byte
	// ID is that of the first message with the key: the one that is kept where
	// no other message, of another call, has the key.
	ID     uuid.UUID
	Window time.Duration // of that message
	Places []int         // of all messages with the key, ascending
}

// Twins gathers the Dedup keys of messages, each once, by source and hash:
// calls that take keys in this order do not wait for each other in a ring. It
// is nil where no message has a key.
func Twins(messages []model.NewMessage) []Twin {
	type key struct {
		source model.SourceID
		hash   [32]byte
	}
	var twins []Twin
	var found map[key]int
	for i := range messages {
		m := &messages[i]
		if m.Dedup.Window <= 0 {
			continue
		}
		if found == nil {
			found = make(map[key]int, len(messages)-i)
		}
		k := key{m.Source, m.Dedup.Hash}
		at, known := found[k]
		if !known {
			at = len(twins)
			found[k] = at
			twins = append(twins, Twin{Source: m.Source, Hash: m.Dedup.Hash, ID: m.ID, Window: m.Dedup.Window})
		}
		twins[at].Places = append(twins[at].Places, i)
	}
	slices.SortFunc(twins, func(a, b Twin) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), bytes.Compare(a.Hash[:], b.Hash[:]))
	})
	return twins
}

// Duplicates returns the places of the messages that are not kept, ascending.
// owners says, for each of the twins, which message has its key by now.
func Duplicates(messages []model.NewMessage, twins []Twin, owners []uuid.UUID) []int {
	var places []int
	for i := range twins {
		for _, place := range twins[i].Places {
			if messages[place].ID != owners[i] {
				places = append(places, place)
			}
		}
	}
	slices.Sort(places)
	return places
}

// Without returns messages without those at places, which are ascending.
func Without(messages []model.NewMessage, places []int) []model.NewMessage {
	if len(places) == 0 {
		return messages
	}
	kept := make([]model.NewMessage, 0, len(messages)-len(places))
	for i := range messages {
		if len(places) > 0 && places[0] == i {
			places = places[1:]
			continue
		}
		kept = append(kept, messages[i])
	}
	return kept
}
