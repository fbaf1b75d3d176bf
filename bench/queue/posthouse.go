package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/posthouse/posthouse/inbox"
	"github.com/posthouse/posthouse/inbox/mysql"
	"github.com/posthouse/posthouse/inbox/postgres"
	"github.com/posthouse/posthouse/inbox/sqlite"
	"github.com/posthouse/posthouse/internal/model"
)

const (
	source      = "orders"
	concurrency = 2000 // of parallel: as many as River's workers
	batchSize   = 1000
	putBatch    = 512 // messages in one PutMessages, as the door's writer does at most
)

func openParallel(ctx context.Context, db *database, h *handled) (queue, error) {
	return openInbox(ctx, db, h, inbox.Consume{Order: inbox.Parallel, Concurrency: concurrency, BatchSize: batchSize})
}

func openKeyed(ctx context.Context, db *database, h *handled) (queue, error) {
	return openInbox(ctx, db, h, inbox.Consume{Order: inbox.Keyed, Key: "body.customerId", BatchSize: batchSize})
}

func openSerial(ctx context.Context, db *database, h *handled) (queue, error) {
	return openInbox(ctx, db, h, inbox.Consume{Order: inbox.Serial, BatchSize: batchSize})
}

// store is what packages sqlite, postgres and mysql open.
type store interface {
	inbox.Store
	Migrate(ctx context.Context) error
	Close() error
}

func openStore(ctx context.Context, db *database) (store, error) {
	switch db.name {
	case "postgres":
		return postgres.Open(ctx, postgres.Config{URL: db.url, MaxConns: connections})
	case "mariadb":
		return mysql.Open(ctx, mysql.Config{URL: db.url, MaxConns: connections})
	default:
		return sqlite.Open(ctx, sqlite.Config{Path: db.path})
	}
}

type inboxQueue struct {
	store store
	box   *inbox.Inbox
}

func openInbox(ctx context.Context, db *database, h *handled, consume inbox.Consume) (queue, error) {
	s, err := openStore(ctx, db)
	if err != nil {
		return nil, err
	}
	q := &inboxQueue{store: s}
	if err := q.open(ctx, h, consume); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return q, nil
}

func (q *inboxQueue) open(ctx context.Context, h *handled, consume inbox.Consume) (err error) {
	if err := q.store.Migrate(ctx); err != nil {
		return err
	}
	q.box, err = inbox.Open(ctx, inbox.Config{
		Store: q.store,
		Sources: []inbox.Source{{
			Name: source, Verify: inbox.NoVerification(), Consume: consume,
			Handler: inbox.HandlerFunc(func(context.Context, *inbox.Message) error {
				h.one()
				return nil
			}),
		}},
	})
	return err
}

func (q *inboxQueue) stats(ctx context.Context) (model.SourceStats, error) {
	all, err := q.store.Stats(ctx)
	if err != nil {
		return model.SourceStats{}, err
	}
	if len(all) != 1 {
		return model.SourceStats{}, fmt.Errorf("there are %d sources", len(all))
	}
	return all[0], nil
}

func (q *inboxQueue) fill(ctx context.Context, n int) error {
	s, err := q.stats(ctx)
	if err != nil {
		return err
	}
	for first := 0; first < n; first += putBatch {
		batch := make([]model.NewMessage, min(putBatch, n-first))
		for i := range batch {
			if batch[i], err = message(s.Source, first+i); err != nil {
				return err
			}
		}
		if _, err := q.store.PutMessages(ctx, model.PutPending, batch); err != nil {
			return err
		}
	}
	return nil
}

// message is what the door would make of a push.
func message(source model.Source, number int) (model.NewMessage, error) {
	id, err := uuid.NewV7()
	return model.NewMessage{
		ID: id, Source: source.ID, Key: source.Agreed.KeyOf([]byte(customer(number))), ContentType: "application/json",
		Headers: []byte("Content-Type: application/json\r\nUser-Agent: bench\r\n"),
		Body:    payload(number),
	}, err
}

func (q *inboxQueue) start(ctx context.Context) error { return q.box.Start(ctx) }

func (q *inboxQueue) done(ctx context.Context) (int, error) {
	s, err := q.stats(ctx)
	return int(s.Success), err
}

func (q *inboxQueue) busy(ctx context.Context) (bool, error) {
	s, err := q.stats(ctx)
	return s.Pending+s.Retrying+s.Processing+s.Failed > 0, err
}

func (q *inboxQueue) stop(context.Context) error {
	q.box.Stop()
	return q.store.Close()
}
