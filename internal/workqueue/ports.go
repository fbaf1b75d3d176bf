package workqueue

import (
	"context"

	"github.com/posthouse/posthouse/internal/model"
)

// Queue is the work itself. storetest.Store is the full contract.
type Queue interface {
	AnyDue(ctx context.Context, queue model.SourceID) (bool, error)
	ClaimWork(ctx context.Context, p model.ClaimParams) ([]model.Work, error)
	StartWork(ctx context.Context, p model.StartParams) ([]model.Work, error)
	UnstartWork(ctx context.Context, p model.StartParams) (int, error)
	GiveBack(ctx context.Context, queue model.SourceID, token model.Token) (int, error)
	Settle(ctx context.Context, settlements []model.Settlement) ([]bool, error)
}

// Leases says who holds a queue.
type Leases interface {
	TakeLease(ctx context.Context, queue model.SourceID, instance model.InstanceID) (model.Lease, error)
	DropLease(ctx context.Context, queue model.SourceID, instance model.InstanceID) (bool, error)
}

// Members says who lives, and what the dead left behind.
type Members interface {
	JoinInstance(ctx context.Context, id model.InstanceID, name string, leaseFor model.Micros) error
	LeaveInstance(ctx context.Context, id model.InstanceID) error
	Beat(ctx context.Context, p model.HeartbeatParams) (model.Heartbeat, error)
	Claims(ctx context.Context, owner model.InstanceID) ([]model.Claim, error)
	Orphans(ctx context.Context, limit int) ([]model.Orphan, error)
}

// Store is what the engine needs of a store.
type Store interface {
	Queue
	Leases
	Members
}
