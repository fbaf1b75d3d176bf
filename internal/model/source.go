package model

import "time"

// Tenant is what the work of a queue is.
type Tenant int8

// The numbers are stored; they never change.
const (
	TenantInbox    Tenant = 0 // messages that were received
	TenantDelivery Tenant = 1 // deliveries through one channel
)

// ChannelPrefix begins the names of the queues of channels; no source can be
// called so.
const ChannelPrefix = "channel/"

// SourceSpec is what the configuration says of a source, for the store.
type SourceSpec struct {
	Name   string
	Tenant Tenant
	// Enabled is only the first value of the switch: once stored, the stored
	// one wins.
	Enabled bool
	Policy  RetryPolicy
	// Wants is the ordering that holds from now on where none has been agreed
	// yet. What it needs to tell keys is made known.
	Wants Ordering
}

// Source is a source as the store knows it.
type Source struct {
	ID      SourceID
	Name    string
	Tenant  Tenant
	Enabled bool // consumption is switched on
	Agreed  Agreed
	// HoldFor is for how long from now its provider wants to be left alone; see
	// HoldQueue. Whoever reads it may have read it late.
	HoldFor time.Duration
}

// Instance is one run of one process, as the store knows it.
type Instance struct {
	ID         InstanceID
	Name       string
	StartedAt  Micros
	LeaseUntil Micros
	Dead       bool
}

// Holding says who holds a partition.
type Holding struct {
	Partition
	Holder InstanceID
	Since  Micros
	Alive  bool // the holder is; otherwise the partition is free
}

// Occupancy is who holds what, and who would.
type Occupancy struct {
	Holdings []Holding // of all queues, by queue and number; none for what nobody holds
	// Consumers counts the living instances that consume a queue.
	Consumers map[SourceID]int
}

// Lease answers who holds a partition.
type Lease struct {
	Held  bool   // by the caller, now
	Since Micros // since when; another one each time that it was free before
	// TakenOver: the former holder died with it. Its work must be recovered
	// before anything is claimed, so that nothing overtakes.
	TakenOver bool
}

// HeartbeatParams renews an instance's lease.
type HeartbeatParams struct {
	Instance InstanceID
	LeaseFor Micros // length of the lease, in microseconds
	// Bury declares instances dead whose lease has run out. An instance that
	// could not renew its own lately buries nobody: after an outage everybody
	// looks dead to everybody.
	Bury bool
}

// Heartbeat is what a renewal found.
type Heartbeat struct {
	Alive   bool // false: this instance was declared dead; it must register anew
	Buried  int  // instances declared dead by this call
	Sources []Source
}
