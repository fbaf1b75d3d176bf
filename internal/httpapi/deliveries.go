package httpapi

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
)

const (
	defaultReplay = 100 // deliveries of one call of a bulk replay
	maxReplay     = 500
	auditPage     = 50
)

type deliveryInput struct {
	ID string `path:"id" pattern:"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$" patternDescription:"a UUID" doc:"The id of a delivery."`
}

type changeInput struct {
	ID      string `path:"id" pattern:"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$" patternDescription:"a UUID" doc:"The id of a delivery."`
	Actor   string `header:"Posthouse-Actor" doc:"Who does it, for the audit log: at most 64 printable characters. Without it: api."`
	RawBody []byte `contentType:"application/json"`
}

type bulkInput struct {
	Actor   string `header:"Posthouse-Actor" doc:"Who does it, for the audit log: at most 64 printable characters. Without it: api."`
	RawBody []byte `contentType:"application/json"`
}

type deliveriesInput struct {
	Status  string `query:"status" enum:"PENDING,PROCESSING,RETRY_WAIT,SUCCEEDED,DELIVERED,FAILED,DEAD,UNCERTAIN,CANCELLED" doc:"Only those that stand so."`
	Channel string `query:"channel" doc:"Only those of this channel."`
	From    string `query:"from" format:"date-time" doc:"Only those that were created at this time or after."`
	To      string `query:"to" format:"date-time" doc:"Only those that were created before."`
	Cursor  string `query:"cursor" doc:"The next_cursor of the page before, with the same filter."`
	Limit   int    `query:"limit" default:"50" minimum:"1" maximum:"500" doc:"How many at most."`
}

func (a *api) registerDeliveries(h huma.API) {
	huma.Register(h, get("list-deliveries", "/v1/deliveries", "deliveries", "List deliveries, newest first", 404, 422, 503), a.listDeliveries)
	huma.Register(h, get("get-delivery", "/v1/deliveries/{id}", "deliveries", "One delivery with its attempts", 404, 503), a.delivery)
	post[BulkReplayRequest](h, huma.Operation{
		OperationID: "replay-deliveries", Path: "/v1/deliveries/replay", Tags: []string{"deliveries"},
		Summary:     "Send many deliveries again",
		Description: "At most limit in one call; call again with next_cursor, or with the ids that are left. dry_run says what would be done. A replay keeps the delivery's id and its former attempts, and leaves an audit record for each.",
		Errors:      []int{404, 503},
	}, a.replayDeliveries)
	post[ReplayRequest](h, huma.Operation{
		OperationID: "replay-delivery", Path: "/v1/deliveries/{id}/replay", Tags: []string{"deliveries"},
		Summary:     "Send a delivery again",
		Description: "For what is FAILED or DEAD, with force also for what is UNCERTAIN, SUCCEEDED, DELIVERED or CANCELLED. It keeps its id, begins a new round of attempts, and is 409 where its status does not allow it, as for the second of two clicks.",
		Errors:      []int{404, 409, 503},
	}, a.replayDelivery)
	post[ResolveRequest](h, huma.Operation{
		OperationID: "resolve-delivery", Path: "/v1/deliveries/{id}/resolve", Tags: []string{"deliveries"},
		Summary: "Say what became of a delivery that is UNCERTAIN",
		Errors:  []int{404, 409, 503},
	}, a.resolveDelivery)
	audit := get("list-audit", "/v1/audit", "audit", "What operators did, newest first", 404, 422, 503)
	huma.Register(h, audit, a.listAudit)
}

func (a *api) listDeliveries(ctx context.Context, in *deliveriesInput) (*answer[DeliveryList], error) {
	if a.Deliveries == nil {
		return nil, notConfigured()
	}
	var faults []ProblemError
	when := func(name, text string) model.Micros {
		if text == "" {
			return 0
		}
		at, ok := parseTime(text)
		if !ok {
			faults = append(faults, ProblemError{"query." + name, expectedTime})
			return 0
		}
		return model.MicrosOf(at)
	}
	f := deliveryFilter{status: model.DeliveryStatus(in.Status), channel: in.Channel, from: when("from", in.From), to: when("to", in.To)}
	before, err := decodePlace(f.String(), in.Cursor)
	if err != nil {
		faults = append(faults, ProblemError{"query.cursor", err.Error()})
	}
	if faults != nil {
		return nil, invalid(faults...)
	}
	page, p := a.pageOf(ctx, f, "query.channel", model.Seq(before), in.Limit)
	if p != nil {
		return nil, p
	}
	list := DeliveryList{Items: convert(page.Items, NewDeliveryItem)}
	if page.Next != 0 {
		next := encodePlace(f.String(), int64(page.Next))
		list.NextCursor = &next
	}
	return &answer[DeliveryList]{list}, nil
}

