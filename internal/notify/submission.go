package notify

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// Recipient is whom to tell.
type Recipient struct {
	ID        string
	Addresses map[string]string // by kind: "email", "phone", …; an empty one counts as none
}

// Submission is what happened and whom to tell, as it came in.
type Submission struct {
	// IdempotencyKey comes from the business: the same for every try to say the
	// same, another one for each new thing to say. It is never forgotten.
	IdempotencyKey string
	BizType        string // what happened, "approval.todo"
	Template       string // a template's code
	Recipient      Recipient
	Variables      json.RawMessage // a JSON object; nil is an empty one
	Priority       model.Priority  // "": normal
	Locale         string          // "": the template's default
	NotBefore      time.Time       // zero: at once
	ExpiresAt      time.Time       // zero: never
	Tags           []string
}

// Receipt says what was kept.
type Receipt struct {
	ID uuid.UUID
	// Duplicate: it was kept before, and this is the first answer again.
	Duplicate  bool
	Status     Status // as it followed from the deliveries when they were made
	Deliveries []Delivered
	Skipped    []model.Choice // channels that were wanted and cannot be used, with the reason
}

// Delivered is one delivery that was made.
type Delivered struct {
	ID      uuid.UUID
	Channel string
	Status  model.DeliveryStatus // PENDING; SUCCEEDED in-app
	Reason  string               // why the channel was chosen
}

// Code says what an Error asks of the caller.
type Code string

// The values of Code.
const (
	Invalid     Code = "invalid"     // 422: submitting the same again is of no use
	Conflict    Code = "conflict"    // 409: the key is that of another request
	Unavailable Code = "unavailable" // 503: submit again, with the same key
)

// FieldError is what is wrong with one field, in the words of the API. It never
// repeats the field's value.
type FieldError struct {
	Field   string // "recipient.email", "variables.title"; "" where it is no one field's
	Problem string
}

// Error is the only type of error that Accept returns.
type Error struct {
	Code   Code
	Detail string       // in one line, fit for the caller
	Fields []FieldError // all that is wrong (Invalid), or the fields that differ (Conflict)
	// RetryAfter is how long to wait before submitting again (Unavailable).
	RetryAfter time.Duration
}

// Error names what is wrong and no value.
func (e *Error) Error() string {
	if len(e.Fields) == 0 {
		return e.Detail
	}
	var b strings.Builder
	b.WriteString(e.Detail)
	for i, f := range e.Fields {
		separator := "; "
		if i == 0 {
			separator = ": "
		}
		if f.Field == "" {
			fmt.Fprintf(&b, "%s%s", separator, f.Problem)
			continue
		}
		fmt.Fprintf(&b, "%s%s %s", separator, f.Field, f.Problem)
	}
	return b.String()
}
