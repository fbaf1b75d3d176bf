package postgres

import (
	"slices"

	"github.com/posthouse/posthouse/internal/model"
)

// Columns of a message m that may be absent, as row.message wants them.
const messageColumns = `m.seq, m.id, m.source, m.received_at, m.content_type, m.check_note, m.headers, m.query, m.body`

// message reads a message, which is nil where there was none. known is one that
// it may resemble.
func (r *row) message(known *model.Message) *model.Message {
	var contentType string
	if known != nil {
		contentType = known.ContentType
	}
	m := &model.Message{Seq: model.Seq(r.int())}
	if m.Seq == 0 {
		return nil
	}
	m.ID, m.Source, m.ReceivedAt = r.uuid(), model.SourceID(r.int()), model.Micros(r.int())
	m.ContentType, m.Check = r.text(contentType), r.text("")
	headers, query, body := r.next(), r.next(), r.next()
	all := slices.Concat(headers, query, body)
	cut := func(n int) []byte {
		part := all[:n:n]
		all = all[n:]
		return part
	}
	m.Headers, m.Query, m.Body = cut(len(headers)), cut(len(query)), cut(len(body))
	return m
}
