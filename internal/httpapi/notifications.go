package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/notify"
)

// Notifier accepts notifications. Its errors are *notify.Error.
type Notifier interface {
	Accept(ctx context.Context, s notify.Submission) (notify.Receipt, error)
}

// DeliveryStore is what the API does with notifications that are kept. Errors
// carry a model.Code.
type DeliveryStore interface {
	// Request finds a notification with all that hangs on it. CodeNotFound.
	Request(ctx context.Context, id uuid.UUID) (model.RequestView, error)
	// CancelRequest cancels what waits to be sent, and answers for each delivery.
	// CodeNotFound.
	CancelRequest(ctx context.Context, id uuid.UUID, audit model.Audit) ([]model.ChangeResult, error)
	// UserMessages lists messages with numbers above after, ascending.
	UserMessages(ctx context.Context, user string, after int64, limit int) ([]model.UserMessage, error)
	// Delivery finds a delivery with its attempts, oldest first. CodeNotFound.
	Delivery(ctx context.Context, id uuid.UUID) (model.DeliveryView, []model.AttemptView, error)
	// ListDeliveries returns one page, newest first.
	ListDeliveries(ctx context.Context, p model.DeliveryListParams) (model.DeliveryPage, error)
	// ReplayDeliveries makes deliveries pending again, and answers for each in the
	// order given.
	ReplayDeliveries(ctx context.Context, p model.ReplayParams) ([]model.ChangeResult, error)
	// ResolveDelivery ends an UNCERTAIN delivery.
	ResolveDelivery(ctx context.Context, id uuid.UUID, sent bool, audit model.Audit) (model.ChangeResult, error)
	// Audit lists records of one target, or ("") of all, newest first.
	Audit(ctx context.Context, target string, before int64, limit int) ([]model.AuditRecord, error)
}

const (
	// maxBatch is how many notifications a batch may have.
	maxBatch = 1000
	// acceptAtOnce is how many of a batch are accepted at the same time: they end
	// up in the same few commits.
	acceptAtOnce = 128
)

type notificationInput struct {
	ID string `path:"id" pattern:"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$" patternDescription:"a UUID" doc:"The id of a notification."`
}

type cancelInput struct {
	ID      string `path:"id" pattern:"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$" patternDescription:"a UUID" doc:"The id of a notification."`
	Actor   string `header:"Posthouse-Actor" doc:"Who does it, for the audit log: at most 64 printable characters. Without it: api."`
	RawBody []byte `contentType:"application/json"`
}

type statusAnswer[T any] struct {
	Status int
	Body   T
}

func (a *api) registerNotifications(h huma.API) {
	post[NotificationRequest](h, huma.Operation{
		OperationID: "create-notification", Path: "/v1/notifications", Tags: []string{"notifications"},
		Summary:       "Say what happened and whom to tell",
		Description:   "It is kept durably when this answers 202, or 200 for one that had been accepted before. The same idempotency key with other content is 409, and errors names the fields that differ. After 503, or without an answer, submit it again under the same key.",
		DefaultStatus: http.StatusAccepted,
		Responses:     map[string]*huma.Response{"200": a.receiptResponse(h, "Accepted before: a duplicate")},
		Errors:        []int{404, 409, 503},
	}, a.createNotification)
	post[BatchRequest](h, huma.Operation{
		OperationID: "create-notifications", Path: batchPath, Tags: []string{"notifications"},
		Summary:       "Submit up to 1,000 notifications, each accepted by itself",
		Description:   "Of notifications with one idempotency key the first in the list is accepted. Those that were answered 503 can be submitted again under the same key.",
		DefaultStatus: http.StatusMultiStatus, Errors: []int{404, 503},
	}, a.createNotifications)
	huma.Register(h, get("get-notification", "/v1/notifications/{id}", "notifications", "One notification with its deliveries and what happened to it", 404, 503), a.notification)
	post[CancelRequest](h, huma.Operation{
		OperationID: "cancel-notification", Path: "/v1/notifications/{id}/cancel", Tags: []string{"notifications"},
		Summary:     "Cancel what has not begun to be sent",
		Description: "It says for each delivery what came of that. What was sent, or is being sent at this moment, stays so.",
		Errors:      []int{404, 503},
	}, a.cancelNotification)
	user := get("list-user-messages", "/v1/users/{id}/messages", "notifications", "What a user sees in the application, ascending", 404, 422, 503)
	user.Description = "A page ends at limit messages or 4 MiB, whichever comes first."
	huma.Register(h, user, a.userMessages)
}