// deliveryFilter narrows a list of deliveries.
type deliveryFilter struct {
	status   model.DeliveryStatus
	channel  string
	from, to model.Micros
}

// String tells filters apart, for cursors.
func (f deliveryFilter) String() string {
	return fmt.Sprintf("deliveries %s %q %d %d", f.status, f.channel, f.from, f.to)
}

// pageOf reads one page. at is where the channel stands in the request.
func (a *api) pageOf(ctx context.Context, f deliveryFilter, at string, before model.Seq, limit int) (model.DeliveryPage, *Problem) {
	list := model.DeliveryListParams{Status: f.status, From: f.from, To: f.to, Before: before, Limit: limit}
	if f.channel != "" {
		queue, err := a.queue(ctx, model.TenantDelivery, model.ChannelPrefix+f.channel)
		if err != nil {
			return model.DeliveryPage{}, problemOf(ctx, a.Logger, "list deliveries", err)
		}
		if queue == nil {
			return model.DeliveryPage{}, invalid(ProblemError{at, "expected the name of a channel; /v1/channels lists them"})
		}
		list.Channel = queue.ID
	}
	page, err := a.Deliveries.ListDeliveries(ctx, list)
	if err != nil {
		return page, problemOf(ctx, a.Logger, "list deliveries", err)
	}
	return page, nil
}

func (a *api) delivery(ctx context.Context, in *deliveryInput) (*answer[DeliveryDetail], error) {
	if a.Deliveries == nil {
		return nil, notConfigured()
	}
	view, attempts, err := a.Deliveries.Delivery(ctx, uuid.MustParse(in.ID))
	if err != nil {
		p := problemOf(ctx, a.Logger, "show a delivery", err)
		if p.Status == http.StatusNotFound {
			return nil, noDelivery()
		}
		return nil, p
	}
	return &answer[DeliveryDetail]{DeliveryDetail{NewDeliveryItem(view), convert(attempts, NewDeliveryAttempt)}}, nil
}

func noDelivery() *Problem { return notFound("There is no delivery with this id.") }

func (a *api) replayDelivery(ctx context.Context, in *changeInput) (*answer[Change], error) {
	if a.Deliveries == nil {
		return nil, notConfigured()
	}
	body, faults := readBody(in.RawBody)
	reason, force := body.reason(true), body.flag("force")
	body.end()
	if len(*faults) > 0 {
		return nil, invalid(*faults...)
	}
	audit, p := auditOf(in.Actor, reason)
	if p != nil {
		return nil, p
	}
	results, err := a.Deliveries.ReplayDeliveries(ctx, model.ReplayParams{IDs: []uuid.UUID{uuid.MustParse(in.ID)}, Force: force, Audit: audit})
	if err != nil {
		return nil, problemOf(ctx, a.Logger, "replay a delivery", err)
	}
	a.wake()
	return a.changed(results[0], whyNotReplayed(results[0], force))
}

// changed answers for one delivery: what was not done is a conflict.
func (a *api) changed(r model.ChangeResult, why string) (*answer[Change], error) {
	switch {
	case !r.Found:
		return nil, noDelivery()
	case !r.Done:
		return nil, newProblem(http.StatusConflict, why)
	}
	return &answer[Change]{newChange(r, "")}, nil
}

func (a *api) wake() {
	if a.Wake != nil {
		a.Wake()
	}
}

func whyNotReplayed(r model.ChangeResult, force bool) string {
	if !r.Found {
		return "There is no delivery with this id."
	}
	if r.Erased {
		return "The values of its sensitive variables were erased when nothing was left to send; submit a new notification with a key of its own."
	}
	switch r.Was {
	case model.DeliveryPending, model.DeliveryRetryWait:
		return "It is waiting to be sent already."
	case model.DeliveryProcessing:
		return "It is being sent at this moment."
	case model.DeliverySucceeded, model.DeliveryDelivered:
		if force {
			return "There is nothing to send: it is read in the application."
		}
		return "It was sent. To send it once more, say force."
	case model.DeliveryUncertain:
		return "It may have been sent. Resolve it; or say force, and the recipient may get it twice."
	case model.DeliveryCancelled:
		return "It was cancelled. To send it all the same, say force."
	case model.DeliveryFailed, model.DeliveryDead:
	}
	return "It was not replayed; look again."
}

