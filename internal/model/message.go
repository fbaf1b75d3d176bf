package model

import (
	"time"

	"github.com/google/uuid"
)

// SourceID names a source, and the queue of its messages, inside the store.
type SourceID int32

// Seq orders messages: it is given by the store at insert and never reused.
type Seq int64

// NewMessage is a message that has passed the door and is to be kept.
type NewMessage struct {
	ID     uuid.UUID // public id, version 7, made by the door; the same on every try to insert it
	Source SourceID
	// ContentType is the header's value made printable (valid UTF-8, no NUL,
	// at most MaxContentType bytes). Headers hold the exact value.
	ContentType string
	Headers     []byte // HTTP/1.1 field lines, "Name: value\r\n" each, sorted by canonical names; values exact, but credentials replaced by a keyed hash
	Query       []byte // raw query string; credentials replaced by a keyed hash
	Body        []byte // the exact bytes
	Check       string // why an expression could not be evaluated on it; empty where all could
	Key         Key    // where it stands among its source's; the zero Key where the source has no keys
	Dedup       Dedup
}

// Dedup is the sender's own key of a message: of all with the same key, source
// and within the window, one is kept. The zero Dedup keeps all.
type Dedup struct {
	Hash   [32]byte      // of the key, whole and with its type
	Window time.Duration // from when the first was kept; 0: this message has no such key
}

// MaxContentType bounds NewMessage.ContentType, in bytes.
const MaxContentType = 255

// Message is a kept message. It never changes.
type Message struct {
	NewMessage
	Seq        Seq
	ReceivedAt Micros // the store's clock in the transaction that kept it
}

// Put says how NewMessages are brought in.
type Put int

const (
	// PutPending is the door's way: the message is kept and is to be handled.
	PutPending Put = iota
	// PutSuccess is the import's way: the message is kept as handled, and will
	// not be executed.
	PutSuccess
)