func (a *api) receiptResponse(h huma.API, description string) *huma.Response {
	return &huma.Response{Description: description, Content: map[string]*huma.MediaType{
		"application/json": {Schema: schemaOf[NotificationReceipt](h)},
	}}
}

func (a *api) createNotification(ctx context.Context, in *bodyInput) (*statusAnswer[NotificationReceipt], error) {
	if a.Notifications == nil {
		return nil, notConfigured()
	}
	body, faults := readBody(in.RawBody)
	submission := readSubmission(body)
	if len(*faults) > 0 {
		return nil, invalid(*faults...)
	}
	receipt, p := a.accept(ctx, "body", submission)
	if p != nil {
		return nil, p
	}
	return &statusAnswer[NotificationReceipt]{acceptedStatus(receipt), NewNotificationReceipt(receipt)}, nil
}

func acceptedStatus(r notify.Receipt) int {
	if r.Duplicate {
		return http.StatusOK
	}
	return http.StatusAccepted
}

// readSubmission reads a notification. What a text may say is notify's business.
func readSubmission(m *members) notify.Submission {
	s := notify.Submission{
		IdempotencyKey: m.required("idempotency_key"), BizType: m.required("biz_type"), Template: m.required("template"),
		Priority: model.Priority(m.oneOf("priority", string(model.PriorityLow), string(model.PriorityNormal), string(model.PriorityHigh))),
		Locale:   m.text("locale"), NotBefore: m.time("not_before"), ExpiresAt: m.time("expires_at"), Tags: m.texts("tags", model.MaxTags),
	}
	if m.get("recipient") == nil {
		m.missing("recipient")
	} else {
		recipient := m.object("recipient")
		s.Recipient.ID = recipient.required("id")
		for _, kind := range recipient.names() {
			if kind == "id" {
				continue
			}
			if address := recipient.text(kind); address != "" {
				if s.Recipient.Addresses == nil {
					s.Recipient.Addresses = map[string]string{}
				}
				s.Recipient.Addresses[kind] = address
			}
		}
	}
	if s.Variables = m.get("variables"); s.Variables != nil && s.Variables[0] != '{' {
		m.fault("variables", "expected an object")
	}
	m.end()
	return s
}

// accept accepts one. at is where it stands in the request.
func (a *api) accept(ctx context.Context, at string, s notify.Submission) (notify.Receipt, *Problem) {
	receipt, err := a.Notifications.Accept(ctx, s)
	if err == nil {
		return receipt, nil
	}
	e, ok := errors.AsType[*notify.Error](err)
	if !ok {
		return receipt, problemOf(ctx, a.Logger, "accept a notification", err)
	}
	return receipt, refusalOf(at, e)
}

// acceptStatuses are how each refusal is answered.
var acceptStatuses = map[notify.Code]int{
	notify.Invalid: http.StatusUnprocessableEntity, notify.Conflict: http.StatusConflict, notify.Unavailable: http.StatusServiceUnavailable,
}