func (a *api) resolveDelivery(ctx context.Context, in *changeInput) (*answer[Change], error) {
	if a.Deliveries == nil {
		return nil, notConfigured()
	}
	body, faults := readBody(in.RawBody)
	outcome, reason := body.oneOf("outcome", "sent", "not_sent"), body.reason(true)
	if outcome == "" && len(*faults) == 0 {
		body.missing("outcome")
	}
	body.end()
	if len(*faults) > 0 {
		return nil, invalid(*faults...)
	}
	audit, p := auditOf(in.Actor, reason)
	if p != nil {
		return nil, p
	}
	result, err := a.Deliveries.ResolveDelivery(ctx, uuid.MustParse(in.ID), outcome == "sent", audit)
	if err != nil {
		if model.CodeOf(err) == model.CodeNotFound {
			return nil, noDelivery()
		}
		return nil, problemOf(ctx, a.Logger, "resolve a delivery", err)
	}
	a.wake()
	why := fmt.Sprintf("Only what is UNCERTAIN can be resolved; it is %s.", result.Was)
	if result.Erased {
		why = whyNotReplayed(result, true)
	}
	return a.changed(result, why)
}

// bulk is a bulk replay as it was asked for.
type bulk struct {
	filter deliveryFilter
	byIDs  bool // and not by the filter
	ids    []uuid.UUID
	dryRun bool
	force  bool
	reason string
	limit  int
	before model.Seq
}

func readBulk(raw []byte) (bulk, []ProblemError) {
	body, faults := readBody(raw)
	b := bulk{dryRun: body.flag("dry_run"), force: body.flag("force"), reason: body.reason(true), limit: body.number("limit", defaultReplay, 1, maxReplay)}
	cursor := body.text("cursor")
	if body.get("filter") == nil {
		body.missing("filter")
	}
	filter := body.object("filter")
	b.byIDs = filter.get("ids") != nil
	ids := filter.texts("ids", maxReplay)
	if b.byIDs && ids != nil && len(ids) == 0 {
		filter.fault("ids", fmt.Sprintf("expected 1 to %d", maxReplay)) // nothing must not mean everything
	}
	var statuses []string
	for _, s := range model.DeliveryStatuses() {
		if s.Final() || s == model.DeliveryUncertain {
			statuses = append(statuses, string(s))
		}
	}
	b.filter.status = model.DeliveryStatus(filter.oneOf("status", statuses...))
	b.filter.channel = filter.named("channel")
	from, to := filter.time("from"), filter.time("to")
	if !from.IsZero() {
		b.filter.from = model.MicrosOf(from)
	}
	if !to.IsZero() {
		b.filter.to = model.MicrosOf(to)
	}
	filter.end()
	body.end()
	if len(*faults) > 0 {
		return b, *faults
	}
	switch none := (deliveryFilter{}); {
	case b.byIDs && (b.filter != none || cursor != ""):
		body.fault("filter.ids", "stand alone: no other filter, and no cursor, with them")
	case !b.byIDs && b.filter.status == "":
		body.fault("filter.status", "is required where there are no ids")
	case !b.byIDs && !b.force && b.filter.status != model.DeliveryFailed && b.filter.status != model.DeliveryDead:
		body.fault("filter.status", "expected FAILED or DEAD, or force")
	}
	var bad []int
	b.ids, bad = parseIDs(ids)
	for _, i := range bad {
		filter.fault(fmt.Sprintf("ids[%d]", i), "expected a UUID")
	}
	before, err := decodePlace(b.filter.String(), cursor)
	if err != nil {
		body.fault("cursor", err.Error())
	}
	b.before = model.Seq(before)
	return b, *faults
}

func (a *api) replayDeliveries(ctx context.Context, in *bulkInput) (*answer[BulkReplayAnswer], error) {
	if a.Deliveries == nil {
		return nil, notConfigured()
	}
	b, faults := readBulk(in.RawBody)
	if len(faults) > 0 {
		return nil, invalid(faults...)
	}
	audit, p := auditOf(in.Actor, b.reason)
	if p != nil {
		return nil, p
	}
	out := BulkReplayAnswer{DryRun: b.dryRun}
	channels := map[uuid.UUID]string{}
	if !b.byIDs {
		page, p := a.pageOf(ctx, b.filter, "body.filter.channel", b.before, b.limit)
		if p != nil {
			return nil, p
		}
		for _, d := range page.Items {
			b.ids = append(b.ids, d.ID)
			channels[d.ID] = d.Channel
		}
		if page.Next != 0 {
			next := encodePlace(b.filter.String(), int64(page.Next))
			out.NextCursor = &next
		}
	}
	results, err := a.replayOrTry(ctx, b, audit)
	if err != nil {
		return nil, problemOf(ctx, a.Logger, "replay deliveries", err)
	}
	out.Results = convert(results, func(r model.ChangeResult) Change {
		c := newChange(r, whyNotReplayed(r, b.force))
		c.Channel = channels[r.ID]
		if r.Found {
			out.Matched++
		}
		if r.Done {
			out.Replayed++
		}
		return c
	})
	return &answer[BulkReplayAnswer]{out}, nil
}

