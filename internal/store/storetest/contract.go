// Package storetest is the contract of a store and the suite that proves it.
// Every adapter runs the same suite against a real database.
package storetest

import (
	"context"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// Store is what every adapter offers. The rooms that use a store declare the
// few methods that they need; this is their union.
//
// Errors are *model.Error. Every call bounds itself in time, also where ctx
// does not (reads 10 s, writes 5 s), and a call whose ctx ends rolls back
// before it returns. Times are the store's clock. A batch is all or nothing
// unless it says otherwise.
type Store interface {
	// Register makes the sources known, in one transaction, and returns them
	// with their ids in the order given. A name that is known keeps its id and
	// its switch; the policy is replaced.
	Register(ctx context.Context, specs []model.SourceSpec) ([]model.Source, error)
	// Sources lists all sources that were ever registered, by name.
	Sources(ctx context.Context) ([]model.Source, error)
	// SetEnabled turns consumption of a source on or off. CodeNotFound.
	SetEnabled(ctx context.Context, source string, enabled bool) error

	// Agree lets the orderings that living instances want become what holds. A
	// source for which this instance and all other living ones that want
	// anything want the same, and another one than holds, begins to drain; one
	// that drains and of which nothing is processing gets its next generation,
	// with all partitions free. A fixed number of statements, however many
	// sources there are. Returns all sources, as they are then.
	//
	// What waited for another one of its key, and so became due with that one, is
	// due again as when it was kept, before the next generation begins. Where
	// there is much of it, that takes several calls.
	//
	// A claim and the beginning of a drain exclude each other: a claim that does
	// not see that its source drains has been committed when the drain begins.
	Agree(ctx context.Context, instance model.InstanceID) ([]model.Source, error)

	// PutMessages keeps messages durably: when it returns nil they are
	// committed. Calling it again with the same ids, after an error whose
	// effect is unknown, keeps each once and makes work for each once, also
	// where a message of the first try has been handled meanwhile. seq follows
	// the order given; received_at is one clock reading of this transaction.
	// All or nothing. CodeRejected means that a row is at fault (try them
	// apart), CodeUnavailable that none is.
	//
	// A message whose Dedup key is known of another message, kept within the
	// window before or earlier in the same call, is not kept again; its place in
	// messages is returned. Of concurrent ones one is kept, and the others are
	// not told so before that one is committed. A key outlives its message.
	PutMessages(ctx context.Context, put model.Put, messages []model.NewMessage) (duplicates []int, err error)
	// ForgetKeys deletes at most limit Dedup keys whose window is over, and says
	// how many.
	ForgetKeys(ctx context.Context, limit int) (int, error)

	// JoinInstance registers a living instance with a lease from now, and what
	// it wants of the queues that it consumes, all in one transaction. It
	// forgets instances that have been dead for a week and left nothing.
	JoinInstance(ctx context.Context, id model.InstanceID, name string, leaseFor model.Micros, wants []model.Want) error
	// LeaveInstance declares an instance dead that has stopped in good order.
	LeaveInstance(ctx context.Context, id model.InstanceID) error
	// Beat renews the lease of a living instance; see HeartbeatParams. A fixed
	// number of statements, however many sources there are. Burying writes
	// down, in the same statement, how many started works the dead one left.
	Beat(ctx context.Context, p model.HeartbeatParams) (model.Heartbeat, error)
	// Instances lists instances, living first.
	Instances(ctx context.Context) ([]model.Instance, error)

	// TakeLeases makes the instance the holder of those of the partitions that
	// nobody living holds (a holder that is the caller itself counts as free),
	// and answers for each in the order given. A dead instance takes nothing, and
	// there is nothing to take of a partition that the source's agreement does
	// not have. Never waits for another holder. One transaction.
	TakeLeases(ctx context.Context, instance model.InstanceID, partitions []model.Partition) ([]model.Lease, error)
	// DropLeases lets go, and says of how many it was still the holder. One that
	// is held since another time is passed over, unless Since is 0: a call that
	// takes effect late does not let go of what was taken anew.
	DropLeases(ctx context.Context, instance model.InstanceID, held []model.Holding) (int, error)
	// Occupancy says who holds what.
	Occupancy(ctx context.Context) (model.Occupancy, error)

	// DueWork says in which slots there is due work: one cheap read.
	DueWork(ctx context.Context, p model.DueParams) (model.Due, error)
	// ClaimWork moves due work to processing, oldest (due_at, seq) first, and
	// returns it in that order. While it runs its owner cannot be declared dead,
	// nor its source begin to drain.
	ClaimWork(ctx context.Context, p model.ClaimParams) (model.Claimed, error)
	// Misplaced lists pending work, due or not, outside of the slots of the
	// KeyID, oldest seq first, with its messages.
	Misplaced(ctx context.Context, queue model.SourceID, id model.KeyID, limit int) ([]model.Message, error)
	// Place moves pending work to where it belongs; what is not pending any more
	// is passed over.
	Place(ctx context.Context, queue model.SourceID, placed []model.Placed) error
	// StartWork marks claimed work as started and returns it with its
	// messages, in the order of Seqs; work that was lost, or that had been
	// started already, is left out, and so is that of an instance that was
	// declared dead: what it had started was counted then.
	StartWork(ctx context.Context, p model.StartParams) ([]model.Work, error)
	// UnstartWork takes the mark of StartWork back from work whose handler
	// never ran; work that was lost is passed over. Returns how many.
	UnstartWork(ctx context.Context, p model.StartParams) (int, error)
	// GiveBack returns all work that is processing under the token to pending,
	// attempt and due_at untouched, whether it was marked as started or not:
	// for claims whose handlers never ran, or whose making had an unknown end.
	// A claim of the queue that is under way, by whomever, is waited for: it may be
	// the one. Returns how many.
	GiveBack(ctx context.Context, queue model.SourceID, token model.Token) (int, error)
	// Claims lists, each once, the claims under which work of this owner is
	// processing, over all queues: so that an instance finds those that it does
	// not know of (a claim that was committed though its call failed).
	Claims(ctx context.Context, owner model.InstanceID) ([]model.Claim, error)
	// Settle ends claims, each guarded by its token, all in one transaction,
	// and says for each whether it was applied; false means lost. It waits for
	// row locks (in the order of seq).
	Settle(ctx context.Context, settlements []model.Settlement) ([]bool, error)
	// Orphans lists processing work whose owner is dead or unknown, or that
	// was started longer than its source's orphan_after ago, oldest seq first.
	Orphans(ctx context.Context, limit int) ([]model.Orphan, error)
	// Replay makes failed messages pending again, with force also successful
	// ones, with retry_count 0, lost 0, due now, and the next replay number.
	// Pending and processing are always refused.
	Replay(ctx context.Context, ids []uuid.UUID, force bool) ([]model.ReplayResult, error)

	// ListMessages returns one page. Fast however many messages have finished.
	ListMessages(ctx context.Context, p model.ListParams) (model.MessagePage, error)
	// Message finds one message with its attempts, oldest first. CodeNotFound.
	Message(ctx context.Context, id uuid.UUID) (model.MessageView, []model.AttemptView, error)
	// Body returns the exact bytes. CodeNotFound.
	Body(ctx context.Context, id uuid.UUID) (model.Message, error)
	// Stats counts per source, all sources, by name. success comes from
	// counters, the rest from the work that is there.
	Stats(ctx context.Context) ([]model.SourceStats, error)
	// Ping checks that the store answers and can be written to.
	Ping(ctx context.Context) error

	// MigrateUp brings the schema to the newest version under a lock, so that
	// several processes may call it at once. MigrateDown takes back one
	// version. SchemaStatus lists all versions, applied or not.
	MigrateUp(ctx context.Context) (applied []int, err error)
	MigrateDown(ctx context.Context) (undone int, err error)
	SchemaStatus(ctx context.Context) ([]model.SchemaVersion, error)
	// CheckReady refuses a schema that is not this binary's (CodeSchema: older,
	// absent, or newer) and settings that are not durable (CodeUnsafe) unless
	// allowed at opening.
	CheckReady(ctx context.Context) error

	Close() error
}

// Signals is what a store offers beside Store where its database can wake
// other processes. Every signal is a hint, and may be lost.
type Signals interface {
	// Notify tells all processes, this one included, that the queues may have
	// due work, or free partitions.
	Notify(ctx context.Context, queues []model.SourceID) error
	// Listen calls heard for every signal until ctx ends or the connection is
	// lost. It calls it once with nil when it has begun to listen: whatever was
	// told before may have been missed.
	Listen(ctx context.Context, heard func([]model.SourceID)) error
}
