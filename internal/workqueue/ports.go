package workqueue

import (
	"context"

	"github.com/posthouse/posthouse/internal/model"
)

// Queue is the work itself. storetest.Store is the full contract.
type Queue interface {
	DueWork(ctx context.Context, p model.DueParams) (model.Due, error)
	ClaimWork(ctx context.Context, p model.ClaimParams) (model.Claimed, error)
	StartWork(ctx context.Context, p model.StartParams) ([]model.Work, error)
	UnstartWork(ctx context.Context, p model.StartParams) (int, error)
	GiveBack(ctx context.Context, queue model.SourceID, token model.Token) (int, error)
	Settle(ctx context.Context, settlements []model.Settlement) ([]bool, error)
	Misplaced(ctx context.Context, queue model.SourceID, id model.KeyID, limit int) ([]model.Message, error)
	Place(ctx context.Context, queue model.SourceID, placed []model.Placed) error
}

// Leases says who holds which partition.
type Leases interface {
	TakeLeases(ctx context.Context, instance model.InstanceID, partitions []model.Partition) ([]model.Lease, error)
	DropLeases(ctx context.Context, instance model.InstanceID, held []model.Holding) (int, error)
	Occupancy(ctx context.Context) (model.Occupancy, error)
}

// Members says who lives, what they agree on, and what the dead left behind.
type Members interface {
	JoinInstance(ctx context.Context, id model.InstanceID, name string, leaseFor model.Micros, wants []model.Want) error
	LeaveInstance(ctx context.Context, id model.InstanceID) error
	Beat(ctx context.Context, p model.HeartbeatParams) (model.Heartbeat, error)
	Agree(ctx context.Context, instance model.InstanceID) ([]model.Source, error)
	Claims(ctx context.Context, owner model.InstanceID) ([]model.Claim, error)
	Orphans(ctx context.Context, limit int) ([]model.Orphan, error)
}

// Store is what the engine needs of a store. One that is Signals, too, wakes
// other processes.
type Store interface {
	Queue
	Leases
	Members
}

// Signals carries wake-ups between processes. Each is a hint, and may be lost.
type Signals interface {
	Notify(ctx context.Context, queues []model.SourceID) error
	Listen(ctx context.Context, heard func([]model.SourceID)) error
}

// Locker excludes other processes beside the store's own leases. The store's
// lease stands in any case: a Locker that fails, or forgets, costs no safety.
type Locker interface {
	// TryLock does not wait for another holder: ok is false. An error says that
	// the backend cannot be asked.
	TryLock(ctx context.Context, name string) (held Held, ok bool, err error)
}

// Held is a lock of a Locker.
type Held = interface {
	// Lost is closed when the lock is not this process's any more.
	Lost() <-chan struct{}
	// Release lets go. Calling it again, or after a loss, does nothing.
	Release()
}
