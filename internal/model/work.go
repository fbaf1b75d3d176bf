package model

import (
	"fmt"
	"time"
)

// State is where a message stands. Waiting for a retry is no state of its own:
// it is Pending with a retry count above zero.
type State int8

// The numbers are stored; they never change.
const (
	Pending    State = 0
	Processing State = 1
	Failed     State = 2
	Success    State = 3 // never in a row of work: an outcome says it
	Dead       State = 4 // deliveries: tries spent
	Uncertain  State = 5 // deliveries: it may have been accepted; waits for an operator
	Cancelled  State = 6 // deliveries
)

// String is the word that people and the API use.
func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Processing:
		return "processing"
	case Failed:
		return "failed"
	case Success:
		return "success"
	case Dead:
		return "dead"
	case Uncertain:
		return "uncertain"
	case Cancelled:
		return "cancelled"
	}
	return fmt.Sprintf("state(%d)", int8(s))
}

// InstanceID names one run of one process. It is random and never zero.
type InstanceID int64

// Token is the fence of one claim: random and never zero. Whoever writes the
// state of a message shows the token of its claim; a row that was recovered or
// claimed again meanwhile carries another one.
type Token int64

// Work is what is still to be done with one message.
type Work struct {
	Seq        Seq
	Queue      SourceID
	Key        Key
	State      State
	DueAt      Micros
	Token      Token      // 0 unless processing
	Owner      InstanceID // 0 unless processing
	StartedAt  Micros     // when its handler was allowed to start; 0: not (yet)
	RetryCount int        // attempts that failed or were lost since the last replay
	Lost       int        // how many of those were lost with their process
	Replay     int        // how often it was replayed
	Message    *Message   // present where the work was started, unless the claim was Bare
	Outgoing   *Outgoing  // never from a store: for whoever loads what is to be sent
}

// Attempt numbers the attempt that this work is for: 1 for the first since the
// last replay.
func (w Work) Attempt() int { return w.RetryCount + 1 }

// DueParams asks whether there is due work.
type DueParams struct {
	Queue SourceID
	KeyID KeyID
	Slots []Slot // those that are asked for
	// Floor may pass over work that is due before; 0 sees all that is due.
	Floor Micros
}

// Due answers it.
type Due struct {
	Slots []Slot // of those asked for, the ones with due work, each once
	// Misplaced: there is pending work outside of the slots of KeyID.
	Misplaced bool
}

// ClaimParams asks for due work of one queue.
type ClaimParams struct {
	Queue SourceID
	Owner InstanceID // must be registered and not dead, or nothing is claimed
	Token Token
	Limit int
	// The queue's agreement as the caller knows it. Nothing is claimed where it
	// is another one by now.
	Generation int64
	KeyID      KeyID
	Slots      []Slot // those of one partition, or the one slot of a queue without keys
	// Shared: others claim from the same slots at the same time, and work that
	// they are claiming is skipped. Otherwise the caller holds the partition:
	// the claim waits for whoever has a row locked, so that it passes over none.
	Shared bool
	// Block passes over work that has unfinished (pending or processing) work of
	// the same key before it, by seq, unless that is claimed by the same call. A
	// work that is passed over since one before it is due later becomes due with
	// that one.
	Block bool
	// Floor passes over work that is due before; 0 claims all that is due.
	Floor Micros
	// Start sets started_at with the claim and loads the messages, for work
	// that begins at once. Work that must run alone is claimed without being
	// started: that which was lost before and has used AloneFrom retries.
	Start     bool
	AloneFrom int
	// Bare loads no messages: the work is of deliveries.
	Bare bool
}

// Claimed is what a claim took, oldest (due_at, seq) first.
type Claimed struct {
	Works []Work
	// Outdated: the queue's agreement is another one, or is being changed.
	Outdated bool
	// Misplaced: there is pending work, due or not, outside of the slots of
	// KeyID. It may be of any key, so nothing was claimed.
	Misplaced bool
}

// Placed says where a message belongs.
type Placed struct {
	Seq Seq
	Key Key
}

// Claim names one claim: all the work of a queue that it took.
type Claim struct {
	Queue SourceID
	Token Token
}

// StartParams marks claimed work as started, durably, before its handlers run.
type StartParams struct {
	Token Token
	Seqs  []Seq
	Bare  bool // see ClaimParams
}

// SettleKind says how a claim ends.
type SettleKind int8

