package httpapi

import (
	"bytes"
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthouse/posthouse/internal/model"
)

// Time is a time as the API shows it: RFC 3339 UTC with microseconds, null
// where it is not set.
type Time model.Micros

const timeLayout = "2006-01-02T15:04:05.000000Z"

// lastTime is the last that RFC 3339 can write.
var lastTime = model.MicrosOf(time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC))

// String returns the time as the API shows it, without quotes; "" where it is
// not set.
func (t Time) String() string {
	if t == 0 {
		return ""
	}
	return min(model.Micros(t), lastTime).Time().Format(timeLayout)
}

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	if t == 0 {
		return []byte("null"), nil
	}
	return []byte(`"` + t.String() + `"`), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*t = 0
		return nil
	}
	at, err := time.Parse(time.RFC3339Nano, string(bytes.Trim(text, `"`)))
	if err != nil {
		return fmt.Errorf("read a time: %w", err)
	}
	*t = Time(model.MicrosOf(at))
	return nil
}

// Schema implements huma.SchemaProvider.
func (Time) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time", Nullable: true}
}