func refusalOf(at string, e *notify.Error) *Problem {
	status, ok := acceptStatuses[e.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	p := newProblem(status, e.Detail)
	p.retryAfter = e.RetryAfter
	for _, f := range e.Fields {
		location := at
		if f.Field != "" {
			location += "." + f.Field
		}
		p.add([]ProblemError{{location, f.Problem}})
	}
	return p
}

func (a *api) createNotifications(ctx context.Context, in *bodyInput) (*answer[BatchAnswer], error) {
	if a.Notifications == nil {
		return nil, notConfigured()
	}
	body, faults := readBody(in.RawBody)
	var list []json.RawMessage
	if value := body.get("notifications"); value == nil {
		body.missing("notifications")
	} else if json.Unmarshal(value, &list) != nil || len(list) == 0 || len(list) > maxBatch {
		body.fault("notifications", fmt.Sprintf("expected a list of 1 to %d notifications", maxBatch))
	}
	body.end()
	if len(*faults) > 0 {
		return nil, invalid(*faults...)
	}
	return &answer[BatchAnswer]{BatchAnswer{a.acceptAll(ctx, list)}}, nil
}

// acceptAll accepts many at once, those with one idempotency key one after the
// other, so that the first in the list wins.
func (a *api) acceptAll(ctx context.Context, list []json.RawMessage) []BatchResult {
	results := make([]BatchResult, len(list))
	submissions := make([]notify.Submission, len(list))
	places := make(map[string][]int, len(list)) // by key
	var keys []string
	for i, raw := range list {
		var faults []ProblemError
		submissions[i] = readSubmission(readMembers(batchPlace(i), raw, &faults))
		if faults != nil {
			results[i] = BatchResult{Status: http.StatusUnprocessableEntity, Problem: invalid(faults...)}
			continue
		}
		key := submissions[i].IdempotencyKey
		if places[key] == nil {
			keys = append(keys, key)
		}
		places[key] = append(places[key], i)
	}
	free := make(chan struct{}, acceptAtOnce)
	var running sync.WaitGroup
	for _, key := range keys {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			for _, i := range places[key] {
				results[i] = a.acceptOne(ctx, batchPlace(i), submissions[i])
			}
		})
	}
	running.Wait()
	boundFaults(results)
	return results
}

// boundFaults leaves maxFaults for all of a batch, and to each notification that
// is wrong at least its first.
func boundFaults(results []BatchResult) {
	left := maxFaults
	listed := map[string]bool{} // what members are known is told once
	for _, r := range results {
		if r.Problem == nil {
			continue
		}
		faults := r.Problem.Errors
		if keep := max(1, left); len(faults) > keep {
			faults = append(faults[:keep:keep], moreFaults)
		}
		left = max(0, left-len(faults))
		for i, f := range faults {
			if what, known, found := strings.Cut(f.Message, knownAre); found && what == notKnown {
				if listed[known] {
					faults[i].Message = notKnown
				}
				listed[known] = true
			}
		}
		r.Problem.Errors = faults
	}
}

func batchPlace(i int) string { return fmt.Sprintf("body.notifications[%d]", i) }

func (a *api) acceptOne(ctx context.Context, at string, s notify.Submission) (result BatchResult) {
	defer func() {
		// Its goroutine is not the server's, which would answer a panic.
		if cause := recover(); cause != nil {
			a.Logger.Error("accepting a notification panicked", "panic_type", fmt.Sprintf("%T", cause))
			p := newProblem(http.StatusInternalServerError, textOf(model.CodeInternal))
			result = BatchResult{Status: p.Status, Problem: p}
		}
	}()
	receipt, p := a.accept(ctx, at, s)
	if p != nil {
		return BatchResult{Status: p.Status, Problem: p}
	}
	shown := NewNotificationReceipt(receipt)
	return BatchResult{Status: acceptedStatus(receipt), Notification: &shown}
}

func (a *api) notification(ctx context.Context, in *notificationInput) (*answer[NotificationDetail], error) {
	if a.Deliveries == nil {
		return nil, notConfigured()
	}
	view, err := a.Deliveries.Request(ctx, uuid.MustParse(in.ID))
	if err != nil {
		return nil, a.notificationProblem(ctx, "show a notification", err)
	}
	return &answer[NotificationDetail]{NewNotificationDetail(view)}, nil
}

func (a *api) notificationProblem(ctx context.Context, doing string, err error) *Problem {
	p := problemOf(ctx, a.Logger, doing, err)
	if p.Status == http.StatusNotFound {
		p.Detail = "There is no notification with this id."
	}
	return p
}

