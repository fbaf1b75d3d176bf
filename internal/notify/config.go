package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthouse/posthouse/internal/channel"
	"github.com/posthouse/posthouse/internal/model"
	"github.com/posthouse/posthouse/internal/template"
)

// Store keeps requests durably.
type Store interface {
	// PutTemplates makes versions known and returns their numbers in the order
	// given.
	PutTemplates(ctx context.Context, versions []model.TemplateVersion) ([]model.TemplateID, error)
	// PutRequests keeps all or none, and answers for each in the order given; see
	// model.PutRequest. Called again with the same ids, it keeps each once.
	// CodeRejected: a request is at fault, now and later. CodeUnavailable: none is,
	// and whether they were kept is unknown.
	PutRequests(ctx context.Context, requests []model.NewRequest) ([]model.PutRequest, error)
	// RequestByKey finds what is kept under an idempotency key. CodeNotFound.
	RequestByKey(ctx context.Context, key string) (model.RequestHead, error)
}

// Ring seals what must not be read in the store, and tells contents apart.
type Ring interface {
	// Seal encrypts for one context, without which it cannot be opened.
	Seal(plain []byte, context string) model.Sealed
	// Content fingerprints fields under the current key.
	Content(fields [model.ContentFields][]byte) model.Content
	// SameContent names the fields that differ. The error says that the key which
	// made c is not there.
	SameContent(c model.Content, fields [model.ContentFields][]byte) (differs []string, err error)
}

// SensitiveContext and AddressContext are the contexts under which a request's
// sensitive variables and a delivery's address are sealed, by the id's text.
const (
	SensitiveContext = "sensitive:"
	AddressContext   = "address:"
)

// Channel is what accepting knows of a channel.
type Channel struct {
	Name  string
	Queue model.SourceID
	Kind  string // of the template's parts that it sends: "in_app", "email", "text"
	// InApp: the user message is all of it. There is at most one such channel.
	InApp bool
	// AddressKind is which of a recipient's addresses it uses. Not for InApp.
	AddressKind string
	// Addresses checks them. Not for InApp.
	Addresses channel.Addresses
}

// Policy chooses channels; the first that holds decides.
type Policy struct {
	When    *When    // by CompileWhen; nil holds for all
	Send    []string // names of channels
	Success model.Aggregate
}

// Config configures a Center.
type Config struct {
	Store     Store         // required
	Templates *template.Set // required
	Ring      Ring          // required
	Channels  []Channel
	Policies  []Policy

	// OnPut is told, after each commit, the queues that have new deliveries which
	// are due. It must return at once. Default: nobody is told.
	OnPut func([]model.SourceID)
	// Logger is told of what an operator should know. Default: nothing is logged.
	Logger *slog.Logger
	// Registerer takes the metrics. Default: none.
	Registerer prometheus.Registerer

	AnswerWithin time.Duration // when Accept has answered at the latest, default 5 s
	BatchRows    int           // requests in one transaction at most, default 256
	BatchBytes   int           // bytes in one transaction at most, roughly, default 4 MiB; a larger request goes alone
	QueueRows    int           // requests that may wait, default 4096
	QueueBytes   int           // bytes that they may take, roughly, default 64 MiB
	CallTimeout  time.Duration // for one call of the Store, default 5 s
	RetryPause   time.Duration // before the next call after CodeUnavailable, default 50 ms
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.OnPut == nil {
		c.OnPut = func([]model.SourceID) {}
	}
	c.AnswerWithin = orDefault(c.AnswerWithin, 5*time.Second)
	c.BatchRows = orDefault(c.BatchRows, 256)
	c.BatchBytes = orDefault(c.BatchBytes, 4<<20)
	c.QueueRows = orDefault(c.QueueRows, 4096)
	c.QueueBytes = orDefault(c.QueueBytes, 64<<20)
	c.CallTimeout = orDefault(c.CallTimeout, 5*time.Second)
	c.RetryPause = orDefault(c.RetryPause, 50*time.Millisecond)
	return c
}

func orDefault[T ~int | ~int64](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}

// validate names the first field that makes no sense.
func (c Config) validate() error {
	switch {
	case c.Store == nil:
		return errors.New("notify: Store is missing")
	case c.Templates == nil:
		return errors.New("notify: Templates is missing")
	case c.Ring == nil:
		return errors.New("notify: Ring is missing")
	}
	inApp := 0
	known := map[string]bool{}
	for _, ch := range c.Channels {
		switch {
		case ch.Name == "" || known[ch.Name]:
			return fmt.Errorf("notify: channel %q has no name of its own", ch.Name)
		case ch.Queue == 0 || ch.Kind == "":
			return fmt.Errorf("notify: channel %q lacks its queue or its kind", ch.Name)
		case !ch.InApp && (ch.AddressKind == "" || ch.Addresses == nil):
			return fmt.Errorf("notify: channel %q has no kind of address, or no check of them", ch.Name)
		case ch.InApp:
			inApp++
		}
		known[ch.Name] = true
	}
	if inApp > 1 {
		return errors.New("notify: more than one channel is in-app")
	}
	for i, p := range c.Policies {
		sends := map[string]bool{}
		for _, name := range p.Send {
			if !known[name] || sends[name] {
				return fmt.Errorf("notify: policy %d sends through %q, which is no channel, or stands twice", i+1, name)
			}
			sends[name] = true
		}
		for _, name := range append(append([]string{}, p.Success.All...), p.Success.Any...) {
			if !sends[name] {
				return fmt.Errorf("notify: policy %d asks for success of %q, through which it does not send", i+1, name)
			}
		}
	}
	return nil
}
