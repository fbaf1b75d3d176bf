// Package channel is the contract between deliveries and those who send them.
// Each kind of channel has a folder below this one.
//
// A sender makes one attempt and says how it ended in one form, whatever the
// protocol. It retries nothing, keeps nothing, and decides nothing: what follows
// from a Class is the business of whoever called it.
package channel

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// Message is one delivery, rendered, for one recipient. It is complete before
// the first byte leaves.
type Message struct {
	// ID is the delivery's: the same on every attempt. It goes to the provider as
	// its idempotency key, or into the Message-ID.
	ID        uuid.UUID
	RequestID uuid.UUID
	BizType   string
	Recipient string // the recipient's id
	Locale    string
	Address   string
	Subject   string // email
	HTML      string // email
	Text      string // email: the plain part; otherwise the text
	// Hidden are further texts that must not be repeated in a Result: values of
	// variables.
	Hidden []string
}

// Result is how one attempt ended. Nothing in it repeats the address, a value of
// a variable, or a credential.
type Result struct {
	Class model.Class
	// Code is the provider's own, short and printable: "550 5.1.1", "429",
	// "ILLEGAL_NUMBER"; or ours where it did not answer: "connect", "tls",
	// "timeout", "reset".
	Code string
	// Text is for an operator: what happened, in one line.
	Text       string
	ProviderID string // the provider's id of the message, where it accepted
	HTTPStatus int    // 0 where none
	// RetryAfter is what the provider asks for, at most an hour; 0 where nothing.
	RetryAfter time.Duration
	// OfRecipient: a transient failure is this recipient's (a full or a greylisted
	// mailbox), and says nothing of the account.
	OfRecipient bool
}

// Sender carries out deliveries through one account. Its methods may be called
// at the same time.
type Sender interface {
	// Send makes one attempt. It returns soon after ctx has ended: uncertain where
	// the provider may have got all of it, otherwise transient. It does not panic on any input.
	Send(ctx context.Context, m Message) Result
	// Close closes idle connections. It is called once, when no Send runs.
	Close() error
}

// Address checks are made when a notification is accepted, before any sender is
// called.

// Addresses says whether an address can be used, and how it may be shown.
type Addresses interface {
	// Check returns the address as it is to be kept, and a masked form for people
	// ("z•••@example.com"). The error says what is wrong and does not repeat the
	// address.
	Check(address string) (kept, masked string, err error)
}