func (a *api) cancelNotification(ctx context.Context, in *cancelInput) (*answer[CancelAnswer], error) {
	if a.Deliveries == nil {
		return nil, notConfigured()
	}
	reason := ""
	if len(in.RawBody) > 0 {
		body, faults := readBody(in.RawBody)
		reason = body.reason(false)
		body.end()
		if len(*faults) > 0 {
			return nil, invalid(*faults...)
		}
	}
	audit, p := auditOf(in.Actor, reason)
	if p != nil {
		return nil, p
	}
	id := uuid.MustParse(in.ID)
	results, err := a.Deliveries.CancelRequest(ctx, id, audit)
	if err != nil {
		return nil, a.notificationProblem(ctx, "cancel a notification", err)
	}
	view, err := a.Deliveries.Request(ctx, id)
	if err != nil {
		return nil, a.notificationProblem(ctx, "show a notification that was cancelled", err)
	}
	channels := make(map[uuid.UUID]string, len(view.Deliveries))
	for _, d := range view.Deliveries {
		channels[d.ID] = d.Channel
	}
	out := CancelAnswer{ID: id.String(), Status: string(notify.StatusOf(view))}
	out.Deliveries = convert(results, func(r model.ChangeResult) Change {
		c := newChange(r, whyNotCancelled(r.Was))
		c.Channel = channels[r.ID]
		return c
	})
	return &answer[CancelAnswer]{out}, nil
}

func whyNotCancelled(was model.DeliveryStatus) string {
	switch was {
	case model.DeliveryProcessing:
		return "It is being sent at this moment; look again for how that ended."
	case model.DeliverySucceeded, model.DeliveryDelivered:
		return "It was sent before."
	case model.DeliveryFailed, model.DeliveryDead:
		return "It had ended before, without being sent."
	case model.DeliveryUncertain:
		return "It may have been sent; an operator must resolve it."
	case model.DeliveryCancelled:
		return "It was cancelled before."
	case model.DeliveryPending, model.DeliveryRetryWait:
	}
	return "It was not cancelled; look again."
}

type userInput struct {
	ID    string `path:"id" maxLength:"128" doc:"The recipient's id."`
	After int64  `query:"after" minimum:"0" default:"0" doc:"Only messages with a seq above it."`
	Limit int    `query:"limit" default:"50" minimum:"1" maximum:"500" doc:"How many at most."`
}

func (a *api) userMessages(ctx context.Context, in *userInput) (*answer[UserMessageList], error) {
	if a.Deliveries == nil {
		return nil, notConfigured()
	}
	if !printable(in.ID) {
		return nil, invalid(ProblemError{"path.id", "expected printable characters"})
	}
	page, err := a.pageOfMessages(ctx, in)
	if err != nil {
		return nil, problemOf(ctx, a.Logger, "list a user's messages", err)
	}
	return &answer[UserMessageList]{page}, nil
}

const (
	// maxMessages is how many bytes of messages a page has at most, beside its
	// first message.
	maxMessages = 4 << 20
	// messagesAtOnce bounds what is read before it is known how long it is.
	messagesAtOnce = 16
)

// pageOfMessages reads until the page is full: of messages, or of bytes.
func (a *api) pageOfMessages(ctx context.Context, in *userInput) (UserMessageList, error) {
	page := UserMessageList{Items: []UserMessageItem{}}
	size, after := 0, in.After
	for {
		// One more than fits says whether there is more.
		ask := min(in.Limit-len(page.Items)+1, messagesAtOnce)
		list, err := a.Deliveries.UserMessages(ctx, in.ID, after, ask)
		if err != nil {
			return page, err
		}
		for _, m := range list {
			if size += len(m.Title) + len(m.Body); len(page.Items) == in.Limit || size > maxMessages && len(page.Items) > 0 {
				next := strconv.FormatInt(after, 10)
				page.NextCursor = &next
				return page, nil
			}
			page.Items, after = append(page.Items, newUserMessage(m)), m.Seq
		}
		if len(list) < ask {
			return page, nil
		}
	}
}
