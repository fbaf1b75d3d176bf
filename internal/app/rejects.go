package app

import (
	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/internal/ingest"
)

// rejects hands the API what the inbox tells: the API does not know the inbox.
type rejects struct{ box *inbox.Inbox }

func (r rejects) Rejects(source string) (list []ingest.Reject) {
	for _, reject := range r.box.Rejects(source) {
		list = append(list, ingest.Reject(reject))
	}
	return list
}
