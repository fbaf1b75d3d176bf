package model

// SourceSpec is what the configuration says of a source, for the store.
type SourceSpec struct {
	Name string
	// Enabled is only the first value of the switch: once stored, the stored
	// one wins.
	Enabled bool
	Policy  RetryPolicy
}

// Source is a source as the store knows it.
type Source struct {
	ID      SourceID
	Name    string
	Enabled bool // consumption is switched on
}

// Instance is one run of one process, as the store knows it.
type Instance struct {
	ID         InstanceID
	Name       string
	StartedAt  Micros
	LeaseUntil Micros
	Dead       bool
}

// Lease answers who holds a queue.
type Lease struct {
	Held bool // by the caller, now
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