const (
	// SettleSuccess: handled. The work goes, an outcome stays.
	SettleSuccess SettleKind = iota + 1
	// SettleRetry: the attempt failed or was lost; due again after Delay.
	SettleRetry
	// SettleFailed: tries spent, or permanent. The work stays, for a replay.
	SettleFailed
	// SettleRelease: claimed but given back; the attempt is not burned.
	// Delay 0 keeps due_at, otherwise due again after Delay.
	SettleRelease
	// SettleDead: a delivery's tries are spent. As SettleFailed, but Dead.
	SettleDead
	// SettleUncertain: a delivery may have been accepted, and is not tried
	// again. As SettleFailed, but Uncertain.
	SettleUncertain
)

// String is the word that metrics and logs use.
func (k SettleKind) String() string {
	switch k {
	case SettleSuccess:
		return "success"
	case SettleRetry:
		return "retry"
	case SettleFailed:
		return "failed"
	case SettleRelease:
		return "released"
	case SettleDead:
		return "dead"
	case SettleUncertain:
		return "uncertain"
	}
	return fmt.Sprintf("settle(%d)", int8(k))
}

// Settlement ends one claim. The store applies it only where the row is
// processing under Token.
type Settlement struct {
	Seq   Seq
	Queue SourceID
	Token Token
	Kind  SettleKind

	Delay time.Duration // see SettleRetry and SettleRelease, from the store's now
	Lost  bool          // the attempt was lost with its process (not for SettleSuccess and SettleRelease)
	// Uncertain: nobody knows how the attempt ended; the attempt says so.
	Uncertain bool

	// What the attempt was, from the Work that was executed. Not for
	// SettleRelease. SettleSuccess keeps it in the outcome, all others as an
	// attempt.
	StartedAt  Micros
	Duration   time.Duration // how long the handler ran; the attempt ended at StartedAt + Duration
	RetryCount int           // before this attempt
	Replay     int
	Reason     Reason
	Error      string // any text; kept through CleanError
	HTTPStatus int    // 0 where none
	// Deliveries: the provider's own code for a failure (cut to MaxErrorCode),
	// and its id for what it accepted (SettleSuccess; cut to MaxProviderID).
	Code       string
	ProviderID string
}

// Orphan is processing work that its owner will not finish.
type Orphan struct {
	Work
	OwnerDead bool // the owner is dead or unknown; false: it lives, and the work was started longer than orphan_after ago
	// Alone: when the owner died, this was the only work that it had started.
	Alone bool
	// What the source wants, as its last registration said.
	Policy RetryPolicy
	// Now is the store's clock when the orphan was read.
	Now Micros
}

// RetryPolicy says what happens after an attempt that did not succeed.
type RetryPolicy struct {
	MaxRetry    int             // tries after the first
	Backoff     []time.Duration // waits before retry 1, 2, …; the last one repeats
	OrphanAfter time.Duration   // how long started work may stay processing
	Jitter      time.Duration   // each wait is longer by a random part of it
	Uncertain   OnUncertain
}

// OnUncertain says what follows an attempt of which nobody knows how it ended.
type OnUncertain int8

// The numbers are stored; they never change.
const (
	// UncertainFails counts it as failed: the inbox promises at least once.
	UncertainFails OnUncertain = 0
	// UncertainResend tries again; on the last try the delivery is Uncertain.
	UncertainResend OnUncertain = 1
	// UncertainHold does not try again: the delivery is Uncertain.
	UncertainHold OnUncertain = 2
)

// Delivers says whether the policy is a channel's: spent is Dead then, and only
// what is permanent Failed.
func (p RetryPolicy) Delivers() bool { return p.Uncertain != UncertainFails }

// Wait returns how long to wait after the attempt that had retryCount failures
// before it. No count overflows; an empty schedule waits 30 s.
func (p RetryPolicy) Wait(retryCount int) time.Duration {
	if len(p.Backoff) == 0 {
		return 30 * time.Second
	}
	return p.Backoff[min(max(retryCount, 0), len(p.Backoff)-1)]
}

// Spent says whether the attempt that had retryCount failures before it was
// the last one allowed.
func (p RetryPolicy) Spent(retryCount int) bool { return retryCount >= p.MaxRetry }

// ReplayResult is what a replay did to one message.
type ReplayResult int8

const (
	// ReplayNotFound: no such message.
	ReplayNotFound ReplayResult = iota
	// Replayed: pending again, with all its attempts.
	Replayed
	// ReplayRefused: it is pending or processing, or success without force.
	ReplayRefused
)
