package postgres

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// params are the parameters of a statement, in PostgreSQL's binary form. Those
// of the statements that every message passes through are written by hand, into
// memory that is used again: pgx makes garbage of several times their size, and
// that was a tenth of all that a push costs.
type params struct {
	values [][]byte // parts of buf; set by done
	oids   []uint32

	buf  []byte
	ends []int // where each value ends in buf
}

// binaries is a list of formats, which are all binary.
var binaries = slices.Repeat([]int16{pgx.BinaryFormatCode}, 40)

var paramsPool sync.Pool // *params

// maxParamsKept bounds the memory that parameters which are not in use hold on to.
const maxParamsKept = 1 << 20

func takeParams() *params {
	if p, ok := paramsPool.Get().(*params); ok {
		p.buf, p.ends, p.oids, p.values = p.buf[:0], p.ends[:0], p.oids[:0], p.values[:0]
		return p
	}
	return &params{}
}

func (p *params) giveBack() {
	if cap(p.buf) <= maxParamsKept {
		paramsPool.Put(p)
	}
}

// done is called after the last parameter.
func (p *params) done() {
	from := 0
	for _, end := range p.ends { // only now, since buf may have moved
		p.values = append(p.values, p.buf[from:end:end])
		from = end
	}
}

func (p *params) end(oid uint32) {
	p.ends = append(p.ends, len(p.buf))
	p.oids = append(p.oids, oid)
}

func (p *params) int8(v int64) {
	p.buf = binary.BigEndian.AppendUint64(p.buf, uint64(v))
	p.end(pgtype.Int8OID)
}

func (p *params) int4(v int32) {
	p.buf = binary.BigEndian.AppendUint32(p.buf, uint32(v))
	p.end(pgtype.Int4OID)
}

func (p *params) bool(v bool) {
	p.buf = appendBool(p.buf, v)
	p.end(pgtype.BoolOID)
}

func (p *params) uuid(v uuid.UUID) {
	p.buf = append(p.buf, v[:]...)
	p.end(pgtype.UUIDOID)
}

func appendBool(to []byte, v bool) []byte {
	if v {
		return append(to, 1)
	}
	return append(to, 0)
}

// array writes an array of n elements.
func (p *params) array(arrayOID, elementOID uint32, n int, value func(to []byte, i int) []byte) {
	for _, header := range [...]uint32{1, 0, elementOID, uint32(n), 1} { // dimensions, NULLs, type, length, first index
		p.buf = binary.BigEndian.AppendUint32(p.buf, header)
	}
	for i := range n {
		start := len(p.buf) + 4
		p.buf = value(append(p.buf, 0, 0, 0, 0), i)
		binary.BigEndian.PutUint32(p.buf[start-4:], uint32(len(p.buf)-start))
	}
	p.end(arrayOID)
}

func (p *params) int8s(n int, value func(i int) int64) {
	p.array(pgtype.Int8ArrayOID, pgtype.Int8OID, n, func(to []byte, i int) []byte {
		return binary.BigEndian.AppendUint64(to, uint64(value(i)))
	})
}

func (p *params) int4s(n int, value func(i int) int32) {
	p.array(pgtype.Int4ArrayOID, pgtype.Int4OID, n, func(to []byte, i int) []byte {
		return binary.BigEndian.AppendUint32(to, uint32(value(i)))
	})
}

func (p *params) bools(n int, value func(i int) bool) {
	p.array(pgtype.BoolArrayOID, pgtype.BoolOID, n, func(to []byte, i int) []byte { return appendBool(to, value(i)) })
}

func (p *params) uuids(n int, value func(i int) *uuid.UUID) {
	p.array(pgtype.UUIDArrayOID, pgtype.UUIDOID, n, func(to []byte, i int) []byte { return append(to, value(i)[:]...) })
}

func (p *params) texts(n int, value func(i int) string) {
	p.array(pgtype.TextArrayOID, pgtype.TextOID, n, func(to []byte, i int) []byte { return append(to, value(i)...) })
}

func (p *params) byteas(n int, value func(i int) []byte) {
	p.array(pgtype.ByteaArrayOID, pgtype.ByteaOID, n, func(to []byte, i int) []byte { return append(to, value(i)...) })
}

// row is a row of a result in binary form, read column by column. NULL is read
// as zero.
type row struct {
	values [][]byte // only until the next row
	at     int
}

func (r *row) next() []byte {
	r.at++
	return r.values[r.at-1]
}

// int reads an integer of any size.
func (r *row) int() int64 {
	switch b := r.next(); len(b) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(b)))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(b)))
	case 8:
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *row) bool() bool {
	b := r.next()
	return len(b) == 1 && b[0] != 0
}

func (r *row) uuid() (id uuid.UUID) {
	copy(id[:], r.next())
	return id
}

// int8s reads an array of integers without NULLs.
func (r *row) int8s() []int64 {
	const header, element = 20, 12 // bytes; an element begins with its length
	b := r.next()
	if len(b) < header {
		return nil
	}
	b = b[header:]
	values := make([]int64, len(b)/element)
	for i := range values {
		values[i] = int64(binary.BigEndian.Uint64(b[i*element+4:]))
	}
	return values
}

// text reads a text; where it is the same as one that there is already, it is that one.
func (r *row) text(known string) string {
	b := r.next()
	if string(b) == known {
		return known
	}
	return string(b)
}
