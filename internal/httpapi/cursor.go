package httpapi

import (
	"encoding/base64"
	"encoding/binary"
	"errors"

	"github.com/posthouse/posthouse/internal/model"
)

// A cursor is a place in one list: it carries which list that is, so that it
// is not taken for a place in another.
const (
	cursorVersion = 1
	cursorSize    = 1 + 1 + 4 + 8 + 8
)

var cursorEncoding = base64.RawURLEncoding.Strict()

var (
	errNoCursor    = errors.New("expected a next_cursor that an earlier page gave")
	errOtherPlace  = errors.New("expected a cursor of this very list: its filter must stay the same from page to page")
	errOtherCursor = errors.New("expected a cursor of this very list: source and state must stay the same from page to page")
)

// EncodeCursor writes a place in the list that p asks for. Only p's source and
// filter matter.
func EncodeCursor(p model.ListParams, c model.Cursor) string {
	b := make([]byte, 0, cursorSize)
	b = append(b, cursorVersion, byte(p.Filter))
	b = binary.BigEndian.AppendUint32(b, uint32(p.Source))
	b = binary.BigEndian.AppendUint64(b, uint64(c.DueAt))
	b = binary.BigEndian.AppendUint64(b, uint64(c.Seq))
	return cursorEncoding.EncodeToString(b)
}

// DecodeCursor reads what EncodeCursor wrote for the same list. The empty text
// is the list's beginning. The error says what was expected.
func DecodeCursor(p model.ListParams, text string) (model.Cursor, error) {
	if text == "" {
		return model.Cursor{}, nil
	}
	b, err := cursorEncoding.DecodeString(text)
	if err != nil || len(b) != cursorSize || b[0] != cursorVersion {
		return model.Cursor{}, errNoCursor
	}
	if model.Filter(b[1]) != p.Filter || model.SourceID(binary.BigEndian.Uint32(b[2:])) != p.Source {
		return model.Cursor{}, errOtherCursor
	}
	c := model.Cursor{DueAt: model.Micros(binary.BigEndian.Uint64(b[6:])), Seq: model.Seq(binary.BigEndian.Uint64(b[14:]))}
	if c.Seq <= 0 || c.DueAt < 0 {
		return model.Cursor{}, errNoCursor
	}
	return c, nil
}
