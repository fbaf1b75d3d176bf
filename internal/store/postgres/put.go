package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/store/columns"
)

// putParams are the parameters of a put, in PostgreSQL's binary form. They are
// written by hand into memory that is used again: pgx makes garbage of several
// times their size, and that was a tenth of all that a push costs.
type putParams struct {
	values  [][]byte // parts of buf, and shard
	oids    []uint32
	formats []int16 // all binary

	buf    []byte
	ends   []int   // where each array ends in buf
	places []int32 // of the messages, from 1, in the order of their ids
	shard  [4]byte
}

var putPool sync.Pool // *putParams

// maxPutKept bounds the memory that parameters which are not in use hold on to.
const maxPutKept = 1 << 20

func takePutParams() *putParams {
	if p, ok := putPool.Get().(*putParams); ok {
		return p
	}
	return &putParams{}
}

func (p *putParams) giveBack() {
	if cap(p.buf) <= maxPutKept {
		putPool.Put(p)
	}
}

// write makes the parameters of keepPending, or with the shard those of keepSuccess.
func (p *putParams) write(messages []model.NewMessage, shard int32, withShard bool) {
	p.places = p.places[:0]
	size := 0
	for i := range messages {
		m := &messages[i]
		p.places = append(p.places, int32(i+1))
		size += len(m.Body) + len(m.Headers) + len(m.Query) + len(m.ContentType) + len(m.Check) + 128
	}
	slices.SortStableFunc(p.places, func(a, b int32) int {
		return bytes.Compare(messages[a-1].ID[:], messages[b-1].ID[:])
	})
	p.buf = slices.Grow(p.buf[:0], size+256)
	p.values, p.oids, p.ends = p.values[:0], p.oids[:0], p.ends[:0]

	p.array(pgtype.Int4ArrayOID, pgtype.Int4OID, func(to []byte, place int32) []byte {
		return binary.BigEndian.AppendUint32(to, uint32(place))
	})
	column := func(arrayOID, elementOID uint32, value func(to []byte, m *model.NewMessage) []byte) {
		p.array(arrayOID, elementOID, func(to []byte, place int32) []byte { return value(to, &messages[place-1]) })
	}
	column(pgtype.UUIDArrayOID, pgtype.UUIDOID, func(to []byte, m *model.NewMessage) []byte { return append(to, m.ID[:]...) })
	column(pgtype.Int4ArrayOID, pgtype.Int4OID, func(to []byte, m *model.NewMessage) []byte {
		return binary.BigEndian.AppendUint32(to, uint32(m.Source))
	})
	column(pgtype.TextArrayOID, pgtype.TextOID, func(to []byte, m *model.NewMessage) []byte { return append(to, columns.Text(m.ContentType)...) })
	column(pgtype.TextArrayOID, pgtype.TextOID, func(to []byte, m *model.NewMessage) []byte { return append(to, columns.Text(m.Check)...) })
	column(pgtype.ByteaArrayOID, pgtype.ByteaOID, func(to []byte, m *model.NewMessage) []byte { return append(to, m.Headers...) })
	column(pgtype.ByteaArrayOID, pgtype.ByteaOID, func(to []byte, m *model.NewMessage) []byte { return append(to, m.Query...) })
	column(pgtype.ByteaArrayOID, pgtype.ByteaOID, func(to []byte, m *model.NewMessage) []byte { return append(to, m.Body...) })

	from := 0
	for _, end := range p.ends { // only now, since buf may have moved
		p.values = append(p.values, p.buf[from:end:end])
		from = end
	}
	if withShard {
		binary.BigEndian.PutUint32(p.shard[:], uint32(shard))
		p.values = append(p.values, p.shard[:])
		p.oids = append(p.oids, pgtype.Int4OID)
	}
	for len(p.formats) < len(p.values) {
		p.formats = append(p.formats, pgx.BinaryFormatCode)
	}
}

// array writes one array: a value for each message.
func (p *putParams) array(arrayOID, elementOID uint32, value func(to []byte, place int32) []byte) {
	for _, header := range [...]uint32{1, 0, elementOID, uint32(len(p.places)), 1} { // dimensions, NULLs, type, length, first index
		p.buf = binary.BigEndian.AppendUint32(p.buf, header)
	}
	for _, place := range p.places {
		start := len(p.buf) + 4
		p.buf = value(append(p.buf, 0, 0, 0, 0), place)
		binary.BigEndian.PutUint32(p.buf[start-4:], uint32(len(p.buf)-start))
	}
	p.ends = append(p.ends, len(p.buf))
	p.oids = append(p.oids, arrayOID)
}

// run runs the statement with the parameters.
func (p *putParams) run(ctx context.Context, c *pgx.Conn, statement string, prepares bool) error {
	formats := p.formats[:len(p.values)]
	if !prepares {
		_, err := c.PgConn().ExecParams(ctx, statement, p.values, p.oids, formats, nil).Close()
		return err
	}
	prepared, err := c.Prepare(ctx, statement, statement) // once for each connection
	if err != nil {
		return err
	}
	_, err = c.PgConn().ExecPrepared(ctx, prepared.Name, p.values, formats, nil).Close()
	return err
}
