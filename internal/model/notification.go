package model

import (
	"encoding/json"

	"github.com/google/uuid"
)

// A notification has three layers, each with its own life: the request (what
// happened and whom to tell; it never changes), the user message (what the user
// sees), and the deliveries (one channel's task each, carried out by the queue).

// Priority is for policies and lanes only.
type Priority string

// The values of Priority.
const (
	PriorityLow    Priority = "low"
	PriorityNormal Priority = "normal"
	PriorityHigh   Priority = "high"
)

// Bounds of what a request may carry, in bytes unless said otherwise.
const (
	MaxIdempotencyKey = 128
	MaxBizType        = 128
	MaxRecipientID    = 128
	MaxTemplateCode   = 64
	MaxLocale         = 35
	MaxTags           = 20 // tags
	MaxTag            = 64
	MaxVariables      = 64 << 10
	MaxProviderID     = 255
	MaxErrorCode      = 64
	MaxErrorText      = 512
)

// Content is the keyed fingerprint of what a request says: two requests with the
// same idempotency key and equal Content are one. It tells which field differs
// and nothing of its value.
type Content struct {
	KeyID  string // of the ring's key that made it
	Fields [ContentFields][16]byte
}

// ContentFields is how many fields Content has. Their order is stored.
const ContentFields = 5

// ContentField names a field of Content, as the API calls it.
var ContentField = [ContentFields]string{"biz_type", "template", "recipient", "variables", "locale"}

// Sealed is an encrypted value: the ring's key that sealed it, and the bytes.
// The zero Sealed holds nothing.
type Sealed struct {
	KeyID string
	Bytes []byte
}

// Aggregate says which deliveries make a request a success. The zero value: all
// that were made.
type Aggregate struct {
	All []string `json:"all,omitempty"` // channels, each of which must have sent
	Any []string `json:"any,omitempty"` // channels, one of which must have sent
}

// Choice is what policy decided on one channel, and why.
type Choice struct {
	Channel string `json:"channel"`
	// Skipped: it was wanted, but cannot be used (no address, switched off for
	// the user). No delivery was made.
	Skipped bool   `json:"skipped,omitempty"`
	Reason  string `json:"reason"`
}

// NewRequest is a notification that has been checked, to be kept with its user
// message and its deliveries in one transaction.
type NewRequest struct {
	ID      uuid.UUID // version 7, the same on every try to insert it
	Key     string    // the idempotency key, compared byte for byte; unique for ever
	Content Content

	BizType   string
	Template  string // its code
	Recipient string // its id; addresses are in the deliveries
	Priority  Priority
	Locale    string // as asked for
	NotBefore Micros // 0: now
	ExpiresAt Micros // 0: never
	Tags      []string
	Variables json.RawMessage // canonical; sensitive values are not in it
	// Sensitive holds the values of the sensitive variables, one JSON object,
	// sealed. It is erased when the last delivery is final.
	Sensitive Sealed
	Success   Aggregate
	Choices   []Choice // in the order of the policy

	Message    *NewUserMessage // nil where the user sees none
	Deliveries []NewDelivery
}

// NewUserMessage is what the user sees. The store gives it the next number among
// its user's.
type NewUserMessage struct {
	ID          uuid.UUID // version 7
	Title, Body string
}

// Purpose is what a delivery is for. At most one delivery exists per request,
// recipient, channel and purpose.
type Purpose int16

// The values of Purpose; escalation n is PurposeEscalation + n.
const (
	PurposePrimary       Purpose = 0
	PurposeFormerAddress Purpose = 1
	PurposeEscalation    Purpose = 100
)

// String is the word that people and the API use.
func (p Purpose) String() string {
	switch p {
	case PurposePrimary:
		return "primary"
	case PurposeFormerAddress:
		return "former_address"
	}
	return "escalation"
}

// TemplateID names one stored version of one template for one channel and
// locale. It is given by the store.
type TemplateID int32

// NewDelivery is one channel's task.
type NewDelivery struct {
	ID       uuid.UUID // version 7; what providers get as their idempotency key
	Channel  SourceID  // the channel's queue
	Purpose  Purpose
	Template TemplateID // the version that was frozen
	Locale   string     // of that version: which one was used
	Reason   string     // why the channel was chosen
	Masked   string     // the address as it may be shown; empty in-app
	Address  Sealed     // empty in-app
	// Done: nothing is left to do (in-app, of which the user message is all).
	// There is no work; it has succeeded with the insert.
	Done bool
}

// PutRequest answers for one NewRequest.
type PutRequest struct {
	// Duplicate: the key was known, or came earlier in the same call. First is
	// what is kept under it, and nothing was inserted. It is false where what is
	// kept has this request's own ID: an earlier try has put it.
	Duplicate bool
	First     RequestHead
}

// RequestHead is what the first answer to a request said.
type RequestHead struct {
	Seq        Seq
	ID         uuid.UUID
	Content    Content
	Success    Aggregate
	Choices    []Choice
	Deliveries []DeliveryHead // in the order of Choices
}

// DeliveryHead names one delivery.
type DeliveryHead struct {
	Seq     Seq
	ID      uuid.UUID
	Channel string
	Purpose Purpose
	Done    bool // it had succeeded with the insert
	Reason  string
}

// TemplateVersion is the content of one template for one channel and locale. It
// never changes: other content is another version.
type TemplateVersion struct {
	ID      TemplateID // 0 in a call that puts it
	Code    string
	Kind    string // the kind of channel that it is for: in_app, email, text
	Locale  string // "" is the default
	Subject string // email: subject; in_app: title; otherwise empty
	HTML    string // email
	Text    string // in_app: Markdown; email: the plain part where the author wrote one; otherwise the text
	Schema  string // the JSON Schema of the variables
}

// Outgoing is what a sender needs of one delivery.
type Outgoing struct {
	Seq       Seq
	ID        uuid.UUID
	Request   Seq
	RequestID uuid.UUID
	BizType   string
	Recipient string
	Priority  Priority
	Locale    string // of the frozen template
	Template  TemplateID
	Variables json.RawMessage
	Sensitive Sealed // empty: the request has none
	// Erased: the request had sensitive values, and they are gone.
	Erased    bool
	Cancelled bool // somebody has cancelled the request
	Address   Sealed
	ExpiresAt Micros // 0: never
	Now       Micros // the store's clock when it was read
}

// UserMessage is what the user sees.
type UserMessage struct {
	ID        uuid.UUID
	Seq       int64 // from 1, without gaps, per user; order of commit
	RequestID uuid.UUID
	Title     string
	Body      string
	CreatedAt Micros
	ReadAt    Micros // 0: unread
}
