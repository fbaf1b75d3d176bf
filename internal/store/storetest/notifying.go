package storetest

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

// Notifications is what every adapter offers for notifications, beside Store
// and under the same rules. A channel is a queue of TenantDelivery, registered
// with Register as model.ChannelPrefix + its name; its work is claimed, started,
// settled, given back and recovered through Store, with Bare claims. A settlement
// of a delivery keeps its Code and ProviderID.
type Notifications interface {
	// PutTemplates makes versions known and returns their numbers in the order
	// given. The same content, code, kind and locale has the same number, for ever.
	PutTemplates(ctx context.Context, versions []model.TemplateVersion) ([]model.TemplateID, error)
	// Templates returns the versions, in the order given. CodeNotFound.
	Templates(ctx context.Context, ids []model.TemplateID) ([]model.TemplateVersion, error)

	// PutRequests keeps requests durably, each with its user message, its
	// deliveries and the work for those that are not Done, and answers for each
	// in the order given. One transaction: when it returns nil all are committed,
	// otherwise none is (or nobody knows: CodeUnavailable). Calling it again with
	// the same ids keeps each once, also where deliveries of the first try have
	// ended meanwhile.
	//
	// Insert first: of concurrent ones with one key one is kept, and the others are
	// told so after that one is committed. Deliveries become due at NotBefore, or
	// at once. A Done delivery has an outcome instead of work, and is counted as
	// succeeded. User messages are numbered per user, from 1 without gaps, in the
	// order of commit. CodeRejected means that a request is at fault (try them apart).
	PutRequests(ctx context.Context, requests []model.NewRequest) ([]model.PutRequest, error)
	// RequestByKey finds what is kept under an idempotency key. CodeNotFound.
	RequestByKey(ctx context.Context, key string) (model.RequestHead, error)
	// Request finds one request with its deliveries (by seq), attempts and audit
	// records. CodeNotFound.
	Request(ctx context.Context, id uuid.UUID) (model.RequestView, error)
	// UserMessages lists a user's messages with numbers above after, ascending.
	UserMessages(ctx context.Context, user string, after int64, limit int) ([]model.UserMessage, error)

	// Outgoing returns what is to be sent for deliveries, in the order given; one
	// that is not there is left out.
	Outgoing(ctx context.Context, deliveries []model.Seq) ([]model.Outgoing, error)
	// Delivery finds one delivery with its attempts, oldest first, with the
	// successful one. CodeNotFound.
	Delivery(ctx context.Context, id uuid.UUID) (model.DeliveryView, []model.AttemptView, error)
	// ListDeliveries returns one page, newest first. A first page is fast however
	// many deliveries have ended, whatever the filter.
	ListDeliveries(ctx context.Context, p model.DeliveryListParams) (model.DeliveryPage, error)

	// CancelRequest cancels those deliveries of a request that are PENDING or
	// RETRY_WAIT, and answers for each, by seq. One audit record. CodeNotFound.
	CancelRequest(ctx context.Context, id uuid.UUID, audit model.Audit) ([]model.ChangeResult, error)
	// ExpireDeliveries cancels at most limit deliveries that are PENDING or
	// RETRY_WAIT and whose ExpiresAt has passed, and says how many.
	ExpireDeliveries(ctx context.Context, limit int) (int, error)
	// ReplayDeliveries makes deliveries PENDING again, due now, with no failed
	// attempt and the next replay number: FAILED and DEAD ones, with Force also
	// UNCERTAIN, SUCCEEDED, DELIVERED and CANCELLED ones that are not Done in-app
	// ones (those are refused: there is nothing to send). One whose request has
	// lost its sensitive values is refused (Erased). An audit record for each that
	// is changed, with its former status.
	ReplayDeliveries(ctx context.Context, p model.ReplayParams) ([]model.ChangeResult, error)
	// ResolveDelivery ends an UNCERTAIN delivery: sent makes it SUCCEEDED,
	// otherwise it is PENDING, due now, in the next replay round; that is refused
	// where the sensitive values are gone (Erased). An audit record where it is
	// changed.
	ResolveDelivery(ctx context.Context, id uuid.UUID, sent bool, audit model.Audit) (model.ChangeResult, error)

	// Secrets lists requests above after that have sensitive values, by seq.
	Secrets(ctx context.Context, after model.Seq, limit int) ([]model.Seq, error)
	// EraseSecrets erases the sensitive values of those of the requests whose
	// deliveries are all final, and says how many.
	EraseSecrets(ctx context.Context, requests []model.Seq) (int, error)

	// HoldQueue notes that the provider of a channel wants to be left alone for so
	// long from now, for all processes to read in Source.HoldFor. It never makes a
	// hold shorter.
	HoldQueue(ctx context.Context, queue model.SourceID, wait time.Duration) error
	// Switch is SetEnabled with an audit record where it changes something, and
	// says whether it did. The action is "channel.pause" or "channel.resume" for a
	// channel, the target its name without the prefix. CodeNotFound.
	Switch(ctx context.Context, queue string, enabled bool, audit model.Audit) (changed bool, err error)
	// AddAudit keeps a record (At and Seq are the store's).
	AddAudit(ctx context.Context, record model.AuditRecord) error
	// Audit lists records, newest first, of one target or ("") of all; only those
	// before (by Seq), 0: from the newest.
	Audit(ctx context.Context, target string, before int64, limit int) ([]model.AuditRecord, error)
}
