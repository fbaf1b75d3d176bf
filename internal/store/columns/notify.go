package columns

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// Short makes s fit for a column of text that holds so many bytes: valid UTF-8
// without NUL, and never cut inside a character.
func Short(s string, size int) string {
	s = Text(s[:min(len(s), size+utf8.UTFMax)])
	if len(s) <= size {
		return s
	}
	for !utf8.RuneStart(s[size]) {
		size--
	}
	return s[:size]
}

// FormatContent writes the fields of c, one after the other.
func FormatContent(c model.Content) []byte {
	fields := make([]byte, 0, len(c.Fields)*len(c.Fields[0]))
	for _, field := range c.Fields {
		fields = append(fields, field[:]...)
	}
	return fields
}

var errContent = errors.New("stored content: not as long as it must be")

// ParseContent reads what FormatContent wrote.
func ParseContent(keyID string, fields []byte) (model.Content, error) {
	c := model.Content{KeyID: keyID}
	if len(fields) != len(c.Fields)*len(c.Fields[0]) {
		return model.Content{}, errContent
	}
	for i := range c.Fields {
		copy(c.Fields[i][:], fields[i*len(c.Fields[i]):])
	}
	return c, nil
}

// JSON writes tags, choices, an aggregate. NUL and what is no UTF-8 is escaped,
// or replaced, in the text.
func JSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// ParseJSON reads what JSON wrote.
func ParseJSON(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("stored JSON: %w", err)
	}
	return nil
}

// TemplateHash is the same for two versions where all but their ID is.
func TemplateHash(v model.TemplateVersion) (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, field := range []string{v.Code, v.Kind, v.Locale, v.Subject, v.HTML, v.Text, v.Schema} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(field)))
		hash.Write(size[:])
		hash.Write([]byte(field))
	}
	hash.Sum(sum[:0])
	return sum
}

// Outcome is the word for the end of an attempt that did not succeed.
func Outcome(s *model.Settlement) string {
	switch {
	case s.Uncertain:
		return model.OutcomeUncertain
	case s.Lost:
		return model.OutcomeLost
	}
	return model.OutcomeFailed
}

// ClassOf is the class of an attempt that did not succeed: its reason's, where
// that is one; "" where there was no such attempt.
func ClassOf(outcome string, reason model.Reason) model.Class {
	switch {
	case outcome == "":
		return ""
	case outcome == model.OutcomeUncertain:
		return model.ClassUncertain
	case slices.Contains(model.Classes(), model.Class(reason)):
		return model.Class(reason)
	}
	return model.ClassTransient
}

// ChannelOf is the name of a channel, from that of its queue.
func ChannelOf(queue string) string { return strings.TrimPrefix(queue, model.ChannelPrefix) }

// SortDeliveries brings deliveries into the order of the choices that made them,
// those of one channel by purpose.
func SortDeliveries(choices []model.Choice, deliveries []model.DeliveryHead) {
	place := func(channel string) int {
		i := slices.IndexFunc(choices, func(c model.Choice) bool { return c.Channel == channel && !c.Skipped })
		if i < 0 {
			return len(choices)
		}
		return i
	}
	slices.SortFunc(deliveries, func(a, b model.DeliveryHead) int {
		return cmp.Or(cmp.Compare(place(a.Channel), place(b.Channel)), cmp.Compare(a.Purpose, b.Purpose), cmp.Compare(a.Seq, b.Seq))
	})
}

// The actions and targets of audit records.
const (
	ActionReplay  = "delivery.replay"
	ActionResolve = "delivery.resolve"
	ActionCancel  = "notification.cancel"
)

// DeliveryTarget is a delivery as the target of an audit record.
func DeliveryTarget(id uuid.UUID) string { return "delivery/" + id.String() }

// RequestTarget is a request as the target of an audit record.
func RequestTarget(id uuid.UUID) string { return "notification/" + id.String() }

// SwitchAudit is the record of a queue that is switched: a channel is paused or
// resumed, and so is a source.
func SwitchAudit(queue string, enabled bool, by model.Audit) model.AuditRecord {
	kind, name := "source", queue
	if strings.HasPrefix(queue, model.ChannelPrefix) {
		kind, name = "channel", ChannelOf(queue)
	}
	verb := "pause"
	if enabled {
		verb = "resume"
	}
	return record(kind+"."+verb, kind+"/"+name, by, "{}")
}

// ReplayAudit is the record of a delivery that is replayed.
func ReplayAudit(id uuid.UUID, was model.DeliveryStatus, by model.Audit) model.AuditRecord {
	return record(ActionReplay, DeliveryTarget(id), by, fmt.Sprintf(`{"was":%q}`, was))
}

// ResolveAudit is the record of an uncertain delivery that is resolved.
func ResolveAudit(id uuid.UUID, sent bool, by model.Audit) model.AuditRecord {
	outcome := "not_sent"
	if sent {
		outcome = "sent"
	}
	return record(ActionResolve, DeliveryTarget(id), by, fmt.Sprintf(`{"was":%q,"outcome":%q}`, model.DeliveryUncertain, outcome))
}

// CancelAudit is the record of a request that is cancelled.
func CancelAudit(id uuid.UUID, cancelled int, by model.Audit) model.AuditRecord {
	return record(ActionCancel, RequestTarget(id), by, fmt.Sprintf(`{"cancelled":%d}`, cancelled))
}

// record writes details of words and numbers.
func record(action, target string, by model.Audit, details string) model.AuditRecord {
	return model.AuditRecord{Actor: Text(by.Actor), Action: action, Target: target, Reason: Text(by.Reason), Details: json.RawMessage(details)}
}

// Details makes what an audit record tells an object: nothing is the empty one.
func Details(details json.RawMessage) string {
	if len(details) == 0 {
		return "{}"
	}
	return string(details)
}

// Disorder is how far the times at which rows were made may be out of the order
// of their seqs: writes that overlap take their seqs and times in any order.
const Disorder = time.Minute

// SeqAt finds where rows made at a time begin, without an index on times: rows
// from low to high are made in the order of their seqs, but for less than
// Disorder, which the caller allows for. made reads the first row from a seq on.
// It is asked as often as the number of rows has binary digits, or so.
func SeqAt(low, high model.Seq, at model.Micros, made func(from model.Seq) (seq model.Seq, when model.Micros, found bool, err error)) (model.Seq, error) {
	end := high + 1
	for low < end {
		middle := low + (end-low)/2
		seq, when, found, err := made(middle)
		switch {
		case err != nil:
			return 0, err
		case !found || when >= at:
			end = middle
		default:
			low = seq + 1
		}
	}
	return low, nil
}

// MayReplay says whether a delivery of that status is replayed.
func MayReplay(status model.DeliveryStatus, force bool) bool {
	switch status {
	case model.DeliveryFailed, model.DeliveryDead:
		return true
	case model.DeliveryUncertain, model.DeliverySucceeded, model.DeliveryDelivered, model.DeliveryCancelled:
		return force
	case model.DeliveryPending, model.DeliveryProcessing, model.DeliveryRetryWait:
	}
	return false
}