// replayOrTry replays, or finds out what that would do.
func (a *api) replayOrTry(ctx context.Context, b bulk, audit model.Audit) ([]model.ChangeResult, error) {
	if len(b.ids) == 0 {
		return nil, nil
	}
	if !b.dryRun {
		defer a.wake()
		return a.Deliveries.ReplayDeliveries(ctx, model.ReplayParams{IDs: b.ids, Force: b.force, Audit: audit})
	}
	erased := map[uuid.UUID]bool{} // by request
	results := make([]model.ChangeResult, len(b.ids))
	for i, id := range b.ids {
		results[i].ID = id
		view, _, err := a.Deliveries.Delivery(ctx, id)
		if model.CodeOf(err) == model.CodeNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		gone, known := erased[view.RequestID]
		if !known {
			request, err := a.Deliveries.Request(ctx, view.RequestID)
			if err != nil {
				return nil, err
			}
			gone = request.Erased
			erased[view.RequestID] = gone
		}
		results[i] = wouldReplay(view, gone, b.force)
	}
	return results, nil
}

// wouldReplay says what a replay would do with a delivery as it is now.
func wouldReplay(v model.DeliveryView, erased, force bool) model.ChangeResult {
	r := model.ChangeResult{ID: v.ID, Found: true, Was: v.Status, Is: v.Status}
	switch v.Status {
	case model.DeliveryFailed, model.DeliveryDead:
		r.Done = true
	case model.DeliveryUncertain, model.DeliveryCancelled:
		r.Done = force
	case model.DeliverySucceeded, model.DeliveryDelivered:
		r.Done = force && v.Masked != "" // without an address it is read in the application
	case model.DeliveryPending, model.DeliveryProcessing, model.DeliveryRetryWait:
	}
	if r.Done && erased {
		r.Done, r.Erased = false, true
	}
	if r.Done {
		r.Is = model.DeliveryPending
	}
	return r
}

type auditInput struct {
	Target string `query:"target" maxLength:"200" doc:"Only what was done to this: delivery/<id>, notification/<id> or channel/<name>."`
	Cursor string `query:"cursor" doc:"The next_cursor of the page before, of the same target."`
}

func (a *api) listAudit(ctx context.Context, in *auditInput) (*answer[AuditList], error) {
	if a.Deliveries == nil {
		return nil, notConfigured()
	}
	list := "audit " + in.Target
	before, err := decodePlace(list, in.Cursor)
	if err != nil {
		return nil, invalid(ProblemError{"query.cursor", err.Error()})
	}
	if !printable(in.Target) {
		return nil, invalid(ProblemError{"query.target", "expected delivery/<id>, notification/<id> or channel/<name>"})
	}
	records, err := a.Deliveries.Audit(ctx, in.Target, before, auditPage+1)
	if err != nil {
		return nil, problemOf(ctx, a.Logger, "list the audit log", err)
	}
	page := AuditList{}
	if len(records) > auditPage {
		records = records[:auditPage]
		next := encodePlace(list, records[auditPage-1].Seq)
		page.NextCursor = &next
	}
	page.Items = convert(records, newAuditItem)
	return &answer[AuditList]{page}, nil
}

// A place is a cursor of a list that is ordered by one number: it carries which
// list that is, so that it is not taken for a place in another.
const (
	placeVersion = 2
	placeSize    = 1 + 8 + 8
)

func encodePlace(list string, before int64) string {
	b := append(make([]byte, 0, placeSize), placeVersion)
	b = binary.BigEndian.AppendUint64(b, listHash(list))
	b = binary.BigEndian.AppendUint64(b, uint64(before))
	return cursorEncoding.EncodeToString(b)
}

// decodePlace reads what encodePlace wrote for the same list; 0 for the empty
// text, which is the list's beginning. The error says what was expected.
func decodePlace(list, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	b, err := cursorEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(b) != placeSize || b[0] != placeVersion {
		return 0, errNoCursor
	}
	if binary.BigEndian.Uint64(b[1:]) != listHash(list) {
		return 0, errOtherPlace
	}
	before := int64(binary.BigEndian.Uint64(b[9:]))
	if before <= 0 {
		return 0, errNoCursor
	}
	return before, nil
}

func listHash(list string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(list)) // never fails
	return h.Sum64()
}
