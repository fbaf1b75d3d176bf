package model

import (
	"encoding/json"

	"github.com/google/uuid"
)

// DeliverySeqs is the first Seq of a delivery; messages stay below it, so that
// both can share a table of work.
const DeliverySeqs Seq = 1 << 62

// DeliveryStatus is where a delivery stands, as it is shown. It follows from the
// State of its work, or from its outcome.
//
//	             claim            settle
//	PENDING ───────────▶ PROCESSING ───▶ SUCCEEDED ─▶ DELIVERED
//	   ▲ ▲ ╲                │ │ │ │
//	   │ │  ╲cancel, expiry │ │ │ ╰───▶ FAILED ────╮ permanent
//	   │ │   ▼              │ │ ╰─────▶ DEAD ──────┤ tries spent
//	   │ │ CANCELLED        │ ╰───────▶ UNCERTAIN ─┤ held, or spent
//	   │ │   ▲              ▼                      │
//	   │ │   ╰─────── RETRY_WAIT ◀─ a failed try   │
//	   │ ╰─────────────── unburned (shutdown, pause, breaker)
//	   ╰──────────────────────────────── replay ───╯
type DeliveryStatus string

// The values of DeliveryStatus.
const (
	DeliveryPending    DeliveryStatus = "PENDING"
	DeliveryProcessing DeliveryStatus = "PROCESSING"
	DeliveryRetryWait  DeliveryStatus = "RETRY_WAIT" // pending, and at least one try since the last replay has failed
	DeliverySucceeded  DeliveryStatus = "SUCCEEDED"  // accepted by the provider
	DeliveryDelivered  DeliveryStatus = "DELIVERED"  // a receipt or an acknowledgement says so
	DeliveryFailed     DeliveryStatus = "FAILED"     // permanent
	DeliveryDead       DeliveryStatus = "DEAD"       // tries spent
	DeliveryUncertain  DeliveryStatus = "UNCERTAIN"  // the provider may have accepted it
	DeliveryCancelled  DeliveryStatus = "CANCELLED"
)

// DeliveryStatuses lists all of them.
func DeliveryStatuses() []DeliveryStatus {
	return []DeliveryStatus{DeliveryPending, DeliveryProcessing, DeliveryRetryWait, DeliverySucceeded, DeliveryDelivered,
		DeliveryFailed, DeliveryDead, DeliveryUncertain, DeliveryCancelled}
}

// StatusOf tells the status of a delivery from the state of its work; Success
// where an outcome stands for it.
func StatusOf(s State, retryCount int, delivered bool) DeliveryStatus {
	switch s {
	case Pending:
		if retryCount > 0 {
			return DeliveryRetryWait
		}
		return DeliveryPending
	case Processing:
		return DeliveryProcessing
	case Success:
		if delivered {
			return DeliveryDelivered
		}
		return DeliverySucceeded
	case Dead:
		return DeliveryDead
	case Uncertain:
		return DeliveryUncertain
	case Cancelled:
		return DeliveryCancelled
	case Failed:
	}
	return DeliveryFailed
}

// Final says whether nothing happens to it any more without an operator.
// UNCERTAIN waits for one, and so is not final.
func (s DeliveryStatus) Final() bool {
	switch s {
	case DeliverySucceeded, DeliveryDelivered, DeliveryFailed, DeliveryDead, DeliveryCancelled:
		return true
	case DeliveryPending, DeliveryProcessing, DeliveryRetryWait, DeliveryUncertain:
	}
	return false
}

// Sent says whether the provider has it.
func (s DeliveryStatus) Sent() bool { return s == DeliverySucceeded || s == DeliveryDelivered }

// Class is how a provider's answer, or its absence, is classed: it alone decides
// what happens next.
type Class string

// The values of Class.
const (
	ClassSuccess     Class = "success"
	ClassTransient   Class = "transient"    // try again; several in a row open the breaker
	ClassRateLimited Class = "rate_limited" // try again, the whole account not before RetryAfter
	ClassPermanent   Class = "permanent"    // no retry can help: FAILED
	ClassAuth        Class = "auth"         // the account is refused: it pauses, no try is burned
	ClassUncertain   Class = "uncertain"    // it may have been accepted
)

// Classes lists all of them.
func Classes() []Class {
	return []Class{ClassSuccess, ClassTransient, ClassRateLimited, ClassPermanent, ClassAuth, ClassUncertain}
}

// DeliveryView is one delivery with its state, as it is shown.
type DeliveryView struct {
	Seq           Seq
	ID            uuid.UUID
	RequestID     uuid.UUID
	Channel       string // without the prefix of its queue's name
	Purpose       Purpose
	Recipient     string // its id
	Masked        string
	Locale        string
	Reason        string // why the channel was chosen
	Status        DeliveryStatus
	AttemptCount  int    // attempts made since the last replay, whichever their end
	NextAttemptAt Micros // PENDING and RETRY_WAIT, otherwise 0
	CreatedAt     Micros
	FinishedAt    Micros // when the status became final or UNCERTAIN, otherwise 0
	ProviderID    string // the provider's message id
	ErrorClass    Class  // of the last attempt since the last replay that did not succeed; "" where there is none
	ErrorCode     string
	ErrorText     string
	Replay        int
}

// DeliveryListParams asks for one page of deliveries, newest first (by seq).
type DeliveryListParams struct {
	Status  DeliveryStatus // "": any
	Channel SourceID       // 0: all
	From    Micros         // created at or after; 0: no bound
	To      Micros         // created before; 0: no bound
	Before  Seq            // only those before; 0: the first page
	Limit   int
}

// DeliveryPage is one page. Next is where the following one begins (Before), 0
// where nothing follows.
type DeliveryPage struct {
	Items []DeliveryView
	Next  Seq
}

// RequestView is one request with all that hangs on it, as it is shown.
type RequestView struct {
	Request    NewRequest // without Deliveries, Message, Sensitive and Content
	Seq        Seq
	AcceptedAt Micros
	Cancelled  bool // somebody has asked for it, whatever came of it
	Secret     bool // it has sensitive variables
	Erased     bool // they are gone
	Deliveries []DeliveryView
	Attempts   map[Seq][]AttemptView // of each delivery, oldest first, with the successful one
	Audit      []AuditRecord         // of the request and of its deliveries, oldest first
}

// Audit says who changes something, and why. It is written in the transaction
// that changes it.
type Audit struct {
	Actor  string // who: an operator's name, "system"
	Reason string // why, in words
}

// AuditRecord is one thing that somebody did.
type AuditRecord struct {
	Seq     int64
	At      Micros
	Actor   string
	Action  string // what: "delivery.replay", "delivery.resolve", "notification.cancel", "channel.pause", "channel.resume"
	Target  string // on what: "delivery/<id>", "notification/<id>", "channel/<name>"
	Reason  string
	Details json.RawMessage // a small object, without any value of a variable or an address: the former status, the outcome
}

// ChangeResult is what a change of one delivery came to.
type ChangeResult struct {
	ID     uuid.UUID
	Found  bool
	Done   bool           // it was changed
	Was    DeliveryStatus // before the call
	Is     DeliveryStatus // after it
	Erased bool           // refused since its sensitive values are gone: there is nothing to send
}

// ReplayParams makes deliveries pending again, each in the next replay round.
type ReplayParams struct {
	IDs []uuid.UUID
	// Force also replays what has succeeded, was cancelled, or is uncertain.
	Force bool
	Audit Audit
}
